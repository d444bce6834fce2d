"""A store whose file is moved, removed or restored under a driver: the driver stops, and a second one that goes on
with what is at the path has every row once."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.flow import side_by_side
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.history import StoreBehindTable


class Shop:
    """A folder with a flow, and drivers that run it."""

    def __init__(self, root: Path, server: subprocess.Popen[str]) -> None:
        self.root = root
        self.server = server
        self.store = root / "state" / "shop.db"
        (root / "in").mkdir()

    @property
    def flow(self) -> tg.Dataflow:
        return side_by_side.make(self.root)

    def add(self, *orders: int) -> None:
        """Add to upstream, in one piece."""
        made = self.root / f"{orders[0]}.csv"
        made.write_text("id\n" + "".join(f"{order}\n" for order in orders))
        made.rename(self.root / "in" / made.name)

    def drive(self) -> int:
        """Start a driver and wait until it has nothing left to do, or has ended."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(f"{self.root}\n")
        self.server.stdin.flush()
        pid = int(self.server.stdout.readline())
        eventually(lambda: self.said(pid), within=60)
        return pid

    def said(self, pid: int) -> list[str]:
        log = self.root / f"{pid}.log"
        return log.read_text().splitlines() if log.exists() else []

    def end(self, pid: int) -> str:
        """Wait for the end of a driver, and return what ended it."""
        eventually(lambda: any(line.startswith("ended") for line in self.said(pid)), within=60)
        return self.said(pid)[-1].removeprefix("ended ")

    def stop(self, pid: int) -> str:
        os.kill(pid, signal.SIGTERM)
        return self.end(pid)

    def rows(self, output: str) -> list[int]:
        return sorted(tg.read_arrow(self.flow, output).column("id").to_pylist())

    def copy(self) -> Path:
        """A whole copy of the store, which nobody has open."""
        return Path(shutil.copy(self.store, self.root / "backup.db"))


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    made = subprocess.Popen(
        [sys.executable, "-m", "tests.flow.side_by_side"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield made
    assert made.stdin is not None
    made.stdin.close()
    made.wait(timeout=60)


@pytest.fixture
def shop(tmp_path: Path, server: subprocess.Popen[str]) -> Shop:
    """A flow that has run and is caught up, with nobody who runs it."""
    made = Shop(tmp_path, server)
    made.add(1, 2)
    made.flow.run("caught-up", engine=tg.LocalEngine(threads=1))
    return made


# Each puts a copy in place that knows nothing of the driver: what that has written is in the -wal.


def move_aside(shop: Shop) -> None:
    copy = shop.copy()
    for part in sorted(shop.store.parent.iterdir()):
        part.rename(part.with_name(f"old-{part.name}"))
    copy.rename(shop.store)


def rename_folder(shop: Shop) -> None:
    copy = shop.copy()
    shop.store.parent.rename(shop.root / "renamed")
    shop.store.parent.mkdir()
    copy.rename(shop.store)


def switch_link(shop: Shop) -> None:
    """Behind the path is a link, which is pointed elsewhere in one step."""
    (shop.root / "another").mkdir()
    shop.copy().rename(shop.root / "another" / "shop.db")
    new = shop.root / "new"
    new.symlink_to("../another/shop.db")
    new.replace(shop.store)


@pytest.mark.parametrize("replace", [move_aside, rename_folder, switch_link])
def test_a_driver_whose_store_was_replaced_stops_and_the_next_one_has_every_row_once(
    shop: Shop, replace: Callable[[Shop], None]
) -> None:
    if replace is switch_link:
        shop.store.rename(shop.root / "first.db")
        shop.store.symlink_to("../first.db")
    first = shop.drive()
    replace(shop)
    second = shop.drive()
    shop.add(3, 4)
    assert shop.end(first) == "TG-0250"
    eventually(lambda: tg.status(shop.flow).sources[0].lag == 0)
    assert shop.stop(second) == "well"
    assert (shop.rows("delta"), shop.rows("parquet")) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_a_driver_with_nothing_to_do_waits_for_a_store_that_is_moved_away_and_goes_on_when_it_is_back(
    shop: Shop,
) -> None:
    first = shop.drive()
    away = shop.store.parent.rename(shop.root / "away")
    eventually(lambda: shop.said(first) == ["waiting"])
    shop.add(3, 4)
    away.rename(shop.store.parent)
    eventually(lambda: shop.said(first) == ["driving"])
    eventually(lambda: len(shop.rows("parquet")) == 4)
    assert shop.stop(first) == "well"
    assert (shop.rows("delta"), shop.rows("parquet")) == ([1, 2, 3, 4], [1, 2, 3, 4])


@pytest.mark.parametrize("what", ["the store alone", "all of it", "its folder"])
def test_a_driver_whose_store_was_removed_stops_and_has_written_nothing_since(shop: Shop, what: str) -> None:
    first = shop.drive()
    before = [shop.rows("delta"), shop.rows("parquet")]
    backup = shop.copy()
    if what == "its folder":
        shutil.rmtree(shop.store.parent)
    for part in [shop.store] if what == "the store alone" else shop.store.parent.glob("*"):
        part.unlink()
    shop.add(3, 4)
    assert shop.end(first) == "TG-0250"
    assert shop.store not in shop.store.parent.glob("*"), "it was not made anew"
    for part in shop.store.parent.glob("*"):
        part.unlink()
    shop.store.parent.mkdir(exist_ok=True)
    backup.rename(shop.store)
    assert [shop.rows("delta"), shop.rows("parquet")] == before == [[1, 2], [1, 2]]
    shop.flow.run("caught-up", engine=tg.LocalEngine(threads=1))
    assert (shop.rows("delta"), shop.rows("parquet")) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_a_backup_that_is_copied_over_an_open_store_stops_its_driver_and_stays_as_it_was_copied(shop: Shop) -> None:
    """The file is the same, and so are its -wal and its -shm, which belong to what was in it."""
    backup = shop.copy()
    first = shop.drive()
    shop.add(3, 4)
    eventually(lambda: len(shop.rows("delta")) == len(shop.rows("parquet")) == 4)
    with closing(sqlite3.connect(shop.store)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shop.store.write_bytes(backup.read_bytes())
    shop.add(5, 6)
    assert shop.end(first) == "TG-0250"
    assert shop.store.read_bytes() == backup.read_bytes(), "nothing of the -wal was moved into it"
    for part in shop.store.parent.glob("shop.db-*"):
        part.unlink()
    with pytest.raises(StoreBehindTable):
        shop.rows("delta")
    tg.recover(shop.flow)
    second = shop.drive()
    eventually(lambda: len(shop.rows("delta")) == len(shop.rows("parquet")) == 6)
    assert shop.stop(second) == "well"
    assert shop.rows("delta") == shop.rows("parquet") == [1, 2, 3, 4, 5, 6]


def test_a_checkpoint_of_somebody_else_and_a_touched_file_are_no_replacement(shop: Shop) -> None:
    first = shop.drive()
    for order in (3, 4):
        shop.add(order)
        eventually(lambda order=order: order in shop.rows("parquet"))  # type: ignore[misc]
        with closing(sqlite3.connect(shop.store)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shop.store.touch()
    assert shop.stop(first) == "well"
    assert shop.rows("delta") == [1, 2, 3, 4]
