"""Sessions with a server, over PyMySQL: their settings, and the server's errors as ours.

Invariants. What decides how values are written is set by us, over whatever the server or the user has set. No text
that leaves this module has a password in it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tidegauge import secrets
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.mysqlsource import (
    BinlogClosed,
    BinlogLoginRefused,
    BinlogPurged,
    BinlogRightMissing,
    BinlogServerAway,
    BinlogServerUnfit,
    FirstRowsOutdated,
)
from tidegauge.errors.redaction import Redaction
from tidegauge.lazy import library
from tidegauge.sources.mysql.address import ServerAddress

__all__ = ["GRANT", "LASTING", "PATIENCE", "ServerPlace", "error_of", "explained", "session"]

pymysql: Final = library("pymysql")

LASTING: Final = "wait_timeout = 28800, net_write_timeout = 600"
"""Seconds for which a session lasts though its driver has other things to do."""
_SETTINGS: Final = (
    "SET time_zone = '+00:00', sql_mode = 'NO_ENGINE_SUBSTITUTION', character_set_results = 'utf8mb4', "
    f"sql_quote_show_create = 1, sql_select_limit = 18446744073709551615, sql_big_selects = 1, {LASTING}"
)
_OF_MARIADB: Final = "SET max_statement_time = 0, idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0"
_OF_MYSQL_8: Final = "SET max_execution_time = 0"
PATIENCE: Final = 30
"""Seconds after which an answer is given up."""
_SHOWN: Final = 400
_LOGIN: Final = frozenset({1044, 1045, 1049, 1698, 1820, 1862, 2026, 2059, 2061, 3118, 3159, 4151})
"""Passwords that are wrong or have expired, locked users, ways to log in, and TLS that one side alone wants."""
_RIGHT: Final = frozenset({1142, 1143, 1227})
_OTHER_TABLE: Final = 1412
"""A transaction sees a table no more that was altered since it began."""
GRANT: Final = (
    "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO ... (on MySQL: REPLICATION SLAVE, REPLICATION CLIENT, "
    "RELOAD, and on 8.0 XA_RECOVER_ADMIN); GRANT SELECT ON the tables TO ..."
)


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Where a server is. password: a reference, None for no password."""

    address: ServerAddress
    password: str | None

    @property
    def shown(self) -> str:
        """The server, for people."""
        return self.address.shown

    @property
    def secret(self) -> str:
        """The password. Raises `SecretUnavailable`."""
        return "" if self.password is None else secrets.resolve("password", self.password)


@contextmanager
def session(place: ServerPlace) -> Iterator[Any]:
    """An ordinary session, whose values come as bytes: the texts that the server writes."""
    with explained(place):
        connection = opened(place)
        try:
            with connection.cursor() as cursor:
                cursor.execute(_SETTINGS)
                if settings := _own_settings(connection.get_server_info()):
                    cursor.execute(settings)
            yield connection
        finally:
            connection.close()


def _own_settings(version: str) -> str:
    """Return the settings that servers of a version have and others do not, "" for none.

    >>> _own_settings("11.8.2-MariaDB") == _OF_MARIADB, _own_settings("8.4.3"), _own_settings("5.6.48-log")
    (True, 'SET max_execution_time = 0', '')
    """
    if "MariaDB" in version:
        return _OF_MARIADB
    first, _, _ = version.partition(".")
    return _OF_MYSQL_8 if first.isdigit() and int(first) >= 8 else ""


def opened(place: ServerPlace, over: socket.socket | None = None) -> Any:
    """Return a connection, to be used within `explained`. over: a socket that is connected to the server."""
    address = place.address
    try:
        tls = address.tls
    except OSError as error:  # no certificates in the file, or no file
        raise BinlogLoginRefused(source=place.shown, detail=f"{address.authorities}: {error}") from None
    connection = pymysql.connect(
        host=address.host,
        port=address.port,
        user=address.user,
        password=place.secret,
        database=address.database,
        charset="utf8mb4",
        use_unicode=False,
        conv=pymysql.converters.encoders,  # values come as they are
        connect_timeout=10,
        read_timeout=PATIENCE,
        write_timeout=PATIENCE,
        autocommit=True,
        program_name="tidegauge",
        defer_connect=True,
        **tls,
    )
    connection.connect(over)
    return connection


@contextmanager
def explained(place: ServerPlace) -> Iterator[None]:
    """Turn the errors of the server and of the client into ours."""
    try:
        yield
    except pymysql.err.Error as error:
        number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        said = error.args[1] if len(error.args) > 1 else error
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        detail = Redaction(tuple(one for one in (place.secret,) if one)).text(" ".join(text.split()))[:_SHOWN]
        if isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError):
            raise BinlogLoginRefused(source=place.shown, detail=detail) from None
        raise error_of(place.shown, number, detail) from None
    except RuntimeError as error:  # a way to log in for which PyMySQL lacks another package
        raise BinlogLoginRefused(source=place.shown, detail=str(error)) from None
    except (
        AttributeError
    ) as error:  # a cursor that is closed after its connection broke asks for the reader, now None
        if error.obj is not None:
            raise
        raise BinlogServerAway(source=place.shown, detail="the connection broke") from None
    except OSError as error:
        raise BinlogServerAway(source=place.shown, detail=str(error)) from None


def error_of(source: str, number: int, detail: str, needed: str = "", found: str = "") -> TidegaugeError:
    """Return what an error of the server means. needed, found: the first transaction that is needed of the log, and
    what the log has, while it is read.

    >>> error_of("db", 1045, "Access denied for user 'ada'@'localhost' (using password: YES)").code
    'TG-0333'
    >>> error_of("db", 1236, "the binary log has been purged", needed="3-20", found="it begins after 3-30").code
    'TG-0338'
    """
    if number in _RIGHT or (number == 1045 and needed):
        return BinlogRightMissing(source=source, detail=detail, grant=GRANT)
    if number in _LOGIN:
        return BinlogLoginRefused(source=source, detail=detail)
    if number == 1236 and needed and ("purged" in detail or "GTID" in detail):
        return BinlogPurged(source=source, needed=needed, found=found, said=detail)
    if number == 1236 and needed and "not open" in detail:
        return BinlogClosed(source=source)
    if number == _OTHER_TABLE:
        return FirstRowsOutdated(source=source, detail=detail)
    if number == 1381:
        remedy = "start the server with --log-bin"
        return BinlogServerUnfit(source=source, detail="its binary log is off", remedy=remedy)
    return BinlogServerAway(source=source, detail=f"{detail} ({number})" if number else detail)
