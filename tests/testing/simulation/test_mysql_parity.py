"""A simulated MariaDB or MySQL is held beside a real one: the same life of both, connection by connection.

The source's own code follows both. From the same place it has to get the same transactions, with the same rows of
each table at the same bytes of them; or it is refused with the same error.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pymysql.err import MySQLError
from tests.mariadb import MariaDb
from tests.sources.mysql.store import Store
from tests.testing.simulation.test_postgres_parity import Group, Side, by_table, drop_ours
from tests.waiting import eventually

from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.upstream.database.binlog import BinlogLog
from tidegauge.testing.simulation.upstream.database.binlog_sender import SimulatedBinlogServer
from tidegauge.testing.simulation.upstream.database.source import over_mysql
from tidegauge.testing.simulation.upstream.database.tables import DatabaseTable, RowChange
from tidegauge.testing.simulation.writers.values import made

TABLES: Final = {
    "orders": "id bigint PRIMARY KEY, amount decimal(10, 2), note varchar(400), at timestamp(6) NULL, raw blob",
    "items": "name varchar(300) CHARACTER SET ascii PRIMARY KEY, price double, day date, part float, n smallint, "
    "seen datetime(6)",
}


class RealSide(Side):
    def __init__(self, server: MariaDb, root: Path) -> None:
        super().__init__()
        self.server, self.store = server, Store(server, root)
        for name, columns in TABLES.items():
            self.store.table(name, columns, key=columns.split()[0])
        self.user = self.store.source(metadata=True).placed("store", "db")
        self.source, self.decode = self.user, self.user.decode

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

    def empty(self, table: str) -> None:
        self.store.do(f"TRUNCATE TABLE {table}")


class SimulatedSide(Side):
    def __init__(self, real: RealSide, root: Path, dice: random.Random) -> None:
        super().__init__()
        user, setup = real.user, real.user.setup
        tables = [
            DatabaseTable(name, setup.tables[name], drop_ours(user.streams[name]), 30 + number, whole=True)
            for number, name in enumerate(TABLES)
        ]
        self.log = BinlogLog(tables, VirtualClock(), named=setup.kind.named)
        server = SimulatedBinlogServer(self.log, cut=lambda count: dice.randrange(count + 1), together=1)
        self.source, self.decode = over_mysql(user, SourceFolder(str(root / "simulated")), server), user.decode

    def write(self, changes: Sequence[RowChange]) -> None:
        self.log.write(changes)

    def roll_back(self, changes: Sequence[RowChange]) -> None:
        self.log.finish(self.log.begin(), [])

    def cut(self) -> None:
        self.log.cut()

    def purge(self) -> None:
        self.log.purge(self.log.executed)

    def reset(self) -> None:
        self.log.reset()

    def empty(self, table: str) -> None:
        self.log.state("TRUNCATE TABLE {}", self.log.database.tables[table])


class Lives:
    """One life of both. reached: the frontiers that they came to, by how many transactions were before."""

    def __init__(self, server: MariaDb, root: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.real = RealSide(server, root)
        self.simulated = SimulatedSide(self.real, root, self.dice)
        self.sides: tuple[Any, Any] = (self.real, self.simulated)
        self.columns = {name: drop_ours(self.real.user.streams[name]) for name in TABLES}
        self.rows: dict[str, dict[Any, Any]] = {name: {} for name in TABLES}
        self.count = self.made = self.given = 0
        self.reached: dict[int, tuple[Frontier, Frontier]] = {}

    def both(self, ask: Callable[[Any], Any]) -> Any:
        """Ask both; they answer alike, or raise errors of one class."""
        found: list[Any] = []
        for side in self.sides:
            try:
                found.append(ask(side))
            except TidegaugeError as error:
                found.append(type(error).__name__)
        assert found[0] == found[1]
        return found[0]

    def row(self, table: str) -> Any:
        self.made += 1
        plain = drop_raw(self.columns[table])
        found = made(plain, seed=7, shard=len(table), lower=self.made, upper=self.made + 1).to_pylist()[0]
        if table == "orders":
            found["raw"] = None if self.made % 3 == 0 else bytes(self.dice.randrange(256) for _ in range(5))
            if found["at"] is not None and found["at"].year > 2037:  # a TIMESTAMP ends there
                found["at"] = found["at"].replace(year=2020, day=1)
            found["note"] = self.dice.choice([found["note"], "", "a,b", "two\nlines", "größer ☃"])
            found["amount"] = None if self.made % 5 == 0 else -found["amount"] if found["amount"] else None
        return found

    def changes(self) -> list[RowChange]:
        found = []
        for _ in range(self.dice.randrange(1, 5)):
            table = self.dice.choice([*TABLES])
            rows, new = self.rows[table], self.row(table)
            key = next(iter(new))
            old = self.dice.choice([*rows.values()]) if rows and self.dice.random() < 0.6 else None
            what = self.dice.choice(("change", "move", "go")) if old is not None else "come"
            if old is not None and what == "change":
                new = {**new, key: old[key]}
            found.append(RowChange(table, old, None if what == "go" else new))
            if old is not None and what != "change":
                del rows[old[key]]
            if what != "go":
                rows[new[key]] = new
        return found

    def write(self) -> None:
        changes = self.changes()
        self.both(lambda side: side.write(changes))
        self.count += 1

    def roll_back(self) -> None:
        before = {name: dict(rows) for name, rows in self.rows.items()}
        changes, self.rows = self.changes(), before
        self.both(lambda side: side.roll_back(changes))

    def first(self) -> None:
        self.both(lambda side: side.connect(Frontier()))
        kept = [side.take(1) for side in self.sides]
        real, simulated = (by_table(groups) for groups, _ in kept)
        assert real == simulated
        self.reached[self.count] = kept[0][1], kept[1][1]

    def follow(self) -> Any:
        """Connect at a place where an earlier connection came to, and take all."""
        count = self.dice.choice([*self.reached])
        starts = dict(zip(self.sides, self.reached[count], strict=True))

        def taken(side: Any) -> list[Group]:
            side.let_go()
            side.connect(starts[side])
            groups, frontier = side.take(self.count - count)
            side.reached.append(frontier)
            found: list[Group] = groups
            return found

        if isinstance(found := self.both(taken), list):
            assert len(found) == self.count - count
            self.given += len(found)
            if found:
                self.reached[self.count] = self.real.reached[-1], self.simulated.reached[-1]
        return found

    def cut(self) -> None:
        """Cut the connections. Whoever goes on hears of it."""
        self.both(lambda side: side.cut())

        def goes_on(side: Any) -> None:
            if side.subscription is not None:
                for _ in range(3):
                    side.subscription.receive(10, 0.2)

        self.both(goes_on)
        self.both(lambda side: side.let_go())


def drop_raw(columns: Any) -> Any:
    return pa.schema([one for one in columns if one.name != "raw"])


@pytest.fixture(params=["mariadb", "mysql"])
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[int], Lives]]:
    made: list[Lives] = []

    def make(seed: int, *, own: bool = False) -> Lives:
        server = request.getfixturevalue(f"own_{request.param}" if own else request.param)
        made.append(Lives(server, tmp_path / str(seed), seed))
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
