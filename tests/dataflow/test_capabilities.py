"""Capabilities: what may be derived from what. Cases C26 to C33, C61, and the stash (C24)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidegauge.dataflow import (
    INT,
    PARTITIONED,
    UNIT,
    Antichain,
    Bounded,
    Capability,
    CapabilitySet,
    InputCapability,
    Lex,
    MutableAntichain,
    OperatorBuilder,
    OperatorContext,
    Product,
    Scope,
    Stash,
    Stream,
    Worker,
)
from tidegauge.dataflow.capability import Account, gain
from tidegauge.dataflow.order import Interval, after, before, only
from tidegauge.errors.dataflow import (
    AmbiguousTime,
    CapabilityGone,
    ForeignCapability,
    ForeignTime,
    NotBeyond,
    NotConnected,
    OperatorFailed,
    ProgressViolation,
)


@pytest.fixture
def account() -> Account:
    return Account("shop/remap", 0, INT)


def at(account: Account, time: int) -> Capability:
    capability = Capability.initial(account)
    capability.downgrade(time)
    account.changes.clear()
    return capability


def one(scope: Scope, stream: Stream[Any], summaries: Any, act: Callable[[InputCapability], object]) -> Stream[Any]:
    """An operator of one input and one output that calls `act` with what comes."""
    builder = OperatorBuilder(scope, "actor")
    builder.input(stream, summaries)
    out = builder.output()

    def build(context: OperatorContext) -> Any:
        context.capabilities[0].drop()

        def step(inputs: Any, outputs: Any) -> None:
            for capability, _ in inputs[0].drain():
                act(capability)

        return step

    builder.build(build)
    return out


def actor(worker: Worker, summaries: Any, act: Callable[[InputCapability], object]) -> None:
    with worker.dataflow("shop") as scope:
        orders, stream = scope.input("orders")
        one(scope, stream, summaries, act)
    orders.send("batch")
    orders.close()
    for _ in range(6):
        worker.step()


def test_c26_an_output_takes_only_its_own_capabilities(worker: Worker) -> None:
    def build(context: OperatorContext) -> Any:
        first, second = context.capabilities

        def step(inputs: Any, outputs: Any) -> None:
            with pytest.raises(
                ForeignCapability, match="output 1 of shop/two was opened with a capability at 0 of out"
            ):
                outputs[1].session(first)
            outputs[0].session(first).give("a")
            outputs[1].session(second).give("b")
            first.drop()
            second.drop()

        return step

    seen: list[Any] = []
    with worker.dataflow("shop") as scope:
        builder = OperatorBuilder(scope, "two")
        left, right = builder.output(), builder.output()
        builder.build(build)
        left.concat(right).inspect(lambda _, batch: seen.append(batch))
    while worker.step():
        pass
    assert sorted(seen) == ["a", "b"]


def test_c27_delayed_does_not_go_back(account: Account) -> None:
    held = at(account, 5)
    with pytest.raises(NotBeyond, match=r"shop/remap: delayed from time 5 to 3"):
        held.delayed(3)
    assert held.try_delayed(3) is None
    assert not account.changes


def test_c28_downgrade_does_not_go_back(account: Account) -> None:
    held = at(account, 5)
    with pytest.raises(NotBeyond, match=r"shop/remap: downgrade from time 5 to 3"):
        held.downgrade(3)
    assert not held.try_downgrade(3)
    assert (held.time, dict(account.changes)) == (5, {})


def test_c29_a_message_is_delayed_at_least_by_the_connection(worker: Worker) -> None:
    def act(message: InputCapability) -> None:
        with pytest.raises(NotBeyond, match="from time 0 to 1"):
            message.delayed(1)
        assert message.delayed(2).time == 2

    actor(worker, {0: [2]}, act)
    assert [(holder.path, holder.time) for holder in worker.explain_stuck()] == [("shop/actor", 2)]


def test_c30_nothing_is_retained_for_an_unconnected_output(worker: Worker) -> None:
    def act(message: InputCapability) -> None:
        with pytest.raises(NotConnected, match="no connection"):
            message.retain()
        with pytest.raises(NotConnected, match="no connection"):
            message.delayed(7)

    actor(worker, {}, act)


def test_c30_nothing_is_retained_through_a_connection_that_advances(worker: Worker) -> None:
    def act(message: InputCapability) -> None:
        with pytest.raises(NotConnected, match="advances"):
            message.retain()

    actor(worker, {0: [2]}, act)


def test_c30_a_message_opens_a_session_only_through_the_identity(worker: Worker) -> None:
    def build(context: OperatorContext) -> Any:
        context.capabilities[0].drop()

        def step(inputs: Any, outputs: Any) -> None:
            for message, _ in inputs[0].drain():
                with pytest.raises(NotConnected):
                    outputs[0].session(message)
                later = message.delayed(message.time + 1)
                outputs[0].give(later, "later")
                later.drop()

        return step

    seen: list[Any] = []
    with worker.dataflow("shop") as scope:
        orders, stream = scope.input("orders")
        builder = OperatorBuilder(scope, "late")
        builder.input(stream, {0: [1]})
        builder.output().inspect(lambda stamp, batch: seen.append((stamp, batch)))
        builder.build(build)
    orders.send("x")
    orders.close()
    while worker.step():
        pass
    assert seen == [((1,), "later")]


def test_c31_a_set_permits_only_at_or_beyond_its_times(account: Account) -> None:
    held = CapabilitySet([at(account, 5)])
    with pytest.raises(NotBeyond, match=r"from time \[5\] to 4"):
        held.delayed(4)
    assert held.try_delayed(4) is None
    assert held.delayed(6).time == 6


def test_c32_a_set_does_not_go_back(account: Account) -> None:
    held = CapabilitySet([at(account, 5)])
    held.downgrade([7])
    assert dict(account.changes) == {5: -1, 7: 1}
    with pytest.raises(NotBeyond):
        held.downgrade(Antichain([6]))
    assert not held.try_downgrade([6])
    assert (held.times(), dict(account.changes)) == ((7,), {5: -1, 7: 1})
    held.downgrade(Antichain())
    assert (len(held), dict(account.changes)) == (0, {5: -1})


def test_c33_an_input_does_not_go_back(worker: Worker) -> None:
    with worker.dataflow("shop") as scope:
        orders, _ = scope.input("orders")
    orders.advance_to(5)
    with pytest.raises(NotBeyond, match="shop/orders: downgrade from time 5 to 3"):
        orders.advance_to(3)
    orders.advance_to(5)
    orders.close()
    orders.close()
    with pytest.raises(CapabilityGone):
        orders.send("late")


def test_c61_a_capability_dropped_outside_waits_for_its_operator(worker: Worker) -> None:
    stash: list[Capability] = []

    def build(context: OperatorContext) -> Any:
        stash.append(context.capabilities[0])

        def step(input: Any, output: Any) -> None:
            for capability, batch in input.drain():
                output.give(capability, batch)

        return step

    with worker.dataflow("shop") as scope:
        orders, stream = scope.input("orders")
        probe = stream.unary("keeper", build, notify=False).probe()
    orders.advance_to(3)
    worker.step(), worker.step()
    assert list(probe.frontier()) == [0]
    stash[0].drop()
    for _ in range(5):
        worker.step()
    assert list(probe.frontier()) == [0]
    (holder,) = (h for h in worker.explain_stuck() if h.path == "shop/keeper")
    assert "activate it" in str(holder)
    orders.send("wakes")
    orders.advance_to(4)
    worker.step(), worker.step()
    assert list(probe.frontier()) == [4]


def test_a_message_ends_with_its_invocation(worker: Worker) -> None:
    kept: list[InputCapability] = []
    actor(worker, None, kept.append)
    assert kept[0].stamp == (0,)
    for use in (kept[0].retain, kept[0].retain_all, lambda: kept[0].delayed(3)):
        with pytest.raises(CapabilityGone, match="its invocation returned"):
            use()


def test_a_dropped_capability_is_of_no_use(account: Account) -> None:
    held = Capability.initial(account)
    held.drop()
    held.drop()
    assert dict(account.changes) == {0: -1}
    uses: list[Callable[[], object]] = [
        held.clone,
        lambda: held.delayed(1),
        lambda: held.downgrade(1),
        lambda: held.try_delayed(1),
    ]
    for use in uses:
        with pytest.raises(CapabilityGone, match=r"after drop\(\)"):
            use()
    with pytest.raises(CapabilityGone):
        held.stamp_for(account)


def test_no_capability_is_released_by_being_forgotten(account: Account) -> None:
    held = Capability.initial(account).delayed(3)
    del held
    assert dict(account.changes) == {3: 1}
    assert not hasattr(Capability, "__enter__")
    assert not hasattr(Capability, "__del__")


def test_a_set_keeps_the_minimal_times(account: Account) -> None:
    pairs = Account("shop/remap", 0, Product(INT, INT))
    base = Capability.initial(pairs)
    held = CapabilitySet([base.delayed((2, 0)), base.delayed((0, 2))])
    assert not held.insert(base.delayed((2, 1)))
    assert held.insert(base.delayed((1, 0)))
    assert held.times() == ((0, 2), (1, 0))
    first = held.first()
    assert first is not None
    assert first.time == (0, 2)
    base.drop()
    assert dict(pairs.changes) == {(0, 0): -1, (0, 2): 1, (1, 0): 1}


def test_a_set_keeps_one_capability_of_a_time(account: Account) -> None:
    first, second, later = at(account, 5), at(account, 5), at(account, 6)
    held = CapabilitySet([later, first, second])
    assert (list(held), [mine.held for mine in (first, second, later)]) == ([first], [True, False, False])
    assert dict(account.changes) == {5: -1, 6: -1}


def test_what_goes_on_is_noted_on_top_of_what_is_noted_already(account: Account) -> None:
    held = CapabilitySet([at(account, 5)])
    held.downgrade([7])
    held.downgrade([9])
    assert dict(account.changes) == {5: -1, 9: 1}


def test_a_message_of_several_times_has_no_single_one(worker: Worker) -> None:
    seen: list[Any] = []

    def act(message: InputCapability) -> None:
        with pytest.raises(AmbiguousTime):
            _ = message.time
        held = message.retain_all()
        seen.append((message.stamp, held.times()))
        held.drop()

    with worker.dataflow("shop", order=Product(INT, INT)) as scope:
        handle, held, stream = scope.unordered_input("orders")
        one(scope, stream, None, act)
        probe = stream.map(lambda batch: batch).probe()
    both = CapabilitySet([held.delayed((0, 1)), held.delayed((1, 0))])
    handle.session(both).give("spans")
    both.drop()
    held.drop()
    assert probe.less_equal((0, 0))
    while worker.step():
        pass
    assert seen == [(((0, 1), (1, 0)), ((0, 1), (1, 0)))]
    assert probe.done()


def test_permission_taken_from_a_frontier_is_found(worker: Worker) -> None:
    def build(context: OperatorContext) -> Any:
        account = context.capabilities[0].account
        context.capabilities[0].drop()

        def step(input: Any, output: Any) -> None:
            if input.frontier.less_equal(3) and not input.frontier.less_than(3):
                gain(account, 3)

        return step

    with worker.dataflow("shop") as scope:
        orders, stream = scope.input("orders")
        stream.unary("thief", build)
    orders.advance_to(3)
    with pytest.raises(OperatorFailed, match="shop/thief") as caught:  # noqa: PT012
        while True:
            worker.step()
    assert isinstance(caught.value.__cause__, ProgressViolation)
    assert "a capability at 3 on output 0" in str(caught.value.__cause__)


def test_c24_a_stash_hands_out_what_is_complete_in_sort_order() -> None:
    order = Product(INT, INT)
    base = Capability.initial(Account("shop/count", 0, order))
    frontier: MutableAntichain[Any] = MutableAntichain(order)
    frontier.update([((0, 0), 1)])
    stash: Stash[list[str]] = Stash(list)

    def request(time: Any) -> None:
        stash.at(time, lambda: base.delayed(time)).append("x")

    for time in [(3, 5), (5, 4), (1, 2), (1, 1), (1, 1), (5, 4), (6, 0), (6, 2), (5, 8)]:
        request(time)
    assert list(stash.ready([frontier])) == []
    frontier.update([((0, 0), -1), ((5, 7), 1), ((6, 1), 1)])
    ready = [(capability.time, len(state)) for capability, state in stash.ready([frontier])]
    assert ready == [((1, 1), 2), ((1, 2), 1), ((3, 5), 1), ((5, 4), 2), ((6, 0), 1)]
    frontier.update([((5, 7), -1), ((6, 1), -1), ((6, 10), 1)])
    handed = []
    for capability, _ in stash.ready([frontier]):
        handed.append(capability.time)
        if capability.time == (5, 8):
            request((5, 9))
    assert handed == [(5, 8), (6, 2)]
    assert [capability.time for capability, _ in stash.ready([frontier])] == [(5, 9)]
    assert len(stash) == 0


class Backwards:
    """An order of a user's own, which says nothing of what is a time: numbers, the largest first."""

    minimum = 10
    total = False

    def less_equal(self, a: int, b: int) -> bool:
        return a >= b

    def sort_key(self, time: int) -> int:
        return -time


