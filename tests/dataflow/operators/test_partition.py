"""Partition and branch: every piece on its own output, at the stamp of its batch. Cases C38 and C57."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dataflow.operators.programs import carried, delay, finish

from tidegauge.dataflow import OperatorBuilder, Product, Scope, Stream, Worker, records
from tidegauge.dataflow.order import INT
from tidegauge.errors.dataflow import InvalidGraph, NoSuchOutput, OperatorFailed

Parted = Callable[[Stream[Any]], tuple[Stream[Any], ...]]


def parted(batches: list[list[int]], parting: Parted) -> list[list[tuple[Any, Any]]]:
    worker = Worker(lambda: 0.0, validate=True)
    with worker.dataflow("flow") as scope:
        queues = [stream.capture() for stream in parting(scope.to_stream(batches))]
    finish(worker)
    return [carried(queue) for queue in queues]


def test_c38_three_by_remainder() -> None:
    thirds = parted([[*range(10)]], lambda s: s.partition(3, records.split(lambda n: (n % 3, n))))
    assert thirds == [[(0, [0, 3, 6, 9])], [(0, [1, 4, 7])], [(0, [2, 5, 8])]]


def test_c38_ok_and_err() -> None:
    def tagged(n: int) -> tuple[bool, int]:
        return (True, 10 * n) if n % 2 else (False, n)

    assert parted([[*range(10)]], lambda s: s.partition(2, records.split(tagged))) == [
        [(0, [0, 2, 4, 6, 8])],
        [(0, [10, 30, 50, 70, 90])],
    ]


def test_c38_branch_by_record_and_by_time() -> None:
    singles = [[n] for n in range(10)]
    odd, even = parted(singles, lambda s: s.branch(lambda _, batch: batch[0] % 2 == 0))
    assert [n for _, [n] in odd] == [1, 3, 5, 7, 9]
    assert [n for _, [n] in even] == [0, 2, 4, 6, 8]
    early, late = parted([[*range(10)]], lambda s: delay(s, lambda n, _: n).branch(lambda stamp, _: stamp[0] >= 5))
    assert [time for time, _ in early] == [0, 1, 2, 3, 4]
    assert [time for time, _ in late] == [5, 6, 7, 8, 9]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 20))), st.integers(1, 4))
def test_every_record_leaves_once_and_in_sequence(batches: list[list[int]], outputs: int) -> None:
    pieces = parted(batches, lambda s: s.partition(outputs, records.split(lambda n: (n % outputs, n))))
    for output, sent in enumerate(pieces):
        assert [n for _, piece in sent for n in piece] == [n for b in batches for n in b if n % outputs == output]


def test_a_piece_keeps_the_whole_stamp(worker: Worker) -> None:
    stamps: list[Any] = []

    def merge(context: Any) -> Any:
        context.capabilities[0].drop()

        def step(inlet: Any, output: Any) -> None:
            for message, batch in inlet.drain():
                held = message.retain_all()
                held.downgrade([(1, 2), (2, 1)])
                output.give(held, batch)
                held.drop()

        return step

    with worker.dataflow("flow", order=Product(INT, INT)) as scope:
        merged = scope.to_stream([[1, 2]]).unary("merge", merge)
        for stream in merged.partition(2, records.split(lambda n: (n - 1, n))):
            stream.inspect(lambda stamp, batch: stamps.append((stamp, batch)))
    finish(worker)
    assert stamps == [(((1, 2), (2, 1)), [1]), (((1, 2), (2, 1)), [2])]


@pytest.mark.parametrize("wrong", [-1, 2, 7])
def test_a_piece_for_an_output_that_is_not_there_stops_the_operator(worker: Worker, wrong: int) -> None:
    seen: list[Any] = []
    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        outputs = stream.partition(2, lambda batch: [(0, batch), (wrong, batch)], name="sort")
        probe = outputs[0].inspect(lambda _, batch: seen.append(batch)).probe()
    feed.send("x")
    feed.close()
    with pytest.raises(OperatorFailed, match="flow/sort") as caught:
        finish(worker)
    assert isinstance(caught.value.__cause__, NoSuchOutput)
    assert f"for output {wrong}, of 2" in str(caught.value.__cause__)
    for _ in range(5):
        assert worker.step()
    assert (seen, list(probe.frontier())) == ([], [0])


@pytest.mark.parametrize("outputs", [0, -1])
def test_a_stream_is_parted_into_one_at_least(worker: Worker, outputs: int) -> None:
    with (
        pytest.raises(InvalidGraph, match="flow/partition: a stream is to be parted into"),
        worker.dataflow("flow") as s,
    ):
        s.empty().partition(outputs, lambda batch: [(0, batch)])


@pytest.mark.parametrize("ports", [1, 10, 1500])
def test_c57_many_outputs_into_one_operator_of_as_many_ports(worker: Worker, ports: int) -> None:
    def diagonal(scope: Scope, streams: tuple[Stream[Any], ...]) -> list[Stream[Any]]:
        builder = OperatorBuilder(scope, "diagonal")
        for port, stream in enumerate(streams):
            builder.input(stream, {port: [None]})
        outputs = [builder.output() for _ in streams]

        def build(context: Any) -> Any:
            for capability in context.capabilities:
                capability.drop()

            def step(inlets: Any, outlets: Any) -> None:
                for inlet, outlet in zip(inlets, outlets, strict=True):
                    for message, batch in inlet.drain():
                        outlet.give(message, batch)

            return step

        builder.build(build, notify=False)
        return outputs

    with worker.dataflow("flow") as scope:
        parts = scope.to_stream([list(range(ports))]).partition(ports, records.split(lambda n: (n, n)))
        with scope.region("inside") as inside:
            through = tuple(stream.enter(inside).leave() for stream in parts)
        queue = scope.concatenate(diagonal(scope, through)).capture()
    finish(worker)
    assert sorted(n for _, [n] in carried(queue)) == [*range(ports)]
