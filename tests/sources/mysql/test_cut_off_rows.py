"""First rows whose reading is cut off: by a disk that is full, a connection that breaks, or a driver that dies."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.mariadb import MariaDb
from tests.sources.mysql.store import Store
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.mysqlsource import BinlogServerAway, FirstRowsUnwritten
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Store as FlowStore
from tidegauge.sources.mysql.firstrows import RowsTransaction
from tidegauge.sources.mysql.keyed import RowsPart, TableKey
from tidegauge.sources.mysql.subscription import BinlogSubscription

pytestmark = pytest.mark.long


@contextmanager
def full_disk(most: int) -> Iterator[None]:
    """Have no file grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_is_told_as_such_and_not_as_a_server_that_is_away(
    mariadb: MariaDb, tmp_path: Path
) -> None:
    store = Store(mariadb, tmp_path)
    store.table("orders", "id int PRIMARY KEY, note text")
    store.do("INSERT INTO orders SELECT seq, repeat('x', 4000) FROM seq_1_to_3000")
    subscription = store.source().placed("store", "db").connect(Frontier(), Bound())
    subscription.receive(10, 0.1)
    with full_disk(5 << 20), pytest.raises(FirstRowsUnwritten, match=r"my/store/db: .*too large") as told:
        eventually(lambda: subscription.receive(10, 0.1) is not None)
    assert told.value.code == "TG-0964"
    subscription.close()
    assert len(store.held(store.catch_up(), "orders")) == 3000


