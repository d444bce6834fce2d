"""Loop variables: feedback within an iterative scope that leaves the outer time as it is."""

from __future__ import annotations

from typing import Any

import pytest
from tests.dataflow.operators.programs import carried, finish

from tidegauge.dataflow import Bounded, Stream, Worker
from tidegauge.errors.dataflow import InvalidSummary


def test_a_loop_variable_advances_the_inner_time_alone(worker: Worker) -> None:
    inner_times: list[Any] = []
    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        with scope.iterative("halve") as loop:
            handle, again = loop.loop_variable(2)
            halves = stream.enter(loop).concat(again).inspect(lambda stamp, n: inner_times.append((*stamp, n)))
            handle.connect(halves.filter(lambda n: n > 1).map(lambda n: n // 2))
            queue = halves.filter(lambda n: n <= 1).leave().capture()
    for time, n in enumerate((5, 1, 2)):
        feed.send(n)
        feed.advance_to(time + 1)
    feed.close()
    finish(worker)
    assert sorted(inner_times) == [((0, 0), 5), ((0, 2), 2), ((0, 4), 1), ((1, 0), 1), ((2, 0), 2), ((2, 2), 1)]
    assert sorted(carried(queue)) == [(0, 1), (1, 1), (2, 1)]


def test_loop_variables_in_a_loop_in_a_loop(worker: Worker) -> None:
    seen: list[Any] = []
    with worker.dataflow("flow") as scope:
        stream: Stream[int] = scope.to_stream([3])
        with scope.iterative("outer") as outer:
            outward, around = outer.loop_variable(1)
            both = stream.enter(outer).concat(around)
            with outer.iterative("inner", Bounded(2)) as inner:
                inward, again = inner.loop_variable(1)
                turned = both.enter(inner).concat(again).inspect(lambda stamp, n: seen.append((*stamp, n)))
                inward.connect(turned)
                left = turned.leave()
            outward.connect(left.filter(lambda n: n > 2).map(lambda n: n - 1))
            probe = left.leave().probe()
    finish(worker)
    assert sorted(seen) == [
        *((((0, 0), turn), 3) for turn in range(3)),
        *((((0, 1), turn), 2) for turn in range(3) for _ in range(3)),
    ]
    assert probe.done()


@pytest.mark.parametrize("summary", ["far", -1, 1.5])
def test_a_loop_variable_advances_by_what_the_inner_order_has(worker: Worker, summary: Any) -> None:
    with pytest.raises(InvalidSummary), worker.dataflow("flow") as scope, scope.iterative("loop") as loop:
        loop.loop_variable(summary)


def test_a_loop_variable_belongs_into_an_iterative_scope(worker: Worker) -> None:
    with pytest.raises(InvalidSummary), worker.dataflow("flow") as scope:
        scope.loop_variable(1)
