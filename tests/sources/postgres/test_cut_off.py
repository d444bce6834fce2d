"""First rows whose reading is cut off: ranges that were read stay, and the whole is of one place.

The oracle is the database: at the end the tables have its rows, and in between those that another decoding of its log
gives, at each epoch.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres import Server
from tests.sources.postgres import driver
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_machine import bound as frontiers_of
from tests.sources.postgres.test_refusals import connected, received, released

import tidegauge as tg
from tidegauge.errors.postgressource import SlotsExhausted
from tidegauge.errors.sinks import EpochReplaced
from tidegauge.remap.fromtime.lsn import Lsn
from tidegauge.sources.postgres.progress import RowsProgress
from tidegauge.sources.postgres.snapshot import SnapshotReading

ROWS = 60_000


@pytest.fixture
def shop(logical: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A table of about 1000 pages, in ranges of 64, and a small one."""
    return large_shop(logical, tmp_path, monkeypatch)


def large_shop(server: Server, root: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr("tidegauge.sources.postgres.held.RANGE_BYTES", 64 * 8192)
    found = Shop(server, root)
    found.table("orders", "id bigint PRIMARY KEY, who text, n int DEFAULT 0")
    found.table("users", "id bigint PRIMARY KEY, who text")
    found.do(f"INSERT INTO orders SELECT i, repeat('x', 100) FROM generate_series(1, {ROWS}) i")
    found.do("INSERT INTO users SELECT i, 'user ' || i FROM generate_series(1, 10) i")
    found.publish()
    # The server tells each statement, so that it can be seen which ranges are read.
    found.do(
        *(f"ALTER DATABASE {found.name} SET {one}" for one in ("log_statement = 'all'", "log_min_messages = 'log'"))
    )
    return found


def refuse(bad: Any) -> None:
    raise AssertionError(bad)


def progress(shop: Shop) -> RowsProgress:
    return RowsProgress(shop.root / "pg" / "shop" / "db" / "snapshot")


def read_before(shop: Shop, table: str = "orders") -> int:
    """How many ranges of a table are in files."""
    plan = progress(shop).found().plans.get(table)
    return 0 if plan is None else len(plan.read)


def copies(shop: Shop, table: str = "orders") -> list[str]:
    """The conditions of all statements that read a table so far."""
    said = (shop.server.folder / "log").read_text()
    return re.findall(rf'COPY \(SELECT [^\n]* FROM ONLY "public"\."{table}"(.*)\) TO STDOUT', said)


def first_range(shop: Shop, before: int) -> bool:
    """Whether the first range was read after the first `before` statements."""
    return any("ctid >=" not in one and "IN (" not in one for one in copies(shop)[before:])


def cut_off(shop: Shop, ranges: int = 5) -> None:
    """Read some ranges of the table, and then no more."""
    subscription = connected(shop)
    while read_before(shop) < ranges:
        found = subscription.receive(1000, 0.001)
        assert found is None or not found.frontier, "it is over"
    subscription.close()
    released(shop)


def checked(shop: Shop) -> list[Mapping[str, Any]]:
    """Read all, and compare with the database; return the inserted rows of the first place."""
    subscription = connected(shop)
    whole = received(subscription, lambda found: bool(found.frontier))
    subscription.close()
    released(shop)
    assert whole.frontier
    flow = shop.catch_up()
    for table in shop.tables:
        assert shop.held(flow, table) == shop.there(table)
        inserted = [row["id"] for row in shop.log(flow, table) if row["op"] == "insert"]
        assert len(inserted) == len(set(inserted))
    return [row for row in shop.log(flow, "orders") if row["op"] == "insert"]


def test_a_reading_that_was_cut_off_reads_the_rest_alone(shop: Shop) -> None:
    cut_off(shop)
    before, known = len(copies(shop)), read_before(shop)
    plan = progress(shop).found().plans["orders"]
    slots = shop.ask("SELECT slot_name, confirmed_flush_lsn FROM pg_replication_slots ORDER BY 1")
    inserted = checked(shop)
    again = copies(shop)[before:]
    assert len(again) == len(plan.ranges) - known
    assert all(
        f"'({page},0)'" not in condition.partition("<")[0] for condition in again for page in plan.read if page
    )
    assert len(inserted) == ROWS
    assert [one for one, _ in shop.ask("SELECT slot_name, 1 FROM pg_replication_slots ORDER BY 1")] == [
        one for one, _ in slots
    ]


def test_rows_that_change_meanwhile_are_read_again_by_key_and_are_all_of_one_place(shop: Shop) -> None:
    cut_off(shop)
    shop.do(
        "UPDATE orders SET who = 'new' WHERE id % 1000 = 0",
        "DELETE FROM orders WHERE id % 1000 = 1",
        "UPDATE orders SET id = id + 1000000 WHERE id % 1000 = 2",
        "INSERT INTO orders SELECT i, 'late' FROM generate_series(500001, 500100) i",
        "UPDATE orders SET who = 'twice' WHERE id = 500001",
        "DELETE FROM orders WHERE id = 500002",
        "DELETE FROM orders WHERE id = 777",
        "INSERT INTO orders VALUES (777, 'again')",
    )
    there = sorted((row["id"], row["who"]) for row in shop.there("orders"))
    inserted = checked(shop)
    assert sorted((row["id"], row["who"]) for row in inserted) == there
    assert {int(row["_sequence"]) >> 32 for row in inserted} == {int(inserted[0]["_sequence"]) >> 32}


def test_it_may_be_cut_off_again_and_again(shop: Shop) -> None:
    for turn in range(3):
        cut_off(shop, 4 * (turn + 1))
        shop.do(
            f"UPDATE orders SET n = n + 1 WHERE id % 3000 = {turn}", f"DELETE FROM orders WHERE id % 3001 = {turn}"
        )
    assert read_before(shop) >= 12
    checked(shop)


@pytest.mark.parametrize(
    "happened",
    [
        "VACUUM (FULL) orders",
        "ALTER TABLE orders ALTER COLUMN who TYPE varchar USING who || '!'",
        "ALTER TABLE orders DROP COLUMN n, ADD COLUMN n int DEFAULT 5",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "TRUNCATE orders",
    ],
)
def test_a_table_that_is_stored_otherwise_is_read_anew(happened: str, shop: Shop) -> None:
    cut_off(shop)
    with psycopg.connect(shop.address, autocommit=True) as connection:
        connection.execute(happened.encode())
        connection.execute("INSERT INTO orders VALUES (500001, 'after')")
    before = len(copies(shop))
    checked(shop)
    assert first_range(shop, before)


def test_a_table_whose_rows_nothing_tells_apart_is_read_anew(shop: Shop) -> None:
    shop.do("ALTER TABLE orders DROP CONSTRAINT orders_pkey", "ALTER TABLE orders REPLICA IDENTITY FULL")
    cut_off(shop)
    shop.do("UPDATE orders SET who = 'new' WHERE id % 1000 = 0", "DELETE FROM orders WHERE id % 1000 = 1")
    checked(shop)


def test_too_many_changes_are_not_followed_by_key(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegauge.sources.postgres.touched.MOST_KEYS", 100)
    cut_off(shop)
    shop.do("UPDATE orders SET who = 'new' WHERE id <= 200")
    before = len(copies(shop))
    checked(shop)
    assert first_range(shop, before)
    assert not any("IN (SELECT" in one for one in copies(shop)[before:])


def test_a_range_whose_file_is_gone_is_read_again(shop: Shop) -> None:
    cut_off(shop)
    first = next(iter(progress(shop).found().plans["orders"].read.values()))
    Path(first[0].file).unlink()
    shop.do("UPDATE orders SET who = 'new' WHERE id % 1000 = 0")
    checked(shop)


def test_a_slot_that_somebody_moved_on_gives_too_little_to_go_on(shop: Shop) -> None:
    cut_off(shop)
    shop.do("UPDATE orders SET who = 'new' WHERE id % 1000 = 0")
    before = len(copies(shop))
    with psycopg.connect(shop.address, autocommit=True) as connection:
        connection.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", (shop.slot,))
    checked(shop)
    assert first_range(shop, before)


def test_a_server_that_ends_idle_transactions_soon_does_not_end_the_reading(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(task: Any) -> SnapshotReading:
        """A snapshot that is taken a while after it was exported, as where many changes are read before."""
        shop.ask("SELECT pg_sleep(0.5)")
        return SnapshotReading(task)

    monkeypatch.setattr("tidegauge.sources.postgres.server.SnapshotReading", late)
    cut_off(shop)
    shop.do("UPDATE orders SET who = 'new' WHERE id % 1000 = 0")
    shop.do(f"ALTER DATABASE {shop.name} SET idle_in_transaction_session_timeout = '100ms'")
    try:
        subscription = connected(shop)
        received(subscription, lambda found: bool(found.frontier))
        subscription.close()
    finally:
        shop.server.query(f"ALTER DATABASE {shop.name} RESET idle_in_transaction_session_timeout")
    released(shop)
    checked(shop)


def test_without_room_for_a_second_slot_it_waits_for_some_and_keeps_the_ranges(shop: Shop) -> None:
    cut_off(shop)
    known = progress(shop).found().plans["orders"].read
    taken = list[str]()
    with psycopg.connect(shop.address, autocommit=True) as connection:
        try:
            with suppress(psycopg.errors.ConfigurationLimitExceeded):
                while True:
                    taken.append(f"taken_{shop.name}_{len(taken)}")
                    connection.execute("SELECT pg_create_physical_replication_slot(%s)", (taken[-1],))
            subscription = connected(shop)
            with pytest.raises(SlotsExhausted):
                received(subscription, lambda found: bool(found.frontier))
            subscription.close()
        finally:
            for name in taken[:-1]:
                connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
    released(shop)
    assert progress(shop).found().plans["orders"].read == known
    checked(shop)


def test_a_log_that_ends_before_a_place_at_which_rows_were_read_is_another_one(shop: Shop) -> None:
    cut_off(shop)
    before = len(copies(shop))
    [(end,)] = shop.ask("SELECT pg_current_wal_flush_lsn()::text")
    progress(shop).attempt(Lsn.parse(end).value + (1 << 30))  # as if the server's files were put back since
    checked(shop)
    assert first_range(shop, before)


def test_a_key_of_several_columns_is_followed_whatever_its_types(
    logical: Server, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("tidegauge.sources.postgres.held.RANGE_BYTES", 64 * 8192)
    shop = Shop(logical, tmp_path)
    shop.do("CREATE TYPE color AS ENUM ('red', 'blue')", "CREATE DOMAIN code AS char(5)")
    columns = "a numeric, b code, c color, d bytea, at timestamptz, id bigint, n int, PRIMARY KEY (a, b, c, d, at)"
    shop.table("orders", columns)
    shop.do(
        "INSERT INTO orders SELECT i / 10.0, 'c' || i % 1000, (ARRAY['red', 'blue'])[i % 2 + 1]::color, "
        f"decode(md5(i::text), 'hex'), timestamptz '2026-01-01' + i * interval '1 s', i, 0 "
        f"FROM generate_series(1, {ROWS}) i"
    )
    shop.publish()
    cut_off(shop, 3)
    shop.do(
        "UPDATE orders SET n = 1 WHERE id % 1000 = 0",
        "UPDATE orders SET a = 5.500 WHERE id = 55",  # equal, and another text
        "UPDATE orders SET b = 'x', c = 'red' WHERE id % 1000 = 3",
        "DELETE FROM orders WHERE id % 1000 = 4",
    )
    there = {row["id"]: (row["a"], row["n"], row["b"]) for row in shop.there("orders")}
    subscription = connected(shop)
    whole = received(subscription, lambda found: bool(found.frontier))
    subscription.close()
    released(shop)
    source = shop.source().placed("shop", "db")
    rows = [row for _, batch in whole.batches for row in source.decode("orders", batch, refuse).to_pylist()]
    assert len(rows) == len(there)
    assert {row["id"]: (str(row["a"]), row["n"], row["b"]) for row in rows} == {
        key: (str(a), n, b) for key, (a, n, b) in there.items()
    }


Rows = dict[str, dict[int, int]]


class Oracle:
    """What the tables have at any place of the log, by another decoding of it (`test_decoding`, over SQL)."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.slot = shop, f"oracle_{shop.name}"
        shop.ask(f"SELECT pg_create_logical_replication_slot('{self.slot}', 'test_decoding')")
        self.ended: list[tuple[int, list[tuple[str, str, str]]]] = []

    def read(self) -> None:
        """Read all transactions: where each ends, and its changes."""
        changes: list[tuple[str, str, str]] = []
        query = (
            f"SELECT lsn::text, data FROM pg_logical_slot_get_changes('{self.slot}', NULL, NULL, 'include-xids', '0')"
        )
        for lsn, data in self.shop.ask(query):
            if data == "COMMIT":
                self.ended.append((Lsn.parse(lsn).value, changes))
            elif data == "BEGIN":
                changes = []
            elif found := re.fullmatch(r"table public\.(\w+): (\w+): (.*)", data):
                changes.append((found[1], found[2], found[3]))

    def at(self, frontiers: list[int]) -> Iterator[Rows]:
        """Yield the rows at each of these places, which grow: a frontier is one beyond a commit, or between two."""
        rows: Rows = {table: {} for table in driver.TABLES}
        number, last = 0, 0
        for frontier in frontiers:
            # Records begin at multiples of 8, so one beyond the beginning of a commit tells itself apart.
            while number < len(self.ended) and (
                self.ended[number][0] <= frontier or (frontier % 8 == 1 and last < frontier)
            ):
                last = self.ended[number][0]
                for change in self.ended[number][1]:
                    self._apply(rows, *change)
                number += 1
            yield rows

    @staticmethod
    def _apply(rows: Rows, table: str, kind: str, text: str) -> None:
        if table not in rows:
            return
        old, _, new = text.rpartition("new-tuple: ") if "new-tuple: " in text else ("", "", text)
        values = {name: int(value) for name, value in re.findall(r"(\w+)\[\w+\]:(-?\d+)", new)}
        if gone := re.search(r"old-key: id\[bigint\]:(\d+)", old):
            del rows[table][int(gone[1])]
        if kind == "DELETE":
            del rows[table][values["id"]]
        else:
            rows[table][values["id"]] = values["n"]


def writer(shop: Shop, seed: int, over: threading.Event) -> None:
    """Transactions of any kind, on and on, also when the server is away for a while."""
    dice = random.Random(seed)
    fresh = 1_000_000 * (seed + 1)
    while not over.is_set():
        with suppress(psycopg.Error), psycopg.connect(shop.address) as connection:
            while not over.wait(0.002):
                table = dice.choice(driver.TABLES)
                fresh += 1
                some = dice.randint(1, 60_000)
                run: Callable[..., Any] = connection.execute
                match dice.randint(0, 5):
                    case 0 | 1:
                        run(f"UPDATE {table} SET n = n + 1 WHERE id = {some}")
                    case 2:
                        run(f"UPDATE {table} SET id = {fresh} WHERE id = {some}")
                    case 3:
                        run(f"INSERT INTO {table} VALUES ({fresh}, 1)")
                    case 4:
                        run(f"DELETE FROM {table} WHERE id = {some}")
                    case _:
                        run(f"DELETE FROM {table} WHERE id = {fresh - 1}")
                        run(
                            f"INSERT INTO {table} VALUES ({some}, 2) ON CONFLICT (id) DO UPDATE SET n = {table}.n + 7"
                        )
                if dice.random() < 0.7:
                    connection.rollback() if dice.random() < 0.1 else connection.commit()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_drivers_and_servers_that_die_at_any_instant_lose_no_row_and_keep_the_ranges(
    seed: int, own_logical: Server, tmp_path: Path
) -> None:
    shop, dice, over = Shop(own_logical, tmp_path), random.Random(seed), threading.Event()
    for table in driver.TABLES:
        shop.table(table, "id bigint PRIMARY KEY, n bigint")
    shop.publish()
    oracle = Oracle(shop)
    for table in driver.TABLES:
        shop.do(f"INSERT INTO {table} SELECT i, i % 7 FROM generate_series(1, 60000) i")
    writers = [threading.Thread(target=writer, args=(shop, 10 * seed + number, over)) for number in range(2)]
    for one in writers:
        one.start()
    command = [sys.executable, "-m", "tests.sources.postgres.driver", str(tmp_path), shop.dsn, shop.slot]
    environment = {**os.environ, "RANGE_BYTES": str(8 * 8192)}
    rows = RowsProgress(tmp_path / "pg" / "machine" / "db" / "snapshot")
    kept: list[int] = []
    try:
        for _ in range(6):
            running = subprocess.Popen([*command, "on"], stderr=subprocess.DEVNULL, env=environment)
            before = sum(len(plan.read) for plan in rows.found().plans.values())
            wanted = before + dice.randint(1, 15)
            deadline = time.monotonic() + 120
            while sum(len(plan.read) for plan in rows.found().plans.values()) < wanted:
                if running.poll() is not None or time.monotonic() > deadline or bound(tmp_path):
                    break
                time.sleep(0.005)
            if dice.random() < 0.4:
                own_logical.kill()
                own_logical.start()
                time.sleep(dice.uniform(0, 1))
            running.kill()
            running.wait()
            kept.append(sum(len(plan.read) for plan in rows.found().plans.values()))
    finally:
        over.set()
        for one in writers:
            one.join()
    subprocess.run([*command, "caught-up"], check=True, timeout=180, env=environment)
    assert max(kept) > 10, "nothing was kept"
    oracle.read()
    flow = driver.make(tmp_path, shop.dsn, shop.slot)
    epochs = [record.epoch for record, _ in tg.epochs(flow)]
    frontiers = frontiers_of(flow)
    logged = sorted(tg.read_arrow(flow, "log").to_pylist(), key=lambda row: (row["_epoch"], row["_sequence"]))
    alpha: dict[int, int] = {}
    for epoch, expected in zip(epochs, oracle.at([frontiers[epoch] for epoch in epochs]), strict=True):
        while logged and logged[0]["_epoch"] <= epoch:
            row = logged.pop(0)
            assert (row["id"] in alpha) == (row["op"] != "insert"), row  # none is lost, and none is there twice
            alpha.pop(row["id"], None)
            if row["op"] != "delete":
                alpha[row["id"]] = row["n"]
        assert alpha == expected["alpha"], f"epoch {epoch}"
        with suppress(EpochReplaced):  # later epochs were committed together with it
            assert by_id(flow, "alpha", epoch) == expected["alpha"], f"epoch {epoch}"
            assert by_id(flow, "beta", epoch) == expected["beta"], f"epoch {epoch}"
    assert not logged
    present = {table: dict(shop.ask(f"SELECT id, n FROM {table}")) for table in driver.TABLES}
    assert {table: by_id(flow, table, epochs[-1]) for table in driver.TABLES} == present


def by_id(flow: tg.Dataflow, table: str, epoch: int) -> dict[int, int]:
    return {row["id"]: row["n"] for row in tg.read_arrow(flow, table, as_of=epoch).to_pylist()}


def bound(root: Path) -> bool:
    """Whether all first rows are in files."""
    try:
        return bool(json.loads((root / "pg" / "machine" / "db" / "stream.json").read_text())["point"])
    except (FileNotFoundError, ValueError):
        return False


@pytest.mark.parametrize(
    ("kind", "made", "change"),
    [("numeric", "i::numeric", "id = id * 1.00"), ("ltree", "i::text::ltree", "a = 'y'")],
    ids=["equal, of another text", "of an extension"],
)
def test_rows_are_read_once_by_their_keys_of_any_type(
    logical: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, made: str, change: str
) -> None:
    monkeypatch.setattr("tidegauge.sources.postgres.held.RANGE_BYTES", 8 * 8192)
    monkeypatch.setattr("tidegauge.sources.postgres.snapshot._AT_ONCE", 50)
    shop = Shop(logical, tmp_path)
    if kind == "ltree":
        shop.do("CREATE EXTENSION ltree")
    shop.table("orders", f"id {kind} PRIMARY KEY, a text, i int")
    shop.do(f"INSERT INTO orders SELECT {made}, repeat('x', 200), i FROM generate_series(1, 3000) i")
    shop.publish()
    cut_off(shop, 3)
    shop.do(f"UPDATE orders SET {change} WHERE i % 10 = 0")
    subscription = connected(shop)
    received(subscription, lambda found: bool(found.frontier))
    subscription.close()
    released(shop)
    flow = shop.catch_up()
    read = sorted((row["id"], row["a"]) for row in shop.log(flow, "orders"))
    assert read == sorted(shop.ask("SELECT id::text, a FROM orders"))
