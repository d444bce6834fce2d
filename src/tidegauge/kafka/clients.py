"""Clients that are kept: a connection to a cluster costs more than most requests over it.

A client is lent to one borrower at a time, and is kept for the next one when the block ended well. One that failed is
closed. It is kept under its settings, or if these refer to secrets under a digest of all, so another password is
another client.

Invariants. A client never leaves its process: nothing here is pickled, and a child after a fork begins without any
(the parent's are not closed there, which would wait for threads that a fork does not copy). At most `KEPT` idle ones
are kept; the least recently used goes first.

>>> shelf = Shelf()
>>> with shelf.lent("a", lambda: Client("the handle", print)) as client:
...     client.handle
'the handle'
>>> with shelf.lent("a", lambda: None) as again:
...     again is client
True
>>> shelf.empty()
the handle
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from typing import Any, Final

from tidegauge.errors.kafka import KafkaMissing
from tidegauge.kafka.failures import explained
from tidegauge.kafka.settings import Settings, Value

__all__ = ["KEPT", "SHELF", "Client", "Shelf", "admin", "consumer", "kafka"]

KEPT: Final = 16


@cache
def kafka(module: str = "confluent_kafka") -> Any:
    """Return a module of the client library. Raises `KafkaMissing`."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise KafkaMissing(package=module.partition(".")[0], detail=str(error)) from None


class Client:
    """A client and what it has been told since it was lent: errors of its connections, by number, the last ones.

    place: for the borrower, where it left off.
    """

    __slots__ = ("close", "errors", "handle", "place")

    def __init__(self, handle: Any, close: Callable[[Any], object]) -> None:
        self.handle: Final = handle
        self.close: Final = close
        self.errors: dict[int, str] = {}
        self.place: Any = None

    def hear(self, error: Any) -> None:
        """Take note of an error that is not of any one request."""
        self.errors[error.code()] = error.str()


class Shelf:
    """Idle clients, each under its key, the least recently used first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Hashable, Client]] = []
        self._left: list[Client] = []

    @contextmanager
    def lent(self, key: Hashable, make: Callable[[], Client], *, at: object = None) -> Iterator[Client]:
        """Lend a client kept under the key, if there is one the one that left off `at` that place, or a new one."""
        client = self._take(key, at) or make()
        client.errors.clear()
        try:
            yield client
        except BaseException:
            self._close(client)
            raise
        with self._lock:
            self._idle.append((key, client))
            surplus = [client for _, client in self._idle[:-KEPT]]
            del self._idle[:-KEPT]
        for client in surplus:
            self._close(client)

    def empty(self) -> None:
        """Close idle clients."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, client in idle:
            self._close(client)

    def abandon(self) -> None:
        """Begin anew in a child after a fork; the parent's clients are kept from being closed."""
        self._lock = threading.Lock()
        self._left += [client for _, client in self._idle]
        self._idle = []

    def _take(self, key: Hashable, at: object) -> Client | None:
        with self._lock:
            mine = [i for i, (known, _) in enumerate(self._idle) if known == key]
            if not mine:
                return None
            best = next((i for i in mine if at is not None and self._idle[i][1].place == at), mine[-1])
            return self._idle.pop(best)[1]

    @staticmethod
    def _close(client: Client) -> None:
        with suppress(Exception):  # whatever it says, it is not used any more
            client.close(client.handle)


SHELF: Final = Shelf()
"""The clients of this process."""
os.register_at_fork(after_in_child=SHELF.abandon)
atexit.register(SHELF.empty)


def admin(settings: Settings) -> AbstractContextManager[Client]:
    """Lend an admin client. Raises `KafkaMissing`, `SettingInvalid`, `SecretUnavailable`."""

    def make() -> Client:
        library = kafka("confluent_kafka.admin")
        return _made(library.AdminClient, settings, settings.admin(), lambda _handle: None)

    return SHELF.lent(("admin", settings if settings.plain else settings.digest()), make)


def consumer(settings: Settings, group: str, *, at: object = None, **ours: Value) -> AbstractContextManager[Client]:
    """Lend a consumer, whose group is only a name: it is never joined. Raises what `admin` raises."""

    def make() -> Client:
        config = {**settings.consumer(**ours), "group.id": group}
        return _made(kafka().Consumer, settings, config, lambda handle: handle.close())

    kept = settings if settings.plain else settings.digest()
    return SHELF.lent(("consumer", kept, group, *sorted(ours.items())), make, at=at)


def _made(
    kind: Callable[[dict[str, Any]], Any],
    settings: Settings,
    config: dict[str, Value],
    close: Callable[[Any], object],
) -> Client:
    ears: list[Client] = []

    def hear(error: Any) -> None:
        for client in ears:
            client.hear(error)

    try:
        handle = kind({**config, "error_cb": hear})
    except Exception as error:
        if isinstance(error, kafka().KafkaException | TypeError | ValueError):
            raise explained(error, servers=settings.servers, doing="make a client") from None
        raise
    client = Client(handle, close)
    ears.append(client)
    return client
