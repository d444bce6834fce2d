"""What a job reads of a need: its ranges, pinned, and as many of them as a job takes.

Jobs of late outputs are small, for those of the others are beside them, and under a rate a second's worth at most. A
source that failed is tried with one epoch, so that an upstream that is still away costs the engine little.

Invariant: a need that is met in part leaves a need that begins where the part ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tidegauge.backfill.rate import Pacing
from tidegauge.flow.filling import Filling
from tidegauge.job import portion
from tidegauge.job.groups import Need
from tidegauge.job.perform import PinnedNeed
from tidegauge.reclock.parts import START
from tidegauge.remap.timeline import Timeline

__all__ = ["Pinning"]


class Pinning:
    """Pins needs; see `StageSetup` for what it works with. Of the worker's thread alone."""

    def __init__(
        self,
        timeline: Timeline,
        readers: Mapping[str, str],
        units: Mapping[str, str],
        filling: Filling,
        pacing: Pacing,
        late_limit: Callable[[str], int],
        held: Mapping[str, range],
    ) -> None:
        self._timeline: Final = timeline
        self._readers: Final = readers
        self._units: Final = units
        self._filling: Final = filling
        self._pacing: Final = pacing
        self._late_limit: Final = late_limit
        self._held: Final = held

    def pin(self, need: Need, *, late: bool, past: str | None, trying: bool, beside: bool) -> PinnedNeed:
        """Return what a job reads of a need.

        late: whether it is that of late outputs. past: the output whose table it is read from. trying: whether the
        job before it has failed; one epoch is enough, and upstream is asked again for what it has said.
        """
        sources = sorted({self._readers[name] for name in need.outputs})
        cuttable = need.begin != START or (late and past is None and self._filling.cuttable(need.outputs))
        if not cuttable:
            need = replace(need, end=START)
        if past is not None:
            need = replace(need, upper=min(need.upper, self._held[past].stop))
        taken = portion.portion(
            need,
            {source: self._timeline.tables[source] for source in sources},
            {source: self._limit(source, late=late) for source in sources},
            cuttable=cuttable,
            parts=self._filling.parts.of,
            # A table's files are read whole or not at all, however many slices their rows came from.
            slices=portion.LATE_SLICES if late and past is None else None,
            one=trying,
        )
        bounds = {source: self._timeline.bound(source) for source in sources}
        if trying:
            bounds = {source: replace(bound, last=None) for source, bound in bounds.items()}
        return PinnedNeed(taken.need, taken.slices, bounds, late, past, beside, taken.most)

    def empty(self, need: Need) -> Need:
        """Return a need as far as its epochs hold nothing for its outputs.

        That is met without a job, also by a run that is told to stop: nothing of these epochs is published before.
        """
        tables = (self._timeline.tables[source] for source in {self._readers[name] for name in need.outputs})
        moved = (epoch for table in tables if (epoch := table.moved_from(need.lower)) is not None)
        return replace(need, upper=min([need.upper, *moved]), end=START)

    def _limit(self, source: str, *, late: bool) -> int:
        """Return how many positions of a source a job takes."""
        unit = self._units[source]
        if not late:
            return portion.job_limit(unit)
        most, paced = self._late_limit(unit), self._pacing.most(source, unit)
        return most if paced is None else min(most, paced)
