"""Tables of a MariaDB become tables of a flow: first rows, changes, and what each type of column becomes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.mariadb import MariaDb
from tests.sources.mysql.store import Store
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.mysqlsource import BinlogValueUnfit
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.mariadb import MARIADB
from tidegauge.remap.frontier import ORIGIN

pytestmark = pytest.mark.long
ORDERS = "id bigint PRIMARY KEY, who text, amount decimal(10, 2)"


@pytest.fixture
def shop(server: MariaDb, tmp_path: Path) -> Store:
    found = Store(server, tmp_path)
    found.table("orders", ORDERS)
    found.table("users", "id int PRIMARY KEY, name text")
    found.do("INSERT INTO orders SELECT seq, CONCAT('user ', seq), seq * 1.25 FROM seq_1_to_1000")
    return found


def test_the_first_rows_and_every_change_since_are_in_the_tables(shop: Store) -> None:
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")
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
        ("delete", 4, "user 4"),
        ("delete", 5, "user 5"),
        ("insert", 5000, "user 5"),
    ]


def test_t53_a_transaction_of_a_binary_log_is_in_one_epoch_over_all_tables(shop: Store) -> None:
    shop.catch_up()
    for n in range(40):
        shop.do(f"INSERT INTO orders VALUES ({2000 + n}, 'x', 1)", f"INSERT INTO users VALUES ({n}, 'x')")
    flow = shop.catch_up()
    orders = {row["id"] - 2000: row["_epoch"] for row in shop.log(flow, "orders")[1000:]}
    users = {row["id"]: row["_epoch"] for row in shop.log(flow, "users")}
    assert len(orders) == 40
    assert orders == users


def test_what_was_not_committed_is_nowhere(shop: Store) -> None:
    shop.catch_up()
    with shop.server.connection(shop.name) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO users VALUES (1, 'stays')")
        cursor.execute("SAVEPOINT one")
        cursor.execute("INSERT INTO users VALUES (2, 'goes')")
        cursor.execute("ROLLBACK TO one")
        cursor.execute("INSERT INTO users VALUES (3, 'stays')")
        connection.commit()
        cursor.execute("INSERT INTO users VALUES (4, 'goes')")
        connection.rollback()
    flow = shop.catch_up()
    assert [row["id"] for row in shop.log(flow, "users")] == [1, 3]


def test_metadata_says_which_transaction_a_row_is_of(shop: Store) -> None:
    shop.catch_up(metadata=True)
    before = dt.datetime.now(dt.UTC)
    shop.do("INSERT INTO users VALUES (1, 'ada')")
    end = shop.server.end()
    flow = shop.catch_up(metadata=True)
    [row] = shop.log(flow, "users")
    assert end[row["_partition"]] == row["_offset"] + 1
    assert int(row["_sequence"]) >> 40 == row["_offset"]
    assert abs(row["_timestamp"] - before) < dt.timedelta(minutes=1)


def moment(*parts: int) -> dt.datetime:
    """A date and a time without a zone."""
    return dt.datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


TYPES: dict[str, tuple[str, list[str], list[Any]]] = {
    "i1": ("tinyint", ["-128", "127"], [-128, 127]),
    "u1": ("tinyint unsigned", ["255", "0"], [255, 0]),
    "i2": ("smallint", ["-32768", "32767"], [-32768, 32767]),
    "yr": ("year", ["2026", "1901"], [2026, 1901]),
    "u2": ("smallint unsigned", ["65535", "1"], [65535, 1]),
    "i3": ("mediumint", ["-8388608", "8388607"], [-8388608, 8388607]),
    "u3": ("mediumint unsigned", ["16777215", "1"], [16777215, 1]),
    "i4": ("int", ["-2147483648", "7"], [-2147483648, 7]),
    "u4": ("int unsigned", ["4294967295", "7"], [4294967295, 7]),
    "i8": ("bigint", ["-9223372036854775808", "9223372036854775807"], [-(2**63), 2**63 - 1]),
    "u8": ("bigint unsigned", ["18446744073709551615", "1"], [Decimal(2**64 - 1), Decimal(1)]),
    "f4": ("float", ["16777217", "0.1"], [16777216.0, 0.10000000149011612]),
    "f8": ("double", ["0.1", "-1e-300"], [0.1, -1e-300]),
    "n1": ("decimal(10, 2)", ["-12345678.91", "0.05"], [Decimal("-12345678.91"), Decimal("0.05")]),
    "n2": ("decimal(18, 0)", ["-999999999999999999", "1"], [Decimal(-(10**18) + 1), Decimal(1)]),
    "n3": (
        "decimal(38, 10)",
        ["-" + "9" * 28 + ".0123456789", "1"],
        [Decimal("-" + "9" * 28 + ".0123456789"), Decimal("1.0000000000")],
    ),
    "n4": (
        "decimal(65, 30)",
        ["-" + "9" * 35 + ".5", "0"],
        ["-" + "9" * 35 + "." + "5".ljust(30, "0"), "0." + "0" * 30],
    ),
    "n5": ("decimal(5, 5)", ["-0.00001", "0.5"], [Decimal("-0.00001"), Decimal("0.50000")]),
    "t": ("text", ["'he said \"no\",\n'", "''"], ['he said "no",\n', ""]),
    "v": ("varchar(9)", ["'äöü€😀'", "'a,b'"], ["äöü€😀", "a,b"]),
    "vl": ("varchar(300)", ["REPEAT('ä', 300)", "''"], ["ä" * 300, ""]),
    "c": ("char(200)", ["'ab'", "'€'"], ["ab", "€"]),
    "l1": ("varchar(9) CHARACTER SET latin1", ["'ä€'", "'x'"], ["ä€", "x"]),
    "as": ("char(9) CHARACTER SET ascii", ["'x'", "''"], ["x", ""]),
    "b": ("blob", ["x'00FF5C27'", "''"], [b"\x00\xff\\'", b""]),
    "vb": ("varbinary(5)", ["x'0001'", "x'0100'"], [b"\0\1", b"\1\0"]),
    "bi": ("binary(4)", ["x'01'", "x'01020000'"], [b"\1\0\0\0", b"\1\2\0\0"]),
    "d": ("date", ["'1000-01-01'", "'9999-12-31'"], [dt.date(1000, 1, 1), dt.date(9999, 12, 31)]),
    "dt": (
        "datetime",
        ["'1969-12-31 23:59:59'", "'2024-02-29 00:00:00'"],
        [moment(1969, 12, 31, 23, 59, 59), moment(2024, 2, 29)],
    ),
    "d3": (
        "datetime(3)",
        ["'2026-11-28 15:00:00.123'", "'1000-01-01'"],
        [moment(2026, 11, 28, 15, 0, 0, 123000), moment(1000, 1, 1)],
    ),
    "d6": (
        "datetime(6)",
        ["'2026-11-28 15:00:00.000001'", "'9999-12-31 23:59:59.999999'"],
        [moment(2026, 11, 28, 15, 0, 0, 1), moment(9999, 12, 31, 23, 59, 59, 999999)],
    ),
    "ts": (
        "timestamp NULL",
        ["'2026-11-28 15:00:00'", "'1970-01-02 00:00:00'"],
        [dt.datetime(2026, 11, 28, 15, tzinfo=dt.UTC), dt.datetime(1970, 1, 2, tzinfo=dt.UTC)],
    ),
    "t2": (
        "timestamp(2) NULL",
        ["'2026-11-28 15:00:00.25'", "NULL"],
        [dt.datetime(2026, 11, 28, 15, 0, 0, 250000, dt.UTC), None],
    ),
    "ti": ("time", ["'-838:59:59'", "'12:00:01'"], ["-838:59:59", "12:00:01"]),
    "t1": ("time(1)", ["'-00:00:00.5'", "'00:00:00'"], ["-00:00:00.5", "00:00:00.0"]),
    "t6": ("time(6)", ["'-12:34:56.000001'", "'837:59:59.999999'"], ["-12:34:56.000001", "837:59:59.999999"]),
    "e": ("enum('happy', 'sad', 'ä,b')", ["'sad'", "'ä,b'"], ["sad", "ä,b"]),
    "s": ("set('a', 'b', 'c')", ["'a,c'", "''"], ["a,c", ""]),
    "b1": ("bit(1)", ["b'1'", "b'0'"], [1, 0]),
    "bb": ("bit(20)", ["b'10000000000000000001'", "b'0'"], [2**19 + 1, 0]),
    "ul": ("int unsigned", ["4294967295", "0"], [4294967295, 0]),
    "il": ("int", ["-1", "0"], [-1, 0]),
    "j": ("json", ["'{\"b\":  1}'", "NULL"], ['{"b":  1}', None]),
}


def test_each_type_is_the_same_from_the_first_rows_and_from_the_log(server: MariaDb, tmp_path: Path) -> None:
    shop = Store(server, tmp_path)
    types = {name: one for name, one in TYPES.items() if one[0] != "json" or server.clock == MARIADB}
    shop.table(
        "kinds", "id int PRIMARY KEY, " + ", ".join(f"`{name}` {kind}" for name, (kind, _, _) in types.items())
    )

    def insert(first: int) -> tuple[str, str]:
        rows = [f"({first + n}, {', '.join(values[n] for _, values, _ in types.values())})" for n in range(2)]
        none = f"({first + 2}{', NULL' * len(types)})"
        return "SET time_zone = '+00:00'", f"INSERT INTO kinds VALUES {', '.join(rows)}, {none}"

    shop.do(*insert(0))
    shop.catch_up()
    shop.do(*insert(3))
    flow = shop.catch_up()
    rows = sorted(tg.read_arrow(flow, "kinds").to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert {row["_epoch"] for row in rows[:3]} != {row["_epoch"] for row in rows[3:]}
    for name, (_, _, expected) in types.items():
        assert [row[name] for row in rows] == [*expected, None] * 2, name


def test_a_value_that_its_column_cannot_have_is_a_bad_record(server: MariaDb, tmp_path: Path) -> None:
    shop = Store(server, tmp_path)
    shop.table("days", "id int PRIMARY KEY, day date, at datetime")
    shop.do("INSERT INTO days VALUES (1, '2026-01-01', '2026-01-01'), (2, '0000-00-00', NULL)")
    shop.catch_up(errors=True)
    shop.do("INSERT INTO days VALUES (3, '2026-02-00', NULL), (4, NULL, '2026-00-01'), (5, NULL, NULL)")
    flow = shop.catch_up(errors=True)
    assert [row["id"] for row in shop.held(flow, "days")] == [1, 5]
    bad = tg.read_arrow(flow, "bad").to_pylist()
    assert [row["code"] for row in bad] == [BinlogValueUnfit.code] * 3


def test_a_large_transaction_goes_through_files_which_are_removed(shop: Store, tmp_path: Path) -> None:
    shop.catch_up()
    shop.do(
        "INSERT INTO orders SELECT seq, REPEAT('x', 200), 1 FROM seq_10001_to_80000",
        "INSERT INTO users SELECT seq, 'y' FROM seq_1_to_100",
        "UPDATE orders SET amount = 2 WHERE id > 70000",
    )
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")
    assert len({row["_epoch"] for row in shop.log(flow, "orders")}) == 2
    assert list((tmp_path / "my" / "store" / "db" / "spill").iterdir()) == []


def test_a_value_larger_than_a_packet_of_the_protocol(server: MariaDb, tmp_path: Path) -> None:
    shop = Store(server, tmp_path)
    shop.table("texts", "id int PRIMARY KEY, large longblob, small text")
    server.do("SET GLOBAL max_allowed_packet = 134217728")
    shop.do("INSERT INTO texts VALUES (1, REPEAT('x', 17000000), 'before')")
    shop.catch_up()
    shop.do("INSERT INTO texts VALUES (2, REPEAT('y', 35000000), 'after'), (3, '', '')")
    flow = shop.catch_up()
    assert shop.held(flow, "texts") == shop.there("texts")


def test_a_column_that_is_added_is_left_out_and_the_others_go_on(shop: Store) -> None:
    shop.catch_up()
    shop.do(
        "INSERT INTO users VALUES (1, 'before')",
        "ALTER TABLE users ADD COLUMN age int, ADD INDEX (age)",
        "INSERT INTO users VALUES (2, 'after', 30)",
        "UPDATE users SET age = 31, name = 'later' WHERE id = 1",
    )
    flow = shop.catch_up()
    assert shop.held(flow, "users") == [{"id": 1, "name": "later"}, {"id": 2, "name": "after"}]


def test_where_the_log_names_columns_one_may_be_added_anywhere(mariadb: MariaDb, tmp_path: Path) -> None:
    shop = Store(mariadb, tmp_path)
    shop.table("users", "id int PRIMARY KEY, name text")
    shop.catch_up()
    shop.do("ALTER TABLE users ADD COLUMN age int FIRST", "INSERT INTO users VALUES (30, 2, 'after')")
    assert shop.held(shop.catch_up(), "users") == [{"id": 2, "name": "after"}]


def test_progress_that_comes_at_the_end_of_a_call_is_told_by_a_later_one(shop: Store) -> None:
    subscription = shop.source().placed("store", "db").connect(ORIGIN, Bound())
    try:
        eventually(lambda: (found := subscription.receive(1000, 0.1)) and found.frontier)
        shop.do("CREATE TABLE other (id int)", "INSERT INTO other VALUES (1)")
        end = shop.server.end()

        def told() -> bool:
            found = subscription.receive(1000, 0)
            return found is not None and end.less_equal(found.frontier)

        eventually(told)
    finally:
        subscription.close()
