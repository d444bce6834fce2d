"""What a progress file says, and how it is replaced: the upper of an output whose rows are given to a function.

    <path>/progress.json    {"version": 1, "flow": ..., "output": ..., "incarnation": ..., "upper": 42, ...}
    <path>/lock             held by the driver that is in the function

Invariant: the file is always whole, for it is replaced by one rename. It is replaced only by who holds the lock.

>>> import tempfile
>>> from tidegauge.remap.history import NO_HISTORY
>>> first = GivenSoFar("shop", "mails", "a" * 32)
>>> with tempfile.TemporaryDirectory() as folder:
...     with alone(folder, output="shop:mails"):
...         write(folder, first.after(3, NO_HISTORY, write="1" * 32, rows=2, size=64))
...     found = read(folder)
>>> (found.upper, found.rows) if found else None
(3, 2)
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from tidegauge.disk import write_durably
from tidegauge.errors.foreach import EpochFunctionBusy, ProgressFileDamaged
from tidegauge.remap.history import History, Link, fold
from tidegauge.sinks.commits import in_line
from tidegauge.sinks.location import make_folder, synchronise, writing

__all__ = ["PROGRESS", "GivenSoFar", "alone", "read", "write"]

PROGRESS: Final = "progress.json"
_VERSION: Final = 1
_TEXTS: Final = ("flow", "output", "incarnation", "write", "digest")
_NUMBERS: Final = ("upper", "rows", "size")


@dataclass(frozen=True, slots=True)
class GivenSoFar:
    """The function has returned for every epoch before `upper`; the attempt `write` at a commit brought it there.

    rows, size: how many the function was given in all, and their bytes in memory. digest: of the flow's history up to
    there, "" where nothing is known. links: JSON data that says where every source stands then, or else the history
    of the last commit.
    """

    flow: str
    output: str
    incarnation: str
    upper: int = 0
    write: str = ""
    rows: int = 0
    size: int = 0
    digest: str = ""
    links: tuple[Any, ...] = ()

    def after(self, upper: int, history: History, *, write: str, rows: int, size: int) -> GivenSoFar:
        """Return the progress after epochs up to `upper` with this history, and the rows of these."""
        try:
            whole = fold((*map(Link.decode, self.links), *history.links))
        except ValueError:  # changed by hand: it is needed only to recover a lost store
            whole = None
        known = History(() if whole is None else (whole,))
        kept = next((found.links for found in (known, history) if found.links and in_line(found)), ())
        return replace(
            self,
            upper=upper,
            write=write,
            rows=self.rows + rows,
            size=self.size + size,
            digest=history.digest,
            links=tuple(link.encode() for link in kept),
        )


def read(folder: str) -> GivenSoFar | None:
    """Return what the progress file in a folder says, None where there is none. Raises `ProgressFileDamaged`."""
    path = Path(folder, PROGRESS)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        data: Any = json.loads(text)
        if data["version"] != _VERSION:
            raise ValueError(f"it is of version {data['version']}, and this is version {_VERSION}")
        texts = {name: data[name] for name in _TEXTS}
        numbers = {name: data[name] for name in _NUMBERS}
        if not all(isinstance(value, str) for value in texts.values()):
            raise ValueError("a name in it is no text")
        if not all(type(value) is int and value >= 0 for value in numbers.values()):
            raise ValueError("a count in it is no number from 0")
        return GivenSoFar(**texts, **numbers, links=tuple(data["links"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProgressFileDamaged(path=str(path), detail=f"{type(error).__name__}: {error}") from error


def write(folder: str, progress: GivenSoFar) -> None:
    """Replace the progress file, durably. The lock is held."""
    beside = Path(folder, f"{PROGRESS}.new")
    with writing(folder):
        write_durably(beside, json.dumps({"version": _VERSION, **asdict(progress)}).encode())
        beside.replace(Path(folder, PROGRESS))
        synchronise(folder)


@contextmanager
def alone(folder: str, *, output: str) -> Iterator[None]:
    """Hold the lock of a folder. Raises `EpochFunctionBusy` while another process does.

    It goes with the process, however that ends.
    """
    path = Path(folder, "lock")
    with writing(folder):
        make_folder(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EpochFunctionBusy(output=output, path=str(path)) from None
        yield
    finally:
        os.close(descriptor)
