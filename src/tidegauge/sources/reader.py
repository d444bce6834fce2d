"""The reader of a source: it probes when it is ticked, and acknowledges when it is told what is durable.

It lives in the scope of its source, where times are frontiers of that source. It holds the capability for the
frontier that it last reported, so the scope's own frontier says how far upstream is known to be, and becomes empty
only when the source said that it is sealed (law 5). A source that cannot be probed keeps its capability: `Transient`
errors are tried again with growing delays, a `Definite` one parks the reader for good.

Probes run beside the worker (`spawn`), so a slow upstream holds up nobody else. What a source says is checked by its
clock; what does not pass is an error like any other, and the source is asked again. A source is told what it said
last, also when that was not bound, so that it can tell what upstream has taken back since.

>>> [backoff(attempt) for attempt in (1, 2, 3, 20)]
[0.2, 0.4, 0.8, 30.0]
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from tidegauge.dataflow import EventQueue, Messages, OperatorBuilder, OperatorContext, OperatorOutput, Scope, Stream
from tidegauge.env import Env, Spawn
from tidegauge.errors.base import Definite, TidegaugeError, Transient
from tidegauge.errors.running import SourceUnreachable
from tidegauge.remap.binding import Probe
from tidegauge.remap.checked import checked_probe
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.round import Answer, Tick
from tidegauge.sources.protocol import Source, from_time_of

__all__ = ["Spawn", "backoff", "reader"]


def backoff(attempt: int) -> float:
    """Return the seconds to wait after the given number of failures in a row."""
    return min(30.0, 0.1 * 2.0 ** min(attempt, 30))


def _as_error(source: str, error: BaseException) -> TidegaugeError:
    if isinstance(error, TidegaugeError):
        return error
    return SourceUnreachable(source=source, error=type(error).__name__, detail=str(error))


def reader(
    scope: Scope,
    name: str,
    source: Source,
    *,
    ticks: EventQueue,
    acknowledgements: EventQueue,
    confirm: Callable[[], None],
    env: Env,
    spawn: Spawn,
) -> Stream[Answer]:
    """Build the reader of one source. Its output carries one `Answer` for each `Tick`.

    `confirm` raises when this driver is no longer to acknowledge.
    """
    builder = OperatorBuilder(scope, f"reader {name}")
    answers: Stream[Answer] = builder.output()

    def build(context: OperatorContext) -> Callable[[list[Any], list[OperatorOutput]], None]:
        capability = context.capabilities[0]
        wake = context.sync_activator()
        ticks.attach(wake)
        acknowledgements.attach(wake)
        clock = from_time_of(source)
        pending: tuple[int, Future[Probe]] | None = None
        attempt = 0
        quiet_until = float("-inf")
        stalled: TidegaugeError | None = None
        owed: Frontier | None = None
        last: Probe | None = None
        refusals = 0
        later = float("-inf")

        def acknowledge() -> None:
            """Tell upstream what is durable.

            It is told late or not at all when it does not listen: no harm is done.
            """
            nonlocal owed, refusals, later
            for event in acknowledgements.drain():
                if isinstance(event, Messages):
                    owed = event.batch[-1]
            if owed is None or env.monotonic() < max(quiet_until, later):
                return
            try:
                with env.effect("acknowledge"):
                    confirm()
                    source.acknowledge(owed)
            except (OSError, Transient):
                refusals += 1
                later = env.monotonic() + backoff(refusals)
                context.activator.activate_after(backoff(refusals))
            else:
                owed, refusals = None, 0

        def ask(tick: Tick) -> None:
            nonlocal pending
            now, bound = env.now(), replace(tick.bound, last=last)
            future = spawn(lambda: checked_probe(name, clock, bound, source.probe(bound, now=now)))
            pending = (tick.number, future)
            future.add_done_callback(lambda _future: wake.activate())

        def hear(output: OperatorOutput) -> None:
            nonlocal pending, attempt, quiet_until, stalled, last
            if pending is None or not pending[1].done():
                return
            number, future = pending
            pending = None
            error = future.exception()
            if error is not None and not isinstance(error, TidegaugeError | OSError):
                raise error
            if error is not None:
                stalled = _as_error(name, error)
                attempt += 1
                quiet_until = env.monotonic() + backoff(attempt)
                output.give(capability, [Answer(name, number, error=stalled, attempt=attempt)])
                return
            stalled, attempt = None, 0
            last = probe = future.result()
            output.give(capability, [Answer(name, number, probe=probe)])
            if probe.upper.sealed:
                capability.drop()
            elif capability.time.less_equal(probe.upper):
                capability.downgrade(probe.upper)

        def step(_inputs: list[Any], outputs: list[OperatorOutput]) -> None:
            nonlocal pending
            acknowledge()
            for event in ticks.drain():
                if not isinstance(event, Messages):
                    continue
                for tick in event.batch:
                    if pending is not None:  # the last probe is still under way: late, it answers this tick
                        pending = (tick.number, pending[1])
                    elif stalled is not None and (isinstance(stalled, Definite) or env.monotonic() < quiet_until):
                        outputs[0].give(capability, [Answer(name, tick.number, error=stalled, attempt=attempt)])
                    else:
                        ask(tick)
            hear(outputs[0])

        return step

    builder.build(build)
    return answers
