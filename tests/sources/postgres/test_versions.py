"""What holds on one version of PostgreSQL holds on each that is followed: a cross-section of the other tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.postgres import LOGICAL, Server
from tests.postgres_versions import VERSIONS, fetched
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_cut_off import ROWS, checked, cut_off, large_shop, refuse
from tests.sources.postgres.test_ended_tables import ended
from tests.sources.postgres.test_later_tables import play
from tests.sources.postgres.test_refusals import connected, first, received, released
from tests.sources.postgres.test_rows import same_from_both
from tests.waiting import eventually

from tidegauge.errors.postgressource import ServerUnfit, SlotLost, TableChanged
from tidegauge.sources.postgres.ranges import PageRange, conditions
from tidegauge.sources.postgres.versions import spoken

INSTALL = "the tests on other versions of PostgreSQL need their programs, for Linux on x86-64: make postgres-versions"


@pytest.fixture(params=VERSIONS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each version, of the test's own."""
    programs = fetched(request.param)
    if programs is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(INSTALL)
    made = Server(programs, settings=LOGICAL)
    try:
        assert made.query("SHOW server_version")[0][0].startswith(str(request.param))
        yield made
    finally:
        made.stop()


@pytest.mark.long
def test_rows_of_each_type_first_rows_that_were_cut_off_and_ends_of_tables(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_from_both(Shop(server, tmp_path / "types"))
    shop = large_shop(server, tmp_path / "shop", monkeypatch)
    cut_off(shop)
    shop.do(
        "UPDATE orders SET who = 'new' WHERE id % 1000 = 0",
        "DELETE FROM orders WHERE id % 1000 = 1",
        "UPDATE orders SET id = id + 1000000 WHERE id % 1000 = 2",
        "INSERT INTO orders SELECT i, 'late' FROM generate_series(500001, 500100) i",
    )
    assert len(checked(shop)) == ROWS - 60 + 100
    shop.do("ALTER TABLE orders RENAME who TO whom")
    shop.do("UPDATE orders SET n = 1 WHERE id = 3", "UPDATE users SET who = 'ada' WHERE id = 3")
    assert {error.code for error in ended(shop).values()} == {TableChanged.code}
    assert shop.held(shop.flow(), "users") == shop.there("users")


@pytest.mark.long
def test_a_table_that_is_added_while_drivers_and_servers_are_killed(server: Server, tmp_path: Path) -> None:
    play(server, tmp_path, 1, 2)


ZOO = [
    "CREATE SCHEMA other",
    "CREATE TABLE plain (id int PRIMARY KEY, n int, made int GENERATED ALWAYS AS (n * 2) STORED)",
    "CREATE TABLE other.there (id int PRIMARY KEY)",
    "CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY)",
    "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE middle PARTITION OF root FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
    "CREATE TABLE leaf PARTITION OF middle FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE other.leaf PARTITION OF root FOR VALUES FROM (10) TO (20)",
    *(
        f"CREATE PUBLICATION p{number}_{root} FOR {what} WITH (publish_via_partition_root = {root})"
        for root in ("true", "false")
        for number, what in enumerate(
            [
                "ALL TABLES",
                "TABLE plain, root",
                "TABLE root, leaf",
                "TABLE middle, other.leaf",
                "TABLE leaf",
                "TABLES IN SCHEMA other",
                "TABLES IN SCHEMA public",
                "TABLES IN SCHEMA other, TABLE other.there WHERE (id > 1), plain",
            ]
        )
    ),
    "CREATE PUBLICATION p8 FOR TABLE plain WHERE (id > 1), other.there (id)",
    "CREATE PUBLICATION p9",
]


@pytest.mark.parametrize("server", [one for one in VERSIONS if one >= 16], indirect=True)
@pytest.mark.long
def test_the_tables_of_a_publication_are_those_of_the_server_s_own_view_and_no_lock_is_waited_for(
    server: Server, tmp_path: Path
) -> None:
    shop = Shop(server, tmp_path)
    shop.do(*ZOO)
    if server.query("SHOW server_version_num")[0][0] >= "180000":
        shop.do("ALTER PUBLICATION p0_true SET (publish_generated_columns = stored)")
        shop.do("CREATE PUBLICATION p10 FOR TABLE plain (id, made)")
    columns = "pubname, schemaname, tablename, attnames, rowfilter IS NULL"
    query = f"SELECT {columns} FROM pg_publication_tables t WHERE schemaname <> 'pg_catalog' ORDER BY 1, 2, 3"
    known = shop.ask(query)
    assert len(known) > 30
    with psycopg.connect(shop.address) as other:
        other.execute("LOCK TABLE plain, root, other.there IN ACCESS EXCLUSIVE MODE")
        assert shop.ask(spoken(query, other.info.server_version)) == known


@pytest.mark.parametrize("server", [12, 13, 14], indirect=True)
@pytest.mark.long
def test_no_range_of_a_large_table_reads_the_whole_of_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.sources.postgres.held.RANGE_BYTES", 4 * 8192)
    shop = Shop(server, tmp_path)
    shop.table("orders", "id int, who text", full=True)
    shop.do("INSERT INTO orders SELECT i, repeat('x', i % 100) FROM generate_series(1, 20000) i")
    shop.do(
        "INSERT INTO orders SELECT i, NULL FROM generate_series(20001, 40000) i",
        "DELETE FROM orders WHERE id % 9 = 0",
    )
    shop.do("UPDATE orders SET who = 'new' WHERE id % 7 = 0")
    shop.publish()
    scans = "SELECT coalesce(seq_scan, 0) FROM pg_stat_user_tables WHERE relname = 'orders'"
    eventually(lambda: shop.ask(scans) == [(2,)])  # DELETE and UPDATE
    subscription = connected(shop)
    whole = received(subscription, lambda found: bool(found.frontier))
    subscription.close()
    released(shop)
    source = shop.source().placed("shop", "db")
    rows = [row["id"] for _, batch in whole.batches for row in source.decode("orders", batch, refuse).to_pylist()]
    assert sorted(rows) == [one for one in range(1, 40001) if one % 9]
    shop.do("CREATE TABLE later AS SELECT 1")
    told = "SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'later'"
    eventually(lambda: shop.ask(told) == [(1,)])  # so all that the readers did is told, too
    assert shop.ask(scans) == [(2,)]
    with psycopg.connect(shop.address) as other:
        found = conditions(PageRange(4, 8), 100, 0 if other.info.server_version >= 140000 else 291)
        plan = "".join(row[0] for row in other.execute(f"EXPLAIN SELECT FROM orders WHERE {' AND '.join(found)}"))
    assert "Tid" in plan
    assert "Seq" not in plan


@pytest.mark.parametrize("server", [18], indirect=True)
@pytest.mark.long
def test_generated_columns_that_are_published_are_columns_of_the_stream(server: Server, tmp_path: Path) -> None:
    shop = Shop(server, tmp_path)
    shop.table("orders", "id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED")
    shop.table("users", "id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) VIRTUAL")
    shop.publish()
    shop.do("ALTER PUBLICATION shop SET (publish_generated_columns = stored)")
    for table in shop.tables:
        shop.do(f"INSERT INTO {table} VALUES (1, 10), (2, 20)")
    shop.catch_up()
    for table in shop.tables:
        shop.do(f"UPDATE {table} SET n = 11 WHERE id = 1", f"INSERT INTO {table} VALUES (3, 30)")
    flow = shop.catch_up()
    assert [row["twice"] for row in shop.held(flow, "orders")] == [22, 40, 60]
    assert shop.held(flow, "users") == [{"id": 1, "n": 11}, {"id": 2, "n": 20}, {"id": 3, "n": 30}]


@pytest.mark.parametrize("server", [18], indirect=True)
@pytest.mark.long
def test_a_slot_that_nobody_read_for_longer_than_the_server_allows_is_a_loss(server: Server, tmp_path: Path) -> None:
    shop = Shop(server, tmp_path)
    shop.table("orders", "id int PRIMARY KEY")
    shop.publish()
    shop.catch_up()
    server.query("ALTER SYSTEM SET idle_replication_slot_timeout = '1s'")
    server.query("SELECT pg_reload_conf()")
    idle = "SELECT now() - inactive_since > interval '1.5 s' FROM pg_replication_slots"
    eventually(lambda: shop.ask(idle) == [(True,)])
    server.query("CHECKPOINT")
    with pytest.raises(SlotLost, match=r"has invalidated it .*idle_timeout"):
        shop.catch_up()


def test_a_version_that_is_too_old_is_refused(
    logical: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(logical, tmp_path)
    shop.table("orders", "id int PRIMARY KEY")
    shop.publish()
    for place in ("catalog", "checks"):
        monkeypatch.setattr(f"tidegauge.sources.postgres.{place}.OLDEST", 990000)
    with pytest.raises(ServerUnfit, match="upgrade it to version 99"):
        first(shop)
