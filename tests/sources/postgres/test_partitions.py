"""Partitioned tables that are followed through their root: every row, and what the server's log does not tell of."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres import Server, query
from tests.sources.database import followed
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_later_tables import waiting_for_locks
from tests.sources.postgres.test_refusals import received, released
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.postgressource import (
    PublicationUnfit,
    ReplicaIdentityMissing,
    RightMissing,
    SourceTableTruncated,
    TableChanged,
    TableUnfit,
)
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import ORIGIN
from tidegauge.sources.protocol import BadRecord


def partitioned(shop: Shop, name: str, key: str = "PRIMARY KEY (id, day)") -> None:
    """A table by day, of which one partition has its columns in another order, and one has partitions of its own."""
    shop.do(
        f"CREATE TABLE {name} (id bigint NOT NULL, day int NOT NULL, who text, gone int) PARTITION BY RANGE (day)",
        f"ALTER TABLE {name} DROP COLUMN gone",
        *([f"ALTER TABLE {name} ADD {key}"] if key else []),
        f"CREATE TABLE {name}_1 PARTITION OF {name} FOR VALUES FROM (0) TO (10)",
        f"CREATE TABLE {name}_2 (who text, old int, day int NOT NULL, id bigint NOT NULL)",
        f"ALTER TABLE {name}_2 DROP COLUMN old",
        f"ALTER TABLE {name} ATTACH PARTITION {name}_2 FOR VALUES FROM (10) TO (20)",
        f"CREATE TABLE {name}_3 PARTITION OF {name} FOR VALUES FROM (20) TO (30) PARTITION BY HASH (id)",
        f"CREATE TABLE {name}_3a PARTITION OF {name}_3 FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
        f"CREATE TABLE {name}_3b PARTITION OF {name}_3 FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        f"INSERT INTO {name} SELECT i, i % 30, 'user ' || i FROM generate_series(1, 300) i",
    )
    shop.tables[name] = "id"


def publish(shop: Shop) -> None:
    shop.do(f"CREATE PUBLICATION shop FOR TABLE {', '.join(shop.tables)} WITH (publish_via_partition_root = true)")


@pytest.fixture
def shop(logical: Server, tmp_path: Path) -> Shop:
    """Orders, which are partitioned, and users, which are not."""
    found = Shop(logical, tmp_path)
    partitioned(found, "orders")
    found.table("users", "id int PRIMARY KEY, name text")
    publish(found)
    return found


@pytest.fixture
def shops(logical: Server, tmp_path: Path) -> Shop:
    """A shop without tables."""
    return Shop(logical, tmp_path)


def declared(shop: Shop, *tables: str) -> Any:
    """The columns of a source with these tables, which looks them up."""
    folder = tempfile.mkdtemp(dir=shop.root)
    return shop.source(tables=list(tables), folder=folder).placed("shop", "db").streams


def same(shop: Shop, **options: Any) -> tg.Dataflow:
    """Catch up, and compare all tables with the database."""
    flow = shop.catch_up(**options)
    for table in shop.tables:
        assert not differences(shop, flow, table)
    return flow


def differences(shop: Shop, flow: tg.Dataflow, table: str) -> list[Any]:
    """Some rows that the table and the database do not both have."""
    kept, there = ({tuple(row.values()) for row in rows} for rows in (shop.held(flow, table), shop.there(table)))
    return sorted(kept ^ there, key=repr)[:5]


def all_ended(shop: Shop, *tables: str, **options: Any) -> dict[str, str]:
    """Run the flow, of which these tables end and no others; return why."""
    shop.do("INSERT INTO users SELECT count(*), 'one more' FROM users")
    flow = shop.flow(**options)
    found = followed.ended(flow, *tables)
    assert shop.held(flow, "users") == shop.there("users")
    assert {error.code for error in found.values()} == {TableChanged.code}
    return {table: str(found[table]) for table in tables}


def ended(shop: Shop, **options: Any) -> str:
    return all_ended(shop, "orders", **options)["orders"]


def test_a_partitioned_table_has_the_rows_of_all_its_partitions_and_every_change(shop: Shop) -> None:
    flow = same(shop)
    assert len(shop.log(flow, "orders")) == 300
    shop.do(
        "INSERT INTO orders SELECT i, i % 30, 'new ' || i FROM generate_series(301, 400) i",
        "UPDATE orders SET who = 'other' WHERE id % 7 = 0",
        "UPDATE orders SET day = (day + 11) % 30 WHERE id % 5 = 0",
        "DELETE FROM orders WHERE id % 11 = 0",
    )
    flow = same(shop)
    moved = [row["op"] for row in shop.log(flow, "orders") if row["id"] == 5]
    assert moved == ["insert", "delete", "insert"]


NEW = {
    "created": ["CREATE TABLE {0}_4 PARTITION OF {0} FOR VALUES FROM (30) TO (40)"],
    "attached": [
        "CREATE TABLE {0}_4 (LIKE {0} INCLUDING ALL)",
        "ALTER TABLE {0} ATTACH PARTITION {0}_4 FOR VALUES FROM (30) TO (40)",
    ],
    "level": [
        "CREATE TABLE {0}_4 PARTITION OF {0} FOR VALUES FROM (30) TO (40) PARTITION BY LIST (id)",
        "CREATE TABLE {0}_4a PARTITION OF {0}_4 DEFAULT",
    ],
}


def done(shop: Shop, table: str, statements: Sequence[str], *, at_once: bool) -> None:
    """Run statements for a table, in one transaction or each in its own."""
    made = [one.format(table) for one in statements]
    for some in [made] if at_once else [[one] for one in made]:
        shop.do(*some)


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
def test_a_new_partition_that_was_empty_goes_on_with_its_rows(shops: Shop, at_once: bool) -> None:
    for table in NEW:
        partitioned(shops, table)
    publish(shops)
    shops.catch_up()
    rows = "INSERT INTO {0} SELECT i, 30 + i % 10, 'late' FROM generate_series(1000, 1100) i"
    for table, made in NEW.items():
        done(shops, table, [*made, rows, "UPDATE {0} SET who = 'x' WHERE id = 1001"], at_once=at_once)
    same(shops)
    for table in NEW:
        shops.do(f"DELETE FROM {table} WHERE id = 1003")
    same(shops)


LOADED = [
    "CREATE TABLE {0}_4 (LIKE {0} INCLUDING ALL)",
    "INSERT INTO {0}_4 SELECT i, 30, 'unseen' FROM generate_series(1000, 1100) i",
    "ALTER TABLE {0} ATTACH PARTITION {0}_4 FOR VALUES FROM (30) TO (40)",
]
LEVEL = [
    "CREATE TABLE {0}_4 (LIKE {0} INCLUDING ALL) PARTITION BY LIST (id)",
    "CREATE TABLE {0}_4a PARTITION OF {0}_4 DEFAULT",
    "INSERT INTO {0}_4 SELECT i, 30, 'unseen' FROM generate_series(1000, 1100) i",
    "ALTER TABLE {0} ATTACH PARTITION {0}_4 FOR VALUES FROM (30) TO (40)",
]
UNSEEN = {
    "loaded": (LOADED, "_4 was attached with rows"),
    "level": (LEVEL, "_4a was attached with rows"),
    "back": (
        [
            "ALTER TABLE {0} DETACH PARTITION {0}_2",
            "ALTER TABLE {0} ATTACH PARTITION {0}_2 FOR VALUES FROM (10) TO (20)",
        ],
        "_2 was detached, and attached again",
    ),
}
GONE = {
    "dropped": (["DROP TABLE {0}_1"], "_1 was dropped or detached"),
    "detached": (["ALTER TABLE {0} DETACH PARTITION {0}_2"], "_2 was dropped or detached"),
    "no_level": (["DROP TABLE {0}_3"], "_3a was dropped or detached"),
    "emptied": (["TRUNCATE {0}_1"], "_1 was emptied"),
    "refilled": (
        ["TRUNCATE {0}_1", "INSERT INTO {0} SELECT i, 1, 'new' FROM generate_series(2000, 2100) i"],
        "_1 was emptied",
    ),
}


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
def test_rows_that_come_or_go_without_a_word_in_the_log_end_their_table_alone(shops: Shop, at_once: bool) -> None:
    shops.table("users", "id int PRIMARY KEY, name text")
    changes = {**UNSEEN, **GONE}
    for table in changes:
        partitioned(shops, table)
    publish(shops)
    shops.catch_up()
    for table, (statements, _) in changes.items():
        done(shops, table, statements, at_once=at_once)
    for _ in range(2):  # each run says it again
        why = all_ended(shops, *changes)
        for table, (_, said) in changes.items():
            assert f"partition public.{table}{said}" in why[table]
    before = {table: {row["id"] for row in shops.there(table)} for table in GONE}
    for table in GONE:
        shops.do(f"DELETE FROM {table} WHERE id = 45", f"UPDATE {table} SET who = 'behind' WHERE id = 46")
    # As a history, those whose partitions took rows along go on.
    flow = shops.flow(keep_dropped_partitions=True)
    followed.ended(flow, *UNSEEN)
    for table in GONE:
        there = {row["id"]: row for row in shops.there(table)}
        kept = {row["id"]: row for row in shops.held(flow, table)}
        assert {number: kept[number] for number in there} == there
        assert kept.keys() - there.keys() == set(range(1, 301)) - before[table]


def test_it_is_noticed_while_the_flow_runs(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegauge.sources.postgres.subscription._LOOKS", 0.1)
    flow = shop.catch_up()
    run = flow.start(engine=tg.LocalEngine(threads=2))
    for number in range(4, 7):
        shop.do(
            f"CREATE TABLE orders_{number} PARTITION OF orders FOR VALUES FROM ({number}0) TO ({number + 1}0)",
            f"INSERT INTO orders VALUES ({number}000, {number}0, 'new')",
        )
        eventually(lambda: shop.held(flow, "orders") == shop.there("orders"))
    shop.do("TRUNCATE orders_5")
    eventually(lambda: "failed" in {one.state for one in run.status.outputs if one.name == "orders_log"})
    shop.do("INSERT INTO users VALUES (1, 'ada')")
    eventually(lambda: shop.held(flow, "users") == shop.there("users"))
    run.stop()
    with pytest.raises(TableChanged, match="orders_5 was emptied"):
        run.wait()


def test_a_partition_whose_rows_are_only_written_anew_goes_on(shop: Shop) -> None:
    shop.do("CREATE TABLE orders_4 PARTITION OF orders FOR VALUES FROM (30) TO (40)")
    shop.catch_up()
    query(shop.address, "VACUUM FULL orders_1")
    shop.do("INSERT INTO orders VALUES (600, 31, 'new')")
    same(shop)
    shop.do("UPDATE orders SET who = 'new' WHERE day < 10 AND id > 30")
    query(shop.address, "VACUUM FULL orders_1")
    same(shop)


def test_a_partition_that_was_filled_and_emptied_before_anybody_looked_ends_the_table(shops: Shop) -> None:
    shops.table("users", "id int PRIMARY KEY, name text")
    for table in ("known", "young"):
        partitioned(shops, table)
    publish(shops)
    shops.do("CREATE TABLE known_4 PARTITION OF known FOR VALUES FROM (30) TO (40)")
    shops.catch_up()
    shops.do("CREATE TABLE young_4 PARTITION OF young FOR VALUES FROM (30) TO (40)")
    for table in ("known", "young"):
        shops.do(f"INSERT INTO {table} SELECT i, 30, 'gone' FROM generate_series(2000, 2100) i")
        shops.do(f"TRUNCATE {table}_4")
    for table, why in all_ended(shops, "known", "young").items():
        assert f"partition public.{table}_4 was emptied" in why


def test_a_partition_that_somebody_has_locked_holds_up_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegauge.sources.postgres.subscription._LOOKS", 0.1)
    monkeypatch.setattr("tidegauge.sources.postgres.sessions._LOCKED", 0.2)
    shop.catch_up()
    flow = shop.flow()
    with flow.start(engine=tg.LocalEngine(threads=2)) as run, psycopg.connect(shop.address) as other:
        shop.do("INSERT INTO users VALUES (0, 'eve')")
        eventually(lambda: len(shop.held(flow, "users")) == 1)
        other.execute("LOCK TABLE orders_1 IN ACCESS EXCLUSIVE MODE")
        for number in range(1, 4):
            shop.do(f"UPDATE orders_2 SET who = 'turn {number}'", f"INSERT INTO users VALUES ({number}, 'eve')")
            eventually(lambda: waiting_for_locks(shop) == 1)
            eventually(lambda: len(shop.held(flow, "users")) == number + 1)  # noqa: B023
            assert run.status.sources[0].state == "running"
        other.execute("UPDATE orders_1 SET who = 'locked'")
        other.commit()
        eventually(lambda: shop.held(flow, "orders") == shop.there("orders"))


def test_a_partition_followed_by_itself_ends_if_it_was_out_of_the_table_that_is_published(shops: Shop) -> None:
    partitioned(shops, "orders")
    shops.do("CREATE PUBLICATION shop FOR TABLE orders, orders_2")
    shops.tables = {"orders_1": "id", "orders_2": "id", "orders_3a": "id"}
    same(shops)
    shops.do("UPDATE orders SET day = day + 10 WHERE day < 10 AND id < 100")
    same(shops)
    for part, bounds in {"orders_1": "(0) TO (10)", "orders_2": "(10) TO (20)", "orders_3": "(20) TO (30)"}.items():
        shops.do(f"ALTER TABLE orders DETACH PARTITION {part}")
        shops.do(f"UPDATE {part} SET who = 'unseen' WHERE id % 7 = 0")
        shops.do(f"ALTER TABLE orders ATTACH PARTITION {part} FOR VALUES FROM {bounds}")
    for _ in range(2):
        why = followed.ended(shops.flow(), "orders_1", "orders_3a")
        assert all("was taken out of the publication, and put back" in str(error) for error in why.values())
    assert shops.held(shops.flow(), "orders_2") == shops.there("orders_2")  # it is in the publication by itself


def test_a_truncate_of_the_root_ends_the_table(shop: Shop) -> None:
    shop.catch_up()
    shop.do("TRUNCATE orders")
    assert {one.code for one in followed.ended(shop.flow(), "orders").values()} == {SourceTableTruncated.code}


def test_what_cannot_be_followed_is_named(shop: Shop, logical: Server) -> None:
    with pytest.raises(TableUnfit, match=r"in the name of public\.orders") as raised:
        declared(shop, "orders_1")
    assert "name public.orders" in str(raised.value)
    with pytest.raises(TableUnfit, match=r"in the name of public\.orders"):
        declared(shop, "orders_3")
    shop.do("ALTER PUBLICATION shop SET (publish_via_partition_root = false)")
    with pytest.raises(PublicationUnfit, match="in the names of its partitions") as unfit:
        declared(shop, "orders")
    assert 'ALTER PUBLICATION "shop" SET (publish_via_partition_root = true)' in str(unfit.value)
    assert declared(shop, "orders_1").keys() == {"orders_1"}
    shop.do("ALTER PUBLICATION shop SET (publish_via_partition_root = true)")
    shop.do("ALTER TABLE orders REPLICA IDENTITY FULL")
    with pytest.raises(ReplicaIdentityMissing, match=r"ALTER TABLE public\.orders_1 REPLICA IDENTITY FULL"):
        declared(shop, "orders")
    shop.do(*(f"ALTER TABLE orders_{one} REPLICA IDENTITY FULL" for one in ("1", "2", "3a", "3b")))
    assert declared(shop, "orders")["orders"].names[:3] == ["id", "day", "who"]
    role = f"reader_{shop.name}"
    logical.query(f"CREATE ROLE {role} LOGIN REPLICATION")
    shop.do(f"GRANT SELECT ON orders, orders_1, orders_2, orders_3b TO {role}")
    shop.dsn = logical.address(shop.name, user=role)
    with pytest.raises(RightMissing, match=r"cannot read public\.orders_3a"):
        declared(shop, "orders")


def test_a_foreign_partition_is_refused_and_one_that_comes_later_ends_the_table(shops: Shop) -> None:
    partitioned(shops, "orders", key="")
    shops.table("users", "id int PRIMARY KEY, name text")
    publish(shops)
    shops.do(*FULL, "CREATE EXTENSION file_fdw", "CREATE SERVER files FOREIGN DATA WRAPPER file_fdw")
    same(shops)
    shops.do(
        "CREATE FOREIGN TABLE away PARTITION OF orders FOR VALUES FROM (90) TO (99) SERVER files "
        "OPTIONS (filename '/dev/null')"
    )
    assert "public.away is a foreign table" in ended(shops)
    with pytest.raises(TableUnfit, match=r"public\.away is a foreign table"):
        declared(shops, "orders")


FULL = [f"ALTER TABLE orders{one} REPLICA IDENTITY FULL" for one in ("", "_1", "_2", "_3", "_3a", "_3b")]


def test_a_partition_with_less_of_an_identity_ends_the_table_before_a_row_is_wrong(shop: Shop) -> None:
    shop.do(*FULL)
    same(shop)
    shop.do("CREATE TABLE orders_4 PARTITION OF orders FOR VALUES FROM (30) TO (40)")
    shop.do("INSERT INTO orders VALUES (1000, 30, 'new'), (1001, 30, 'new')")
    with pytest.raises(ReplicaIdentityMissing, match="orders_4"):
        declared(shop, "orders")
    shop.do("ALTER TABLE orders_4 REPLICA IDENTITY FULL")
    shop.do("UPDATE orders SET who = 'other' WHERE id = 1000")
    same(shop)  # nothing but INSERTs came before
    shop.do("ALTER TABLE orders_4 REPLICA IDENTITY DEFAULT")
    shop.do("DELETE FROM orders WHERE id = 1000")
    shop.do("ALTER TABLE orders_4 REPLICA IDENTITY FULL")
    assert "its partition public.orders_4 has no column 'who' at" in ended(shop)


def test_partitions_whose_identity_has_more_than_the_root_s_go_on(shop: Shop) -> None:
    shop.do("ALTER TABLE orders_1 REPLICA IDENTITY FULL")
    shop.catch_up()
    shop.do("UPDATE orders SET who = 'other' WHERE id % 3 = 0", "DELETE FROM orders WHERE id % 7 = 0")
    same(shop)


def test_a_table_that_nobody_follows_is_no_partition_of_one_whose_changes_were_given_before(shops: Shop) -> None:
    """The server is told a while after an epoch is bound, and sends from there."""
    shops.table("orders", "id int PRIMARY KEY, who text")
    shops.table("notes", "n int PRIMARY KEY")
    shops.publish()
    source = shops.source(tables=["orders"]).placed("shop", "db")
    subscription = source.connect(ORIGIN, Bound())
    bound = Bound(identity=subscription.identity)
    start = received(subscription, lambda found: bool(found.frontier)).frontier
    shops.do("INSERT INTO orders VALUES (1, 'ada')", "INSERT INTO notes VALUES (1)")
    start = received(subscription, lambda found: found.frontier != start).frontier
    subscription.close()
    released(shops)
    subscription = source.connect(start, replace(bound, frontier=start))
    shops.do("INSERT INTO orders VALUES (2, 'bob')", "UPDATE orders SET who = 'eve' WHERE id = 2")
    [(_, batch)] = received(subscription, lambda found: bool(found.rows)).batches
    subscription.close()
    bad: list[BadRecord] = []
    assert source.decode("orders", batch, bad.append)["_op"].to_pylist() == ["insert", "update"]
    assert not bad
