"""Sessions with a server: their settings, and its errors as ours.

Invariants. What decides how values are written is set by us, over whatever the role, the database or the address has
set. No text that leaves this module has a password in it. Every error is one that passes (`Transient`), or says that
the slot is lost; nothing that somebody can put right at the server fails the source for good.

>>> DatabasePlace("postgresql://ada@db/shop", None).shown
'the database db:5432/shop'
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.postgressource import (
    LoginRefused,
    RightMissing,
    ServerAway,
    ServerUnfit,
    SlotActive,
    SlotLost,
    SlotsExhausted,
    TableLocked,
)
from tidegauge.errors.redaction import Redaction
from tidegauge.postgres.address import database_identity, reached

if TYPE_CHECKING:
    import psycopg

__all__ = ["DatabasePlace", "explained", "nudged", "replicating", "session", "take_texts"]

SETTINGS: Final[Mapping[str, str]] = {
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": r"read\ committed",
    "extra_float_digits": "1",
    "intervalstyle": "postgres",
    "jit": "off",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "row_security": "off",
    "search_path": "pg_catalog",
    "timezone": "UTC",
    "xmlbinary": "base64",
}
"""What a session is set to: how values are written; that no policy hides rows, but is an error instead; and that no
look waits for others, as a deferrable one does while somebody's serializable transaction is open, or until the server
has compiled its queries, which takes seconds where these look dear."""
_CLIENT: Final[Mapping[str, str]] = {
    "connect_timeout": "10",
    "fallback_application_name": "tidegauge",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
_PATIENCE: Final = 30
"""Seconds after which a question to the catalog is given up."""
_LOCKED: Final = 2
"""Seconds after which it is not waited any more for a table that somebody has locked."""
_SHOWN: Final = 500
_LOGIN: Final = re.compile(
    r"password|authentication|pg_hba\.conf|certificate|(role|database) \".*\" (does not exist|is not permitted)",
    re.IGNORECASE,
)
_ROOM: Final = re.compile(r"max_wal_senders|replication slots are in use|max_replication_slots")
_RIGHT: Final = re.compile(r"replication role|permission denied|REPLICATION attribute")


@dataclass(frozen=True, slots=True)
class DatabasePlace:
    """Where a database is. password: a reference."""

    dsn: str
    password: str | None

    @property
    def shown(self) -> str:
        """The database, for people."""
        return f"the database {database_identity(self.dsn).removeprefix('postgres:')}"


@contextmanager
def session(place: DatabasePlace, *, patient: bool = False) -> Iterator[psycopg.Connection[Any]]:
    """An ordinary session that reads only, and commits nothing.

    patient: the server may be silent for long, since it works.
    """
    from tidegauge.remap.store.silence import Listener
    from tidegauge.sources.postgres.atwork import PatientListener

    with explained(place):
        waits = {} if patient else {"lock_timeout": f"{_LOCKED}s"}
        settings = {
            **SETTINGS,
            **waits,
            "statement_timeout": f"{_PATIENCE}s",
            "default_transaction_read_only": "on",
            "idle_in_transaction_session_timeout": "0",
        }
        kind = PatientListener if patient else Listener
        with kind.connect(**_arguments(place, settings), prepare_threshold=None) as connection:  # type: ignore[arg-type]
            if isinstance(connection, PatientListener):
                connection.place = place
            yield connection


def nudged(place: DatabasePlace) -> None:
    """Make the log of a server grow, by a message to nobody. Raises what `explained` does."""
    with session(place) as connection:
        connection.execute("SELECT pg_logical_emit_message(true, 'tidegauge', '')")
        connection.commit()


def replicating(place: DatabasePlace) -> psycopg.Connection[Any]:
    """Return a session of a sender of the log. Raises what `explained` does.

    It gives up a server that does not answer, but no timeout of the server ends it. To make a slot it waits for the
    transactions that are open, as for a lock, and it is idle in a transaction of its own for as long as it exports a
    snapshot.
    """
    from tidegauge.remap.store.silence import Listener

    settings = {**SETTINGS, "idle_in_transaction_session_timeout": "0", "lock_timeout": "0"}
    with explained(place):
        return Listener.connect(**_arguments(place, settings), replication="database", autocommit=True)  # type: ignore[arg-type]


def _arguments(place: DatabasePlace, wanted: Mapping[str, str]) -> dict[str, str]:
    settings, _ = reached(place.dsn, place.password)
    options = " ".join(f"-c {name}={value}" for name, value in wanted.items())
    return {**_CLIENT, **settings, "options": f"{settings.get('options', '')} {options}".strip()}


def take_texts(connection: psycopg.Connection[Any], *, raw: bool) -> None:
    """Take texts as the bytes that the server has, or as UTF-8. It matters for a database in `SQL_ASCII` alone.

    There a text may have any bytes. Asked for UTF-8, the server would refuse to send it, and nothing behind it would
    come. Statements are to be made before. Raises `psycopg.Error`.
    """
    if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
        connection.execute(b"SET client_encoding = 'SQL_ASCII'" if raw else b"SET client_encoding = 'UTF8'")


@contextmanager
def explained(place: DatabasePlace, slot: str = "") -> Iterator[None]:
    """Turn the errors of the server and of the client into ours."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        _, secrets = reached(place.dsn, place.password)
        detail = Redaction(secrets).text(" ".join(str(error).split()))[:_SHOWN]
        raise error_of(place.shown, slot, error.sqlstate or "", detail) from None


def error_of(source: str, slot: str, state: str, detail: str) -> TidegaugeError:
    """Return what an error of the server means. state: its SQLSTATE, "" where a connection was not made.

    >>> error_of("db", "s", "", 'FATAL:  password authentication failed for user "ada"').code
    'TG-0361'
    >>> error_of("db", "s", "55000", 'cannot read from logical replication slot "s"').code
    'TG-0369'
    """
    if _ROOM.search(detail) and "wal_level" not in detail:
        return SlotsExhausted(source=source, detail=detail)
    if state.startswith("28") or state == "3D000" or (not state and _LOGIN.search(detail)):
        return LoginRefused(source=source, detail=detail)
    if state == "42501" or (not state and _RIGHT.search(detail)):
        grant = "ALTER ROLE ... REPLICATION, and GRANT SELECT on the tables"
        return RightMissing(role="of the source", source=source, detail=detail, grant=grant)
    if state == "55P03":
        return TableLocked(source=source, detail=detail)
    if state == "55006":
        return SlotActive(source=source, slot=slot, detail=detail)
    if state == "55000" and "cannot read from" in detail:
        return SlotLost(source=source, slot=slot, detail=detail)
    if state == "55000":
        remedy = "see what the server says, and its log"
        return ServerUnfit(source=source, detail=detail, remedy=remedy)
    return ServerAway(source=source, detail=detail)
