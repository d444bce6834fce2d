"""Files that are as they were: what was said of them is said again, without another look at each.

A source is *at rest* when each of its files was told to be unchanged by its status alone, none was opened, none is
missing, and nothing is waited for. What it says then follows from what is bound, from what it said last, and from the
paths, devices, inode numbers, sizes and modification times of its files. The folders are listed and every file is
asked for its status each time; while all of that is equal, so is the answer.

Invariant: what is kept can all be lost; it decides nothing that a look would not. Pickled, nothing is kept.

>>> from datetime import UTC, datetime
>>> said = Observation(at=datetime(2026, 11, 20, tzinfo=UTC), upper=Frontier(), end=Frontier())
>>> rest, bound = Rest(), Bound(last=said)
>>> rest.keep((), bound, said)
>>> rest.again((), bound, now=datetime(2026, 11, 21, tzinfo=UTC)).at.day
21
>>> print(rest.again((), bound, now=said.at))  # the bound does not tell what was said just now
None
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa

from tidegauge.remap.binding import Bound, Observation
from tidegauge.remap.frontier import Frontier

__all__ = ["Files", "Rest"]

Files: TypeAlias = Sequence[tuple[str, os.stat_result]]


@dataclass(slots=True)
class _Kept:
    """What was said last, given what was bound, and the facts of the files by which it was said."""

    facts: list[tuple[str, int, int, int, int]]
    frontier: Frontier
    schema: pa.Schema | None
    observed: Observation


class Rest:
    """What one source said last, if it was at rest."""

    def __init__(self) -> None:
        self._kept: _Kept | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Rest, ()

    def keep(self, files: Files, bound: Bound, observed: Observation) -> None:
        """Keep what a source at rest says, given what is bound and the files that it has."""
        self._kept = _Kept(_facts(files), bound.frontier, bound.schema, observed)

    def again(self, files: Files, bound: Bound, *, now: datetime) -> Observation | None:
        """Return what is said now if that is what was said last, None if it takes a look."""
        kept = self._kept
        if kept is None or bound.last is not kept.observed or bound.frontier is not kept.frontier:
            return None
        if bound.schema is not kept.schema or _facts(files) != kept.facts:
            return None
        said = kept.observed
        kept.observed = Observation(
            at=now, upper=said.upper, end=said.end, lower=said.lower, details=said.details, note=said.note
        )
        return kept.observed


def _facts(files: Files) -> list[tuple[str, int, int, int, int]]:
    return [(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns) for path, status in files]
