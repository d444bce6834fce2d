"""What the tests tell their JVMs, which live for seconds.

The second compiler and threads that collect garbage would cost more than they save. Classes come from the archives
that `scripts/archives.py` has made, if it has; a JVM that cannot take one loads its classes itself, without a word.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

__all__ = ["KAFKA", "SPARK"]

_ALWAYS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def _archive(name: str) -> str:
    file = Path(sys.prefix) / name
    return f"-XX:SharedArchiveFile={file} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off" if file.exists() else ""


SPARK: Final = f"{_ALWAYS} {_archive('spark.jsa')}".strip()
KAFKA: Final = _archive("kafka.jsa")
