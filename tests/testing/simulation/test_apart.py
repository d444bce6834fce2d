"""The partitions of a bytewax source do the same in the actors of a simulation as in threads, with one connector."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.bytewax.connectors import Numbers

from tidegauge.env import Env
from tidegauge.errors.bytewax import PartitionRaised, PartitionStateNotKept
from tidegauge.sources.bytewax import pulling
from tidegauge.sources.bytewax.apart import IN_THREADS, PullThreads
from tidegauge.sources.bytewax.fetching import BytewaxFetch, places_of
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.scheduler import Scheduler
from tidegauge.testing.simulation.upstream.apart import ActorNews, in_actors

COLUMNS = pa.schema([("s", pa.string())])


class Alone:
    """The world of one driver, which nothing strikes."""

    def __init__(self, seed: int) -> None:
        self.clock = VirtualClock()
        self.scheduler = Scheduler(Random(seed), self.clock)

    def __call__(self, _call: str) -> None:
        self.scheduler.pause()

    def wait(self, ready: Callable[[], bool], seconds: float | None) -> None:
        self.scheduler.wait(ready, until=None if seconds is None else self.clock.monotonic() + seconds)

    def begin(self, name: str, work: Callable[[], None]) -> None:
        self.scheduler.begin(name, work)

    def spawn(self, work: Callable[[], Any]) -> Future[Any]:
        raise AssertionError

    def gone(self) -> bool:
        return False

    def run(self, work: Callable[[PullThreads], Any]) -> Any:
        """Run a function, and those that it begins, to their end; return what it returns."""
        found = list[Any]()
        apart = in_actors(self, Env(monotonic=self.clock.monotonic, now=self.clock.now))
        self.scheduler.begin("driver", lambda: found.append(work(apart)))
        self.scheduler.run(lambda: False)
        return found[0]


def read(connector: Numbers, dies_at: frozenset[int], apart: PullThreads) -> Any:
    """Read a connector to its end by drivers that die after some polls, which are staged or not; return what came."""
    rows, state, polls = list[str](), None, 0
    while True:
        fetch = BytewaxFetch(
            source="it",
            connector=connector,
            stateful=True,
            step="it",
            columns=COLUMNS,
            row=lambda item: {"s": item},
            timeout=60.0,
            run="r",
            apart=apart,
        )
        while True:
            try:
                brought = fetch(state)
            except (PartitionRaised, PartitionStateNotKept):
                with (news := apart.news()):
                    news.wait(0.002)
                continue
            polls += 1
            if brought is None or polls in dies_at:
                break
            rows, state = rows + brought.rows["s"].to_pylist(), brought.state
        fetch.close()
        if brought is None:
            return {name: [row for row in rows if row[0] == name] for name in connector.parts}, places_of(state)


@settings(max_examples=12)
@given(data=st.data())
def test_a_connector_is_read_alike_in_threads_and_in_actors(data: st.DataObject) -> None:
    parts = {name: [f"{name}{i}" for i in range(data.draw(st.integers(0, 20)))] for name in "abc"}
    size, seed = data.draw(st.integers(1, 7)), data.draw(st.integers(0, 99))
    raising = data.draw(st.sets(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), max_size=3))
    unkept = data.draw(st.sets(st.integers(1, 20), max_size=2))
    dies_at = data.draw(st.frozensets(st.integers(1, 6), max_size=3))

    def made() -> Numbers:
        left, unkept_left = {*raising}, {*unkept}

        def wrong(name: str, at: int) -> None:
            if (name, at) in left:
                left.remove((name, at))
                raise ConnectionError("upstream hung up")

        def shape(at: int) -> Any:
            if at in unkept_left:
                unkept_left.remove(at)
                return {"at": object()}
            return {"at": at}

        return Numbers(parts, size=size, ends=True, wrong=wrong, shape=shape, place=lambda state: state["at"])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pulling, "backoff", lambda _failures: 0.001)
        real, simulated = made(), made()
        in_threads = read(real, dies_at, IN_THREADS)
        in_a_world = Alone(seed).run(lambda apart: read(simulated, dies_at, apart))
    assert in_threads == in_a_world
    assert in_a_world[0] == parts
    if not (dies_at or unkept):
        for name in parts:
            assert [at for part, at in real.calls if part == name] == [
                at for part, at in simulated.calls if part == name
            ]
            assert [at for part, at in real.built if part == name] == [
                at for part, at in simulated.built if part == name
            ]


@pytest.mark.parametrize("real", [True, False])
def test_news_wake_those_who_wait_and_time_does(real: bool) -> None:
    """`ActorNews` is held against `threading.Condition`."""

    def course(apart: PullThreads) -> list[Any]:
        news, said = apart.news(), list[Any]()

        def tell() -> None:
            with news:
                said.append("told")
                news.notify_all()

        began = apart.monotonic()
        with news:
            said.append(news.wait(0.01))
            apart.begin("teller", tell)
            said.append(news.wait(10.0))
            said.append(news.wait_for(lambda: len(said) > 99, 0.02))
            said.append(news.wait_for(lambda: len(said), 10.0))
        assert apart.monotonic() - began >= 0.03
        return said

    assert isinstance(IN_THREADS.news(), threading.Condition)
    assert isinstance(in_actors(Alone(1), Env()).news(), ActorNews)
    said = course(IN_THREADS) if real else Alone(1).run(course)
    assert said == [False, "told", True, False, 4]
