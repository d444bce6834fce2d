"""The kinds of servers: MariaDB, and MySQL. They count transactions differently, and their logs say different things.

    MariaDB   gtid_binlog_pos   domain-server-number    the log names columns
    MySQL     gtid_executed     server:1-number         it does not: they are known by their places

Invariant: a kind is a value. The one that a source has is looked up once, and decides its clock for good.

>>> kind_of("10.11.19-MariaDB").clock.kind, kind_of("5.6.14-log").clock.kind
('mariadb-gtid', 'gtid')
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidegauge.errors.fromtime import InvalidNotation
from tidegauge.errors.mysqlsource import BinlogServerUnfit
from tidegauge.remap.fromtime import FromTime
from tidegauge.remap.fromtime.gtid import GTID
from tidegauge.remap.fromtime.mariadb import MARIADB
from tidegauge.remap.frontier import Frontier

__all__ = ["MARIADB_SERVER", "MYSQL_SERVER", "ServerKind", "connect_state", "kind_named", "kind_of"]

_LOGGED: Final[Mapping[str, tuple[str, str]]] = {
    "log_bin": ("1", "start the server with --log-bin"),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = 'ROW', and in its configuration"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = 'FULL', and in its configuration"),
}


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A kind. position, partition, number: the variables with the transactions that are in the log, with the
    partition of those that the server makes itself, and with what tells it from others.

    wanted: what variables must be, and how they become it. named: whether the log names columns.
    """

    name: str
    clock: FromTime
    position: str
    partition: str
    number: str
    wanted: Mapping[str, tuple[str, str]]
    named: bool

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
        "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = 'FULL', and in its configuration"),
        "log_bin_compress": ("0", "SET GLOBAL log_bin_compress = OFF"),
    },
    named=True,
)
MYSQL_SERVER: Final = ServerKind(
    "MySQL",
    GTID,
    "gtid_executed",
    "server_uuid",
    "server_uuid",
    {
        **_LOGGED,
        "gtid_mode": ("1", "start the server with --gtid-mode=ON --enforce-gtid-consistency --log-slave-updates"),
    },
    named=False,
)


def kind_of(version: str) -> ServerKind:
    """Return the kind of a server by its version."""
    return MARIADB_SERVER if "MariaDB" in version else MYSQL_SERVER


def kind_named(clock: str) -> ServerKind:
    """Return the kind whose clock has this name. Raises `KeyError`."""
    return {one.clock.kind: one for one in (MARIADB_SERVER, MYSQL_SERVER)}[clock]


def connect_state(source: str, frontier: Frontier, binlog_state: str) -> str:
    """Return a frontier as MariaDB wants it, with the server that wrote each of these transactions.

    >>> connect_state("db", Frontier({"3": 11, "0": 5}), "0-1-4,3-57-30,3-58-9")
    '0-1-4,3-57-10'
    """
    known = [re.fullmatch(r"(\d+)-(\d+)-(\d+)", one.strip()) for one in binlog_state.split(",") if one.strip()]
    found = []
    for domain, following in sorted(frontier.items()):
        last = following - 1
        if not last:  # all of it, from its first transaction on
            continue
        servers = [one[2] for one in known if one is not None and one[1] == domain and int(one[3]) >= last]
        if len(servers) > 1:
            detail = f"servers {', '.join(servers)} wrote to the domain {domain} of its log after {last}, in turns"
            remedy = "only a log that one server writes at a time can be followed at present"
            raise BinlogServerUnfit(source=source, detail=detail, remedy=remedy)
        if servers:
            found.append(f"{domain}-{servers[0]}-{last}")
    return ",".join(found)
