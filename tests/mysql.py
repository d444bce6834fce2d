"""A real MySQL 5.6 for the tests, beside MariaDB: the same ways to start, stop and ask it.

What the tests say in the SQL of MariaDB it is told in its own: tables of numbers (`seq_1_to_9`) are made of one that
it has.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.mariadb import MariaDb

from tidegauge.remap.fromtime import FromTime
from tidegauge.remap.fromtime.gtid import GTID
from tidegauge.testing.jars import cache

__all__ = ["MySql", "mysql", "own_mysql"]

FOLDER: Final = cache(os.environ, "mysql-5.6.14")
INSTALL: Final = "the tests of MySQL 5.6 need its programs, for Linux on x86-64: make mysql"
_ONLY_MARIADB: Final = frozenset({"gtid-domain-id", "binlog-row-metadata"})
_NUMBERS: Final = re.compile(r"\bseq_(\d+)_to_(\d+)\b")


class MySql(MariaDb):
    """A running server. `root` has no password; `ada` has `hunter2` and may follow what she may read."""

    drops_root = False  # its programs are in this user's cache
    rights = "REPLICATION SLAVE, REPLICATION CLIENT, RELOAD"
    clock: FromTime = GTID
    gtids = True

    def __init__(self, *, copied: MySql | None = None) -> None:
        super().__init__(copied=copied)
        if copied is None:
            self.do("DELETE FROM mysql.user WHERE user = ''", "FLUSH PRIVILEGES")
            self.do("CREATE DATABASE numbers", "CREATE TABLE numbers.n (n int PRIMARY KEY)")
            digits = "(SELECT 0 AS d" + "".join(f" UNION ALL SELECT {d}" for d in range(1, 10)) + ")"
            places = ", ".join(f"{digits} AS p{at}" for at in range(5))
            number = " + ".join(f"{10**at} * p{at}.d" for at in range(5))
            self.do(f"INSERT INTO numbers.n SELECT {number} FROM {places}")

    def installing(self) -> list[str]:
        made = ["perl", f"{FOLDER}/scripts/mysql_install_db", "--no-defaults", "--force", f"--basedir={FOLDER}"]
        return [*made, f"--datadir={self.folder}/data", f"--user={getpass.getuser()}"]

    def serving(self) -> list[str]:
        kept = {name: value for name, value in self.settings.items() if name not in _ONLY_MARIADB}
        switched = "ON" if self.gtids else "OFF"
        self.settings = {
            **kept,
            "basedir": str(FOLDER),
            "gtid-mode": switched,
            "enforce-gtid-consistency": switched,
            "log-slave-updates": "ON",
            "user": getpass.getuser(),
            "explicit-defaults-for-timestamp": "ON",
        }
        return [str(FOLDER / "bin" / "mysqld"), "--no-defaults"]

    def end(self) -> Any:
        [(at,)] = self.ask("SELECT @@global.gtid_executed")
        return self.clock.parse(at)

    def last(self) -> tuple[str, int]:
        [(server,)] = self.ask("SELECT @@server_uuid")
        number = self.end()[server] - 1
        return f"{server}:{number}", number

    def do(self, *statements: str, database: str | None = None) -> None:
        super().do(*map(self.spoken, statements), database=database)

    def spoken(self, statement: str) -> str:
        return _NUMBERS.sub(_numbers, statement)


def _numbers(found: re.Match[str]) -> str:
    first, last = int(found[1]), int(found[2])
    return f"(SELECT n + {first} AS seq FROM numbers.n WHERE n <= {last - first}) AS numbers"


def available() -> None:
    """Skip what needs a server. Where nobody reads what is skipped it fails."""
    if not (Path(FOLDER) / "bin" / "mysqld").exists():
        if os.environ.get("CI"):
            pytest.fail(INSTALL)
        pytest.skip(INSTALL)


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySql]:
    """A server to be shared. Whoever stops it starts it again."""
    available()
    server = MySql()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def own_mysql() -> Iterator[MySql]:
    """One of the test's own."""
    available()
    server = MySql()
    try:
        yield server
    finally:
        server.stop()
