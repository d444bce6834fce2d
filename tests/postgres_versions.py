"""The programs of PostgreSQL of other versions than the system's, as `make postgres-versions` fetches them.

`TIDEGAUGE_POSTGRES=18` has all tests that start a server start one of version 18.

>>> sorted(VERSIONS)
[12, 13, 14, 16, 17, 18]
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidegauge.testing.jars import cache

__all__ = ["VERSIONS", "asked_for", "fetched"]

_PINS: Final = Path(__file__).with_suffix(".sha256")
VERSIONS: Final = {
    int(version.partition(".")[0]): version
    for version in (line.split("/")[-2] for line in _PINS.read_text().splitlines())
}
"""What is fetched, by the major version."""


def fetched(major: int) -> Path | None:
    """Return where the programs of a version are, None where they were not fetched."""
    folder = cache(os.environ, f"postgres-{VERSIONS[major]}") / "bin"
    return folder if folder.is_dir() else None


def asked_for(environ: Mapping[str, str]) -> Path | None:
    """Return the programs of the version that somebody wants all tests to run on.

    >>> asked_for({})
    """
    major = environ.get("TIDEGAUGE_POSTGRES")
    return None if major is None else fetched(int(major))
