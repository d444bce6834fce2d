"""What a source that is polled costs the driver when nothing is new: a look, and a look that polls.

The looks are those of the run, in one thread, and the poll beside them runs in the thread of its own that it has in a
flow. The times are those of a look, by the clock. Over HTTP the answer is a 304, on a kept connection, from a server
in this process: a look waits for it, for as long as it waits for any poll.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import pyarrow as pa
from tests.sources.polls.server import Answer, Asked, served

import tidegauge as tg
from benchmarks.figures import Figure, Goal
from benchmarks.room import Room
from tidegauge.env import Env
from tidegauge.remap.binding import Bound
from tidegauge.sources.polls.poller import Poller

__all__ = ["measure"]

_NOW = datetime(2026, 11, 20, tzinfo=UTC)
_GOAL = Goal("ours", "<=", 1.0)


def _looks(poller: Poller, schema: pa.Schema, count: int) -> float:
    """Return the median of the milliseconds that looks take, once all that upstream has is bound."""
    while not (seen := poller.probe(Bound(), now=_NOW)).upper:
        time.sleep(0.01)
    bound = Bound(frontier=seen.upper, details=seen.details, state=seen.state, schema=schema)
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        seen = poller.probe(bound, now=_NOW)
        taken.append((time.perf_counter() - begun) * 1e3)
        assert seen.upper == bound.frontier
    return median(taken)


@contextmanager
def _rates(folder: Path) -> Iterator[tg.HttpSource]:
    def answer(asked: Asked) -> Answer:
        headers = {"ETag": '"A"'}
        if "if-none-match" in asked.headers:
            return Answer(status=304, headers=headers)
        return Answer(b'{"n": 1}\n', headers=headers)

    os.environ["NO_PROXY"] = "127.0.0.1"
    with served() as server:
        server.answer = answer
        yield tg.HttpSource(server.url, format=tg.Json("n long"), staging=folder, every=1e-6)


def measure(room: Room) -> list[Figure]:
    """Measure looks at a function and at an address that have nothing new."""
    repetitions, count = room.size(9, 2), room.size(1000, 50)
    between, polling, over_http = list[float](), list[float](), list[float]()

    def function(state: int | None) -> tg.Fetched:
        return tg.Fetched([{"n": 1}] if state is None else [], 1)

    for _ in range(repetitions):
        for every, found in ((1e-6, polling), (1e6, between)):
            source = tg.PollingSource(function, columns="n long", staging=room.fresh("polls"), every=every)
            found.append(_looks(source.attended(Env()), source.schema, count))
        with _rates(room.fresh("rates")) as rates:
            over_http.append(_looks(rates.attended(Env()), rates.schema, count // 4))
    return [
        Figure("a look between two polls", "ms", tuple(between), goal=_GOAL),
        Figure("a look with a poll that has nothing new", "ms", tuple(polling), goal=_GOAL),
        Figure("the same over HTTP, answered 304", "ms", tuple(over_http), note="server in the same process"),
    ]
