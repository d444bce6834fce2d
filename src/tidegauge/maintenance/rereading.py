"""Reading epochs of one output once more: the plan, and the staged rows, or why they cannot be had.

Invariant: the staged rows are those that the flow staged for these epochs, by the same bindings, without losses
recorded since (law 1). An epoch is staged whole or the rereading raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from tidegauge.env import Env
from tidegauge.errors.base import Definite, brief
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.repair import EpochsCompacted, EpochsGone, listed
from tidegauge.flow.spec import FlowSpec
from tidegauge.flow.stage import between, job_limit
from tidegauge.job.durable import passed, without
from tidegauge.job.groups import Need
from tidegauge.job.perform import Performed, PinnedNeed, output_schema, performer
from tidegauge.job.plan import Engine
from tidegauge.reclock.slices import span
from tidegauge.remap.binding import Slice
from tidegauge.remap.store import Loaded, Store
from tidegauge.sinks.mending import Mending, Ranges, joined
from tidegauge.sinks.protocol import StagedFile, job_mark

__all__ = ["Rereading", "told_apart"]


def told_apart(epochs: range, *, since: int, folded: int | None) -> int | None:
    """Return the first of these epochs to read, None where they cannot be told from others.

    folded: the last epoch up to `since` at which the source moved. If all compacted epochs are needed, they come as
    one.

    >>> told_apart(range(4, 9), since=3, folded=3), told_apart(range(2, 9), since=3, folded=1)
    (4, 4)
    >>> told_apart(range(0, 9), since=3, folded=3), told_apart(range(2, 9), since=3, folded=2)
    (3, None)
    """
    if since == 0 or epochs.start > since:
        return epochs.start
    if epochs.start == 0 and epochs.stop > since:
        return since
    return min(since + 1, epochs.stop) if folded is None or folded < epochs.start else None


class Rereading:
    """Reads epochs of one output once more, and stages their rows."""

    def __init__(
        self, flow: FlowSpec, output: str, table: Mending, store: Store, loaded: Loaded, engine: Engine, env: Env
    ) -> None:
        plan = flow.outputs[output]
        self.mark: Final = job_mark(loaded.flow.incarnation)
        self._output: Final = output
        self._name: Final = plan.source
        self._source: Final = flow.sources[plan.source]
        self._found: Final = loaded.sources[plan.source]
        self._since: Final = loaded.flow.since
        self._gaps: Final = store.gaps(flow.name)
        self._passed: Final = passed(loaded, self._gaps)
        self.schema: Final = output_schema(plan, self._found.bound.schema, engine)
        self._perform: Final = performer(
            flow.outputs, flow.sources, engine, env, mark=self.mark, passed=self._passed, tables={output: table}
        )

    def plan(self, epochs: Ranges, upper: int) -> list[list[Slice]]:
        """Return the slices to read for each range. Raises `EpochsCompacted`; `EpochsGone` for an old upstream."""
        return [self._slices(one, min(one.stop, upper)) for one in epochs]

    def _slices(self, epochs: range, stop: int) -> list[Slice]:
        first = told_apart(epochs, since=self._since, folded=self._found.folded)
        if first is None:
            raise EpochsCompacted(output=self._output, epochs=listed([epochs]), since=self._since)
        pieces = self._found.slices(first, stop) if first < stop else []
        over = [piece for piece in pieces if piece.epoch < self._found.began_at]
        lost = [Slice(gap.source, gap.epoch, gap.partition, gap.lower, gap.upper) for gap in self._gaps]
        if gone := without(over, lost):
            raise self._gone({piece.epoch for piece in gone}, "they are of an incarnation of it that is over")
        return pieces[len(over) :]

    def stage(self, planned: Iterable[list[Slice]], files: list[StagedFile]) -> int:
        """Stage the planned slices, into `files`, and return the number of rows. Raises `EpochsGone`."""
        rows = 0
        for pieces in planned:
            while pieces:
                upto = span(pieces, pieces[-1].epoch + 1, limit=job_limit(self._source.unit))
                some = list(between(pieces, pieces[0].epoch, upto))
                need = Need((self._output,), some[0].epoch, upto)
                done = self._perform(PinnedNeed(need, {self._name: some}, {self._name: self._found.bound}))
                if (staged := done.result.staged.get(self._output)) is not None:
                    files += staged.files
                    rows += staged.rows
                self._check(done, pieces)
                pieces = pieces[len(some) :]
        return rows

    def _check(self, done: Performed, pieces: Sequence[Slice]) -> None:
        """Raise unless all was read that is to be."""
        for failure in sorted(done.result.failures, key=lambda failure: failure.epoch):
            lost = failure.output is None and isinstance(failure.error, Definite)
            if not lost or isinstance(failure.error, RecordUnparsable):
                raise failure.error
            raise self._gone({failure.epoch, *self._unplanned(pieces)}, brief(failure.error)) from failure.error
        if done.lost:
            raise self._gone({piece.epoch for piece in done.lost}, "it had deleted them")

    def _unplanned(self, pieces: Sequence[Slice]) -> Iterator[int]:
        """Yield the epochs that the source knows, before it reads, that it cannot read."""
        for epoch, some in groupby(pieces, key=attrgetter("epoch")):
            try:
                self._source.plan(without(some, self._passed.get(self._name, ())), self._found.bound)
            except Definite:
                yield epoch

    def _gone(self, epochs: Iterable[int], detail: str) -> EpochsGone:
        found = listed(joined(range(epoch, epoch + 1) for epoch in epochs))
        return EpochsGone(output=self._output, source=self._name, epochs=found, detail=detail)
