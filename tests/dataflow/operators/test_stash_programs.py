"""What notificators, `delay` and `reclock` are for, written with a stash. Cases C25, C33, C34 and C41."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.dataflow.operators.programs import carried, delay, finish, run, trace

from tidegauge.dataflow import Scope, Stash, Stream, Worker
from tidegauge.errors.dataflow import NotBeyond, OperatorFailed


def test_c25_requests_from_the_beginning_and_from_each_batch() -> None:
    notified: list[tuple[int, int]] = []

    def build(context: Any) -> Any:
        asked: Stash[list[str]] = Stash(list)
        asked.at(0, lambda: context.capabilities[0]).append("at the beginning")

        def step(inlet: Any, output: Any) -> None:
            for message, batch in inlet.drain():
                output.give(message, batch)
                later = message.time + 1
                asked.at(later, partial(message.delayed, later)).append("for a batch")
            for capability, requests in asked.ready([inlet.frontier]):
                notified.append((capability.time, len(requests)))
                capability.drop()

        return step

    assert run(lambda scope: scope.to_stream([[*range(10)]]).unary("example", build)) == [(0, [*range(10)])]
    assert notified == [(0, 1), (1, 1)]


def test_c34_each_record_at_its_own_time() -> None:
    assert run(lambda scope: delay(scope.to_stream([[*range(10)]]), lambda n, _: n)) == [(n, [n]) for n in range(10)]


def test_c33_nothing_is_moved_to_an_earlier_time(worker: Worker) -> None:
    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        probe = delay(stream, lambda _, __: 2).probe()
    feed.advance_to(5)
    feed.send(["x"])
    with pytest.raises(OperatorFailed, match="flow/delay") as caught:
        finish(worker)
    assert isinstance(caught.value.__cause__, NotBeyond)
    assert not probe.done()


def reclock(data: Stream[Any], clock: Stream[Any]) -> Stream[Any]:
    """At each time of `clock`, when both are complete, send all data at or before it that was not sent yet."""

    def build(context: Any) -> Any:
        context.capabilities[0].drop()
        waiting: list[tuple[int, Any]] = []
        ticks: Stash[None] = Stash(lambda: None)

        def step(data: Any, clock: Any, output: Any) -> None:
            waiting.extend((message.time, batch) for message, batch in data.drain())
            for message, _ in clock.drain():
                ticks.at(message.time, message.retain)
            for tick, _ in ticks.ready([data.frontier, clock.frontier]):
                output.session(tick).give_all(batch for time, batch in waiting if time <= tick.time)
                waiting[:] = [(time, batch) for time, batch in waiting if time > tick.time]
                tick.drop()

        return step

    return data.binary(clock, "reclock", build)


def reclocked(worker: Worker, upper: int, ticks: list[int]) -> list[Any]:
    def at_own_times(scope: Scope, numbers: list[int]) -> Stream[Any]:
        return delay(scope.to_stream([numbers]), lambda n, _: n)

    with worker.dataflow("flow") as scope:
        queue = reclock(at_own_times(scope, [*range(upper)]), at_own_times(scope, ticks)).capture()
    finish(worker)
    return trace(queue)


def by_tick(events: list[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for kind, time, *batch in (event for event in events if event[0] == "M"):
        assert kind == "M"
        found.setdefault(time, []).extend(batch[0])
    return found


def test_c41_data_comes_at_the_first_tick_at_or_after_it(worker: Worker) -> None:
    events = reclocked(worker, 10, [3, 5, 8])
    assert by_tick(events) == {3: [0, 1, 2, 3], 5: [4, 5], 8: [6, 7, 8]}
    assert events == [
        ("P", [(0, -1), (3, 1)]),
        *(("M", tick, [n]) for n, tick in zip(range(9), [3] * 4 + [5] * 2 + [8] * 3, strict=True)),
        ("P", [(3, -1)]),
    ]


@pytest.mark.parametrize(("ticks", "expected"), [([2, 2, 9], {2: [0, 1, 2], 9: [3]}), ([], {})])
def test_c41_ticks_twice_beyond_the_end_and_none(worker: Worker, ticks: list[int], expected: Any) -> None:
    assert by_tick(reclocked(worker, 4, ticks)) == expected


def test_c41_waiting_data_is_carried_by_the_clock_alone(worker: Worker) -> None:
    with worker.dataflow("flow") as scope:
        feed, data = scope.input("data")
        tick, clock = scope.input("clock")
        queue = reclock(data, clock).capture()

    def comes() -> list[Any]:
        for _ in range(5):
            worker.step()
        return carried(queue)

    feed.send("a")
    feed.advance_to(7)
    tick.advance_to(4)
    tick.send(None)
    assert comes() == []
    tick.advance_to(5)
    assert comes() == [(4, "a")]
    tick.advance_to(9)
    tick.send(None)
    tick.close()
    assert comes() == []
    feed.send("b")
    assert comes() == []
    feed.advance_to(10)
    assert comes() == [(9, "b")]
    feed.close()
    finish(worker)
