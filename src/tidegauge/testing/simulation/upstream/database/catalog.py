"""What the catalog of a simulated server of PostgreSQL says of its tables and slots.

Invariant: a column has one number and one type here and in the log, and no other column of its table has the number.

>>> table = DatabaseTable("orders", ("public", "orders"), pa.schema([("id", pa.int64())]), 16384)
>>> found = published(table, [])
>>> found.columns[0].type, found.growth.mark.last
('int8', 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from tidegauge.sources.postgres.catalog import PublishedTable, ServerColumn, SlotFacts, TablePartition
from tidegauge.sources.postgres.growth import GrownColumn, TableGrowth
from tidegauge.sources.postgres.types import modifier
from tidegauge.testing.simulation.upstream.database.server import LogSlot
from tidegauge.testing.simulation.upstream.database.tables import AddedColumn, DatabaseTable
from tidegauge.testing.simulation.upstream.database.texts import number_of

__all__ = ["published", "slot_facts"]


def slot_facts(slot: LogSlot, database: str, process: int) -> SlotFacts:
    """Return what the catalog says of a slot. process: the server's, that sends to it while somebody has it."""
    held = slot.line is not None and not slot.line.ended
    return SlotFacts("pgoutput", database, slot.confirmed, slot.lost, process if held else None, slot.synced)


def published(
    table: DatabaseTable, added: Sequence[AddedColumn], leaves: Sequence[TablePartition] = (), attached: int = 0
) -> PublishedTable:
    """Return what the catalog says of a table. added: the columns that came to tables. leaves: its partitions.
    attached: the transaction that attached it, where it is one itself."""
    columns = tuple(_column(one.name, one.type) for one in table.columns)
    names, identity = tuple(table.columns.names), "f" if table.whole else "d"
    valued = {one.column.name for one in added if one.stream == table.stream and one.valued}
    grown = {
        one.name: GrownColumn(number, *number_of(one.type), valued=one.name in valued)
        for number, one in enumerate(table.columns, 1)
    }
    files = tuple((one.oid, one.file) for one in leaves)
    unmoved = frozenset(one.oid for one in leaves if one.empty or one.file == one.oid)
    stored = 0 if table.parted else table.number
    growth = TableGrowth(len(names), stored, listed=False, columns=grown, parts=files, unmoved=unmoved)
    return PublishedTable(
        table.number,
        *table.place,
        "p" if table.parted else "r",
        identity,
        key=True,
        readable=True,
        published=names,
        filtered=None,
        columns=columns,
        partitions=tuple(leaves),
        growth=growth,
        members=((_MEMBER + (attached << 32), ""),),
    )


_MEMBER: Final = 16_000
"""The number of the row that puts a table into the publication."""


def _column(name: str, kind: Any) -> ServerColumn:
    if pa.types.is_decimal(kind):
        return ServerColumn(name, "numeric", modifier(kind.precision, kind.scale), "b", "numeric")
    found = _TYPES.get(kind, "text")
    return ServerColumn(name, found, -1, "b", found)


_TYPES: Final = {
    pa.bool_(): "bool",
    pa.int16(): "int2",
    pa.int32(): "int4",
    pa.int64(): "int8",
    pa.float32(): "float4",
    pa.float64(): "float8",
    pa.binary(): "bytea",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", tz="UTC"): "timestamptz",
}
