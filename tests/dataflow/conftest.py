"""What the tests of the core share: a worker that checks itself, and how captured events are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from tidegauge.dataflow import DeterministicCluster, EventQueue, Progress, Worker, execute

RunOn: TypeAlias = Callable[[Callable[[Worker], Any]], list[Any]]
"""Runs a dataflow to its end, given what builds it on a worker; returns what that gave on each worker."""

SEEDS = 3


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


def _deterministic(peers: int) -> RunOn:
    """Run the dataflow once for each of a few seeds; what comes out has to be the same."""

    def run(build: Callable[[Worker], Any]) -> list[Any]:
        for seed in range(SEEDS):
            results = DeterministicCluster(peers=peers, seed=seed).run(build)
        return results

    return run


@pytest.fixture(
    params=[("one thread", 1), ("one thread", 2), ("one thread", 3), ("threads", 1), ("threads", 2), ("threads", 3)],
    ids=lambda param: f"{param[1]} in {param[0]}",
)
def run_on(request: pytest.FixtureRequest) -> RunOn:
    """Run on one, two and three workers, in threads and by the deterministic scheduler."""
    how, peers = request.param
    if how == "threads":
        return lambda build: execute(build, peers=peers, validate=True)
    return _deterministic(peers)
