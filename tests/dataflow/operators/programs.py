"""What the tests of the operators share: running a small program, and moving records to later times."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tidegauge.dataflow import EventQueue, Messages, Progress, Scope, Stash, Stream, Worker

__all__ = ["carried", "delay", "delay_batch", "finish", "run", "trace"]


def finish(worker: Worker) -> None:
    """Step until nothing remains."""
    for _ in range(10_000):
        if not worker.step():
            return
    raise AssertionError(f"still stuck: {[str(holder) for holder in worker.explain_stuck()]}")


def carried(queue: EventQueue) -> list[tuple[Any, Any]]:
    """Take all batches of a captured stream, each with its time."""
    return [(event.stamp[0], event.batch) for event in queue.drain() if isinstance(event, Messages)]


def trace(queue: EventQueue) -> list[Any]:
    """Take all events of a captured stream as `("M", time, batch)` or `("P", changes)`."""
    return [
        ("P", list(event.changes)) if isinstance(event, Progress) else ("M", event.stamp[0], event.batch)
        for event in queue.drain()
    ]


def run(program: Callable[[Scope], Stream[Any]]) -> list[tuple[Any, Any]]:
    """Run a program to its end; return what the stream carried, in its sequence."""
    worker = Worker(lambda: 0.0, validate=True)
    with worker.dataflow("flow") as scope:
        queue = program(scope).capture()
    finish(worker)
    return carried(queue)


def delay(stream: Stream[list[Any]], to: Callable[[Any, Any], Any]) -> Stream[list[Any]]:
    """Send each record at `to(record, time)`, once that time is complete."""

    def build(context: Any) -> Any:
        context.capabilities[0].drop()
        stash: Stash[list[Any]] = Stash(list)

        def step(inlet: Any, output: Any) -> None:
            for capability, batch in inlet.drain():
                for record in batch:
                    later = to(record, capability.time)
                    stash.at(later, partial(capability.delayed, later)).append(record)
            for held, records in stash.ready([inlet.frontier]):
                output.give(held, records)
                held.drop()

        return step

    return stream.unary("delay", build)


def delay_batch(stream: Stream[list[Any]], to: Callable[[Any], Any]) -> Stream[list[Any]]:
    """Send each batch at `to(time)`, once that time is complete."""
    return delay(stream, lambda _, time: to(time))
