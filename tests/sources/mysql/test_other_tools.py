"""What other tools, and rarer statements, do to a table: it goes on exactly, or ends by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from tests.mariadb import MariaDb
from tests.mysql import of_old
from tests.sources.mysql.store import Store
from tests.sources.mysql.test_ended_tables import ended

from tidegauge.errors.mysqlsource import BinlogRowsUntold, BinlogTableChanged, BinlogUnfit

pytestmark = pytest.mark.long

ORDERS = "id bigint PRIMARY KEY, who text, amount int"
PARTS = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (6), PARTITION p1 VALUES LESS THAN (MAXVALUE))"


def shop_of(server: MariaDb, root: Path, *, parts: bool = False) -> Store:
    found = Store(server, root)
    found.table("orders", ORDERS)
    if parts:
        found.do(f"ALTER TABLE orders {PARTS}")
    found.table("users", "id int PRIMARY KEY, name text")
    found.do("INSERT INTO orders SELECT seq, CONCAT('user ', seq), 1 FROM seq_1_to_10")
    return found


GH_OST = [
    "create /* gh-ost */ table _orders_gho (id bigint PRIMARY KEY, who text, amount bigint)",
    "insert /* gh-ost */ ignore into _orders_gho select * from orders lock in share mode",
    "create /* gh-ost */ table _orders_del (id int auto_increment primary key) engine=InnoDB comment='ghost'",
    "drop /* gh-ost */ table if exists _orders_del",
    "rename /* gh-ost */ table orders to _orders_del, _orders_gho to orders",
]
ENDS = {
    "gh-ost": GH_OST,
    "exchange": [
        "CREATE TABLE spare LIKE orders",
        "ALTER TABLE spare REMOVE PARTITIONING",
        "ALTER TABLE orders EXCHANGE PARTITION p0 WITH TABLE spare",
    ],
    "convert": ["ALTER TABLE orders CONVERT PARTITION p0 TO TABLE spare"],
    "key": [
        "ALTER TABLE orders DROP KEY `PRIMARY`, ADD PRIMARY KEY (id, amount)",
        "INSERT INTO orders VALUES (1, 'x', 2)",
    ],
    "truncate partition": ["ALTER TABLE orders TRUNCATE PARTITION p0"],
    "drop partition": ["ALTER TABLE orders DROP PARTITION p0"],
    "or replace": [f"CREATE OR REPLACE TABLE orders ({ORDERS})"],
    "or replace select": [
        f"CREATE OR REPLACE TABLE orders ({ORDERS}) SELECT seq AS id, 'x' AS who, 1 AS amount FROM seq_1_to_3"
    ],
    "nowait": ["ALTER TABLE orders NOWAIT MODIFY who varchar(2)"],
    "ignore": [
        "UPDATE orders SET amount = id",
        "UPDATE orders SET amount = 3 WHERE id = 4",
        "ALTER IGNORE TABLE orders DROP PARTITION p1",
    ],
    "renamed in": [
        "ALTER TABLE orders RENAME TO old",
        f"CREATE TABLE new ({ORDERS})",
        "ALTER TABLE new RENAME orders",
    ],
}


ONLY: Final = {
    "exchange": ["mysql"],
    **{name: ["mariadb"] for name in ("convert", "or replace", "or replace select", "nowait")},
}
"""Statements that one of the servers alone has. MariaDB 10.11 itself refuses to exchange a partition (1205)."""
CASES = [
    pytest.param(kind, name, marks=of_old if (kind, name) == ("mysql", "ignore") else ())
    for name in ENDS
    for kind in ONLY.get(name, ["mariadb", "mysql"])
]


@pytest.mark.parametrize(("server", "name"), CASES, indirect=["server"])
def test_rows_that_go_without_a_word_in_the_log_end_the_table_alone(
    server: MariaDb, tmp_path: Path, name: str
) -> None:
    statements = ENDS[name]
    shop = shop_of(server, tmp_path, parts="PARTITION" in "".join(statements))
    shop.catch_up()
    for statement in statements:
        shop.do(statement)
    shop.do("INSERT INTO users VALUES (1, 'ada')")
    found = ended(shop)["orders"]
    assert (found.code, " is: " in str(found)) == (BinlogTableChanged.code, True), found
    assert shop.held(shop.flow(), "users") == shop.there("users")


@pytest.mark.parametrize("server", ["mariadb", pytest.param("mysql", marks=of_old)], indirect=True)
def test_doubles_that_alter_ignore_removes_end_the_table_alone(server: MariaDb, tmp_path: Path) -> None:
    shop = shop_of(server, tmp_path)
    shop.catch_up()
    shop.do("ALTER IGNORE TABLE orders ADD UNIQUE (amount)", "INSERT INTO users VALUES (1, 'ada')")
    assert len(shop.there("orders")) == 1
    assert ended(shop)["orders"].code == BinlogTableChanged.code


def test_a_database_that_is_dropped_ends_all_of_its_tables(server: MariaDb, tmp_path: Path) -> None:
    shop = shop_of(server, tmp_path)
    shop.do("CREATE TABLE keep (id int PRIMARY KEY)")
    other = server.new_database()
    server.do(f"CREATE TABLE {other}.stock (id int PRIMARY KEY)")
    shop.tables = {"orders": "id", "users": "id"}
    tables = ["orders", "users", f"{other}.stock"]
    shop.catch_up(tables=tables)
    server.do(f"DROP DATABASE {shop.name}", f"INSERT INTO {other}.stock VALUES (1)")
    server.do(f"CREATE DATABASE {shop.name}")
    found = ended(shop, "orders", "users", tables=tables)
    assert all("is: DROP DATABASE" in str(error) for error in found.values())


PASSES = {
    "added behind": ["ALTER TABLE orders ADD COLUMN more int DEFAULT 7", "INSERT INTO orders VALUES (11, 'x', 1, 8)"],
    "added, of a type that is not followed": [
        "ALTER TABLE orders ADD COLUMN place point",
        "INSERT INTO orders VALUES (11, 'x', 1, POINT(1, 2)), (12, 'y', 2, NULL)",
    ],
    "added, of a charset that is not followed": [
        "ALTER TABLE orders ADD COLUMN t varchar(9) CHARACTER SET koi8r",
        "INSERT INTO orders VALUES (11, 'x', 1, 'a')",
    ],
    "partitions": [
        "ALTER TABLE orders REORGANIZE PARTITION p0, p1 INTO (PARTITION q VALUES LESS THAN (MAXVALUE))",
        "ALTER TABLE orders REBUILD PARTITION q",
        "DELETE FROM orders WHERE id < 3",
    ],
    "indexes": [
        "CREATE INDEX by_amount ON orders (amount)",
        "ALTER TABLE orders ADD CONSTRAINT once UNIQUE (id, amount), ALGORITHM = INPLACE, LOCK = NONE",
        "DROP INDEX by_amount ON orders",
        "UPDATE orders SET amount = 2",
    ],
    "copied": [
        "CREATE TABLE other LIKE orders",
        "INSERT INTO other SELECT id + 100, who, amount FROM orders",
        "INSERT INTO orders SELECT * FROM other",
        "REPLACE INTO orders SELECT id, 'anew', 2 FROM other",
        "INSERT INTO orders VALUES (1, 'x', 1) ON DUPLICATE KEY UPDATE who = 'double'",
        "DROP TABLE other",
    ],
    "trigger": [
        "CREATE TRIGGER t AFTER INSERT ON users FOR EACH ROW INSERT INTO orders VALUES (NEW.id + 100, NEW.name, 1)",
        "INSERT INTO users VALUES (1, 'ada'), (2, 'bob')",
    ],
    "both": ["UPDATE orders, users SET who = 'x', name = 'y' WHERE orders.id = users.id", "DELETE FROM users"],
}


@pytest.mark.parametrize("statements", PASSES.values(), ids=PASSES)
def test_what_leaves_all_rows_in_the_log_passes_exactly(
    server: MariaDb, tmp_path: Path, statements: Sequence[str]
) -> None:
    shop = shop_of(server, tmp_path, parts="PARTITION" in "".join(statements))
    shop.do("INSERT INTO users VALUES (3, 'eve'), (4, 'joe')")
    shop.catch_up()
    for statement in statements:
        shop.do(statement)
    same(shop)
    shop.do("UPDATE orders SET who = 'last' WHERE id = 5")
    same(shop)


def same(shop: Store) -> None:
    flow = shop.catch_up()
    for table in ("orders", "users"):
        held = shop.held(flow, table)
        names = [name for name, *_ in shop.ask(f"SHOW COLUMNS FROM {table}")][: len(held[0]) if held else None]
        there = [{name: row[name] for name in names} for row in shop.there(table)]
        assert held == there


def test_load_data_is_rows(server: MariaDb, tmp_path: Path) -> None:
    shop = shop_of(server, tmp_path)
    shop.catch_up()
    lines = server.folder / "data" / "lines.tsv"
    lines.write_text("".join(f"{n}\tloaded {n}\t{n}\n" for n in range(8, 3000)))
    lines.chmod(0o644)
    shop.do(f"LOAD DATA INFILE '{lines}' REPLACE INTO TABLE orders")
    flow = shop.catch_up()
    assert len(shop.held(flow, "orders")) == 2999
    assert shop.held(flow, "orders") == shop.there("orders")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO orders VALUES (11, 'unseen', 1)",
        "DELETE FROM seen WHERE id = 1",
        "LOAD DATA INFILE '{lines}' INTO TABLE orders",
        "INSERT INTO users SELECT id, who FROM orders",
        "CALL many()",
    ],
)
def test_statements_without_rows_are_a_definite_error(server: MariaDb, tmp_path: Path, statement: str) -> None:
    shop = shop_of(server, tmp_path)
    shop.do("CREATE PROCEDURE many() UPDATE orders SET amount = 5", "CREATE VIEW seen AS SELECT * FROM orders")
    shop.catch_up()
    lines = server.folder / "data" / "lines.tsv"
    lines.write_text("12\tx\t1\n")
    lines.chmod(0o644)
    shop.do("SET SESSION binlog_format = 'STATEMENT'", statement.format(lines=lines))
    with pytest.raises(BinlogUnfit):
        shop.catch_up()


@pytest.mark.parametrize(
    ("mode", "charset", "text"),
    [("", "sjis", "\u8868"), ("NO_BACKSLASH_ESCAPES", "utf8mb4", "\\")],
    ids=["a letter with the byte of a backslash", "a backslash that escapes nothing"],
)
def test_a_text_ends_where_it_does_for_the_session_that_wrote_it(
    mysql: MariaDb, tmp_path: Path, mode: str, charset: str, text: str
) -> None:
    shop = Store(mysql, tmp_path)
    shop.table("orders", "id int PRIMARY KEY, a int, b int")
    shop.catch_up()
    with mysql.connection(shop.name, charset=charset) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET sql_mode = '{mode}'")
        cursor.execute(f"ALTER TABLE orders COMMENT '{text}', MODIFY a int COMMENT 'it' AFTER b, COMMENT 'y'")
    shop.do("INSERT INTO orders VALUES (1, 7, 8)")
    assert ended(shop)["orders"].code == BinlogTableChanged.code


def test_rows_of_which_the_log_has_a_part_end_their_table_alone(server: MariaDb, tmp_path: Path) -> None:
    shop = shop_of(server, tmp_path)
    shop.catch_up()
    shop.do("SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE orders SET amount = 2 WHERE id = 1")
    shop.do("INSERT INTO users VALUES (1, 'ada')", "UPDATE orders SET amount = 3 WHERE id = 2")
    found = ended(shop)["orders"]
    assert (found.code, "binlog_row_image" in str(found)) == (BinlogRowsUntold.code, True)
    assert shop.held(shop.flow(), "users") == shop.there("users")


def test_rows_whose_columns_the_log_does_not_name_end_their_table_alone(own_mariadb: MariaDb, tmp_path: Path) -> None:
    shop = shop_of(own_mariadb, tmp_path)
    shop.catch_up()
    own_mariadb.do("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    shop.do("INSERT INTO orders VALUES (11, 'x', 1)")
    own_mariadb.do("SET GLOBAL binlog_row_metadata = 'FULL'")
    shop.do("INSERT INTO users VALUES (1, 'ada')", "INSERT INTO orders VALUES (12, 'x', 1)")
    found = ended(shop)["orders"]
    assert (found.code, "binlog_row_metadata" in str(found)) == (BinlogRowsUntold.code, True)
    assert shop.held(shop.flow(), "users") == shop.there("users")


@pytest.mark.parametrize(
    "column",
    [
        "point",
        "uuid",
        "inet6",
        "text COMPRESSED DEFAULT REPEAT('x', 500)",
        "varchar(63) COMPRESSED DEFAULT 'x'",
        "varchar(64) COMPRESSED DEFAULT REPEAT('x', 60)",
        "int AS (amount * 2) VIRTUAL",
    ],
)
@pytest.mark.parametrize("place", ["FIRST", ""])
def test_columns_of_types_that_are_not_followed_may_be_added(
    mariadb: MariaDb, tmp_path: Path, column: str, place: str
) -> None:
    shop = Store(mariadb, tmp_path)
    shop.table("orders", "id bigint PRIMARY KEY, who text, l1 varchar(9) CHARACTER SET latin1, amount int unsigned")
    shop.catch_up()
    shop.do(f"ALTER TABLE orders ADD COLUMN more {column} {place}", "INSERT INTO orders (id) VALUES (11)")
    shop.do("INSERT INTO orders (id, who, l1, amount) VALUES (12, 'x', 'ä€', 4294967295)")
    if "VIRTUAL" not in column:
        shop.do("UPDATE orders SET more = NULL, who = 'y' WHERE id = 12")
    held = shop.held(shop.catch_up(), "orders")
    assert held == [{name: row[name] for name in held[0]} for row in shop.there("orders")]
