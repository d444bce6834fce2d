"""The persist sink: commits the staged rows of one output, span by span, and reports the output's upper.

Invariants. A commit covers everything from the table's own upper on, so the table's uppers are contiguous; epochs
without records of the output's source are *vacuous*: by law 1 we know that their content is empty, and the next
commit covers them. The capability of a span is kept until the span is committed, so the frontier of the output says
which epochs are held durably. The table is compared, not trusted: see `decide`.

A commit runs beside the worker, so a long one holds nobody else up. Each output has one commit under way, in order,
and meanwhile the table is asked only to discard files that are no part of it. The worker's thread settles the result.
Spans that arrive meanwhile become one commit (`backlog`), which stays the same however often it is tried. If a table
refuses it for good, its parts are committed one by one, which shows the culprit.

*A lost answer.* An attempt that failed may have been made all the same, and the next one finds the table ahead. It is
our own doing if we had asked the table for just that, and it has the history that ours has. Whatever else moves the
table is `TableUpperMismatch`, which the run weighs.

A table that refuses for good fails its output alone: the operator lets go of what it holds, on purpose, so that the
others are published without it, and of what still comes.

*A commit that outlives its worker.* A run waits for the commits that it has begun, with its lease: before it opens
the tables anew, and when it ends. So no two commits of one output are under way in one process. Where it cannot wait,
as it was interrupted for the second time, the commit is like that of a driver which was asleep: its lease was
confirmed right before, and it compares the table's upper. So it is made whole, of epochs that are bound, or not at
all; the next driver finds it in the table, or finds its own refused, and goes on from the table's upper.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

import pyarrow as pa

from tidegauge.dataflow import Capability, OperatorBuilder, OperatorContext, OperatorInput, OperatorOutput, Stream
from tidegauge.env import Env, Spawn
from tidegauge.errors.base import Definite, TidegaugeError, Transient, brief, cause_of, waited_out
from tidegauge.errors.running import OutputNotWritable, SpanConflict
from tidegauge.errors.sinks import CommitSilent, TableUpperMismatch
from tidegauge.remap.history import History, agree
from tidegauge.sinks.backlog import Backlog, StagedSpan, merged
from tidegauge.sinks.pausing import Pausing
from tidegauge.sinks.protocol import Table
from tidegauge.sinks.working import Working

__all__ = [
    "ATTEMPTS",
    "Committed",
    "PersistSetup",
    "decide",
    "persist",
]

ATTEMPTS = 8
"""How often a commit is tried before the flow stops, about half a minute. A full disk is waited for without end."""


SILENCE = 30.0
"""Seconds after which a commit under way is reported as silent. It may be on a mount that does not answer."""

WORK = 600.0
"""The same where a commit has work to be done first, as a merge into a large table."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The output holds every epoch before `upper`."""

    output: str
    upper: int
    rows: int = 0
    bytes: int = 0


class HistoryTeller(Protocol):
    """Tells the history of the epochs `[lower, upper)`. whole: with where every source stood before them."""

    def __call__(self, lower: int, upper: int, *, whole: bool) -> History: ...


def decide(table_upper: int, span: StagedSpan) -> Literal["commit", "held", "behind", "inside"]:
    """Say what to do with a span, given the table's upper (reference: reclocking 5.3).

    held: all of it is in the table already (an earlier attempt, whose outcome was not seen). commit: the table ends
    at or before its lower, and what lies between is vacuous. inside: the table ends within the span:
    somebody else committed other spans than ours.

    >>> [decide(upper, StagedSpan(5, 8)) for upper in (3, 5, 6, 8)]
    ['commit', 'commit', 'inside', 'held']
    """
    if table_upper >= span.upper:
        return "held"
    return "commit" if table_upper <= span.lower else "inside"


