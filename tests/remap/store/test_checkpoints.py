"""SQLite's own checkpoints write into a store's file while it is open: no replacement, however they come."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tidegauge.env import Env
from tidegauge.remap.store import Lease, LeaseHolder, Store
from tidegauge.remap.store.storefile import GuardedConnection, StoreFile


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def whole(path: Path) -> bool:
    """Whether the file can be read by itself: without its -wal, and with nothing missing in it."""
    try:
        with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
            connection.execute("SELECT id, incarnation, upper FROM flows").fetchall()
            return bool(connection.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)])
    except sqlite3.Error:
        return False


def test_a_checkpoint_that_readers_hold_up_is_no_replacement(
    tmp_path: Path, store: Store, lease: Lease, env: Env, bind: Callable[[int, dict[str, int]], int]
) -> None:
    """It leaves out the pages that have changed since a reader began: what is in the file then was never true."""
    choose = random.Random(3)
    path = tmp_path / "store.db"
    readers: list[sqlite3.Connection] = []
    torn = 0
    for epoch in range(300):
        bind(epoch, {"sales": 10 * epoch})
        if choose.random() < 0.5:
            store.acquire(f"flow-{epoch}", holder=LeaseHolder.current(env)).release()
        if choose.random() < 0.5:
            reader = sqlite3.connect(path, isolation_level=None)
            reader.execute("BEGIN")
            reader.execute("SELECT upper FROM flows").fetchall()
            readers.append(reader)
        if choose.random() < 0.3:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            torn += not whole(path)
        while len(readers) > choose.randrange(4):
            readers.pop(0).close()
    assert torn > 10


def test_flows_of_which_a_checkpoint_left_out_half_are_no_replacement(tmp_path: Path) -> None:
    """The flows outgrow their page. A checkpoint writes the page that points to the new ones, and not these."""
    path = tmp_path / "store.db"
    with closing(GuardedConnection(path, isolation_level=None)) as driver:
        driver.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;"
            "CREATE TABLE flows (id INTEGER PRIMARY KEY, incarnation TEXT, upper INT, published INT, since INT);"
            "CREATE TABLE other (id INTEGER PRIMARY KEY, incarnation TEXT, upper INT, published INT, since INT);"
        )
        insert = "INSERT INTO {} SELECT value, printf('%040d', value), 0, 0, 0 FROM json_each(?)"
        driver.execute(insert.format("other"), [str(list(range(1, 301)))])
        driver.execute(insert.format("flows"), [str(list(range(1, 40)))])
        driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file = StoreFile(path, url="sqlite:///store.db")
        file.opened(driver)
        driver.execute("DELETE FROM other")
        driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        driver.execute(insert.format("flows"), [str(list(range(40, 200)))])
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT upper FROM flows").fetchall()
            driver.execute("UPDATE flows SET upper = 1 WHERE id % 2 = 0")
            driver.execute("PRAGMA wal_checkpoint(PASSIVE)")
        assert not whole(path)
        driver.execute("BEGIN IMMEDIATE")
        file.check(driver, writes=True)
        driver.execute("ROLLBACK")
