"""Transactions as a MariaDB and a MySQL have them in their binary logs, event by event, with every value's bytes.

    MariaDB      GTID  (TABLE_MAP with names  rows)*  XID
    MySQL 8.0    GTID  BEGIN  (TABLE_MAP with names  rows of version 2)*  XID
    MySQL 5.6    GTID  BEGIN  (TABLE_MAP  rows of version 2)*  XID

Written from the descriptions of the log, and not from what reads it.

>>> [value_of(one, kind).hex() for one, kind in ((-2, pa.int16()), (Decimal("1.50"), pa.decimal128(10, 2)))]
['feff', '8000000132']
>>> value_of("ab", pa.string()).hex(), value_of(date(2026, 11, 29), pa.date32()).hex()
('02006162', '7dd50f')
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tidegauge.sources.mysql.servers import ServerKind
from tidegauge.testing.simulation.upstream.database.tables import DatabaseTable, Row, RowChange
from tidegauge.testing.simulation.upstream.database.texts import text_of

__all__ = ["BinlogTransaction", "ColumnType", "ImagePlace", "LoggedEvent", "cells", "events", "type_of", "value_of"]

_HEADER: Final = struct.Struct("<IBIIIH")
_QUERY, _XID, _TABLE_MAP = 2, 16, 19
_GTIDS: Final = {False: 162, True: 33}
_ROWS: Final = {False: (23, 24, 25), True: (30, 31, 32)}
"""The types of events with rows, of a MariaDB and of a MySQL: of new rows, of changes, of rows that are gone."""
_DIGITS: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_UTF8, _BYTES = 45, 63
"""The numbers of collations."""
_VARCHAR: Final = 1600


@dataclass(frozen=True, slots=True)
class BinlogTransaction:
    """A transaction. domain: or the server's UUID, of a MySQL. number: in it. server: who wrote it. at: when, in
    seconds. statement: what it is, where it changes no rows but tables, with the database. keys: whether the log has
    the keys alone of rows that are gone, as with `binlog_row_image = MINIMAL`."""

    domain: str
    number: int
    server: int
    at: int
    changes: Sequence[RowChange] = ()
    statement: tuple[str, str] = ("", "")
    keys: bool = False


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type of columns. number: the log's. meta: what the log has with it. kind, shown, precision, scale, charset:
    the catalog's."""

    number: int
    meta: bytes
    kind: str
    shown: str
    precision: int | None = None
    scale: int | None = None
    charset: str | None = None


