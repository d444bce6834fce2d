"""A store on a real PostgreSQL server: who gets in, what is durable, who waits for whom, what breaks in between."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres import Server, query
from tests.remap.store.raw import dump, sql
from tests.remap.store.test_store_crashes import NOW, drive
from tests.remap.store.wire import Loss, wire
from tests.waiting import eventually

from tidegauge.env import Env
from tidegauge.errors.store import (
    LeaseLost,
    StoreBusy,
    StoreNotReadable,
    StoreNotWritable,
    StoreUnreachable,
    UpperMismatch,
)
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import EXPIRY, LeaseHolder, SourceSpec, Store
from tidegauge.remap.store.connect import PAUSES, Database
from tidegauge.remap.store.lease import guard
from tidegauge.remap.store.postgres import SILENCE
from tidegauge.remap.store.silence import Listener

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "store.md"


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.place()


def at(positions: dict[str, int]) -> Proposal:
    return Proposal(frontier=Frontier(positions))


def bound(store: Store, url: str) -> tuple[int, list[tuple[int, str, int]], list[tuple[Any, ...]]]:
    """The upper, the bindings of `orders`, and every epoch of the store's database."""
    loaded = store.load("shop")
    return loaded.flow.upper, list(loaded.sources["orders"].table.changes()), sql(url, "SELECT epoch FROM timeline")


# Getting in


def mine(server: Server, *, secret: str = "", **settings: str) -> str:
    """The address of the database `shop` for the user `ada`, who needs a password."""
    more = "&".join(f"{key}={value}" for key, value in settings.items())
    return f"postgresql://ada{secret}@127.0.0.1:{server.port}/shop?{more}"


def test_a_password_comes_from_where_psql_takes_it_and_is_not_kept(
    postgres: Server, env: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreUnreachable, match="no password supplied"):
        Store.open(mine(postgres), env=env)
    with pytest.raises(StoreUnreachable, match="password authentication failed"):
        Store.open(mine(postgres, secret=":hunter3"), env=env)
    passes = tmp_path / "passes"
    passes.write_text("127.0.0.1:*:shop:ada:hunter2\n")
    passes.chmod(0o600)
    seen = []
    for given in ("PGPASSWORD", "PGPASSFILE", "the address", "its passfile"):
        with monkeypatch.context() as surroundings:
            if given.startswith("PG"):
                surroundings.setenv(given, "hunter2" if given == "PGPASSWORD" else str(passes))
            secret = ":hunter2" if given == "the address" else ""
            settings = {"passfile": str(passes)} if given == "its passfile" else {}
            store = Store.open(mine(postgres, secret=secret, **settings), env=env)
            store.acquire("shop", holder=LeaseHolder.current(env)).release()
            seen.append(store.url)
            store.close()
    place = postgres.address("shop")
    assert "hunter2" not in f"{seen} {dump(place)} {query(place, 'SELECT query FROM pg_stat_activity')}"


def test_what_the_address_says_of_tls_is_heeded(postgres: Server, url: str, env: Env) -> None:
    over_tcp = url.replace(f"host={postgres.folder}", "host=127.0.0.1")
    Store.open(f"{over_tcp}&sslmode=prefer", env=env).close()
    with pytest.raises(StoreUnreachable, match="server does not support SSL, but SSL was required"):
        Store.open(f"{over_tcp}&sslmode=require", env=env)


def test_a_database_that_is_not_there_is_named(postgres: Server, env: Env) -> None:
    with pytest.raises(StoreUnreachable, match='database "sohp" does not exist'):
        Store.open(postgres.address("sohp"), env=env)


def test_who_may_not_make_tables_is_told_so(postgres: Server, env: Env) -> None:
    with pytest.raises(StoreNotWritable, match="permission denied"):
        Store.open(mine(postgres, secret=":hunter2").replace("/shop", "/postgres"), env=env)


