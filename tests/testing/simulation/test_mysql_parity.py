"""A simulated MariaDB or MySQL is held beside a real one: the same life of both, connection by connection.

The source's own code follows both. From the same place it has to get the same transactions, with the same rows of
each table at the same bytes of them; or it is refused with the same error.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pymysql.err import MySQLError
from tests.mariadb import MariaDb
from tests.sources.mysql.store import Store
from tests.testing.simulation.both import Life, Side, by_their_keys, drop_ours
from tests.waiting import eventually

from tidegauge.errors.base import TidegaugeError
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.upstream.database.binlog import BinlogLog
from tidegauge.testing.simulation.upstream.database.binlog_sender import SimulatedBinlogServer
from tidegauge.testing.simulation.upstream.database.source import over_mysql
from tidegauge.testing.simulation.upstream.database.tables import DatabaseTable, RowChange

TABLES: Final = {
    "orders": "id bigint PRIMARY KEY, amount decimal(10, 2), note varchar(400), at timestamp(6) NULL, raw blob",
    "items": "name varchar(300) CHARACTER SET ascii PRIMARY KEY, price double, day date, part float, n smallint, "
    "seen datetime(6)",
}

LOCKED: Final = 1205


class RealSide(Side):
    def __init__(self, server: MariaDb, root: Path) -> None:
        super().__init__()
        self.server, self.store = server, Store(server, root)
        for name, columns in TABLES.items():
            self.store.table(name, columns, key=columns.split()[0])
        self.user = self.store.source(metadata=True).placed("store", "db")
        self.source, self.decode = self.user, self.user.decode

    def declare(self, *tables: str) -> None:
        self.source = replace(self.user, tables=tables)

    def write(self, changes: Sequence[RowChange], end: str = "COMMIT") -> None:
        with self.server.connection(self.store.name) as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            for change in changes:
                self._change(cursor, change)
            cursor.execute(end)

    def roll_back(self, changes: Sequence[RowChange]) -> None:
        self.write(changes, "ROLLBACK")

    def _change(self, cursor: Any, change: RowChange) -> None:
        key = TABLES[change.stream].split()[0]
        row = change.new or {}
        told = ", ".join(f"`{name}` = %s" for name in row)
        if change.old is None:
            cursor.execute(f"INSERT INTO {change.stream} SET {told}", [*row.values()])
        elif change.new is None:
            cursor.execute(f"DELETE FROM {change.stream} WHERE `{key}` = %s", [change.old[key]])
        else:
            cursor.execute(f"UPDATE {change.stream} SET {told} WHERE `{key}` = %s", [*row.values(), change.old[key]])

    def hold_up(self) -> None:
        """Have commits wait for a replica that is not there, when they are in the log."""
        waits = {"wait_point": "'AFTER_SYNC'", "wait_no_slave": "ON", "timeout": "600000", "enabled": "ON"}
        self.server.do(*(f"SET GLOBAL rpl_semi_sync_master_{name} = {value}" for name, value in waits.items()))

    def write_held_up(self, changes: Sequence[RowChange]) -> None:
        self.held_up = threading.Thread(target=self.write, args=(changes,))
        self.held_up.start()

    def set_free(self) -> None:
        self.server.do("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
        self.held_up.join()

    def cut(self) -> None:
        """End those who are sent the log, and wait until the server has."""

        def over() -> bool:
            there = [row[0] for row in self.server.ask("SHOW PROCESSLIST") if "Dump" in row[4]]
            for number in there:
                with suppress(MySQLError):  # it has ended by itself
                    self.server.do(f"KILL {number}")
            return not there

        eventually(over)

    def purge(self) -> None:
        """Remove all of the log that is there. A file stays for a moment when those who were sent it have gone."""
        self.cut()
        self.server.do("FLUSH BINARY LOGS")

        def purged() -> bool:
            names = [name for (name, *_) in self.server.ask("SHOW BINARY LOGS")]
            self.server.do(f"PURGE BINARY LOGS TO '{names[-1]}'")
            return len(names) == 1

        eventually(purged)

    def reset(self) -> None:
        self.server.do("RESET MASTER")

    def remove(self, change: RowChange) -> None:
        """Take a row away in a session whose log has keys alone."""
        with self.server.connection(self.store.name) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION binlog_row_image = 'MINIMAL'")
            self._change(cursor, change)
            cursor.execute("COMMIT")

    def empty(self, table: str) -> bool:
        return self._altered(f"TRUNCATE TABLE {table}")

    def add_column(self, table: str, name: str, *, early: bool) -> bool:
        behind = f" AFTER `{TABLES[table].split()[0]}`" if early else ""
        return self._altered(f"ALTER TABLE {table} ADD COLUMN {name} bigint{behind}")

    def _altered(self, statement: str) -> bool:
        """Carry out a statement; return False where somebody reads the table, so that it would have to wait."""
        try:
            self.store.do("SET lock_wait_timeout = 1", statement)
        except MySQLError as error:
            if error.args[0] != LOCKED:
                raise
            return False
        return True


class SimulatedSide(Side):
    def __init__(self, real: RealSide, root: Path, dice: random.Random) -> None:
        super().__init__()
        user, setup = real.user, real.user.setup
        tables = [
            DatabaseTable(name, setup.tables[name], drop_ours(user.streams[name]), 30 + number, whole=True)
            for number, name in enumerate(TABLES)
        ]
        self.log = BinlogLog(tables, VirtualClock(), setup.kind)
        self.server = SimulatedBinlogServer(self.log, cut=lambda count: dice.randrange(count + 1), together=1)
        self.source = self.user = over_mysql(user, SourceFolder(str(root / "simulated")), self.server)
        self.decode = user.decode

    def declare(self, *tables: str) -> None:
        self.source = self.user.having(tables)

    def write(self, changes: Sequence[RowChange]) -> None:
        self.log.write(changes)

    def roll_back(self, changes: Sequence[RowChange]) -> None:
        self.log.finish(self.log.begin(), [])

    def hold_up(self) -> None:
        self.log.hold_up()

    def write_held_up(self, changes: Sequence[RowChange]) -> None:
        self.log.write(changes)

    def set_free(self) -> None:
        self.log.let_go()

    def cut(self) -> None:
        self.log.cut()

    def purge(self) -> None:
        self.log.purge(self.log.executed)

    def reset(self) -> None:
        self.log.reset()

    def add_column(self, table: str, name: str, *, early: bool) -> bool:
        there = self.log.database.tables[table]
        if free := not self.log.is_read(there):
            self.log.add_column(there, pa.field(name, pa.int64()), early=early)
        return free

    def remove(self, change: RowChange) -> None:
        self.log.write([change], keys=True)

    def empty(self, table: str) -> bool:
        there = self.log.database.tables[table]
        if free := not self.log.is_read(there):
            self.log.state("TRUNCATE TABLE {}", there)
        return free


def fitted(dice: random.Random, table: str, number: int, row: dict[str, Any]) -> dict[str, Any]:
    if table == "orders":
        if row["at"] is not None and row["at"].year > 2037:  # a TIMESTAMP ends there
            row["at"] = row["at"].replace(year=2020, day=1)
        row["note"] = dice.choice([row["note"], "", "a,b", "two\nlines", "größer ☃"])
        row["amount"] = None if number % 5 == 0 else -row["amount"] if row["amount"] else None
    return row


def life_of(server: MariaDb, root: Path, seed: int) -> Life:
    dice, real = random.Random(seed), RealSide(server, root)
    columns = {name: drop_ours(real.user.streams[name]) for name in TABLES}
    simulated = SimulatedSide(real, root, dice)
    return Life(real, simulated, columns, dice, raised=(TidegaugeError,), fitted=fitted)


@pytest.fixture(params=["mariadb", "mysql", "mysql8"])
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[int], Life]]:
    made: list[Life] = []

    def make(seed: int, *, own: bool = False) -> Life:
        server = request.getfixturevalue(f"own_{request.param}" if own else request.param)
        made.append(life_of(server, tmp_path / str(seed), seed))
        return made[-1]

    yield make
    for one in made:
        for side in one.sides:
            side.let_go()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 3))
def test_a_simulated_server_gives_what_a_real_one_does(lives: Any, seed: int) -> None:
    life = lives(seed)
    for _ in range(4):
        life.write()
    life.first()
    for _ in range(12):
        life.dice.choice([life.write, life.write, life.roll_back, life.follow, life.cut])()
    life.write()
    assert isinstance(life.follow(), list)
    assert life.given > 0


@pytest.mark.long
def test_a_table_that_is_declared_later_joins_with_the_rows_that_it_has_at_a_real_server(lives: Any) -> None:
    life = lives(5)
    for side in life.sides:
        side.declare("orders")
    while not (life.rows["orders"] and life.rows["items"]):
        life.write()
    life.first()
    life.write()
    assert life.join("items") == by_their_keys([[*row.values()] for row in life.rows["items"].values()])
    for _ in range(4):
        life.write()
        life.follow()
    assert life.given > 0


@pytest.mark.long
def test_columns_that_come_are_left_out_as_at_a_real_server(lives: Any) -> None:
    """Also while first rows are read: nobody alters a table that has been read, or any, on MySQL 5.6. Who reads
    another one late is refused if it was emptied, or rebuilt for its new column."""
    life = lives(6)
    named = life.real.user.setup.kind.named
    life.write()
    life.first()
    life.write()
    for number, early in enumerate((False, named, False, named)):
        table = life.dice.choice([*TABLES])
        assert life.both(lambda side, n=number, on=table, e=early: side.add_column(on, f"more_{n}", early=e)) is True
        life.write()
        assert isinstance(life.follow(), list)
    assert life.given > 0

    def reads(side: Any, changed: Callable[[Any], object]) -> list[Any]:
        setup = life.real.user.setup
        server: Any = side.server if isinstance(side, SimulatedSide) else setup.server
        with server.first_rows(setup.kind, [*setup.tables.values()]) as rows:

            def count(table: str) -> int:
                return sum(len(some) for some in rows.rows(*setup.tables[table], life.columns[table], None))

            found: list[Any] = [count("orders"), side.add_column("orders", "more_4", early=False), changed(side)]
            try:
                return [*found, count("items")]
            except TidegaugeError as error:
                return [*found, type(error).__name__]

    added = partial(reads, changed=lambda side: side.add_column("items", "more_5", early=False))
    assert life.both(added)[1:3] == [False, named]
    emptied = partial(reads, changed=lambda side: side.empty("items"))
    [_, *found, last] = life.both(emptied)
    assert found == [False, named]
    assert last == "FirstRowsOutdated" if named else last > 0


@pytest.mark.long
def test_what_a_commit_that_waits_for_a_replica_did_is_sent_before_a_transaction_sees_it(
    own_mariadb: MariaDb, tmp_path: Path
) -> None:
    life = life_of(own_mariadb, tmp_path, 8)
    kind = life.real.user.setup.kind

    def seen(side: Any) -> tuple[int, int]:
        """How many transactions of the log a transaction sees of those that were sent, and how many rows."""
        setup = life.real.user.setup
        server: Any = side.server if isinstance(side, SimulatedSide) else setup.server
        with server.first_rows(kind, [*setup.tables.values()]) as rows:
            there = sum(
                len(some) for one in TABLES for some in rows.rows(*setup.tables[one], life.columns[one], None)
            )
            return side.reached[-1]["3"] - kind.clock.parse(rows.gtids)["3"], there

    try:
        life.write()
        life.first()
        life.both(lambda side: side.hold_up())
        changes = life.changes(fresh=True)
        life.both(lambda side: side.write_held_up(changes))
        life.count += 1
        assert life.follow() != []
        behind, before = life.both(seen)
        life.both(lambda side: side.set_free())
        assert behind == 1
        assert life.both(seen) == (0, before + len(changes))
    finally:
        for side in life.sides:
            side.let_go()


@pytest.mark.long
def test_a_log_that_lacks_what_the_flow_needs_is_the_same_error(lives: Any) -> None:
    life = lives(9, own=True)
    life.write()
    life.first()
    life.write()
    life.follow()
    life.both(lambda side: side.let_go())
    life.both(lambda side: side.purge())
    life.reached = {life.count: life.reached[life.count]}  # it has all that is gone
    assert life.follow() == []
    life.write()
    life.both(lambda side: side.let_go())
    life.both(lambda side: side.purge())
    assert life.follow() == "BinlogPurged"
    life.both(lambda side: side.reset())
    for _ in range(40):  # it is longer than it was
        life.write()
    assert life.follow() == "UpstreamRecreated"


@pytest.mark.long
def test_a_table_that_is_emptied_is_the_same_error(lives: Any) -> None:
    life = lives(11)
    life.write()
    life.first()
    life.both(lambda side: side.empty("orders"))
    life.write()
    assert life.follow() == "BinlogTableTruncated"


@pytest.mark.long
def test_a_row_that_goes_by_its_key_alone_is_the_same_error(lives: Any) -> None:
    life = lives(13)
    while not life.rows["orders"]:
        life.write()
    life.first()
    gone = next(iter(life.rows["orders"].values()))
    life.both(lambda side: side.remove(RowChange("orders", gone, None)))
    life.count += 1
    assert life.follow() == "BinlogRowsUntold"
