"""The kinds of servers: MariaDB, and MySQL. They count transactions differently, and their logs say different things.

    MariaDB      gtid_binlog_pos   domain-server-number    the log names columns
    MySQL 8.0    gtid_executed     server:1-number         the same
    MySQL 5.6    gtid_executed     server:1-number         it does not: they are known by their places

Invariant: a kind is a value. The one that a source has is looked up once, and decides its clock for good.

>>> kind_of("10.11.19-MariaDB").clock.kind, kind_of("5.6.14-log").clock.kind
('mariadb-gtid', 'gtid')
>>> kind_of("5.6.14-log").named, kind_of("8.0.33").named
(False, True)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidegauge.errors.fromtime import InvalidNotation
from tidegauge.errors.mysqlsource import BinlogServerUnfit
from tidegauge.remap.fromtime import FromTime
from tidegauge.remap.fromtime.gtid import GTID
from tidegauge.remap.fromtime.mariadb import MARIADB
from tidegauge.remap.frontier import Frontier

__all__ = ["MARIADB_SERVER", "MYSQL8_SERVER", "MYSQL_SERVER", "ServerKind", "connect_state", "kind_named", "kind_of"]

_LOGGED: Final[Mapping[str, tuple[str, str]]] = {
    "log_bin": ("1", "start the server with --log-bin"),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = 'ROW', and in its configuration"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = 'FULL', and in its configuration"),
}
_NAMING: Final[Mapping[str, tuple[str, str]]] = {
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = 'FULL', and in its configuration"),
}


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A kind. position, partition, number: the variables with the transactions that are in the log, with the
    partition of those that the server makes itself, and with what tells it from others.

    wanted: what variables must be, and how they become it. named: whether the log names columns. joins: the partition
    that counts how often tables joined that were added to a source: no server is to have it.
    """

    name: str
    clock: FromTime
    position: str
    partition: str
    number: str
    wanted: Mapping[str, tuple[str, str]]
    named: bool
    joins: str

    @property
    def by_sets(self) -> bool:
        """Whether positions are sets of transactions."""
        return self.clock == GTID

    def end(self, source: str, settings: Mapping[str, str]) -> Frontier:
        """Return how far the log goes. Raises `BinlogServerUnfit`."""
        return self.frontier(source, settings[self.position])

    def frontier(self, source: str, text: str) -> Frontier:
        """Return a position of the log. Raises `BinlogServerUnfit` for a set of transactions with gaps."""
        try:
            return self.clock.parse(text)
        except InvalidNotation as error:
            detail = f"its log is at no position that can be followed: {error.summary}"
            remedy = "only a log without gaps in its transactions can be followed at present"
            raise BinlogServerUnfit(source=source, detail=detail, remedy=remedy) from None

    def identity(self, settings: Mapping[str, str]) -> str:
        """Return what tells a server from others."""
        return f"server {settings['server_id']} {settings[self.number]}".strip()


MARIADB_SERVER: Final = ServerKind(
    "MariaDB",
    MARIADB,
    "gtid_binlog_pos",
    "gtid_domain_id",
    "server_uid",
    {
        **_LOGGED,
        **_NAMING,
        "log_bin_compress": ("0", "SET GLOBAL log_bin_compress = OFF"),
    },
    named=True,
    joins=str(2**32 - 1),
)
MYSQL_SERVER: Final = ServerKind(
    "MySQL 5.6",
    GTID,
    "gtid_executed",
    "server_uuid",
    "server_uuid",
    {
        **_LOGGED,
        "gtid_mode": ("1", "start the server with --gtid-mode=ON --enforce-gtid-consistency --log-slave-updates"),
    },
    named=False,
    joins="ffffffff-ffff-ffff-ffff-ffffffffffff",
)
MYSQL8_SERVER: Final = replace(
    MYSQL_SERVER,
    name="MySQL 8.0",
    wanted={
        **MYSQL_SERVER.wanted,
        **_NAMING,
        "log_slave_updates": ("1", "start the server with --log-slave-updates=ON"),
        "binlog_row_value_options": ("", "SET GLOBAL binlog_row_value_options = '', and in its configuration"),
    },
    named=True,
)
_KINDS: Final = (MARIADB_SERVER, MYSQL_SERVER, MYSQL8_SERVER)


def kind_of(version: str) -> ServerKind:
    """Return the kind of a server by its version."""
    if "MariaDB" in version:
        return MARIADB_SERVER
    return MYSQL_SERVER if version.startswith("5.") else MYSQL8_SERVER


def kind_named(clock: str, name: str | None) -> ServerKind:
    """Return the kind of this name; without one, the first one whose clock has this name. Raises `KeyError`.

    >>> kind_named("gtid", None).name, kind_named("gtid", "MySQL 8.0").name
    ('MySQL 5.6', 'MySQL 8.0')
    """
    found = [one for one in _KINDS if one.clock.kind == clock and name in (None, one.name)]
    if not found:
        raise KeyError(name or clock)
    return found[0]


def connect_state(source: str, frontier: Frontier, binlog_state: str, known: str = "") -> str:
    """Return a frontier as MariaDB wants it, with the server that wrote each of these transactions.

    known: one of them. It tells servers apart that write to a domain in turns.

    >>> connect_state("db", Frontier({"3": 11, "0": 5}), "0-1-4,3-57-30,3-58-9")
    '0-1-4,3-57-10'
    >>> connect_state("db", Frontier({"3": 11}), "3-57-30,3-58-29", "3-57-10")
    '3-57-10'
    """
    state = [re.fullmatch(r"(\d+)-(\d+)-(\d+)", one.strip()) for one in binlog_state.split(",") if one.strip()]
    found = []
    for domain, following in sorted(frontier.items()):
        last = following - 1
        if not last:  # all of it, from its first transaction on
            continue
        servers = [one[2] for one in state if one is not None and one[1] == domain and int(one[3]) >= last]
        if (writer := re.fullmatch(rf"{domain}-(\d+)-{last}", known)) is not None and writer[1] in servers:
            servers = [writer[1]]
        if len(servers) > 1:
            detail = f"servers {', '.join(servers)} wrote to the domain {domain} of its log after {last}, in turns"
            remedy = "only a log that one server writes at a time can be followed at present"
            raise BinlogServerUnfit(source=source, detail=detail, remedy=remedy)
        if servers:
            found.append(f"{domain}-{servers[0]}-{last}")
    return ",".join(found)
