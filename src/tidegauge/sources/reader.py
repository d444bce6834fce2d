"""The reader of a source: it reports news from upstream, and acknowledges once told how far everything is durable.

It lives in the scope of its source, where times are frontiers of that source. It holds the capability for the
frontier that it last reported, so the scope's own frontier says how far upstream is known to be, and becomes empty
only when the source said that it is sealed (law 5). A source that cannot be probed keeps its capability.

Upstream may be slow to take an acknowledgement, so it is told beside the worker, by one call at a time. What it is
still to be told (`Owed`) is the newest frontier that is durable in every output.

Invariant: a frontier is owed until upstream has taken it, or a newer one. It is told late, or not at all, when
upstream does not listen, which does no harm: after a refusal upstream is let be, for a growing time. It is told
nothing before its first answer, which shows that it is the upstream that was read. One that is
known to be another is told nothing.

An upstream may forget what it was told: a late request of a driver before this one, or of this one before it asked
again, takes a consumer group's offsets back. So a source that can look (`Acknowledged`) is told the newest frontier
again every `AGAIN` seconds.

>>> owed = Owed()
>>> owed.frontier = Frontier({"p0": 5})
>>> owed.due(0.0)
Frontier({'p0': 5})
>>> owed.refused(0.0), owed.due(0.1), owed.due(0.2)
(0.2, None, Frontier({'p0': 5}))
>>> owed.taken(); owed.frontier is None
True

The sweep asks the source, beside the worker, and hands over only news: any other answer would leave the reader's
frontier where it is, so it does not come by here.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from tidegauge.dataflow import EventQueue, Messages, OperatorBuilder, OperatorContext, OperatorOutput, Scope, Stream
from tidegauge.env import Env, Spawn
from tidegauge.errors.base import Definite, Transient
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.round import Answer
from tidegauge.sources.abilities import Acknowledged, Confirming
from tidegauge.sources.protocol import Source
from tidegauge.sources.sweep import backoff

__all__ = ["AGAIN", "Owed", "reader"]

AGAIN: Final = 60.0
"""Seconds after which an upstream that shows what it was told is told it again."""


class Owed:
    """The acknowledgement that one upstream has yet to take. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.frontier: Frontier | None = None
        self.refusals = 0
        """How often in a row upstream did not take it."""
        self._telling: Frontier | None = None
        self._taken: Frontier | None = None
        self._not_before = float("-inf")

    def hear(self, acknowledgements: EventQueue) -> None:
        """Take in the frontiers that have become durable."""
        for event in acknowledgements.drain():
            if isinstance(event, Messages):
                self.frontier = event.batch[-1]

    def due(self, now: float) -> Frontier | None:
        """Return what upstream is to be told now, if anything; say afterwards what came of it."""
        self._telling = self.frontier if now >= self._not_before else None
        return self._telling

    def taken(self) -> None:
        """Take in that upstream took the frontier that was due, if any. A newer one is still owed."""
        if self._telling is not None:
            self.refusals, self._taken = 0, self._telling
            self.frontier = None if self.frontier is self._telling else self.frontier

    def again(self) -> None:
        """Take in that upstream may lack what it took last, as when the connection is gone: that is owed again."""
        if self.frontier is None:
            self.frontier = self._taken

    def refused(self, now: float) -> float:
        """Take in that upstream did not take it. Return for how many seconds it is let be."""
        self.refusals += 1
        return self.rest(self.refusals, now)

    def rest(self, attempts: int, now: float) -> float:
        """Let upstream be after failures in a row. Return for how many seconds."""
        self._not_before = max(self._not_before, now + backoff(attempts))
        return backoff(attempts)


def reader(
    scope: Scope,
    name: str,
    source: Source,
    *,
    news: EventQueue,
    acknowledgements: EventQueue,
    bound: Callable[[], Bound],
    confirm: Callable[[], None],
    env: Env,
    spawn: Spawn,
) -> Stream[Answer]:
    """Build the reader of one source. Its output carries the source's news.

    news: each an `Answer`, or an error that no source may raise. bound: returns the source's bindings. confirm:
    raises when this driver is no longer to acknowledge. spawn: runs an acknowledgement beside the worker.
    """
    builder = OperatorBuilder(scope, f"reader {name}")
    answers: Stream[Answer] = builder.output()

    def build(context: OperatorContext) -> Callable[[list[Any], list[OperatorOutput]], None]:
        capability = context.capabilities[0]
        wake = context.sync_activator()
        news.attach(wake)
        acknowledgements.attach(wake)
        owed = Owed()
        telling: Future[bool] | None = None
        known = False
        again_at: float | None = None

        def tell(frontier: Frontier, said: Bound) -> bool:
            """Tell upstream which data is durable, and return whether it is the one that is bound.

            Runs beside the worker.
            """
            with env.effect("acknowledge"):
                confirm()  # right before: upstream may delete what it is told of
                if isinstance(source, Confirming):
                    try:
                        source.confirm(said)
                    except Definite:
                        return False  # its records are others; the next look says so
                source.acknowledge(frontier)
                return True

        def hear() -> bool:
            """Return whether upstream may be told more: what it was told last it has taken, or refused."""
            nonlocal telling, again_at
            if telling is None:
                return True
            if not telling.done():
                return False
            ended, telling = telling, None
            try:
                bound_one = ended.result()
            except (OSError, Transient):
                context.activator.activate_after(owed.refused(env.monotonic()))
            else:
                owed.taken()
                if bound_one and again_at is None and isinstance(source, Acknowledged):
                    again_at = env.monotonic() + AGAIN
                    context.activator.activate_after(AGAIN)
            return True

        def acknowledge() -> None:
            """Have upstream told which data is durable, once it has shown that it is the one that was read."""
            nonlocal telling, again_at
            owed.hear(acknowledgements)
            if again_at is not None and env.monotonic() >= again_at:
                again_at = None
                owed.again()
            if not known or owed.frontier is None or not hear():
                return
            if (due := owed.due(env.monotonic())) is not None:
                telling = spawn(partial(tell, due, bound()))
                if telling.done():
                    hear()
                else:
                    telling.add_done_callback(lambda _telling: wake.activate())

        def say(answer: Answer, output: OperatorOutput) -> None:
            """Pass an answer on, and come to the frontier that it reports."""
            nonlocal known
            output.give(capability, [answer])
            observed = answer.observed
            if observed is None:
                context.activator.activate_after(owed.rest(answer.attempt, env.monotonic()))
                return
            known = True
            if observed.upper.sealed:
                capability.drop()
            else:
                capability.try_downgrade(observed.upper)

        def step(_inputs: list[Any], outputs: list[OperatorOutput]) -> None:
            for event in news.drain():
                for said in event.batch if isinstance(event, Messages) else ():
                    if isinstance(said, BaseException):
                        raise said
                    say(said, outputs[0])
            acknowledge()

        return step

    builder.build(build)
    return answers
