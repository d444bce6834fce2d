"""Letting epochs go and holding them: what stays is what the definition says, and nobody's epoch goes under them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.remap.store.raw import dump, sql

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.store import EpochBelowSince, HoldNotBound, HoldTooEarly, NotYetBound, SinceHeld, SinceTooFar
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.store import Lease, LeaseHolder, SourceSpec, Store
from tidegauge.remap.table import RemapTable
from tidegauge.testing.strategies import advancing_frontiers

Bind = Callable[[int, dict[str, int]], int]
PLACES = [(partition, position) for partition in ("p0", "p1", "p'2") for position in range(9)]
WALKS = advancing_frontiers(partitions=st.sampled_from(["p0", "p1", "p'2"]), steps=st.integers(1, 2), max_size=5)


def table(store: Store, flow: str = "shop", source: str = "orders") -> RemapTable:
    return store.load(flow).sources[source].table


def says(ask: Callable[[], object]) -> object:
    """What is answered, an error included."""
    try:
        return ask()
    except TidegaugeError as error:
        return type(error), error.evidence


def answers(table: RemapTable) -> dict[str, object]:
    """All that a table can be asked."""
    epochs = range(-1, table.upper + 2)
    found: dict[str, object] = {f"epoch of {place}": says(partial(table.epoch_of, *place)) for place in PLACES}
    for epoch in epochs:
        found[f"frontier {epoch}"] = says(partial(table.frontier_at, epoch))
        found[f"inverse {epoch}"] = says(partial(table.inverse, epoch))
        found[f"slices {epoch}"] = says(partial(table.slices, epoch, table.upper))
    return {**found, "since": table.since, "frontier": table.frontier, "sealed": table.sealed_at}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(WALKS, st.data())
def test_pc_loading_a_compacted_store_is_compacting_the_loaded_one(
    store: Store, env: Env, walk: list[Frontier], data: st.DataObject
) -> None:
    flow = env.unique()
    lease = store.acquire(flow, holder=LeaseHolder.current(env))
    store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
    for epoch, frontier in enumerate(walk):
        proposals = {"orders": Proposal(frontier=frontier)}
        store.append(lease, expected=epoch, at=env.now(), proposals=proposals)
    upper = table(store, flow).upper
    store.publish(lease, expected=0, upper=upper, at=env.now())
    model = table(store, flow)
    for since in sorted(data.draw(st.lists(st.integers(0, upper - 1), max_size=2))):
        store.advance_since(lease, since)
        model = model.compacted(since)
        assert answers(table(store, flow)) == answers(model)


def test_t05_t06_and_what_lies_below_since_can_no_longer_be_asked_for(
    bind: Bind, store: Store, lease: Lease, clock: Callable[[], datetime]
) -> None:
    bind(0, {"p0": 3})
    bind(1, {"p0": 3, "p1": 2})
    bind(2, {"p0": 5, "p1": 2})
    store.publish(lease, expected=0, upper=3, at=clock())
    store.advance_since(lease, 1)
    compacted = table(store)
    assert [compacted.epoch_of("p0", position) for position in (1, 2, 3, 4)] == [1, 1, 2, 2]
    assert [compacted.inverse(epoch) for epoch in (0, 1, 2)] == [ORIGIN, ORIGIN, Frontier({"p0": 3, "p1": 2})]
    with pytest.raises(EpochBelowSince):
        compacted.frontier_at(0)
    with pytest.raises(EpochBelowSince):
        compacted.slices(0, 2)
    with pytest.raises(NotYetBound):
        compacted.epoch_of("p0", 5)


def test_a_hold_keeps_its_epoch_distinct_until_it_is_released(
    bind: Bind, store: Store, lease: Lease, clock: Callable[[], datetime], url: str
) -> None:
    for epoch in range(5):
        bind(epoch, {"p0": epoch + 1})
    store.publish(lease, expected=0, upper=5, at=clock())
    store.hold("shop", "report", 3)
    store.hold("shop", "a 'quoted' backfill", 2)
    assert [(held.owner, held.epoch, held.at) for held in store.holds("shop")] == [
        ("a 'quoted' backfill", 2, clock()),
        ("report", 3, clock()),
    ]
    before = dump(url)
    with pytest.raises(SinceHeld) as caught:
        store.advance_since(lease, 3)
    assert caught.value.evidence == {"flow": "shop", "since": 3, "owner": "a 'quoted' backfill", "epoch": 2}
    assert dump(url) == before
    store.advance_since(lease, 2)
    store.hold("shop", "a 'quoted' backfill", 4)  # an owner that goes on
    store.advance_since(lease, 3)
    store.release("shop", "report")
    store.release("shop", "a 'quoted' backfill")
    store.advance_since(lease, 4)
    assert (store.holds("shop"), table(store).since) == ([], 4)


def test_an_epoch_that_is_not_there_cannot_be_held(
    bind: Bind, store: Store, lease: Lease, clock: Callable[[], datetime]
) -> None:
    store.hold("shop", "early", 0)  # all that is to come
    for epoch in range(3):
        bind(epoch, {"p0": epoch + 1})
    store.publish(lease, expected=0, upper=3, at=clock())
    store.release("shop", "early")
    store.advance_since(lease, 1)
    with pytest.raises(HoldTooEarly, match="before 1"):
        store.hold("shop", "report", 0)
    with pytest.raises(HoldNotBound, match="epochs below 3 are bound"):
        store.hold("shop", "report", 3)
    for owner, epoch in (("", 1), (" ", 1), (7, 1), ("x\0y", 1), ("x" * 5000, 1), ("report", -1), ("report", True)):
        with pytest.raises(InvalidArgument):
            store.hold("shop", owner, epoch)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        store.hold("shop", "report", 2**63)
    with pytest.raises(UnknownName, match="no flow named 'sohp'"):
        store.hold("sohp", "report", 1)
    store.hold("shop", "report", 1)
    for flow, owner in (("sohp", "report"), ("shop", "reprot"), ("shop", "early")):
        with pytest.raises(UnknownName):
            store.release(flow, owner)
    assert [held.owner for held in store.holds("shop")] == ["report"]


def test_a_hold_of_another_flow_is_none(bind: Bind, store: Store, lease: Lease, env: Env) -> None:
    for epoch in range(2):
        bind(epoch, {"p0": epoch + 1})
    store.publish(lease, expected=0, upper=2, at=env.now())
    store.acquire("other", holder=LeaseHolder.current(env))
    store.hold("other", "report", 0)
    store.advance_since(lease, 1)
    assert (store.holds("shop"), table(store).since) == ([], 1)


def test_of_a_hold_and_a_compaction_at_the_same_instant_one_is_refused(
    opened: Callable[[], Store], bind: Bind, store: Store, lease: Lease, clock: Callable[[], datetime]
) -> None:
    for epoch in range(9):
        bind(epoch, {"p0": epoch + 1})
    store.publish(lease, expected=0, upper=9, at=clock())
    reader = opened()
    for epoch in range(8):
        start = threading.Barrier(2)
        came: list[object] = []

        def hold(epoch: int = epoch, start: threading.Barrier = start, came: list[object] = came) -> None:
            start.wait()
            came.append(says(partial(reader.hold, "shop", "report", epoch)))

        thread = threading.Thread(target=hold)
        thread.start()
        start.wait()
        compacted = says(partial(store.advance_since, lease, epoch + 1))
        thread.join()
        assert (came == [None]) != (compacted is None)
        assert all(held.epoch >= table(store).since for held in store.holds("shop"))
        if came == [None]:
            reader.release("shop", "report")
            store.advance_since(lease, epoch + 1)


def test_what_was_folded_is_remembered_by_when_each_source_moved_last(
    bind: Bind, store: Store, lease: Lease, clock: Callable[[], datetime]
) -> None:
    for epoch, step in enumerate([{"p0": 1}, {"p0": 2}, {"p0": 2}, {"p0": 2}, {"p0": 3}, {"p0": 3}]):
        bind(epoch, step)
    store.publish(lease, expected=0, upper=6, at=clock())

    def folded() -> list[int | None]:
        loaded = store.load("shop").sources
        return [loaded[name].folded for name in ("orders", "clicks")]

    found = [folded()]
    for since in (2, 3, 4, 5):
        store.advance_since(lease, since)
        found.append(folded())
    assert found == [[None, None], [1, None], [1, None], [4, None], [4, None]]


def test_positions_that_began_again_are_folded_by_their_epochs(
    bind: Bind, store: Store, lease: Lease, clock: Callable[[], datetime], url: str
) -> None:
    """The last change by epoch stays, though an earlier life of the partition came further."""
    bind(0, {"p0": 100, "p1": 7})
    bind(1, {"p0": 200, "p1": 7})
    [(orders,)] = sql(url, "SELECT id FROM sources WHERE name = 'orders'")
    [(p0,)] = sql(url, f"SELECT id FROM partitions WHERE source_id = {orders} AND key = 'p0'")
    sql(url, f"INSERT INTO incarnations VALUES ({orders}, 1, 2, NULL, '2026-11-20T17:00:00.000000Z', 'new')")
    for epoch, position in ((2, 3), (3, 5), (4, 8)):
        store.append(lease, expected=epoch, at=clock(), proposals={})
        sql(url, f"INSERT INTO changes VALUES ({orders}, {epoch}, {p0}, {position})")
    sql(url, f"INSERT INTO source_states VALUES ({orders}, 1, 'old')")
    store.publish(lease, expected=0, upper=5, at=clock())
    rows = "SELECT epoch, position FROM changes ORDER BY epoch, position"
    store.advance_since(lease, 1)
    assert sql(url, rows) == [(1, 7), (1, 200), (2, 3), (3, 5), (4, 8)]
    store.advance_since(lease, 3)
    assert sql(url, rows) == [(3, 5), (4, 8)]
    assert sql(url, "SELECT epoch FROM source_states") == []
    seen = "SELECT incarnation, epoch, lower, position FROM bindings WHERE source = 'orders' ORDER BY epoch"
    assert sql(url, seen) == [(1, 3, 0, 5), (1, 4, 5, 8)]


def test_of_the_states_up_to_since_the_last_one_stays(
    bind: Bind, store: Store, lease: Lease, clock: Callable[[], datetime], url: str
) -> None:
    for epoch in range(6):
        bind(epoch, {"p0": epoch + 1})
    [(orders,), (clicks,)] = sql(url, "SELECT id FROM sources ORDER BY name DESC")
    for source, epoch in ((orders, 0), (orders, 2), (orders, 5), (clicks, 1)):
        sql(url, f"INSERT INTO source_states VALUES ({source}, {epoch}, 'state {epoch}')")
    store.publish(lease, expected=0, upper=6, at=clock())
    store.advance_since(lease, 4)
    left = f"SELECT epoch, state FROM source_states WHERE source_id = {orders} ORDER BY epoch"
    assert sql(url, left) == [(4, "state 2"), (5, "state 5")]
    assert sql(url, f"SELECT epoch, state FROM source_states WHERE source_id = {clicks}") == [(4, "state 1")]


def test_t24_with_a_hold_the_resume_point_still_counts(
    bind: Bind, store: Store, lease: Lease, clock: Callable[[], datetime]
) -> None:
    for epoch in range(4):
        bind(epoch, {"p0": epoch + 1})
    store.publish(lease, expected=0, upper=2, at=clock())
    store.hold("shop", "report", 3)
    with pytest.raises(SinceTooFar):
        store.advance_since(lease, 2)