class Cut:
    """Breaks the connection of a transaction that reads first rows, once it has given a number of rows.

    asked: what was asked for since, of each table: the parts that were read.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.after: int | None = None
        self.asked: list[tuple[str, RowsPart | None]] = []
        rows = RowsTransaction.rows

        def cut(one: RowsTransaction, database: str, table: str, columns: Any, part: RowsPart | None = None) -> Any:
            self.asked.append((table, part))
            for found in rows(one, database, table, columns, part):
                for at in range(0, len(found), 10):
                    if self.after is not None and self.after <= 0:
                        self.after = None
                        one.connection._sock.shutdown(2)
                        raise BinlogServerAway(source="the database", detail="it broke")
                    if self.after is not None:
                        self.after -= 10
                    yield found[at : at + 10]

        monkeypatch.setattr(RowsTransaction, "rows", cut)

    def parts(self, table: str) -> list[RowsPart]:
        """What was asked for of a table in the order of its key."""
        return [part for name, part in self.asked if name == table and part is not None and part.among is None]


def connected(store: Store, start: Frontier, bound: Bound) -> BinlogSubscription:
    """A subscription that notes what it has read every few rows."""
    return BinlogSubscription(replace(store.source().placed("store", "db").setup, piece=1 << 11), start, bound)


def followed(store: Store, bound: Bound, start: Frontier, wanted: str, cut: Cut) -> dict[str, list[dict[str, Any]]]:
    """Follow a store until a table has rows and all of the log has come; return what came of each table."""
    source, found = store.source().placed("store", "db"), dict[str, list[dict[str, Any]]]()
    subscription = connected(store, start, bound)
    try:

        def whole() -> bool:
            received = subscription.receive(1000, 0.05)
            for stream, batch in () if received is None else received.batches:
                found.setdefault(stream, []).extend(source.decode(stream, batch, refuse).to_pylist())
            return wanted in found and received is not None and received.frontier == received.end

        eventually(whole, within=60)
    finally:
        subscription.close()
    return found


def refuse(bad: Any) -> None:
    raise AssertionError(bad)


def applied(changes: list[dict[str, Any]], key: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows that changes make, each of which fits what was before."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for change in changes:
        at = tuple(change[one] for one in key)
        assert (at in rows) == (change["_op"] != "insert"), change
        if change["_op"] == "delete":
            del rows[at]
        else:
            rows[at] = {name: value for name, value in change.items() if not name.startswith("_")}
    return rows


CHANGES = (
    "UPDATE users SET note = 'changed' WHERE a = 1",
    "DELETE FROM users WHERE a = 2",
    "UPDATE users SET b = upper(b) WHERE a = 3",
    "UPDATE users SET note = concat(note, '.') WHERE a = 40",
    "UPDATE users SET a = 900 WHERE a = 4",
    "UPDATE users SET a = 0 WHERE a = 250",
    "INSERT INTO users VALUES ('it''s', 3, 'new'), ('zz', 3, 'new'), ('zz', 950, 'new')",
    "UPDATE users SET note = 'later' WHERE a = 200",
    "DELETE FROM users WHERE a = 201",
)


def add_users(store: Store) -> None:
    """A key in another order than the columns, of two types, whose texts are in the order of Swedish."""
    text = "varchar(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci"
    store.table("users", f"b {text}, a int unsigned, note varchar(500), PRIMARY KEY (a, b)", key="a")
    fill_users(store)


def fill_users(store: Store) -> None:
    names = "concat(elt(1 + seq % 6, 'ä', 'Z', 'ö', 'a', 'ß', ' '), seq)"
    for key, upto in (("concat('Name ', seq), seq", 300), (f"{names}, 40", 100)):
        store.do(store.server.spoken(f"INSERT INTO users SELECT {key}, repeat('x', 400) FROM seq_1_to_{upto}"))


def cut_off(store: Store, cut: Cut, start: Frontier, bound: Bound, *, after: int = 100) -> None:
    """Follow a store until the connection breaks, after so many rows."""
    cut.after = after
    subscription = connected(store, start, bound)

    def broken() -> bool:
        return subscription.receive(100, 0.05) is None and cut.after is None

    try:
        with suppress(BinlogServerAway):
            eventually(broken, within=60)
    finally:
        subscription.close()


@pytest.mark.parametrize("added", [True, False], ids=["added", "first"])
@pytest.mark.parametrize("kind", ["mariadb", "mysql", "mysql8"])
def test_rows_whose_reading_is_cut_off_are_not_read_again(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, added: bool
) -> None:
    store, cut = Store(request.getfixturevalue(kind), tmp_path), Cut(monkeypatch)
    monkeypatch.setattr("tidegauge.sources.mysql.snapshot._AT_ONCE", 1 if added else 200)
    store.table("orders", "id int PRIMARY KEY, n int")
    store.do("INSERT INTO orders VALUES (1, 1)")
    start, bound = Frontier(), Bound()
    if added:
        store.catch_up()
        kept = FlowStore.open(f"sqlite:///{tmp_path}/flow.db", env=tg.Env())
        known = kept.load("store").sources["db"]
        kept.close()
        start, bound = known.table.frontier, Bound(frontier=known.table.frontier, identity=known.identity)
    add_users(store)
    cut.asked.clear()
    for _ in range(2):
        cut_off(store, cut, start, bound)
        store.do(*CHANGES)
        store.do("DELETE FROM users WHERE a >= 900 OR a = 0", "UPDATE users SET note = '' WHERE a = 300")
        store.do("DELETE FROM users WHERE a = 3 AND b LIKE '%z%' OR a = 3 AND b LIKE 'it%'")
    store.do(*CHANGES, "INSERT INTO orders VALUES (2, 2)")
    found = followed(store, bound, start, "users", cut)
    assert applied(found["users"], ["a", "b"]) == {(row["a"], row["b"]): row for row in rows_of(store, "users")}
    parts = cut.parts("users")
    assert len({part.behind for part in parts}) == len(parts) == 3
    assert parts[0].behind is None


def test_rows_are_read_anew_where_what_was_read_does_not_count_any_more(
    own_mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table was emptied, then its texts got another order, then the log was begun anew."""
    store, cut = Store(own_mariadb, tmp_path), Cut(monkeypatch)
    add_users(store)
    cut_off(store, cut, Frontier(), Bound())
    store.do("TRUNCATE users")
    fill_users(store)
    cut_off(store, cut, Frontier(), Bound())
    store.do("ALTER TABLE users MODIFY b varchar(20) CHARACTER SET latin1 COLLATE latin1_bin")
    cut_off(store, cut, Frontier(), Bound())
    own_mariadb.do("RESET MASTER")
    for number in range(40):
        store.do(f"UPDATE users SET note = '{number}' WHERE a = {number}")
    found = followed(store, Bound(), Frontier(), "users", cut)
    assert applied(found["users"], ["a", "b"]) == {(row["a"], row["b"]): row for row in rows_of(store, "users")}
    assert [part.behind for part in cut.parts("users")] == [None] * 4


