"""Compare-and-append on the timeline: one winner for each epoch, changes only, nothing by halves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.depth import deep
from tests.remap.store.raw import sql

from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.store import FrontierRegressed, NotYetBound, SinceTooFar, UpperMismatch
from tidegauge.remap.binding import Detail, Proposal
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.history import Link
from tidegauge.remap.store import Lease, LeaseHolder, SourceSpec, Store, opening
from tidegauge.remap.table import RemapTable
from tidegauge.testing.strategies import advancing_frontiers

Bind = Callable[[int, dict[str, int]], int]


def at(positions: dict[str, int]) -> Proposal:
    return Proposal(frontier=Frontier(positions))


def table(store: Store, source: str = "orders") -> RemapTable:
    return store.load("shop").sources[source].table


def test_t11_s29_a_stale_minter_fails_once_and_then_binds_only_its_own_part(
    opened: Callable[[], Store], store: Store, lease: Lease, clock: Callable[[], datetime], url: str
) -> None:
    other = opened()
    store.append(lease, expected=0, at=clock(), proposals={"orders": at({"p0": 3})})
    with pytest.raises(UpperMismatch) as caught:
        other.append(lease, expected=0, at=clock(), proposals={"orders": at({"p0": 5})})
    assert caught.value.evidence == {"flow": "shop", "what": "bound", "expected": 0, "actual": 1}
    upper = other.load("shop").flow.upper
    assert other.append(lease, expected=upper, at=clock(), proposals={"orders": at({"p0": 5})}) == 1
    assert sql(url, "SELECT epoch, position FROM changes ORDER BY epoch") == [(0, 3), (1, 5)]


def test_a_store_sees_what_another_bound_in_between(
    opened: Callable[[], Store], store: Store, lease: Lease, clock: Callable[[], datetime]
) -> None:
    other = opened()
    store.append(lease, expected=0, at=clock(), proposals={"orders": at({"p0": 1})})
    other.append(lease, expected=1, at=clock(), proposals={"orders": at({"p0": 5, "p1": 1})})
    with pytest.raises(FrontierRegressed):
        store.append(lease, expected=2, at=clock(), proposals={"orders": at({"p0": 4, "p1": 1})})
    store.append(lease, expected=2, at=clock(), proposals={"orders": at({"p0": 5, "p1": 2})})
    assert list(table(store).changes()) == [(0, "p0", 1), (1, "p0", 5), (1, "p1", 1), (2, "p1", 2)]


def test_what_commits_carry_is_known_from_binding_it_and_is_what_the_store_says(
    opened: Callable[[], Store], store: Store, lease: Lease, clock: Callable[[], datetime], env: Env
) -> None:
    for epoch in range(2):
        store.append(lease, expected=epoch, at=clock(), proposals={"orders": at({"p0": epoch + 1})})
    anew, other = opened(), opened()  # a later run, and somebody who binds in its place for once
    lease.release()
    lease = anew.acquire("shop", holder=LeaseHolder.current(env))
    for epoch in range(2, 8):
        proposals = {"orders": at({"p0": epoch + 1, "p1": epoch // 3})}
        (other if epoch == 5 else anew).append(lease, expected=epoch, at=clock(), proposals=proposals)
        for lower in range(epoch + 1):
            told, read = (one.history("shop", lower, epoch + 1, whole=False) for one in (anew, opened()))
            assert told == read, (lower, epoch)


def test_the_history_of_epochs_that_are_not_bound_is_refused(
    opened: Callable[[], Store], store: Store, lease: Lease, clock: Callable[[], datetime]
) -> None:
    """Who asks has bound them, in a store that went back since; a commit would tell less than it holds."""
    store.append(lease, expected=0, at=clock(), proposals={"orders": at({"p0": 1})})
    for asked, whole in ((store, True), (opened(), True), (opened(), False)):
        assert len(asked.history("shop", 0, 1, whole=whole).links) == 1
        with pytest.raises(UpperMismatch):
            asked.history("shop", 0, 2, whole=whole)


def facts(links: Sequence[Link]) -> dict[str, Mapping[str, Detail]]:
    """What is known of each partition once the links are told, one after the other."""
    known: dict[str, Mapping[str, Detail]] = {}
    for link in links:
        for name, moves in link.sources.items():
            known[name] = moves.details if moves.begun else {**known.get(name, {}), **moves.details}
    return known


@pytest.mark.parametrize("restarted", [0, 1, 2, 3])
@pytest.mark.parametrize("committed", [1, 2, 3])
def test_commits_carry_what_is_known_of_partitions_although_nothing_of_them_is_bound_yet(
    opened: Callable[[], Store],
    lease: Lease,
    clock: Callable[[], datetime],
    env: Env,
    restarted: int,
    committed: int,
) -> None:
    """The first commit has `committed` epochs; before that a driver has died, and another one has bound the rest."""
    both = {"p0": {"start": 0}, "p1": {"start": 5}}
    store = opened()
    for epoch, positions in enumerate(({"p0": 1}, {"p0": 2}, {"p0": 2, "p1": 7})):
        if epoch == restarted:
            lease.release()
            store = opened()
            lease = store.acquire("shop", holder=LeaseHolder.current(env))
        proposal = Proposal(frontier=Frontier(positions), details=both if epoch == 0 else {})
        store.append(lease, expected=epoch, at=clock(), proposals={"orders": proposal})
    told = [*store.history("shop", 0, committed, whole=True).links]
    for epoch in range(committed, 3):
        told += store.history("shop", epoch, epoch + 1, whole=False).links
    assert facts(told) == {"orders": both}


def test_of_many_minters_exactly_one_binds_each_epoch(
    opened: Callable[[], Store], lease: Lease, clock: Callable[[], datetime]
) -> None:
    stores = [opened() for _ in range(4)]
    together = threading.Barrier(len(stores))
    won: list[int] = []
    seen: list[tuple[int, int]] = []

    def mint(mine: Store) -> None:
        for epoch in range(10):
            together.wait(timeout=60)
            try:
                won.append(mine.append(lease, expected=epoch, at=clock(), proposals={"clicks": at({"p": epoch + 1})}))
            except UpperMismatch as lost:
                seen.append((epoch, lost.evidence["actual"]))

    threads = [threading.Thread(target=mint, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == list(range(10))
    assert sorted(seen) == [(epoch, epoch + 1) for epoch in range(10) for _ in stores[1:]]
    assert [record.epoch for record in stores[0].epochs("shop")] == list(range(10))


def test_t12_the_first_binding_is_epoch_0(bind: Bind, store: Store) -> None:
    assert bind(0, {"p0": 7}) == 0
    assert table(store).epoch_of("p0", 6) == 0
    with pytest.raises(NotYetBound):
        table(store).epoch_of("p0", 8)


def test_t13_a_frontier_that_goes_back_writes_nothing(bind: Bind, store: Store, url: str) -> None:
    bind(0, {"p0": 5, "p1": 5})
    for behind in ({"p0": 4, "p1": 9}, {"p0": 9}):
        with pytest.raises(FrontierRegressed):
            bind(1, behind)
    assert (store.load("shop").flow.upper, len(sql(url, "SELECT * FROM changes"))) == (1, 2)


def test_epochs_that_no_column_can_hold_are_asked_for_in_vain(bind: Bind, store: Store) -> None:
    bind(0, {"p0": 5})
    assert [r.epoch for r in store.epochs("shop", first=-(2**70), last=2**70)] == [0]
    assert store.epochs("shop", first=2**63) == store.epochs("shop", last=-(2**63) - 1) == []


@pytest.mark.parametrize("expected", [0, 3])
def test_t14_an_append_that_expects_another_upper_writes_nothing(bind: Bind, store: Store, expected: int) -> None:
    bind(0, {"p0": 5})
    bind(1, {"p0": 6})
    with pytest.raises(UpperMismatch):
        bind(expected, {"p0": 7})
    assert (store.load("shop").flow.upper, table(store).frontier) == (2, Frontier({"p0": 6}))


def test_t15_a_source_without_a_proposal_keeps_its_frontier_and_gets_no_row(bind: Bind, store: Store) -> None:
    for epoch in range(3):
        bind(epoch, {"p0": epoch + 1})
    clicks = table(store, "clicks")
    assert (clicks.upper, clicks.frontier, len(clicks)) == (3, ORIGIN, 0)


def test_t16_a_seal_is_durable_and_final(store: Store, lease: Lease, clock: Callable[[], datetime]) -> None:
    sealed = Proposal(frontier=Frontier({"p0": 5}, sealed=True))
    store.append(lease, expected=0, at=clock(), proposals={"orders": at({"p0": 5})})
    store.append(lease, expected=1, at=clock(), proposals={"orders": sealed})
    loaded = table(store)
    assert (loaded.sealed_at, loaded.frontier, loaded.epoch_of("p0", 99)) == (1, sealed.frontier, 1)
    with pytest.raises(FrontierRegressed):
        store.append(lease, expected=2, at=clock(), proposals={"orders": at({"p0": 6})})


def test_t24_since_reaches_the_last_published_epoch_and_no_further(
    bind: Bind, store: Store, lease: Lease, clock: Callable[[], datetime]
) -> None:
    for epoch in range(5):
        bind(epoch, {"p0": epoch + 1})
    with pytest.raises(SinceTooFar):
        store.advance_since(lease, 1)
    store.publish(lease, expected=0, upper=3, at=clock())
    with pytest.raises(SinceTooFar):
        store.advance_since(lease, 3)
    store.advance_since(lease, 2)
    compacted = table(store)
    assert (compacted.since, compacted.inverse(3), compacted.inverse(2)) == (2, Frontier({"p0": 3}), ORIGIN)
    assert compacted.slices(3, 5) == table(store).slices(3, 5)
    store.advance_since(lease, 1)
    assert table(store).since == 2


WALKS = advancing_frontiers(partitions=st.sampled_from(["p0", "p1", "p'2"]), steps=st.integers(1, 4), max_size=6)


@deep(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(WALKS, st.data())
def test_what_was_appended_is_what_is_loaded_also_after_compaction(
    store: Store, env: Env, walk: list[Frontier], data: st.DataObject
) -> None:
    flow = env.unique()
    mine = store.acquire(flow, holder=LeaseHolder.current(env))
    store.register(mine, sources={"s": SourceSpec({})}, outputs={})
    model = RemapTable("s")
    for epoch, frontier in enumerate(walk):
        store.append(mine, expected=epoch, at=env.now(), proposals={"s": Proposal(frontier=frontier)})
        model.append(epoch, frontier)
    loaded = store.load(flow).sources["s"].table
    by_place = sorted(model.changes())
    assert (sorted(loaded.changes()), loaded.sealed_at, loaded.upper) == (by_place, model.sealed_at, model.upper)
    since = data.draw(st.integers(0, len(walk) - 1))
    store.publish(mine, expected=0, upper=len(walk), at=env.now())
    store.advance_since(mine, since)
    after = store.load(flow).sources["s"].table
    assert sorted(after.changes()) == sorted(model.compacted(since).changes())
    assert (after.since, after.frontier) == (since, model.frontier)


def test_binding_one_partition_of_many_writes_one_row(bind: Bind, url: str) -> None:
    many = {f"p{i}": 1 for i in range(1000)}
    bind(0, many)
    bind(1, {**many, "p7": 2})
    assert sql(url, "SELECT epoch, count(*) FROM changes GROUP BY epoch") == [(0, 1000), (1, 1)]


def test_details_are_kept_by_partition_and_the_newest_count(
    store: Store, lease: Lease, clock: Callable[[], datetime]
) -> None:
    old: Detail
    new: Detail
    old, new = {"path": "x", "size": 1}, {"path": "x", "size": 2}
    first = Proposal(frontier=Frontier({"a": 1, "b": 1}), details={"a": old})
    second = Proposal(frontier=Frontier({"a": 2, "b": 1}), details={"a": new, "c": {"path": "y"}})
    store.append(lease, expected=0, at=clock(), proposals={"orders": first})
    store.append(lease, expected=1, at=clock(), proposals={"orders": second})
    loaded = store.load("shop").sources["orders"]
    assert loaded.details == {"a": new, "c": {"path": "y"}}
    assert loaded.table.frontier == Frontier({"a": 2, "b": 1})


def test_details_that_are_not_json_are_refused(store: Store, lease: Lease, clock: Callable[[], datetime]) -> None:
    broken = Proposal(frontier=Frontier({"a": 1}), details={"a": {"size": float("nan")}})  # type: ignore[dict-item]
    with pytest.raises(InvalidArgument):
        store.append(lease, expected=0, at=clock(), proposals={"orders": broken})


def test_one_binding_covers_all_sources_or_none(store: Store, lease: Lease, clock: Callable[[], datetime]) -> None:
    with pytest.raises(UnknownName):
        store.append(lease, expected=0, at=clock(), proposals={"orders": at({"p0": 1}), "oders": at({"p0": 1})})
    assert (store.load("shop").flow.upper, table(store).frontier) == (0, ORIGIN)
    store.append(lease, expected=0, at=clock(), proposals={"orders": at({"p0": 1}), "clicks": at({"q": 2})})
    assert (table(store).frontier_at(0), table(store, "clicks").frontier_at(0)) == (
        Frontier({"p0": 1}),
        Frontier({"q": 2}),
    )


def test_a_source_that_joins_later_is_bound_from_then_on(
    bind: Bind, store: Store, lease: Lease, clock: Callable[[], datetime]
) -> None:
    bind(0, {"p0": 1})
    store.register(lease, sources={"late": SourceSpec({})}, outputs={})
    store.append(lease, expected=1, at=clock(), proposals={"late": at({"q": 2}), "orders": at({"p0": 2})})
    assert table(store, "late").frontier_at(0) == ORIGIN
    assert table(store, "late").epoch_of("q", 0) == 1
    assert table(store).epoch_of("p0", 1) == 1


def test_a_position_that_no_integer_column_holds_is_refused(bind: Bind) -> None:
    bind(0, {"p0": 2**63 - 1})
    with pytest.raises(InvalidArgument):
        bind(1, {"p0": 2**63})


def test_publishing_is_a_compare_and_append(
    bind: Bind, store: Store, lease: Lease, clock: Callable[[], datetime]
) -> None:
    for epoch in range(3):
        bind(epoch, {"p0": epoch + 1})
    store.publish(lease, expected=0, upper=2, at=clock())
    with pytest.raises(UpperMismatch):
        store.publish(lease, expected=0, upper=2, at=clock())
    with pytest.raises(InvalidArgument):
        store.publish(lease, expected=2, upper=2, at=clock())
    with pytest.raises(UpperMismatch):  # they were bound, when the store was put back to an older copy
        store.publish(lease, expected=2, upper=4, at=clock())
    assert [record.published_at for record in store.epochs("shop")] == [clock(), clock(), None]
    flow = store.flow("shop")
    assert flow is not None
    assert (flow.upper, flow.published) == (3, 2)


def test_epochs_are_listed_ascending_and_a_limit_keeps_the_newest(bind: Bind, store: Store) -> None:
    for epoch in range(5):
        bind(epoch, {"p0": epoch + 1})
    assert [r.epoch for r in store.epochs("shop", first=1, last=3)] == [1, 2, 3]
    assert [r.epoch for r in store.epochs("shop", limit=2)] == [3, 4]
    assert [r.epoch for r in store.epochs("shop", last=3, limit=2)] == [2, 3]


def test_the_epoch_at_a_time_is_the_last_published_one_minted_by_then(
    store: Store, lease: Lease, clock: Callable[[], datetime]
) -> None:
    start = clock()
    for epoch, second in enumerate((0, 10, 5, 20)):  # the wall clock went back once
        minted = start + timedelta(seconds=second)
        store.append(lease, expected=epoch, at=minted, proposals={"orders": at({"p0": epoch + 1})})
    store.publish(lease, expected=0, upper=3, at=start)
    asked = [store.epoch_at("shop", start + timedelta(seconds=s)) for s in (-1, 0, 9, 10, 25)]
    assert asked == [None, 0, 0, 2, 2]
    minted_at = [record.minted_at for record in store.epochs("shop")]
    assert minted_at == sorted(minted_at)
    with pytest.raises(InvalidArgument):
        store.epoch_at("shop", start.replace(tzinfo=None))


def test_a_flow_that_was_never_run_is_not_there(store: Store, lease: Lease) -> None:
    assert store.flow("sohp") is None
    for ask in (store.load, store.epochs, lambda name: store.epoch_at(name, lease.since)):
        with pytest.raises(UnknownName, match="the nearest is 'shop'"):
            ask("sohp")


def test_the_documented_query_finds_the_epoch_of_a_position(bind: Bind, store: Store, url: str) -> None:
    bind(0, {"p0": 1000})
    bind(1, {"p0": 2000})
    query = str(opening.__doc__).partition("orders:\n")[2]
    assert sql(url, query) == [(table(store).epoch_of("p0", 1234),)]
