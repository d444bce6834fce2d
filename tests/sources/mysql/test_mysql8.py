"""What MySQL 8.0 alone does, and a cross-section of the other tests on it (`TIDEGAUGE_MYSQL=8.0` runs all)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.mysql import MySql
from tests.sources.mysql import test_ended_tables, test_stream
from tests.sources.mysql.store import Store
from tests.sources.mysql.test_ended_tables import ended
from tests.sources.mysql.test_mysql import refused
from tests.sources.mysql.test_oracle import the_same_changes

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.mysqlsource import BinlogRowsUntold
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import ORIGIN

pytestmark = pytest.mark.long
test_a_truncate = test_ended_tables.test_a_truncate_ends_the_outputs_of_its_table_alone
test_bad_records = test_stream.test_a_value_that_its_column_cannot_have_is_a_bad_record
test_types = test_stream.test_each_type_is_the_same_from_the_first_rows_and_from_the_log


@pytest.fixture
def server(mysql8: MySql) -> MySql:
    return mysql8


@pytest.fixture
def shop(server: MySql, tmp_path: Path) -> Store:
    found = Store(server, tmp_path)
    found.table("orders", "id bigint PRIMARY KEY, who text, amount int")
    found.table("users", "id int PRIMARY KEY, name text")
    found.do("INSERT INTO orders SELECT seq, CONCAT('user ', seq), 1 FROM seq_1_to_10")
    return found


def test_the_server_s_own_program_finds_the_same_changes_compressed_or_not(own_mysql8: MySql, tmp_path: Path) -> None:
    own_mysql8.do("SET GLOBAL binlog_transaction_compression = ON")
    the_same_changes(own_mysql8, tmp_path)


def test_compressed_transactions_are_read_however_large(shop: Store, tmp_path: Path) -> None:
    shop.catch_up()
    compressed = "SET binlog_transaction_compression = ON"
    shop.do(compressed, "INSERT INTO users VALUES (1, 'ada')", "UPDATE orders SET who = 'ada' WHERE id = 1")
    shop.do(compressed, "INSERT INTO orders SELECT seq, REPEAT('x', 200), 1 FROM seq_10001_to_80000")
    shop.do("INSERT INTO users VALUES (2, 'bob')")
    shop.do(compressed, "DELETE FROM orders WHERE id > 20000")
    flow = shop.catch_up()
    for table in ("orders", "users"):
        assert shop.held(flow, table) == shop.there(table)
    assert list((tmp_path / "my" / "store" / "db" / "spill").iterdir()) == []


UNTOLD = {
    "rolled back": ["XA START 'a'", "{change}", "XA END 'a'", "XA PREPARE 'a'", "XA ROLLBACK 'a'"],
    "committed": ["XA START 'a'", "{change}", "XA END 'a'", "XA PREPARE 'a'", "XA COMMIT 'a'"],
    "one phase": ["XA START 'a'", "{change}", "XA END 'a'", "XA COMMIT 'a' ONE PHASE"],
    "parts of values": ["SET binlog_row_value_options = 'PARTIAL_JSON'", "{change}"],
    "minimal": ["SET binlog_row_image = 'MINIMAL'", "{change}"],
}


@pytest.mark.parametrize("statements", UNTOLD.values(), ids=UNTOLD)
def test_rows_that_the_log_does_not_tell_in_whole_or_in_order_end_their_table_alone(
    shop: Store, statements: Sequence[str]
) -> None:
    shop.do("CREATE TABLE other (id int PRIMARY KEY, n int)", "INSERT INTO other VALUES (1, 1)")
    shop.catch_up()
    shop.do(*(one.format(change="UPDATE other SET n = n + 1") for one in statements))  # it is not followed
    shop.catch_up()
    shop.do(*(one.format(change="UPDATE orders SET amount = 2") for one in statements))
    shop.do("INSERT INTO users VALUES (1, 'ada')")
    assert ended(shop)["orders"].code == BinlogRowsUntold.code
    flow = shop.flow()
    assert shop.held(flow, "users") == shop.there("users")
    assert {row["amount"] for row in shop.held(flow, "orders")} == {1}


def test_a_server_whose_log_may_have_parts_of_values_or_has_no_names_is_refused(shop: Store) -> None:
    for name, value, back in (("row_value_options", "PARTIAL_JSON", ""), ("row_metadata", "MINIMAL", "FULL")):
        shop.server.do(f"SET GLOBAL binlog_{name} = '{value}'")
        try:
            refused(shop, "TG-0335", f"binlog_{name}", f"SET GLOBAL binlog_{name} = '{back}'")
        finally:
            shop.server.do(f"SET GLOBAL binlog_{name} = '{back}'")


def test_columns_that_are_computed_invisible_or_made_by_the_server_are_followed(shop: Store) -> None:
    shop.table(
        "kinds",
        "id int PRIMARY KEY, n int unsigned, twice int AS (n * 2) VIRTUAL, l varchar(9) CHARACTER SET latin1, "
        "thrice int AS (n * 3) STORED, hidden int INVISIBLE DEFAULT 5, made varchar(36) DEFAULT (concat('m', id)), "
        "KEY ((n * 7)), KEY ((upper(l)))",
    )
    shop.do("INSERT INTO kinds (id, n, l) VALUES (1, 1, 'ä'), (2, 2, 'b')")
    shop.server.do("SET GLOBAL sql_generate_invisible_primary_key = ON")
    shop.table("keyless", "a int", key="my_row_id")
    shop.server.do("SET GLOBAL sql_generate_invisible_primary_key = OFF")
    shop.do("INSERT INTO keyless VALUES (7), (8)")
    same(shop, shop.catch_up(), "kinds")
    shop.do("INSERT INTO kinds (id, n, l) VALUES (3, 400, '€'), (4, 4, '')", "DELETE FROM kinds WHERE id = 1")
    shop.do(
        "UPDATE kinds SET n = 9 WHERE id = 2", "DELETE FROM keyless WHERE a = 7", "INSERT INTO keyless VALUES (9)"
    )
    flow = shop.catch_up()
    same(shop, flow, "kinds")
    held = [(row["my_row_id"], row["a"]) for row in shop.held(flow, "keyless")]
    assert held == shop.ask("SELECT my_row_id, a FROM keyless ORDER BY a")
    assert [row["twice"] for row in shop.log(flow, "kinds") if row["op"] == "delete"] == [2]


def same(shop: Store, flow: Any, table: str) -> None:
    held = shop.held(flow, table)
    names = ", ".join(f"`{name}`" for name in held[0])
    there = shop.ask(f"SELECT {names} FROM {table}")
    assert sorted(tuple(row.values()) for row in held) == sorted(there)


def test_columns_that_are_added_at_once_at_any_place_are_left_out(shop: Store) -> None:
    shop.catch_up()
    shop.do(
        "ALTER TABLE orders ADD COLUMN place point FIRST, ADD COLUMN doc json AFTER id, ADD COLUMN n year AFTER who, "
        "ADD COLUMN u int unsigned DEFAULT 7 AFTER id, ADD COLUMN l varchar(9) CHARACTER SET latin1 FIRST, "
        "ADD COLUMN e enum('ä', 'b') FIRST, ALGORITHM = INSTANT",
        "INSERT INTO orders (id, who, amount, doc, place) VALUES (11, 'äx', 2, '{\"a\": [1]}', POINT(1, 2))",
        "ALTER TABLE orders ADD COLUMN twice int AS (amount * 2) VIRTUAL, ALTER COLUMN who SET INVISIBLE",
        "UPDATE orders SET amount = 3 WHERE id = 2",
        "ALTER TABLE orders ADD KEY ((amount * 2)), ADD KEY docs ((CAST(doc->'$.a' AS UNSIGNED ARRAY)))",
        "UPDATE orders SET amount = 4, doc = '{\"a\": [2, 3]}', l = 'ä', e = 'ä' WHERE id = 3",
        "CREATE TABLE made AS SELECT * FROM users",
    )
    same(shop, shop.catch_up(), "orders")


def test_keys_that_differ_in_case_alone_are_other_keys_in_the_log(shop: Store) -> None:
    shop.table("words", "word varchar(20) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, n int", key="word")
    shop.do("INSERT INTO words VALUES ('ada', 1), ('ada ', 2), ('Bob', 3)")
    shop.catch_up()
    shop.do("UPDATE words SET word = 'ADÀ' WHERE n = 1", "UPDATE words SET n = 4 WHERE word = 'BOB'")
    flow = shop.catch_up()
    same(shop, flow, "words")
    assert [(row["op"], row["word"]) for row in shop.log(flow, "words")[3:]] == [
        ("delete", "ada"),
        ("insert", "ADÀ"),
        ("update", "Bob"),
    ]


LOGINS = [
    ("REQUIRE NONE", "ssl-mode=DISABLED", ""),
    ("REQUIRE NONE", "ssl-mode=PREFERRED", ""),
    ("REQUIRE SSL", "ssl-mode=REQUIRED", ""),
    ("REQUIRE SSL", "ssl-mode=VERIFY_CA&ssl-ca={folder}/data/ca.pem", ""),
    ("REQUIRE SSL", "ssl-mode=DISABLED", "Access denied"),
    ("REQUIRE NONE", "ssl-mode=VERIFY_IDENTITY&ssl-ca={folder}/data/ca.pem", "certificate verify failed"),
    ("REQUIRE NONE", "ssl-mode=VERIFY_CA", "certificate verify failed"),
    ("REQUIRE NONE", "ssl-mode=VERIFY_CA&ssl-ca={folder}/none.pem", "none.pem"),
    ("ACCOUNT LOCK", "ssl-mode=REQUIRED", "locked"),
    ("PASSWORD EXPIRE", "ssl-mode=REQUIRED", "TG-0333"),
]


@pytest.mark.parametrize(
    ("user", "tls", "said"), LOGINS, ids=[f"{user} {tls[9:25]}".strip() for user, tls, _ in LOGINS]
)
def test_its_own_way_to_log_in_with_and_without_tls(
    server: MySql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str, tls: str, said: str
) -> None:
    monkeypatch.setenv("KIM", "hunter3")
    server.do(
        "DROP USER IF EXISTS kim",
        "CREATE ROLE IF NOT EXISTS readers",
        f"GRANT {server.rights} ON *.* TO readers",
        "GRANT SELECT ON `db%`.* TO readers",
        "CREATE USER kim IDENTIFIED WITH caching_sha2_password BY 'hunter3'",
        "GRANT readers TO kim",
        "SET DEFAULT ROLE ALL TO kim",
        f"ALTER USER kim {user}",
        "FLUSH PRIVILEGES",  # forgets passwords that were right
    )
    shop = Store(server, tmp_path, user="kim", password="env:KIM")
    shop.table("users", "id int PRIMARY KEY, name text")
    shop.tls = tls.format(folder=server.folder)
    if said:
        refused(shop, "TG-0333", said)
        return
    shop.catch_up()
    shop.do("INSERT INTO users VALUES (2, 'bob')")
    assert len(shop.held(shop.catch_up(), "users")) == 1


def test_a_server_that_wants_tls_and_a_client_that_does_not(server: MySql, shop: Store) -> None:
    shop.tls = "ssl-mode=DISABLED"
    server.do("SET GLOBAL require_secure_transport = ON")
    try:
        refused(shop, "TG-0333", "require_secure_transport")
    finally:
        server.do("SET GLOBAL require_secure_transport = OFF")


def test_a_source_that_was_begun_on_an_older_version_says_so(shop: Store, tmp_path: Path) -> None:
    shop.catch_up()
    (tmp_path / "my" / "store" / "db" / "server.json").write_text('{"clock": "gtid"}')
    with pytest.raises(TidegaugeError, match=r"TG-0335.*it is MySQL 8.0, and the flow was begun with MySQL 5.6"):
        shop.source().placed("store", "db").connect(ORIGIN, Bound())
