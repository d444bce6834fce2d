"""`DatabaseRows`: the tables of a simulated server, and the transactions that changed them, by their commits.

Invariant: the rows of a table are what its transactions made of it, so `rows_at` tells them at any place.

>>> orders = DatabaseTable("orders", ("public", "orders"), pa.schema([("id", pa.int64()), ("n", pa.int64())]), 16384)
>>> database = DatabaseRows([orders])
>>> database.commit(8, at=0, number=1, changes=[RowChange("orders", None, {"id": 1, "n": 5})])
>>> database.commit(16, at=0, number=2, changes=[RowChange("orders", {"id": 1, "n": 5}, {"id": 1, "n": 6})])
>>> database.rows_at("orders", 16), database.rows_at("orders", 17)
([{'id': 1, 'n': 5}], [{'id': 1, 'n': 6}])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa

__all__ = ["AddedColumn", "DatabaseRows", "DatabaseTable", "LoggedTransaction", "Row", "RowChange", "TablePart"]

Row: TypeAlias = Mapping[str, Any]
"""The values of a row, by column."""


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table. place: its schema and name. number: the server's. Its first column is its key.

    whole: whether the log has old rows, and not their keys alone. parted: whether its rows are in partitions.
    """

    stream: str
    place: tuple[str, str]
    columns: pa.Schema
    number: int
    whole: bool = False
    parted: bool = False

    @property
    def key(self) -> str:
        """The column that is its key."""
        return str(self.columns.names[0])


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column that came to a table. place: from which on changes have it.

    valued: whether rows of before have a value in it, as of a default. early: whether it came right behind the key.
    """

    place: int
    stream: str
    column: Any
    valued: bool
    early: bool = False


@dataclass(frozen=True, slots=True)
class TablePart:
    """A partition. number: the server's. place: its schema and name."""

    number: int
    place: tuple[str, str]

    def __str__(self) -> str:
        return ".".join(self.place)


@dataclass(frozen=True, slots=True)
class RowChange:
    """What became of a row. old: what it was, None for a new one. new: what it is, None for one that is gone.

    part: the partition that it is in, None for a table without.
    """

    stream: str
    old: Row | None
    new: Row | None
    part: TablePart | None = None


@dataclass(frozen=True, slots=True)
class LoggedTransaction:
    """A transaction. place: of its commit, in the log. at: when that was, in microseconds. number: the server's."""

    place: int
    at: int
    number: int
    changes: Sequence[RowChange]


class DatabaseRows:
    """Tables by their streams. first: the rows that they began with, by key; none. rows: those of each at present.
    log: all transactions that changed some. added: the columns that came to tables. gone: the streams of tables that
    were dropped, each with the place of it."""

    def __init__(self, tables: Sequence[DatabaseTable], first: Mapping[str, Mapping[Any, Row]] | None = None) -> None:
        self.tables: Final = {table.stream: table for table in tables}
        self.first: Final[dict[str, dict[Any, Row]]] = {one: dict((first or {}).get(one, {})) for one in self.tables}
        self.rows: Final[dict[str, dict[Any, Row]]] = {one: dict(rows) for one, rows in self.first.items()}
        self.log: Final[list[LoggedTransaction]] = []
        self.added: Final[list[AddedColumn]] = []
        self.gone: Final[dict[str, int]] = {}

    def tables_at(self, place: int) -> dict[str, DatabaseTable]:
        """Return the tables as they were at a place, with the columns that had come by then."""
        found = dict(self.tables)
        for one in self.added:
            if one.place <= place:
                table = found[one.stream]
                at = 1 if one.early else len(table.columns)
                found[one.stream] = replace(table, columns=table.columns.insert(at, one.column))
        return found

    def commit(self, place: int, *, at: int, number: int, changes: Sequence[RowChange]) -> None:
        """Take in a transaction, which is the last one."""
        for change in changes:
            _take(self.rows[change.stream], self.tables[change.stream].key, change)
        self.log.append(LoggedTransaction(place, at, number, tuple(changes)))

    def rows_at(self, stream: str, place: int) -> list[Row]:
        """Return the rows of a table as all transactions before a place made them, in the order of their coming."""
        found = dict(self.first[stream])
        for transaction in self.log:
            for change in transaction.changes:
                if change.stream == stream and transaction.place < place:
                    _take(found, self.tables[stream].key, change)
        return list(found.values())

    def writers_at(self, stream: str, place: int) -> dict[Any, int]:
        """Return which transaction wrote a row last before a place, by the key of the row."""
        key = self.tables[stream].key
        changes = [
            (one.number, change.new[key])
            for one in self.log
            if one.place < place
            for change in one.changes
            if change.stream == stream and change.new is not None
        ]
        return {**dict.fromkeys(self.first[stream], 0), **{of: number for number, of in changes}}

    def touched(self, stream: str, lower: int, upper: int) -> frozenset[Any]:
        """Return the keys of the rows of a table that transactions of a range made, changed or removed."""
        key = self.tables[stream].key
        changes = [change for one in self.between(lower, upper) for change in one.changes if change.stream == stream]
        return frozenset(row[key] for change in changes for row in (change.old, change.new) if row is not None)

    def before(self, place: int) -> DatabaseRows:
        """Return the tables as they were before a place, as if nothing had come after it."""
        found = DatabaseRows([*self.tables.values()], self.first)
        for one in self.between(0, place):
            found.commit(one.place, at=one.at, number=one.number, changes=one.changes)
        found.added.extend(one for one in self.added if one.place < place)
        found.gone.update({stream: at for stream, at in self.gone.items() if at < place})
        return found

    def between(self, lower: int, upper: int) -> list[LoggedTransaction]:
        """Return the transactions of a range of places."""
        return [one for one in self.log if lower <= one.place < upper]


def _take(rows: dict[Any, Row], key: str, change: RowChange) -> None:
    if change.old is not None and (change.new is None or change.new[key] != change.old[key]):
        rows.pop(change.old[key], None)  # it may have come with a partition
    if change.new is not None:
        rows[change.new[key]] = change.new
