"""Incarnations of a source: positions begin again, what was bound stays, what is lost is kept as gaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.remap.store.conftest import Clock
from tests.remap.store.raw import sql

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.store import EpochBelowSince, FrontierRegressed, LeaseLost, NotYetBound
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.store import Gap, Lease, LeaseHolder, Store

Bind = Callable[[int, dict[str, int]], int]


def renew(store: Store, lease: Lease, clock: Clock, *, source: str = "orders", identity: str = "") -> int:
    return store.begin_incarnation(lease, source, at=clock(), reason="the topic was recreated", identity=identity)


def ranges(store: Store, first: int, last: int) -> list[tuple[int, str, int, int]]:
    """What the epochs from `first` to `last` bind of any incarnation, both by the tables and by the rows."""
    source = store.load("shop").sources["orders"]
    found = [(s.epoch, s.partition, s.lower, s.upper) for s in source.slices(first, last + 1)]
    rows = store.bindings("shop", source="orders", first=first, last=last).to_pylist()
    assert [(row["epoch"], row["partition"], row["lower"], row["position"]) for row in rows] == found
    return found


def test_positions_begin_again_at_the_upper_and_the_old_ones_stay(
    store: Store, lease: Lease, bind: Bind, clock: Clock, opened: Callable[[], Store]
) -> None:
    bind(0, {"p0": 5, "p1": 2})
    bind(1, {"p0": 9, "p1": 2})
    assert renew(store, lease, clock) == 1
    bind(2, {"p0": 3})
    bind(3, {"p0": 4, "p2": 1})
    for looked in (store, opened()):
        found = looked.load("shop").sources["orders"]
        assert (found.incarnation, found.began_at) == (1, 2)
        assert found.table.frontier == Frontier({"p0": 4, "p2": 1})
        assert [found.table.frontier_at(epoch) for epoch in (0, 1)] == [ORIGIN, ORIGIN]
        assert [found.table.epoch_of("p0", position) for position in (0, 2, 3)] == [2, 2, 3]
        with pytest.raises(NotYetBound):
            found.table.epoch_of("p0", 4)
        whole, last = looked.history("shop", 3, 4, whole=True).links  # of which a lost store is recovered
        assert (whole.whole, whole.sources["orders"].positions) == (True, {"p0": 3})
        assert last.sources["orders"].positions == {"p0": 4, "p2": 1}
        [past] = found.past
        assert [past.epoch_of("p0", position) for position in (4, 5, 8)] == [0, 1, 1]
        assert (past.upper, past.frontier) == (2, Frontier({"p0": 9, "p1": 2}))
        assert ranges(looked, 0, 3) == [
            *((0, "p0", 0, 5), (0, "p1", 0, 2), (1, "p0", 5, 9)),
            *((2, "p0", 0, 3), (3, "p0", 3, 4), (3, "p2", 0, 1)),
        ]
        assert ranges(looked, 3, 3) == [(3, "p0", 3, 4), (3, "p2", 0, 1)]
        assert ranges(looked, 1, 2) == [(1, "p0", 5, 9), (2, "p0", 0, 3)]
        assert ranges(looked, 1, 3)[0] == (1, "p0", 5, 9)  # p2 came in the later one, which is nothing to p0


@pytest.mark.parametrize("upper", [1, 2])
def test_what_is_known_of_the_partitions_of_an_incarnation_is_told_with_it_and_not_before(
    store: Store, lease: Lease, clock: Clock, opened: Callable[[], Store], upper: int
) -> None:
    """Of two partitions one is bound before, and the other one after."""
    positions = ({"p0": 5}, {"p1": 3})
    for epoch, topic in enumerate("AB"):
        details = {name: {"topic_id": topic} for name in ("p0", "p1")}
        proposal = Proposal(frontier=Frontier(positions[epoch]), details=details)
        store.append(lease, expected=epoch, at=clock(), proposals={"orders": proposal})
        if epoch == 0:
            renew(store, lease, clock)
    told = [link.sources["orders"].details for link in opened().history("shop", 0, upper, whole=True).links]
    both = {name: {"topic_id": "B"} for name in ("p0", "p1")}
    assert told == [{}, both][:upper]


def test_another_driver_goes_on_from_the_positions_of_the_present_incarnation(
    store: Store, lease: Lease, bind: Bind, clock: Clock, opened: Callable[[], Store]
) -> None:
    bind(0, {"p0": 5})
    renew(store, lease, clock)
    bind(1, {"p0": 2})
    lease.release()
    other = opened()
    theirs = other.acquire("shop", holder=LeaseHolder.current(Env(now=clock)))
    with pytest.raises(FrontierRegressed):
        other.append(theirs, expected=2, at=clock(), proposals={"orders": Proposal(frontier=Frontier({"p0": 1}))})
    other.append(theirs, expected=2, at=clock(), proposals={"orders": Proposal(frontier=Frontier({"p0": 3}))})
    theirs.release()
    again = store.acquire("shop", holder=replace(lease.holder, run="a" * 32))
    renew(store, again, clock)
    store.append(again, expected=3, at=clock(), proposals={"orders": Proposal(frontier=Frontier({"p0": 1}))})
    assert ranges(store, 1, 3) == [(1, "p0", 0, 2), (2, "p0", 2, 3), (3, "p0", 0, 1)]


def test_a_driver_that_comes_back_finds_the_incarnation_that_another_one_began(
    store: Store, lease: Lease, bind: Bind, clock: Clock, opened: Callable[[], Store]
) -> None:
    bind(0, {"p0": 5})
    lease.release()
    other = opened()
    theirs = other.acquire("shop", holder=LeaseHolder.current(Env(now=clock)))
    renew(other, theirs, clock)
    theirs.release()
    again = store.acquire("shop", holder=lease.holder)
    store.append(again, expected=1, at=clock(), proposals={"orders": Proposal(frontier=Frontier({"p0": 1}))})
    assert ranges(store, 1, 1) == [(1, "p0", 0, 1)]


def test_the_failure_the_seal_the_identity_and_the_facts_of_the_old_upstream_are_over(
    store: Store, lease: Lease, clock: Clock
) -> None:
    bound = Proposal(frontier=Frontier({"p0": 5}, sealed=True), identity="old", details={"p0": {"path": "a"}})
    store.append(lease, expected=0, at=clock(), proposals={"orders": bound})
    store.record_failure(lease, "orders", 0, UpstreamRecreated(source="orders", known="old", found="new"))
    renew(store, lease, clock)
    found = store.load("shop").sources["orders"]
    assert (found.failure, found.identity, found.details, found.table.sealed_at) == (None, "", {}, None)
    store.append(
        lease, expected=1, at=clock(), proposals={"orders": Proposal(frontier=Frontier({"p0": 1}), identity="new")}
    )
    found = store.load("shop").sources["orders"]
    assert (found.identity, found.incarnations[0].identity) == ("new", "new")
    store.append(lease, expected=2, at=clock(), proposals={"orders": Proposal(frontier=found.table.frontier.seal())})
    assert store.load("shop").sources["orders"].table.sealed_at == 2


def test_its_history_is_kept_with_when_and_why(store: Store, lease: Lease, bind: Bind, clock: Clock) -> None:
    assert store.load("shop").sources["orders"].incarnations == ()
    bind(0, {"p0": 5})
    began = clock()
    renew(store, lease, clock, identity="b")
    bind(1, {"p0": 5})
    clock.pass_by(60)
    renew(store, lease, clock, identity="c")
    told = store.load("shop").sources["orders"].incarnations
    assert [(one.number, one.began_at, one.identity) for one in told] == [(1, 1, "b"), (2, 2, "c")]
    assert [(one.at - began).total_seconds() for one in told] == [0, 60]
    assert {one.reason for one in told} == {"the topic was recreated"}


def test_it_is_begun_once_however_often_it_is_tried(store: Store, lease: Lease, bind: Bind, clock: Clock) -> None:
    bind(0, {"p0": 5})
    gap = Gap("orders", 0, "p0", 3, 5, clock(), "TG-0554", "gone")
    for _ in range(2):
        number = store.begin_incarnation(lease, "orders", at=clock(), reason="gone", identity="b", gaps=[gap])
        assert number == 1
    store.record_failure(lease, "orders", 1, UpstreamRecreated(source="orders", known="b", found="c"))
    assert renew(store, lease, clock, identity="b") == 2
    assert store.gaps("shop") == [gap]


def test_the_other_sources_do_not_notice(store: Store, lease: Lease, bind: Bind, clock: Clock) -> None:
    clicks = Proposal(frontier=Frontier({"p0": 7}))
    store.append(lease, expected=0, at=clock(), proposals={"clicks": clicks})
    bind(1, {"p0": 5})
    before = store.load("shop").sources["clicks"]
    renew(store, lease, clock)
    after = store.load("shop").sources["clicks"]
    assert (
        (after.incarnation, after.table.frontier)
        == (before.incarnation, before.table.frontier)
        == (
            0,
            Frontier({"p0": 7}),
        )
    )


@pytest.mark.parametrize("since", [0, 1, 2, 3])
def test_pc_an_incarnation_that_is_over_answers_as_it_did_from_since_on_or_not_at_all(
    store: Store, lease: Lease, bind: Bind, clock: Clock, opened: Callable[[], Store], since: int
) -> None:
    """By P-c the epoch of a record becomes `max(epoch, since)`; once the whole incarnation lies before `since`, its
    positions are gone, and what is asked of them is refused."""
    bind(0, {"p0": 5, "p1": 2})
    bind(1, {"p0": 9, "p1": 2})
    renew(store, lease, clock)
    bind(2, {"p0": 3})
    bind(3, {"p0": 12})
    store.publish(lease, expected=0, upper=4, at=clock())
    [before] = store.load("shop").sources["orders"].past
    store.advance_since(lease, since)
    found = opened().load("shop").sources["orders"]
    [past] = found.past
    assert past.upper == before.upper == 2
    for partition, position in (("p0", 0), ("p0", 4), ("p0", 5), ("p0", 8), ("p1", 1)):
        if since < past.upper:
            assert past.epoch_of(partition, position) == max(before.epoch_of(partition, position), since)
        else:
            with pytest.raises(NotYetBound):
                past.epoch_of(partition, position)
    for epoch in range(past.upper):
        if epoch >= since:
            assert past.frontier_at(epoch) == before.frontier_at(epoch)
        else:
            with pytest.raises(EpochBelowSince):
                past.frontier_at(epoch)
            with pytest.raises(EpochBelowSince):
                found.slices(epoch, 4)


@pytest.mark.parametrize("since", [1, 2, 3])
def test_compaction_lets_what_is_over_go_and_keeps_the_present(
    store: Store, lease: Lease, bind: Bind, clock: Clock, opened: Callable[[], Store], since: int
) -> None:
    bind(0, {"p0": 5, "p1": 2})
    bind(1, {"p0": 9, "p1": 2})
    renew(store, lease, clock)
    bind(2, {"p0": 3})
    bind(3, {"p0": 4, "p2": 1})
    store.publish(lease, expected=0, upper=4, at=clock())
    table = store.load("shop").sources["orders"].table
    store.advance_since(lease, since)
    found = opened().load("shop").sources["orders"]
    assert [*found.table.changes()] == [*table.compacted(since).changes()]
    assert found.table.frontier == Frontier({"p0": 4, "p2": 1})
    assert [len(past) for past in found.past] == [2 if since == 1 else 0]
    assert found.slices(since, 4)[-2:] == table.slices(3, 4) if since < 3 else found.table.slices(3, 4)
    bind(4, {"p0": 4, "p2": 1, "p1": 1})
    assert opened().load("shop").sources["orders"].table.frontier == Frontier({"p0": 4, "p1": 1, "p2": 1})


def test_gaps_are_kept_once_each_in_order(store: Store, lease: Lease, bind: Bind, clock: Clock) -> None:
    bind(0, {"p0": 5})
    gaps = [
        Gap(source, epoch, "p0", 0, 5, clock(), "TG-0554", "gone")
        for source in ("orders", "clicks")
        for epoch in (1, 0)
    ]
    for gap in [*gaps, *gaps]:
        store.record_gap(lease, gap)
    assert [(gap.source, gap.epoch, gap.size) for gap in store.gaps("shop")] == [
        *(("clicks", 0, 5), ("clicks", 1, 5)),
        *(("orders", 0, 5), ("orders", 1, 5)),
    ]


def test_secrets_in_a_reason_are_not_kept(store: Store, lease: Lease, clock: Clock) -> None:
    reason = "kafka://ada:hunter2@broker is another one"
    gap = Gap("orders", 0, "p0", 0, 5, clock(), "TG-0554", reason)
    store.begin_incarnation(lease, "orders", at=clock(), reason=reason, gaps=[gap])
    told = [store.load("shop").sources["orders"].incarnations[0].reason, store.gaps("shop")[0].reason]
    assert told == 2 * ["kafka://ada:***@broker is another one"]


def test_a_driver_without_the_lease_and_an_unknown_source_are_refused(
    store: Store, lease: Lease, clock: Clock
) -> None:
    gap = Gap("oders", 0, "p0", 0, 5, clock(), "TG-0554", "gone")
    with pytest.raises(UnknownName, match="'orders'"):
        renew(store, lease, clock, source="oders")
    with pytest.raises(UnknownName, match="'orders'"):
        store.record_gap(lease, gap)
    lease.release()
    with pytest.raises(LeaseLost):
        renew(store, lease, clock)
    with pytest.raises(LeaseLost):
        store.record_gap(lease, gap)
    assert store.load("shop").sources["orders"].incarnations == ()


@pytest.mark.parametrize("began_at", [9, -1])
def test_incarnations_that_begin_where_none_can_are_said_to_be_damaged(
    url: str, store: Store, lease: Lease, bind: Bind, clock: Clock, began_at: int
) -> None:
    bind(0, {"p0": 5})
    renew(store, lease, clock)
    sql(url, f"UPDATE incarnations SET began_at = {began_at}")
    with pytest.raises(TidegaugeError, match=r"TG-02(16|21)"):
        store.load("shop")
