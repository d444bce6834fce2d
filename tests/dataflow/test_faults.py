"""An operator that raises publishes nothing and keeps its holds; the frontiers do not move by it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tidegauge.dataflow import OperatorContext, Worker
from tidegauge.errors.dataflow import OperatorFailed, WorkerBroken


class Ebb(Exception):
    """What the operators here raise."""


def drained_until_fault(worker: Worker) -> OperatorFailed:
    for _ in range(50):
        try:
            worker.step()
        except OperatorFailed as failed:
            return failed
    raise AssertionError("nothing was raised")


ACTIONS = ["drain", "send", "retain", "downgrade", "drop"]


@pytest.mark.parametrize("at", range(len(ACTIONS) + 1))
@pytest.mark.parametrize("nested", [False, True])
def test_an_operator_that_raises_at_any_point_leaves_all_frontiers_where_they_were(
    worker: Worker, at: int, *, nested: bool
) -> None:
    def build(context: OperatorContext) -> Any:
        held = context.capabilities[0]
        held.downgrade(1)

        def step(feed: Any, output: Any) -> None:
            points = itertools.count()

            def reach() -> None:
                if next(points) == at:
                    raise Ebb("at point", at)

            if not len(feed):
                return
            reach()
            for message, batch in feed.drain():
                reach()
                output.give(message, batch)
                reach()
                message.retain().downgrade(9)
                reach()
                held.downgrade(7)
                reach()
                held.drop()
                reach()

        return step

    seen: list[Any] = []
    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        if nested:
            with scope.region("inside") as inside:
                result = stream.enter(inside).unary("fragile", build).leave()
        else:
            result = stream.unary("fragile", build)
        probe = result.inspect(lambda stamp, batch: seen.append(batch)).probe()
        beside = stream.map(lambda batch: batch).probe()
    for _ in range(4):
        worker.step()
    assert list(probe.frontier()) == [0]
    feed.send("x")
    feed.advance_to(5)
    failed = drained_until_fault(worker)
    assert isinstance(failed.__cause__, Ebb)
    path = "flow/inside/fragile" if nested else "flow/fragile"
    assert failed.evidence["path"] == path
    assert "TG-0705" in str(failed)
    feed.close()
    for _ in range(10):
        assert worker.step()
    assert seen == []
    assert list(probe.frontier()) == [0]
    assert beside.done(), "the other operators go on"
    holders = [holder for holder in worker.explain_stuck() if holder.path == path]
    assert {(holder.kind, holder.time) for holder in holders} == {("input", 0)}
    assert "raised Ebb" in str(holders[0])


def test_a_sink_that_raises_at_the_very_end_keeps_its_dataflow_alive(worker: Worker) -> None:
    def build(context: OperatorContext) -> Any:
        def step(feed: Any, output: Any) -> None:
            if feed.frontier.is_empty():
                raise Ebb("at the end")

        context.capabilities[0].drop()
        return step

    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        stream.unary("sink", build)
    feed.close()
    drained_until_fault(worker)
    assert worker.step()
    assert worker.dataflows == ("flow",)


def test_several_faults_are_raised_one_for_each_step(worker: Worker) -> None:
    def build(context: OperatorContext) -> Any:
        def step(feed: Any, output: Any) -> None:
            for _ in feed.drain():
                raise Ebb(context.name)

        context.capabilities[0].drop()
        return step

    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        for name in ("a", "b"):
            stream.unary(name, build)
    feed.send("x")
    assert drained_until_fault(worker).evidence["path"] == "flow/a"
    assert drained_until_fault(worker).evidence["path"] == "flow/b"
    assert worker.step()


def test_an_interrupt_in_an_operator_comes_out_as_it_is(worker: Worker) -> None:
    def build(context: OperatorContext) -> Any:
        def step(feed: Any, output: Any) -> None:
            for _ in feed.drain():
                raise KeyboardInterrupt

        context.capabilities[0].drop()
        return step

    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        probe = stream.unary("slow", build).probe()
    feed.send("x")
    feed.close()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        for _ in range(5):
            worker.step()
    for _ in range(5):
        assert worker.step()
    assert list(probe.frontier()) == [0]


def test_a_worker_that_was_interrupted_itself_does_not_go_on(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    with worker.dataflow("flow") as scope:
        scope.input("input")
    graph = worker._dataflows["flow"]

    def interrupted() -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(graph.tracker, "propagate", interrupted)
    graph.tracker.update(0, 0, 1)
    with pytest.raises(KeyboardInterrupt):
        worker.step()
    with pytest.raises(WorkerBroken, match="KeyboardInterrupt"):
        worker.step()
