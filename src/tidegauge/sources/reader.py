"""The reader of a source: it reports news from upstream, and acknowledges once told how far everything is durable.

It lives in the scope of its source, where times are frontiers of that source. It holds the capability for the
frontier that it last reported, so the scope's own frontier says how far upstream is known to be, and becomes empty
only when the source said that it is sealed (law 5). A source that cannot be probed keeps its capability.

Upstream may be slow to take an acknowledgement, so it is told beside the worker, by one call at a time.

The sweep asks the source, beside the worker, and hands over only news: any other answer would leave the reader's
frontier where it is, so it does not come by here.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from tidegauge.dataflow import EventQueue, Messages, OperatorBuilder, OperatorContext, OperatorOutput, Scope, Stream
from tidegauge.env import Env, Spawn
from tidegauge.errors.base import Transient
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.round import Answer
from tidegauge.sources.owed import Owed
from tidegauge.sources.protocol import Source

__all__ = ["reader"]


def reader(
    scope: Scope,
    name: str,
    source: Source,
    *,
    news: EventQueue,
    acknowledgements: EventQueue,
    confirm: Callable[[], None],
    env: Env,
    spawn: Spawn,
) -> Stream[Answer]:
    """Build the reader of one source. Its output carries the source's news.

    news: each an `Answer`, or an error that no source may raise. confirm: raises when this driver is no longer to
    acknowledge. spawn: runs an acknowledgement beside the worker.
    """
    builder = OperatorBuilder(scope, f"reader {name}")
    answers: Stream[Answer] = builder.output()

    def build(context: OperatorContext) -> Callable[[list[Any], list[OperatorOutput]], None]:
        capability = context.capabilities[0]
        wake = context.sync_activator()
        news.attach(wake)
        acknowledgements.attach(wake)
        owed = Owed()
        telling: Future[None] | None = None

        def tell(frontier: Frontier) -> None:
            """Tell upstream which data is durable. Runs beside the worker."""
            with env.effect("acknowledge"):
                confirm()  # right before: upstream may delete what it is told of
                source.acknowledge(frontier)

        def hear() -> bool:
            """Return whether upstream may be told more: what it was told last it has taken, or refused."""
            nonlocal telling
            if telling is None:
                return True
            if not telling.done():
                return False
            ended, telling = telling, None
            try:
                ended.result()
            except (OSError, Transient):
                context.activator.activate_after(owed.refused(env.monotonic()))
            else:
                owed.taken()
            return True

        def acknowledge() -> None:
            """Have upstream told which data is durable."""
            nonlocal telling
            owed.hear(acknowledgements)
            if owed.frontier is None or not hear():
                return
            if (due := owed.due(env.monotonic())) is not None:
                telling = spawn(partial(tell, due))
                if telling.done():
                    hear()
                else:
                    telling.add_done_callback(lambda _telling: wake.activate())

        def say(answer: Answer, output: OperatorOutput) -> None:
            """Pass an answer on, and come to the frontier that it reports."""
            output.give(capability, [answer])
            observed = answer.observed
            if observed is None:
                context.activator.activate_after(owed.rest(answer.attempt, env.monotonic()))
            elif observed.upper.sealed:
                capability.drop()
            elif capability.time.less_equal(observed.upper):
                capability.downgrade(observed.upper)

        def step(_inputs: list[Any], outputs: list[OperatorOutput]) -> None:
            acknowledge()
            for event in news.drain():
                for said in event.batch if isinstance(event, Messages) else ():
                    if isinstance(said, BaseException):
                        raise said
                    say(said, outputs[0])

        return step

    builder.build(build)
    return answers
