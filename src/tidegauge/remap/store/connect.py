"""Transactions on a store's database, and its exceptions as errors that say what to do.

Invariants: a transaction that writes holds the lock of what it changes from its first statement, so what it reads is
still true when it writes; a commit survives a power cut; no password is shown, whatever goes wrong. The code that is
SQLite's or PostgreSQL's alone is in `sqlite` and `postgres`, and nowhere else.

A transaction that cannot begin, because somebody holds the lock or the server does not answer, is begun again after
growing pauses: nothing of it was done. One whose server goes away later may be done or not, when the answer to its
commit was on the way; `write` tries it again, and tells it so. A database that gave no answer the last time is not
waited for. Nor is one that has no room left, or whose disk is away: the caller knows better how long to wait.
After an error of the disk every connection is replaced: the old ones may be of a mount that is dead, and would keep
the disk from being mounted again.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> database = Database(f"sqlite:///{folder.name}/shop.db")
>>> database.write(lambda connection: connection.exec_driver_sql("SELECT 42").scalar())
42
>>> database.close(); folder.cleanup()
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, StatementError

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.redaction import Redaction
from tidegauge.errors.store import StoreAway, StoreBusy, StoreFull, StoreUnreachable
from tidegauge.remap.store.address import File, Server, parse
from tidegauge.remap.store.postgres import Postgres
from tidegauge.remap.store.schema import Unreadable
from tidegauge.remap.store.sending import COMPILED, SENDER, Parcel, Sender
from tidegauge.remap.store.sqlite import Sqlite

__all__ = ["PAUSES", "Backend", "Database"]

PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between two attempts at a transaction. The flow stops after the last one."""

_T = TypeVar("_T")


class Backend(Protocol):
    """What differs between databases."""

    def engine(self) -> Engine: ...  # noqa: D102
    def options(self, *, writes: bool) -> Mapping[str, Any]: ...  # noqa: D102
    def begin(self, connection: Connection, *, writes: bool, alone: bool) -> None: ...  # noqa: D102
    def now(self, connection: Connection) -> datetime | None: ...  # noqa: D102
    def deliver(self, connection: Connection, parcel: Parcel) -> Sequence[tuple[Any, ...]]: ...  # noqa: D102
    def explain(self, error: BaseException, *, lost: bool) -> TidegaugeError: ...  # noqa: D102


def _backend(address: File | Server) -> Backend:
    return Sqlite(address) if isinstance(address, File) else Postgres(address)


class Database:
    """An open database: transactions that read, transactions that write, and errors in our words."""

    def __init__(
        self,
        address: str | File | Server,
        *,
        sleep: Callable[[float], None] = time.sleep,
        backend: Callable[[File | Server], Backend] | None = None,
    ) -> None:
        address = parse(address) if isinstance(address, str) else address
        self.url: Final = address.shown
        self.redaction: Final = Redaction(address.secrets)
        self.refused: TidegaugeError | None = None
        """Why nothing can be written, where nothing can: it is raised instead of writing."""
        self._backend: Final[Backend] = (backend or _backend)(address)
        self._engine: Final = self._backend.engine()
        shared = {SENDER: Sender(self._backend.deliver), "compiled_cache": COMPILED}
        self._ways: Final = {
            writes: self._engine.execution_options(**self._backend.options(writes=writes), **shared)
            for writes in (False, True)
        }
        self._sleep: Final = sleep
        self._answers = False

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def now(self, connection: Connection, env: Env) -> datetime:
        """Return the time that leases run out by: that of a server, which all drivers share, or of this machine."""
        return self._backend.now(connection) or env.now()

    def reading(self) -> AbstractContextManager[Connection]:
        """One consistent view of the database."""
        return self._transaction(iter(PAUSES), writes=False)

    def writing(self, *, alone: bool = False) -> AbstractContextManager[Connection]:
        """One transaction that is durable when the block has ended, and nothing at all when it raises.

        When it raises a transient error it may be durable all the same. `alone`: no other such transaction is under
        way.
        """
        return self._transaction(iter(PAUSES), writes=True, alone=alone)

    def write(self, work: Callable[[Connection], _T], *, again: Callable[[Connection], _T] | None = None) -> _T:
        """Do the work in one transaction that is durable when this returns, and nothing at all when it raises.

        A server that goes away in the middle is waited for. Then `again` is run in place of `work`, knowing that all
        of it may be done already; work that can be repeated needs none. Raises a transient error when the server has
        not come back in time: then the work is done or not.
        """
        pauses = iter(PAUSES)
        attempt = work
        while True:
            try:
                with self._transaction(pauses, writes=True) as connection:
                    return attempt(connection)
            except (StoreUnreachable, StoreBusy):
                if not self._wait(pauses):
                    raise
                attempt = again or work

    @contextmanager
    def _transaction(self, pauses: Iterator[float], *, writes: bool, alone: bool = False) -> Iterator[Connection]:
        with self._translated(), ExitStack() as opened:
            yield self._begin(opened, pauses, writes=writes, alone=alone)

    def _begin(self, opened: ExitStack, pauses: Iterator[float], *, writes: bool, alone: bool) -> Connection:
        """Begin a transaction, which ends with `opened`. Raises a transient error when it cannot, in all attempts."""
        if writes and self.refused is not None:
            raise self.refused
        while True:
            try:
                with self._translated(), ExitStack() as begun:
                    connection = begun.enter_context(self._ways[writes].connect())
                    begun.enter_context(connection.begin())
                    self._backend.begin(connection, writes=writes, alone=alone)
                    opened.push(begun.pop_all())
            except (StoreFull, StoreAway):
                raise
            except Transient:
                if not self._wait(pauses):
                    raise
            else:
                self._answers = True
                return connection

    def _wait(self, pauses: Iterator[float]) -> bool:
        """Pause before the next attempt; False when there is to be none."""
        pause = next(pauses, None) if self._answers else None
        if pause is None:
            self._answers = False
            return False
        self._sleep(pause)
        return True

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise self._explained(error.orig or error, lost=error.connection_invalidated) from None
        except StatementError as error:
            if isinstance(error.orig, TidegaugeError):  # raised by a column's type
                raise error.orig from None
            raise
        except (sqlite3.Error, UnicodeDecodeError, Unreadable) as error:
            raise self._explained(error, lost=False) from None

    def _explained(self, error: BaseException, *, lost: bool) -> TidegaugeError:
        explained = self._backend.explain(error, lost=lost)
        if isinstance(explained, StoreAway):
            self._engine.dispose()
        return explained
