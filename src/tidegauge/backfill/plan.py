"""The staged part of an output's past, until one commit makes a table: a value that moves on unit by unit.

Units are what one job after the other has staged: some epochs, or a part of one. They are recorded durably and given
to nobody, until all are in; then they become one span, which the output's sink commits as any other. So nobody ever
sees a part of the past.

Invariants. The units of a fill are in order, and lie apart from each other; between two of them the output's source
holds nothing. A unit with a part of an epoch has nothing else. So the one span, wherever it ends, has all files of
the units before that, and no row of a later epoch. The epochs without a unit follow from the plan alone, so a crash
repeats at most the unit that was under way.

>>> columns = pa.schema([("_epoch", pa.int64())])
>>> def staged(lower, upper, end=START):
...     path = f"part-{lower}-{end.position}.parquet"
...     file = StagedFile(path, rows=1, bytes=9, first_epoch=lower, last_epoch=lower)
...     return StagedUnit(StagedSpan(lower, upper, "a" * 32, columns, (file,), rows=1), end)
>>> fill = Fill(0, 7)
>>> fill.reached, fill.followed(staged(0, 3)).reached
(0, 3)
>>> fill = fill.followed(staged(0, 3)).followed(staged(5, 5, Cursor("p0", 8)))
>>> fill.reached, fill.cursor
(5, Cursor(partition='p0', position=8))
>>> fill = fill.followed(staged(5, 6))
>>> whole = fill.whole(7, write="b" * 32)
>>> whole.lower, whole.upper, whole.rows, [file.path for file in whole.files]
(0, 7, 3, ['part-0-0.parquet', 'part-5-8.parquet', 'part-5-0.parquet'])
>>> [file.path for file in fill.whole(5, write="b" * 32).files]
['part-0-0.parquet']
>>> Fill.of(Backfill(BackfillPlan("late", 0, 6, "faithful", ""), tuple(map(unit_of, fill.units)))) == fill
True
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import pyarrow as pa

from tidegauge.job.code import code_of
from tidegauge.job.plan import OutputPlan
from tidegauge.reclock.parts import START, Cursor
from tidegauge.remap.store import Backfill, BackfillPlan, BackfillUnit
from tidegauge.sinks.backlog import StagedSpan
from tidegauge.sinks.protocol import StagedFile

__all__ = ["Backfill", "BackfillPlan", "Fill", "StagedUnit", "files_of", "steps_of", "unit_of"]


@dataclass(frozen=True, slots=True)
class StagedUnit:
    """The work of one job: the epochs of a span, or a part of one, up to the cursor `end` of the span's upper."""

    staged: StagedSpan
    end: Cursor = START


@dataclass(frozen=True, slots=True)
class Fill:
    """The epochs `[start, upper)` of an output are staged before anybody sees one; `units` are.

    stamp: no row is of an epoch before it, so there is nothing to show unless all up to it is staged.
    """

    start: int
    upper: int
    units: tuple[StagedUnit, ...] = ()
    stamp: int = 0

    @staticmethod
    def of(backfill: Backfill, *, stamp: int = 0) -> Fill:
        """Return the fill that a store has."""
        units = (
            StagedUnit(
                StagedSpan(u.lower, u.upper, u.job, u.schema, tuple(map(StagedFile.decode, u.files)), u.rows),
                Cursor(u.partition, u.position),
            )
            for u in backfill.units
        )
        return Fill(backfill.plan.start, backfill.plan.cutover + 1, tuple(units), stamp)

    @property
    def reached(self) -> int:
        """The first epoch that is not known to be staged, or not all of it."""
        return self.units[-1].staged.upper if self.units else self.start

    @property
    def cursor(self) -> Cursor:
        """How much of that epoch is staged."""
        return self.units[-1].end if self.units else START

    def followed(self, unit: StagedUnit) -> Fill:
        """Return the fill with one more unit."""
        return replace(self, units=(*self.units, unit))

    def straddles(self, end: int) -> bool:
        """Whether a unit has the epoch before `end` and that one, so that the fill cannot end between them."""
        return any(unit.staged.lower < end < unit.staged.upper for unit in self.units)

    def shows(self, end: int) -> bool:
        """Whether there is anything to show of it where it ends before `end`."""
        return end > max(self.start, self.stamp)

    def whole(self, end: int, *, write: str) -> StagedSpan:
        """Return all of it as one span that ends before `end`. write: names the attempt to commit it."""
        spans = [unit.staged for unit in self.units if unit.staged.lower < end]
        if not spans:
            return StagedSpan(self.start, end)
        files = tuple(file for span in spans for file in span.files)
        return StagedSpan(self.start, end, write, spans[-1].schema, files, sum(span.rows for span in spans))


def unit_of(unit: StagedUnit) -> BackfillUnit:
    """Return a unit as the store keeps it. One without columns is not kept."""
    span = unit.staged
    files = tuple(file.encode() for file in span.files)
    schema = span.schema or pa.schema([])
    return BackfillUnit(span.lower, span.upper, span.job, schema, files, span.rows, *unit.end)


def files_of(backfill: Backfill) -> list[StagedFile]:
    """Return the files of all its units."""
    return [StagedFile.decode(file) for unit in backfill.units for file in unit.files]


def steps_of(plan: OutputPlan, incarnation: int = 0, *, edition: str = "", columns: int = 0) -> str:
    """Return a text that tells an output's steps from others: units that other steps have made do not count.

    What it cannot tell apart, `job.code` says; a change that it cannot see mixes rows of both, as it does in a table
    that grows. incarnation: of the output's source. edition: that the rows are to be of, if they replace others.
    columns: the epoch at which those of the source changed last, 0 if they never did.

    >>> from tidegauge.job.plan import Filter, MapBatches
    >>> def of(*steps):
    ...     return steps_of(OutputPlan("large", "orders", "rows", steps, sink=None))
    >>> of(Filter("n > 1")) == of(Filter("n > 1")), of(Filter("n > 1")) == of(Filter("n > 2"))
    (True, False)
    >>> of(MapBatches(lambda batch: batch)) == of(MapBatches(lambda batch: batch[:1]))
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    more = [*([edition] if edition else []), *([f"columns {columns}"] if columns else [])]
    for part in (pa.__version__, str(incarnation), code_of(plan).encode(), *more):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()
