"""A simulated database and a real one, side by side: the same life of both, connection by connection.

A life is random: transactions over two tables, connections that are cut, and that begin at any place where an earlier
one came to. Places differ, so a place is known by how many transactions were before it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pytest
from tests.waiting import eventually

from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.testing.simulation.upstream.database.tables import RowChange
from tidegauge.testing.simulation.writers.values import made

__all__ = ["Group", "Life", "Side", "by_table", "by_their_keys", "drop_ours"]

PLACE: Final = ("_sequence", "_offset", "_timestamp", "_partition")
Group = dict[str, list[Any]]


class Side:
    """A database, its source, and what the source gave on the connection that is kept: transactions, and how far."""

    source: Any
    decode: Any

    def __init__(self) -> None:
        self.subscription: Any = None
        self.identity = ""
        self.reached: list[Frontier] = []
        self.raised: Exception | None = None
        self.schema: pa.Schema | None = None
        """The columns that are bound, where these are others than the declared ones."""
        self.further: Mapping[str, pa.Schema] = {}
        """The columns that the last receipt told of."""

    def connect(self, start: Frontier, bound_to: Frontier | None = None) -> None:
        """Connect at a place. bound_to: how far the source is bound, if that is not so far."""
        bound = Bound(frontier=start if bound_to is None else bound_to, identity=self.identity, schema=self.schema)
        self.subscription = self.source.connect(start, bound)
        self.identity = self.subscription.identity

    def let_go(self) -> None:
        if self.subscription is not None:
            self.subscription.close()
            self.subscription = None

    def take(self, count: int) -> tuple[list[Group], Frontier]:
        """Receive until so many transactions have come. The last frontier is behind all of them."""
        found: dict[int, Group] = {}
        last = Frontier()

        def received() -> bool:
            nonlocal last
            got = self.subscription.receive(1000, 0.2)
            if got is not None:
                self.further, last = got.further, last.join(got.frontier)
                for stream, batch in got.batches:
                    for row in self.decode(stream, batch, pytest.fail).to_pylist():
                        values = {name: value for name, value in row.items() if name not in PLACE}
                        found.setdefault(row["_offset"], {}).setdefault(stream, []).append(
                            (int(row["_sequence"]), values)
                        )
            return bool(last) and len(found) >= count

        eventually(received)
        groups = [found[place] for place in sorted(found)]
        return [{name: in_order(rows) for name, rows in sorted(group.items())} for group in groups], last

    def joined(self, stream: str) -> tuple[list[Any], Frontier]:
        """Receive until a stream has joined. Return its rows by then, and how far that is."""
        found: dict[Any, list[Any]] = {}
        last = Frontier()

        def received() -> bool:
            nonlocal last
            if (got := self.subscription.receive(1000, 0.2)) is None:
                return False
            last = last.join(got.frontier)
            for batch in (batch for name, batch in got.batches if name == stream):
                for row in self.decode(stream, batch, pytest.fail).to_pylist():
                    values = [value for name, value in row.items() if not name.startswith("_")]
                    if row["_op"] == "delete":
                        found.pop(values[0], None)
                    else:
                        found[values[0]] = values
            return not got.awaits and bool(found)

        eventually(received)
        return [*found.values()], last


def in_order(rows: list[tuple[int, Any]]) -> list[Any]:
    """The rows of a transaction in their order, each with its number in it."""
    return [(number & 0xFFFFFFFF, values) for number, values in sorted(rows, key=lambda row: row[0])]


def drop_ours(columns: pa.Schema) -> pa.Schema:
    return pa.schema([one for one in columns if not one.name.startswith("_")])


def by_their_keys(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: str(row[0]))


def by_table(groups: list[Group]) -> dict[str, list[Any]]:
    """First rows are in no order."""
    return {
        stream: sorted((repr(values) for _, values in rows)) for group in groups for stream, rows in group.items()
    }


class Life:
    """One life of both. columns: of each table. raised: the errors that both may answer with.

    fitted: makes a row of a table, with its number, fit the database. keeps: how often a change keeps a value; 0 for
    a database whose log lacks changes that change nothing.

    reached: the frontiers that connections came to, by how many transactions were before. count: how many
    transactions changed rows. given: how many came over the connections.
    """

    def __init__(
        self,
        real: Any,
        simulated: Any,
        columns: Mapping[str, pa.Schema],
        dice: random.Random,
        *,
        raised: tuple[type[Exception], ...],
        fitted: Callable[[random.Random, str, int, dict[str, Any]], dict[str, Any]],
        keeps: float = 0.0,
    ) -> None:
        self.dice = dice
        self.real, self.simulated = real, simulated
        self.sides: tuple[Any, Any] = (real, simulated)
        self.columns = columns
        self.rows: dict[str, dict[Any, Any]] = {name: {} for name in columns}
        self.count = self.made = self.given = 0
        self.reached: dict[int, tuple[Frontier, Frontier]] = {}
        self._raised = raised
        self._fitted = fitted
        self._keeps = keeps

    def both(self, ask: Callable[[Any], Any]) -> Any:
        """Ask both; they answer alike, or raise errors of one class."""
        found: list[Any] = []
        for side in self.sides:
            try:
                found.append(ask(side))
            except self._raised as error:
                found.append(type(error).__name__)
        assert found[0] == found[1], found
        return found[0]

    def row(self, table: str) -> dict[str, Any]:
        self.made += 1
        plain = pa.schema([one for one in self.columns[table] if one.name != "raw"])
        row = made(plain, seed=7, shard=len(table), lower=self.made, upper=self.made + 1).to_pylist()[0]
        if table == "orders":
            row["raw"] = None if self.made % 3 == 0 else bytes(self.dice.randrange(256) for _ in range(5))
        return self._fitted(self.dice, table, self.made, row)

    def changes(self, *, fresh: bool = False) -> list[RowChange]:
        """Some changes. fresh: of new rows alone, which touch nobody else's."""
        found = []
        for _ in range(self.dice.randrange(1, 5)):
            table = self.dice.choice([*self.columns])
            rows, new = self.rows[table], self.row(table)
            key = next(iter(new))
            old = self.dice.choice([*rows.values()]) if rows and not fresh and self.dice.random() < 0.6 else None
            what = self.dice.choice(("change", "move", "go")) if old is not None else "come"
            if old is not None and what == "change":
                new = {
                    name: old.get(name, new[name]) if name == key or self.dice.random() < self._keeps else new[name]
                    for name in new
                }
            found.append(RowChange(table, old, None if what == "go" else new))
            if old is not None and what != "change":
                del rows[old[key]]
            if what != "go":
                rows[new[key]] = new
        return found

    # What happens.

    def write(self) -> None:
        changes = self.changes()
        self.both(lambda side: side.write(changes))
        self.count += 1

    def roll_back(self) -> None:
        before = {name: dict(rows) for name, rows in self.rows.items()}
        changes = self.changes()
        self.rows = before
        self.both(lambda side: side.roll_back(changes))

    def first(self) -> None:
        """First rows."""
        self.both(lambda side: side.connect(Frontier()))
        kept = [side.take(1 if any(self.rows.values()) else 0) for side in self.sides]
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

    def join(self, table: str) -> list[Any]:
        """Declare a table that is not followed yet, and take until it has joined. Return its rows by their keys."""
        starts = dict(zip(self.sides, self.reached[max(self.reached)], strict=True))

        def joined(side: Any) -> list[Any]:
            side.let_go()
            side.declare(*self.columns)
            side.connect(starts[side])
            rows, frontier = side.joined(table)
            side.reached.append(frontier)
            return by_their_keys(rows)

        found = self.both(joined)
        self.reached = {self.count: (self.real.reached[-1], self.simulated.reached[-1])}
        return list(found)

    def cut(self) -> None:
        """Cut the connections. Whoever goes on hears of it."""
        self.both(lambda side: side.cut())

        def goes_on(side: Any) -> None:
            if side.subscription is not None:
                for _ in range(3):
                    side.subscription.receive(10, 0.2)

        self.both(goes_on)
        self.both(lambda side: side.let_go())
