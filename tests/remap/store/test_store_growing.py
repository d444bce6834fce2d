"""Who looks again and again reads the bindings that are new, and sees what loading everything would show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.depth import deep
from tests.remap.store.asked import first_epochs, statements
from tests.remap.store.raw import sql

from tidegauge.env import Env
from tidegauge.errors.sources import FileGone
from tidegauge.errors.store import DamagedStore
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Lease, LeaseHolder, Loaded, SourceSpec, Store

Bind = Callable[[int, dict[str, int]], int]


def shown(loaded: Loaded) -> Any:
    """Everything that is loaded but the facts of partitions, with tables as what they can be asked."""
    sources = {
        name: (
            [table_of(one) for one in (*source.past, source.table)],
            str(source.failure),
            replace(source, details={}, table=None, past=(), failure=None),  # type: ignore[arg-type]
        )
        for name, source in loaded.sources.items()
    }
    return sources, replace(loaded, sources={})


def table_of(table: Any) -> Any:
    frontiers = [table.frontier_at(epoch) for epoch in range(table.since, table.upper)]
    return list(table.changes()), table.upper, table.since, table.sealed_at, table.frontier, frontiers


def test_of_a_long_history_only_the_new_bindings_are_asked_for(bind: Bind, store: Store) -> None:
    for epoch in range(20):
        bind(epoch, {f"p{n}": epoch + 1 for n in range(2)})
    with statements() as said:
        known = store.load_tables("shop", None)
    assert first_epochs(said) == [None, None]  # of each of two sources
    bind(20, {"p0": 20, "p1": 21, "p2": 1})
    with statements() as said:
        again = store.load_tables("shop", known)
    assert first_epochs(said) == [20, 20]
    assert shown(again) == shown(store.load("shop"))
    assert known.sources["orders"].table.upper == 20
    assert len(known.sources["orders"].table) == 40


def test_another_history_is_loaded_anew(place: Callable[[str], str], env: Env) -> None:
    known: Loaded | None = None
    for number in range(2):
        store = Store.open(place(f"life-{number}"), env=env)
        lease = store.acquire("shop", holder=LeaseHolder.current(env))
        store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
        for epoch in range(3 + number):
            bound = Proposal(frontier=Frontier({"p0": (epoch + 1) * (5 + number)}))
            store.append(lease, expected=epoch, at=env.now(), proposals={"orders": bound})
        known = store.load_tables("shop", known)
        assert shown(known) == shown(store.load("shop"))
        store.close()


def test_a_store_that_was_put_back_and_went_another_way_is_loaded_anew(
    url: str, env: Env, bind: Bind, store: Store, opened: Callable[[], Store], lease: Lease
) -> None:
    bind(0, {"p0": 1})
    known = store.load_tables("shop", None)
    for way in ({"p0": 7}, {"p1": 9}):
        # the same life of the flow with another epoch 1: as when a copy of the store is put back
        for table in ("changes", "timeline"):
            sql(url, f"DELETE FROM {table} WHERE epoch = 1")
        sql(url, "UPDATE flows SET upper = 1")
        proposal = Proposal(frontier=Frontier({"p0": 1} | way))
        opened().append(lease, expected=1, at=env.now(), proposals={"orders": proposal})
        known = store.load_tables("shop", known)
        assert shown(known) == shown(store.load("shop"))
        assert known.sources["orders"].table.frontier == Frontier({"p0": 1} | way)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE changes SET position = 1 WHERE epoch = 1", "goes back"),
        ("UPDATE changes SET epoch = 7 WHERE epoch = 1", "the timeline ends"),
    ],
)
def test_what_is_damaged_is_said_as_it_is_of_everything(
    bind: Bind, store: Store, url: str, damage: str, said: str
) -> None:
    bind(0, {"p0": 3})
    known = store.load_tables("shop", None)
    bind(1, {"p0": 5})
    sql(url, damage)
    with pytest.raises(DamagedStore, match=said):
        store.load_tables("shop", known)


def test_an_end_that_was_taken_back_is_seen(bind: Bind, store: Store, lease: Lease, url: str, env: Env) -> None:
    bind(0, {"p0": 1})
    ended = {"orders": Proposal(frontier=Frontier({"p0": 1}, sealed=True))}
    store.append(lease, expected=1, at=env.now(), proposals=ended)
    known = store.load_tables("shop", None)
    sql(url, "DELETE FROM seals")  # as in a copy that went on otherwise: no digest says that a source has ended
    again = store.load_tables("shop", known)
    assert known.sources["orders"].table.sealed_at == 1
    assert again.sources["orders"].table.sealed_at is None


WHAT = ["move", "more", "nothing", "seal", "anew", "compact", "fail", "source"]
STEPS = st.lists(st.tuples(st.sampled_from(WHAT), st.booleans()), min_size=4, max_size=14)


def each_looked_at(*steps: str) -> list[tuple[str, bool]]:
    return [(step, True) for step in steps]


@deep(80)
@given(steps=STEPS)
@example(each_looked_at("move", "more", "move", "compact", "move", "compact", "more"))
@example(each_looked_at("move", "seal", "nothing", "compact", "anew", "move", "seal", "anew", "more"))
@example(each_looked_at("move", "anew", "fail", "move", "source", "move", "nothing"))
def test_p_looking_again_shows_what_loading_everything_shows(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool]]
) -> None:
    env = Env()
    store = Store.open(f"sqlite:///{tmp_path_factory.mktemp('store')}/s.db", env=env)
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    sources = {"orders": SourceSpec({})}
    store.register(lease, sources=sources, outputs={})
    known, before, upper, frontier, published = store.load_tables("shop", None), [], 0, Frontier(), 0
    for number, (step, look) in enumerate(steps):
        match step:
            case "anew":
                store.begin_incarnation(lease, "orders", at=env.now(), reason="test")
                frontier = Frontier()
            case "compact":
                if published < upper:
                    store.publish(lease, expected=published, upper=upper, at=env.now())
                    published = upper
                store.advance_since(lease, max(published - 1, 0))
            case "fail":
                store.record_failure(lease, "orders", upper, FileGone(path="a", lower=0, upper=1))
            case "source":
                sources[f"source-{number}"] = SourceSpec({})
                store.register(lease, sources=sources, outputs={})
            case _:
                if not frontier.sealed and step != "nothing":
                    moved = {"p0": frontier["p0"] + 1} if step == "move" else {f"p{number}": 2}
                    frontier = frontier.join(Frontier(moved, sealed=step == "seal"))
                bound = {"orders": Proposal(frontier=frontier)} if step != "nothing" else {}
                store.append(lease, expected=upper, at=env.now(), proposals=bound)
                upper += 1
        if look:
            before.append((known, shown(known)))
            known = store.load_tables("shop", known)
            assert shown(known) == shown(store.load("shop"))
    assert all(shown(one) == said for one, said in before)
    lease.release()
    store.close()
