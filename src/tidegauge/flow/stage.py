"""The stage operator: complete epochs become engine jobs, and the sinks get what these staged, span by span.

Invariants. An epoch is staged only when the frontier has passed it, that is when its binding is durable and final.
For each output the operator holds the capability of the first epoch that the output lacks, also while a job is under
way beside the worker; a job that fails leaves it where it is. A job reads each slice once, however many outputs want
it. An output is in one job at a time: one is under way for all that is well, one for the late outputs of each source,
and one for each source or output that is staged apart (`groups.py`), however long that one takes to say that
upstream, or a disk, is still away.

What a failure does (`verdict.py`):

    transient error of a source         -> its outputs again, apart from the others, after a growing delay
    transient error of an output        -> that output again, apart from the others, after a growing delay
    engine failure                      -> the whole job again, after a growing delay
    any, `ATTEMPTS` times in a row      -> the flow stops; but what is `waited_out` may take as long as it takes
    definite error of a source at e     -> noted durably; its outputs get `[lower, e)` and no more
      that only late outputs meet       -> a failure of each of these outputs, and of no other
    definite error of one output at e   -> noted durably; that output gets `[lower, e)` and no more; the others go on

The work list is the timeline: a job's slices are asked of it when the job begins, as many as the job takes. So the
first job of an output that lacks a million epochs costs no more than any other, and one that is paused for a month
keeps no month of slices in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from tidegauge.backfill.plan import Fill, StagedUnit
from tidegauge.backfill.rate import Pacing
from tidegauge.dataflow import OperatorBuilder, OperatorContext, OperatorInput, OperatorOutput, Stream
from tidegauge.env import Env, Spawn
from tidegauge.errors.base import Transient, brief, cause_of
from tidegauge.errors.running import JobGaveUp
from tidegauge.flow.board import Board
from tidegauge.flow.filling import Filling
from tidegauge.flow.pinning import Pinning
from tidegauge.job.durable import Losses, OutputFailures
from tidegauge.job.groups import Apart, Group, Groups, Need, needs
from tidegauge.job.perform import Performed, Performer
from tidegauge.job.plan import OutputPlan
from tidegauge.job.verdict import given_up, judge, keeping, own
from tidegauge.reclock.parts import START
from tidegauge.reclock.slices import held
from tidegauge.remap.binding import Slice
from tidegauge.remap.operator import Span
from tidegauge.remap.round import Failure
from tidegauge.remap.timeline import Timeline
from tidegauge.sinks.backlog import Backlog, StagedSpan
from tidegauge.sinks.pausing import Pausing
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sources.push.pieces import Pieces

__all__ = ["ATTEMPTS", "BESIDE", "StageSetup", "Staging", "stage"]

ATTEMPTS: Final = 6
"""How often a group may fail in a row, for reasons that are not waited out, before the flow stops."""

BESIDE: Final = 10.0
"""For how many seconds after a job of the others a late job leaves them half of the engine's slots."""


@dataclass(frozen=True, slots=True)
class Staging:
    """Its outputs: staged spans for each output's sink, and sources that turned out to have failed."""

    spans: Mapping[str, Stream[StagedSpan]]
    failures: Stream[Failure]


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSetup:
    """What the operator works with.

    units: the unit of each source's positions. uppers: the first epoch that each output lacks. late: outputs that
    lack epochs which are published. fills: the staged past of those who show nothing before all of it is in. old: the
    upper of those rows that fills are to change places with, by output. rowwise: those each of whose rows is made of
    one record. record: makes one more unit of a fill durable. limits: outputs of sources that had failed before, with
    the epoch at which they end. record_failure: makes that of a source durable. failures: where those of outputs go,
    and which outputs have ended by one. losses: where losses go. discard: forgets files staged in vain. backlog:
    which outputs have too much to commit for more to be staged for them; the others go on. pausing: for which outputs
    nothing is staged, by choice. held: the epochs that each open output's table holds, by its last commit. taking:
    the late outputs that get what they lack from another's table, with the first epoch that this lacked. pacing: when
    late jobs may begin. service: whether the run goes on when all is read, so that jobs of the others are to be
    expected. late_limit: how many positions a late job takes, by their unit. going: whether to begin another job.
    pieces: of the sources that push; their outputs are staged as far as what came is whole.
    """

    timeline: Timeline
    plans: Mapping[str, OutputPlan]
    units: Mapping[str, str]
    uppers: Mapping[str, int]
    late: frozenset[str]
    fills: Mapping[str, Fill]
    old: Mapping[str, int]
    rowwise: frozenset[str]
    record: Callable[[str, StagedUnit], None]
    limits: Mapping[str, int]
    perform: Performer
    record_failure: Callable[[Failure], None]
    failures: OutputFailures
    losses: Losses
    discard: Callable[[str, tuple[StagedFile, ...]], None]
    backlog: Backlog
    pausing: Pausing
    held: Mapping[str, range]
    taking: Mapping[str, int]
    pacing: Pacing
    service: bool
    late_limit: Callable[[str], int]
    spawn: Spawn
    env: Env
    going: Callable[[], bool]
    board: Board
    pieces: Mapping[str, Pieces]