@dataclass(frozen=True, kw_only=True, slots=True)
class PersistSetup:
    """What the operator of one output works with.

    spawn: runs a commit beside the worker. confirm: raises when this driver is no longer to write; it is asked right
    before a commit, in its thread. backlog: where it is noted what waits to be committed. history: tells what commits
    carry. carried: is told in the same thread that what it told last is in the table. passed: makes durable what
    follows from a table that holds every epoch before an upper. failed: makes durable that it holds
    no more, from an epoch on, for a reason of its own. committed, stalled:
    hear of a commit and of a failed attempt, for people. pausing: whether a commit may begin.
    """

    output: str
    table: Table
    history: HistoryTeller
    env: Env
    spawn: Spawn
    confirm: Callable[[], None]
    backoff: Callable[[int], float]
    backlog: Backlog
    passed: Callable[[int], None]
    failed: Callable[[int, TidegaugeError], None]
    committed: Callable[[Committed], None]
    stalled: Callable[[str, Exception, int], None]
    carried: Callable[[], None] = lambda: None
    pausing: Pausing = field(default_factory=Pausing)


def persist(spans: Stream[StagedSpan], setup: PersistSetup) -> Stream[Committed]:
    """Build the operator for one output."""
    builder = OperatorBuilder(spans.scope, f"persist {setup.output}")
    builder.input(spans)
    committed: Stream[Committed] = builder.output()
    builder.build(lambda context: _Persist(context, setup).step, notify=False)  # a commit wakes it, no frontier
    return committed


