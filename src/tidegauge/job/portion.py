"""What one job takes of a need: many small epochs, one that is large, or a part of one.

A job takes whole epochs, if they are small enough together. One that is larger than a job by itself is taken whole,
or, where its outputs show nothing before all of their past is staged, in parts. A part is the beginning of the rest
of an epoch, up to a position that the source gives (`job.perform`).

Invariant: a portion begins where its need begins, but for epochs that hold nothing, and ends where that ends or
before. It is of whole epochs or of one epoch, and never empty where the need holds anything.

>>> from tidegauge.reclock.parts import Cursor
>>> from tidegauge.remap.frontier import Frontier
>>> table = RemapTable("orders")
>>> table.append(0, Frontier({"p0": 2})); table.append(1, Frontier({"p0": 3})); table.append(2, Frontier({"p0": 99}))
>>> def of(need, *, cuttable):
...     found = portion(need, {"orders": table}, {"orders": 10}, cuttable=cuttable, parts=Parts.of)
...     return found.need, found.most, found.slices["orders"][0].lower
>>> of(Need(("late",), 0, 3), cuttable=True)
(Need(outputs=('late',), lower=0, upper=2), None, 0)
>>> of(Need(("late",), 2, 3), cuttable=True), of(Need(("late",), 2, 3), cuttable=False)[1]
((Need(outputs=('late',), lower=2, upper=3), 10, 3), None)
>>> of(Need(("late",), 2, 3, Cursor("p0", 50)), cuttable=True)
(Need(outputs=('late',), lower=2, upper=3), 10, 50)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tidegauge.job.groups import Need
from tidegauge.reclock.parts import START, Parts
from tidegauge.reclock.slices import span, walk
from tidegauge.remap.binding import Slice
from tidegauge.remap.table import RemapTable

__all__ = ["JOB_LIMITS", "LATE_PART", "LATE_SLICES", "Portion", "job_limit", "late_limit", "portion"]

JOB_LIMITS: Final[Mapping[str, int]] = {"bytes": 1 << 30, "records": 10_000_000}
"""How many positions of a source, by what they count, one job coalesces."""

LATE_PART: Final = 10
"""The part of that which a job of late outputs takes, so that the others' jobs do not wait long for its tasks."""

LATE_SLICES: Final = 5_000
"""How many slices such a job takes. Each is planned and read by itself, and a long past has many small ones."""


def job_limit(unit: str) -> int:
    """Return how many positions of a source one job coalesces. An epoch that is larger may be a job of its own.

    Positions that do not count bytes have the limit of records.
    """
    return JOB_LIMITS["bytes" if unit == "bytes" else "records"]


def late_limit(unit: str) -> int:
    """Return how many positions of a source one job of late outputs coalesces, as `job_limit` does."""
    return max(1, job_limit(unit) // LATE_PART)


@dataclass(frozen=True, slots=True)
class Portion:
    """A need as far as a job takes it, with its slices by source. most: how many of their positions; None for all."""

    need: Need
    slices: Mapping[str, list[Slice]]
    most: int | None = None


def portion(
    need: Need,
    tables: Mapping[str, RemapTable],
    limits: Mapping[str, int],
    *,
    cuttable: bool,
    parts: Callable[[RemapTable, int], Parts],
    slices: int | None = None,
    one: bool = False,
) -> Portion:
    """Return what a job takes of a need for outputs of these sources.

    limits: how many positions of each source. cuttable: whether epochs may be taken in parts; then there is one
    source. parts: returns the work list of an epoch. slices: how many at most. one: no more than one epoch.
    """
    upper = need.upper if need.end == START else need.upper - 1  # that one is not meant as a whole
    if need.begin == START and need.lower < upper:
        if upper - need.lower > 1:
            for source, table in tables.items():
                limit = 1 if one else limits[source]
                upper = span(walk(table, need.lower, upper), upper, limit=limit, most=slices)
        found = {s: pieces for s, table in tables.items() if (pieces := table.slices(need.lower, upper))}
        if not cuttable or all(_fits(pieces, limits[s], slices) for s, pieces in found.items()):
            return Portion(Need(need.outputs, need.lower, upper), found)
        [(_source, [first, *_])] = found.items()
        need = Need(need.outputs, first.epoch, first.epoch + 1)
    [(source, table)] = tables.items()
    end = need.end if upper <= need.lower else START
    work = parts(table, need.lower)
    left = work.left(need.begin, end, most=slices)
    end = work.after(left[-1])
    return Portion(Need(need.outputs, need.lower, need.lower + 1, need.begin, end), {source: left}, limits[source])


def _fits(pieces: list[Slice], limit: int, slices: int | None) -> bool:
    """Whether they are small enough for a job, or several epochs: those are, together."""
    whole = sum(piece.size for piece in pieces) <= limit and (slices is None or len(pieces) <= slices)
    return whole or pieces[0].epoch != pieces[-1].epoch
