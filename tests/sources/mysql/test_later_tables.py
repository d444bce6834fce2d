"""Tables that are added to a source that runs already, and tables that are taken out of it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.mariadb import MariaDb
from tests.mysql import MySql
from tests.sources.mysql.store import Store
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.command import BeforeStart
from tidegauge.errors.databases import TableTakenBack
from tidegauge.errors.push import StreamForgotten
from tidegauge.maintenance.resume import resume
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Store as FlowStore
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.mysql.firstrows import RowsTransaction
from tidegauge.sources.mysql.server import DistantBinlogServer
from tidegauge.sources.mysql.servers import ServerKind
from tidegauge.sources.mysql.subscription import BinlogSubscription

pytestmark = pytest.mark.long


@pytest.fixture
def store(server: MariaDb, tmp_path: Path) -> Store:
    """A store whose orders are followed already."""
    made = Store(server, tmp_path)
    made.table("orders", "id int PRIMARY KEY, n int")
    made.do("INSERT INTO orders VALUES (1, 1), (2, 2)")
    made.catch_up()
    made.do("INSERT INTO orders VALUES (3, 3)")
    made.catch_up()
    return made


def add_users(store: Store) -> None:
    """Have a table with rows among the tables of the flow."""
    store.table("users", "id int PRIMARY KEY, name varchar(50)")
    store.do(store.server.spoken("INSERT INTO users SELECT seq, concat('user ', seq) FROM seq_1_to_300"))


def test_a_table_that_is_added_has_all_its_rows_and_every_change_since(store: Store) -> None:
    add_users(store)
    flow = store.catch_up()  # the log stands still
    assert store.held(flow, "users") == store.there("users")
    assert [row["op"] for row in store.log(flow, "users")] == ["insert"] * 300
    store.do("UPDATE users SET name = 'x' WHERE id = 7", "DELETE FROM users WHERE id = 8")
    store.do("INSERT INTO orders VALUES (4, 4)")
    (store.root / "my/store/db/later/of a driver that died").mkdir()
    flow = store.catch_up()
    for table in ("users", "orders"):
        assert store.held(flow, table) == store.there(table)
    assert [row["op"] for row in store.log(flow, "users")][300:] == ["update", "delete"]
    assert not list((store.root / "my/store/db/later").iterdir())
    with pytest.raises(BeforeStart, match=r"start=None"):
        tg.read_arrow(flow, "users", as_of=0)
    assert len(store.held(flow, "orders", as_of=0)) == 2


def held_up(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Have the reading of rows wait after its transaction has begun: return what tells so, and what lets it go on."""
    begun, go = threading.Event(), threading.Event()
    rows = RowsTransaction.rows

    def waiting(self: RowsTransaction, *given: Any) -> Any:
        begun.set()
        assert go.wait(60)
        yield from rows(self, *given)

    monkeypatch.setattr(RowsTransaction, "rows", waiting)
    return begun, go


def bound_by(store: Store) -> Frontier:
    """The position that is bound."""
    kept = FlowStore.open(f"sqlite:///{store.root}/flow.db", env=tg.Env())
    found = kept.load("store").sources["db"].table.frontier
    kept.close()
    return found


def connected_at(store: Store, start: Frontier | None = None) -> Any:
    """A subscription from a position on, by default from the one that is bound."""
    kept = FlowStore.open(f"sqlite:///{store.root}/flow.db", env=tg.Env())
    known = kept.load("store").sources["db"]
    kept.close()
    frontier = known.table.frontier if start is None else start
    setup = replace(store.source().placed("store", "db").setup, filed=1 << 13)
    return BinlogSubscription(setup, frontier, Bound(frontier=frontier, identity=known.identity))


def refuse(bad: Any) -> None:
    raise AssertionError(bad)


def test_what_changes_while_rows_are_read_is_given_where_the_table_joins_and_always_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_users(store)
    begun, go = held_up(monkeypatch)
    source = store.source().placed("store", "db")
    changes = [
        "UPDATE users SET name = 'after' WHERE id = 2",
        "DELETE FROM users WHERE id = 3",
        "UPDATE users SET id = 1000 WHERE id = 4",
        "INSERT INTO users SELECT id + 2000, repeat('x', 50) FROM users WHERE id < 500",
        "INSERT INTO orders VALUES (10, 10)",
    ]

    def given(start: Frontier | None = None) -> tuple[Frontier, list[tuple[str, pa.Table]]]:
        """Return where the table joined, and what came up to there of each table."""
        subscription, rows = connected_at(store, start), list[tuple[str, pa.RecordBatch]]()
        try:
            done = start is not None
            while True:
                found = subscription.receive(1000, 0.05)
                if found is not None:
                    rows += [(one, source.decode(one, batch, refuse)) for one, batch in found.batches]
                    if any(one == "users" for one, _ in found.batches):
                        break
                    subscription.acknowledge(found.frontier)
                if begun.is_set() and not done:
                    store.do(*changes)
                    done = True
                go_on = any(one == "orders" for one, _ in rows)  # the others do not wait
                go.set() if go_on else None
        finally:
            subscription.close()
        both = ("orders", "users")
        return found.frontier, [(one, pa.Table.from_batches([b for s, b in rows if s == one])) for one in both]

    first = given()
    users = first[1][1][1]
    assert users["_op"].to_pylist() == ["insert"] * 300 + ["update", "delete", "delete", "insert"] + ["insert"] * 298
    assert users["_sequence"].to_pylist() == sorted(users["_sequence"].to_pylist())
    store.do("UPDATE users SET name = 'later' WHERE id = 2")
    again = given(bound_by(store))
    assert again[1][0] == first[1][0]
    assert again[1][1][1].slice(0, len(users)) == users
    flow = store.catch_up()
    for table in ("users", "orders"):
        assert store.held(flow, table) == store.there(table)


