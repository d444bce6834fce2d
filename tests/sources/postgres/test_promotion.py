"""A standby that has synchronised the slot is promoted (17 and newer): the flow goes on there, or says why not."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import Server
from tests.sources.postgres import driver
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_failover import failure, followed_orders, moved, replayed
from tests.sources.postgres.test_machine import Machine, check, told
from tests.sources.postgres.test_versions import server as server
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.running import UpstreamRecreated

pytestmark = [pytest.mark.long, pytest.mark.parametrize("server", [17, 18], indirect=True)]


@pytest.fixture
def shop(server: Server, tmp_path: Path) -> Shop:
    return followed_orders(server, tmp_path)


@pytest.fixture
def standby(server: Server) -> Iterator[Server]:
    """A standby to which slots are synchronised."""
    server.query("SELECT pg_create_physical_replication_slot('standby')")
    made = server.standby(primary_slot_name="standby", hot_standby_feedback="on", sync_replication_slots="on")
    try:
        yield made
    finally:
        made.stop()


def synchronised(shop: Shop, standby: Server) -> None:
    """Wait until the standby has the slot, to stay there after a promotion."""
    query = f"SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_name = '{shop.slot}'"
    eventually(lambda: standby.query(query) == [(True,)], within=90)


def cut_off(standby: Server) -> None:
    """Keep from the standby what is written from now on."""
    standby.query("ALTER SYSTEM SET primary_conninfo = ''")
    standby.query("SELECT pg_reload_conf()")
    eventually(lambda: standby.query("SELECT FROM pg_stat_wal_receiver") == [])


def test_the_flow_goes_on_where_the_slot_is_and_the_old_server_that_comes_back_is_refused(
    shop: Shop, standby: Server
) -> None:
    old = shop.dsn, shop.address
    synchronised(shop, standby)
    shop.do("INSERT INTO orders VALUES (6, 6)")
    shop.catch_up()
    shop.do("INSERT INTO orders VALUES (7, 7)", "DELETE FROM orders WHERE id = 1")  # is read on the other server
    replayed(shop, standby)
    moved(shop, standby)
    standby.query("SELECT pg_promote()")
    shop.do("UPDATE orders SET n = 8 WHERE id = 6")
    for number in (9, 10):
        shop.do(f"INSERT INTO orders VALUES ({number}, {number})")
        flow = shop.catch_up()
        assert shop.held(flow, "orders") == shop.there("orders")
    changes = [(row["op"], row["id"]) for row in shop.log(flow, "orders")[5:]]
    assert changes == [("insert", 6), ("insert", 7), ("delete", 1), ("update", 6), ("insert", 9), ("insert", 10)]
    here = shop.dsn, shop.address
    shop.server.start()
    shop.dsn, shop.address = old
    shop.do("INSERT INTO orders VALUES (11, 1)")
    assert isinstance(failure(shop), UpstreamRecreated)
    shop.dsn, shop.address = here
    tg.resume(shop.flow(), "db")
    shop.do("INSERT INTO orders VALUES (11, 2)")
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")


def test_a_standby_that_lacks_a_part_of_the_log_that_was_read_is_another_upstream(
    shop: Shop, standby: Server
) -> None:
    synchronised(shop, standby)
    replayed(shop, standby)
    cut_off(standby)
    shop.do("INSERT INTO orders VALUES (6, 6)")
    shop.catch_up()
    moved(shop, standby)
    standby.query("SELECT pg_promote()")
    shop.do("INSERT INTO orders VALUES (6, 66)")
    found = failure(shop)
    assert isinstance(found, UpstreamRecreated)
    assert "resume FLOW db " in str(found)


def test_a_server_that_waits_for_its_standby_gives_nothing_that_the_standby_lacks(
    shop: Shop, standby: Server
) -> None:
    synchronised(shop, standby)
    shop.server.query("ALTER SYSTEM SET synchronized_standby_slots = 'standby'")
    shop.server.query("SELECT pg_reload_conf()")
    shop.do("INSERT INTO orders VALUES (6, 6)")
    flow = shop.catch_up()
    replayed(shop, standby)
    cut_off(standby)
    shop.do("INSERT INTO orders VALUES (7, 7)")
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'WaitForStandbyConfirmation'"
    with flow.start(engine=tg.LocalEngine(threads=2)):
        eventually(lambda: shop.server.query(waits) == [(1,)])
    assert [row["id"] for row in shop.held(flow, "orders")][-1] == 6
    moved(shop, standby)
    standby.query("SELECT pg_promote()")
    shop.do("INSERT INTO orders VALUES (7, 77)")
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")


def test_the_tables_are_the_database_s_at_each_epoch_whoever_is_killed_before_and_after(
    server: Server, standby: Server, tmp_path: Path
) -> None:
    machine = Machine(Shop(server, tmp_path), random.Random(1))
    machine.begin()
    shop, dice = machine.shop, machine.dice

    def command(how: str) -> list[str]:
        return [sys.executable, "-m", "tests.sources.postgres.driver", str(tmp_path), shop.dsn, shop.slot, how]

    for turn in range(4):
        if turn == 0:
            subprocess.run(command("caught-up"), check=True, timeout=180)
            synchronised(shop, standby)
        running, before = subprocess.Popen(command("on")), told(tmp_path)
        try:
            for _ in range(dice.randint(2, 5)):
                machine.alone()
            if dice.random() < 0.7:
                eventually(lambda before=before: told(tmp_path) > before)  # type: ignore[misc]
            if turn == 1:  # the driver is still there
                replayed(shop, standby)
                moved(shop, standby)
                standby.query("SELECT pg_promote()")
        finally:
            running.kill()
            running.wait()
    subprocess.run(command("caught-up"), check=True, timeout=180)
    flow = driver.make(tmp_path, shop.dsn, shop.slot)
    assert {one: machine.held(tg.read_arrow(flow, one)) for one in driver.TABLES} == machine.state()
    assert check(machine, flow)[0] >= 3
