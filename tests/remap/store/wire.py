"""A wire to a PostgreSQL server that breaks at a commit, on the way there or on the way of the answer; or that passes
nothing on for a while, which nobody at its ends can see."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from tests.postgres import Server

Loss = Literal["question", "answer"]


class Wire:
    """Passes on what either side says, but the next commit when it is `broken`. `lost` counts those.

    From `cut` to `mend` it keeps what either side says to itself, and passes it on afterwards.
    """

    def __init__(self, server: Server, loss: Loss) -> None:
        self.server = server
        self.loss = loss
        self.broken = False
        self.lost = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._whole = threading.Event()
        self._whole.set()
        self._lines: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def address(self, place: str) -> str:
        """The address of a place of the server, by way of this wire."""
        here = place.replace(f"host={self.server.folder}&port={self.server.port}", f"host=127.0.0.1&port={self.port}")
        return f"{here}&sslmode=disable&gssencmode=disable"

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self.mend()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for line in self._lines:
            _hang_up(line)
        for thread in self._threads:
            thread.join(timeout=30)

    def _accept(self) -> None:
        while True:
            try:
                driver, _ = self._listening.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self.server.folder}/.s.PGSQL.{self.server.port}")
            self._lines += [driver, server]
            thread = threading.Thread(target=self._pass_on, args=(driver, server), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _pass_on(self, driver: socket.socket, server: socket.socket) -> None:
        answers = threading.Thread(target=self._copy, args=(server, driver), daemon=True)
        answers.start()
        with suppress(OSError):
            while said := driver.recv(65536):
                if b"COMMIT\0" in said and self._loses():
                    if self.loss == "answer":
                        driver.shutdown(socket.SHUT_WR)  # what comes back goes nowhere
                        server.sendall(said)
                        server.shutdown(socket.SHUT_WR)
                        answers.join(timeout=30)  # the server has done it when it hangs up
                    break
                self._whole.wait()
                server.sendall(said)
        _hang_up(driver)
        _hang_up(server)
        answers.join(timeout=30)

    def _loses(self) -> bool:
        broken, self.broken = self.broken, False
        self.lost += broken
        return broken

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while said := source.recv(65536):
                self._whole.wait()
                with suppress(OSError):
                    target.sendall(said)


def _hang_up(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()


@contextmanager
def wire(server: Server, loss: Loss) -> Iterator[Wire]:
    """A wire that is taken down at the end."""
    made = Wire(server, loss)
    try:
        yield made
    finally:
        made.close()
