"""Streams out of iterables, and streams that end in a sink. Case C47."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.dataflow.operators.programs import carried, delay, delay_batch, finish, run, trace

from tidegauge.dataflow import Scope, Stream, Worker
from tidegauge.dataflow.operators.input import PORTION
from tidegauge.errors.dataflow import OperatorFailed


def events(worker: Worker, program: Any) -> list[Any]:
    with worker.dataflow("flow") as scope:
        queue = program(scope).capture()
    finish(worker)
    return trace(queue)


def test_c47_a_stream_of_one_batch(worker: Worker) -> None:
    assert events(worker, lambda scope: scope.to_stream([[*range(10)]])) == [("M", 0, [*range(10)]), ("P", [(0, -1)])]


def test_c47_records_moved_to_times_of_their_own(worker: Worker) -> None:
    assert events(worker, lambda scope: delay(scope.to_stream([[*range(4)]]), lambda n, _: n)) == [
        *(("M", n, [n]) for n in range(4)),
        ("P", [(0, -1)]),
    ]


def test_c47_records_moved_to_later_times(worker: Worker) -> None:
    assert events(worker, lambda scope: delay(scope.to_stream([[3, 1, 2, 1]]), lambda n, _: n)) == [
        ("P", [(0, -1), (1, 1)]),
        ("M", 1, [1, 1]),
        ("M", 2, [2]),
        ("M", 3, [3]),
        ("P", [(1, -1)]),
    ]


def test_c47_a_batch_moved_to_the_next_time(worker: Worker) -> None:
    assert events(worker, lambda scope: delay_batch(scope.to_stream([[*range(4)]]), lambda time: time + 1)) == [
        ("P", [(0, -1), (1, 1)]),
        ("M", 1, [*range(4)]),
        ("P", [(1, -1)]),
    ]


@pytest.mark.parametrize("count", [0, 1, PORTION - 1, PORTION, PORTION + 1, 5 * PORTION])
def test_all_batches_come_and_then_the_end(count: int) -> None:
    assert run(lambda scope: scope.to_stream(iter(range(count)))) == [(0, n) for n in range(count)]


def test_an_iterable_is_read_a_portion_a_step(worker: Worker) -> None:
    read: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            read.append(len(read))
            yield read[-1]

    with worker.dataflow("flow") as scope:
        queue = scope.to_stream(endless()).capture()
    assert read == []
    for steps in range(1, 4):
        worker.step()
        assert len(read) == len(queue) + PORTION * (steps - 1) == steps * PORTION
        carried(queue)


def test_a_stream_that_has_ended_may_be_run_again(worker: Worker) -> None:
    with worker.dataflow("flow") as scope:
        feed, _ = scope.input("input")
        stream: Stream[int] = scope.to_stream([1])
        queue = stream.capture()
    worker.step()
    scope.graph.mark(stream.port[0])
    worker.step()
    feed.close()
    finish(worker)
    assert carried(queue) == [(0, 1)]


def test_an_iterator_that_was_exhausted_before_is_an_empty_stream(worker: Worker) -> None:
    spent = iter([1])
    next(spent)
    with worker.dataflow("flow") as scope:
        streams: list[Stream[Any]] = [scope.to_stream(spent), scope.empty()]
        probes = [stream.probe() for stream in streams]
        queue = scope.concatenate(streams).capture()
    finish(worker)
    assert (carried(queue), [probe.done() for probe in probes]) == ([], [True, True])


def test_what_cannot_be_iterated_is_refused_when_the_dataflow_is_built(worker: Worker) -> None:
    with pytest.raises(TypeError, match="not iterable"), worker.dataflow("flow") as scope:
        scope.to_stream(5)  # type: ignore[arg-type]


def test_an_iterable_that_raises_sends_nothing_of_its_portion_and_never_ends(worker: Worker) -> None:
    def breaks() -> Iterator[str]:
        yield "a"
        raise OSError("the line is dead")

    with worker.dataflow("flow") as scope:
        stream = scope.to_stream(breaks(), name="line")
        probe, queue = stream.probe(), stream.capture()
    with pytest.raises(OperatorFailed, match="flow/line raised OSError: the line is dead"):
        finish(worker)
    for _ in range(5):
        assert worker.step()
    assert (carried(queue), list(probe.frontier())) == ([], [0])


def test_a_sink_sees_batches_and_the_frontier_to_its_end(worker: Worker) -> None:
    seen: list[Any] = []

    def build(context: Any) -> Any:
        assert context.capabilities == ()

        def step(inlet: Any) -> None:
            seen.extend((message.time, batch) for message, batch in inlet.drain())
            if not seen or seen[-1] != inlet.frontier.elements():
                seen.append(inlet.frontier.elements())

        return step

    def program(scope: Scope) -> Any:
        feed, stream = scope.input("input")
        stream.sink("sink", build)
        return feed

    with worker.dataflow("flow") as scope:
        feed = program(scope)
    for time in range(2):
        feed.send(f"batch {time}")
        feed.advance_to(time + 1)
        worker.step(), worker.step()
    feed.close()
    finish(worker)
    assert [one for one in seen if one != (0,)] == [(0, "batch 0"), (1,), (1, "batch 1"), (1,), (2,), ()]
