"""Tables of a database become tables of a flow: first rows, changes, and what each type of column becomes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres import Server
from tests.sources.postgres.shop import Shop

import tidegauge as tg
from tidegauge.errors.postgressource import UnchangedValueMissing, ValueUnfit

ORDERS = "id bigint PRIMARY KEY, who text, amount numeric(10, 2)"


@pytest.fixture
def shop(logical: Server, tmp_path: Path) -> Shop:
    found = Shop(logical, tmp_path)
    found.table("orders", ORDERS)
    found.table("users", "id int PRIMARY KEY, name text")
    found.do("INSERT INTO orders SELECT i, 'user ' || i, i * 1.25 FROM generate_series(1, 1000) i")
    found.publish()
    return found


def test_the_first_rows_and_every_change_since_are_in_the_tables(shop: Shop) -> None:
    flow = shop.catch_up()
    assert len(shop.held(flow, "orders")) == 1000
    assert shop.held(flow, "users") == []
    shop.do(
        "UPDATE orders SET who = 'ada' WHERE id <= 3",
        "DELETE FROM orders WHERE id = 4",
        "UPDATE orders SET id = 5000 WHERE id = 5",
        "INSERT INTO users VALUES (1, 'ada'), (2, NULL)",
    )
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")
    assert shop.held(flow, "users") == shop.there("users")
    changes = [(row["op"], row["id"], row["who"]) for row in shop.log(flow, "orders")[1000:]]
    assert changes == [
        ("update", 1, "ada"),
        ("update", 2, "ada"),
        ("update", 3, "ada"),
        ("delete", 4, None),
        ("delete", 5, None),
        ("insert", 5000, "user 5"),
    ]


def test_t53_a_transaction_is_in_one_epoch_over_all_tables(shop: Shop) -> None:
    shop.catch_up()
    for n in range(40):
        shop.do(f"INSERT INTO orders VALUES ({2000 + n}, 'x', 1)", f"INSERT INTO users VALUES ({n}, 'x')")
    flow = shop.catch_up()
    orders = {row["id"] - 2000: row["_epoch"] for row in shop.log(flow, "orders")[1000:]}
    users = {row["id"]: row["_epoch"] for row in shop.log(flow, "users")}
    assert len(orders) == 40
    assert orders == users


def test_what_was_not_committed_is_nowhere(shop: Shop) -> None:
    shop.catch_up()
    with psycopg.connect(shop.address) as connection:
        connection.execute("INSERT INTO users VALUES (1, 'stays')")
        connection.execute("SAVEPOINT one")
        connection.execute("INSERT INTO users VALUES (2, 'goes')")
        connection.execute("ROLLBACK TO one")
        connection.execute("INSERT INTO users VALUES (3, 'stays')")
    with psycopg.connect(shop.address) as connection:
        connection.execute("INSERT INTO users VALUES (4, 'goes')")
        connection.rollback()
    flow = shop.catch_up()
    assert [row["id"] for row in shop.log(flow, "users")] == [1, 3]


def test_metadata_says_where_a_row_is_from(shop: Shop) -> None:
    flow = shop.catch_up(metadata=True)
    before = dt.datetime.now(dt.UTC)
    shop.do("INSERT INTO users VALUES (1, 'ada')")
    flow = shop.catch_up(metadata=True)
    [row] = shop.log(flow, "users")
    assert row["_partition"] == "wal"
    assert int(row["_sequence"]) >> 32 == row["_offset"]
    assert abs(row["_timestamp"] - before) < dt.timedelta(minutes=1)


TYPES: dict[str, tuple[str, list[str], Any]] = {
    "b": ("boolean", ["true", "false"], lambda v: v == "true"),
    "i2": ("smallint", ["-32768", "32767"], int),
    "i4": ("integer", ["-2147483648", "7"], int),
    "i8": ("bigint", ["9223372036854775807", "-1"], int),
    "f4": ("real", ["1.5", "'-Infinity'"], lambda v: float(v.strip("'"))),
    "f8": ("double precision", ["0.1", "1e-300"], float),
    "n": ("numeric(20, 5)", ["123456789012345.00001", "-0.5"], lambda v: Decimal(v).quantize(Decimal("0.00001"))),
    "nn": ("numeric", ["1e50", "0.10"], lambda v: {"1e50": "1" + "0" * 50, "0.10": "0.10"}[v]),
    "t": ("text", ["'he said \"no\",\\n'", "''"], lambda v: v[1:-1]),
    "v": ("varchar(9)", ["'äöü€😀'", "'a,b'"], lambda v: v[1:-1]),
    "c": ("char(5)", ["'ab'", "'abcde'"], lambda v: v[1:-1].ljust(5)),
    "d": ("date", ["'0001-01-01'", "'9999-12-31'"], lambda v: dt.date.fromisoformat(v[1:-1])),
    "ts": (
        "timestamp",
        ["'2026-11-28 15:00:00.000001'", "'1969-12-31 23:59:59.5'"],
        lambda v: dt.datetime.fromisoformat(v[1:-1]),
    ),
    "tz": (
        "timestamptz",
        ["'2026-11-28 15:00:00+05:30'", "'1900-01-01 00:00:00+00'"],
        lambda v: dt.datetime.fromisoformat(v[1:-1]).astimezone(dt.UTC),
    ),
    "ti": ("time", ["'12:00:00.5'", "'24:00:00'"], lambda v: v[1:-1]),
    "u": (
        "uuid",
        ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "NULL"],
        lambda v: None if v == "NULL" else v[1:-1].lower(),
    ),
    "j": ("json", ["'{\"b\":  1}'", "NULL"], lambda v: None if v == "NULL" else v[1:-1]),
    "jb": ("jsonb", ["'{\"b\":  1}'", "NULL"], lambda v: None if v == "NULL" else '{"b": 1}'),
    "by": ("bytea", ["'\\x00ff5c'", "''"], lambda v: {"'\\x00ff5c'": b"\x00\xff\\", "''": b""}[v]),
    "a": ("int[]", ["'{1,NULL,3}'", "'{}'"], lambda v: v[1:-1]),
    "ta": ("text[]", ["'{a,\"b,c\"}'", "NULL"], lambda v: None if v == "NULL" else v[1:-1]),
    "e": ("mood", ["'happy'", "'sad'"], lambda v: v[1:-1]),
    "r": ("int4range", ["'[1,5)'", "'empty'"], lambda v: v[1:-1]),
    "dm": ("price", ["12.5", "0"], lambda v: Decimal(v).quantize(Decimal("0.01"))),
    "iv": ("interval", ["'1 day 02:00:00'", "NULL"], lambda v: None if v == "NULL" else v[1:-1]),
    "o": ("oid", ["4294967295", "1"], int),
}


def test_each_type_is_the_same_from_the_snapshot_and_from_the_stream(logical: Server, tmp_path: Path) -> None:
    same_from_both(Shop(logical, tmp_path))


def same_from_both(shop: Shop) -> None:
    """Compare values of all types, as they are among the first rows and as they come later."""
    shop.do("CREATE TYPE mood AS ENUM ('happy', 'sad')", "CREATE DOMAIN price AS numeric(8, 2) CHECK (VALUE >= 0)")
    # What a role or a database is set to decides nothing.
    shop.do(
        f"ALTER DATABASE {shop.name} SET datestyle = 'SQL, DMY'",
        f"ALTER DATABASE {shop.name} SET timezone = 'Asia/Tokyo'",
    )
    shop.do(
        f"ALTER DATABASE {shop.name} SET bytea_output = 'escape'",
        f"ALTER DATABASE {shop.name} SET intervalstyle = 'iso_8601'",
    )
    shop.do(f"ALTER DATABASE {shop.name} SET extra_float_digits = 0")
    shop.table("kinds", "id int PRIMARY KEY, " + ", ".join(f"{name} {kind}" for name, (kind, _, _) in TYPES.items()))
    shop.publish()

    def insert(first: int) -> str:
        rows = [
            f"({first + n}, " + ", ".join(values[n].replace("\\n", "\n") for _, values, _ in TYPES.values()) + ")"
            for n in range(2)
        ]
        return f"INSERT INTO kinds VALUES {', '.join(rows)}, ({first + 2}{', NULL' * len(TYPES)})"

    shop.do(insert(0))
    shop.catch_up()
    shop.do(insert(3))
    flow = shop.catch_up()
    rows = sorted(tg.read_arrow(flow, "kinds").to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert {row["_epoch"] for row in rows[:3]} != {row["_epoch"] for row in rows[3:]}
    for name, (_, values, meant) in TYPES.items():
        expected = [None if v == "NULL" else meant(v.replace("\\n", "\n")) for v in values] + [None]
        assert [row[name] for row in rows] == expected * 2, name


def test_a_value_that_its_column_cannot_have_is_a_bad_record(logical: Server, tmp_path: Path) -> None:
    shop = Shop(logical, tmp_path)
    shop.table("days", "id int PRIMARY KEY, day date, n numeric(5, 1)")
    shop.publish()
    shop.do("INSERT INTO days VALUES (1, '2026-01-01', 1), (2, 'infinity', 2)")
    shop.catch_up(errors=True)
    shop.do("INSERT INTO days VALUES (3, '0044-03-15 BC', 3), (4, '2026-01-01', 'NaN'), (5, NULL, 5)")
    flow = shop.catch_up(errors=True)
    assert [row["id"] for row in shop.held(flow, "days")] == [1, 5]
    bad = sorted(tg.read_arrow(flow, "bad").to_pylist(), key=lambda row: row["message"])
    assert [row["code"] for row in bad] == [ValueUnfit.code] * 3
    assert [row["message"].split(": ")[1] for row in bad] == [
        "'0044-03-15 BC' is no date32[day]",
        "'infinity' is no date32[day]",
        "'NaN' is no decimal128(5, 1)",
    ]


def test_texts_that_are_no_utf_8_are_bad_records_and_hold_up_nothing(logical: Server, tmp_path: Path) -> None:
    shop = Shop(logical, tmp_path)
    logical.query(f"CREATE DATABASE {shop.name}_ascii TEMPLATE template0 ENCODING 'SQL_ASCII'")
    shop.name += "_ascii"
    shop.dsn, shop.address = logical.address(shop.name), logical.address(shop.name, client_encoding="utf8")
    shop.table("notes", 'id int PRIMARY KEY, "größe" text')
    shop.publish()
    bad = r"E'\xff'"
    shop.do(f"INSERT INTO notes VALUES (1, 'größer'), (2, {bad}), (3, '')")
    shop.catch_up(errors=True)
    shop.do(f"INSERT INTO notes VALUES (4, {bad})", "INSERT INTO notes VALUES (5, 'größe')")
    flow = shop.catch_up(errors=True)
    assert [(row["id"], row["größe"]) for row in shop.held(flow, "notes")] == [(1, "größer"), (3, ""), (5, "größe")]
    assert [row["code"] for row in tg.read_arrow(flow, "bad").to_pylist()] == [ValueUnfit.code] * 2


LARGE = "(SELECT string_agg(md5((i * {0})::text), '') FROM generate_series(1, 400) i)"


def test_a_large_value_that_did_not_change_is_taken_from_the_old_row(logical: Server, tmp_path: Path) -> None:
    shop = Shop(logical, tmp_path)
    shop.table("texts", "id int PRIMARY KEY, large text, n int", full=True)
    shop.publish()
    shop.do(f"INSERT INTO texts VALUES (1, {LARGE.format(1)}, 0), (2, {LARGE.format(2)}, 0)")
    shop.catch_up()
    shop.do("UPDATE texts SET n = 1", "UPDATE texts SET id = 3 WHERE id = 1", "UPDATE texts SET n = 2 WHERE id = 2")
    flow = shop.catch_up()
    assert shop.held(flow, "texts") == shop.there("texts")
    assert all(len(row["large"]) > 10_000 for row in shop.log(flow, "texts"))


def test_where_the_old_row_is_not_sent_it_is_a_bad_record_and_never_a_null(logical: Server, tmp_path: Path) -> None:
    shop = Shop(logical, tmp_path)
    shop.table("texts", "id int PRIMARY KEY, large text, n int")
    shop.publish()
    shop.do(f"INSERT INTO texts VALUES (1, {LARGE.format(1)}, 0)")
    shop.catch_up(errors=True)
    shop.do("UPDATE texts SET n = 1")
    flow = shop.catch_up(errors=True)
    [bad] = tg.read_arrow(flow, "bad").to_pylist()
    assert bad["code"] == UnchangedValueMissing.code
    assert [row["n"] for row in shop.held(flow, "texts")] == [0]
    shop.do("ALTER TABLE texts REPLICA IDENTITY FULL", "UPDATE texts SET n = 2")
    flow = shop.catch_up(errors=True)
    assert shop.held(flow, "texts") == shop.there("texts")


def test_where_an_earlier_change_of_the_transaction_has_it_it_is_taken_from_there(
    logical: Server, tmp_path: Path
) -> None:
    shop = Shop(logical, tmp_path)
    shop.table("texts", "id int PRIMARY KEY, large text, n int, other text")
    shop.publish()
    shop.catch_up(errors=True)
    one, two = LARGE.format(1), LARGE.format(2)
    shop.do(
        f"INSERT INTO texts VALUES (1, {one}, 0, {two})",
        "UPDATE texts SET n = 1",
        f"UPDATE texts SET large = {two}",
        "UPDATE texts SET id = 2",
        "UPDATE texts SET n = 2",
        f"INSERT INTO texts VALUES (1, {one}, 3, NULL)",
        "UPDATE texts SET n = n + 1",
        "DELETE FROM texts WHERE id = 2",
        "INSERT INTO texts VALUES (2, 'small', 5, NULL)",
        "UPDATE texts SET n = 6 WHERE id = 2",
    )
    flow = shop.catch_up(errors=True)
    assert shop.held(flow, "texts") == shop.there("texts")
    assert tg.read_arrow(flow, "bad").num_rows == 0
    last = [row for row in shop.log(flow, "texts") if row["n"] in {1, 2}]
    assert [(len(row["large"]), len(row["other"])) for row in last] == [(12_800, 12_800)] * 4
    shop.do(f"UPDATE texts SET large = {two} WHERE id = 1", "UPDATE texts SET n = 7 WHERE id = 1")
    shop.do("UPDATE texts SET n = 8 WHERE id = 1")  # the value came with another transaction
    flow = shop.catch_up(errors=True)
    assert [row["code"] for row in tg.read_arrow(flow, "bad").to_pylist()] == [UnchangedValueMissing.code]
    assert {row["id"]: row["n"] for row in shop.held(flow, "texts")} == {1: 7, 2: 6}


def test_no_transaction_makes_many_times_as_much_of_a_large_value(
    logical: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.sources.postgres.unchanged.MOST", 30_000)
    shop = Shop(logical, tmp_path)
    shop.table("texts", "id int PRIMARY KEY, large text, n int")
    shop.publish()
    shop.catch_up(errors=True)
    for n in (1, 2):
        shop.do(f"INSERT INTO texts VALUES ({n}, {LARGE.format(1)}, 0)", *["UPDATE texts SET n = n + 1"] * 2)
    flow = shop.catch_up(errors=True)
    assert [(row["id"], row["n"]) for row in shop.log(flow, "texts")] == [
        (1, 0),
        (1, 1),
        (1, 2),
        (2, 0),
        (2, 1),
        (2, 2),
    ]
    shop.do(f"INSERT INTO texts VALUES (3, {LARGE.format(1)}, 0)", *["UPDATE texts SET n = n + 1 WHERE id = 3"] * 3)
    flow = shop.catch_up(errors=True)
    assert tg.read_arrow(flow, "bad").num_rows == 3  # two of id 1 by the transaction of id 2, and the third of id 3
    assert {row["id"]: row["n"] for row in shop.held(flow, "texts")}[3] == 2


@pytest.mark.parametrize("columns", ["code", "code, part"])
def test_a_row_is_known_by_the_index_that_is_the_replica_identity(
    logical: Server, tmp_path: Path, columns: str
) -> None:
    shop = Shop(logical, tmp_path)
    shop.table("texts", "id int, code int NOT NULL, part int NOT NULL, large text, n int", key="code")
    shop.do(f"CREATE UNIQUE INDEX mine ON texts ({columns})", "ALTER TABLE texts REPLICA IDENTITY USING INDEX mine")
    shop.publish()
    shop.do(f"INSERT INTO texts VALUES (1, 10, 1, {LARGE.format(1)}, 0), (1, 20, 1, 'x', 0)")
    shop.catch_up(errors=True)
    shop.do(
        f"INSERT INTO texts VALUES (1, 30, 2, {LARGE.format(3)}, 0)",
        "UPDATE texts SET n = 1, id = 7 WHERE code >= 20",
        "UPDATE texts SET code = 40 WHERE code = 30",
        "DELETE FROM texts WHERE code = 20",
    )
    flow = shop.catch_up(errors=True)
    assert shop.held(flow, "texts") == shop.there("texts")
    assert tg.read_arrow(flow, "bad").num_rows == 0
    changes = [(row["op"], row["id"], row["code"]) for row in shop.log(flow, "texts")[3:]]
    assert sorted(changes[:2]) == [("update", 7, 20), ("update", 7, 30)]
    assert changes[2:] == [("delete", None, 30), ("insert", 7, 40), ("delete", None, 20)]


def test_a_large_transaction_goes_through_files_which_are_removed(shop: Shop, tmp_path: Path) -> None:
    shop.catch_up()
    shop.do(
        "INSERT INTO orders SELECT i, repeat('x', 200), 1 FROM generate_series(10001, 80000) i",
        "INSERT INTO users SELECT i, 'y' FROM generate_series(1, 100) i",
        "UPDATE orders SET amount = 2 WHERE id > 70000",
    )
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")
    assert len({row["_epoch"] for row in shop.log(flow, "orders")}) == 2
    assert list((tmp_path / "pg" / "shop" / "db" / "spill").iterdir()) == []


def test_another_process_reads_the_columns_without_the_database(shop: Shop) -> None:
    shop.catch_up()
    shop.server.query(f"ALTER DATABASE {shop.name} RENAME TO {shop.name}_away")
    flow = shop.flow()
    assert flow.sources["db"].schema == shop.flow().sources["db"].schema
    assert len(shop.held(flow, "orders")) == 1000
