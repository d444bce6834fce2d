"""Values as a server of PostgreSQL writes them, and what it sends of a transaction: the messages of `pgoutput`.

Written from the protocol's own description, and not from what reads it.

>>> text_of(True, pa.bool_()), text_of(Decimal("1.50"), pa.decimal128(10, 2)), text_of(b"a", pa.binary())
(b't', b'1.50', b'\\\\x61')
>>> orders = DatabaseTable("orders", ("public", "orders"), pa.schema([("id", pa.int64())]), 7)
>>> one = LoggedTransaction(8, 0, 1, [RowChange("orders", None, {"id": 5})])
>>> [message[:1] for message in messages(one, 9, {"orders": orders}, set())]
[b'B', b'R', b'I', b'C']
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.remap.fromtime.lsn import Lsn
from tidegauge.sources.postgres.types import modifier
from tidegauge.testing.simulation.upstream.database.tables import (
    DatabaseTable,
    LoggedTransaction,
    Row,
    RowChange,
    TablePart,
)

__all__ = ["data_frame", "history", "line_of", "messages", "number_of", "sign_of_life", "text_of"]

_EPOCH_2000: Final = 946_684_800_000_000
_NULL: Final = b"n"
_UNCHANGED: Final = b"u"


def text_of(value: Any, kind: Any) -> bytes:
    """Return a value that is not null as text."""
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, bytes):
        return rb"\x" + value.hex().encode()
    if isinstance(value, datetime):
        shown = value.astimezone(UTC) if value.tzinfo is not None else value
        return (shown.strftime("%Y-%m-%d %H:%M:%S.%f") + ("+00" if value.tzinfo is not None else "")).encode()
    if isinstance(value, date):
        return value.isoformat().encode()
    if isinstance(value, Decimal):
        return format(value, "f").encode()
    if isinstance(value, float):
        return str(np.float32(value) if kind == pa.float32() else value).encode()
    return str(value).encode()


def number_of(kind: Any) -> tuple[int, int]:
    """Return the server's number of a type, and its modifier.

    >>> number_of(pa.int64()), number_of(pa.decimal128(10, 2))
    ((20, -1), (1700, 655366))
    """
    if pa.types.is_decimal(kind):
        return 1700, modifier(kind.precision, kind.scale)
    return _NUMBERS.get(kind, 25), -1


_NUMBERS: Final = {
    pa.bool_(): 16,
    pa.binary(): 17,
    pa.int64(): 20,
    pa.int16(): 21,
    pa.int32(): 23,
    pa.float32(): 700,
    pa.float64(): 701,
    pa.date32(): 1082,
    pa.timestamp("us"): 1114,
    pa.timestamp("us", tz="UTC"): 1184,
}


def line_of(row: Row, table: DatabaseTable) -> bytes:
    """Return a row as a line of CSV. Nulls are empty there, and no text is.

    >>> table = DatabaseTable("t", ("s", "t"), pa.schema([("a", pa.string()), ("b", pa.string())]), 1)
    >>> line_of({"a": None, "b": "x,y"}, table)
    b',"x,y"\\n'
    """
    values = [(row.get(one.name), one.type) for one in table.columns]
    cells = [None if value is None else text_of(value, kind) for value, kind in values]
    return b",".join(b"" if cell is None else b'"' + cell.replace(b'"', b'""') + b'"' for cell in cells) + b"\n"


def messages(
    transaction: LoggedTransaction,
    end: int,
    tables: Mapping[str, DatabaseTable],
    told: set[tuple[str, int, TablePart | None]],
    *,
    sparing: bool = False,
    large: Collection[str] = (),
) -> Iterator[bytes]:
    """Yield the messages of a transaction. end: where its commit ends. tables: as they were then. told: tables that
    were described before, each with how many columns it had, and those of each partition.

    sparing: whether a text that an update leaves alone stays out, as a large one does, where the transaction has it.
    large: the streams in whose changes it stays out wherever else the value is.
    """
    seen: set[tuple[str, Any]] = set()
    yield struct.pack(">cQqI", b"B", transaction.place, transaction.at - _EPOCH_2000, transaction.number)
    for change in transaction.changes:
        table = tables[change.stream]
        if (shape := (change.stream, len(table.columns), change.part)) not in told:
            told.add(shape)
            yield _relation(table)
            if change.part is not None:  # right after the one in whose name its changes come
                yield _relation(replace(table, place=change.part.place, number=change.part.number))
        every = change.stream in large
        left_out = _left_out(change, table, seen, every=every) if sparing or every else frozenset()
        yield _change(change, table, left_out)
    yield struct.pack(">cBQQq", b"C", 0, transaction.place, end, transaction.at - _EPOCH_2000)


def data_frame(place: int, message: bytes) -> bytes:
    """Return a message as it travels."""
    return b"w" + struct.pack(">QQq", place, place, 0) + message


def sign_of_life(end: int) -> bytes:
    """Return the frame that says that everything before a place was sent."""
    return b"k" + struct.pack(">QqB", end, 0, 0)


def history(ends: Sequence[int]) -> str:
    """Return the file that tells of the timelines before one. ends: where each of them ended.

    >>> history([0x1A00050])
    '1\\t0/1A00050\\tno recovery target specified\\n'
    """
    return "".join(f"{number}\t{Lsn(end)}\tno recovery target specified\n" for number, end in enumerate(ends, 1))


def _relation(table: DatabaseTable) -> bytes:
    schema, name = table.place
    found = b"R" + struct.pack(">I", table.number) + schema.encode() + b"\0" + name.encode() + b"\0"
    found += (b"f" if table.whole else b"d") + struct.pack(">h", len(table.columns))
    for column in table.columns:
        keyed = table.whole or column.name == table.key
        found += bytes([keyed]) + column.name.encode() + b"\0" + struct.pack(">Ii", *number_of(column.type))
    return found


def _left_out(change: RowChange, table: DatabaseTable, seen: set[tuple[str, Any]], *, every: bool) -> frozenset[str]:
    """Return the columns of a change that stay out. seen: the rows that the transaction has whole. every: or of any
    row."""
    old, new = change.old, change.new
    if new is None:
        return frozenset()
    known = old is not None and (every or table.whole or (table.stream, old[table.key]) in seen)
    seen.add((table.stream, new[table.key]))
    if old is None or not known:
        return frozenset()
    texts = [one.name for one in table.columns if pa.types.is_string(one.type) and one.name != table.key]
    return frozenset(name for name in texts if old.get(name) is not None and old[name] == new.get(name))


def _change(change: RowChange, table: DatabaseTable, left_out: frozenset[str]) -> bytes:
    number = struct.pack(">I", table.number)
    if change.old is None:
        return b"I" + number + b"N" + _tuple(change.new or {}, table)
    if change.new is None:
        return b"D" + number + _old(change.old, table)
    moved = table.whole or change.old[table.key] != change.new[table.key]
    return b"U" + number + (_old(change.old, table) if moved else b"") + b"N" + _tuple(change.new, table, left_out)


def _old(row: Row, table: DatabaseTable) -> bytes:
    """Return an old row: of a table that is not written whole its key alone."""
    return b"O" + _tuple(row, table) if table.whole else b"K" + _tuple({table.key: row[table.key]}, table)


def _tuple(row: Row, table: DatabaseTable, left_out: frozenset[str] = frozenset()) -> bytes:
    found = struct.pack(">h", len(table.columns))
    for one in table.columns:
        value = row.get(one.name)
        if value is None or one.name in left_out:
            found += _NULL if value is None else _UNCHANGED
            continue
        text = text_of(value, one.type)
        found += b"t" + struct.pack(">I", len(text)) + text
    return found
