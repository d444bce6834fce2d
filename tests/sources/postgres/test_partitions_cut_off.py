"""First rows of partitioned tables that are cut off, or come later, or are read by drivers that are killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.postgres import Server
from tests.sources.postgres import driver
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_cut_off import progress
from tests.sources.postgres.test_partitions import (
    GONE,
    LOADED,
    all_ended,
    differences,
    done,
    partitioned,
    publish,
    same,
)
from tests.sources.postgres.test_refusals import connected, released
from tests.waiting import eventually

import tidegauge as tg

ROWS = 40_000
MADE = "CREATE TABLE {0}_4 PARTITION OF {0} FOR VALUES FROM (30) TO (40)"


@pytest.fixture
def shop(logical: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A table of several partitions, each of some ranges, and a small table."""
    monkeypatch.setattr("tidegauge.sources.postgres.held.RANGE_BYTES", 16 * 8192)
    found = Shop(logical, tmp_path)
    partitioned(found, "orders")
    found.do(f"INSERT INTO orders SELECT i, i % 30, repeat('x', 100) FROM generate_series(10001, {ROWS}) i")
    found.table("users", "id int PRIMARY KEY, name text")
    publish(found)
    return found


def read(shop: Shop) -> dict[str, int]:
    """How many ranges of each partition are in files."""
    return {name: len(plan.read) for name, plan in progress(shop).found().plans.items() if name != "users"}


def cut_off(shop: Shop, ranges: int) -> None:
    subscription = connected(shop)
    while sum(read(shop).values()) < ranges:
        found = subscription.receive(1000, 0.001)
        assert found is None or not found.frontier, "it is over"
    subscription.close()
    released(shop)


def test_a_reading_that_was_cut_off_goes_on_with_the_partitions_that_stayed(shop: Shop) -> None:
    cut_off(shop, 20)
    before = progress(shop).found()
    changes = [
        MADE,
        "INSERT INTO {0} SELECT i, 30, 'new' FROM generate_series(100000, 100100) i",
        "UPDATE {0} SET day = (day + 11) % 30, who = 'moved' WHERE id % 700 = 0",
        "UPDATE {0} SET who = 'other' WHERE id % 701 = 0",
        "DELETE FROM {0} WHERE id % 703 = 0",
    ]
    done(shop, "orders", changes, at_once=False)
    flow = same(shop)
    inserted = [row["id"] for row in shop.log(flow, "orders") if row["op"] == "insert"]
    assert sorted(inserted) == sorted(row["id"] for row in shop.there("orders"))
    assert sum(read_before > 0 for read_before in (len(one.read) for one in before.plans.values())) > 1


AWAY = [
    "ALTER TABLE {0} DETACH PARTITION {0}_1",
    "UPDATE {0}_1 SET who = 'while it was away' WHERE id % 3 = 0",
    "DELETE FROM {0}_1 WHERE id % 7 = 0",
    "ALTER TABLE {0} ATTACH PARTITION {0}_1 FOR VALUES FROM (0) TO (10)",
]


@pytest.mark.parametrize("change", [AWAY, LOADED, *(one for one, _ in GONE.values())], ids=["away", "loaded", *GONE])
def test_partitions_that_come_and_go_while_it_is_cut_off_are_read_as_they_are_at_last(
    shop: Shop, change: list[str]
) -> None:
    """Nothing was given, so nothing is wrong."""
    cut_off(shop, 20)
    done(shop, "orders", change, at_once=False)
    flow = same(shop)
    assert {one.state for one in tg.status(flow).outputs} == {"live"}


def test_a_partitioned_table_that_comes_later_has_all_rows_and_ends_as_the_others_do(shop: Shop) -> None:
    later = {"orders": shop.tables.pop("orders")}
    shop.catch_up()
    shop.do("INSERT INTO users VALUES (100, 'ada')")
    shop.catch_up()
    shop.tables |= later
    same(shop)
    done(shop, "orders", [MADE, "INSERT INTO {0} VALUES (100000, 30, 'new')"], at_once=False)
    same(shop)
    done(shop, "orders", ["DROP TABLE {0}_2"], at_once=False)
    assert "orders_2 was dropped" in all_ended(shop, "orders")["orders"]


def test_drivers_that_are_killed_at_any_instant_lose_no_row_of_a_partition(shop: Shop) -> None:
    rng = random.Random(5)
    shop.tables = {"orders": "id"}
    command = [
        sys.executable,
        "-m",
        "tests.sources.postgres.driver",
        str(shop.root),
        shop.dsn,
        shop.slot,
        "caught-up",
    ]
    environment = {**os.environ, "RANGE_BYTES": str(16 * 8192), "TABLES": "orders"}
    day = 30
    for turn in range(8):
        at = rng.randrange(1, 40)
        one = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(lambda: one.poll() is not None or sum(read(shop).values()) >= at or started(shop))  # noqa: B023
        shop.do(
            f"CREATE TABLE orders_at_{day} PARTITION OF orders FOR VALUES FROM ({day}) TO ({day + 10})",
            f"INSERT INTO orders SELECT i, {day}, 'late' FROM generate_series({turn + 1}00000, {turn + 1}00099) i",
        )
        shop.do(f"UPDATE orders SET day = {day + 1}, who = 'moved' WHERE id % 500 = {turn}")
        shop.do(f"DELETE FROM orders WHERE id % 501 = {turn}")
        day += 10
        one.kill()
        one.wait()
    done_at_last = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done_at_last.returncode == 0, done_at_last.stderr
    flow = driver.make(shop.root, shop.dsn, shop.slot, ["orders"])
    assert not differences(shop, flow, "orders")


def started(shop: Shop) -> Any:
    """Whether the rows were given."""
    return (shop.root / "orders" / "_delta_log").is_dir()
