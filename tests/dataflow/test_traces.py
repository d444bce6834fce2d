"""Inputs, probes, capture and replay: exact traces of one worker, cases C44 to C53."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidegauge.dataflow import INT, EventQueue, OperatorBuilder, OperatorContext, Product, Stash, Worker
from tidegauge.dataflow.operators.capture import Messages, Progress
from tidegauge.errors.dataflow import InvalidGraph

Finish = Callable[[Worker], int]
Trace = Callable[[EventQueue], list[Any]]


def test_c44_rounds_of_an_input(worker: Worker, trace: Trace, finish: Finish) -> None:
    with worker.dataflow("rounds") as scope:
        feed, stream = scope.input("input")
        probe, queue = stream.probe(), stream.capture()
    assert list(probe.frontier()) == [0]
    for r in range(3):
        feed.send([r, r + 10])
        feed.advance_to(r + 1)
        steps = 0
        while probe.less_than(r + 1):
            worker.step()
            steps += 1
        assert (steps, list(probe.frontier())) == (2, [r + 1])
    feed.close()
    assert not probe.done()
    assert finish(worker) == 1
    assert probe.done()
    assert trace(queue) == [
        ("M", 0, [0, 10]), ("P", [(0, -1), (1, 1)]), ("M", 1, [1, 11]), ("P", [(1, -1), (2, 1)]),
        ("M", 2, [2, 12]), ("P", [(2, -1), (3, 1)]), ("P", [(3, -1)]),
    ]  # fmt: skip


def test_c45_a_probe_follows_ten_rounds(worker: Worker, finish: Finish) -> None:
    with worker.dataflow("rounds") as scope:
        feed, stream = scope.input("input")
        probe = stream.probe()
    for r in range(10):
        assert not probe.done()
        assert probe.less_equal(r)
        assert probe.less_than(r + 1)
        feed.advance_to(r + 1)
        while probe.less_than(r + 1):
            worker.step()
    feed.close()
    assert finish(worker) < 4
    assert probe.done()


def test_c46_an_unordered_input(worker: Worker, trace: Trace, finish: Finish) -> None:
    with worker.dataflow("unordered") as scope:
        handle, held, stream = scope.unordered_input("input")
        queue = stream.capture()
    for i in range(10):
        handle.session(held).give([i])
        held.downgrade(i + 1)
        worker.step()
    held.drop()
    finish(worker)
    messages = [event[1:] for event in trace(queue) if event[0] == "M"]
    assert messages == [(i, [i]) for i in range(10)]


def test_c46_a_later_capability_is_invisible_behind_an_earlier_one(
    worker: Worker, trace: Trace, finish: Finish
) -> None:
    with worker.dataflow("unordered") as scope:
        handle, held, stream = scope.unordered_input("input")
        queue = stream.capture()
    five, seven = held.delayed(5), held.delayed(7)
    held.drop()
    worker.step(), worker.step()
    handle.session(seven).give([77])
    worker.step()
    seven.drop()
    worker.step(), worker.step()
    handle.session(five).give([55])
    worker.step()
    five.drop()
    finish(worker)
    assert trace(queue) == [("P", [(0, -1), (5, 1)]), ("M", 7, [77]), ("M", 5, [55]), ("P", [(5, -1)])]


def test_c47_a_source_of_one_batch(worker: Worker, trace: Trace, finish: Finish) -> None:
    def build(context: OperatorContext) -> Any:
        def step(output: Any) -> None:
            if context.capabilities[0].held:
                output.give(context.capabilities[0], list(range(10)))
                context.capabilities[0].drop()

        return step

    with worker.dataflow("once") as scope:
        queue = scope.source("numbers", build).capture()
    finish(worker)
    assert trace(queue) == [("M", 0, list(range(10))), ("P", [(0, -1)])]


def test_c48_a_loop_in_a_nested_scope(worker: Worker, trace: Trace, finish: Finish) -> None:
    def branch(context: OperatorContext) -> Any:
        for capability in context.capabilities:
            capability.drop()

        def step(inputs: Any, outputs: Any) -> None:
            for capability, batch in inputs[0].drain():
                outputs[capability.time[1] >= 3].give(capability, batch)

        return step

    with worker.dataflow("outer") as scope:
        feed, stream = scope.input("input")
        with scope.iterative("loop") as loop:
            handle, again = loop.feedback((0, 1))
            joined = stream.enter(loop).concat(again)
            inner = joined.capture()
            builder = OperatorBuilder(loop, "branch")
            builder.input(joined)
            staying, leaving = builder.output(), builder.output()
            builder.build(branch, notify=False)
            handle.connect(staying)
            result = leaving.leave()
        probe, outer = result.probe(), result.capture()
    for r in range(2):
        feed.send([100 + r])
        feed.advance_to(r + 1)
        steps = 0
        while probe.less_than(r + 1):
            worker.step()
            steps += 1
        assert steps == 6
    feed.close()
    finish(worker)
    assert trace(outer) == [
        ("M", 0, [100]), ("P", [(0, -1), (1, 1)]), ("M", 1, [101]), ("P", [(1, -1), (2, 1)]), ("P", [(2, -1)]),
    ]  # fmt: skip
    seen = trace(inner)
    assert [event[1] for event in seen if event[0] == "M"] == [(r, i) for r in range(2) for i in range(4)]
    assert legal(Product(INT, INT), seen) == []


def legal(order: Product[int, int], events: list[Any]) -> list[Any]:
    """Check that each batch and each gain is covered by a count before it; return what is left at the end."""
    counts = {order.minimum: 1}
    for event in events:
        claims = [event[1]] if event[0] == "M" else [time for time, delta in event[1] if delta > 0]
        for claim in claims:
            assert any(count > 0 and order.less_equal(time, claim) for time, count in counts.items())
        for time, delta in event[1] if event[0] == "P" else ():
            counts[time] = counts.get(time, 0) + delta
    return [time for time, count in counts.items() if count]


def test_c49_a_source_that_goes_forward(worker: Worker, trace: Trace, finish: Finish) -> None:
    def build(context: OperatorContext) -> Any:
        held = context.capabilities[0]

        def step(output: Any) -> None:
            output.give(held, [held.time])
            if held.time == 4:
                held.drop()
            else:
                held.downgrade(held.time + 1)
                context.activator.activate()

        return step

    with worker.dataflow("clock") as scope:
        queue = scope.source("ticks", build).capture()
    finish(worker)
    expected: list[Any] = []
    for i in range(5):
        expected += [("M", i, [i]), ("P", [(i, -1)] if i == 4 else [(i, -1), (i + 1, 1)])]
    assert trace(queue) == expected


def recorded(*events: Any) -> EventQueue:
    queue = EventQueue(INT)
    for event in events:
        queue.append(event)
    return queue


def test_c50_two_captured_streams_replay_as_one(worker: Worker, trace: Trace, finish: Finish) -> None:
    numbers = recorded(
        Messages((0,), [0]),
        Messages((1,), [1]),
        Messages((2,), [2]),
        Progress(((0, -1), (1, 1))),
        Progress(((1, -1),)),
    )
    tens = recorded(Messages((0,), [10, 11]), Progress(((0, -1),)))
    with worker.dataflow("replayed") as scope:
        queue = scope.replay(tens, numbers).capture()
    finish(worker)
    assert trace(queue) == [("M", 0, [10, 11]), ("M", 0, [0]), ("M", 1, [1]), ("M", 2, [2]), ("P", [(0, -1)])]


def test_c50_a_replay_of_nothing_is_complete(worker: Worker, trace: Trace, finish: Finish) -> None:
    with worker.dataflow("replayed") as scope:
        stream = scope.replay()
        probe, queue = stream.probe(), stream.capture()
    finish(worker)
    assert probe.done()
    assert trace(queue) == [("P", [(0, -1)])]


@pytest.mark.parametrize("nested", [False, True])
def test_c50_capture_and_replay_between_dataflows(worker: Worker, finish: Finish, *, nested: bool) -> None:
    seen: list[Any] = []
    with worker.dataflow("here") as here:
        feed, stream = here.input("input")
        queue = stream.map(lambda n: n + 1).capture()
    with worker.dataflow("there") as there:
        if nested:
            with there.region("inside") as inside:
                replayed = inside.replay(queue).leave()
        else:
            replayed = there.replay(queue)
        probe = replayed.inspect(lambda stamp, n: seen.append((stamp, n))).probe()
    for r in range(3):
        feed.send(10 * r)
        feed.advance_to(r + 1)
        for _ in range(12):
            worker.step()
        assert list(probe.frontier()) == [r + 1]
    feed.close()
    finish(worker)
    assert seen == [((0,), 1), ((1,), 11), ((2,), 21)]
    assert probe.done()


def test_c50_a_captured_stream_has_one_reader_of_its_own_order(worker: Worker) -> None:
    queue = EventQueue(INT)
    with pytest.raises(InvalidGraph, match="cannot be replayed"), worker.dataflow("a", Product(INT, INT)) as scope:
        scope.replay(queue)
    with worker.dataflow("b") as scope:
        scope.replay(queue)
    with pytest.raises(InvalidGraph, match="reader already"), worker.dataflow("c") as scope:
        scope.replay(queue)


def test_a_seam_between_orders_translates_events(worker: Worker, finish: Finish) -> None:
    """An operator of another order reads the queue itself, and is woken by each event."""

    def seam(context: OperatorContext) -> Any:
        held = context.capabilities[0]
        queue.attach(context.sync_activator())
        batches: list[Any] = []

        def step(output: Any) -> None:
            for event in queue.drain():
                if isinstance(event, Messages):
                    batches.append(event.batch)
                elif not any(delta > 0 for _, delta in event.changes):
                    output.give(held, list(batches))
                    held.drop()

        return step

    seen: list[Any] = []
    with worker.dataflow("source", order=Product(INT, INT)) as scope:
        handle, first, stream = scope.unordered_input("input")
        queue = stream.capture()
    with worker.dataflow("epochs") as scope:
        probe = scope.source("seam", seam).inspect(lambda stamp, batch: seen.append((stamp, batch))).probe()
    second = first.delayed((1, 0))
    handle.session(first).give("a")
    handle.session(second).give("b")
    first.drop()
    second.drop()
    finish(worker)
    assert (seen, probe.done()) == ([((0,), ["a", "b"])], True)


def test_c51_a_probe_of_two_inputs_sees_both(worker: Worker, finish: Finish) -> None:
    with worker.dataflow("two") as scope:
        a, left = scope.input("a")
        b, right = scope.input("b")
        probe = right.probe(left.probe())

    def after(change: Callable[[], None]) -> list[int]:
        change()
        worker.step(), worker.step()
        return list(probe.frontier())

    assert list(probe.frontier()) == [0]
    assert after(lambda: a.advance_to(5)) == [0]
    assert after(lambda: b.advance_to(3)) == [3]
    assert after(a.close) == [3]
    assert after(b.close) == []
    assert probe.done()


def test_c52_a_probe_of_product_times(worker: Worker) -> None:
    with worker.dataflow("pairs", order=Product(INT, INT)) as scope:
        _, held, stream = scope.unordered_input("input")
        probe = stream.probe()
    first, _second = held.delayed((1, 2)), held.delayed((2, 1))
    held.drop()
    worker.step(), worker.step()
    assert set(probe.frontier()) == {(1, 2), (2, 1)}
    assert [probe.less_equal(t) for t in ((1, 1), (2, 2))] == [False, True]
    assert [probe.less_than(t) for t in ((1, 2), (1, 3))] == [False, True]
    first.drop()
    worker.step(), worker.step()
    assert list(probe.frontier()) == [(2, 1)]


def test_c53_two_inputs_are_joined_when_both_are_complete(worker: Worker, trace: Trace, finish: Finish) -> None:
    def build(context: OperatorContext) -> Any:
        context.capabilities[0].drop()
        stash: Stash[list[int]] = Stash(list)

        def step(left: Any, right: Any, output: Any) -> None:
            for feed in (left, right):
                for message, batch in feed.drain():
                    stash.at(message.time, message.retain).extend(batch)
            for capability, batch in stash.ready([left.frontier, right.frontier]):
                output.give(capability, batch)
                capability.drop()

        return step

    with worker.dataflow("join") as scope:
        a, left = scope.input("a")
        b, right = scope.input("b")
        queue = left.binary(right, "buffer", build).capture()
    for i in (1, 2, 3):
        a.send([i - 1])
        b.send([100 + i - 1])
        a.advance_to(i)
        b.advance_to(i)
    a.close()
    b.close()
    finish(worker)
    assert trace(queue) == [("M", 0, [0, 100]), ("M", 1, [1, 101]), ("M", 2, [2, 102]), ("P", [(0, -1)])]
