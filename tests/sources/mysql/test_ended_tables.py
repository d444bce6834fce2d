"""A table that was emptied, dropped, renamed or changed ends its own outputs by name; those of others go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.mariadb import MariaDb
from tests.mysql import of_old
from tests.sources.database import followed
from tests.sources.mysql.store import Store
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.mysqlsource import BinlogTableChanged, BinlogTableTruncated, BinlogTableUnfit
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import ORIGIN

pytestmark = pytest.mark.long


@pytest.fixture
def shop(server: MariaDb, tmp_path: Path) -> Store:
    found = Store(server, tmp_path)
    found.table("orders", "id bigint PRIMARY KEY, who text, amount int")
    found.table("users", "id int PRIMARY KEY, name text")
    found.do("INSERT INTO orders SELECT seq, CONCAT('user ', seq), 1 FROM seq_1_to_10")
    return found


def ended(shop: Store, *tables: str, **options: Any) -> dict[str, TidegaugeError]:
    """Run the flow, whose outputs of these tables end; return why each has failed."""
    return followed.ended(shop.flow(**options), *(tables or ("orders",)))


def exact(shop: Store, *tables: str) -> None:
    """These tables are the database's, and the first rows of the one that ended are as they were."""
    flow = shop.flow()
    for table in tables or ("users",):
        assert shop.held(flow, table) == shop.there(table)
    assert {row["who"] for row in shop.held(flow, "orders")} == {f"user {i}" for i in range(1, 11)}


def test_a_truncate_ends_the_outputs_of_its_table_alone(shop: Store) -> None:
    shop.catch_up()
    shop.do("INSERT INTO users VALUES (1, 'ada')")
    shop.do("TRUNCATE orders", "INSERT INTO orders VALUES (1, 'anew', 1)", "INSERT INTO users VALUES (2, 'bob')")
    assert {error.code for error in ended(shop).values()} == {BinlogTableTruncated.code}
    shop.do("INSERT INTO users VALUES (4, 'joe')", "INSERT INTO orders VALUES (2, 'anew', 1)")
    ended(shop)  # each run tries it again, from the server's log, and the others go on
    exact(shop)
    shop.do("TRUNCATE users")
    ended(shop, "orders", "users")


SWAP = [
    "CREATE TABLE _orders_new (id bigint PRIMARY KEY, amount int, who text)",
    "INSERT INTO _orders_new SELECT id, amount, 'anew' FROM orders",
    "RENAME TABLE orders TO _orders_old, _orders_new TO orders",
    "INSERT INTO orders VALUES (11, 12, 'anew')",
]
AGAIN = ["DROP TABLE orders", "CREATE TABLE orders (id bigint PRIMARY KEY, who text, amount int)"]
BACK = ["RENAME TABLE orders TO other", "INSERT INTO other VALUES (11, 'x', 1)", "RENAME TABLE other TO orders"]
CHANGES = {
    "dropped": ["DROP TABLE orders"],
    "dropped among others": ["CREATE TABLE more (id int)", "DROP TABLE IF EXISTS more, orders"],
    "again": [*AGAIN, "INSERT INTO orders VALUES (11, 'x', 1)"],
    "renamed": ["ALTER TABLE orders RENAME TO other"],
    "back": BACK,
    "swapped": SWAP,
    "column": ["ALTER TABLE orders DROP COLUMN who", "INSERT INTO orders VALUES (11, 1)"],
    "type": ["ALTER TABLE orders MODIFY who varchar(3)", "INSERT INTO orders VALUES (11, 'x', 1)"],
}