@dataclass(frozen=True, slots=True)
class ImagePlace:
    """Where a row is among the changes of its transaction: after how many bytes of them. change: which one it
    belongs to. after: whether it is what came of it."""

    change: int
    after: bool
    at: int


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event, without a checksum, and the rows that are in it."""

    data: bytes
    images: tuple[ImagePlace, ...] = ()


def type_of(kind: Any) -> ColumnType:
    """Return the type of the columns that give an Arrow type."""
    if pa.types.is_decimal(kind):
        shown = f"decimal({kind.precision},{kind.scale})"
        return ColumnType(246, bytes([kind.precision, kind.scale]), "decimal", shown, kind.precision, kind.scale)
    return _TYPES[kind]


_TYPES: Final = {
    pa.int8(): ColumnType(1, b"", "tinyint", "tinyint(4)", 3, 0),
    pa.int16(): ColumnType(2, b"", "smallint", "smallint(6)", 5, 0),
    pa.int32(): ColumnType(3, b"", "int", "int(11)", 10, 0),
    pa.int64(): ColumnType(8, b"", "bigint", "bigint(20)", 19, 0),
    pa.float32(): ColumnType(4, b"\x04", "float", "float", 12),
    pa.float64(): ColumnType(5, b"\x08", "double", "double", 22),
    pa.string(): ColumnType(15, struct.pack("<H", _VARCHAR), "varchar", "varchar(400)", charset="utf8mb4"),
    pa.binary(): ColumnType(252, b"\x02", "blob", "blob"),
    pa.date32(): ColumnType(10, b"", "date", "date"),
    pa.timestamp("us"): ColumnType(18, b"\x06", "datetime", "datetime(6)"),
    pa.timestamp("us", tz="UTC"): ColumnType(17, b"\x06", "timestamp", "timestamp(6)"),
}


def value_of(value: Any, kind: Any) -> bytes:
    """Return a value that is not null as the log has it."""
    if isinstance(value, str | bytes):
        text = value.encode() if isinstance(value, str) else value
        return struct.pack("<H", len(text)) + text
    if isinstance(value, datetime):
        return _instant(value)
    if isinstance(value, date):
        return (value.year << 9 | value.month << 5 | value.day).to_bytes(3, "little")
    if isinstance(value, Decimal):
        return _decimal(value, kind.precision, kind.scale)
    if isinstance(value, float):
        return struct.pack("<f" if kind == pa.float32() else "<d", value)
    return int(value).to_bytes(kind.bit_width // 8, "little", signed=True)


def _instant(value: datetime) -> bytes:
    micros = value.microsecond.to_bytes(3, "big")
    if value.tzinfo is not None:
        return int(value.replace(microsecond=0).timestamp()).to_bytes(4, "big") + micros
    day = ((value.year * 13 + value.month) << 5 | value.day) << 17
    return ((1 << 39) + day + (value.hour << 12 | value.minute << 6 | value.second)).to_bytes(5, "big") + micros


def _decimal(value: Decimal, precision: int, scale: int) -> bytes:
    digits = str(abs(int(value.scaleb(scale)))).rjust(precision, "0")
    whole, part = digits[: precision - scale], digits[precision - scale :]
    first = len(whole) % 9
    groups = [whole[:first], *(whole[at : at + 9] for at in range(first, len(whole), 9))]
    groups += [part[at : at + 9] for at in range(0, len(part), 9)]
    found = bytearray(b"".join(int(one).to_bytes(_DIGITS[len(one)], "big") for one in groups if one))
    if value < 0:
        found = bytearray(one ^ 0xFF for one in found)
    found[0] ^= 0x80
    return bytes(found)


def cells(row: Row, table: DatabaseTable) -> tuple[bytes | None, ...]:
    """Return a row as the texts that the server writes.

    >>> cells({"id": 1, "raw": b"x"}, DatabaseTable("t", ("s", "t"), pa.schema({"id": "int64", "raw": "binary"}), 1))
    (b'1', b'x')
    """
    return tuple(None if row[one] is None else _text(row[one]) for one in table.columns.names)


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return text_of(value, None)


def events(
    transaction: BinlogTransaction, tables: Mapping[str, DatabaseTable], kind: ServerKind, *, together: int = 2
) -> Iterator[LoggedEvent]:
    """Yield the events of a transaction. kind: of the server. together: rows that an event has at most, where they
    follow each other."""
    one, mysql = transaction, kind.by_sets

    def event(kind: int, body: bytes) -> bytes:
        return _HEADER.pack(one.at, kind, one.server, _HEADER.size + len(body), 0, 0) + body

    yield LoggedEvent(event(_GTIDS[mysql], _gtid(one, mysql=mysql)))
    database, statement = one.statement
    if statement or mysql:
        yield LoggedEvent(event(_QUERY, _query(database, statement or "BEGIN")))
    if statement:
        return
    before = 0
    for run in _runs(one.changes, together):
        table, done = tables[one.changes[run[0]].stream], _done(one.changes[run[0]])
        yield LoggedEvent(event(_TABLE_MAP, _described(table, named=kind.named)))
        count = len(table.columns)
        there = (1 << count) - 1
        if one.keys and done == 2:
            there = 1  # the first column is the key
        present = there.to_bytes((count + 7) // 8, "little") * (2 if done == 1 else 1)
        body = _number(table) + struct.pack("<H", 1) + (struct.pack("<H", 2) if mysql else b"")
        body += bytes([count]) + present
        images, places = b"", []
        for at in run:
            for row, after in ((one.changes[at].old, False), (one.changes[at].new, True)):
                if row is not None:
                    places.append(ImagePlace(at, after, before + len(images)))
                    images += _image(row, table, alone=there == 1)
        found = event(_ROWS[mysql][done], body + images)
        before += len(found)
        yield LoggedEvent(found, tuple(places))
    yield LoggedEvent(event(_XID, struct.pack("<Q", one.number)))


def _runs(changes: Sequence[RowChange], together: int) -> Iterator[list[int]]:
    """Yield the changes of each event: of one table, and of one kind."""
    run: list[int] = []
    for at, change in enumerate(changes):
        first = changes[run[0]] if run else change
        if run and (len(run) == together or (first.stream, _done(first)) != (change.stream, _done(change))):
            yield run
            run = []
        run.append(at)
    if run:
        yield run


def _done(change: RowChange) -> int:
    return 0 if change.old is None else 2 if change.new is None else 1


def _gtid(one: BinlogTransaction, *, mysql: bool) -> bytes:
    if mysql:
        return bytes([1]) + uuid.UUID(one.domain).bytes + struct.pack("<Q", one.number)
    return struct.pack("<QIB6x", one.number, int(one.domain), 1 if one.statement[1] else 0)


def _query(database: str, text: str) -> bytes:
    name = database.encode()
    return struct.pack("<IIBHH", 1, 0, len(name), 0, 0) + name + b"\0" + text.encode()


def _number(table: DatabaseTable) -> bytes:
    return table.number.to_bytes(6, "little")


def _described(table: DatabaseTable, *, named: bool) -> bytes:
    types = [type_of(one.type) for one in table.columns]
    found = _number(table) + struct.pack("<H", 1)
    for name in table.place:
        found += bytes([len(name.encode())]) + name.encode() + b"\0"
    meta, nullable = b"".join(one.meta for one in types), (1 << len(types)) - 2
    found += bytes([len(types), *(one.number for one in types), len(meta)]) + meta
    found += nullable.to_bytes((len(types) + 7) // 8, "little")
    if not named:
        return found
    numeric = sum(1 for one in types if one.precision is not None)
    names = b"".join(bytes([len(one.encode())]) + one.encode() for one in table.columns.names)
    collations = bytes(_BYTES if one.charset is None else _UTF8 for one in types if one.number in (15, 252))
    fields = [(1, bytes((numeric + 7) // 8)), (3, collations), (4, names), (8, b"\0")]
    return found + b"".join(bytes([kind]) + _packed(len(said)) + said for kind, said in fields if said)


def _packed(size: int) -> bytes:
    return bytes([size]) if size < 251 else b"\xfc" + struct.pack("<H", size)


def _image(row: Row, table: DatabaseTable, *, alone: bool) -> bytes:
    """Return a row as the log has it. alone: its key alone."""
    nulls, values = 0, b""
    columns = list(table.columns)[:1] if alone else list(table.columns)
    for at, one in enumerate(columns):
        if (value := row.get(one.name)) is None:  # it may be older than the column
            nulls |= 1 << at
        else:
            values += value_of(value, one.type)
    return nulls.to_bytes((len(columns) + 7) // 8, "little") + values