def test_tables_that_become_others_while_they_are_read_are_read_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if type(store.server) is MySql:
        pytest.skip("at MySQL 5.6 they do not: such a statement waits until the rows are read (test_mysql)")
    add_users(store)
    store.table("items", "id int PRIMARY KEY, n int")
    store.table("notes", "id int PRIMARY KEY, n int")
    for table in ("items", "notes"):
        store.do(f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3)")
    begun, go = held_up(monkeypatch)
    flow = store.flow()
    first_rows, read = DistantBinlogServer.first_rows, list[bool]()

    @contextmanager
    def emptied_when_read(*given: Any) -> Iterator[Any]:
        with first_rows(*given) as transaction:
            yield transaction
        read.append(True)
        if len(read) == 1:
            store.do(
                "TRUNCATE TABLE users", "INSERT INTO users VALUES (1, 'anew')", "INSERT INTO orders VALUES (5, 5)"
            )
            eventually(lambda: len(store.held(flow, "orders")) == 5)

    monkeypatch.setattr(DistantBinlogServer, "first_rows", emptied_when_read)
    with flow.start(engine=tg.LocalEngine(threads=2)):
        assert begun.wait(60)
        store.do("CREATE TABLE other LIKE items", "INSERT INTO other VALUES (7, 7)")
        store.do("RENAME TABLE items TO gone, other TO items", "INSERT INTO items VALUES (8, 8)")
        store.do("ALTER TABLE notes ADD COLUMN more int DEFAULT 5", "UPDATE notes SET n = 4 WHERE id = 3")
        store.do("INSERT INTO orders VALUES (4, 4)")
        eventually(lambda: len(store.held(flow, "orders")) == 4)
        go.set()
        store.do("INSERT INTO items VALUES (9, 9)", "DELETE FROM notes WHERE id = 1")
        eventually(lambda: len(read) > 1)
    flow = store.catch_up()
    assert "retry transaction" in caplog.text
    assert "TRUNCATE TABLE users" in caplog.text
    assert caplog.text.count("TG-0963") >= 2
    for table in ("users", "items", "orders"):
        assert store.held(flow, table) == store.there(table)
    assert store.held(flow, "notes") == [{"id": 2, "n": 2}, {"id": 3, "n": 4}]
    assert {row["op"] for row in store.log(flow, "users")} == {"insert"}


