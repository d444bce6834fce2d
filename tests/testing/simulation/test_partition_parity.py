"""Partitions of a simulated table are held beside a real one's: rows that move, partitions that come and go.

Both tables are followed through their roots, and have a partition for each fourth of all keys but the last one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import psycopg
import pytest
from psycopg import sql
from tests.postgres import Server
from tests.testing.simulation.test_postgres_parity import TABLES, PostgresLife, RealSide, fitted, single
from tests.waiting import eventually

from tidegauge.errors.postgressource import TableChanged
from tidegauge.testing.simulation.upstream.database.partitioned import PARTS, quarter
from tidegauge.testing.simulation.upstream.database.tables import RowChange

BOUNDS: Final = ("MINVALUE", *(str((number - 2) << 62) for number in range(1, PARTS)), "MAXVALUE")


class RealPartitions(RealSide):
    """A real database whose orders are partitioned."""

    def create(self, name: str, columns: str, *, full: bool) -> None:
        if name != "orders":
            super().create(name, columns, full=full)
            return
        self.columns, self.full = columns, full
        self.shop.do(f"CREATE TABLE orders ({columns}) PARTITION BY RANGE (id)")
        self.shop.tables["orders"] = "id"
        if full:
            self.shop.do("ALTER TABLE orders REPLICA IDENTITY FULL")
        for number in range(PARTS - 1):
            self.attach(number, f"orders_{number}")

    def publish(self) -> None:
        names = ", ".join(self.shop.tables)
        self.shop.do(f"CREATE PUBLICATION shop FOR TABLE {names} WITH (publish_via_partition_root = true)")

    def attach(self, number: int, name: str) -> None:
        made = f"CREATE TABLE {name} PARTITION OF orders {within(number)}"
        self.shop.do(made, *self._whole(name))

    def attach_with_rows(self, number: int, name: str, rows: Sequence[Any]) -> None:
        self.shop.do(f"CREATE TABLE {name} (LIKE orders INCLUDING ALL)", *self._whole(name))
        for row in rows:
            self.insert(name, row)
        self.shop.do(f"ALTER TABLE orders ATTACH PARTITION {name} {within(number)}")

    def detach(self, number: int, name: str) -> None:
        self.shop.do(f"ALTER TABLE orders DETACH PARTITION {name}")

    def attach_again(self, number: int, name: str) -> None:
        self.detach(number, name)
        self.shop.do(f"ALTER TABLE orders ATTACH PARTITION {name} {within(number)}")

    def empty(self, number: int, name: str) -> None:
        self.shop.do(f"TRUNCATE {name}")

    def insert(self, name: str, row: Mapping[str, Any]) -> None:
        columns, places = map(sql.Identifier, row), sql.SQL(", ").join(sql.Placeholder() * len(row))
        insert = sql.SQL("INSERT INTO {} ({}) VALUES ({})")
        with psycopg.connect(self.shop.address) as connection:
            connection.execute(
                insert.format(sql.Identifier(name), sql.SQL(", ").join(columns), places), [*row.values()]
            )

    def _whole(self, name: str) -> list[str]:
        return [f"ALTER TABLE {name} REPLICA IDENTITY FULL"] if self.full else []


def within(number: int) -> str:
    return f"FOR VALUES FROM ({BOUNDS[number]}) TO ({BOUNDS[number + 1]})"


class PartedLife(PostgresLife):
    """One with partitions."""

    has = RealPartitions
    parts: ClassVar[Mapping[str, Sequence[str]]] = {"parted": ("orders",)}

    def __init__(self, server: Server, root: Path, seed: int) -> None:
        super().__init__(server, root, seed)
        self.table = self.simulated.log.parted["orders"]
        self._fitted = self.within

    def within(self, dice: random.Random, table: str, number: int, row: dict[str, Any]) -> dict[str, Any]:
        """Give a row a key for which there is a partition."""
        fitting = fitted(dice, table, number, row)
        if table == "orders" and not self.table.holds(fitting):
            fitting["id"] -= 1 << 63
        return fitting

    def row_of(self, number: int) -> dict[str, Any]:
        """A row for a partition."""
        row = self.row("orders")
        return {**row, "id": (row["id"] & ((1 << 62) - 1)) + ((number - 2) << 62)}

    def begun(self) -> None:
        """Both tables have rows, in all partitions, which are followed."""
        for _ in range(6):
            self.write()
        self.fill(*self.table.parts)
        self.first()

    def fill(self, *numbers: int) -> None:
        """Write a row for each of these partitions."""
        new = [self.row_of(number) for number in numbers]
        self.both(lambda side: side.write([RowChange("orders", None, row) for row in new]))
        self.rows["orders"].update({row["id"]: row for row in new})
        self.count += 1

    def change(self, how: str, number: int, rows: Sequence[dict[str, Any]] = ()) -> None:
        """Change the partitions of both."""
        log, part = self.simulated.log, self.table.parts.get(number)
        match how:
            case "attach" | "attach_with_rows":
                made = how == "attach"
                log.repartition("orders", lambda table, by: table.attach(number, by, made=made), rows)
            case "detach":
                log.repartition("orders", lambda table, _: table.detach(number))
            case "attach_again":
                log.repartition("orders", lambda table, by: table.attach_again(number, by))
            case "empty":
                log.repartition("orders", lambda table, _: table.empty(number))
        name = (part or self.table.parts[number]).name
        more = (list(rows),) if rows else ()
        getattr(self.real, how)(number, name, *more)


class RealLeaves(RealSide):
    """A real database whose orders are not followed, but each of their partitions."""

    tables: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("orders_0", "orders_1"), TABLES["orders"].removesuffix(", raw bytea")
    )

    def create(self, name: str, columns: str, *, full: bool) -> None:
        if not self.shop.tables:
            self.shop.do(f"CREATE TABLE orders ({columns}) PARTITION BY RANGE (id)")
        self.shop.tables[name] = "id"
        self.shop.do(f"CREATE TABLE {name} PARTITION OF orders {self.within(name)}")
        if full:
            self.shop.do(f"ALTER TABLE {name} REPLICA IDENTITY FULL")

    def within(self, name: str) -> str:
        return f"FOR VALUES FROM {'(MINVALUE) TO (0)' if name == 'orders_0' else '(0) TO (MAXVALUE)'}"

    def publish(self) -> None:
        self.shop.do("CREATE PUBLICATION shop FOR TABLE orders")

    def named(self, change: RowChange) -> str:
        return "orders"

    def detach_for_a_while(self, name: str) -> None:
        self.shop.do(f"ALTER TABLE orders DETACH PARTITION {name}")
        self.shop.do(f"DELETE FROM {name}")
        self.shop.do(f"ALTER TABLE orders ATTACH PARTITION {name} {self.within(name)}")


class SpreadLife(PostgresLife):
    """One with tables that are partitions."""

    has = RealLeaves
    parts: ClassVar[Mapping[str, Sequence[str]]] = {"spread": ("orders_0", "orders_1")}


def ended(life: PostgresLife) -> str:
    """Follow from where all has come; return why the table ends, in the words of both."""

    def said(side: Any) -> str:
        side.let_go()
        side.connect(starts[side])

        def nothing() -> bool:
            got = side.subscription.receive(1000, 0.2)
            for stream, batch in () if got is None else got.batches:
                side.decode(stream, batch, pytest.fail)
            return False

        with pytest.raises(TableChanged) as raised:
            eventually(nothing)
        return str(raised.value)

    starts = dict(zip(life.sides, life.reached[max(life.reached)], strict=True))
    return str(life.both(said))


@pytest.fixture
def lives(logical: Server, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    made: list[PostgresLife] = []

    def make(seed: int, kind: type[PostgresLife] = PartedLife) -> PostgresLife:
        made.append(kind(logical, tmp_path, seed))
        return made[-1]

    yield make
    for one in made:
        one.real.end()
        one.simulated.let_go()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_rows_that_move_and_empty_partitions_that_come_are_told_as_by_a_real_server(lives: Any, seed: int) -> None:
    life = lives(seed)
    life.begun()
    for _ in range(8):
        life.dice.choice([life.write, life.write, life.side_by_side, life.follow, life.tell])()
    life.change("attach", PARTS - 1)
    life.fill(PARTS - 1)
    for _ in range(6):
        life.write()
    life.follow()
    moved = [change for one in life.simulated.log.database.log for change in one.changes if change.part is not None]
    assert {quarter(change.new["id"]) for change in moved if change.new is not None} == {*range(PARTS)}
    for table in life.rows:
        assert single(life.real.rows(table)) == single(life.simulated.rows(table))


@pytest.mark.parametrize(
    ("how", "number", "said"),
    [
        ("attach_with_rows", PARTS - 1, "was attached with rows"),
        pytest.param("detach", 1, "was dropped or detached", marks=pytest.mark.long),
        pytest.param("attach_again", 1, "was detached, and attached again", marks=pytest.mark.long),
        pytest.param("empty", 1, "was emptied", marks=pytest.mark.long),
    ],
)
def test_rows_that_come_or_go_with_partitions_end_the_table_as_at_a_real_server(
    lives: Any, how: str, number: int, said: str
) -> None:
    life = lives(1)
    life.begun()
    life.write()
    life.follow()
    life.change(how, number, [life.row_of(number)] if how == "attach_with_rows" else ())
    assert said in ended(life)


def test_partitions_that_are_followed_by_themselves_are_told_as_by_a_real_server(lives: Any) -> None:
    life = lives(1, SpreadLife)
    for _ in range(4):
        life.write()
    life.first()
    for _ in range(12):
        life.dice.choice([life.write, life.write, life.side_by_side, life.follow, life.tell])()
    life.write()
    life.follow()
    assert life.given > 0
    log = life.simulated.log.database.log
    moves = [one for one in log if {change.stream for change in one.changes} == {*life.rows}]
    assert moves, "no transaction changed both"
    for table in life.rows:
        assert single(life.real.rows(table)) == single(life.simulated.rows(table))
    life.real.detach_for_a_while("orders_1")
    life.simulated.log.detach_for_a_while("orders_1", lambda rows: rows.clear())
    assert "was taken out of the publication, and put back" in ended(life)
