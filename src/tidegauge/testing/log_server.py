"""`LogServer`: a log in memory, served as `SocketSource` reads it, which breaks the ways that real services break.

Invariant: a record has its offset for good. The records sent follow from the log and from where a connection begins,
so every connection sees the same records, until you `replace` the log or let it forget.

>>> with LogServer() as server:
...     server.append({"id": 1}), server.append({"id": 2})
...     server.end
(0, 1)
Frontier({'p0': 2})
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from tidegauge.remap.frontier import Frontier

__all__ = ["LogServer"]

_AT_ONCE: Final = 1000
_BEAT: Final = 5.0


class LogServer:
    """A server on a free port of this machine. Use it as a context manager.

    forgets: whether records are deleted once they are acknowledged. starts: where each connection began.
    acknowledged: the furthest acknowledgement.
    """

    def __init__(self, *, forgets: bool = False) -> None:
        self.forgets = forgets
        self.identity = "log-1"
        self.starts: Final[list[Frontier]] = []
        self.acknowledged = Frontier()
        self.host: Final = "127.0.0.1"
        self._listener: Final = socket.create_server((self.host, 0))
        self.port: Final[int] = self._listener.getsockname()[1]
        self._changed: Final = threading.Condition()
        self._records: dict[str, list[bytes]] = {}
        self._oldest: dict[str, int] = {}
        self._shown: dict[str, int] | None = None
        self._raw: list[bytes] = []
        self._sealed = False
        self._away = False
        self._open: dict[socket.socket, threading.Lock] = {}
        self._threads: list[threading.Thread] = []
        self._closed = False

    def __enter__(self) -> Self:
        self._run(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    @property
    def end(self) -> Frontier:
        """How far the log goes."""
        with self._changed:
            return Frontier({partition: len(records) for partition, records in self._records.items()})

    def append(self, row: Mapping[str, Any], *, stream: str = "", partition: str = "p0") -> int:
        """Append a record, and return its offset."""
        return self.write(json.dumps(row).encode(), stream=stream, partition=partition)

    def write(self, row: bytes, *, stream: str = "", partition: str = "p0") -> int:
        """Append a record whose row is this text, JSON or not."""
        with self._changed:
            records = self._records.setdefault(partition, [])
            place = json.dumps({"stream": stream, "partition": partition, "offset": len(records)}).encode()
            records.append(place[:-1] + b', "row": ' + row + b"}\n")
            self._changed.notify_all()
            return len(records) - 1

    def seal(self) -> None:
        """Say that nothing more will come."""
        with self._changed:
            self._sealed = True
            self._changed.notify_all()

    def say(self, line: bytes) -> None:
        """Send these bytes on the connections there are."""
        with self._changed:
            connections = list(self._open.items())
        for connection, turn in connections:
            with turn, suppress(OSError):
                connection.sendall(line)

    def hold_back(self) -> None:
        """Send no record that is appended from now on, until `go_on`; `end` still tells of them."""
        with self._changed:
            self._shown = {partition: len(records) for partition, records in self._records.items()}

    def go_on(self) -> None:
        """Send everything, and take connections."""
        with self._changed:
            self._shown, self._away = None, False
            self._changed.notify_all()

    def cut(self) -> None:
        """Cut all connections, in the middle of whatever they send."""
        with self._changed:
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """Cut all connections, and the new ones too, until `go_on`."""
        self._away = True
        self.cut()

    def forget(self, partition: str, oldest: int) -> None:
        """Delete the records before an offset."""
        with self._changed:
            self._oldest[partition] = max(oldest, self._oldest.get(partition, 0))

    def replace(self, identity: str) -> None:
        """Become another log, which is empty."""
        with self._changed:
            self.identity = identity
            self._records, self._oldest, self.acknowledged = {}, {}, Frontier()
        self.cut()

    def restore(self, end: Frontier) -> None:
        """Become the log that went to `end`, under the same identity, as restored from an older backup."""
        with self._changed:
            self._records = {partition: self._records[partition][:at] for partition, at in end.items()}
            self._oldest = {partition: min(at, end[partition]) for partition, at in self._oldest.items()}
            self.acknowledged = self.acknowledged.meet(end)
        self.cut()

    def _run(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, name="tidegauge-log-server", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return
            self._run(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError):
            lines = connection.makefile("rb")
            if self._away:
                return
            start = Frontier(json.loads(lines.readline())["from"])
            with self._changed:
                self.starts.append(start)
                turn = self._open[connection] = threading.Lock()  # nobody is to talk into another's line
                turn.acquire()  # nor before the first one
                hello = {"version": 1, "log": self.identity, "oldest": self._oldest}
            try:
                try:
                    connection.sendall(json.dumps(hello).encode() + b"\n")
                finally:
                    turn.release()
                self._run(self._listen, lines)
                self._send(connection, turn, self.identity, dict(start.items()))
            finally:
                with self._changed:
                    self._open.pop(connection, None)
                connection.shutdown(socket.SHUT_RDWR)  # `_listen` has it open, too

    def _send(self, connection: socket.socket, turn: threading.Lock, identity: str, at: dict[str, int]) -> None:
        """Send what there is from `at` on, until the end of the connection."""
        told: object = None
        while not self._closed and identity == self.identity:
            with self._changed:
                data = b""
                for partition, records in sorted(self._records.items()):
                    shown = len(records) if self._shown is None else self._shown.get(partition, 0)
                    begin = at.get(partition, 0)
                    some = records[begin : min(shown, begin + _AT_ONCE)]
                    data += b"".join(some)
                    at[partition] = begin + len(some)
                end = {partition: len(records) for partition, records in self._records.items()}
                progress: dict[str, Any] = {"frontier": dict(at), "end": end}
                if self._sealed and at == end:
                    progress["sealed"] = True
                if progress == told and self._changed.wait(_BEAT):
                    continue
            told = progress
            with turn:
                connection.sendall(data + json.dumps(progress).encode() + b"\n")

    def _listen(self, lines: Any) -> None:
        """Take in the acknowledgements."""
        with lines, suppress(OSError, ValueError):
            for line in lines:
                frontier = Frontier(json.loads(line)["acknowledge"])
                with self._changed:
                    self.acknowledged = self.acknowledged.join(frontier)
                    if self.forgets:
                        self._oldest = dict(self.acknowledged.items())
