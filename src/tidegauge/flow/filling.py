"""The fills of a run: each unit is durable before the next one begins, and in the end they become one span.

Invariants. The records tell where the next unit begins, also inside an epoch, so a crash repeats the unit that was
under way and no other. Where a source has failed at an epoch, the span ends there and has nothing of that epoch, even
if parts of it are staged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tidegauge.backfill.plan import Fill, StagedUnit
from tidegauge.env import Env
from tidegauge.flow.board import Board
from tidegauge.reclock.parts import START, Cursor, LatestParts
from tidegauge.remap.binding import Slice
from tidegauge.remap.timeline import Timeline
from tidegauge.sinks.backlog import StagedSpan

__all__ = ["Filling"]


class Filling:
    """The fills that are not over. Of the worker's thread alone.

    record: makes one more unit of an output durable. rowwise: the outputs each of whose rows is made of one record.
    """

    def __init__(
        self,
        fills: Mapping[str, Fill],
        timeline: Timeline,
        record: Callable[[str, StagedUnit], None],
        rowwise: frozenset[str],
        board: Board,
        env: Env,
    ) -> None:
        self.of: Final = dict(fills)
        """The fills, by output."""
        self.parts: Final = LatestParts()
        """The work lists of epochs that are staged in parts."""
        self._timeline: Final = timeline
        self._record: Final = record
        self._rowwise: Final = rowwise
        self._board: Final = board
        self._env: Final = env

    @property
    def cursors(self) -> dict[str, Cursor]:
        """The outputs that have a part of the first epoch that they lack, with how much."""
        return {name: fill.cursor for name, fill in self.of.items() if fill.cursor != START}

    def cuttable(self, outputs: tuple[str, ...]) -> bool:
        """Whether outputs may be staged in parts of an epoch.

        Nobody sees the parts until they are together, and steps that see all rows of an epoch do not see its parts.
        """
        return self._rowwise.issuperset(outputs) and self.of.keys() >= set(outputs)

    def end(self, last: Slice | None) -> Cursor:
        """Return the cursor after the last slice that a job has read, `START` where it was to read all of them."""
        if last is None:
            return START
        return self.parts.of(self._timeline.tables[last.source], last.epoch).after(last)

    def followed(self, output: str, staged: StagedSpan, last: Slice | None) -> None:
        """Record one more unit of an output. last: the last slice of a part of an epoch."""
        end = self.end(last)
        if staged.schema is not None:
            unit = StagedUnit(staged, end)
            self._record(output, unit)  # durable before the next one is begun
            self.of[output] = self.of[output].followed(unit)
        part = 0
        if last is not None and end != START:
            part = self.parts.of(self._timeline.tables[last.source], last.epoch).before(end)
        self._board.staged_of(output, staged.upper, part)

    def ended(self, uppers: Mapping[str, int], limits: Mapping[str, int]) -> Iterator[tuple[str, StagedSpan | None]]:
        """Yield the outputs all of whose past is staged, each with all of it; None where there is nothing to show.

        Of a source that has failed it ends where that did. If the past has an epoch that it does not come to, nobody
        sees any of it; the units stay until the source goes on.
        """
        for name, fill in list(self.of.items()):
            end = min(fill.upper, limits.get(name, fill.upper))
            if uppers[name] >= end:
                del self.of[name]
                write = fill.units[-1].staged.job[:16] + self._env.unique()[-16:] if fill.units else ""
                yield name, fill.whole(end, write=write) if fill.shows(end) else None
        if not self.of:
            self.parts.clear()
