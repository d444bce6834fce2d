"""Flow control: no time before those ahead of it are through. Cases C43 and C75."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dataflow.operators.programs import carried, finish

from tidegauge.dataflow import INT, Probe, Product, Worker, records
from tidegauge.dataflow.operators.input import PORTION
from tidegauge.errors.dataflow import InvalidGraph, NotBeyond, OperatorFailed


def count(total: int, batch: list[int]) -> int:
    return total + len(batch)


def test_c43_a_source_reads_on_when_the_time_before_is_through(worker: Worker) -> None:
    sent: Counter[int] = Counter()
    probes: list[Probe] = []
    before_last = 0

    def read() -> Iterator[tuple[int, list[int]]]:
        nonlocal before_last
        last = 0
        for start in range(0, 1000, 10):
            time = start // 100 * 100
            if time != last:
                before_last, last = last, time
            assert not probes or not probes[0].less_than(before_last)
            yield time, [*range(start, start + 10)]

    def look(stamp: Any, batch: list[int]) -> None:
        assert not probes[0].less_than(stamp[0])
        sent[stamp[0]] += len(batch)

    with worker.dataflow("flow") as scope:
        through, stream = scope.paced(read())
        counts = stream.inspect(look).aggregate(int, count)
        probes.append(counts.probe())
        queue = counts.map(lambda n: n).capture()
        through.connect(counts)
    finish(worker)
    assert sent == dict.fromkeys(range(0, 1000, 100), 100)
    assert carried(queue) == [(time, 100) for time in range(0, 1000, 100)]
    assert probes[0].done()


def test_a_source_waits_for_as_long_as_it_takes_and_is_not_run_meanwhile(worker: Worker) -> None:
    read: list[int] = []
    held: list[Any] = []

    def items() -> Iterator[tuple[int, str]]:
        for time in range(3):
            read.append(time)
            yield time, f"batch {time}"

    def slow(context: Any) -> Any:
        context.capabilities[0].drop()

        def step(inlet: Any, _output: Any) -> None:
            for message, _ in inlet.drain():
                held.append(message.retain())
            wake.append(context.activator)

        return step

    wake: list[Any] = []
    with worker.dataflow("flow") as scope:
        through, stream = scope.paced(items())
        through.connect(stream.unary("slow", slow))
    for expected in ([0, 1], [0, 1, 2], [0, 1, 2]):
        for _ in range(10):
            worker.step()
        assert (read, len(held)) == (expected, 1)
        held.pop().drop()
        wake[0].activate()
    finish(worker)


def test_within_a_time_nothing_is_held_back(worker: Worker) -> None:
    items = [(time, n) for time in range(3) for n in range(2 * PORTION + 1)]
    with worker.dataflow("flow") as scope:
        through, stream = scope.paced(items)
        through.connect(stream.aggregate(int, lambda total, _: total + 1))
        queue = stream.capture()
    finish(worker)
    assert carried(queue) == items


def test_c75_at_most_one_time_is_in_flight(worker: Worker) -> None:
    seen: list[int] = []
    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        through, paced = stream.limit_in_flight()
        counts = paced.inspect(lambda stamp, _: seen.append(stamp[0])).aggregate(int, count)
        probe = counts.probe()
        paced.inspect(lambda stamp, _: not probe.less_than(stamp[0]) or pytest.fail("two times in flight"))
        through.connect(counts)
    for time in range(8):
        feed.send([time])
        feed.send([time])
        feed.advance_to(time + 1)
    feed.close()
    finish(worker)
    assert seen == [time for time in range(8) for _ in range(2)]
    assert probe.done()


def test_c75_no_worker_begins_a_time_before_all_are_through_with_those_before_it(
    run_on: Callable[[Callable[[Worker], Any]], list[Any]],
) -> None:
    def build(worker: Worker) -> Counter[int]:
        begun: Counter[int] = Counter()

        def begin(stamp: Any, batch: list[int]) -> None:
            assert not probe.less_than(stamp[0])
            begun[stamp[0]] += len(batch)

        with worker.dataflow("flow") as scope:
            through, stream = scope.paced((time, [*range(worker.index + 1)]) for time in range(6))
            counts = stream.inspect(begin).exchange(records.route(lambda n: n)).aggregate(int, count)
            probe = counts.probe()
            through.connect(counts)
        return begun

    for index, begun in enumerate(run_on(build)):
        assert begun == dict.fromkeys(range(6), index + 1)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=10), st.data())
def test_c75_of_times_that_compare_one_is_in_flight(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    order = Product(INT, INT)
    worker = Worker(lambda: 0.0, validate=True)
    in_flight: Counter[tuple[int, int]] = Counter()

    def begin(stamp: Any, _: Any) -> None:
        assert not any(time != stamp[0] and order.less_equal(time, stamp[0]) for time in +in_flight)
        in_flight[stamp[0]] += 1

    with worker.dataflow("flow", order=order) as scope:
        handle, first, stream = scope.unordered_input("input")
        through, paced = stream.limit_in_flight()
        ends = paced.inspect(begin).aggregate(int, lambda total, _: total + 1)
        through.connect(ends.inspect(lambda stamp, total: in_flight.subtract({stamp[0]: total})))
    held = [first.delayed(pair) for pair in pairs]
    first.drop()
    for capability in held:
        handle.session(capability).give("batch")
        capability.drop()
        for _ in range(data.draw(st.integers(0, 4))):
            worker.step()
    finish(worker)
    assert +in_flight == Counter()


def test_a_source_whose_times_go_back_stops(worker: Worker) -> None:
    with worker.dataflow("flow") as scope:
        through, stream = scope.paced([(0, "a"), (2, "b"), (1, "c")])
        through.connect(stream)
    with pytest.raises(OperatorFailed, match="flow/paced") as caught:
        finish(worker)
    assert isinstance(caught.value.__cause__, NotBeyond)


def test_flow_control_is_connected_exactly_once(worker: Worker) -> None:
    with (
        pytest.raises(InvalidGraph, match="flow/paced: it was begun and never finished"),
        worker.dataflow("flow") as s,
    ):
        s.paced([])
    with pytest.raises(InvalidGraph, match="flow/limit_in_flight"), worker.dataflow("flow") as scope:  # noqa: PT012
        through, paced = scope.empty().limit_in_flight()
        through.connect(paced)
        through.connect(paced)
