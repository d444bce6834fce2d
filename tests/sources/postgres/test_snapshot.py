"""The first rows in ranges of pages, read side by side: together they are the table, at one place of the log."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.postgres import Server
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_refusals import connected, received, released
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.postgressource import TableRewritten
from tidegauge.sources.postgres.ranges import page_ranges
from tidegauge.sources.postgres.snapshot import SnapshotReading

ROWS = 20_000
COPIES = "datname = current_database() AND query LIKE 'COPY%'"


@pytest.fixture
def shop(logical: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Two tables, of which one has 148 pages, which are read two at a time."""
    monkeypatch.setattr("tidegauge.sources.postgres.held.RANGE_BYTES", 16384)
    found = Shop(logical, tmp_path)
    found.table("orders", "id bigint PRIMARY KEY, who text")
    found.table("users", "id bigint PRIMARY KEY, who text")
    found.do(f"INSERT INTO orders SELECT i, 'user ' || i FROM generate_series(1, {ROWS}) i")
    found.publish()
    return found


@pytest.fixture
def large(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A table that takes about a second to read, in ranges of 256 pages."""
    monkeypatch.setattr("tidegauge.sources.postgres.held.RANGE_BYTES", 1 << 21)
    shop.do("INSERT INTO orders SELECT i, repeat('x', 100) FROM generate_series(100001, 300000) i")
    return shop


@contextmanager
def writing(shop: Shop) -> Iterator[None]:
    """Insert, delete and update rows, one at a time, on and on."""
    over = threading.Event()

    def write() -> None:
        number = 1_000_000
        with psycopg.connect(shop.address, autocommit=True) as connection:
            while not over.is_set():
                number += 1
                connection.execute("INSERT INTO orders VALUES (%s, 'written')", (number,))
                connection.execute("DELETE FROM orders WHERE id = %s", (number - 1_000_000,))
                connection.execute("UPDATE orders SET who = 'other' WHERE id = %s", (ROWS - number + 1_000_000,))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


@given(pages=st.integers(0, 10_000), most=st.integers(1, 3_000), later=st.integers(0, 20_000))
def test_each_page_is_in_one_range_also_one_that_comes_later(pages: int, most: int, later: int) -> None:
    found = page_ranges(pages, most)
    assert [one.lower <= later and (one.upper is None or later < one.upper) for one in found].count(True) == 1
    assert all(one.upper - one.lower == most for one in found if one.upper is not None)


@pytest.mark.parametrize("connections", [1, 2, 5])
def test_the_ranges_of_all_tables_are_the_rows_at_one_place(connections: int, shop: Shop) -> None:
    pages = shop.ask("SELECT pg_relation_size('orders') / 8192")[0][0]
    subscription = connected(shop, connections=connections)
    with writing(shop):
        whole = received(subscription, lambda found: bool(found.frontier))
    files = {file for _, rows in whole.batches for file in rows["_file"].to_pylist()}
    assert len(files) >= pages // 2  # an empty table has no file with rows
    assert {stream for stream, _ in whole.batches} == {"orders"}
    numbers = [n for _, rows in whole.batches for n in rows["_first"].to_pylist()]
    counts = [n for _, rows in whole.batches for n in rows["_count"].to_pylist()]
    assert numbers == [sum(counts[:n]) for n in range(len(counts))]
    subscription.close()
    released(shop)
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")
    assert shop.held(flow, "users") == []
    inserted = [row["id"] for row in shop.log(flow, "orders") if row["op"] == "insert"]
    assert len(inserted) == len(set(inserted))


def reading(shop: Shop, subscription: Any, connections: int = 1) -> None:
    """Read until so many connections do."""
    while shop.ask(f"SELECT count(*) FROM pg_stat_activity WHERE {COPIES}")[0][0] < connections:
        found = subscription.receive(1000, 0.001)
        assert found is None or not found.frontier, "it is over"


def test_as_many_connections_as_were_said_read_at_once(large: Shop) -> None:
    subscription = connected(large, connections=3)
    reading(large, subscription, 3)
    assert large.ask(f"SELECT count(*) FROM pg_stat_activity WHERE {COPIES}") == [(3,)]
    subscription.close()


def test_a_stop_in_the_midst_leaves_nobody_reading(large: Shop) -> None:
    subscription = connected(large, connections=3)
    reading(large, subscription)
    subscription.close()
    mine = "datname = current_database() AND pid <> pg_backend_pid()"
    eventually(lambda: not large.ask(f"SELECT FROM pg_stat_activity WHERE {mine}"))


@pytest.mark.parametrize(
    "rewrite",
    [
        "ALTER TABLE orders ALTER COLUMN who TYPE varchar USING who || '!'",
        "TRUNCATE orders",
        "VACUUM (FULL) orders",
    ],
)
def test_a_table_that_is_rewritten_before_it_is_held_is_read_again(
    rewrite: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [rewrite]

    def late(*args: Any) -> Any:
        while left:
            with psycopg.connect(shop.address, autocommit=True) as connection:
                connection.execute(left.pop().encode())
        return SnapshotReading(*args)

    monkeypatch.setattr("tidegauge.sources.postgres.server.SnapshotReading", late)
    subscription = connected(shop)
    with pytest.raises(TableRewritten):
        received(subscription, lambda found: bool(found.frontier))
    subscription.close()
    released(shop)
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")


def test_nobody_can_rewrite_a_table_while_another_one_is_read(large: Shop) -> None:
    subscription = connected(large, connections=1)
    reading(large, subscription)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        large.do("SET lock_timeout = '50ms'", "ALTER TABLE users ALTER COLUMN who TYPE varchar USING who || '!'")
    subscription.close()


@pytest.mark.parametrize("wrong", [0, 33, True, "2"])
def test_a_number_of_connections_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="connections"):
        tg.PostgresSource("postgresql://db/shop", publication="shop", tables=["orders"], connections=wrong)


def test_another_number_of_connections_is_the_same_source(shop: Shop) -> None:
    shop.catch_up(connections=1)
    shop.do("INSERT INTO users VALUES (1, 'x')")
    flow = shop.catch_up(connections=4)
    assert shop.held(flow, "users") == shop.there("users")


def test_a_row_whose_only_column_has_no_value_is_there(logical: Server, tmp_path: Path) -> None:
    """The server writes it as an empty line."""
    shop = Shop(logical, tmp_path)
    shop.table("words", "word text", key="word", full=True)
    shop.do("INSERT INTO words VALUES (NULL), ('a'), (''), (NULL), (E'\\n'), ('\\.'), (NULL)")
    shop.publish()
    subscription = connected(shop)
    whole = received(subscription, lambda found: bool(found.frontier))
    subscription.close()
    source, bad = shop.source().placed("shop", "db"), list[Any]()
    words = [
        word for name, rows in whole.batches for word in source.decode(name, rows, bad.append)["word"].to_pylist()
    ]
    assert (words, bad) == ([None, "a", "", None, "\n", "\\.", None], [])
