"""Opening a store: which URLs, what a new one is, and what is refused before anything is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.store import InvalidStoreUrl, NotAStore, StoreBusy, StoreFailed, StoreNotWritable, StoreTooNew
from tidegauge.remap.store import Holder, OutputSpec, Store
from tidegauge.remap.store.connect import Database, shown
from tidegauge.remap.store.schema import LAYOUT


def test_a_new_store_is_made_with_its_folder_and_found_again(tmp_path: Path, env: Env) -> None:
    url = f"sqlite:///{tmp_path}/new/folder/store.db"
    first = Store.open(url, env=env)
    lease = first.acquire("shop", holder=Holder.current(env))
    first.close()
    again = Store.open(url, env=env)
    found = again.flow("shop")
    assert found is not None
    assert (found.incarnation, found.upper, found.published, found.since) == (lease.incarnation, 0, 0, 0)
    again.close()


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


@pytest.mark.parametrize(
    "url",
    [
        "mysql://root:hunter2@db/shop",
        "sqlite+aiosqlite:///shop.db",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:shop.db?uri=true",
        "postgresql://ada:hunter2@db",
        "shop.db",
        "",
        "hunter2",
        "postgresql://ada:hunter2@db:port/shop",
        "sqlite:///{tmp}/shop.db?timeout=soon&password=hunter2",
    ],
)
def test_a_url_that_no_store_can_have_is_refused(url: str, env: Env, tmp_path: Path) -> None:
    with pytest.raises(InvalidStoreUrl) as caught:
        Store.open(url.replace("{tmp}", str(tmp_path)), env=env)
    assert "hunter2" not in str(caught.value)
    assert "sqlite:///shop.db" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:hunter2@127.0.0.1:1/shop",
        "postgresql://ada@127.0.0.1:1/shop?password=hunter2&sslpassword=hunter2",
        "postgresql+nosuchdriver://ada:hunter2@127.0.0.1:1/shop",
    ],
)
def test_a_password_is_never_shown(url: str, env: Env) -> None:
    with pytest.raises(TidegaugeError) as caught:
        Store.open(url, env=env)
    chain: BaseException | None = caught.value
    while chain is not None:
        assert "hunter2" not in f"{chain!s} {chain!r}"
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    assert "hunter2" not in shown(make_url(url))
    assert "ada" in shown(make_url(url))


def test_a_store_of_a_newer_version_is_refused_and_left_as_it_is(url: str, env: Env, tmp_path: Path) -> None:
    Store.open(url, env=env).close()
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path)
    connection.execute("UPDATE store_layout SET version = ?", (LAYOUT + 1,))
    connection.execute("DROP TABLE bindings")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreTooNew) as caught:
        Store.open(url, env=env)
    assert (caught.value.evidence["found"], caught.value.evidence["known"]) == (LAYOUT + 1, LAYOUT)
    assert path.read_bytes() == before


LAYOUT_1 = Path(__file__).with_name("layout_1.sql").read_text(encoding="utf-8")


def write_layout_1(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(LAYOUT_1)
    connection.close()


def shape(path: Path) -> dict[str, list[tuple[str, str, int, int]]]:
    """The columns of every table: name, type, whether NULL is refused, place in the key."""
    connection = sqlite3.connect(path)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {t: [(c[1], c[2], c[3], c[5]) for c in connection.execute(f"PRAGMA table_info({t})")] for t in tables}
    connection.close()
    return found


def test_a_store_of_layout_1_is_brought_forward_and_keeps_what_it_holds(url: str, env: Env, tmp_path: Path) -> None:
    write_layout_1(tmp_path / "store.db")
    store = Store.open(url, env=env)
    loaded = store.load("shop")
    assert (loaded.flow.incarnation, loaded.flow.upper, loaded.flow.published) == ("b" * 32, 2, 1)
    assert {name: o.source for name, o in loaded.outputs.items()} == {"raw": "orders", "clicks": "clicks"}
    assert loaded.outputs["raw"].config == {"kind": "delta", "path": "/lake/raw"}
    assert loaded.outputs["raw"].failure is None
    orders, clicks = loaded.sources["orders"], loaded.sources["clicks"]
    assert (orders.table.epoch_of("p0", 4), orders.table.epoch_of("p0", 5), orders.details["p0"]["path"]) == (
        0,
        1,
        "/in/1",
    )
    assert clicks.table.sealed_at == 1
    assert clicks.failure is not None
    assert clicks.failure[0] == 1

    lease = store.acquire("shop", holder=Holder.current(env))
    store.register(lease, sources={}, outputs={"late": OutputSpec("orders", {})})
    store.record_output_failure(lease, "late", 1, StoreBusy(url="x"))
    assert store.load("shop").outputs["late"].failure is not None
    store.close()

    Store.open(f"sqlite:///{tmp_path}/new.db", env=env).close()
    assert shape(tmp_path / "store.db") == shape(tmp_path / "new.db")


def test_of_several_that_open_an_older_store_at_once_one_brings_it_forward(
    url: str, env: Env, tmp_path: Path
) -> None:
    write_layout_1(tmp_path / "store.db")
    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(lambda _: Store.open(url, env=env), range(4)))
    for store in stores:
        assert store.load("shop").flow.upper == 2
        store.close()


def test_a_store_that_cannot_be_brought_forward_in_whole_stays_as_it_is(url: str, env: Env, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    write_layout_1(path)
    connection = sqlite3.connect(path)
    connection.execute("CREATE VIEW mine AS SELECT name, bytes FROM outputs")  # someone else's, and in the way
    connection.commit()
    connection.close()
    before = shape(path)
    with pytest.raises(StoreFailed, match="mine"):
        Store.open(url, env=env)
    assert shape(path) == before


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(url: str, env: Env, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"id,amount\n" * 1000)
    with pytest.raises(NotAStore, match="file is not a database"):
        Store.open(url, env=env)
    assert path.read_bytes() == b"id,amount\n" * 1000


def test_a_database_of_something_else_is_refused(url: str, env: Env, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.execute("CREATE TABLE flows (mine INTEGER)")
    connection.close()
    with pytest.raises(NotAStore, match="flows"):
        Store.open(url, env=env)


def test_a_damaged_file_is_reported(url: str, env: Env, tmp_path: Path) -> None:
    store = Store.open(url, env=env)
    store.acquire("shop", holder=Holder.current(env))
    store.close()
    path = tmp_path / "store.db"
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(NotAStore):
        Store.open(url, env=env).load("shop")


@pytest.mark.parametrize("path", ["file/store.db", "folder", "/proc/no/store.db"])
def test_a_place_that_cannot_be_written_is_reported(path: str, env: Env, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreNotWritable):
        Store.open(f"sqlite:///{tmp_path / path}", env=env)


def test_a_store_that_others_keep_locked_is_busy_and_serves_again_afterwards(
    url: str, env: Env, tmp_path: Path
) -> None:
    store = Store.open(f"{url}?timeout=0.01", env=replace(env, sleep=lambda _seconds: None))
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        store.acquire("shop", holder=Holder.current(env))
    assert store.flow("shop") is None
    other.execute("ROLLBACK")
    other.close()
    store.acquire("shop", holder=Holder.current(env)).release()
    store.close()


def test_two_stores_may_be_open_on_one_file(opened: Callable[[], Store], env: Env) -> None:
    one, two = opened(), opened()
    one.acquire("shop", holder=Holder.current(env))
    assert two.flow("shop") == one.flow("shop")
