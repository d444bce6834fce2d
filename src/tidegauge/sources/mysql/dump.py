"""The stream of the log: a session that is registered as a replica, and the packets that the server sends it.

The socket is ours, and PyMySQL logs in on it: it has no way to send the commands of a replica.

Invariant: nothing waits longer than it is told to, and a server that says nothing for long is away. It is asked for a
sign of life (HEARTBEAT) every ten seconds.
"""

from __future__ import annotations

import hashlib
import socket
import struct
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from tidegauge.errors.mysqlsource import BinlogBroken, BinlogServerAway
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.mysql.events import FORMAT, HEADER, ROTATE, checksummed, unsummed
from tidegauge.sources.mysql.payload import PAYLOAD, unpacked
from tidegauge.sources.mysql.sessions import LASTING, PATIENCE, ServerPlace, error_of, explained, opened

__all__ = ["SILENCE", "LogStream"]

SILENCE: Final = 35.0
"""Seconds without a sign of life after which the server is taken to be away."""
_HEARTBEAT: Final = 10_000_000_000
"""Nanoseconds."""
_REGISTER, _DUMP, _DUMP_AFTER = 0x15, 0x12, 0x1E
_BY_SET: Final = 0x04
_MOST: Final = 0xFFFFFF
"""Bytes of the largest packet, which goes on in the next one."""
_READ: Final = 1 << 20


def gtid_set(executed: Frontier) -> bytes:
    """Return a set of MySQL's transactions as its protocol writes it.

    >>> gtid_set(Frontier({"3e11fa47-71ca-11e1-9e33-c80aa9429562": 4})).hex()
    '01000000000000003e11fa4771ca11e19e33c80aa9429562010000000000000001000000000000000400000000000000'
    """
    known = [(uuid.UUID(server).bytes, next_) for server, next_ in sorted(executed.items()) if next_ > 1]
    return struct.pack("<Q", len(known)) + b"".join(sid + struct.pack("<QQQ", 1, 1, next_) for sid, next_ in known)