def rows_of(store: Store, table: str) -> list[dict[str, Any]]:
    """The rows that the database has."""
    names = [name for (name, *_) in store.ask(f"SHOW COLUMNS FROM {table}")]
    return [dict(zip(names, row, strict=True)) for row in store.ask(f"SELECT * FROM {table}")]


KEYS = {
    "bigint unsigned": "CAST(seq AS UNSIGNED) * 250000000000000000",
    "tinyint": "CAST(seq AS SIGNED) * 4 - 64",
    "int(6) unsigned zerofill": "seq * 3",
    "decimal(12,8)": "(CAST(seq AS SIGNED) - 15) / 10000000",
    "char(12)": "concat(char(97 + seq % 3), elt(1 + seq % 2, 'B', 'b'), seq)",
    "varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin": "concat(elt(1 + seq % 3, 'é', '😀', '\\\\'), seq)",
    "binary(8)": "concat(char(seq % 7), char(255 - seq), 'x')",
    "varbinary(8)": "concat(char(seq % 7), char(200 + seq % 3), '''', seq)",
    "date": "'1999-12-01' + INTERVAL seq * 17 DAY",
    "datetime(6)": "'1999-12-31 23:59:59.5' + INTERVAL seq * 12345 MICROSECOND",
    "timestamp": "'2026-03-29 00:30:00' + INTERVAL seq * 7 MINUTE",
}


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_each_type_of_key_goes_on_where_it_was_cut_off(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Behind each of its keys, and with those rows that changed when it was whole in files."""
    store, cut = Store(request.getfixturevalue(kind), tmp_path), Cut(monkeypatch)
    for number, (type_, value) in enumerate(KEYS.items()):
        store.table(f"t{number}", f"id {type_}, n int, note varchar(300), PRIMARY KEY (id)")
        select = f"{value}, seq, repeat('x', 300) FROM seq_1_to_30"
        store.do(store.server.spoken(f"INSERT INTO t{number} SELECT {select}"))
    setup = store.source().placed("store", "db").setup
    with setup.server.first_rows(setup.kind, []) as transaction:
        for number, type_ in enumerate(KEYS):
            key, columns = transaction.key(store.name, f"t{number}"), setup.columns[f"{store.name}.t{number}"]
            assert key is not None, type_

            def read(
                key: TableKey = key, columns: pa.Schema = columns, number: int = number, **how: Any
            ) -> list[Any]:
                part = RowsPart(key, **how)
                return [row for rows in transaction.rows(store.name, f"t{number}", columns, part) for row in rows]

            rows = read()
            for at, row in enumerate(rows):
                assert read(behind=(row[0],)) == rows[at + 1 :], (type_, row[0])
            assert sorted(read(among=[(row[0],) for row in rows[::3]])) == sorted(rows[::3]), type_
    cut_off(store, cut, Frontier(), Bound(), after=30 * len(KEYS) - 15)
    cut.asked.clear()
    for number in range(len(KEYS)):
        store.do(f"UPDATE t{number} SET note = n WHERE n % 7 = 3", f"DELETE FROM t{number} WHERE n % 7 = 1")
    found = followed(store, Bound(), Frontier(), f"t{len(KEYS) - 1}", cut)
    for number, type_ in enumerate(KEYS):
        there = {(row["n"],): row["note"] for row in rows_of(store, f"t{number}")}
        assert {key: row["note"] for key, row in applied(found[f"t{number}"], ["n"]).items()} == there, type_
    assert all(part.behind is not None for number in range(len(KEYS)) for part in cut.parts(f"t{number}"))