@pytest.mark.parametrize(
    ("order", "wrong"),
    [
        (INT, "5"),
        (INT, 5.0),
        (INT, True),
        (INT, -1),
        (INT, (5, 0)),
        (INT, None),
        (Bounded(7), 8),
        (UNIT, 0),
        (Product(INT, INT), 5),
        (Product(INT, INT), (5, 0, 0)),
        (Product(INT, INT), (5, "0")),
        (Product(INT, INT), [5, 0]),
        (Lex(INT, INT), (5, (0, 0))),
        (PARTITIONED, ("p0", 5)),
        (PARTITIONED, (Interval(after(5), before(5)), 0)),
        (PARTITIONED, (Interval(after("five"), before(6)), 0)),
        (PARTITIONED, (Interval((1, 5), (1, 6)), 0)),
        (PARTITIONED, (only(5), -1)),
        (Backwards(), "no number"),
    ],
)
def test_a_time_of_another_order_is_refused_where_it_is_given(worker: Worker, order: Any, wrong: Any) -> None:
    with worker.dataflow("shop", order=order) as scope:
        handle, stream = scope.input("orders")
        _, capability, _ = scope.unordered_input("late")
        probe = stream.probe()
    held = CapabilitySet([capability])
    for give in (
        handle.advance_to,
        capability.delayed,
        capability.try_delayed,
        capability.downgrade,
        capability.try_downgrade,
        held.delayed,
        held.try_delayed,
        lambda time: held.downgrade([time]),
    ):
        with pytest.raises(ForeignTime, match="shop/"):
            give(wrong)
    for ask in (probe.less_equal, probe.less_than, lambda time: Antichain([time], order)):
        with pytest.raises(ForeignTime):
            ask(wrong)
    assert held.times() == (order.minimum,), "nothing has changed"


def test_a_message_is_not_delayed_to_a_time_of_another_order(worker: Worker) -> None:
    def build(context: Any) -> Any:
        context.capabilities[0].drop()

        def step(feed: Any, _output: Any) -> None:
            for message, _ in feed.drain():
                message.delayed((message.time, 1))

        return step

    with worker.dataflow("shop") as scope:
        handle, stream = scope.input("orders")
        stream.unary("late", build)
    handle.send("order")
    with pytest.raises(OperatorFailed) as caught:
        worker.settle()
    assert isinstance(caught.value.__cause__, ForeignTime)
    assert "shop/late: (0, 1) is no time of the order" in str(caught.value.__cause__)
