"""The stage operator: complete epochs become engine jobs, and what a job staged becomes manifests for the sinks.

Invariants. An epoch is staged only when the frontier has passed it, that is when its binding is durable and final.
For each output the operator holds the capability of the first epoch that the output lacks, also while a job is under
way beside the worker; a job that fails leaves it where it is. A job reads each slice once, however many outputs want
it.

What a failure does:

    engine failure, transient error     -> the whole job again, after a growing delay; the flow stops after `ATTEMPTS`
                                           (but waits for what is `patient` as long as it takes)
    definite error of a source at e     -> `Failed(source, e)`; its outputs get `[lower, e)` and no more
    definite error of one output at e   -> noted durably; that output gets `[lower, e)` and no more; the others go on

The slices that arrive are the work list. They come in the order of their epochs, and are kept until every output has
them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol

from tidegauge.dataflow import OperatorBuilder, OperatorContext, OperatorInput, OperatorOutput, Stream
from tidegauge.env import Env
from tidegauge.errors.base import Transient, brief
from tidegauge.errors.running import JobGaveUp
from tidegauge.pipeline.failures import OutputFailures
from tidegauge.pipeline.job import Failure, OutputPlan
from tidegauge.pipeline.losses import Losses
from tidegauge.pipeline.need import Need, next_need
from tidegauge.pipeline.perform import Order, Performed, Performer
from tidegauge.reclock.operator import SpanSlices
from tidegauge.reclock.slices import span
from tidegauge.remap.binding import Slice
from tidegauge.remap.round import Failed
from tidegauge.remap.timeline import Timeline
from tidegauge.sinks.persist import Manifest, OutputFailed
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sources.reader import Spawn, backoff

__all__ = ["ATTEMPTS", "JOB_LIMITS", "StageSetup", "StageWatcher", "Staging", "endings", "stage"]

ATTEMPTS: Final = 6
"""How often a job is tried before the flow stops."""

JOB_LIMITS: Final[Mapping[str, int]] = {"bytes": 1 << 30, "records": 10_000_000}
"""How many positions of a source, by its unit, one job coalesces. A single epoch may be larger: it is never split."""

_EPOCH: Final = attrgetter("epoch")


@dataclass(frozen=True, slots=True)
class Staging:
    """The outputs of the stage operator:

    manifests for each output's sink, and sources that turned out to have failed.
    """

    manifests: Mapping[str, Stream[Manifest]]
    failures: Stream[Failed]


class StageWatcher(Protocol):
    """Is told what becomes of jobs, for people."""

    def staging(self, need: Need) -> None: ...  # noqa: D102
    def staged(self, need: Need, performed: Performed) -> None: ...  # noqa: D102
    def retrying(self, need: Need, error: BaseException, attempt: int) -> None: ...  # noqa: D102


def endings(failures: Iterable[Failure], plans: Mapping[str, OutputPlan]) -> dict[str, int]:
    """Return the epoch at which each output concerned by definite failures ends: the least one found."""
    ends: dict[str, int] = {}
    for failure in failures:
        for name, plan in plans.items():
            if name == failure.output or (failure.output is None and plan.source == failure.source):
                ends[name] = min(failure.epoch, ends.get(name, failure.epoch))
    return ends


def between(slices: Sequence[Slice], lower: int, upper: int) -> Sequence[Slice]:
    """Return the slices of the epochs `[lower, upper)`, of slices in the order of their epochs."""
    return slices[bisect_left(slices, lower, key=_EPOCH) : bisect_left(slices, upper, key=_EPOCH)]


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSetup:
    """What the operator works with.

    units: what a position of each source counts. uppers: the first epoch that each output lacks. limits: outputs of
    sources that had failed before, with the epoch at which they end. failures: where the failures of outputs go, and
    which outputs have ended by one. losses: where what is lost goes. discard: forgets files staged in vain. going:
    whether to begin another job.
    """

    timeline: Timeline
    plans: Mapping[str, OutputPlan]
    units: Mapping[str, str]
    uppers: Mapping[str, int]
    limits: Mapping[str, int]
    perform: Performer
    failures: OutputFailures
    losses: Losses
    discard: Callable[[str, tuple[StagedFile, ...]], None]
    spawn: Spawn
    env: Env
    going: Callable[[], bool]
    watcher: StageWatcher


def stage(slices: Stream[SpanSlices], setup: StageSetup) -> Staging:
    """Build the operator."""
    builder = OperatorBuilder(slices.scope, "stage")
    builder.input(slices)
    manifests: dict[str, Stream[Manifest]] = {name: builder.output() for name in setup.plans}
    failures: Stream[Failed] = builder.output()
    builder.build(lambda context: _Stage(context, setup).step)
    return Staging(manifests, failures)


class _Stage:
    """The operator's state. All of it can be lost: it follows from the timeline and the tables."""

    def __init__(self, context: OperatorContext, setup: StageSetup) -> None:
        self.setup = setup
        self.timeline = setup.timeline
        self.plans = setup.plans
        self.uppers = dict(setup.uppers)
        self.limits = dict(setup.limits)
        self.activator = context.activator
        self.wake = context.sync_activator()
        self.ports = {name: port for port, name in enumerate(setup.plans)}
        self.capabilities = dict(zip(setup.plans, context.capabilities, strict=False))
        self.failure_capability = context.capabilities[-1]
        self.slices: dict[str, list[Slice]] = {}
        self.job: tuple[Need, Future[Performed]] | None = None
        self.attempt = 0
        self.quiet_until = float("-inf")
        self.settle()

    def settle(self) -> None:
        """Bring the capabilities to where the outputs stand; an output that has ended releases its own for good."""
        for name, end in self.setup.failures.ended.items():
            self.limits[name] = min(end, self.limits.get(name, end))
        for name, upper in self.uppers.items():
            capability = self.capabilities.get(name)
            if capability is None:
                continue
            if upper >= self.limits.get(name, upper + 1):
                capability.drop()
                del self.capabilities[name]
            else:
                capability.downgrade(upper)
        if not self.capabilities:
            return
        least = min(self.uppers[name] for name in self.capabilities)
        self.failure_capability.downgrade(least)
        for waiting in self.slices.values():
            del waiting[: bisect_left(waiting, least, key=_EPOCH)]

    def step(self, inputs: list[OperatorInput], outputs: list[OperatorOutput]) -> None:
        """Take in slices, hear of a job that ended, and begin as many needs as can be met at once."""
        for _capability, batch in inputs[0].drain():
            for planned in batch:
                for source, found in planned.slices.items():
                    self.slices.setdefault(source, []).extend(found)
        if self.setup.failures.ended:  # a table may have refused since
            self.settle()
        elements = inputs[0].frontier.elements()
        sealed = min(elements) if elements else self.timeline.upper
        while True:
            if self.job is not None:
                if not self.job[1].done():
                    return
                self.hear(outputs)
            if (wait := self.quiet_until - self.setup.env.monotonic()) > 0:
                self.activator.activate_after(wait)
                return
            need = next_need(self.uppers, limits=self.limits, sealed=sealed)
            if need is None or not self.setup.going():
                return
            self.begin(need, outputs)

    def begin(self, need: Need, outputs: list[OperatorOutput]) -> None:
        """Start a job for a need, or meet it at once where its epochs hold nothing for its outputs."""
        wanted = sorted({self.plans[name].source for name in need.outputs})
        held = {source: between(self.slices.get(source, ()), need.lower, need.upper) for source in wanted}
        upper = need.upper
        for source, pieces in held.items():
            upper = span(pieces, upper, limit=JOB_LIMITS[self.setup.units[source]])
        need = Need(need.outputs, need.lower, upper)
        order = Order(
            need,
            {source: list(kept) for source, found in held.items() if (kept := between(found, need.lower, upper))},
            {source: self.timeline.bound(source) for source in wanted},
        )
        if order.slices:
            self.setup.watcher.staging(need)
            future = self.setup.spawn(lambda: self.setup.perform(order))
            self.job = (need, future)
            future.add_done_callback(lambda _future: self.wake.activate())
        else:
            for name in need.outputs:
                self.deliver(name, Manifest(need.lower, need.upper), outputs)
            self.settle()

    def hear(self, outputs: list[OperatorOutput]) -> None:
        """Turn what came of the job into manifests, failures, or another attempt."""
        if self.job is None:
            return
        need, future = self.job
        self.job = None
        error = future.exception()
        if error is None:
            performed = future.result()
            error = next((f.error for f in performed.result.failures if isinstance(f.error, Transient)), None)
            if error is not None:
                for name, staged in performed.result.staged.items():
                    self.setup.discard(name, staged.files)
        if error is not None:
            self.again(need, error)
            return
        self.attempt = 0
        performed = future.result()
        self.setup.losses.note(performed.lost, need.outputs)
        ends = endings(performed.result.failures, self.plans)
        self.report(performed.result.failures, outputs)
        for name in need.outputs:
            if name in ends:
                self.limits[name] = min(ends[name], self.limits.get(name, ends[name]))
            if name in ends or name not in self.capabilities:  # the latter: its table has refused in the meantime
                if name in performed.result.staged:
                    self.setup.discard(name, performed.result.staged[name].files)
            elif name in performed.schemas:
                staged = performed.result.staged[name]
                manifest = Manifest(
                    need.lower, need.upper, performed.job, performed.schemas[name], staged.files, staged.rows
                )
                self.deliver(name, manifest, outputs)
            else:
                self.deliver(name, Manifest(need.lower, need.upper), outputs)
        self.settle()
        self.setup.watcher.staged(need, performed)

    def again(self, need: Need, error: BaseException) -> None:
        """Wait before the next attempt; give up on what cannot pass."""
        if not isinstance(error, OSError | Transient):
            raise error
        self.attempt += 1
        if self.attempt >= ATTEMPTS and not getattr(error, "patient", False):
            raise JobGaveUp(
                first=need.lower, last=need.upper - 1, attempts=self.attempt, detail=brief(error)
            ) from error
        self.setup.watcher.retrying(need, error, self.attempt)
        self.quiet_until = self.setup.env.monotonic() + backoff(self.attempt)

    def report(self, found: Iterable[Failure], outputs: list[OperatorOutput]) -> None:
        """Say what has failed for good: sources to the remap operator, outputs to the log. Each once, the first."""
        firsts = {(f.source, f.output): f for f in sorted(found, key=lambda f: -f.epoch)}
        for failure in firsts.values():
            if failure.output is not None:
                self.setup.failures.failed(OutputFailed(failure.output, failure.epoch, failure.error))
            else:
                failed = Failed(failure.source, failure.epoch, failure.error)
                outputs[-1].give(self.failure_capability, [failed])

    def deliver(self, name: str, manifest: Manifest, outputs: list[OperatorOutput]) -> None:
        """Hand a manifest to its sink and move the output's upper."""
        outputs[self.ports[name]].give(self.capabilities[name], [manifest])
        self.uppers[name] = manifest.upper
