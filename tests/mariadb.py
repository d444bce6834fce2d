"""A real MariaDB for the tests: one for each process that runs tests, made when the first test asks for it.

The server is a child of a small shell that waits for the end of its input, as that of PostgreSQL is, so it goes when
the tests are over, and also when they are killed. Each `new_database` is empty and quickly made.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from tests.postgres import UNTIL_THE_END, free_port

from tidegauge.remap.fromtime import FromTime
from tidegauge.remap.fromtime.mariadb import MARIADB
from tidegauge.remap.frontier import Frontier

INSTALL: Final = (
    "the tests of MariaDB need its server, of version 10.5 or newer: 'sudo apt-get install mariadb-server' (Debian, "
    "Ubuntu), 'brew install mariadb' (macOS)"
)
SETTINGS: Final = {
    "server-id": "57",
    "gtid-domain-id": "3",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-metadata": "FULL",
    "binlog-row-image": "FULL",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "16M",
    "performance-schema": "OFF",
    "sql-mode": "",
}


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/opt/homebrew/bin")


class MariaDb:
    """A running server. `root` has no password; `ada` has `hunter2` and may follow what she may read."""

    def __init__(self, *, settings: Mapping[str, str] | None = None, copied: MariaDb | None = None) -> None:
        """Start one; with `copied`, take the files of another that stands still, and do not start."""
        self.settings = {**SETTINGS, **(settings or {})}
        self.folder = Path(tempfile.mkdtemp(prefix="tidegauge-mariadb-"))
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0 and self.drops_root:
            who = next(name for name in ("mysql", "nobody") if _known(name))
            self._user = {"user": who, "group": pwd.getpwnam(who).pw_gid, "extra_groups": []}
            shutil.chown(self.folder, who)
        self.port = 0
        if copied is not None:
            self.port = free_port()
            self.take_over(copied.folder / "data")
            return
        done = subprocess.run(
            self.installing(), capture_output=True, text=True, check=False, cwd=self.folder, **self._user
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        self.start()
        self.do("CREATE USER ada IDENTIFIED BY 'hunter2'", f"GRANT {self.rights} ON *.* TO ada")
        self.do("GRANT SELECT ON `db%`.* TO ada")

    drops_root = True
    """Whether the server runs as another user where the tests run as root."""
    rights = "REPLICATION SLAVE, BINLOG MONITOR"
    clock: FromTime = MARIADB

    def installing(self) -> list[str]:
        """The command that makes the server's files."""
        made = [str(program("mariadb-install-db")), "--no-defaults", f"--datadir={self.folder}/data"]
        return [*made, "--skip-test-db", "--auth-root-authentication-method=normal"]

    def serving(self) -> list[str]:
        """The command that serves them."""
        return [str(program("mariadbd")), "--no-defaults"]

    def end(self) -> Frontier:
        """How far the log goes."""
        [(at,)] = self.ask("SELECT @@global.gtid_binlog_pos")
        return self.clock.parse(at)

    def last(self) -> tuple[str, int]:
        """The last transaction, as errors name it, and its number."""
        [(at,)] = self.ask("SELECT @@global.gtid_binlog_pos")
        return at, int(at.rsplit("-", 1)[1])

    def start(self) -> None:
        """Begin to serve, on the port as before if it had one."""
        self.port = self.port or free_port()
        where = {
            "datadir": f"{self.folder}/data",
            "port": self.port,
            "bind-address": "127.0.0.1",
            "socket": f"{self.folder}/socket",
            "pid-file": f"{self.folder}/pid",
        }
        server = self.serving()
        server += [f"--{key}={value}" for key, value in {**self.settings, **where}.items()]
        with (self.folder / "log").open("ab") as log:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", UNTIL_THE_END, "sh", str(self.folder), *server],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                text=True,
                cwd=self.folder,
                **self._user,
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            if time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"MariaDB does not start: {(self.folder / 'log').read_text()[-2000:]}")
            with suppress(subprocess.TimeoutExpired):
                self._shell.wait(0.02)

    def take_over(self, data: Path) -> None:
        """Take a copy of a server's files, which are there no longer or not yet."""
        shutil.copytree(data, self.folder / "data")
        if self._user:
            for one in [self.folder / "data", *(self.folder / "data").rglob("*")]:
                shutil.chown(one, self._user["user"], self._user["group"])

    def stop(self, *, stay: bool = False) -> None:
        """End every connection and the server; with `stay` it can be started again and has what it had."""
        if stay:  # an interrupt is nothing to this server
            os.kill(self.pid, signal.SIGTERM)
        self._shell.communicate("stay\n" if stay else None, timeout=60)

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    def kill(self) -> None:
        """End the server at once (SIGKILL); it can be started again and has what it committed."""
        os.kill(self.pid, signal.SIGKILL)
        self._shell.communicate("stay\n", timeout=60)

    def connection(self, database: str | None = None, **options: Any) -> Any:
        import pymysql

        given = {"host": "127.0.0.1", "port": self.port, "user": "root", "database": database, "charset": "utf8mb4"}
        return pymysql.connect(**{**given, **options})

    def spoken(self, statement: str) -> str:
        """A statement of MariaDB's in this server's own language."""
        return statement

    def do(self, *statements: str, database: str | None = None) -> None:
        """Run statements in one transaction."""
        with self.connection(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def ask(self, query: str, database: str | None = None) -> list[tuple[Any, ...]]:
        with self.connection(database) as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(query)
            return list(cursor.fetchall())

    def new_database(self) -> str:
        name = f"db_{uuid.uuid4().hex[:12]}"
        self.do(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return name

    def _answers(self) -> bool:
        import pymysql

        try:
            self.connection().close()
        except pymysql.err.OperationalError:
            return False
        return True


def _known(user: str) -> bool:
    with suppress(KeyError):
        return bool(pwd.getpwnam(user))
    return False


def available() -> None:
    """Skip what needs a server. Where nobody reads what is skipped it fails."""
    if program("mariadbd") is None or program("mariadb-install-db") is None:
        _missing(os.environ)


def _missing(environment: Mapping[str, str]) -> NoReturn:
    if environment.get("CI"):
        pytest.fail(INSTALL)
    pytest.skip(INSTALL)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """A server to be shared. Whoever stops it starts it again."""
    available()
    server = MariaDb()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def own_mariadb() -> Iterator[MariaDb]:
    """One of the test's own."""
    available()
    server = MariaDb()
    try:
        yield server
    finally:
        server.stop()
