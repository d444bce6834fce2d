"""`PartitionedTable`: a table of a simulated server whose rows are in partitions, by fourths of all 64-bit keys.

A row whose key moves to another fourth is deleted in one partition and inserted in another one. The log has all that
is written to rows, and nothing of what comes and goes with a partition.

Invariant: a row is in the partition of its key, and none is where there is no partition.

>>> table = PartitionedTable(DatabaseTable("orders", ("public", "orders"), pa.schema([("id", pa.int64())]), 16384))
>>> [part.name for part in table.parts.values()], quarter(5), quarter(-5)
(['orders_0', 'orders_1', 'orders_2'], 2, 1)
>>> [str(one.part) for one in table.routed(RowChange("orders", {"id": 5}, {"id": -5}), 700)]
['public.orders_2', 'public.orders_1']
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa  # noqa: F401 - for the example

from tidegauge.sources.postgres.catalog import RowsQuestion, TablePartition
from tidegauge.sources.postgres.partitions import KnownPartitions
from tidegauge.testing.simulation.upstream.database.tables import DatabaseTable, Row, RowChange, TablePart

__all__ = ["PARTS", "PartitionedTable", "SpreadTables", "quarter"]

PARTS: Final = 4
_BEGUN: Final = 600
"""The transaction that made the first partitions."""


def quarter(key: int) -> int:
    """Return the fourth of all 64-bit numbers that has a key."""
    return (key >> 62) + 2


@dataclass(frozen=True, slots=True)
class _AttachedPart:
    """A partition. file: where its rows are. attached: the transaction that attached it. made: and that made it."""

    part: TablePart
    file: int
    attached: int
    made: bool

    @property
    def name(self) -> str:
        return self.part.place[1]


class PartitionedTable:
    """The partitions of a table. parts: those that it has at present, by fourths of the keys: first all but one."""

    def __init__(self, table: DatabaseTable) -> None:
        self.table: Final = table
        self.parts: Final[dict[int, _AttachedPart]] = {}
        self._writers: Final[dict[Any, int]] = {}
        """The last transaction that wrote a row, by its key."""
        self._filled: Final[set[int]] = set()
        """The files that rows were written to."""
        self._made = 0
        self._history: Final[list[tuple[int, KnownPartitions]]] = []
        for number in range(PARTS - 1):
            self.attach(number, _BEGUN, made=True)
        self.keep(0, _BEGUN)

    def attach(self, number: int, transaction: int, *, made: bool) -> None:
        """Attach another partition for a fourth. made: which the same transaction makes."""
        self._made += 1
        again = f"_{self._made}" if self._made > PARTS - 1 else ""
        schema, name = self.table.place
        oid = self.table.number + 100 * self._made
        self.parts[number] = _AttachedPart(
            TablePart(oid, (schema, f"{name}_{number}{again}")), oid, transaction, made
        )

    def bring(self, rows: Sequence[Row], transaction: int) -> None:
        """Have rows in their partitions that the log has nothing of. transaction: that wrote them."""
        for row in rows:
            self._writers[row[self.table.key]] = transaction
            self._filled.add(self.parts[quarter(row[self.table.key])].file)

    def attach_again(self, number: int, transaction: int) -> None:
        """Detach a partition, and attach it with the rows that it has."""
        self.parts[number] = replace(self.parts[number], attached=transaction, made=False)

    def detach(self, number: int) -> None:
        """Let a partition go, with its rows."""
        del self.parts[number]
        self._forget(number)

    def empty(self, number: int) -> None:
        """Empty a partition."""
        self._made += 1
        self.parts[number] = replace(self.parts[number], file=self.table.number + 100 * self._made)
        self._forget(number)

    def routed(self, change: RowChange, transaction: int) -> Iterator[RowChange]:
        """Yield what a change does to partitions, and remember who does it."""
        key = self.table.key
        old = None if change.old is None else self.parts[quarter(change.old[key])]
        new = None if change.new is None else self.parts[quarter(change.new[key])]
        if change.old is not None:
            self._writers.pop(change.old[key], None)
        if change.new is not None and new is not None:
            self._writers[change.new[key]] = transaction
            self._filled.add(new.file)
        if old is not None and new is not None and old is not new:
            yield replace(change, new=None, part=old.part)
            yield replace(change, old=None, part=new.part)
        else:
            found = new or old
            yield replace(change, part=None if found is None else found.part)

    def holds(self, row: Row) -> bool:
        """Whether there is a partition for a row."""
        return quarter(row[self.table.key]) in self.parts

    def has(self, row: Row) -> bool:
        """Whether a row that was there is still in a partition."""
        return row[self.table.key] in self._writers

    # What the catalog says.

    @property
    def leaves(self) -> tuple[TablePartition, ...]:
        """The partitions, by their names."""
        return tuple(
            TablePartition(
                one.part.number,
                *one.part.place,
                one.file,
                one.attached,
                0,
                one.made,
                one.file not in self._filled,
                identity="f" if self.table.whole else "d",
            )
            for one in sorted(self.parts.values(), key=lambda one: one.name)
        )

    def old_rows(self, question: RowsQuestion) -> bool:
        """Return whether a partition has rows that transactions of a lower number wrote."""
        [mine] = [number for number, one in self.parts.items() if one.part.number == question.partition.oid] or [-1]
        rows = [writer for key, writer in self._writers.items() if quarter(key) == mine]
        return question.younger and any(writer < question.transaction for writer in rows)

    def keep(self, place: int, horizon: int) -> None:
        """Remember the partitions from a place of the log on."""
        self._history.append((place, KnownPartitions(horizon, self.leaves)))

    def known_at(self, place: int) -> KnownPartitions:
        """Return the partitions as they were at a place. Whether one is empty is seen now, as at a real server."""
        known = [known for at, known in self._history if at <= place][-1]
        return replace(known, leaves=tuple(replace(one, empty=one.file not in self._filled) for one in known.leaves))

    def _forget(self, number: int) -> None:
        for key in [key for key in self._writers if quarter(key) == number]:
            del self._writers[key]


class SpreadTables:
    """Tables that are followed by themselves, and are the partitions of one that is not, by ranges of the key.

    attached: the last transaction that attached each of them, by stream.

    >>> columns = pa.schema([("id", pa.int64())])
    >>> first, last = (DatabaseTable(name, ("public", name), columns, 16384) for name in ("a", "b"))
    >>> [(one.stream, one.new) for one in SpreadTables([first, last]).routed(RowChange("a", {"id": -5}, {"id": 5}))]
    [('a', None), ('b', {'id': 5})]
    """

    def __init__(self, tables: Sequence[DatabaseTable]) -> None:
        self._tables: Final = tuple(tables)
        self.attached: Final = {one.stream: _BEGUN for one in tables}

    def routed(self, change: RowChange) -> Iterator[RowChange]:
        """Yield what a change does to tables: those of its keys, whichever it names."""
        old = None if change.old is None else self._holding(change.old)
        new = None if change.new is None else self._holding(change.new)
        if old is not None and new is not None and old != new:
            yield RowChange(old, change.old, None)
            yield RowChange(new, None, change.new)
        else:
            yield replace(change, stream=old or new or change.stream)

    def _holding(self, row: Row) -> str:
        table = self._tables[quarter(row[self._tables[0].key]) * len(self._tables) // PARTS]
        return table.stream
