"""A store in a SQLite file: its path, its durability, and files that are something else."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.disks import disk_image
from tests.forked import end_of

from tidegauge.env import Env
from tidegauge.errors.store import NotAStore, StoreAway, StoreBusy, StoreNotReadable, StoreNotWritable
from tidegauge.remap.store import LeaseHolder, Store
from tidegauge.remap.store.connect import Database


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def test_a_new_store_is_made_with_its_folder(tmp_path: Path, env: Env) -> None:
    Store.open(f"sqlite:///{tmp_path}/new/folder/store.db", env=env).close()
    assert (tmp_path / "new" / "folder" / "store.db").is_file()


def test_a_relative_path_is_resolved(tmp_path: Path, env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store.open("sqlite:///here.db", env=env)
    assert store.url == f"sqlite:///{tmp_path}/here.db"
    assert (tmp_path / "here.db").exists()
    store.close()


def test_what_is_committed_survives_a_power_cut(url: str, store: Store) -> None:
    database = Database(url)
    pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    with database.reading() as connection:
        found = [connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() for pragma in pragmas]
    database.close()
    assert found == ["wal", 2, 1, 10_000]


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(url: str, env: Env, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"id,amount\n" * 1000)
    with pytest.raises(NotAStore, match="file is not a database"):
        Store.open(url, env=env)
    assert path.read_bytes() == b"id,amount\n" * 1000


@pytest.mark.parametrize("path", ["file/store.db", "folder", "/proc/no/store.db"])
def test_a_place_that_cannot_be_written_is_reported(path: str, env: Env, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreNotWritable):
        Store.open(f"sqlite:///{tmp_path / path}", env=env)


@pytest.mark.parametrize("kept", ["file", "folder"])
def test_a_store_that_this_user_may_not_read_is_named(env: Env, kept: str) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not below the folders of pytest, which nobody else may search
        path = Path(folder) / "kept" / "store.db"
        Store.open(f"sqlite:///{path}", env=env).close()
        Path(folder).chmod(0o755)
        (path if kept == "file" else path.parent).chmod(0)
        assert end_of(refuses_to_read, f"sqlite:///{path}") == 0
        path.parent.chmod(0o755)


def refuses_to_read(url: str) -> None:
    if not os.getuid():  # root may read everything
        os.setgid(65534)
        os.setuid(65534)
    for look in (lambda: Store.open(url, env=Env()), lambda: Store.exists(url)):
        with pytest.raises(StoreNotReadable, match=r"TG-0257: the store sqlite:///.*store\.db cannot be read"):
            look()


def test_a_store_that_others_keep_locked_is_busy_and_serves_again_afterwards(
    url: str, env: Env, tmp_path: Path
) -> None:
    store = Store.open(f"{url}?timeout=0.01", env=replace(env, sleep=lambda _seconds: None))
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        store.acquire("shop", holder=LeaseHolder.current(env))
    assert store.flow("shop") is None
    other.execute("ROLLBACK")
    other.close()
    store.acquire("shop", holder=LeaseHolder.current(env)).release()
    store.close()


def test_of_a_disk_that_gave_errors_nothing_stays_open_also_of_transactions_under_way(tmp_path: Path) -> None:
    with disk_image(tmp_path / "image", tmp_path / "disk") as disk:
        database = Database(f"sqlite:///{disk.place}/store.db")
        database.write(lambda connection: connection.exec_driver_sql("CREATE TABLE written (n)"))
        with database.reading():
            disk.die()
            with pytest.raises(StoreAway):
                database.write(lambda connection: connection.exec_driver_sql("INSERT INTO written VALUES (1)"))
        disk.mend()
        database.write(lambda connection: connection.exec_driver_sql("INSERT INTO written VALUES (2)"))
        with database.reading() as connection:
            assert connection.exec_driver_sql("SELECT n FROM written").fetchall() == [(2,)]
        database.close()


def test_damage_that_is_seen_on_a_disk_that_cannot_be_read_is_none_of_the_store(tmp_path: Path) -> None:
    def malformed(_connection: object) -> None:
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    with disk_image(tmp_path / "image", tmp_path / "disk") as disk:
        database = Database(f"sqlite:///{disk.place}/store.db")
        database.write(lambda connection: connection.exec_driver_sql("CREATE TABLE written (n)"))
        disk.die()
        with pytest.raises(StoreAway, match="malformed"):
            database.write(malformed)
        disk.mend()
        database.close()