class _Persist:
    """The operator's state. All of it can be lost: the table says what it holds."""

    def __init__(self, context: OperatorContext, setup: PersistSetup) -> None:
        context.capabilities[0].drop()
        self.setup = setup
        self.activator = context.activator
        self.wake = context.sync_activator()
        self.waiting: deque[tuple[Capability, StagedSpan]] = deque()
        self.under_way: Future[None] | None = None
        """The commit of the first that wait."""
        self.together = 1
        """How many of those that wait are one commit, of the one that is tried at present."""
        self.apart = 0
        """How many of those that wait are to be committed one by one."""
        self.attempt = 0
        self.counted = 0
        """How many of the attempts failed for a reason that is not waited out."""
        self.asked: StagedSpan | None = None
        """What the table was last asked to take."""
        self.quiet_until = float("-inf")
        self.silent_from = float("-inf")
        self.silence = WORK if isinstance(setup.table, Working) else SILENCE
        self.said = False
        """Whether the commit under way was reported as silent."""
        self.over = False
        setup.pausing.attach(self.wake.activate)
        setup.backlog.attach(self.wake.activate)

    def step(self, inputs: list[OperatorInput], outputs: list[OperatorOutput]) -> None:
        """Take in spans, hear of a commit that ended, and settle as many as can be at once."""
        for message, batch in inputs[0].drain():
            for span in batch:
                self.waiting.append((message.retain(), span))
                self.setup.backlog.add(self.setup.output, span)
        while True:
            if self.under_way is not None:
                if not self.under_way.done():
                    self.look()
                    return
                self.hear(outputs)
            if self.over:
                self.let_go()
            if not self.waiting or self.setup.output in self.setup.pausing.outputs:
                return
            if (wait := max(self.quiet_until - self.setup.env.monotonic(), self.gathers())) > 0:
                self.activator.activate_after(wait)
                return
            self.begin(outputs)

    def gathers(self) -> float:
        """Return for how many seconds more no commit begins, since too little waits for one."""
        begun = self.attempt or self.apart or self.waiting[0][1].schema is None
        return 0.0 if begun else self.setup.backlog.rest(self.setup.output)

    def look(self) -> None:
        """Say when the commit under way has been so for too long."""
        if not self.said and (wait := self.silent_from - self.setup.env.monotonic()) > 0:
            self.activator.activate_after(wait)
        elif not self.said:
            self.said = True
            self.setup.stalled(
                self.setup.output, CommitSilent(output=self.setup.output, seconds=self.silence), self.attempt + 1
            )

    def begin(self, outputs: list[OperatorOutput]) -> None:
        """Begin the commit of the first that waits, or settle it at once where there is nothing to write."""
        table, span = self.setup.table, self.waiting[0][1]
        if (schema := span.schema) is None:
            self.done(outputs)
            return
        verdict = decide(table.upper, span)
        if verdict == "commit":
            limit = self.together if self.attempt else 1 if self.apart else None
            self.together, whole = merged([waiting for _, waiting in self.waiting], at_most=limit)
            self.under_way = self.setup.spawn(partial(self.commit, whole, schema))
            self.under_way.add_done_callback(lambda _future: self.wake.activate())
            self.silent_from, self.said = self.setup.env.monotonic() + self.silence, False
        elif verdict == "held":
            self.settle(partial(table.discard, span.files), outputs)
        else:
            self.settle(partial(self.conflict, span), outputs)

    def commit(self, span: StagedSpan, schema: pa.Schema) -> None:
        """Commit a span, beside the worker."""
        table = self.setup.table
        with self.setup.env.effect("commit output"):
            self.setup.confirm()  # a table compares its upper, and knows nothing of who may write
            lower, upper = table.upper, span.upper
            history = self.setup.history(lower, upper, whole=table.digest is None)
            again, self.asked = self.asked == span, span
            try:
                table.commit(lower, upper, schema, span.files, write=span.job, history=history)
            except TidegaugeError as error:
                ours = isinstance(error, TableUpperMismatch) and again
                if not (ours and agree(table.digest or "", history.digest)):
                    self.setup.confirm()  # a driver that slept since the last time finds what its successor has done
                    raise
                table.discard(span.files)  # had an earlier driver been first, they would be in vain
            else:
                self.setup.carried()  # an earlier attempt may have carried less

    def conflict(self, span: StagedSpan) -> None:
        """Raise what it means that the table ends within the span."""
        self.setup.confirm()
        last, actual = span.upper - 1, self.setup.table.upper
        raise SpanConflict(output=self.setup.output, lower=span.lower, last=last, actual=actual)

    def hear(self, outputs: list[OperatorOutput]) -> None:
        """Settle what the commit that has ended was of."""
        future, self.under_way = self.under_way, None
        if future is not None:
            self.settle(future.result, outputs, count=self.together)

    def settle(self, outcome: Callable[[], object], outputs: list[OperatorOutput], *, count: int = 1) -> None:
        """See what came of the first that wait: the table holds them, they are tried again, or refused for good."""
        setup, span = self.setup, self.waiting[0][1]
        try:
            outcome()
            setup.passed(setup.table.upper)  # durable before `done` tells of the commit
        except (OSError, Transient) as error:
            self.attempt += 1
            self.counted += not waited_out(error)
            if self.counted >= ATTEMPTS:
                raise OutputNotWritable(
                    output=setup.output, attempts=self.attempt, detail=brief(error), cause=cause_of(error)
                ) from error
            setup.stalled(setup.output, error, self.attempt)
            self.quiet_until = setup.env.monotonic() + setup.backoff(self.attempt)
        except Definite as error:
            if count > 1:
                self.attempt, self.counted, self.apart = 0, 0, count
                return
            setup.failed(span.lower, error)
            self.over = True
        else:
            for _ in range(count):
                self.done(outputs)

    def done(self, outputs: list[OperatorOutput]) -> None:
        """Say that the output holds the first that waits, and let go of its capability."""
        self.attempt = self.counted = 0
        self.apart = max(0, self.apart - 1)
        capability, span = self.next()
        done = Committed(self.setup.output, span.upper, span.rows, span.bytes)
        self.setup.committed(done)
        outputs[0].give(capability, [done])
        capability.drop()

    def let_go(self) -> None:
        """Give up what waits."""
        while self.waiting:
            capability, span = self.next()
            with suppress(OSError, TidegaugeError):  # what stays is litter, and the table has said what is wrong
                self.setup.table.discard(span.files)
            capability.drop()

    def next(self) -> tuple[Capability, StagedSpan]:
        """Take the first that waits."""
        capability, span = self.waiting.popleft()
        self.setup.backlog.remove(self.setup.output)
        return capability, span
