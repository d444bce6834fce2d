"""Aggregate: one result for each time, when it is complete. Cases C35 and C36."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dataflow.operators.programs import carried, delay, finish, run

from tidegauge.dataflow import INT, Product, Scope, Stream, Worker, records
from tidegauge.errors.dataflow import AmbiguousTime, OperatorFailed


def count(total: int, batch: list[Any]) -> int:
    return total + len(batch)


def ten(scope: Scope) -> Stream[Any]:
    return scope.to_stream([[*range(6)], [*range(6, 10)]])


def test_c35_count_and_sum() -> None:
    assert run(lambda scope: ten(scope).aggregate(int, count)) == [(0, 10)]
    assert run(lambda scope: ten(scope).aggregate(int, lambda total, batch: total + sum(batch))) == [(0, 45)]


def test_c35_count_at_each_time() -> None:
    quarters = run(lambda scope: delay(ten(scope), lambda n, _: n // 4).aggregate(int, count))
    assert quarters == [(0, 4), (1, 4), (2, 2)]


def test_c36_sums_and_lists_by_key() -> None:
    def parity(n: int) -> int:
        return n % 2

    sums = records.fold_by(parity, int, lambda total, n: total + n)
    assert run(lambda scope: ten(scope).aggregate(dict, sums)) == [(0, {0: 20, 1: 25})]
    lists: Any = records.fold_by(parity, list, lambda found, n: [*found, n])
    lengths: Any = records.map(lambda item: (item[0], len(item[1])))
    [(_, by_key)] = run(lambda scope: ten(scope).aggregate(dict, lists).map(dict.items).map(lengths))
    assert by_key == [(0, 5), (1, 5)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(-9, 9)), max_size=12), st.data())
def test_each_time_has_one_result_whatever_the_sequence(
    items: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    worker = Worker(lambda: 0.0, validate=True)
    expected: dict[tuple[int, int], int] = {}
    for a, b, n in items:
        expected[a, b] = expected.get((a, b), 0) + n
    with worker.dataflow("flow", order=Product(INT, INT)) as scope:
        handle, first, stream = scope.unordered_input("input")
        queue = stream.aggregate(int, lambda total, n: total + n).capture()
    held = [(first.delayed((a, b)), n) for a, b, n in items]
    first.drop()
    for capability, n in held:
        handle.session(capability).give(n)
        capability.drop()
        for _ in range(data.draw(st.integers(0, 3))):
            worker.step()
    finish(worker)
    results = carried(queue)
    assert len(results) == len(expected)
    assert dict(results) == expected


def test_nothing_is_sent_before_the_time_is_complete(worker: Worker) -> None:
    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        queue = stream.aggregate(int, count).capture()
    feed.send("ab")
    for _ in range(5):
        worker.step()
    assert carried(queue) == []
    feed.send("c")
    feed.advance_to(1)
    for _ in range(5):
        worker.step()
    assert carried(queue) == [(0, 3)]
    feed.close()
    finish(worker)
    assert carried(queue) == []


def test_a_fold_that_raises_sends_nothing_and_lets_no_time_pass(worker: Worker) -> None:
    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        result = stream.aggregate(int, lambda total, n: total + 1 // n)
        probe, queue = result.probe(), result.capture()
    feed.send(1)
    feed.advance_to(1)
    feed.send(0)
    feed.close()
    with pytest.raises(OperatorFailed, match="flow/aggregate raised ZeroDivisionError"):
        finish(worker)
    for _ in range(5):
        assert worker.step()
    assert (carried(queue), list(probe.frontier())) == ([], [0])


def test_a_batch_of_several_times_has_no_place_in_one(worker: Worker) -> None:
    def merge(context: Any) -> Any:
        context.capabilities[0].drop()

        def step(inlet: Any, output: Any) -> None:
            for message, batch in inlet.drain():
                held = message.retain_all()
                held.downgrade([(0, 1), (1, 0)])
                output.give(held, batch)
                held.drop()

        return step

    with worker.dataflow("flow", order=Product(INT, INT)) as scope:
        scope.to_stream(["batch"]).unary("merge", merge).aggregate(int, count)
    with pytest.raises(OperatorFailed) as caught:
        finish(worker)
    assert isinstance(caught.value.__cause__, AmbiguousTime)
