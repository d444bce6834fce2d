"""`explain_stuck` names who holds a frontier back, what is known of why, and which probes it concerns (trap 20)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.dataflow import (
    INT,
    Capability,
    EventQueue,
    Holder,
    OperatorBuilder,
    OperatorContext,
    Product,
    Progress,
    Scope,
    Stream,
    Worker,
)
from tidegauge.errors.dataflow import OperatorFailed


def settle(worker: Worker, count: int = 12) -> None:
    for _ in range(count):
        worker.step()


def keeping(name: str, at: Any, kept: list[Capability]) -> Callable[[Stream[Any]], Stream[Any]]:
    """An operator that forwards nothing and holds a capability that it never gives up."""

    def build(context: OperatorContext) -> Any:
        context.capabilities[0].downgrade(at)
        kept.append(context.capabilities[0])
        return lambda inlet, output: [None for _ in inlet.drain()] and None

    return lambda stream: stream.unary(name, build)


def found(worker: Worker) -> dict[str, Holder]:
    return {holder.path: holder for holder in worker.explain_stuck()}


def test_nothing_is_stuck_where_nothing_is_open(worker: Worker, finish: Callable[[Worker], int]) -> None:
    assert worker.explain_stuck() == ()
    with worker.dataflow("shop", order=INT) as scope:
        orders, stream = scope.input("orders")
        stream.probe()
    orders.close()
    finish(worker)
    assert worker.explain_stuck() == ()


def test_an_input_handle_that_is_not_closed(worker: Worker) -> None:
    with worker.dataflow("shop", order=INT) as scope:
        orders, stream = scope.input("orders")
        stream.map(len).map(abs, name="abs").probe()
        stream.probe()
    orders.advance_to(3)
    settle(worker)
    assert worker.explain_stuck() == (
        Holder(
            "shop/orders",
            "output",
            0,
            3,
            1,
            "input handle: advance or close it",
            (("shop/orders",), ("shop/orders", "shop/map", "shop/abs")),
        ),
    )


def test_of_two_holders_only_the_one_that_counts_is_named_for_a_probe(worker: Worker) -> None:
    kept: list[Capability] = []
    with worker.dataflow("shop", order=INT) as scope:
        orders, stream = scope.input("orders")
        other, second = scope.input("other")
        keeping("keeper", 7, kept)(stream).concat(second).probe()
        stream.probe()
    orders.close()
    other.advance_to(9)
    settle(worker)
    holders = found(worker)
    assert set(holders) == {"shop/keeper", "shop/other"}
    assert holders["shop/keeper"].before == (("shop/keeper", "shop/concat"),)
    assert holders["shop/other"].before == ()
    assert str(holders["shop/keeper"]).endswith("held on output 0, before the probe of shop/concat")


def test_a_change_that_waits_for_its_operator_to_run(worker: Worker) -> None:
    kept: list[Capability] = []
    with worker.dataflow("shop", order=INT) as scope:
        keeping("keeper", 2, kept)(scope.input("orders")[1]).probe()
    settle(worker)
    assert "activate" not in str(found(worker)["shop/orders"])
    kept[0].drop()
    settle(worker)
    held = found(worker)
    assert "shop/keeper" not in held  # the open input precedes it
    assert held["shop/orders"].before == (("shop/orders", "shop/keeper"),)


def test_c61_a_capability_that_was_dropped_outside_waits_for_an_activation(worker: Worker) -> None:
    kept: list[Capability] = []
    with worker.dataflow("shop", order=INT) as scope:
        orders, stream = scope.input("orders")
        keeping("keeper", 2, kept)(stream).probe()
    orders.close()
    settle(worker)
    assert found(worker)["shop/keeper"].note == ""
    kept[0].drop()
    settle(worker)
    assert "wait for it to run: activate it" in found(worker)["shop/keeper"].note


def test_an_operator_that_raised(worker: Worker) -> None:
    def fail(batch: Any) -> Any:
        raise ValueError("salt\nwater")

    with worker.dataflow("shop", order=INT) as scope:
        orders, stream = scope.input("orders")
        stream.map(fail, name="taste").probe()
    orders.send("x")
    orders.send("y")
    orders.close()
    with pytest.raises(OperatorFailed):
        settle(worker)
    settle(worker)
    holders = worker.explain_stuck()
    assert {(h.path, h.kind) for h in holders} == {("shop/taste", "input"), ("shop/taste", "output")}
    assert all(h.note == "it raised ValueError: salt water" for h in holders)
    (waiting,) = (h for h in holders if h.kind == "input")
    assert waiting.count == 2
    assert waiting.before == (("shop/taste",),)


def test_batches_that_an_operator_left_in_its_queue(worker: Worker) -> None:
    """Trap 12: it returned early and nothing wakes it."""

    def build(context: OperatorContext) -> Any:
        context.capabilities[0].drop()
        return lambda inlet, output: None

    with worker.dataflow("shop", order=INT) as scope:
        orders, stream = scope.input("orders")
        stream.unary("idler", build).map(len).probe()
    orders.send("x")
    orders.close()
    settle(worker)
    [holder] = worker.explain_stuck()
    assert str(holder) == (
        "shop/idler: 1 batch at 0 waiting at input 0 (in its queue, for when it is activated), "
        "before the probe of shop/map via shop/idler"
    ).replace(" via shop/idler", "")


def test_a_capability_deep_in_nested_scopes_and_its_way_out(worker: Worker) -> None:
    kept: list[Capability] = []
    with worker.dataflow("shop", order=INT) as scope:
        orders, stream = scope.input("orders")
        with scope.region("region") as region:
            with region.iterative("loop") as loop:
                inner = keeping("keeper", (4, 2), kept)(stream.enter(region).enter(loop))
                inner.probe()
                out = inner.leave()
            back = out.leave()
        back.map(len).probe()
    orders.close()
    settle(worker)
    [holder] = worker.explain_stuck()
    assert (holder.path, holder.time) == ("shop/region/loop/keeper", (4, 2))
    assert holder.before == (
        ("shop/region/loop/keeper",),
        ("shop/region/loop/keeper", "shop/region/loop", "shop/region", "shop/map"),
    )


def test_a_batch_that_waits_within_a_scope_and_its_way_through_the_scope(worker: Worker) -> None:
    def fail(batch: Any) -> Any:
        raise ValueError(batch)

    with worker.dataflow("shop", order=INT) as scope:
        orders, stream = scope.input("orders")
        with scope.region("region") as region:
            out = stream.enter(region).map(fail).leave()
        out.probe()
    orders.send("x")
    orders.advance_to(5)
    with pytest.raises(OperatorFailed):
        settle(worker)
    settle(worker)
    held = [h for h in worker.explain_stuck() if h.kind == "input"]
    assert [(h.path, h.before) for h in held] == [("shop/region/map", (("shop/region/map", "shop/region"),))]


def test_while_batches_are_on_their_way_into_a_scope_this_is_said(worker: Worker) -> None:
    with worker.dataflow("shop", order=INT) as scope:
        orders, stream = scope.input("orders")
        with scope.region("region") as region:
            out = stream.enter(region).map(len).leave()
        probe = out.probe()
    orders.send("x")
    orders.close()
    seen: set[str] = set()
    while worker.step():
        assert worker.explain_stuck() or probe.done()
        seen.update(str(holder) for holder in worker.explain_stuck())
    assert any(line.startswith("shop/region: 1 batch at 0 waiting at input 0 (on their way into") for line in seen)
    assert all("shop/region" in line for line in seen if "before" in line)


def test_a_loop_that_goes_round_does_not_make_the_answer_endless(worker: Worker) -> None:
    kept: list[Capability] = []
    with worker.dataflow("loop", order=Product(INT, INT)) as scope:
        numbers, stream = scope.input("numbers")
        handle, again = scope.feedback((0, 1))
        turn = stream.concat(again)
        handle.connect(keeping("keeper", (3, 0), kept)(turn))
        turn.probe()
    numbers.close()
    settle(worker)
    [holder] = worker.explain_stuck()
    assert holder.before == (("loop/keeper", "loop/feedback", "loop/concat"),)


def test_a_replay_says_what_it_waits_for(worker: Worker) -> None:
    queue = EventQueue(INT)
    queue.append(Progress(((0, -1), (4, 1))))
    with worker.dataflow("there", order=INT) as scope:
        scope.replay(queue).probe()
    settle(worker)
    [holder] = worker.explain_stuck()
    assert str(holder) == (
        "there/replay: 1 capability at 4 held on output 0 "
        "(a captured stream that it replays has not come further), before the probe of there/replay"
    )


def test_many_probes_are_counted_not_listed(worker: Worker) -> None:
    with worker.dataflow("shop", order=INT) as scope:
        orders, stream = scope.input("orders")
        for _ in range(10):
            stream = stream.map(len)
            stream.probe()
    settle(worker)
    [holder] = worker.explain_stuck()
    assert len(holder.before) == 10
    assert str(holder).endswith("and 7 more probes")
    assert str(holder).count("before the probe") == 3
    orders.close()


@deep(40)
@given(data=st.data())
def test_a_probe_that_is_not_done_is_always_explained(data: st.DataObject) -> None:
    """Any graph with capabilities kept anywhere: each probe's frontier is what its holders reach."""
    worker = Worker(lambda: 0.0)
    kept: list[Capability] = []
    probes = []

    def grow(scope: Scope, streams: list[Stream[Any]], depth: int) -> Stream[Any]:
        for number in range(data.draw(st.integers(1, 4))):
            stream = data.draw(st.sampled_from(streams))
            kind = data.draw(st.sampled_from(["map", "keep", "concat", "nest"]))
            if kind == "concat":
                streams.append(stream.concat(data.draw(st.sampled_from(streams))))
            elif kind == "keep":
                time = data.draw(st.integers(0, 3))
                at = time if depth == 0 else (time, data.draw(st.integers(0, 3)))
                streams.append(keeping(f"keep{number}", at, kept)(stream))
            elif kind == "nest" and depth == 0:
                with scope.iterative(f"nest{number}") as inner:
                    out = grow(inner, [stream.enter(inner)], depth + 1).leave()
                streams.append(out)
            else:
                streams.append(stream.map(len))
        if data.draw(st.booleans()):
            probes.append(streams[-1].probe())
        return streams[-1]

    with worker.dataflow("any", order=INT) as scope:
        handles, streams = zip(*(scope.input(name) for name in "ab"), strict=True)
        probes.append(grow(scope, list(streams), 0).probe())
    for handle in handles:
        if data.draw(st.booleans()):
            handle.advance_to(data.draw(st.integers(0, 3)))
        else:
            handle.close()
    settle(worker, 30)
    ways = [way for holder in worker.explain_stuck() for way in holder.before]
    assert bool(ways) == any(not probe.done() for probe in probes)
    assert len({way[-1] for way in ways}) <= len(probes)


def test_an_operator_without_inputs_that_forgot_its_capability(worker: Worker) -> None:
    with worker.dataflow("shop", order=INT) as scope:
        builder = OperatorBuilder(scope, "forgetful")
        stream = builder.output()
        builder.build(lambda context: lambda inputs, outputs: None)
        stream.probe()
    settle(worker)
    assert [str(h) for h in worker.explain_stuck()] == [
        "shop/forgetful: 1 capability at 0 held on output 0, before the probe of shop/forgetful"
    ]
