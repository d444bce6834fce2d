"""Unchanged files: the last answer is repeated, without another look at each.

A source is *at rest* when the status alone told of each of its files that it is unchanged, none was opened, none is
missing, and nothing is waited for. Its answer then follows from the bindings, from its last answer, and from the
paths, devices, inode numbers, sizes and modification times of its files. The folders are listed and every file is
asked for its status each time; while all of that is equal, so is the answer.

Invariant: everything kept may be lost; it decides nothing that a look would not. Pickled, nothing is kept.

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
    """The last answer, the bindings that it was given for, and the facts of the files that it came from."""

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
        """Keep the answer of a source at rest, with the bindings and the files that it has."""
        self._kept = _Kept(_facts(files), bound.frontier, bound.schema, observed)

    def again(self, files: Files, bound: Bound, *, now: datetime) -> Observation | None:
        """Return the last answer if it still holds, None if it takes a look."""
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
