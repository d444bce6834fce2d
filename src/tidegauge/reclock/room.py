"""How many records may lie between the reader of a source and the epochs that they get: the limit that pushes back.

A reader reserves room before it reads, and reads no more than it was granted; the reclock operator releases records
that it has sent on. The reserved ones lie in between (in the reader's scope, in the queue, in the operator). When
nothing is granted the reader stops reading: upstream keeps the records, and the reader is woken when there is room.

It is woken, too, when there never will be any: the reclock operator closes the room when it fails, and the end of the
flow closes it. Then asking is an error, which ends the reader.

Invariant: `0 <= held <= limit`, for all callers in all threads.

>>> room = Room(100)
>>> room.reserve(80), room.reserve(80), room.reserve(80), room.held
(80, 20, 0, 100)
>>> room.release(30); room.reserve(80)
30
"""

from __future__ import annotations

import threading
from typing import Final

from tidegauge.dataflow import SyncActivator
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.reclock import RoomClosed

__all__ = ["Room"]


class Room:
    """Room for `limit` records. Raises InvalidArgument for a limit below 1."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise InvalidArgument(parameter="limit", value=limit, expected="room for at least one record")
        self.limit: Final = limit
        self._lock: Final = threading.Lock()
        self._held = 0
        self._short = False
        self._closed = ""
        self._readers: list[SyncActivator] = []

    @property
    def held(self) -> int:
        """How many records are reserved."""
        return self._held

    def attach(self, reader: SyncActivator) -> None:
        """Wake `reader`, too, when there is room again after anybody was granted less than was wanted, and when the
        room is closed."""
        self._readers.append(reader)

    def reserve(self, wanted: int) -> int:
        """Return how many records may be read, at most `wanted`, perhaps 0. Release those that are not read.

        Raises InvalidArgument for less than 0, RoomClosed once the room is closed.
        """
        _check("wanted", wanted)
        with self._lock:
            if self._closed:
                raise RoomClosed(wanted=wanted, why=self._closed)
            granted = min(wanted, self.limit - self._held)
            self._held += granted
            self._short = self._short or granted < wanted
            return granted

    def release(self, records: int) -> None:
        """Give room back. Records that nobody reserved are not counted. Raises InvalidArgument for less than 0."""
        _check("records", records)
        if not records:
            return
        with self._lock:
            self._held = max(0, self._held - records)
            short, self._short = self._short, False
        if short:
            self._wake()

    def close(self, why: str) -> None:
        """Wake every reader, and grant nothing any more. Of several reasons the first one counts."""
        with self._lock:
            self._closed = self._closed or why or "it was closed"
        self._wake()

    def _wake(self) -> None:
        for reader in self._readers:
            reader.activate()


def _check(parameter: str, records: int) -> None:
    if records < 0:
        raise InvalidArgument(parameter=parameter, value=records, expected="a number of records, 0 or more")
