"""A session of a sender of the log: its identity, a slot, and the stream of messages, over psycopg alone.

Invariant: nothing waits longer than it is told to. An error of the server is one of `sessions.explained`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.postgressource import ReplicationBroken, ServerAway, SlotAwaits, SlotLost
from tidegauge.remap.fromtime.lsn import Lsn
from tidegauge.sources.postgres.atwork import work_at_server
from tidegauge.sources.postgres.sessions import DatabasePlace, error_of, explained, replicating, take_texts
from tidegauge.sources.postgres.versions import slot_made
from tidegauge.sources.postgres.wire import status
from tidegauge.sources.readable import readable

__all__ = ["SILENCE", "LogSender", "passing_slot", "payload"]

SILENCE: Final = 30.0
"""Seconds after which a server that says nothing is taken to be away: it is asked to answer each second."""
_ASK: Final = 1.0
_DATA, _ALIVE = b"wk"
"""Kinds of frames."""
_LOOKS: Final = 5.0
"""Seconds after which the server is asked what keeps it from making a slot, again and again."""
_LINGERS: Final = 2.0
"""Seconds for which the server may take to hear that it is not to make a slot."""
_SOON: Final = 0.002
"""Seconds for which changes that have come wait for others, so that they travel together."""


def passing_slot(slot: str) -> str:
    """Return a name for a slot that goes with its session, beside another one.

    >>> passing_slot("shop")[:5], len(passing_slot("s" * 63))
    ('shop_', 63)
    """
    return f"{slot[:50]}_{uuid.uuid4().hex[:12]}"


class LogSender:
    """One session. Its methods are called one at a time."""

    def __init__(self, place: DatabasePlace, slot: str) -> None:
        self._place: Final = place
        self._slot: Final = slot
        self._connection: Final = replicating(place)
        self._pg: Final[Any] = self._connection.pgconn
        self._heard = self._asked = time.monotonic()
        self._making = self._unheard = False
        self._awaits: TidegaugeError | None = None

    def identity(self) -> str:
        """Return which server, which timeline of it, and which database this is."""
        with explained(self._place, self._slot):
            row = self._connection.execute("IDENTIFY_SYSTEM").fetchone()
        assert row is not None  # noqa: S101 - the command gives one row
        system, timeline, _, database = row
        return f"system {system}, timeline {timeline}, database {database}"

    def history(self, timeline: int) -> str:
        """Return which timelines led to one, a line each: its number, where it ended, and why."""
        with explained(self._place, self._slot):
            row = self._connection.execute(f"TIMELINE_HISTORY {timeline}".encode()).fetchone()
        assert row is not None  # noqa: S101 - the command gives one row
        return row[1].decode(errors="replace") if isinstance(row[1], bytes) else str(row[1])

    def drop(self) -> None:
        """Drop the slot."""
        with explained(self._place, self._slot):
            self._connection.execute(f'DROP_REPLICATION_SLOT "{self._slot}"'.encode())

    def make(self, *, kind: str = "") -> None:
        """Begin to make the slot. The server waits until all transactions that are open now have ended.

        kind: `TEMPORARY` for one that goes with the session.
        """
        self._pg.nonblocking = 1
        self._pg.send_query(slot_made(self._slot, kind, self._connection.info.server_version).encode())
        self._pg.flush()
        self._making, self._asked = True, time.monotonic()

    def copy(self, slot: str) -> int:
        """Make the slot as a copy of another one, which may be in use; return the place from which on it gives all.

        It goes with the session.
        """
        from psycopg import sql

        query = sql.SQL("SELECT lsn::text FROM pg_copy_logical_replication_slot({}, {}, true)")
        with explained(self._place, self._slot):
            copied = query.format(sql.Literal(slot), sql.Literal(self._slot))
            [(lsn,)] = self._connection.execute(copied).fetchall()
        return Lsn.parse(lsn if isinstance(lsn, str) else lsn.decode()).value

    def made(self, seconds: float) -> tuple[int, str] | None:
        """Return where the slot begins and the name of the snapshot, None if it is not made yet: see `awaits`."""
        until = time.monotonic() + seconds
        while self._pg.is_busy():
            left = until - time.monotonic()
            if left <= 0:
                return None
            if readable(self._pg.socket, left):
                with explained(self._place, self._slot):
                    self._pg.consume_input()
            elif time.monotonic() - self._asked > _LOOKS:
                self._look()
        found: tuple[int, str] | None = None
        while (result := self._pg.get_result()) is not None:
            if message := result.error_message:
                raise self._error(result, message)
            found = Lsn.parse(result.get_value(0, 1).decode()).value, result.get_value(0, 2).decode()
        if found is None:
            raise ServerAway(source=self._place.shown, detail="it made no slot, and did not say why")
        self._making = False
        return found

    def awaits(self) -> TidegaugeError | None:
        """Return what keeps the slot from being made, as far as that is known."""
        return self._awaits if self._making else None

    def start(self, publication: str, lsn: int) -> None:
        """Begin to receive the stream from a place on."""
        quoted = publication.replace("'", "''").replace('"', '""')
        with explained(self._place, self._slot):
            self._pg.nonblocking = 0
            take_texts(self._connection, raw=True)
            self._connection.execute(
                f'START_REPLICATION SLOT "{self._slot}" LOGICAL {Lsn(lsn)} '
                f"(proto_version '1', publication_names '\"{quoted}\"')".encode()
            )
        self._pg.nonblocking = 1
        self._heard = time.monotonic()

    def frames(self) -> Iterator[bytes]:
        """Yield the frames that are here, without waiting."""
        read, came = self._pg.get_copy_data, False
        while True:
            size, data = read(1)
            while size > 0:
                came = True
                yield bytes(data)  # a view would be one more object for Python's collector to look at
                size, data = read(1)
            if size < 0:
                self._over()
            if came:
                return
            came = True
            with explained(self._place, self._slot):
                self._pg.consume_input()

    def more(self) -> bool:
        """Whether something has come, or is about to."""
        if found := readable(self._pg.socket, _SOON):
            self._heard = time.monotonic()
        return found

    def wait(self, seconds: float) -> None:
        """Wait until something comes, or the time is over. Raises `TimeoutError` after a long silence."""
        if readable(self._pg.socket, seconds):
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > SILENCE:
            raise TimeoutError(f"{self._place.shown} has said nothing for {SILENCE:.0f} seconds")

    def tell(self, received: int, flushed: int, *, now: bool = False) -> None:
        """Say how far we are, and ask for an answer: at most once a second, unless `now`."""
        at = time.monotonic()
        if not now and at - self._asked < _ASK:
            return
        self._asked = at
        with explained(self._place, self._slot):
            self._pg.put_copy_data(status(received, flushed, time.time_ns() // 1000, reply=True))
            self._pg.flush()

    def close(self) -> None:
        """End the session at once."""
        if self._making:  # the server would go on waiting for other transactions, and does not see that we are gone
            threading.Thread(target=self._cancel, daemon=True).start()
        else:
            self._connection.close()

    def _cancel(self) -> None:
        """Have the server give up, and end the session. A plain `cancel` may stop all threads for minutes."""
        with suppress(Exception):
            self._connection.cancel_safe(timeout=_LINGERS)
        self._connection.close()

    def _look(self) -> None:
        """Ask what the server does, which makes the slot. Raises `ServerAway` where its answer was lost."""
        found, self._asked = work_at_server(self._place, self._connection.info.backend_pid), time.monotonic()
        if found is None:
            return
        unheard = not found.works and not readable(self._pg.socket, 0.0)
        if unheard and self._unheard:  # it has had the time of a look to come
            raise ServerAway(source=self._place.shown, detail="it does nothing, and its answer has not come")
        self._unheard, self._awaits = unheard, None
        if found.awaits:
            said = {"slot": self._slot, "awaited": found.awaits, "statement": found.ends}
            self._awaits = SlotAwaits(source=self._place.shown, **said)

    def _over(self) -> None:
        """Raise why the stream has ended."""
        result = self._pg.get_result()
        message = b"" if result is None else result.error_message
        if not message:
            raise ServerAway(source=self._place.shown, detail="it ended the stream")
        raise self._error(result, message)

    def _error(self, result: Any, message: Any) -> Exception:
        text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        state = (result.error_field(ord("C")) or b"").decode()
        found = error_of(self._place.shown, self._slot, state, " ".join(text.split())[:500])
        if state == "42704" and "slot" in text:
            return SlotLost(source=self._place.shown, slot=self._slot, detail=" ".join(text.split()))
        return found


def payload(frame: bytes) -> tuple[int, bytes]:
    """Return of a frame the place that the server has come to, 0 for data; and the message, empty without one.

    Raises `ReplicationBroken`.
    """
    size = len(frame)
    if size > 25 and frame[0] == _DATA:
        return 0, frame[25:]
    if size == 18 and frame[0] == _ALIVE:
        return int.from_bytes(frame[1:9], "big"), b""
    raise ReplicationBroken(message=repr(frame[:40]), problem="it is neither data nor a sign of life")
