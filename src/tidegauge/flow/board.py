"""The board: what a running flow knows of itself, for people. Nothing decides by it.

Invariant: no state (`flow.statuses`) is claimed before it is known: an output is live once it holds every published
epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from tidegauge.backfill.order import waiting
from tidegauge.backfill.plan import Fill
from tidegauge.backfill.progress import progress
from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.catalog import CatalogNameTaken, CatalogTrouble
from tidegauge.errors.redaction import Redaction
from tidegauge.flow.publication import Publication, Publications
from tidegauge.flow.statuses import OutputCondition, OutputStatus, SourceCondition, SourceStatus, StoreStatus
from tidegauge.job.groups import Need
from tidegauge.job.perform import Performed
from tidegauge.job.plan import OutputPlan
from tidegauge.reclock.slices import held
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.round import Answer, Failure
from tidegauge.remap.timeline import Timeline
from tidegauge.sinks.persist import Committed

__all__ = ["Board", "OutputCondition", "OutputStatus", "SourceCondition", "SourceStatus", "StoreStatus"]

_WAITS_FOR_NOBODY: Final = ("failed", "paused")
"""The states of outputs that nobody waits for."""


class Board:
    """The present state of a flow's sources, outputs and epochs. `changed` is called after each change, if given.

    origins: of each output, the sources whose records it has. uppers: the outputs' durable uppers at the start.
    failed: sources that failed in earlier runs. retried: outputs that did, for reasons of their own. fills: the
    staged past of those that show nothing yet. replacing: those whose tables hold other rows until then. paused:
    why outputs are paused. news: in words, which outputs are new, changed or gone. redaction: what hides the
    secrets in what others say. publications: what tells them, for all boards of a run.
    """

    def __init__(
        self,
        timeline: Timeline,
        *,
        units: Mapping[str, str],
        plans: Mapping[str, OutputPlan],
        origins: Mapping[str, Collection[str]],
        uppers: Mapping[str, int],
        published: int,
        failed: Mapping[str, Failure],
        retried: Collection[str],
        fills: Mapping[str, Fill],
        taking: Collection[str],
        replacing: Collection[str],
        paused: Mapping[str, tuple[str, ...]],
        news: tuple[str, ...],
        env: Env,
        redaction: Redaction,
        publications: Publications,
        changed: Callable[[Board], None] | None,
    ) -> None:
        self.timeline = timeline
        self.upper = timeline.upper
        """The first epoch that is not bound."""
        self.env = env
        self.redaction = redaction
        self.published = published
        self.publication: Publication | None = None
        """The last one of this run."""
        self._publications: Final = publications
        self.reached: int | None = None
        """The upper at which everything was bound that upstream holds, or that it held at the first look."""
        self.awaited: tuple[str, ...] = ()
        """Required sources that did not answer in the last tick, without which nothing is bound."""
        self.news = news
        self.stopping = False
        self.store = StoreStatus()
        self.jobs: set[Need] = set()
        """The epochs that are being staged at present."""
        self.sources = {name: SourceStatus(name, unit) for name, unit in units.items()}
        self._origins: Final = origins
        self._after = {name: plan.after for name, plan in plans.items() if plan.after}
        self.expected = dict(uppers)
        self.outputs = {name: OutputStatus(name, plan.source) for name, plan in plans.items()}
        for output in self.outputs.values():
            upper = uppers[output.name]
            # Another output's table may hold epochs of which the timeline of the source says nothing any more.
            self._place(output, upper if output.name in taking else held(timeline.tables[output.source], upper))
            output.state = "catching_up" if output.upper < published or output.name in retried else "live"
        self._fills = dict(fills)
        for name, fill in fills.items():
            self._fill(name, fill.reached, None)
            self.outputs[name].replacing = name in replacing
        self._pause(paused)
        self.changes = 0
        """How often anything changed. While it stays the same, so does every answer of the board."""
        self._changed = changed
        for source in self.sources.values():
            source.bound = source.end = timeline.tables[source.name].frontier
            source.published = self._shown(source)
            if source.bound.sealed:
                source.state = "sealed"
        for failure in failed.values():
            self._fail(failure)

    def held(self, source: str) -> int:
        """Return the first epoch that is not published and that some output of a source lacks."""
        reading = (o for o in self.outputs.values() if source in self._origins[o.name])
        uppers = [o.upper for o in reading if o.state not in _WAITS_FOR_NOBODY]
        return max(self.published, min(uppers, default=0))

    @property
    def late(self) -> frozenset[str]:
        """The outputs that lack epochs which are published."""
        return frozenset(name for name, status in self.outputs.items() if status.upper < self.published)

    @property
    def waits(self) -> Mapping[str, tuple[str, ...]]:
        """The late outputs that wait for others, each with those."""
        if not self._after:
            return {}
        states = {name: status.state for name, status in self.outputs.items()}
        return waiting(self._after, states, late=self.late)

    @property
    def errors(self) -> list[TidegaugeError]:
        """The definite errors of sources and outputs."""
        found: list[Exception | None] = [s.error for s in self.sources.values() if s.state == "failed"]
        found += [o.error for o in self.outputs.values() if o.state == "failed"]
        return list(dict.fromkeys(error for error in found if isinstance(error, TidegaugeError)))

    def _fail(self, failure: Failure) -> None:
        status = self.sources[failure.source]
        if status.failed_at is not None and status.failed_at <= failure.epoch:
            return
        error = self.redaction.error(failure.error)
        status.state, status.error, status.failed_at = "failed", error, failure.epoch
        status.published = self._shown(status)
        for output in self.outputs.values():
            if output.source == failure.source:
                output.state, output.error = "failed", error

    def _stall(self, status: SourceStatus, error: TidegaugeError | None, attempt: int) -> None:
        if status.state != "stalled":
            status.since = self.env.now()
        status.state, status.error, status.attempt = "stalled", error, attempt

    def _place(self, status: OutputStatus, upper: int) -> None:
        status.upper = upper
        status.lag = max(0, self.upper - upper)

    def _fill(self, output: str, reached: int, part: int | None) -> None:
        status, fill = self.outputs[output], self._fills[output]
        status.filled = progress(fill, self.timeline.tables[status.source], reached=reached, part=part)
        self._well(status)

    def _pause(self, reasons: Mapping[str, tuple[str, ...]]) -> None:
        for name, status in self.outputs.items():
            before, status.paused = status.paused, reasons.get(name, ())
            if status.state != "failed" and (before or status.paused):
                self._well(status)

    def _well(self, status: OutputStatus) -> None:
        """Nothing is known to be wrong with an output."""
        held = status.upper >= self.published
        state: OutputCondition = "backfilling" if status.name in self._fills else "live" if held else "catching_up"
        status.state = "paused" if status.paused else state
        status.error, status.since, status.attempt = None, None, 0

    def _shown(self, status: SourceStatus) -> Frontier:
        """Return how far a source is published: from the epoch at which it failed on, no further."""
        upper = self.published if status.failed_at is None else min(self.published, status.failed_at)
        return self.timeline.tables[status.name].inverse(upper)

    def _tell(self) -> None:
        self.changes += 1
        if self._changed is not None:
            self._changed(self)

    # What the operators tell.

    def answered(self, answer: Answer) -> None:
        """A reader has answered to a tick."""
        status = self.sources[answer.source]
        if answer.observed is not None:
            observed = answer.observed
            held_up = status.unread or (None if answer.error is None else self.redaction.error(answer.error))
            if held_up is None:
                status.state = "running" if status.state in ("stalled", "starting") else status.state
                if observed.note and not observed.end:
                    status.state = "starting"
                status.error, status.since, status.attempt = None, None, 0
            elif status.state != "sealed":
                self._stall(status, held_up, status.attempt)
            status.end, status.note = observed.end, observed.note and self.redaction.text(observed.note)
            if not observed.coming or observed.end != observed.upper:  # else nobody knows yet how far upstream is
                status.goal = observed.end if status.goal is None else status.goal
                beyond = observed.more or observed.coming
                status.looks.append((observed.at, observed.end if beyond else observed.upper))
        elif status.state != "failed":
            self._stall(status, None if answer.error is None else self.redaction.error(answer.error), answer.attempt)
        self._refresh(status)
        self._tell()

    def minted(self) -> None:
        """An epoch has been bound."""
        self.upper = self.timeline.upper
        self._publications.minted(self.upper - 1, at=self.env.now())
        for status in self.sources.values():
            status.bound = self.timeline.tables[status.name].frontier
            if status.bound.sealed and status.state != "failed":
                status.state = "sealed"
        for output in self.outputs.values():
            self._place(output, output.upper)
        self._tell()

    def failed(self, failure: Failure) -> None:
        """A source has failed for good."""
        self._fail(failure)
        self._tell()

    def settled(self, *, caught_up: bool, awaited: tuple[str, ...]) -> None:
        """A tick is over."""
        self.awaited = awaited
        if self.reached is None and (
            caught_up or all(s.arrived or s.state in ("sealed", "failed") for s in self.sources.values())
        ):
            self.reached = self.upper
        self._tell()

    def store_away(self, error: Exception, *, since: datetime | None, attempt: int) -> None:
        """The store cannot be written at present."""
        if attempt != self.store.attempt:
            self.store = StoreStatus(self.redaction.error(error), since, attempt)
            self._tell()

    def store_back(self) -> None:
        """The store is as it should be."""
        if self.store.error is not None:
            self.store = StoreStatus()
            self._tell()

    def tell(self, news: str) -> None:
        """Something is to be said about the flow's outputs."""
        if news not in self.news:
            self.news = (*self.news, news)
            self._tell()

    def stop(self) -> None:
        """The runner was asked to stop: it finishes its current work."""
        self.stopping = True
        self._tell()

    def staging(self, need: Need) -> None:
        """A job has begun."""
        self.jobs.add(need)
        self._tell()

    def ended(self, need: Need) -> None:
        """A job has ended, well or not."""
        self.jobs.discard(need)
        self.changes += 1

    def staged(self, need: Need, performed: Performed) -> None:
        """These outputs have what a job staged for them."""
        self.expected.update({name: need.upper for name in need.outputs if name not in self._fills})
        for name in {self.outputs[output].source for output in need.outputs}:
            status = self.sources[name]
            status.records += performed.result.records.get(name, 0)
            if status.unread is not None and status.error is status.unread:
                status.state = "running" if status.state == "stalled" else status.state
                status.error, status.since, status.attempt = None, None, 0
            status.unread = None
        self._tell()

    def staged_of(self, output: str, reached: int, part: int) -> None:
        """More is staged of the past of an output: the epochs before `reached`, and `part` positions of that one."""
        self._fill(output, reached, part)
        self._tell()

    def filled(self, output: str, upper: int) -> None:
        """All of an output's past is staged, and is to be committed."""
        del self._fills[output]
        self.expected[output] = upper
        self._tell()

    def retrying(self, outputs: Sequence[str], source: str | None, error: BaseException, attempt: int) -> None:
        """Outputs will be tried again, because of a source that cannot be read at present or of something else."""
        known = error if isinstance(error, Exception) else RuntimeError(str(error))
        if source is not None and isinstance(error, TidegaugeError):
            status = self.sources[source]
            status.unread = self.redaction.error(error)
            self.changes += 1
            if status.state not in ("failed", "sealed"):
                self._stall(status, status.unread, attempt)
        for name in outputs:
            self.stalled(name, known, attempt)

    def output_failed(self, output: str, error: TidegaugeError) -> None:
        """An output has failed for good, for a reason of its own."""
        status = self.outputs[output]
        status.state, status.error = "failed", self.redaction.error(error)
        self._tell()

    def stalled(self, output: str, error: Exception, attempt: int) -> None:
        """An output cannot be written at present."""
        status = self.outputs[output]
        if status.state not in ("failed", "paused"):
            status.since = status.since if status.state == "stalled" else self.env.now()
            status.state, status.attempt = "stalled", attempt
            status.error = self.redaction.error(error)
        self._tell()

    def in_catalog(self, output: str) -> None:
        """An output has its name in the catalog, and is not stalled for want of it any more."""
        status = self.outputs[output]
        if isinstance(status.error, CatalogNameTaken | CatalogTrouble):
            self._well(status)
            self._tell()

    def committed(self, committed: Committed) -> None:
        """An output holds more epochs."""
        self._publications.committed(committed)
        status = self.outputs[committed.output]
        self._place(status, committed.upper)
        status.rows += committed.rows
        status.bytes += committed.bytes
        status.commits.append((self.env.monotonic(), committed.rows))
        if status.state != "failed":
            status.filled, status.replacing = None, False
            self._well(status)
        self._tell()

    def paused(self, reasons: Mapping[str, tuple[str, ...]]) -> None:
        """These outputs are paused from now on, and no others."""
        self._pause(reasons)
        self._tell()

    def publish(self, upper: int) -> None:
        """Epochs have been published."""
        lower, self.published = self.published, upper
        for status in self.sources.values():
            status.published = self._shown(status)
            self._refresh(status)
        for output in self.outputs.values():
            self._place(output, output.upper)
        positions = {name: status.published for name, status in self.sources.items()}
        self.publication = self._publications.published(lower, upper, at=self.env.now(), positions=positions)
        self._tell()

    def _refresh(self, status: SourceStatus) -> None:
        while status.looks and status.looks[0][1].less_equal(status.published):
            status.fresh_at = status.looks.popleft()[0]
        while len(status.looks) > 1000:
            status.looks.popleft()
