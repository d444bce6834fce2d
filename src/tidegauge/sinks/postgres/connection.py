"""A server of PostgreSQL: transactions that stand alone, and its errors as ours.

Invariant: nothing is kept on a connection from one transaction to the next, neither settings nor prepared statements;
so a pooler may give each transaction another connection. No text that leaves this module has a password in it. Every
error of the server is one that passes (`Transient`) or one of this output alone (`Definite`).

A driver that falls silent in a transaction keeps its locks for a quarter of a minute. One that falls silent while it
sends rows keeps them as long as it lives; so the next driver ends such transactions (`table.ServerTable.sweep`).

>>> name = TableName("shop", "orders")
>>> quoted_name(name), lock_number(name) == lock_number(TableName("shop", "order"))
(Identifier('shop', 'orders'), False)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import sql

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.postgressink import (
    PostgresAway,
    PostgresBusy,
    PostgresForbidden,
    PostgresFull,
    PostgresRefused,
    PostgresTrouble,
)
from tidegauge.errors.redaction import Redaction
from tidegauge.remap.store import silence
from tidegauge.remap.store.postgres import CLIENT, PATIENCE, SILENCE
from tidegauge.remap.store.silence import heard
from tidegauge.sinks.postgres.place import TableName

__all__ = ["PostgresServer", "Refusal", "be_patient", "lock_number", "quoted_name", "refused"]

Refusal = Callable[[str], TidegaugeError]
"""Makes the error for what the server refuses for good, of its words."""

_WORK: Final = 600.0
"""Seconds of silence after which a server is given up that may be merging rows."""
_SETTINGS: Final = {
    "lock_timeout": f"{PATIENCE}s",
    "idle_in_transaction_session_timeout": f"{SILENCE}s",
    "tcp_keepalives_idle": str(PATIENCE),
    "tcp_keepalives_interval": "3",
    "tcp_keepalives_count": "3",
    "client_encoding": "UTF8",
}
_SET: Final = ("SELECT " + ", ".join(["set_config(%s, %s, true)"] * len(_SETTINGS))).encode()
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)

_AWAY: Final = ("08", "57P", "53300", "25P0", "25006")
_BUSY: Final = ("55", "40", "57014")
_FULL: Final = ("53",)
_FORBIDDEN: Final = ("42501", "28")
_REFUSED: Final = ("0A", "21", "22", "23", "2F", "38", "39", "3F", "42", "44", "54", "P0")
_SHOWN: Final = 500


class _Patient(psycopg.Connection[Any]):
    """A connection that closes itself when the server falls silent. patience: how many seconds; see `be_patient`."""

    patience: float = silence.PATIENCE

    def wait(self, gen: Any, *args: Any, **settings: Any) -> Any:
        """Wait as psycopg does, but not for ever."""
        return super().wait(heard(gen, patience=self.patience, give_up=self.close), *args, **settings)


def be_patient(cursor: psycopg.Cursor[Any]) -> None:
    """Let the server be silent for long, because it works."""
    connection: Any = cursor.connection
    connection.patience = _WORK


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """How a database is reached, for the sake of one table. `settings` are libpq's, a password among them."""

    settings: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    table: str

    @contextmanager
    def looking(self) -> Iterator[psycopg.Cursor[Any]]:
        """One transaction that changes nothing, and sees one instant of the database."""
        with self._transaction(self._unexpected) as cursor:
            cursor.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            cursor.connection.read_only = True
            yield cursor

    @contextmanager
    def writing(self, refusal: Refusal | None = None) -> Iterator[psycopg.Cursor[Any]]:
        """One transaction: durable when the block has ended; when it raises `PostgresAway` perhaps, too; else not."""
        with self._transaction(refusal or self._unexpected) as cursor:
            be_patient(cursor)
            cursor.execute(_SET, [part for pair in _SETTINGS.items() for part in pair])
            cursor.execute(_DURABLE)
            yield cursor

    @contextmanager
    def _transaction(self, refusal: Refusal) -> Iterator[psycopg.Cursor[Any]]:
        try:
            with _Patient.connect(**{**CLIENT, **self.settings}, prepare_threshold=None) as connection:  # type: ignore[arg-type]
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # reads after a lock see it all
                yield connection.cursor()
        except psycopg.Error as error:
            raise self._explained(error, refusal) from None

    def _explained(self, error: psycopg.Error, refusal: Refusal) -> TidegaugeError:
        detail = Redaction(self.secrets).text(" ".join(str(error).split()))[:_SHOWN]
        state = error.sqlstate or ""
        if not state and isinstance(error, psycopg.OperationalError):  # the client says so, not the server
            return PostgresAway(table=self.table, detail=detail)
        for states, kind in (
            (_FORBIDDEN, PostgresForbidden),
            (_BUSY, PostgresBusy),
            (_AWAY, PostgresAway),
            (_FULL, PostgresFull),
        ):
            if state.startswith(states):
                return kind(table=self.table, detail=detail)
        return refusal(detail) if state.startswith(_REFUSED) or not state else self._unexpected(detail, state)

    def _unexpected(self, detail: str, state: str = "an error") -> TidegaugeError:
        return PostgresTrouble(table=self.table, detail=detail, state=state)


def refused(table: str, output: str, lower: int, upper: int) -> Refusal:
    """Return the refusal of the rows of the epochs `[lower, upper)`."""
    return lambda detail: PostgresRefused(table=table, output=output, lower=lower, last=upper - 1, detail=detail)


def quoted_name(name: TableName) -> sql.Identifier:
    """Return the name of a table for a statement."""
    return sql.Identifier(name.schema, name.name)


def lock_number(name: TableName) -> int:
    """Return the number of the advisory lock of a table: one of 2**64 in each database."""
    digest = hashlib.blake2b(f"tidegauge {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
