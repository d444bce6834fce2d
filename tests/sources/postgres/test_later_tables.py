"""Tables that are added to a source that runs already, and tables that are taken out of it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.postgres import Server
from tests.sources.database.followed import at_epochs, listed
from tests.sources.postgres import driver
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_held_back import said
from tests.sources.postgres.test_machine import SUM, Machine, bound, possible, told
from tests.sources.postgres.test_refusals import SPREAD, connected, released
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.command import BeforeStart
from tidegauge.errors.databases import TableTakenBack
from tidegauge.errors.postgressource import PastAcknowledged, PublicationUnfit
from tidegauge.errors.push import StreamForgotten
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.lsn import WAL
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Store
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.database.later import joined_places
from tidegauge.sources.postgres import held


@pytest.fixture
def shop(logical: Server, tmp_path: Path) -> Shop:
    """A shop whose orders are followed already, with a table of users that is not."""
    made = Shop(logical, tmp_path)
    made.table("orders", "id int PRIMARY KEY, n int")
    made.do("INSERT INTO orders SELECT n, n FROM generate_series(1, 5) n")
    made.publish()
    made.catch_up()
    made.do("INSERT INTO orders VALUES (6, 6)")
    made.catch_up()
    return made


def add_users(shop: Shop) -> None:
    """Have a table with rows, in the publication and among the tables of the flow."""
    shop.table("users", "id int PRIMARY KEY, name text")
    shop.do("INSERT INTO users SELECT n, 'user ' || n FROM generate_series(1, 1000) n")
    shop.do("ALTER PUBLICATION shop ADD TABLE users")


def connected_at(shop: Shop, place: int = 0, **options: Any) -> Any:
    """A subscription from a place on, by default from the one that is bound."""
    store = Store.open(f"sqlite:///{shop.root}/flow.db", env=tg.Env())
    known = store.load("shop").sources["db"]
    store.close()
    frontier = Frontier({WAL: place}) if place else known.table.frontier
    return connected(shop, frontier, Bound(frontier=frontier, identity=known.identity), **options)


def refuse(bad: Any) -> None:
    raise AssertionError(bad)


def test_a_table_that_is_added_has_all_its_rows_and_every_change_since(shop: Shop) -> None:
    add_users(shop)
    flow = shop.catch_up()
    assert shop.held(flow, "users") == shop.there("users")
    assert len(shop.log(flow, "users")) == 1000
    shop.do("UPDATE users SET name = 'x' WHERE id = 7", "DELETE FROM users WHERE id = 8")
    shop.do("INSERT INTO orders VALUES (7, 7)")
    (shop.root / "pg/shop/db/later/of a driver that died").mkdir()
    flow = shop.catch_up()
    for table in ("users", "orders"):
        assert shop.held(flow, table) == shop.there(table)
    assert [row["op"] for row in shop.log(flow, "users")][1000:] == ["update", "delete"]
    assert not list((shop.root / "pg/shop/db/later").iterdir())
    assert "users: begins at epoch" in said(tg.status(flow))
    with pytest.raises(BeforeStart, match=r"start=None"):
        tg.read_arrow(flow, "users", as_of=0)
    assert len(shop.held(flow, "orders", as_of=0)) == 5


def test_the_stream_of_the_others_does_not_wait_for_a_table_that_is_added(shop: Shop) -> None:
    add_users(shop)
    flow = shop.flow()
    with psycopg.connect(shop.address) as other:
        other.execute("LOCK TABLE users IN ACCESS EXCLUSIVE MODE")
        with flow.start(engine=tg.LocalEngine(threads=2)):
            for number in range(7, 10):
                shop.do(f"INSERT INTO orders VALUES ({number}, {number})")
                eventually(lambda: len(shop.held(flow, "orders")) == number)  # noqa: B023
            assert not joined_places(SourceFolder(str(shop.root / "pg/shop/db")))
            other.execute("UPDATE users SET name = 'late' WHERE id <= 3")
            other.commit()
            eventually(lambda: shop.held(flow, "users") == shop.there("users"))
    assert len(shop.held(flow, "orders")) == 9


def test_a_run_until_it_has_caught_up_waits_for_a_table_that_is_added_however_the_log_grows(shop: Shop) -> None:
    add_users(shop)
    ended = threading.Thread(target=shop.catch_up)
    with psycopg.connect(shop.address) as other:
        other.execute("LOCK TABLE users IN ACCESS EXCLUSIVE MODE")
        ended.start()
        flow = shop.flow()
        for number in range(7, 10):
            shop.do(f"INSERT INTO orders VALUES ({number}, {number})")
            eventually(lambda: len(shop.held(flow, "orders")) == number or not ended.is_alive())  # noqa: B023
        assert ended.is_alive()
        other.commit()
    ended.join()
    assert shop.held(flow, "users") == shop.there("users")


def test_what_changes_while_rows_are_read_is_given_where_the_table_joins_and_always_the_same(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_users(shop)
    begun, go = threading.Event(), threading.Event()

    def waiting(*given: Any) -> Any:
        begun.set()
        assert go.wait(SPREAD)
        return held.held(*given)

    monkeypatch.setattr("tidegauge.sources.postgres.snapshot.held", waiting)
    source = shop.source().placed("shop", "db")

    def given(start: int = 0, before_it_goes_on: Sequence[str] = ()) -> tuple[int, pa.Table]:
        subscription, done = connected_at(shop, start), 0
        try:
            while True:
                found = subscription.receive(1000, 0.05)
                rows = [] if found is None else [batch for stream, batch in found.batches if stream == "users"]
                if rows:
                    place = rows[0]["_offset"][0].as_py()
                    at_once = [batch for batch in rows if batch["_offset"][0].as_py() == place]
                    subscription.acknowledge(Frontier({WAL: place}))  # all but these
                    decoded = [source.decode("users", batch, refuse) for batch in at_once]
                    return place, pa.Table.from_batches(decoded)
                if begun.is_set() and before_it_goes_on and not done:
                    shop.do(*before_it_goes_on)
                    done = 1
                if done and found is not None:
                    go.set()
        finally:
            subscription.close()
            released(shop)

    changes = ["UPDATE users SET name = 'after' WHERE id = 2", "DELETE FROM users WHERE id = 3"]
    first = given(before_it_goes_on=changes)
    assert first[1]["_op"].to_pylist() == ["insert"] * 1000 + ["update", "delete"]
    assert first[1]["_sequence"].to_pylist() == sorted(first[1]["_sequence"].to_pylist())
    shop.do("UPDATE users SET name = 'later' WHERE id = 2")
    assert given(first[0]) == first


def test_a_table_that_is_taken_out_is_followed_no_more_and_holds_back_nothing(shop: Shop) -> None:
    add_users(shop)
    shop.catch_up()
    del shop.tables["users"]
    shop.do("UPDATE users SET name = 'unseen'", "INSERT INTO orders VALUES (7, 7)")
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")
    at = shop.ask("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    shop.do("INSERT INTO orders VALUES (8, 8)")
    shop.catch_up()
    shop.catch_up()
    assert shop.ask(f"SELECT '{shop.confirmed()}'::pg_lsn >= '{at}'::pg_lsn") == [(True,)]
    shop.tables["users"] = "id"
    shop.flow()
    with pytest.raises(TableTakenBack, match=r"public\.users"):
        connected_at(shop)
    del shop.tables["users"]
    shop.do("INSERT INTO orders VALUES (9, 9)")
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")


def test_an_added_table_that_cannot_be_read_holds_up_no_other(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It lacks its right, then the publication lacks it, then somebody has locked it; at last it joins."""
    monkeypatch.setattr("tidegauge.sources.postgres.subscription._LOOKS", 0.1)
    role = f"reader_{shop.name}"
    shop.do(f"CREATE ROLE {role} LOGIN REPLICATION", f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    shop.do(f"ALTER ROLE {role} SET lock_timeout = '100ms'")
    add_users(shop)
    shop.do(f"GRANT SELECT ON users TO {role}")
    shop.dsn = shop.server.address(shop.name, user=role)
    flow = shop.flow()
    shop.do(f"REVOKE SELECT ON users FROM {role}")
    waits = f"SELECT FROM pg_stat_activity WHERE usename = '{role}' AND wait_event_type = 'Lock'"
    number = 6

    def others_go_on() -> None:
        nonlocal number
        number += 1
        shop.do(f"INSERT INTO orders VALUES ({number}, {number})")
        eventually(lambda: len(shop.held(flow, "orders")) == number)

    with flow.start(engine=tg.LocalEngine(threads=2)) as run:
        eventually(lambda: "cannot read public.users" in caplog.text)
        others_go_on()
        eventually(lambda: "cannot read public.users" in str(run.status.sources[0].error))
        shop.do("ALTER PUBLICATION shop DROP TABLE users")
        eventually(lambda: "lacks the table public.users" in caplog.text)
        others_go_on()
        with psycopg.connect(shop.address) as other:
            shop.do("ALTER PUBLICATION shop ADD TABLE users")
            other.execute("LOCK TABLE users IN ACCESS EXCLUSIVE MODE")
            shop.do(f"GRANT SELECT ON users TO {role}")
            eventually(lambda: shop.ask(waits))  # for longer than the role's timeout, which ends nothing
            others_go_on()
            other.execute("UPDATE users SET name = 'late' WHERE id <= 3")
            other.commit()
        eventually(lambda: shop.held(flow, "users") == shop.there("users"))
        others_go_on()
        eventually(lambda: run.status.sources[0].state != "stalled")


def waiting_for_locks(shop: Shop) -> int:
    query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{shop.name}' AND wait_event_type = 'Lock'"
    return int(shop.ask(query)[0][0])


def test_who_waits_for_a_lock_on_an_added_table_ends_with_its_connection(shop: Shop) -> None:
    add_users(shop)
    with psycopg.connect(shop.address) as other:
        other.execute("LOCK TABLE users IN ACCESS EXCLUSIVE MODE")
        subscription = connected_at(shop)
        eventually(lambda: subscription.receive(1000, 0.05) is None and waiting_for_locks(shop) == 1)
        subscription.close()
        eventually(lambda: waiting_for_locks(shop) == 0)


def test_a_table_that_the_publication_lacks_is_refused_before_anything_runs(shop: Shop) -> None:
    shop.table("users", "id int PRIMARY KEY, name text")
    with pytest.raises(PublicationUnfit, match=r"lacks the table public\.users"):
        shop.flow()


def refused_with_users_alone(shop: Shop) -> None:
    """The flow refuses to run with the table of users, and goes on without it."""
    with pytest.raises(StreamForgotten, match="users"):
        shop.catch_up()
    del shop.tables["users"]
    shop.do("INSERT INTO orders VALUES (7, 7)")
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")


def test_a_source_whose_folder_is_gone_does_not_take_an_added_table_for_an_old_one(shop: Shop) -> None:
    add_users(shop)
    shop.catch_up()
    shutil.rmtree(shop.root / "pg")
    refused_with_users_alone(shop)


def test_a_folder_that_was_put_back_to_before_the_table_joined_does_not_give_its_rows_again(shop: Shop) -> None:
    shutil.copytree(shop.root / "pg", shop.root / "backup")
    add_users(shop)
    shop.catch_up()
    shutil.rmtree(shop.root / "pg")
    shutil.copytree(shop.root / "backup", shop.root / "pg")
    shop.do("DELETE FROM users WHERE id = 1")
    refused_with_users_alone(shop)


def test_an_output_that_comes_after_the_rows_of_an_added_table_is_told_so(shop: Shop) -> None:
    add_users(shop)
    shop.catch_up()
    shop.do("INSERT INTO users VALUES (1001, 'one more')")
    shop.catch_up()
    flow = tg.Dataflow("shop", store=f"sqlite:///{shop.root}/flow.db", tick=0.05)
    users = flow.source("db", shop.source()).table("users")
    flow.sink("again", users, tg.DeltaSink(str(shop.root / "again"), envelope="upsert", key="id", order="_sequence"))
    with flow.start(engine=tg.LocalEngine(threads=2)):
        eventually(lambda: isinstance(tg.status(flow).sources[0].error, PastAcknowledged))


def check(machine: Machine, flow: tg.Dataflow) -> tuple[int, int]:
    """Compare at each epoch; return how many have both tables, and how many have the first one alone."""
    both = alone = 0
    frontiers = bound(flow)
    for epoch, rows in at_epochs(flow, driver.TABLES):
        there = {table: listed(found) for table, found in rows.items() if found.num_rows}
        assert "beta" in there or not both, f"epoch {epoch}: it was there"
        states = possible(machine.known, frontiers[epoch])
        if "beta" in there:
            assert sum(row[1] for found in there.values() for row in found) == SUM, f"epoch {epoch}"
            both += 1
        elif there:
            alone += 1
        if there and states is not None:
            assert there in [{table: state[table] for table in there} for state in states], f"epoch {epoch}"
    return both, alone


def play(server: Server, root: Path, seed: int, rounds: int) -> None:
    """Follow one table of the machine, and then both, with drivers and servers killed at random."""
    machine = Machine(Shop(server, root), random.Random(seed))
    machine.begin()
    shop, dice = machine.shop, machine.dice
    shop.do("INSERT INTO beta SELECT i, 0, repeat('x', 100), NULL FROM generate_series(100, 5000) i")
    machine.known.append((machine.at(), machine.at(), machine.state()))
    command = [sys.executable, "-m", "tests.sources.postgres.driver", str(root), shop.dsn, shop.slot]
    alone = {**os.environ, "TABLES": "alpha", "RANGE_BYTES": str(16 * 8192)}
    both = {**alone, "TABLES": "alpha,beta"}
    subprocess.run([*command, "caught-up"], check=True, timeout=180, env=alone)
    machine.alone()
    subprocess.run([*command, "caught-up"], check=True, timeout=180, env=alone)
    for _ in range(rounds):
        running = subprocess.Popen([*command, "on"], env=both)
        before = told(root)
        try:
            if dice.random() < 0.7:
                eventually(lambda before=before: told(root) > before)  # type: ignore[misc]
            for _ in range(dice.randint(1, 6)):
                machine.together() if dice.random() < 0.3 else machine.alone()
            if dice.random() < 0.4:
                server.kill()
                server.start()
                machine.alone()
        finally:
            running.send_signal(signal.SIGKILL)
            running.wait()
    subprocess.run([*command, "caught-up"], check=True, timeout=180, env=both)
    flow = driver.make(root, shop.dsn, shop.slot)
    state = machine.state()
    for table in driver.TABLES:
        assert listed(tg.read_arrow(flow, table)) == state[table]
    with_both, _ = check(machine, flow)
    assert with_both >= 1


def test_an_added_table_is_the_database_s_from_its_first_epoch_on_whoever_is_killed(
    own_logical: Server, tmp_path: Path
) -> None:
    play(own_logical, tmp_path, 1, 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
def test_an_added_table_is_the_database_s_from_its_first_epoch_on_in_longer_lives(
    seed: int, own_logical: Server, tmp_path: Path
) -> None:
    play(own_logical, tmp_path, seed, 6)
