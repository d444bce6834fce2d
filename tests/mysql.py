"""A real MySQL for the tests, beside MariaDB: the same ways to start, stop and ask it.

`TIDEGAUGE_MYSQL=8.0` has all tests that start a MySQL start one of 8.0, else it is 5.6. What they say in the SQL of
MariaDB it is told in its own: tables of numbers (`seq_1_to_9`) are made of one that it has.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from tests.mariadb import MariaDb

from tidegauge.remap.fromtime import FromTime
from tidegauge.remap.fromtime.gtid import GTID
from tidegauge.testing.jars import cache

__all__ = ["MySql", "MySql8", "asked_for", "mysql", "mysql8", "of_old", "own_mysql", "own_mysql8"]

_NUMBERS: Final = re.compile(r"\bseq_(\d+)_to_(\d+)\b")


class MySql(MariaDb):
    """A running server. `root` has no password; `ada` has `hunter2` and may follow what she may read."""

    drops_root = False  # its programs are in this user's cache
    programs: Path = cache(os.environ, "mysql-5.6.14")
    install = "the tests of MySQL 5.6 need its programs, for Linux on x86-64: make mysql"
    foreign = frozenset({"gtid-domain-id", "binlog-row-metadata"})
    """Settings that it does not have."""
    rights = "REPLICATION SLAVE, REPLICATION CLIENT, RELOAD"
    clock: FromTime = GTID
    gtids = True

    def __init__(self, *, settings: Mapping[str, str] | None = None, copied: MySql | None = None) -> None:
        super().__init__(settings=settings, copied=copied)
        if copied is None:
            self.do("DELETE FROM mysql.user WHERE user = ''", "FLUSH PRIVILEGES")
            self.do("CREATE DATABASE numbers", "CREATE TABLE numbers.n (n int PRIMARY KEY)")
            digits = "(SELECT 0 AS d" + "".join(f" UNION ALL SELECT {d}" for d in range(1, 10)) + ")"
            places = ", ".join(f"{digits} AS p{at}" for at in range(5))
            number = " + ".join(f"{10**at} * p{at}.d" for at in range(5))
            self.do(f"INSERT INTO numbers.n SELECT {number} FROM {places}")

    def installing(self) -> list[str]:
        made = ["perl", f"{self.programs}/scripts/mysql_install_db", "--no-defaults", "--force"]
        made += [f"--basedir={self.programs}"]
        return [*made, f"--datadir={self.folder}/data", f"--user={getpass.getuser()}"]

    def serving(self) -> list[str]:
        kept = {name: value for name, value in self.settings.items() if name not in self.foreign}
        switched = "ON" if self.gtids else "OFF"
        self.settings = {
            **kept,
            "basedir": str(self.programs),
            "gtid-mode": switched,
            "enforce-gtid-consistency": switched,
            "log-slave-updates": "ON",
            "user": getpass.getuser(),
            "explicit-defaults-for-timestamp": "ON",
        }
        return [str(self.programs / "bin" / "mysqld"), "--no-defaults"]

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


class MySql8(MySql):
    """A running server of 8.0."""

    programs = cache(os.environ, "mysql-8.0.33.1")
    install = "the tests of MySQL 8.0 need its programs, for Linux on x86-64: make mysql8"
    foreign = frozenset({"gtid-domain-id", "innodb-log-file-size"})
    rights = f"{MySql.rights}, XA_RECOVER_ADMIN"

    def installing(self) -> list[str]:
        made = [str(self.programs / "bin" / "mysqld"), "--no-defaults", "--initialize-insecure"]
        return [*made, f"--basedir={self.programs}", f"--datadir={self.folder}/data", f"--user={getpass.getuser()}"]

    def serving(self) -> list[str]:
        found = super().serving()
        self.settings |= {"mysqlx": "OFF", "secure-file-priv": "", "innodb-redo-log-capacity": "16M"}
        return found


def asked_for(environ: Mapping[str, str]) -> type[MySql]:
    """Return the server that tests of MySQL start.

    >>> asked_for({}).__name__, asked_for({"TIDEGAUGE_MYSQL": "8.0"}).__name__
    ('MySql', 'MySql8')
    """
    return {"5.6": MySql, "8.0": MySql8}[environ.get("TIDEGAUGE_MYSQL", "5.6")]


of_old: Final = pytest.mark.skipif(asked_for(os.environ) is not MySql, reason="what MySQL 5.6 alone has")


def serving(kind: type[MySql]) -> Iterator[MySql]:
    """Lend a server. Without its programs skip; where nobody reads what is skipped fail."""
    if not (kind.programs / "bin" / "mysqld").exists():
        if os.environ.get("CI"):
            pytest.fail(kind.install)
        pytest.skip(kind.install)
    server = kind()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySql]:
    """A server to be shared. Whoever stops it starts it again."""
    yield from serving(asked_for(os.environ))


@pytest.fixture
def own_mysql() -> Iterator[MySql]:
    """One of the test's own."""
    yield from serving(asked_for(os.environ))


@pytest.fixture(scope="session")
def mysql8() -> Iterator[MySql]:
    """One of 8.0, to be shared. Whoever stops it starts it again."""
    yield from serving(MySql8)


@pytest.fixture
def own_mysql8() -> Iterator[MySql]:
    """One of 8.0, of the test's own."""
    yield from serving(MySql8)