def test_who_may_not_read_a_store_is_told_so(url: str, env: Env, store: Store) -> None:
    assert store.flow("shop") is None
    sql(url, f"GRANT USAGE ON SCHEMA {url.rpartition('%3D')[2]} TO ada")
    with pytest.raises(StoreNotReadable, match=r"TG-0257.*permission denied for table store_layout"):
        Store.open(url.replace("postgres@", "ada:hunter2@"), env=env)


@pytest.mark.parametrize("why", ["permission denied", "read-only"])
def test_who_may_only_read_can_look_and_not_run(url: str, env: Env, store: Store, why: str) -> None:
    store.acquire("shop", holder=LeaseHolder.current(env)).release()
    if why == "read-only":  # as on a standby
        there = url.replace("options=", "options=-cdefault_transaction_read_only%3Don%20")
    else:
        there = url.replace("postgres@", "ada:hunter2@")
        sql(url, f"GRANT USAGE ON SCHEMA {url.rpartition('%3D')[2]} TO ada")
        sql(url, f"GRANT SELECT ON ALL TABLES IN SCHEMA {url.rpartition('%3D')[2]} TO ada")
    reader = Store.open(there, env=env)
    assert reader.flow("shop") == store.flow("shop")
    with pytest.raises(StoreNotWritable, match=why):
        reader.acquire("shop", holder=LeaseHolder.current(env))
    reader.close()


def test_a_database_that_cannot_hold_every_name_is_refused(postgres: Server, env: Env) -> None:
    postgres.query("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(StoreNotWritable, match=r"LATIN1, its encoding.*createdb -E UTF8"):
        Store.open(postgres.address("latin"), env=env)


# What holds without anybody asking for it


def setting(url: str, name: str) -> object:
    database = Database(url)
    with database.reading() as connection:
        found = connection.exec_driver_sql(f"SHOW {name}").scalar()
    database.close()
    return found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("synchronous_commit", "on"),
        ("lock_timeout", "10s"),
        ("idle_in_transaction_session_timeout", "15s"),
        ("application_name", "tidegauge"),
        ("transaction_isolation", "repeatable read"),
        ("client_encoding", "UTF8"),
    ],
)
def test_a_session_is_durable_patient_and_known_by_its_name(url: str, name: str, value: str) -> None:
    assert setting(url, name) == value
    assert SILENCE < EXPIRY, "who falls silent with a lock has let go of it when its lease may be taken over"


def test_a_default_of_the_server_that_loses_commits_is_not_taken_over(url: str) -> None:
    for name, given, holds in (
        ("synchronous_commit", "off", "on"),
        ("synchronous_commit", "local", "local"),
        ("lock_timeout", "7s", "7s"),
    ):
        assert setting(url.replace("options=", f"options=-c{name}%3D{given}%20"), name) == holds


# Two drivers


