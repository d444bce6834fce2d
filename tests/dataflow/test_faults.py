"""An operator that raises publishes nothing and keeps its holds; the frontiers do not move by it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tidegauge.dataflow import Antichain, DeterministicCluster, OperatorContext, Probe, Scope, Stream, Worker
from tidegauge.errors.dataflow import NotRun, OperatorFailed, WorkerBroken


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


def raising_at(time: int, on: int = 0) -> Any:
    """An operator that holds nothing, passes batches on, and raises on one worker when its frontier is at a time."""

    def build(context: OperatorContext) -> Any:
        context.capabilities[0].drop()

        def step(feed: Any, output: Any) -> None:
            for message, batch in feed.drain():
                output.give(message, batch)
            if context.index == on and not feed.frontier.less_than(time):
                raise Ebb("at time", time)

        return step

    return build


def raised(cluster: DeterministicCluster) -> OperatorFailed:
    while not cluster.idle:
        try:
            cluster.step()
        except OperatorFailed as failed:
            return failed
    raise AssertionError("nothing was raised")


def as_it_is(scope: Scope, stream: Stream[Any], build: Any) -> Stream[Any]:
    return stream.unary("fragile", build)


def in_a_region(scope: Scope, stream: Stream[Any], build: Any) -> Stream[Any]:
    with scope.region("inside") as inside, inside.region("further") as further:
        left = stream.enter(inside).enter(further).unary("fragile", build).leave()
        return left.leave()


def in_a_loop(scope: Scope, stream: Stream[Any], build: Any) -> Stream[Any]:
    with scope.iterative("inside") as inside:
        handle, again = inside.loop_variable(1)
        turned = stream.enter(inside).concat(again)
        handle.connect(turned.filter(lambda n: n > 0).map(lambda n: n - 1))
        return turned.leave().unary("fragile", build)


@pytest.mark.parametrize("place", [as_it_is, in_a_region, in_a_loop])
@pytest.mark.parametrize("peers", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_what_raised_while_it_held_nothing_keeps_its_output_where_it_was(place: Any, peers: int, seed: int) -> None:
    cluster = DeterministicCluster(peers=peers, seed=seed)
    feeds, probes, beside = [], [], []
    for worker in cluster.workers:
        with worker.dataflow("flow") as scope:
            feed, stream = scope.input("input")
            result = place(scope, stream, raising_at(3))
            probes += [result.probe(), result.map(lambda batch: batch).exchange(lambda n, _: [(0, n)]).probe()]
            beside.append(stream.probe())
        feeds.append(feed)
    cluster.settle()
    for feed in feeds:
        feed.advance_to(3)
    assert isinstance(raised(cluster).__cause__, Ebb)
    seen = [probe.frontier() for probe in probes]
    for feed in feeds:
        if seed == 2:
            feed.send(2)
        feed.close()
    while not cluster.idle:
        cluster.step()
        now = [probe.frontier() for probe in probes]
        assert all(earlier <= later for earlier, later in zip(seen, now, strict=True)), "a frontier went back"
        seen = now
    assert set(seen) == {Antichain([3])}, "nothing downstream completes"
    assert all(probe.done() for probe in beside)
    assert all(worker.dataflows for worker in cluster.workers)
    for worker in cluster.workers:
        named = [holder for holder in worker.explain_stuck() if holder.path.endswith("fragile")]
        assert named
        assert all("raised Ebb" in str(holder) for holder in named)


def test_what_is_known_to_be_over_when_an_operator_raises_stays_over_and_it_is_named(worker: Worker) -> None:
    probes: list[Probe] = []
    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        probes.append(stream.unary("fragile", raising_at(99)).probe())
        stream.sink("last", lambda context: lambda feed: bool(feed.frontier.is_empty() and 1 // 0))
    feed.close()
    drained_until_fault(worker)
    drained_until_fault(worker)
    assert probes[0].done()
    assert [str(holder) for holder in worker.explain_stuck()] == [
        "flow/fragile: it raised Ebb: ('at time', 99), and is not run again",
        "flow/last: it raised ZeroDivisionError: integer division or modulo by zero, and is not run again",
    ]


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
    graph.tracker.update([(0, 0, 1)])
    with pytest.raises(KeyboardInterrupt):
        worker.step()
    with pytest.raises(WorkerBroken, match="KeyboardInterrupt"):
        worker.step()


def generator(inlet: Any, output: Any) -> Any:
    yield from inlet.drain()


async def coroutine(inlet: Any, output: Any) -> None:
    inlet.drain()


async def async_generator(inlet: Any, output: Any) -> Any:
    yield inlet.drain()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("step", [generator, coroutine, async_generator])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_step_of_which_nothing_would_ever_run_is_refused(worker: Worker, step: Any, *, wrapped: bool) -> None:
    def build(context: OperatorContext) -> Any:
        context.capabilities[0].drop()
        return (lambda inlet, output: step(inlet, output)) if wrapped else step

    with worker.dataflow("flow") as scope:
        probe = scope.input("input")[1].unary("idle", build).probe()
    failed = drained_until_fault(worker)
    assert isinstance(failed.__cause__, NotRun)
    assert "flow/idle: its step returned a" in str(failed.__cause__)
    assert not probe.done()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("what", ["batches", "frontier"])
def test_a_function_that_is_to_look_and_of_which_nothing_would_run_is_refused(worker: Worker, what: str) -> None:
    async def look(*_seen: Any) -> None:
        raise AssertionError

    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        stream.inspect(look) if what == "batches" else stream.inspect(lambda *_: None, frontier=look)
    feed.send("x")
    feed.close()
    assert f"the function of the {what}" in str(drained_until_fault(worker).__cause__)
