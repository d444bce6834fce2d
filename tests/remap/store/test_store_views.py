"""The views say what the tables of the flow say, on both kinds of store, and cost what their answers do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from tests.remap.store.raw import sql

from tidegauge.env import Env
from tidegauge.errors.store import NotAStore
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Lease, LeaseHolder, SourceSpec, Store
from tidegauge.remap.store.opening import VIEWS

Bind = Callable[[int, dict[str, int]], int]
AT = "2026-11-20T17:00:00.000000Z"


def begin_again(url: str, source: str, *, number: int, epoch: int) -> None:
    [(known,)] = sql(url, f"SELECT min(id) FROM sources WHERE name = '{source}'")
    sql(url, f"INSERT INTO incarnations VALUES ({known}, {number}, {epoch}, NULL, '{AT}', 'recreated')")


@pytest.fixture
def bound(bind: Bind, store: Store, lease: Lease, clock: Callable[[], datetime], url: str) -> Store:
    """Two lives of `orders`, five epochs, three of them published; `clicks` has ended. Another flow beside it."""
    bind(0, {"p0": 5})
    bind(1, {"p0": 5, "p'1": 2})
    bind(2, {"p0": 9, "p'1": 2})
    store.begin_incarnation(lease, "orders", at=clock(), reason="recreated")
    ended = Proposal(frontier=Frontier({"c": 3}, sealed=True))
    anew = Proposal(frontier=Frontier({"p0": 1}))
    store.append(lease, expected=3, at=clock(), proposals={"clicks": ended, "orders": anew})
    bind(4, {"p0": 4})
    bind(5, {"p0": 7})
    store.publish(lease, expected=0, upper=5, at=clock())
    other = store.acquire("other", holder=LeaseHolder.current(Env()))
    store.register(other, sources={"orders": SourceSpec({})}, outputs={})
    again = {"orders": Proposal(frontier=Frontier({"p0": 100}))}
    store.append(other, expected=0, at=clock(), proposals=again)
    return store


def test_the_bindings_are_the_ranges_of_every_life_of_a_source(bound: Store, url: str) -> None:
    seen = sql(
        url,
        "SELECT source, incarnation, epoch, partition, lower, position FROM bindings WHERE flow = 'shop' "
        "ORDER BY epoch, source, partition",
    )
    assert seen == [
        ("orders", 0, 0, "p0", 0, 5),
        ("orders", 0, 1, "p'1", 0, 2),
        ("orders", 0, 2, "p0", 5, 9),
        ("clicks", 0, 3, "c", 0, 3),
        ("orders", 1, 3, "p0", 0, 1),
        ("orders", 1, 4, "p0", 1, 4),
        ("orders", 1, 5, "p0", 4, 7),
    ]
    columns = ("source", "epoch", "partition", "lower", "position")
    told = bound.bindings("shop").to_pylist()
    assert [tuple(row[name] for name in columns) for row in told] == [
        (s, e, p, lo, up) for s, _, e, p, lo, up in seen
    ]
    now = [(s.epoch, s.partition, s.lower, s.upper) for s in bound.load("shop").sources["orders"].table.slices(0, 6)]
    assert now == [row[2:] for row in seen if row[:2] == ("orders", 1)]


def test_progress_is_where_the_present_life_of_each_partition_stands(bound: Store, url: str) -> None:
    seen = sql(
        url,
        "SELECT flow, source, incarnation, partition, position, epoch, published_position, sealed FROM progress "
        "ORDER BY flow DESC, source",
    )
    assert seen == [
        ("shop", "clicks", 0, "c", 3, 3, 3, True),
        ("shop", "orders", 1, "p0", 7, 5, 4, False),
        ("other", "orders", 0, "p0", 100, 0, 0, False),
    ]
    assert bound.load("shop").sources["orders"].table.frontier == Frontier({"p0": 7})


def test_epochs_say_whether_they_are_published(bound: Store, url: str) -> None:
    seen = sql(url, "SELECT epoch, minted_at, published_at, published FROM epochs WHERE flow = 'shop' ORDER BY epoch")
    assert seen == [(epoch, AT, AT if epoch < 5 else None, epoch < 5) for epoch in range(6)]
    assert sql(url, "SELECT epoch FROM epochs WHERE flow = 'shop' AND NOT published") == [(5,)]
    assert len(bound.epochs("shop")) == 6


def test_two_lives_that_begin_at_one_epoch_are_the_later_one(bound: Store, url: str) -> None:
    begin_again(url, "orders", number=2, epoch=3)
    lives = "SELECT DISTINCT incarnation FROM bindings WHERE flow = 'shop' AND source = 'orders' ORDER BY incarnation"
    assert sql(url, lives) == [(0,), (2,)]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO bindings (source_id, epoch, partition_id, position) VALUES (1, 6, 1, 99)",
        f"INSERT INTO epochs (flow_id, epoch, minted_at, write_id) VALUES (1, 6, '{AT}', 'x')",
        f"UPDATE epochs SET published_at = '{AT}'",
    ],
)
def test_what_a_driver_of_an_older_version_would_write_is_refused(bound: Store, url: str, statement: str) -> None:
    assert bound.url
    before = sql(url, "SELECT count(*), max(epoch) FROM changes")
    with pytest.raises(Exception, match=r"view|does not exist"):
        sql(url, statement)
    assert sql(url, "SELECT count(*), max(epoch) FROM changes") == before


OF_SHOP = "flow = 'shop' AND source = 'orders'"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM epochs WHERE flow = 'shop' AND epoch = 7",
        f"SELECT * FROM epochs WHERE flow = 'shop' AND minted_at <= '{AT}' ORDER BY minted_at DESC LIMIT 1",
        "SELECT * FROM bindings WHERE flow = 'shop' AND epoch = 7",
        f"SELECT * FROM bindings WHERE {OF_SHOP} AND epoch BETWEEN 7 AND 9",
        f"SELECT * FROM bindings WHERE {OF_SHOP} AND partition = 'p0' AND lower <= 3 AND position > 3",
        f"SELECT * FROM progress WHERE {OF_SHOP} AND partition = 'p0'",
        "SELECT * FROM progress WHERE flow = 'shop'",
    ],
)
def test_a_view_is_looked_up_in_the_indexes_of_what_is_asked_for(tmp_path: Path, query: str) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    Store.open(url, env=Env()).close()
    plan = [step for *_, step in sql(url, f"EXPLAIN QUERY PLAN {query}")]
    assert not [step for step in plan if step.startswith("SCAN")]
    [changes] = [step for step in plan if step.startswith("SEARCH c ")] or [""]
    asked = "partition_id=?" if "partition = 'p0'" in query else "epoch"
    assert "FROM epochs" in query or asked in changes


def test_someone_else_s_view_of_one_of_our_names_is_in_the_way_and_stays(url: str, env: Env) -> None:
    sql(url, "CREATE TABLE mine (id INTEGER)")
    sql(url, "CREATE VIEW gaps AS SELECT id FROM mine")
    with pytest.raises(NotAStore, match="gaps"):
        Store.open(url, env=env)
    assert sql(url, "SELECT * FROM gaps") == []
    assert set(VIEWS) == {"epochs", "bindings", "progress", "gaps"}
