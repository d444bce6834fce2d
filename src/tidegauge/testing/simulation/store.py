"""The store of a simulated world: SQLite in memory, with a world around its transactions.

All of `remap` runs unchanged; only the connection is another one. There is one for all drivers of a world, because
nobody is interrupted within a transaction. Before a transaction begins, before it commits and after that, the driver
*meets* the world, which may let time pass, raise an error in place of an answer, or end the driver.

Invariant: a transaction whose commit was not reached has changed nothing; one whose commit was reached is durable,
whatever its driver hears of it.

>>> met = []
>>> memory = Memory()
>>> from tidegauge.remap.store.connect import Database
>>> database = Database(memory.url, backend=lambda address: SimulatedStore(memory, met.append))
>>> database.write(lambda connection: connection.exec_driver_sql("CREATE TABLE t (n INTEGER)")) and None
>>> met
['begin', 'commit', 'committed']
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import StaticPool

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.store import StoreFailed
from tidegauge.remap.store.sending import Parcel
from tidegauge.remap.store.sqlite import delivered

__all__ = ["POINTS", "URL", "Memory", "NoAnswer", "SimulatedStore"]

POINTS: Final = ("store begin", "store commit", "store committed")
"""Where a driver meets the world on its way to the database."""
URL: Final = "sqlite:////simulated/flow.db"
_TABLES: Final = "SELECT name FROM sqlite_master WHERE name = 'flows'"


class NoAnswer(sqlite3.OperationalError):
    """What happened to a transaction, as the error that its driver is to get."""

    def __init__(self, told: TidegaugeError) -> None:
        super().__init__(str(told))
        self.told: Final = told


class _OneConnection(sqlite3.Connection):
    """A connection that its users cannot close, and that meets the world around a commit."""

    meet: Callable[[str], None]
    writes: bool

    def commit(self) -> None:
        if not self.in_transaction:
            return
        meet = self.meet if self.writes else _nobody
        meet("commit")
        super().commit()
        meet("committed")

    def close(self) -> None:
        """Stay open, without the transaction of a driver that died in it."""
        if self.in_transaction:
            self.rollback()


def _nobody(_call: str) -> None:
    return None


class _LastingPool(StaticPool):
    """The one connection of all drivers: one that ends takes it from nobody."""

    def dispose(self) -> None:
        """Keep the connection."""


class Memory:
    """The database, which outlives its drivers."""

    def __init__(self) -> None:
        self.url: Final = URL
        self.connection: Final = sqlite3.connect(":memory:", factory=_OneConnection, check_same_thread=False)
        self.connection.isolation_level = None
        self.connection.execute("PRAGMA foreign_keys=ON")
        self.engine: Final = create_engine("sqlite://", creator=lambda: self.connection, poolclass=_LastingPool)
        """Its every connection is the one there is."""
        self._made = False

    def backup(self, *, leases: bool = False) -> sqlite3.Connection:
        """Return a copy as of now. leases: with who drives it, as of a server; `tidegauge backup` leaves that out.

        Raises `AssertionError` while a transaction is under way: SQLite would wait for its end, in real time.
        """
        if self.connection.in_transaction:
            raise AssertionError("a backup comes between two transactions")
        copy = sqlite3.connect(":memory:", check_same_thread=False)
        self.connection.backup(copy)
        if not leases:
            with copy:
                copy.execute("DELETE FROM leases")
        return copy

    def put_back(self, backup: sqlite3.Connection) -> None:
        """Become a copy that was taken before."""
        backup.backup(self.connection)

    def ask(self, question: str, *values: Any) -> list[Any]:
        """Return the rows of a SELECT; none before a driver has made the tables."""
        if not self._made:
            # A transaction that makes them may yet fail.
            self._made = not self.connection.in_transaction and bool(list(self.connection.execute(_TABLES)))
        return list(self.connection.execute(question, values)) if self._made else []


class SimulatedStore:
    """A driver's way to the database: the `Backend` of its `Database`."""

    def __init__(self, memory: Memory, meet: Callable[[str], None]) -> None:
        self._memory: Final = memory
        self._meet: Final = meet

    def engine(self) -> Engine:
        """Return the database's engine."""
        return self._memory.engine

    def options(self, *, writes: bool) -> Mapping[str, Any]:  # noqa: ARG002
        """Return what SQLAlchemy is to be told of a transaction: nothing."""
        return {}

    def begin(self, connection: Connection, *, writes: bool, alone: bool) -> None:  # noqa: ARG002
        """Begin a transaction, alone in any case."""
        held: Any = connection.connection.driver_connection
        self._meet("begin")
        held.meet, held.writes = self._meet, writes
        held.execute("BEGIN IMMEDIATE")  # raises, were another transaction under way

    def now(self, connection: Connection) -> datetime | None:  # noqa: ARG002
        """It has no clock."""
        return None

    def deliver(self, connection: Connection, parcel: Parcel) -> Sequence[tuple[Any, ...]]:
        """Execute a parcel."""
        return delivered(connection, parcel)

    def explain(self, error: BaseException, *, lost: bool) -> TidegaugeError:  # noqa: ARG002
        """Return what the world says happened."""
        if isinstance(error, NoAnswer):
            return error.told
        return StoreFailed(url=self._memory.url, detail=str(error))