def stage(bound: Stream[Span], setup: StageSetup) -> Staging:
    """Build the operator."""
    builder = OperatorBuilder(bound.scope, "stage")
    builder.input(bound)
    spans: dict[str, Stream[StagedSpan]] = {name: builder.output() for name in setup.plans}
    failures: Stream[Failure] = builder.output()
    builder.build(lambda context: _Stage(context, setup).step)
    return Staging(spans, failures)


class _Stage:
    """The operator's state. All of it can be lost: it follows from the timeline and the tables."""

    def __init__(self, context: OperatorContext, setup: StageSetup) -> None:
        self.setup = setup
        self.timeline = setup.timeline
        self.plans = setup.plans
        self.readers = {name: plan.source for name, plan in setup.plans.items()}
        self.filling = Filling(setup.fills, self.timeline, setup.record, setup.rowwise, setup.board, setup.env)
        self.uppers = {**setup.uppers, **{name: fill.reached for name, fill in setup.fills.items()}}
        self.pinning = Pinning(
            self.timeline, self.readers, setup.units, self.filling, setup.pacing, setup.late_limit, setup.held
        )
        self.limits = dict(setup.limits)
        self.activator = context.activator
        self.wake = context.sync_activator()
        self.ports = {name: port for port, name in enumerate(setup.plans)}
        self.capabilities = dict(zip(setup.plans, context.capabilities, strict=False))
        self.failure_capability = context.capabilities[-1]
        self.jobs: dict[Group, tuple[Need, Future[Performed]]] = {}
        self.others = setup.env.monotonic() if setup.service else float("-inf")
        """When a job of the others began, or may have."""
        pasts = {name: plan.past for name, plan in setup.plans.items() if plan.past is not None}
        self.groups = Groups(late=setup.late.union(self.filling.cursors), pasts=pasts)
        waking = [setup.backlog.attach, setup.pausing.attach, setup.pacing.attach]
        for attach in (*waking, *(pieces.attach for pieces in setup.pieces.values())):
            attach(self.wake.activate)
        self.settle()

    def settle(self) -> None:
        """Bring the capabilities to where the outputs stand; an output that has ended releases its own for good."""
        for name, end in self.setup.failures.ended.items():
            self.limits[name] = min(end, self.limits.get(name, end))
        for name, upper in self.uppers.items():
            capability = self.capabilities.get(name)
            if capability is None:
                continue
            if (fill := self.filling.of.get(name)) is not None:
                capability.downgrade(fill.start)  # all of it is one span yet to be given
            elif upper >= self.limits.get(name, upper + 1):
                capability.drop()
                del self.capabilities[name]
            else:
                capability.downgrade(upper)
        for source, pieces in self.setup.pieces.items():
            pieces.needed(self.needed(source))
        if self.capabilities:
            self.failure_capability.downgrade(min(self.uppers[name] for name in self.capabilities))

    def needed(self, source: str) -> dict[str, int]:
        """Return the first epoch that an output of each channel of a source lacks."""
        found: dict[str, int] = {}
        for name in self.capabilities:
            if (plan := self.plans[name]).source == source:
                found[plan.channel] = min(self.uppers[name], found.get(plan.channel, self.uppers[name]))
        return found

    def within(self, standing: Iterable[str]) -> dict[str, int]:
        """Return where outputs end: by a failure, or for now.

        One that is filled ends with its plan, and one of a push source where what came is not whole. Once nothing
        more will come, planning such an epoch says why.
        """
        limits = dict(self.limits)
        for name, fill in self.filling.of.items():
            limits[name] = min(fill.upper, limits.get(name, fill.upper))
        for name in standing:
            if name in self.groups.late and self.groups.pasts.get(name, name) not in self.setup.held:
                limits[name] = self.uppers[name]  # the table that it gets its past from is away
            pieces = self.setup.pieces.get(self.readers[name])
            if pieces is not None and pieces.failed is None:
                limits[name] = min(pieces.upper, limits.get(name, pieces.upper))
        return limits

    def step(self, inputs: list[OperatorInput], outputs: list[OperatorOutput]) -> None:
        """Hear of jobs that ended, and begin as many needs as can be met at once, as far as epochs are bound."""
        for _announced in inputs[0].drain():
            pass  # what they say, the frontier and the timeline say too
        if self.setup.failures.ended:  # a table may have refused since
            self.settle()
        sealed = min(inputs[0].frontier.shown, default=self.timeline.upper)
        while self.hear(outputs) or self.advance(sealed, outputs):
            pass

    def advance(self, sealed: int, outputs: list[OperatorOutput]) -> bool:
        """Begin what each group needs, as far as it neither rests nor has a job under way; say whether any did."""
        self.fulfil(outputs)
        standing = {name: self.uppers[name] for name in self.capabilities}
        if min(standing.values(), default=sealed) >= sealed:
            return False  # nothing is complete that an output lacks
        going = self.setup.going()
        if paused := self.setup.pausing.outputs:  # late from now on, but for those that a job is under way for
            busy = {name for need, _future in self.jobs.values() for name in need.outputs}
            self.groups = self.groups.fallen_behind(paused & standing.keys() - busy)
        if None in self.jobs and self.groups.one:
            return False  # it has its job
        now, begun = self.setup.env.monotonic(), False
        full = self.setup.backlog.full | paused
        roomy = {name: upper for name, upper in standing.items() if name not in full}
        limits = self.within(roomy)
        if not self.groups.one:
            lacking = {name: held(self.timeline.tables[self.readers[name]], u) for name, u in standing.items()}
            taking = {name for name, upper in self.setup.taking.items() if standing.get(name, upper) < upper}
            behind = self.filling.of.keys() | paused | taking
            self.groups = self.groups.joined(lacking, self.readers, busy=self.jobs, behind=behind)
        wanted = needs(self.groups, roomy, self.readers, limits=limits, sealed=sealed, cursors=self.filling.cursors)
        for group, need in self.setup.pacing.in_turn(wanted).items():
            if group in self.jobs or (self.is_late(need) and self.waits()):
                continue
            if (wait := self.groups.rests(group, now=now)) > 0:
                self.activator.activate_after(wait)
                continue
            if not going:
                if self.past(need) is not None:
                    continue
                need = self.pinning.empty(need)
                if need.upper == need.lower:
                    continue
            self.begin(group, need, outputs)
            begun = True
        return begun

    def waits(self) -> bool:
        """Whether no late job may begin yet, by the rate."""
        wait = self.setup.pacing.wait()
        if wait:
            self.activator.activate_after(wait)
        return wait != 0.0

    def begin(self, group: Group, need: Need, outputs: list[OperatorOutput]) -> None:
        """Start a job for a need, or meet it at once where its epochs hold nothing for its outputs."""
        late, past, pacing = self.is_late(need), self.past(need), self.setup.pacing
        pinned = self.pinning.pin(
            need,
            late=late,
            past=past,
            trying=group is not None and self.groups.trouble(group).attempt > 0,
            beside=late and self.setup.env.monotonic() - self.others < BESIDE,
        )
        need = pinned.need
        if pinned.slices or past is not None:
            if not late:
                self.others = self.setup.env.monotonic()
            self.setup.board.staging(need)
            if late:
                pacing.begin(group, self.readers[need.outputs[0]])
            future = self.setup.spawn(lambda: self.setup.perform(pinned))
            self.jobs[group] = (need, future)
            future.add_done_callback(lambda _future: self.wake.activate())
        else:
            for name in need.outputs:
                self.deliver(name, StagedSpan(need.lower, need.upper), outputs)
            self.settle()

    def is_late(self, need: Need) -> bool:
        """Whether a need is that of late outputs."""
        return not self.groups.late.isdisjoint(need.outputs)

    def past(self, need: Need) -> str | None:
        """Return the output from whose table a need is met, as far as that holds it; None for the sources.

        The rest of an epoch comes from where its beginning came from: a table cannot tell them apart.
        """
        past = self.groups.pasts.get(need.outputs[0]) if self.is_late(need) and need.begin == START else None
        return past if past is not None and need.lower in self.setup.held[past] else None

    def hear(self, outputs: list[OperatorOutput]) -> bool:
        """Hear of the jobs that have ended; say whether there was any."""
        ended = [group for group, (_need, future) in self.jobs.items() if future.done()]
        for group in ended:
            need, future = self.jobs.pop(group)
            self.setup.board.ended(need)
            error = future.exception()
            if error is not None:
                self.setup.pacing.end(group, 0)
                self.again(group, need, need.outputs, error)
            else:
                performed = future.result()
                self.setup.pacing.end(group, sum(performed.result.records.values()), size=performed.size)
                self.take(group, need, performed, outputs)
        return bool(ended)

    def take(self, group: Group, need: Need, performed: Performed, outputs: list[OperatorOutput]) -> None:
        """Turn what a job did into staged spans, failures, and other attempts."""
        late, spared = self.is_late(need), tuple[Failure, ...]()
        if late or not self.setup.old.keys().isdisjoint(need.outputs):
            going_on = {name: self.uppers[name] for name in self.capabilities}
            result = own(need.outputs, performed.result, self.readers, going_on, self.setup.old)
            spared = keeping(need.outputs, performed.lost, self.readers, self.setup.old)
            performed = replace(performed, result=replace(result, failures=(*result.failures, *spared)))
        verdict = judge(need.outputs, performed.result, self.readers)
        kept = [name for name in verdict.kept if name in self.capabilities]  # a table may have refused meanwhile
        for name, staged in performed.result.staged.items():
            if name not in kept:
                self.setup.discard(name, staged.files)
        away = {group if late else Apart(source) for source in verdict.away}
        stuck = {Apart(self.readers[name], name): error for name, error in verdict.stuck.items()}
        if self.groups.troubles and group not in away and group not in stuck:
            self.groups = self.groups.passed(group)
        for source, error in verdict.away.items():
            read = [name for name in need.outputs if self.readers[name] == source]
            self.again(group if late else Apart(source), need, read, error, source=None if late else source)
        for apart, error in stuck.items():
            self.again(apart, need, [name for name in need.outputs if name == apart.output], error)
        lost, losers = given_up(need.outputs, performed.lost, self.readers, away=verdict.away, spared=spared)
        # Losses and failures are durable before any span leaves: no output gets past one that the store lacks.
        if lost:
            self.setup.losses.note(lost, losers)
        self.report(verdict.failures, outputs)
        for name in need.outputs:
            if name in verdict.ends:
                self.limits[name] = min(verdict.ends[name], self.limits.get(name, verdict.ends[name]))
        for name in self.filling.of.keys() & {failure.output for failure in verdict.failures}:
            del self.filling.of[name]  # nobody gets to see a part of it; the next run goes on with what is recorded
            self.limits[name] = self.uppers[name]
        upper = need.upper if self.filling.end(performed.last) == START else need.lower
        for name in kept:
            self.deliver(name, performed.span(name, need.lower, upper), outputs, last=performed.last)
        self.settle()  # after delivering, which takes place at the capabilities that this moves on
        if kept:
            self.setup.board.staged(Need(tuple(kept), need.lower, need.upper), performed)

    def again(
        self, group: Group, need: Need, waiting: Sequence[str], error: BaseException, *, source: str | None = None
    ) -> None:
        """Let a group rest before its next attempt; give up on what cannot pass. `waiting` are outputs of a need."""
        if not isinstance(error, OSError | Transient):
            raise error
        self.groups = self.groups.failed(group, error, now=self.setup.env.monotonic())
        trouble = self.groups.trouble(group)
        if trouble.counted >= ATTEMPTS:
            raise JobGaveUp(
                first=need.lower,
                last=need.upper - 1,
                attempts=trouble.counted,
                detail=brief(error),
                cause=cause_of(error),
            ) from error
        self.setup.board.retrying(waiting, source, error, trouble.attempt)

    def report(self, found: Iterable[Failure], outputs: list[OperatorOutput]) -> None:
        """Make definite failures durable, and tell the remap operator of those of sources. Each once, the first."""
        firsts = {(f.source, f.output): f for f in sorted(found, key=lambda f: -f.epoch)}
        for failure in firsts.values():
            if failure.output is not None:
                self.setup.failures.failed(failure.output, failure.epoch, failure.error)
            else:
                self.setup.record_failure(failure)
                outputs[-1].give(self.failure_capability, [failure])

    def fulfil(self, outputs: list[OperatorOutput]) -> None:
        """Hand the past of each output whose units are all in to its sink, as one span."""
        for name, whole in self.filling.ended(self.uppers, self.limits):
            if whole is not None:
                self.deliver(name, whole, outputs)
                self.setup.board.filled(name, whole.upper)
            self.settle()

    def deliver(
        self, name: str, staged: StagedSpan, outputs: list[OperatorOutput], *, last: Slice | None = None
    ) -> None:
        """Hand a staged span to its sink and move the output's upper. A unit of a fill is recorded instead.

        last: the last slice that was read of a part of an epoch.
        """
        if name in self.filling.of:
            self.filling.followed(name, staged, last)
        else:
            outputs[self.ports[name]].give(self.capabilities[name], [staged])
        self.uppers[name] = staged.upper
