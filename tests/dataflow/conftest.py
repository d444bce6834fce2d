"""What the tests of the core share: a worker that checks itself, and how captured events are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidegauge.dataflow import EventQueue, Progress, Worker


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def worker(clock: Clock) -> Worker:
    return Worker(clock, validate=True)


@pytest.fixture
def finish() -> Callable[[Worker], int]:
    """Step until nothing remains; return how many steps said that something did."""

    def until_done(worker: Worker) -> int:
        for count in range(10_000):
            if not worker.step():
                return count
        raise AssertionError(f"still stuck: {[str(h) for h in worker.explain_stuck()]}")

    return until_done


@pytest.fixture
def trace() -> Callable[[EventQueue], list[Any]]:
    """Take all events as `("M", stamp, batch)` or `("P", changes)`; one-element stamps as their time."""

    def taken(queue: EventQueue) -> list[Any]:
        events: list[Any] = []
        for event in queue.drain():
            if isinstance(event, Progress):
                events.append(("P", list(event.changes)))
            else:
                stamp = event.stamp[0] if len(event.stamp) == 1 else event.stamp
                events.append(("M", stamp, event.batch))
        return events

    return taken