def test_an_added_table_that_cannot_be_read_holds_up_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no key, then it is gone, then the user may not read it; at last it joins."""
    monkeypatch.setattr("tidegauge.sources.mysql.subscription._LOOKS", 0.1)
    add_users(store)
    flow = store.flow()
    store.do("ALTER TABLE users DROP PRIMARY KEY")
    number = 3

    def others_go_on() -> None:
        nonlocal number
        number += 1
        store.do(f"INSERT INTO orders VALUES ({number}, {number})")
        eventually(lambda: len(store.held(flow, "orders")) == number)

    with flow.start(engine=tg.LocalEngine(threads=2)) as run:
        eventually(lambda: "no primary key" in caplog.text)
        others_go_on()
        eventually(lambda: "no primary key" in str(run.status.sources[0].error))
        store.do("RENAME TABLE users TO away")
        eventually(lambda: "another name" in caplog.text)
        others_go_on()
        store.do("ALTER TABLE away ADD PRIMARY KEY (id)", "RENAME TABLE away TO users")
        eventually(lambda: store.held(flow, "users") == store.there("users"))
        others_go_on()
        eventually(lambda: run.status.sources[0].state != "stalled")


def test_a_table_that_is_taken_out_is_followed_no_more(store: Store) -> None:
    before = bound_by(store)
    add_users(store)
    store.catch_up()
    del store.tables["users"]
    store.do("UPDATE users SET name = 'unseen'", "INSERT INTO orders VALUES (4, 4)")
    flow = store.catch_up()
    assert store.held(flow, "orders") == store.there("orders")
    subscription = connected_at(
        store, before
    )  # where an output of the others has not even what came before it joined
    try:
        given = subscription.receive(1000, 0.05)

        def all_is_given() -> bool:
            nonlocal given
            given = subscription.receive(1000, 0.05) or given
            return bool(bound_by(store).less_equal(given.frontier))

        eventually(all_is_given)
        assert given.frontier == given.end
    finally:
        subscription.close()
    store.tables["users"] = "id"
    store.flow()
    with pytest.raises(TableTakenBack, match="users"):
        connected_at(store)
    del store.tables["users"]
    store.table("items", "id int PRIMARY KEY, n int")
    store.do("INSERT INTO items VALUES (1, 1)")
    flow = store.catch_up()
    assert store.held(flow, "items") == store.there("items")


def test_a_table_that_joined_and_is_taken_out_before_it_was_bound_holds_nothing_up(store: Store) -> None:
    add_users(store)
    subscription = connected_at(store)
    try:
        while True:
            found = subscription.receive(1000, 0.05)
            if found is not None and any(one == "users" for one, _ in found.batches):
                break
    finally:
        subscription.close()
    del store.tables["users"]
    later = store.root / "my/store/db/later"
    assert list(later.iterdir())
    store.do("INSERT INTO orders VALUES (4, 4)")
    flow = store.catch_up()
    assert store.held(flow, "orders") == store.there("orders")
    assert not list(later.iterdir())
    store.table("items", "id int PRIMARY KEY, n int")
    store.do("INSERT INTO items VALUES (1, 1)")
    flow = store.catch_up()
    assert store.held(flow, "items") == store.there("items")


@pytest.mark.parametrize("copied", [True, False])
def test_a_folder_that_does_not_know_an_added_table_any_more_does_not_give_its_rows_again(
    store: Store, copied: bool
) -> None:
    """It is an older copy, or it is gone."""
    shutil.copytree(store.root / "my", store.root / "backup")
    add_users(store)
    store.catch_up()
    shutil.rmtree(store.root / "my")
    if copied:
        shutil.copytree(store.root / "backup", store.root / "my")
    store.do("DELETE FROM users WHERE id = 1")
    with pytest.raises(StreamForgotten, match="users"):
        store.catch_up()
    if not copied and isinstance(store.server, MySql):
        return  # nothing names the columns of the others any more, so they end
    del store.tables["users"]
    store.do("INSERT INTO orders VALUES (4, 4)")
    flow = store.catch_up()
    assert store.held(flow, "orders") == store.there("orders")


def test_rows_of_a_moment_that_the_stream_has_passed_are_read_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may send a transaction that it is about to commit, and what begins then does not see it."""
    first_rows, begun = DistantBinlogServer.first_rows, list[Frontier]()

    @contextmanager
    def too_early(self: DistantBinlogServer, kind: ServerKind, *given: Any) -> Iterator[Any]:
        with first_rows(self, kind, *given) as transaction:
            there = kind.clock.parse(transaction.gtids)
            seen = there if begun else Frontier({one: max(0, next_ - 5) for one, next_ in there.items()})
            begun.append(seen)
            yield replace(transaction, gtids=kind.clock.render(seen))  # type: ignore[type-var]

    monkeypatch.setattr(DistantBinlogServer, "first_rows", too_early)
    store.table("users", "id int PRIMARY KEY, name varchar(50)")
    store.do("INSERT INTO users VALUES (1, 'ada')")
    flow = store.catch_up()
    assert store.held(flow, "users") == store.there("users")
    assert len(begun) == 2


def test_a_folder_of_a_version_that_took_no_tables_on_takes_one_on(store: Store) -> None:
    folder = SourceFolder(str(store.root / "my/store/db"))
    record = folder.stream()
    assert record is not None
    folder.keep_stream(replace(record, oids={}))
    add_users(store)
    flow = store.catch_up()
    assert store.held(flow, "users") == store.there("users")


def test_a_new_incarnation_begins_with_the_added_tables_as_with_all(store: Store) -> None:
    add_users(store)
    store.catch_up()
    store.do("UPDATE users SET name = 'x' WHERE id = 7")
    store.catch_up()
    store.server.do("RESET MASTER")
    store.do("INSERT INTO orders VALUES (5, 0)")
    with pytest.raises(tg.TidegaugeError):
        store.catch_up()
    resume(store.flow(), "db", new_incarnation=True)
    for number in (10, 11):
        store.do(f"INSERT INTO orders VALUES ({number}, 0)", f"UPDATE users SET name = 'y' WHERE id = {number}")
        flow = store.catch_up()
        for table in ("users", "orders"):
            assert store.held(flow, table) == store.there(table)
    store.table("items", "id int PRIMARY KEY, n int")
    store.do("INSERT INTO items VALUES (1, 1)")
    flow = store.catch_up()
    assert store.held(flow, "items") == store.there("items")
