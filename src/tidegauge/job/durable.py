"""Written down before anybody goes on past it: ranges that a source has lost, and failures of outputs.

Losses that a source goes on without are durable in `gaps` before an output gets past their epochs (law 9). From then
on, the content of an epoch is its slices without its gaps (law 1), for all readers: `passed`. A task reads the rest
of a slice; the gap is recorded when the task is done and nothing of it is committed yet. If a driver dies before
that, the next one plans again and finds at least as much lost; a recorded loss is not recorded twice.

>>> whole = Slice("orders", 3, "t-0", 10, 20)
>>> [(s.lower, s.upper) for s in without([whole], [Slice("orders", 3, "t-0", 12, 15)])]
[(10, 12), (15, 20)]

Failures of outputs for reasons of their own are durable before anything is done because of them. A function raised,
an expression met a row that it cannot take, a table refuses. The output ends before that epoch for this run, and the
others go on. The next run tries again: a step is code, and code is corrected between runs.

Invariant: a failure in the store is at an epoch that the output's table does not hold, except between a commit and
the effect right after it. Readers of the store compare the table (`LoadedOutput.outstanding`), and the next run takes
back whatever a crash left there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.sources import EndTakenBack
from tidegauge.remap.binding import Slice
from tidegauge.remap.store import Gap, Lease, Loaded, Store
from tidegauge.sources.abilities import GoingOn
from tidegauge.sources.protocol import Source
from tidegauge.sources.union import UnionSource

__all__ = ["Losses", "OutputFailures", "lacking", "left_behind", "passed", "ranges_of", "without"]


def without(slices: Iterable[Slice], lost: Iterable[Slice]) -> list[Slice]:
    """Return the parts of slices that are not lost, in their order."""
    holes: defaultdict[tuple[str, int, str], list[tuple[int, int]]] = defaultdict(list)
    for hole in lost:
        holes[hole.source, hole.epoch, hole.partition].append((hole.lower, hole.upper))
    left = []
    for piece in slices:
        at = piece.lower
        for lower, upper in sorted(holes[piece.source, piece.epoch, piece.partition]):
            if at < min(lower, piece.upper):
                left.append(replace(piece, lower=at, upper=min(lower, piece.upper)))
            at = max(at, upper)
        if at < piece.upper:
            left.append(replace(piece, lower=at))
    return left


def passed(loaded: Loaded) -> dict[str, list[Slice]]:
    """Return the ranges that nobody reads any more, by source, of the epochs by which they are planned now.

    What upstream had taken back before it was bound is in no epoch; other records may have come to stand there.
    """
    found: dict[str, list[Slice]] = {}
    for gap in loaded.gaps:
        if gap.epoch >= loaded.sources[gap.source].began_at and gap.code != EndTakenBack.code:
            epoch = max(gap.epoch, loaded.flow.since)
            found.setdefault(gap.source, []).append(Slice(gap.source, epoch, gap.partition, gap.lower, gap.upper))
    return found


def lacking(loaded: Loaded) -> frozenset[str]:
    """Return the sources whose rows tables may lack: ranges are skipped, or bad records were ever collected."""
    return frozenset(passed(loaded)) | {name for name, source in loaded.sources.items() if source.collected}


def ranges_of(gaps: Iterable[Gap]) -> list[Slice]:
    """Return the ranges of gaps, as slices of the epochs that they were bound to when they were noted."""
    return [Slice(gap.source, gap.epoch, gap.partition, gap.lower, gap.upper) for gap in gaps]


def left_behind(loaded: Loaded, source: str, upper: int) -> list[Slice]:
    """Return what a table lacks, that holds the epochs before `upper`, of incarnations that are over, and is no gap.

    Nobody can read it any more. A table that holds nothing lacks none of it: it begins with the present incarnation.
    """
    found, since = loaded.sources[source], loaded.flow.since
    lower = max(upper, since + 1)
    if not upper or lower >= found.began_at:
        return []
    return without(found.slices(lower, found.began_at), ranges_of(loaded.gaps))


class Losses:
    """Where losses go: the store's `gaps`."""

    def __init__(
        self, store: Store, lease: Lease, flow: str, sources: Mapping[str, Source], *, now: Callable[[], datetime]
    ) -> None:
        self._sources: Final = sources
        self._store: Final = store
        self._lease: Final = lease
        self._flow: Final = flow
        self._now: Final = now

    def note(self, lost: Sequence[Slice], outputs: Collection[str]) -> None:
        """Record durably which ranges outputs lose, unless recorded already."""
        known = ranges_of(self._store.gaps(self._flow))
        reason = f"{', '.join(sorted(outputs))} lacks it: upstream had deleted it before it was read"
        for hole in without(lost, known):
            gap = Gap(
                *(hole.source, hole.epoch, hole.partition, hole.lower, hole.upper),
                *(self._now(), self._code(hole), reason),
            )
            self._store.record_gap(self._lease, gap)

    def _code(self, hole: Slice) -> str:
        source = self._sources[hole.source]
        if isinstance(source, UnionSource):
            return source.loss_of(hole.partition)
        return source.loss if isinstance(source, GoingOn) else ""


class OutputFailures:
    """Failures of outputs, in the store. `known` are the epochs of those that earlier runs left, by output."""

    def __init__(
        self, store: Store, lease: Lease, *, known: Mapping[str, int], watch: Callable[[str, TidegaugeError], None]
    ) -> None:
        self._store: Final = store
        self._lease: Final = lease
        self.known: Final = dict(known)
        """The epoch at which each output failed that has not got past it."""
        self._watch: Final = watch
        self.ended: Final[dict[str, int]] = {}
        """The epoch at which each output ended that has failed in this run."""

    def failed(self, output: str, epoch: int, error: TidegaugeError) -> None:
        """Note that an output has failed at an epoch, durably, before anybody is told."""
        self._store.record_output_failure(self._lease, output, epoch, error)
        self.known[output] = self.ended[output] = epoch
        self._watch(output, error)

    def passed(self, output: str, upper: int) -> None:
        """Take a failure back once the output's table holds its epoch."""
        if upper > self.known.get(output, upper):
            self._store.clear_output_failure(self._lease, output)
            del self.known[output]
