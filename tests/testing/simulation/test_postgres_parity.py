"""A simulated server of PostgreSQL is held beside a real one: the same life of both, connection by connection.

The source's own code follows both. From the same place it has to get the same transactions, with the same rows of
each table in the same order; or it is refused with the same error.

Places in the log differ, so a place is known by how many transactions were before it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from tests.postgres import Server
from tests.sources.postgres.shop import Shop
from tests.testing.simulation.both import Life, Side, by_their_keys, drop_ours
from tests.waiting import eventually

from tidegauge.errors.base import Transient
from tidegauge.errors.postgressource import PastAcknowledged, SlotAdvanced, SlotLost
from tidegauge.remap.fromtime.lsn import WAL
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.postgres.source import PostgresSource
from tidegauge.sources.push.source import columns_within, declared, joined_columns
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.upstream.database.sender import SimulatedServer
from tidegauge.testing.simulation.upstream.database.server import PostgresLog
from tidegauge.testing.simulation.upstream.database.source import over_postgres
from tidegauge.testing.simulation.upstream.database.tables import DatabaseTable, RowChange

TABLES: Final = {
    "orders": "id bigint PRIMARY KEY, amount numeric(10, 2), note text, at timestamptz, raw bytea",
    "items": "name text PRIMARY KEY, price float8, sold bool, day date, part real",
}


class RealSide(Side):
    tables: ClassVar[Mapping[str, str]] = TABLES

    def __init__(self, server: Server, root: Path, whole: Sequence[str]) -> None:
        super().__init__()
        self.server, self.shop = server, Shop(server, root)
        for name, columns in self.tables.items():
            self.create(name, columns, full=name in whole)
        self.publish()
        self.user: PostgresSource = self.shop.source(metadata=True).placed("shop", "db")
        self.source, self.decode = self.user, self.user.decode
        self.open: psycopg.Connection[Any] | None = None

    def create(self, name: str, columns: str, *, full: bool) -> None:
        self.shop.table(name, columns, key=columns.split()[0], full=full)

    def publish(self) -> None:
        self.shop.publish()

    def declare(self, *tables: str) -> None:
        self.source = replace(self.user, tables=tables)

    def add_column(self, table: str, name: str, *, valued: bool) -> None:
        self.shop.do(f"ALTER TABLE {table} ADD COLUMN {name} bigint{' DEFAULT 5' if valued else ''}")

    def write(self, changes: Sequence[RowChange]) -> None:
        with psycopg.connect(self.shop.address) as connection:
            self._change(connection, changes)

    def roll_back(self, changes: Sequence[RowChange]) -> None:
        with psycopg.connect(self.shop.address) as connection:
            self._change(connection, changes)
            connection.rollback()

    def begin(self) -> None:
        self.open = psycopg.connect(self.shop.address)
        self.open.execute("SELECT pg_current_xact_id()")

    def finish(self, changes: Sequence[RowChange]) -> None:
        assert self.open is not None
        self._change(self.open, changes)
        self.open.commit()
        self.open.close()
        self.open = None

    def _change(self, connection: psycopg.Connection[Any], changes: Sequence[RowChange]) -> None:
        for change in changes:
            table, key = sql.Identifier(self.named(change)), sql.Identifier(self.tables[change.stream].split()[0])
            row = change.new or {}
            columns = [sql.Identifier(name) for name in row]
            places = sql.SQL(", ").join(sql.Placeholder() * len(row))
            old = None if change.old is None else change.old[next(iter(change.old))]
            if change.old is None:
                insert = sql.SQL("INSERT INTO {} ({}) VALUES ({})")
                connection.execute(insert.format(table, sql.SQL(", ").join(columns), places), [*row.values()])
            elif change.new is None:
                connection.execute(sql.SQL("DELETE FROM {} WHERE {} = %s").format(table, key), [old])
            else:
                told = sql.SQL(", ").join(sql.SQL("{} = %s").format(one) for one in columns)
                update = sql.SQL("UPDATE {} SET {} WHERE {} = %s").format(table, told, key)
                connection.execute(update, [*row.values(), old])

    def named(self, change: RowChange) -> str:
        """The table that an application names."""
        return change.stream

    def told(self, frontier: Frontier) -> None:
        self.subscription.acknowledge(frontier)
        slot, place = self.shop.slot, frontier[WAL]
        heard = f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{slot}'"
        eventually(lambda: int(self.shop.ask(heard)[0][0]) >= place)

    def cut(self) -> None:
        self.shop.ask(
            f"SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots"
            f" WHERE slot_name = '{self.shop.slot}' AND active"
        )

    def kill(self) -> None:
        self.server.kill()
        self.server.start()

    def drop(self) -> None:
        self._at_rest(f"SELECT pg_drop_replication_slot('{self.shop.slot}')")

    def move_on(self) -> None:
        self._at_rest(f"SELECT pg_replication_slot_advance('{self.shop.slot}', pg_current_wal_flush_lsn())")

    def _at_rest(self, query: str) -> None:
        active = f"SELECT FROM pg_replication_slots WHERE slot_name = '{self.shop.slot}' AND active"
        eventually(lambda: not self.shop.ask(active))
        self.shop.ask(query)

    def rows(self, table: str) -> list[Any]:
        return [list(row.values()) for row in self.shop.there(table)]

    def end(self) -> None:
        self.let_go()
        if self.open is not None:
            self.open.close()


class SimulatedSide(Side):
    def __init__(
        self, user: PostgresSource, root: Path, whole: Sequence[str], dice: random.Random, **parts: Sequence[str]
    ) -> None:
        super().__init__()
        columns = {stream: drop_ours(user.streams[stream]) for stream in user.streams}
        parted = parts.get("parted", ())
        tables = [
            DatabaseTable(name, ("public", name), columns[name], 16384 + number, name in whole, name in parted)
            for number, name in enumerate(columns)
        ]
        self.log = PostgresLog(tables, VirtualClock(), parts.get("spread", ()))
        self.log.sparing = dice.random() < 0.5
        cuts = SimulatedServer(self.log, cut=lambda count: dice.randrange(count + 1))
        self.source, self.decode = over_postgres(user, SourceFolder(str(root / "simulated")), cuts), user.decode
        self.user = self.source
        self.number = 0
        self.slot = user.setup.slot

    def declare(self, *tables: str) -> None:
        self.source = self.user.having(tables)

    def add_column(self, table: str, name: str, *, valued: bool) -> None:
        self.log.add_column(table, pa.field(name, pa.int64()), valued=valued)

    def write(self, changes: Sequence[RowChange]) -> None:
        self.log.write(changes)

    def roll_back(self, changes: Sequence[RowChange]) -> None:
        self.log.finish(self.log.begin(), [])

    def begin(self) -> None:
        self.number = self.log.begin()

    def finish(self, changes: Sequence[RowChange]) -> None:
        self.log.finish(self.number, changes)

    def told(self, frontier: Frontier) -> None:
        self.subscription.acknowledge(frontier)

    def cut(self) -> None:
        self.log.cut()

    def kill(self) -> None:
        self.log.leave(killed=True)
        self.log.come_back()

    def drop(self) -> None:
        del self.log.slots[self.slot]

    def move_on(self) -> None:
        self.log.slots[self.slot].confirmed = self.log.end

    def rows(self, table: str) -> list[Any]:
        return [[*row.values()] for row in self.log.database.rows[table].values()]


def fitted(dice: random.Random, table: str, _number: int, row: dict[str, Any]) -> dict[str, Any]:
    if table == "orders":
        row["note"] = dice.choice([row["note"], "", "a,b", 'say "x"', "two\nlines", "größer ☃", r"\N"])
    return row


class PostgresLife(Life):
    """One with slots, which are told what is durable. told: how many transactions were, by the last word.

    has: makes the real side. parts: the tables whose rows are in partitions, or that are some.
    """

    has: type[RealSide] = RealSide
    parts: ClassVar[Mapping[str, Sequence[str]]] = {}

    def __init__(self, server: Server, root: Path, seed: int) -> None:
        dice = random.Random(seed)
        whole = [name for name in self.has.tables if dice.random() < 0.5]
        real = self.has(server, root, whole)
        columns = {name: drop_ours(real.user.streams[name]) for name in self.has.tables}
        simulated = SimulatedSide(real.user, root, whole, dice, **self.parts)
        raised = (Transient, SlotLost, SlotAdvanced, PastAcknowledged)
        super().__init__(real, simulated, columns, dice, raised=raised, fitted=fitted, keeps=0.4)
        self.told = 0

    def side_by_side(self) -> None:
        """A transaction is open while another one commits."""
        self.both(lambda side: side.begin())
        self.write()
        changes = self.changes(fresh=True)
        self.both(lambda side: side.finish(changes))
        self.count += 1

    def tell(self) -> None:
        """Say that all is durable that has come, and may be nothing more comes from before it."""
        self.follow()
        if self.real.subscription is None or self.simulated.subscription is None:
            return
        count = max(self.reached)
        places = dict(zip(self.sides, self.reached[count], strict=True))
        self.both(lambda side: side.told(places[side]))
        self.told = count

    def kill(self) -> None:
        self.both(lambda side: side.let_go())
        self.both(lambda side: side.kill())
        self.reached = {count: where for count, where in self.reached.items() if count >= self.told}

    def add_column(self, table: str, name: str, *, valued: bool = False) -> None:
        self.both(lambda side: side.add_column(table, name, valued=valued))
        self.columns = {**self.columns, table: self.columns[table].append(pa.field(name, pa.int64()))}

    def take_on(self, further: Mapping[str, pa.Schema]) -> None:
        """Have further columns bound, and read by them."""
        for side in self.sides:
            side.schema = joined_columns(declared(side.source.streams), further)

            def decode(stream: str, batch: Any, bad: Any, side: Any = side) -> Any:
                return side.source.decode_by(stream, batch, columns_within(side.schema, stream), bad)

            side.decode = decode

    def lose(self, how: str) -> None:
        """Take the slot away, or move it on. Nothing can be followed any more from before."""
        self.write()
        self.both(lambda side: side.let_go())
        self.both(lambda side: getattr(side, how)())
        self.follow()


def single(rows: list[Any]) -> list[Any]:
    """Rows by their keys, with all floats in single precision: psycopg reads such as double."""
    return [[float(np.float32(one)) if isinstance(one, float) else one for one in row] for row in by_their_keys(rows)]


@pytest.fixture
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[int, str], PostgresLife]]:
    made: list[PostgresLife] = []

    def make(seed: int, server: str = "logical") -> PostgresLife:
        made.append(PostgresLife(request.getfixturevalue(server), tmp_path / str(seed), seed))
        return made[-1]

    yield make
    for one in made:
        one.real.end()
        one.simulated.let_go()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))])
def test_a_simulated_server_gives_what_a_real_one_does(lives: Any, seed: int) -> None:
    life = lives(seed)
    for _ in range(4):
        life.write()
    life.first()
    for _ in range(14):
        life.dice.choice(
            [life.write, life.write, life.roll_back, life.side_by_side, life.follow, life.tell, life.cut]
        )()
    life.write()
    life.follow()
    life.lose(life.dice.choice(["drop", "move_on"]))
    assert life.given > 0
    for table in TABLES:
        assert single(life.real.rows(table)) == single(life.simulated.rows(table))


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 5))])
def test_a_table_that_is_declared_later_joins_with_the_rows_that_it_has_at_a_real_server(
    lives: Any, seed: int
) -> None:
    life = lives(seed)
    for side in life.sides:
        side.declare("orders")
    while not (life.rows["orders"] and life.rows["items"]):
        life.write()
    life.first()
    life.write()
    assert single(life.join("items")) == single(life.simulated.rows("items")) == single(life.real.rows("items"))
    for _ in range(4):
        life.write()
        life.follow()
    assert life.given > 0


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 5))])
def test_columns_that_come_are_told_of_as_by_a_real_server_and_have_the_same_values(lives: Any, seed: int) -> None:
    life = lives(seed)
    for _ in range(3):
        life.write()
    life.first()
    life.write()
    life.add_column("orders", "more")
    life.add_column("items", "filled", valued=True)
    for _ in range(6):
        life.write()
    life.follow()
    told = life.both(lambda side: dict(side.further))
    assert told["orders"] == pa.schema([("more", pa.int64())])
    assert life.both(lambda side: side.source.refused("items", "filled")) != ""
    assert life.both(lambda side: side.source.refused("orders", "more")) == ""
    life.reached = {count: where for count, where in life.reached.items() if count == min(life.reached)}
    life.take_on({"orders": told["orders"]})
    found = life.follow()
    given = [values for group in found for _, values in group.get("orders", [])]
    assert {"more"} <= set().union(*given)
    assert any(values["more"] is not None for values in given)


def test_first_rows_that_were_cut_off_are_those_of_a_real_server_at_the_next_place(lives: Any) -> None:
    life = lives(5)
    for _ in range(8):
        life.write()
    slowly = life.real.shop.source(metadata=True, rate=1).placed("shop", "db")
    life.real.source = slowly
    for _ in range(2):
        life.both(lambda side: side.connect(Frontier()))
        for side in life.sides:
            reading = getattr(side.subscription, "_inner", side.subscription)
            while reading._reading is None:
                side.subscription.receive(1000, 0.01)
            side.subscription.receive(1000, 0.01)
        life.both(lambda side: side.let_go())
        for _ in range(3):
            life.write()
    life.real.source = life.real.user
    life.first()
    life.write()
    life.follow()
    places = sorted({place for _, place in life.simulated.log.numbers})
    assert len(places) > 1, "nothing was read before"
    for table in TABLES:
        assert single(life.real.rows(table)) == single(life.simulated.rows(table))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_and_after_it_was_killed(lives: Any, seed: int) -> None:
    life = lives(seed, "own_logical")
    life.write()
    life.first()
    for _ in range(3):
        life.write()
        life.tell()
        life.write()
        life.kill()
        life.follow()
    assert life.given > 0


@pytest.mark.parametrize(("how", "error"), [("drop", SlotLost), ("move_on", SlotAdvanced)])
def test_a_slot_that_is_gone_is_the_same_error(lives: Any, how: str, error: type[Exception]) -> None:
    life = lives(3)
    life.write()
    life.first()
    life.write()
    for side in life.sides:
        side.let_go()
        getattr(side, how)()
        start = life.reached[1][life.sides.index(side)]
        with pytest.raises(error):
            side.connect(start)


def test_a_place_from_before_what_it_was_told_is_the_same_error(lives: Any) -> None:
    life = lives(4)
    life.write()
    life.first()
    life.write()
    life.tell()
    for number, side in enumerate(life.sides):
        side.let_go()
        with pytest.raises(PastAcknowledged):
            side.connect(life.reached[1][number])
