"""Where a benchmark runs: its sizes, a scratch folder that is removed after it, and the session both sides share."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Room", "room", "spark_session"]

T = TypeVar("T")


@dataclass(slots=True)
class Room:
    """One benchmark's surroundings. quick: sizes with which one only sees it work."""

    folder: Path
    quick: bool
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1 << 30)))

    def size(self, full: T, quick: T) -> T:
        """Return the size to use."""
        return quick if self.quick else full

    def fresh(self, name: str) -> Path:
        """Return a path in the scratch folder that nobody has used."""
        return self.folder / f"{next(self._numbers):04d}-{name}"

    def clear(self, path: Path) -> None:
        """Remove a folder whose content has been measured."""
        shutil.rmtree(path, ignore_errors=True)

    def say(self, text: str) -> None:
        """Tell whoever watches how far it is."""
        print(f"  {time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


@contextmanager
def room(*, quick: bool, scratch: str | None = None) -> Iterator[Room]:
    """Make a room in `scratch` (the system's temporary folder unless told otherwise) and clear it out afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="tidegauge-bench-", dir=scratch))
    try:
        yield Room(folder, quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def spark_session(*, jars: Sequence[str] = (), settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """One session for both sides, with the settings of the one that Tidegauge itself would make.

    jars: what the peer has on its class path. settings: what it wants of the session.

    No user interface, instants in UTC, adaptive execution off (it would plan small micro-batches twice). Python
    workers are the interpreter's own, and are kept, as is Spark's default.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if jars:
        told = " ".join(f"--conf {name}={value}" for name, value in (settings or {}).items())
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(jars)} {told} pyspark-shell"
    from tidegauge.engine.spark.session import create_session

    session = create_session("local[*]")
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