@pytest.mark.parametrize("statements", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("running", [False, True], ids=["away", "running"])
def test_a_table_that_is_another_one_ends_its_outputs_alone(
    shop: Store, statements: Sequence[str], running: bool
) -> None:
    flow = shop.catch_up()
    if running:
        run = flow.start(engine=tg.LocalEngine(threads=2))
        change(shop, statements)
        eventually(lambda: "failed" in {one.state for one in run.status.outputs if one.name == "orders_log"})
        eventually(lambda: len(shop.held(flow, "users")) == 1)
        run.stop()
        with pytest.raises(BinlogTableChanged):
            run.wait()
    else:
        change(shop, statements)
    found = ended(shop)["orders"]
    assert (found.code, " is: " in str(found)) == (BinlogTableChanged.code, True), found
    exact(shop)


def change(shop: Store, statements: Sequence[str]) -> None:
    for statement in statements:
        shop.do(statement)
    shop.do("INSERT INTO users VALUES (1, 'ada')")


def anew(shop: Store) -> tg.Dataflow:
    """The flow, where the outputs of `orders` were dropped and another one takes the table from now on."""
    tables = ["orders", "users"]
    shop.tables.pop("orders", None)
    flow = shop.flow(tables=tables)
    db = tg.RowStream(flow, "db", "orders")
    flow.sink("orders_now", db.changelog("op"), tg.ParquetSink(str(shop.root / "orders_now")), start="now")
    return flow


def test_once_its_outputs_are_dropped_a_table_goes_on_for_new_ones(mariadb: MariaDb, tmp_path: Path) -> None:
    shop = prepared(mariadb, tmp_path)
    shop.catch_up()
    change(shop, SWAP)
    ended(shop)
    drop(shop)
    shop.do("INSERT INTO orders VALUES (12, 12, 'before')", "INSERT INTO users VALUES (2, 'bob')")
    run(anew(shop))
    shop.do("INSERT INTO orders VALUES (13, 12, 'new')")
    flow = run(anew(shop))
    rows = [(row["id"], row["who"], row["amount"]) for row in tg.read_arrow(flow, "orders_now").to_pylist()]
    assert rows == [(12, "before", 12), (13, "new", 12)]


@of_old
def test_where_the_log_names_no_columns_those_of_another_table_are_not_taken_for_the_first_one_s(
    mysql: MariaDb, tmp_path: Path
) -> None:
    shop = prepared(mysql, tmp_path, "id bigint PRIMARY KEY, who int, amount int")
    shop.catch_up()
    change(shop, SWAP)
    ended(shop)
    drop(shop)
    shop.do("INSERT INTO users VALUES (2, 'bob')")
    run(anew(shop))  # begins behind the swap
    shop.do("INSERT INTO orders VALUES (13, 12, 'new')", "INSERT INTO users VALUES (3, 'eve')")
    with pytest.raises(BinlogTableChanged, match="is: RENAME TABLE"):
        run(anew(shop))
    flow = anew(shop)
    assert tg.read_arrow(flow, "orders_now").num_rows == 0
    assert shop.held(flow, "users") == shop.there("users")


def prepared(server: MariaDb, root: Path, orders: str = "id bigint PRIMARY KEY, who text, amount int") -> Store:
    found = Store(server, root)
    found.table("orders", orders)
    found.table("users", "id int PRIMARY KEY, name text")
    return found


def drop(shop: Store) -> None:
    flow = shop.flow(tables=["orders", "users"])
    for name in ("orders", "orders_log"):
        tg.drop(flow, name)


def run(flow: tg.Dataflow) -> tg.Dataflow:
    flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))
    return flow


@pytest.mark.parametrize("gone", ["DROP TABLE orders", "ALTER TABLE orders DROP COLUMN who"])
def test_a_table_that_is_gone_before_the_first_rows_are_read_ends_alone(shop: Store, gone: str) -> None:
    shop.flow()
    shop.do(gone, "INSERT INTO users VALUES (1, 'ada')")
    assert {error.code for error in ended(shop).values()} == {BinlogTableChanged.code}
    shop.do("INSERT INTO users VALUES (2, 'bob')")
    ended(shop)
    assert shop.held(shop.flow(), "users") == shop.there("users")


UNSEEN = {
    "dropped": (["DROP TABLE orders"], "it was dropped"),
    "column": (["ALTER TABLE orders DROP COLUMN who"], "it has no column 'who'"),
    "engine": (["ALTER TABLE orders ENGINE = MyISAM"], "its engine is MyISAM"),
}


@pytest.mark.parametrize(("statements", "why"), UNSEEN.values(), ids=UNSEEN)
def test_a_table_that_the_catalog_alone_knows_to_be_another_one_ends_alone(
    shop: Store, statements: Sequence[str], why: str
) -> None:
    shop.catch_up()
    shop.do("SET sql_log_bin = 0", *statements, "SET sql_log_bin = 1", "INSERT INTO users VALUES (1, 'ada')")
    assert why in str(ended(shop)["orders"])
    shop.do("INSERT INTO users VALUES (2, 'bob')")
    ended(shop)
    exact(shop)


def test_a_table_that_the_user_may_not_read_for_a_while_does_not_end(server: MariaDb, tmp_path: Path) -> None:
    server.do("CREATE USER kim", f"GRANT {server.rights} ON *.* TO kim")
    shop = Store(server, tmp_path, user="kim")
    for name in ("orders", "users"):
        shop.table(name, "id int PRIMARY KEY, who text")
        server.do(f"GRANT SELECT ON {shop.name}.{name} TO kim")
    try:
        shop.catch_up()
        server.do(f"REVOKE SELECT ON {shop.name}.orders FROM kim")
        shop.do("INSERT INTO orders VALUES (1, 'ada')")
        with pytest.raises(BinlogTableUnfit, match=r"the user may not read it"):
            shop.source().placed("store", "db").connect(ORIGIN, Bound())
        server.do(f"GRANT SELECT ON {shop.name}.orders TO kim")
        assert shop.held(shop.catch_up(), "orders") == shop.there("orders")
    finally:
        server.do("DROP USER kim")
