"""Backups of a store that is in use, and the verification that a store and its tables belong together."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from tests.maintenance.rolledback import Shop
from tests.postgres import Server

import tidegauge as tg
from tidegauge.env import at_once
from tidegauge.errors.command import FlowNeverRan
from tidegauge.errors.history import BackupExists, BackupFailed, ServerBacksUp
from tidegauge.flow.runner import Runner


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, {"orders": "delta", "copy": "parquet"})


def test_a_backup_of_a_running_flow_is_whole_and_the_flow_goes_on_from_it(shop: Shop) -> None:
    shop.run(0, 1)
    runner = Runner(shop.flow().spec, tg.LocalEngine(threads=0), env=tg.Env(), spawn=at_once)
    shop.write(2)
    while runner.board.published < 3:
        runner.step()
    done = tg.backup(shop.flow(), shop.root / "backups" / "shop.db")
    assert Path(done.file).stat().st_size == done.bytes
    assert [path.name for path in Path(done.file).parent.iterdir()] == ["shop.db"]
    runner.close()
    shop.run(3)
    shop.put_back(Path(done.file))
    assert tg.recover(shop.flow()).upper == 4
    shop.run(4)
    assert shop.rows() == Counter(range(5))
    assert tg.verify(shop.flow()).problems == ()


def test_a_backup_replaces_nothing_and_leaves_nothing_behind_when_it_fails(shop: Shop) -> None:
    with pytest.raises(FlowNeverRan):
        tg.backup(shop.flow(), shop.root / "copy.db")
    shop.run(0)
    there = shop.root / "there.db"
    there.write_text("mine")
    with pytest.raises(BackupExists):
        tg.backup(shop.flow(), there)
    assert there.read_text() == "mine"
    with pytest.raises(BackupFailed):
        tg.backup(shop.flow(), there / "inside.db")
    assert sorted(path.name for path in shop.root.iterdir() if path.name.startswith(".")) == []


def test_a_store_on_a_server_is_backed_up_by_the_server_and_recovered_like_any_other(
    tmp_path: Path, postgres: Server
) -> None:
    shop = Shop(tmp_path, {"orders": "parquet"}, store=postgres.place())
    shop.run(0, 1, 2)
    with pytest.raises(ServerBacksUp) as caught:
        tg.backup(shop.flow(), tmp_path / "copy.db")
    assert "pg_dump" in caught.value.next_step
    shop.store = postgres.place()  # another one, and empty: the first is lost
    assert tg.recover(shop.flow()).upper == 3
    shop.run(3)
    assert shop.rows() == Counter(range(4))
    assert tg.verify(shop.flow()).problems == ()


def test_what_is_well_is_verified_whatever_was_compacted_or_added(shop: Shop) -> None:
    shop.run(0, 1, 2)
    found = tg.verify(shop.flow())
    assert (found.problems, found.epochs, found.files, found.recoverable) == ((), 3, 6, (0, 3))
    tg.compact(shop.flow(), before=1)
    shop.outputs["late"] = "parquet"
    shop.run(3)
    found = tg.verify(shop.flow())
    assert (found.problems, found.since, found.epochs) == ((), 1, 2)


def test_what_is_wrong_is_said(shop: Shop) -> None:
    shop.run(0, 1, 2)
    with closing(sqlite3.connect(shop.file)) as store, store:
        store.execute("UPDATE changes SET position = position - 1 WHERE epoch = 1")
    [file] = (shop.root / "lake" / "copy" / "from_epoch=000000000000").glob("part-*")
    os.truncate(file, 10)
    [gone, *_] = (shop.root / "lake" / "orders").glob("part-*")
    gone.unlink()
    problems = tg.verify(shop.flow()).problems
    assert [problem.partition(":")[0] for problem in problems] == ["store", "output orders", "output copy"]
    assert "epoch 1" in problems[0]
    assert "cannot be read" in problems[1]
    assert "has 10 bytes" in problems[2]
