"""The seam between the first rows and the stream, and everything that dies there: no row is lost, none doubled."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.postgres import Server
from tests.sources.postgres import driver
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_refusals import connected, received, released
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.postgressource import PastAcknowledged, ReplicaIdentityMissing, ServerAway
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.lsn import WAL, Lsn
from tidegauge.remap.frontier import ORIGIN, Frontier

ROWS = 2000


def rows_read(root: Path) -> int:
    """How many bytes of first rows are in files."""
    sizes = [one.stat().st_size for one in (root / "pg" / "shop" / "db" / "snapshot").rglob("*.part")]
    return sum(sizes)


def in_the_midst(shop: Shop, root: Path) -> Any:
    """A subscription that has read some of the first rows: too slowly to have read all before we look."""
    subscription = connected(shop, rate=40_000)
    while rows_read(root) < 1_000_000:
        found = subscription.receive(1000, 0.01)
        assert found is None or not found.frontier, "it is over"
    return subscription


def uppers(flow: tg.Dataflow) -> dict[str, int]:
    """The first epoch that each output lacks."""
    return {one.name: one.upper for one in tg.outputs(flow)}


@pytest.fixture
def shop(logical: Server, tmp_path: Path) -> Shop:
    found = Shop(logical, tmp_path)
    found.table("orders", "id bigint PRIMARY KEY, who text")
    found.table("users", "id bigint PRIMARY KEY, who text")
    found.do(f"INSERT INTO orders SELECT i, 'user ' || i FROM generate_series(1, {ROWS}) i")
    found.do("INSERT INTO users SELECT i, 'user ' || i FROM generate_series(1, 10) i")
    found.publish()
    return found


@dataclass(frozen=True)
class Gated(tg.ParquetSink):
    """A sink that takes nothing before its gate is open."""

    gate: threading.Event = field(default_factory=threading.Event, compare=False)

    def stage(self, schema: Any, *, job: str, task: int) -> Any:
        if not self.gate.is_set():
            raise OSError(28, "No space left on device")
        return tg.ParquetSink.stage(self, schema, job=job, task=task)


def gated(shop: Shop, gate: threading.Event) -> tg.Dataflow:
    """A flow of which one table takes rows, and the other not before the gate is open."""
    flow = tg.Dataflow("shop", store=f"sqlite:///{shop.root}/flow.db", tick=0.05)
    db = flow.source("db", shop.source())
    flow.sink("orders", db.table("orders").changelog("op"), tg.ParquetSink(str(shop.root / "orders")))
    flow.sink("users", db.table("users").changelog("op"), Gated(str(shop.root / "users"), gate=gate))
    return flow


def run_until(flow: tg.Dataflow, condition: Callable[[], object], *, within: float = 30.0) -> None:
    """Run a flow until something is so, and stop it."""
    with flow.start(engine=tg.LocalEngine(threads=2)):
        eventually(condition, within=within)


def test_t50_a_table_that_has_the_first_rows_waits_for_one_that_has_not_and_both_are_of_one_place(
    shop: Shop, tmp_path: Path
) -> None:
    gate = threading.Event()
    flow = gated(shop, gate)
    run_until(flow, lambda: uppers(flow)["orders"] > 0)
    assert uppers(flow)["users"] == 0
    # The database goes on before the other table has its rows. Its slot holds back all of this.
    shop.do("UPDATE users SET who = 'later'", "DELETE FROM orders WHERE id <= 100")
    gate.set()
    flow = gated(shop, gate)
    flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))
    orders, users = (tg.read_arrow(flow, name, as_of=0).to_pylist() for name in ("orders", "users"))
    assert sorted(row["id"] for row in orders) == list(range(1, ROWS + 1))
    assert {row["who"] for row in users} == {f"user {n}" for n in range(1, 11)}
    assert {int(row["_sequence"]) >> 32 for row in orders} == {int(row["_sequence"]) >> 32 for row in users}
    now = tg.read_arrow(flow, "users").to_pylist()
    assert len(now) == 20
    assert not (tmp_path / "pg" / "shop" / "db" / "snapshot").exists()


def test_t52_an_error_in_the_midst_of_the_first_rows_begins_them_again(shop: Shop, tmp_path: Path) -> None:
    shop.do("INSERT INTO orders SELECT i, repeat('x', 100) FROM generate_series(100001, 200000) i")
    subscription = in_the_midst(shop, tmp_path)
    mine = "datname = current_database() AND query LIKE 'COPY%'"
    assert (True,) in shop.ask(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}")
    with pytest.raises(ServerAway):
        received(subscription, lambda found: bool(found.frontier))
    subscription.close()
    released(shop)
    record = json.loads((tmp_path / "pg" / "shop" / "db" / "stream.json").read_text())
    assert record["point"] == 0  # nothing says that there is a snapshot
    shop.do("DELETE FROM orders WHERE id > 100010")
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")
    assert len(shop.log(flow, "orders")) == ROWS + 10
    assert shop.ask("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(1,)]


def test_a_snapshot_that_is_whole_and_not_bound_is_given_again_the_same(shop: Shop) -> None:
    subscription = connected(shop)
    whole = received(subscription, lambda found: bool(found.frontier))
    subscription.close()
    released(shop)
    shop.do("DELETE FROM orders")
    subscription = connected(shop)
    again = received(subscription, lambda found: bool(found.frontier))
    subscription.close()
    assert again.frontier == whole.frontier
    assert [(stream, rows.to_pylist()) for stream, rows in again.batches] == [
        (stream, rows.to_pylist()) for stream, rows in whole.batches
    ]


def test_what_commits_in_the_midst_of_the_first_rows_comes_right_after_them(shop: Shop, tmp_path: Path) -> None:
    shop.do("INSERT INTO orders SELECT i, repeat('x', 100) FROM generate_series(100001, 200000) i")
    subscription = in_the_midst(shop, tmp_path)
    shop.do("INSERT INTO orders VALUES (300000, 'meanwhile')", "DELETE FROM orders WHERE id = 1")
    whole = received(subscription, lambda found: bool(found.frontier))
    assert (
        sum(sum(rows["_count"].to_pylist()) for stream, rows in whole.batches if stream == "orders") == ROWS + 100_000
    )
    [(stream, rows)] = received(subscription, lambda found: bool(found.batches)).batches
    assert (stream, rows["_count"].to_pylist()) == ("orders", [2])
    subscription.close()


def test_what_commits_while_the_first_rows_are_read_is_neither_lost_nor_doubled(shop: Shop) -> None:
    shop.do("INSERT INTO orders SELECT i, repeat('x', 100) FROM generate_series(10001, 60000) i")
    going = threading.Event()

    def write() -> None:
        n = 1_000_000
        with psycopg.connect(shop.address, autocommit=True) as connection:
            while not going.is_set():
                n += 1
                connection.execute("INSERT INTO orders VALUES (%s, 'written')", (n,))
                connection.execute("DELETE FROM orders WHERE id = %s", (n - 1_000_000,))
                connection.execute("UPDATE users SET who = %s WHERE id = 1", (str(n),))

    writers = [threading.Thread(target=write)]
    for writer in writers:
        writer.start()
    try:
        shop.catch_up()
    finally:
        going.set()
        for writer in writers:
            writer.join()
    flow = shop.catch_up()
    for table in ("orders", "users"):
        assert shop.held(flow, table) == shop.there(table)
    inserted = [row["id"] for row in shop.log(flow, "orders") if row["op"] == "insert"]
    assert len(inserted) == len(set(inserted))


def test_a_transaction_that_is_open_when_the_slot_is_made_is_waited_for_and_comes_by_the_stream(shop: Shop) -> None:
    with psycopg.connect(shop.address) as connection:
        connection.execute("INSERT INTO users VALUES (77, 'open')")
        subscription = connected(shop)
        eventually(lambda: subscription.receive(10, 0.1) is not None)  # the end
        for _ in range(5):
            assert subscription.receive(10, 0.1) is None
        subscription.close()  # a stop does not wait for it
        connection.execute("INSERT INTO users VALUES (78, 'open')")
    released(shop)
    flow = shop.catch_up()
    assert shop.held(flow, "users") == shop.there("users")


def test_the_server_is_told_nothing_that_an_output_lacks(shop: Shop, tmp_path: Path) -> None:
    gate = threading.Event()
    gate.set()
    gated(shop, gate).run(until="caught-up", engine=tg.LocalEngine(threads=2))
    before = shop.confirmed()
    gate.clear()
    shop.do("INSERT INTO orders VALUES (100001, 'x')", "INSERT INTO users VALUES (100001, 'x')")
    commit = Lsn.parse(str(shop.ask("SELECT pg_current_wal_flush_lsn()")[0][0]))

    flow = gated(shop, gate)
    had = uppers(flow)["orders"]
    replies: set[Any] = set()

    def told() -> bool:
        """Whether one table has the rows, and the server has heard from the flow a few times since."""
        if uppers(flow)["orders"] > had:
            replies.update(
                shop.ask("SELECT reply_time FROM pg_stat_replication JOIN pg_replication_slots ON pid = active_pid")
            )
        return len(replies) > 2

    run_until(flow, told)
    assert Lsn.parse(before) <= Lsn.parse(shop.confirmed()) < commit
    gate.set()
    gated(shop, gate).run(until="caught-up", engine=tg.LocalEngine(threads=2))
    assert Lsn.parse(shop.confirmed()) >= Lsn.parse(before)


def test_t54_a_database_in_which_nothing_of_ours_happens_moves_on(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.sources.postgres.subscription._IDLE", 0.2)
    shop.do("CREATE TABLE other (n int)")
    shop.catch_up()
    begun = Lsn.parse(shop.confirmed())

    def moved() -> bool:
        shop.do("INSERT INTO other SELECT generate_series(1, 1000)")
        return Lsn.parse(shop.confirmed()).value > begun.value + 100_000

    run_until(shop.flow(), moved)


def test_what_is_acknowledged_does_not_come_again_and_the_rest_does(shop: Shop) -> None:
    subscription = connected(shop)
    start = received(subscription, lambda found: bool(found.frontier)).frontier
    for n in range(5):
        shop.do(f"INSERT INTO users VALUES ({1000 + n}, 'x')")
    places: list[int] = []
    while len(places) < 5:
        found = received(subscription, lambda found: bool(found.batches))
        places += [one for _, rows in found.batches for one in rows["_offset"].to_pylist()]
    subscription.acknowledge(Frontier({WAL: places[2] + 1}))
    eventually(lambda: Lsn.parse(shop.confirmed()).value >= places[2] + 1)
    subscription.close()
    released(shop)
    bound = Bound(frontier=Frontier({WAL: places[4] + 1}), identity=subscription.identity)
    again = connected(shop, Frontier({WAL: places[2] + 1}), bound)
    found = received(again, lambda found: bool(found.batches))
    assert [one for _, rows in found.batches for one in rows["_offset"].to_pylist()] == places[3:]
    again.close()
    released(shop)
    with pytest.raises(PastAcknowledged):
        connected(shop, start, bound)
    with pytest.raises(PastAcknowledged):
        connected(shop, ORIGIN, bound)


def test_a_server_that_is_killed_and_comes_back_is_read_on(own_logical: Server, tmp_path: Path) -> None:
    shop = Shop(own_logical, tmp_path)
    shop.table("orders", "id bigint PRIMARY KEY, who text")
    shop.publish()
    with shop.flow().start(engine=tg.LocalEngine(threads=2)):
        for n in range(3):
            shop.do(f"INSERT INTO orders SELECT i, 'x' FROM generate_series({n * 100 + 1}, {n * 100 + 100}) i")
            own_logical.kill()
            own_logical.start()
        eventually(lambda: held(tmp_path / "orders") == 300, within=60)
    assert shop.held(shop.flow(), "orders") == shop.there("orders")


def held(table: Path) -> int:
    """How many rows a Delta table has that may not be there yet."""
    if not (table / "_delta_log").exists():
        return 0
    return sum(pq.read_metadata(path).num_rows for path in DeltaTable(str(table)).file_uris())


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_driver_that_is_killed_at_any_instant_of_the_first_rows_begins_them_again_or_goes_on(
    seed: int, own_logical: Server, tmp_path: Path
) -> None:
    shop, dice, over = Shop(own_logical, tmp_path), random.Random(seed), threading.Event()
    for table in driver.TABLES:
        shop.table(table, "id bigint PRIMARY KEY, n int")
    shop.publish()
    shop.do("INSERT INTO alpha SELECT i, i % 7 FROM generate_series(1, 300000) i", "INSERT INTO beta VALUES (1, 1)")

    def write() -> None:
        number = 1_000_000
        with psycopg.connect(shop.address, autocommit=True) as connection:
            while not over.wait(0.005):
                number += 1
                connection.execute("INSERT INTO alpha VALUES (%s, 1)", (number,))
                connection.execute("DELETE FROM alpha WHERE id = %s", (number - 1_000_000,))

    command = [sys.executable, "-m", "tests.sources.postgres.driver", str(tmp_path), shop.dsn, shop.slot]
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(8):
            running = subprocess.Popen([*command, "on"], stderr=subprocess.DEVNULL)
            with suppress(subprocess.TimeoutExpired):
                running.wait(dice.uniform(0.8, 3))
            running.kill()
            running.wait()
    finally:
        over.set()
        writer.join()
    subprocess.run([*command, "caught-up"], check=True, timeout=180)
    flow = driver.make(tmp_path, shop.dsn, shop.slot)
    rows = sorted((row["id"], row["n"]) for row in tg.read_arrow(flow, "alpha").to_pylist())
    assert rows == shop.ask("SELECT id, n FROM alpha ORDER BY id")
    inserted = [row["id"] for row in tg.read_arrow(flow, "log").to_pylist() if row["op"] == "insert"]
    assert len(inserted) == len(set(inserted))


def test_what_somebody_puts_right_stalls_the_source_by_name_and_it_goes_on_by_itself(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.sources.postgres.subscription._LOOKS", 0.2)
    shop.catch_up()
    going = shop.flow()
    with going.start(engine=tg.LocalEngine(threads=2)) as run:

        def error() -> str:
            [source] = run.status.sources
            return "" if source.error is None else source.error.code

        eventually(lambda: error() == "")
        shop.do("ALTER TABLE users REPLICA IDENTITY NOTHING")
        eventually(lambda: error() == ReplicaIdentityMissing.code)
        shop.do("ALTER TABLE users REPLICA IDENTITY DEFAULT")
        shop.do("INSERT INTO users VALUES (11, 'x')")
        eventually(lambda: error() == "" and uppers(going)["users"] > 1)
    flow = shop.catch_up()
    assert shop.held(flow, "users") == shop.there("users")
