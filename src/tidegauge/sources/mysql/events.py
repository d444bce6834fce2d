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


def query_of(event: bytes) -> tuple[str, str]:
    """Return the database and the text of a statement.

    >>> body = struct.pack("<IIBHH", 1, 0, 4, 0, 2) + b"ss" + b"shop\\0" + b"BEGIN"
    >>> query_of(bytes(19) + body)
    ('shop', 'BEGIN')
    """
    _, _, database, _, status = struct.unpack_from("<IIBHH", event, HEADER.size)
    at = HEADER.size + 13 + status
    name, text = event[at : at + database], event[at + database + 1 :]
    return name.decode(errors="replace"), text.decode(errors="replace")