class LogStream:
    """One session. Its methods are called one at a time. name: tells readers apart: a server keeps one of each."""

    def __init__(self, place: ServerPlace, name: str) -> None:
        self.answered = False
        """Whether the server has begun to send the log, so it has the place."""
        self._place: Final = place
        # The same for each connection, so that the server ends the one of a driver that was killed.
        self._number: Final = 0x80000000 | int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 1
        self._buffer = bytearray()
        self._at = 0
        self._part = b""
        self._sums = True
        self._needed = self._found = ""
        address = place.address
        with explained(place):
            self._socket = socket.create_connection((address.host, address.port), timeout=PATIENCE)
        self._connection: Any = None
        self._heard = time.monotonic()
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            with explained(place):
                self._connection = opened(place, self._socket)
                with self._connection.cursor() as cursor:
                    cursor.execute(f"SET {LASTING}")
            self._socket = self._connection._sock  # noqa: SLF001 - over TLS it is another one
            self._register()
        except BaseException:
            self.close()
            raise

    def _register(self) -> None:
        self._command(_REGISTER, struct.pack("<IBBBHII", self._number, 0, 0, 0, 0, 0, 0))
        answer = next(self._packets(PATIENCE), None)
        self._socket.settimeout(PATIENCE)  # as PyMySQL has set it
        if answer is None:
            raise BinlogServerAway(source=self._place.shown, detail=f"it does not answer within {PATIENCE} seconds")
        if answer[0] == 0xFF:
            raise error_of(self._place.shown, *_refused(answer), needed="the log")

    def _command(self, command: int, said: bytes) -> None:
        """Send a command, which PyMySQL does not know."""
        with explained(self._place):
            self._socket.sendall((len(said) + 1).to_bytes(3, "little") + bytes([0, command]) + said)
        self._heard = time.monotonic()

    def start(self, state: str, needed: str, found: str) -> None:
        """Begin to receive all transactions after a position: the server's own text. needed, found: for people."""
        settings = {
            "mariadb_slave_capability": 4,
            "slave_connect_state": state,
            "slave_gtid_strict_mode": 0,
            "slave_gtid_ignore_duplicates": 0,
        }
        self._begin(settings, _DUMP, struct.pack("<IHI", 4, 0, self._number), needed, found)

    def start_after(self, executed: Frontier, needed: str, found: str) -> None:
        """Begin to receive all transactions of a MySQL that are not in a set. needed, found: for people."""
        said = struct.pack("<HIIQ", _BY_SET, self._number, 0, 4)
        known = gtid_set(executed)
        mine = str(uuid.uuid5(uuid.NAMESPACE_OID, str(self._number)))  # the server ends another reader of this name
        self._begin({"slave_uuid": mine}, _DUMP_AFTER, said + struct.pack("<I", len(known)) + known, needed, found)

    def _begin(self, settings: Mapping[str, object], command: int, said: bytes, needed: str, found: str) -> None:
        self._needed, self._found = needed, found
        with explained(self._place), self._connection.cursor() as cursor:
            cursor.execute("SET @master_binlog_checksum = @@global.binlog_checksum")
            cursor.execute(f"SET @master_heartbeat_period = {_HEARTBEAT}")
            for name, value in settings.items():
                cursor.execute(f"SET @{name} = %s", (value,))
        self._command(command, said)

    def events(self, seconds: float) -> Iterator[bytes]:
        """Yield the events that are here, without their checksums, and wait for the first one at most so long."""
        for packet in self._packets(seconds):
            if packet[0] == 0:
                self.answered = True
                event = packet[1:]
                if len(event) < HEADER.size or len(event) != int.from_bytes(event[9:13], "little"):
                    raise BinlogBroken(event=repr(event[:40]), problem="it has not the size that it says")
                kind = event[4]
                if kind == FORMAT:
                    self._sums = checksummed(event)
                elif kind != ROTATE:
                    plain = unsummed(event) if self._sums else event
                    yield from unpacked(plain) if kind == PAYLOAD else (plain,)
            elif packet[0] == 0xFF:
                raise error_of(self._place.shown, *_refused(packet), self._needed, self._found)
            elif packet[0] == 0xFE and len(packet) < 9:
                raise BinlogServerAway(source=self._place.shown, detail="it ended the stream")
            else:
                raise BinlogBroken(event=repr(packet[:40]), problem="it is no packet of the log")

    def _packets(self, seconds: float) -> Iterator[bytes]:
        packets = list(self._whole())
        if not packets and self._receive(seconds):
            packets = list(self._whole())
        yield from packets

    def _whole(self) -> Iterator[bytes]:
        buffer, at, length = self._buffer, 0, len(self._buffer)
        while length - at >= 4:
            size = buffer[at] | buffer[at + 1] << 8 | buffer[at + 2] << 16
            if length - at - 4 < size:
                break
            data = bytes(buffer[at + 4 : at + 4 + size])
            at += 4 + size
            if size == _MOST:
                self._part += data
                continue
            if self._part:
                data, self._part = self._part + data, b""
            if data:
                yield data
        del buffer[:at]

    def _receive(self, seconds: float) -> bool:
        """Wait for bytes; return whether some came."""
        try:
            self._socket.settimeout(max(seconds, 0.001))
            data = self._socket.recv(_READ)
        except TimeoutError:
            if time.monotonic() - self._heard > SILENCE:
                detail = f"it has said nothing for {SILENCE:.0f} seconds"
                raise BinlogServerAway(source=self._place.shown, detail=detail) from None
            return False
        except OSError as error:
            raise BinlogServerAway(source=self._place.shown, detail=str(error)) from None
        if not data:
            raise BinlogServerAway(source=self._place.shown, detail="it ended the connection")
        self._heard = time.monotonic()
        self._buffer += data
        return True

    def close(self) -> None:
        """End the session at once."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # so that nothing that follows waits
        with suppress(Exception):
            if self._connection is not None:
                self._connection.close()
        self._socket.close()


def _refused(packet: bytes) -> tuple[int, str]:
    """Return the number and the text of an error.

    >>> _refused(b"\\xff\\xcb\\x04#42000Access denied")
    (1227, 'Access denied')
    """
    return int.from_bytes(packet[1:3], "little"), packet[9:].decode(errors="replace")