def test_a_driver_whose_lease_was_taken_over_while_it_waited_for_the_lock_writes_nothing(
    url: str, env: Env, store: Store, clock: Callable[[], datetime]
) -> None:
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
    database = Database(url)
    with ThreadPoolExecutor(1) as beside:
        with database.writing() as other:
            guard(other, lease)
            late = beside.submit(store.append, lease, expected=0, at=clock(), proposals={"orders": at({"p": 1})})
            eventually(lambda: sql(url, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
            other.exec_driver_sql("UPDATE leases SET token = 'f', holder = 'grace'")
        with pytest.raises(LeaseLost, match="grace"):
            late.result(timeout=30)
    database.close()
    assert bound(store, url) == (0, [], [])


def test_a_driver_that_is_frozen_in_the_middle_of_a_write_is_taken_over_from_and_writes_nothing(
    url: str, env: Env, store: Store, elsewhere: LeaseHolder
) -> None:
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    frozen = Database(url, sleep=lambda _: None)
    attempts: list[bool] = []

    def write(connection: Any) -> None:
        guard(connection, lease)
        attempts.append(True)
        connection.exec_driver_sql("UPDATE flows SET upper = 7")
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 200")
        later = Store.open(url, env=replace(env, now=lambda: env.now() + timedelta(seconds=EXPIRY)))
        later.acquire("shop", holder=elsewhere)  # waits for the lock, which the server takes from the frozen driver
        later.close()

    with pytest.raises(LeaseLost, match="grace"):
        frozen.write(write)
    frozen.close()
    assert (attempts, sql(url, "SELECT upper FROM flows")) == ([True], [(0,)])


def test_a_flow_that_others_keep_locked_is_busy_and_serves_again_afterwards(url: str, env: Env, store: Store) -> None:
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    pauses: list[float] = []
    hasty = Database(url.replace("options=", "options=-clock_timeout%3D5%20"), sleep=pauses.append)
    other = Database(url)
    with other.writing() as connection:
        guard(connection, lease)
        assert store.flow("shop") is not None, "who reads does not wait"
        with pytest.raises(StoreBusy):
            hasty.write(lambda connection: guard(connection, lease))
    assert pauses == list(PAUSES)
    hasty.write(lambda connection: guard(connection, lease))
    hasty.close()
    other.close()


# A server that goes away


def content(url: str) -> tuple[Any, ...]:
    """What is in a store, without its row numbers: those of a transaction that was undone are not used again."""
    store = Store.open(url, env=Env())
    loaded, epochs = store.load("shop"), store.epochs("shop")
    store.close()
    sources = {
        name: (list(s.table.changes()), s.table.upper, s.table.since, s.details, s.schema, str(s.failure))
        for name, s in loaded.sources.items()
    }
    return replace(loaded.flow, id=0), sources, str(loaded.outputs), epochs, sql(url, "SELECT * FROM leases")


def world(point: Callable[[str], None] = lambda _: None) -> Env:
    return Env(now=lambda: NOW, unique=lambda: "b" * 32, sleep=lambda _seconds: None, point=point)


@pytest.mark.parametrize("loss", ["question", "answer"])
def test_a_driver_all_of_whose_commits_are_lost_once_ends_where_an_undisturbed_one_does(
    postgres: Server, url: str, loss: Loss
) -> None:
    calm = postgres.place()
    drive(calm, world())
    with wire(postgres, loss) as line:

        def strike(point: str) -> None:
            line.broken = point.startswith("before")

        drive(line.address(url), world(strike))
        assert line.lost == 13
    assert content(url) == content(calm)


@pytest.mark.parametrize("loss", ["question", "answer"])
def test_an_append_whose_answer_was_lost_is_recognised_and_not_doubled(
    postgres: Server, url: str, env: Env, loss: Loss, clock: Callable[[], datetime]
) -> None:
    pauses: list[float] = []
    with wire(postgres, loss) as line:
        store = Store.open(line.address(url), env=replace(env, sleep=pauses.append))
        lease = store.acquire("shop", holder=LeaseHolder.current(env))
        store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
        line.broken = True
        assert store.append(lease, expected=0, at=clock(), proposals={"orders": at({"p": 5})}) == 0
        assert (line.lost, pauses) == (1, [PAUSES[0]])
        assert store.append(lease, expected=1, at=clock(), proposals={"orders": at({"p": 7})}) == 1
        assert bound(store, url) == (2, [(0, "p", 5), (1, "p", 7)], [(0,), (1,)])
        line.broken = True
        store.publish(lease, expected=0, upper=2, at=clock())
        assert line.lost == 2
        store.close()


def test_an_epoch_that_another_bound_meanwhile_is_not_taken_for_ones_own(
    postgres: Server, url: str, env: Env, clock: Callable[[], datetime]
) -> None:
    other = Store.open(url, env=env)
    lease = other.acquire("shop", holder=LeaseHolder.current(env))
    other.register(lease, sources={"orders": SourceSpec({})}, outputs={})

    def intrude(_seconds: float) -> None:
        other.append(lease, expected=0, at=clock(), proposals={"orders": at({"p": 5})})

    with wire(postgres, "question") as line:
        store = Store.open(line.address(url), env=replace(env, sleep=intrude))
        line.broken = True
        with pytest.raises(UpperMismatch):
            store.append(lease, expected=0, at=clock(), proposals={"orders": at({"p": 5})})
        store.close()
    assert bound(other, url) == (1, [(0, "p", 5)], [(0,)])
    other.close()


def test_a_session_that_is_ended_before_any_statement_of_an_append_is_begun_again(
    url: str, env: Env, clock: Callable[[], datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(url, env=replace(env, sleep=lambda _: None))
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
    left, execute = 0, psycopg.Cursor.execute

    def strike(cursor: Any, *given: Any, **settings: Any) -> Any:
        nonlocal left
        left -= isinstance(cursor.connection, Listener)
        if left == 0:
            left -= 1
            sql(url, f"SELECT pg_terminate_backend({cursor.connection.info.backend_pid}, 10000)")
        return execute(cursor, *given, **settings)

    monkeypatch.setattr(psycopg.Cursor, "execute", strike)
    epoch = 0
    for nth in range(1, 20):
        left = nth
        store.append(lease, expected=epoch, at=clock(), proposals={"orders": at({"p": epoch + 1})})
        epoch += 1
        if left > 0:  # an append has fewer statements than that
            break
    left = 0
    assert 4 < epoch < 15
    assert bound(store, url) == (epoch, [(e, "p", e + 1) for e in range(epoch)], [(e,) for e in range(epoch)])
    store.close()


def test_a_server_that_is_started_again_is_waited_for(
    postgres: Server, url: str, env: Env, clock: Callable[[], datetime]
) -> None:
    pauses: list[float] = []

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            postgres.start()

    store = Store.open(url, env=replace(env, sleep=wait))
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
    postgres.stop(stay=True)
    try:
        assert store.append(lease, expected=0, at=clock(), proposals={"orders": at({"p": 5})}) == 0
    finally:
        if len(pauses) < 2:
            postgres.start()
    assert pauses == list(PAUSES[:2])
    assert bound(store, url) == (1, [(0, "p", 5)], [(0,)])
    store.close()


@pytest.mark.long
def test_a_server_that_stays_away_stops_the_driver_which_then_waits_no_longer(
    postgres: Server, url: str, env: Env, clock: Callable[[], datetime]
) -> None:
    pauses: list[float] = []
    store = Store.open(url, env=replace(env, sleep=pauses.append))
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    postgres.stop(stay=True)
    try:
        with pytest.raises(StoreUnreachable):
            store.append(lease, expected=0, at=clock(), proposals={})
        assert pauses == list(PAUSES)
        with pytest.raises(StoreUnreachable):
            lease.release()
        assert pauses == list(PAUSES)
    finally:
        postgres.start()
    lease.release()
    assert sql(url, "SELECT * FROM leases") == []
    store.close()


# What the documentation says


def test_every_documented_query_gives_the_same_on_both_kinds_of_store(url: str, tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/store.db"
    for place in (url, file):
        drive(place, world())
        sql(place, "INSERT INTO holds VALUES (1, 'report', 0, '2026-11-20T17:00:00.000000Z')")
        sql(
            place,
            "INSERT INTO losses (source_id, epoch, partition, lower, upper, at, code, reason) "
            "VALUES (1, 1, 'p0', 0, 2, '2026-11-20T17:00:00.000000Z', 'TG-0601', 'gone')",
        )
    blocks = re.findall(r"### ([^\n]*\?)\n.*?```sql\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    values = {"flow": "shop", "source": "orders", "partition": "p0", "position": 1, "epoch": 1,
              "time": "2026-11-20T17:00:00.000000Z"}  # fmt: skip
    answers = 0
    for question, text in blocks:
        asked = re.sub(r":(\w+)", lambda name: repr(values[name[1]]), text)
        on_postgres = re.sub(r"json_extract\(([\w.]+), '\$\.(\w+)'\)", r"\1::json ->> '\2'", asked)
        found = sql(url, on_postgres)
        assert found == sql(file, asked), question
        answers += len(found)
    assert (len(blocks), answers > 12) == (12, True)
