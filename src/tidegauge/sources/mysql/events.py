"""Events of the binary log: their headers, checksums and bodies, from bytes to plain values.

    19 bytes of header    time u32, type u8, server u32, size u32, next u32, flags u16
    body                  by type; FORMAT_DESCRIPTION says whether a checksum ends each event

Invariant: an event that cannot be read raises `BinlogBroken`; nothing is guessed. Numbers are little-endian.

>>> packed(b"\\xfc\\x01\\x02", 0), packed(b"\\x07", 0)
((513, 3), (7, 1))
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tidegauge.errors.mysqlsource import BinlogBroken

__all__ = [
    "CONSEQUENT",
    "FORMAT",
    "GTIDS",
    "HEADER",
    "INCIDENT",
    "PARTIAL",
    "QUERY",
    "ROTATE",
    "ROWS",
    "TABLE_MAP",
    "XA_PREPARE",
    "XID",
    "Gtid",
    "LoggedStatement",
    "checksummed",
    "gtid_of",
    "packed",
    "query_of",
    "unsummed",
]

HEADER: Final = struct.Struct("<IBIIIH")
QUERY, ROTATE, FORMAT, XID, TABLE_MAP, INCIDENT, XA_PREPARE = 2, 4, 15, 16, 19, 26, 38
PARTIAL: Final = 39
"""Updates that have parts of JSON values (`binlog_row_value_options`), of any table."""
_OF_MARIADB, _OF_MYSQL = 162, 33
GTIDS: Final = frozenset({_OF_MARIADB, _OF_MYSQL})
INSERTED, UPDATED, DELETED = range(3)
ROWS: Final = {
    23: (INSERTED, 1),
    24: (UPDATED, 1),
    25: (DELETED, 1),
    30: (INSERTED, 2),
    31: (UPDATED, 2),
    32: (DELETED, 2),
}
"""Of each type of event with rows, the operation, and the version of its layout."""
CONSEQUENT: Final = frozenset({3, 5, 13, 14, 27, 28, 29, 35, 160, 161, 163, 164})
"""Types that change no row of a table: stops, heartbeats, texts of statements, positions, keys of encryption, and the
settings of statements, which are refused themselves where they count."""
_STANDALONE, _PREPARED_XA = 1, 64
_NO_ESCAPES: Final = 1 << 20
_SPOKEN: Final[Mapping[str, str]] = {
    **dict.fromkeys(("utf8", "utf8mb3", "utf8mb4", "binary"), "utf-8"),
    **dict.fromkeys(("sjis", "cp932"), "cp932"),
    **dict.fromkeys(("ujis", "eucjpms"), "euc_jp"),
    **{one: one for one in ("gbk", "gb2312", "gb18030", "big5", "cp1250", "cp1251", "cp1256", "cp1257", "cp850")},
    "latin1": "cp1252",
    "euckr": "euc_kr",
}
"""Charsets of statements. In others letters have one byte, and the signs of SQL are those of ASCII."""


@dataclass(frozen=True, slots=True)
class Gtid:
    """The beginning of a transaction. domain: or the server's UUID, of MySQL. standalone: it is one statement, and
    nothing ends it; of MySQL until its BEGIN has come."""

    domain: str
    sequence: int
    server: int
    at: int
    standalone: bool
    prepared: bool

    def __str__(self) -> str:
        by_server = "-" in self.domain
        return f"{self.domain}:{self.sequence}" if by_server else f"{self.domain}-{self.server}-{self.sequence}"


def packed(data: bytes, at: int) -> tuple[int, int]:
    """Return an integer of 1 to 9 bytes, and where it is over."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def checksummed(event: bytes) -> bool:
    """Whether a FORMAT_DESCRIPTION says that events end with a checksum. It ends with one itself, in any case."""
    algorithm = event[-5]
    if algorithm not in (0, 1):
        raise BinlogBroken(event="FORMAT_DESCRIPTION", problem=f"its checksums are of the kind {algorithm}")
    return algorithm == 1


def unsummed(event: bytes) -> bytes:
    """Return an event without its checksum. Raises `BinlogBroken` where that is another."""
    if zlib.crc32(event[:-4]) != int.from_bytes(event[-4:], "little"):
        raise BinlogBroken(event=f"type {event[4]}", problem="its checksum is that of other bytes")
    return event[:-4]


def gtid_of(event: bytes) -> Gtid:
    """Return what a GTID says.

    >>> body = bytes([1]) + uuid.UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562").bytes + struct.pack("<Q", 7)
    >>> str(gtid_of(HEADER.pack(0, 33, 1, 44, 0, 0) + body))
    '3e11fa47-71ca-11e1-9e33-c80aa9429562:7'
    """
    at, kind, server, *_ = HEADER.unpack_from(event)
    if kind == _OF_MYSQL:
        _, sid, number = struct.unpack_from("<B16sQ", event, HEADER.size)
        return Gtid(str(uuid.UUID(bytes=sid)), number, server, at * 1_000_000, standalone=True, prepared=False)
    sequence, domain, flags = struct.unpack_from("<QIB", event, HEADER.size)
    return Gtid(str(domain), sequence, server, at * 1_000_000, bool(flags & _STANDALONE), bool(flags & _PREPARED_XA))


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """A statement. database: of its session. texts: what it says, in the session's charset; and as UTF-8, if it may
    be one that the server itself has written. escapes: whether a backslash escapes what follows it in a text."""

    database: str
    texts: tuple[str, ...]
    escapes: bool


def query_of(event: bytes, charsets: Mapping[int, str]) -> LoggedStatement:
    """Return a statement. charsets: names by the numbers of collations.

    >>> body = struct.pack("<IIBHH", 1, 0, 4, 0, 2) + b"ss" + b"shop\\0" + b"BEGIN"
    >>> query_of(bytes(19) + body, {})
    LoggedStatement(database='shop', texts=('BEGIN',), escapes=True)
    """
    _, _, database, _, status = struct.unpack_from("<IIBHH", event, HEADER.size)
    at = HEADER.size + 13 + status
    name, text = event[at : at + database], event[at + database + 1 :]
    mode, collation = _session(event[HEADER.size + 13 : at])
    found = [text.decode(_SPOKEN.get(charsets.get(collation, "utf8"), "latin-1"), errors="replace")]
    with suppress(UnicodeDecodeError):
        found.append(text.decode())
    return LoggedStatement(name.decode(errors="replace"), tuple(dict.fromkeys(found)), not mode & _NO_ESCAPES)


def _session(status: bytes) -> tuple[int, int]:
    """Return the `sql_mode` of a statement's session, and the collation of its client's charset: 0 where it has none.

    >>> _session(b"\\0" + bytes(4) + b"\\1" + struct.pack("<Q", 4) + b"\\6\\3std\\4" + struct.pack("<3H", 13, 8, 8))
    (4, 13)
    """
    mode = at = 0
    while at < len(status):
        kind, at = status[at], at + 1
        if kind == 1:
            mode = int.from_bytes(status[at : at + 8], "little")
        elif kind == 4:
            return mode, int.from_bytes(status[at : at + 2], "little")
        elif kind not in (0, 3, 6):
            break
        at += status[at] + 1 if kind == 6 else {0: 4, 1: 8, 3: 4}[kind]
    return mode, 0
