"""What a server sends in logical replication: the frames of the stream, and the messages of `pgoutput` in them.

Invariant: everything is read by its length and its kind; a message that is shorter than it says, or of a kind that
version 1 of the protocol does not have, is an error and never passed over. Changes themselves are not taken apart
here, since that is done for many at once, see `tuples`.

>>> begin_of(bytes.fromhex("42 0000000001536a10 0000000000000001 000002e4"))
Begin(lsn=22243856, at=946684800000001, xid=740)
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidegauge.errors.postgressource import ReplicationBroken

__all__ = [
    "BEGIN_SIZE",
    "CHANGES",
    "COMMIT_SIZE",
    "EPOCH_2000",
    "PASSED",
    "Begin",
    "TableShape",
    "begin_of",
    "commit_of",
    "relation_of",
    "status",
    "truncated",
]

EPOCH_2000: Final = 946_684_800_000_000
"""Microseconds from 1970 to 2000, from when on the server counts."""
CHANGES: Final = frozenset(b"IUD")
"""Kinds of messages that say what became of a row."""
PASSED: Final = frozenset(b"YOM")
"""Kinds that say nothing of rows: types, origins and messages of applications."""

_BEGIN: Final = struct.Struct(">cQqI")
_COMMIT: Final = struct.Struct(">cBQQq")
BEGIN_SIZE, COMMIT_SIZE = _BEGIN.size, _COMMIT.size
"""Bytes of the messages that begin a transaction, and that end it."""
_STATUS: Final = struct.Struct(">cQQQqB")
_KEY: Final = 1
"""The flag of a column of the replica identity."""
_COLUMN: Final = struct.Struct(">Ii")


class Begin(NamedTuple):
    """A transaction: the place of its commit, when that was, in microseconds since 1970, and the server's number."""

    lsn: int
    at: int
    xid: int


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table as it was when a change was made. oid: the server's number of it. columns: in the order of changes.

    keys: those of its replica identity. types: of each column, the server's number of its type, and the modifier.
    lacks: columns that came to the table after the change, so its rows have null in them.
    """

    oid: int
    schema: str
    table: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    types: tuple[tuple[int, int], ...] = ()
    lacks: tuple[str, ...] = ()

    def encoded(self) -> str:
        """Return it as text, to travel with the changes.

        >>> TableShape.decoded(TableShape(7, "public", "orders", ("id",)).encoded()).columns
        ('id',)
        """
        return json.dumps(
            [self.oid, self.schema, self.table, self.columns, self.keys, self.types, self.lacks],
            separators=(",", ":"),
        )

    @classmethod
    def decoded(cls, text: str) -> TableShape:
        """Return the shape that a text says; earlier versions kept no keys, and no types.

        >>> TableShape.decoded('[7, "public", "orders", ["id"]]').keys
        ()
        """
        oid, schema, table, columns, *others = json.loads(text)
        keys, types, lacks = (*others, (), (), ())[:3]
        return cls(oid, schema, table, tuple(columns), tuple(keys), tuple(map(tuple, types)), tuple(lacks))


def begin_of(message: bytes) -> Begin:
    """Return what a message of the kind `B` says. Raises `ReplicationBroken`."""
    _, lsn, at, xid = _unpacked(_BEGIN, message)
    return Begin(lsn, at + EPOCH_2000, xid)


def commit_of(message: bytes) -> int:
    """Return the place of a commit, of a message of the kind `C`. Raises `ReplicationBroken`."""
    return int(_unpacked(_COMMIT, message)[2])


def relation_of(message: bytes) -> TableShape:
    """Return the table that a message of the kind `R` describes. Raises `ReplicationBroken`.

    >>> message = b"R" + struct.pack(">I", 16384) + b"public\\0orders\\0d" + struct.pack(">h", 1)
    >>> relation_of(message + b"\\1id\\0" + struct.pack(">Ii", 20, -1))
    TableShape(oid=16384, schema='public', table='orders', columns=('id',), keys=('id',), types=((20, -1),), lacks=())
    """
    try:
        (oid,) = struct.unpack_from(">I", message, 1)
        schema, at = _text(message, 5)
        table, at = _text(message, at)
        (count,) = struct.unpack_from(">h", message, at + 1)
        at += 3
        columns, keys, types = [], [], []
        for _ in range(count):
            flags = message[at]
            name, at = _text(message, at + 1)
            columns.append(name)
            if flags & _KEY:
                keys.append(name)
            types.append(_COLUMN.unpack_from(message, at))
            at += _COLUMN.size
    except (struct.error, ValueError, IndexError) as error:
        raise ReplicationBroken(message=_shown(message), problem=str(error)) from error
    if at != len(message):
        raise ReplicationBroken(
            message=_shown(message), problem=f"it has {len(message)} bytes, and {at} were expected"
        )
    return TableShape(oid, schema or "pg_catalog", table, tuple(columns), tuple(keys), tuple(types))


def truncated(message: bytes) -> list[int]:
    """Return the numbers of the tables that a message of the kind `T` empties. Raises `ReplicationBroken`."""
    try:
        (count,) = struct.unpack_from(">I", message, 1)
        return list(struct.unpack_from(f">{count}I", message, 6))
    except struct.error as error:
        raise ReplicationBroken(message=_shown(message), problem=str(error)) from error


def status(received: int, flushed: int, at: int, *, reply: bool) -> bytes:
    """Return the frame that says how far a client is. at: microseconds since 1970. reply: whether to answer at once.

    >>> status(0x1536A11, 0x1536A11, EPOCH_2000, reply=True).hex()
    '720000000001536a110000000001536a110000000001536a11000000000000000001'
    """
    return _STATUS.pack(b"r", received, flushed, flushed, at - EPOCH_2000, reply)


def _unpacked(form: struct.Struct, message: bytes) -> tuple[int, ...]:
    try:
        return form.unpack(message)
    except struct.error as error:
        raise ReplicationBroken(message=_shown(message), problem=str(error)) from error


def _text(message: bytes, at: int) -> tuple[str, int]:
    """Return the text that ends with a zero byte, and where it is over."""
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1


def _shown(message: bytes) -> str:
    return repr(bytes(message[:40]))
