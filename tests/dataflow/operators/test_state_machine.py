"""State machines: one state, and batches in the order of their times. Case C37."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dataflow.operators.programs import carried, delay, finish, run

from tidegauge.dataflow import INT, Order, Product, Worker, records
from tidegauge.errors.dataflow import OperatorFailed


def parity(n: int) -> int:
    return n % 2


def running(total: int | None, n: int) -> tuple[int, list[tuple[int, int]]]:
    total = (total or 0) + n
    return total, [(n % 2, total)]


def test_c37_running_sums_by_parity() -> None:
    [(_, sums)] = run(
        lambda scope: scope.to_stream([[*range(10)]]).state_machine(dict, records.stateful(parity, running))
    )
    assert set(sums) == {(0, s) for s in (0, 2, 6, 12, 20)} | {(1, s) for s in (1, 4, 9, 16, 25)}


def test_c37_sums_go_on_from_time_to_time() -> None:
    sums = run(
        lambda scope: delay(scope.to_stream([[3, 1, 0, 2]]), lambda n, _: n).state_machine(
            dict, records.stateful(parity, running)
        )
    )
    assert sums == [(0, [(0, 0)]), (1, [(1, 1)]), (2, [(0, 2)]), (3, [(1, 4)])]


def test_c37_a_key_that_is_done_is_forgotten() -> None:
    def key(pair: tuple[str, int]) -> str:
        return pair[0]

    def until_four(total: int | None, pair: tuple[str, int]) -> tuple[int | None, list[tuple[str, int]]]:
        total = (total or 0) + pair[1]
        return (None if total >= 4 else total), [(pair[0], total)]

    states: list[Any] = []
    step = records.stateful(key, until_four)

    def watched(state: Any, batch: Any) -> Any:
        result = step(state, batch)
        states.append(dict(result[0]))
        return result

    pairs = [("a", 1), ("b", 2), ("a", 3)]
    assert run(lambda scope: scope.to_stream([pairs]).state_machine(dict, watched)) == [
        (0, [("a", 1), ("b", 2), ("a", 4)])
    ]
    assert states == [{"b": 2}]


@settings(deadline=None)
@given(
    st.sampled_from([INT, Product(INT, INT)]),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12),
    st.data(),
)
def test_no_batch_is_taken_after_one_of_a_later_time(
    order: Order[Any], pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    times: list[Any] = [a for a, _ in pairs] if order is INT else list(pairs)
    worker = Worker(lambda: 0.0, validate=True)
    with worker.dataflow("flow", order=order) as scope:
        handle, first, stream = scope.unordered_input("input")
        queue = stream.state_machine(int, lambda taken, batch: (taken + 1, (taken, batch))).capture()
    held = [(first.delayed(time), number) for number, time in enumerate(times)]
    first.drop()
    for capability, number in held:
        handle.session(capability).give(number)
        capability.drop()
        for _ in range(data.draw(st.integers(0, 3))):
            worker.step()
    finish(worker)
    taken = [(time, batch) for time, (_, batch) in sorted(carried(queue), key=lambda message: message[1])]
    assert sorted(batch for _, batch in taken) == [*range(len(times))]
    assert [times[batch] for _, batch in taken] == [time for time, _ in taken]
    for i, (earlier, _) in enumerate(taken):
        assert not any(later != earlier and order.less_equal(later, earlier) for later, _ in taken[i + 1 :])


def test_a_batch_is_taken_at_once_when_nothing_before_it_can_come(worker: Worker) -> None:
    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        queue = stream.state_machine(
            list, lambda state, batch: ([*state, batch], None if batch == "b" else batch)
        ).capture()
    for batch in "abc":
        feed.send(batch)
        worker.step()
        assert carried(queue) == ([] if batch == "b" else [(0, batch)])
    feed.close()
    finish(worker)


def test_a_step_that_raises_sends_nothing_and_lets_no_time_pass(worker: Worker) -> None:
    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        result = stream.state_machine(int, lambda total, n: (total + 1 // n, n))
        probe, queue = result.probe(), result.capture()
    feed.send(1)
    feed.send(0)
    feed.close()
    with pytest.raises(OperatorFailed, match="flow/state_machine raised ZeroDivisionError"):
        finish(worker)
    for _ in range(5):
        assert worker.step()
    assert (carried(queue), list(probe.frontier())) == ([], [0])
