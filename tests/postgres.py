"""A real PostgreSQL server for the tests: one for each process that runs tests, made when the first test asks for it.

The server is a child of a small shell that waits for the end of its input, then stops the server and removes its
folder. So it goes when the tests are over, and also when they are killed. It does not wait for the disk (`fsync` is
off): it outlives a stop and a start, not a power cut. Each `place` is a schema of its own, empty and quickly made.
"""

from __future__ import annotations

import copy
import glob
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from tests.postgres_versions import asked_for
from tests.waiting import eventually

OLDEST: Final = 15
PLACES: Final = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/pgsql-*/bin")
INSTALL: Final = (
    f"the tests of the store on PostgreSQL need a server of version {OLDEST} or newer: "
    "'sudo apt-get install postgresql' (Debian, Ubuntu), 'brew install postgresql@17' (macOS)"
)
UNPRIVILEGED: Final = ("postgres", "nobody")
ACCESS: Final = """
local all ada,canary scram-sha-256
host  all ada,canary 127.0.0.1/32 scram-sha-256
local all all trust
host  all all 127.0.0.1/32 trust
"""
SETTINGS: Final = {
    "fsync": "off",
    "synchronous_commit": "on",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "dynamic_shared_memory_type": "mmap",  # in its folder: one that is killed leaves nothing elsewhere
    "max_connections": "60",
    "max_wal_size": "64MB",
    "log_min_messages": "fatal",
    "password_encryption": "scram-sha-256",
    "autovacuum": "off",
}
GIVES_UP: Final = re.compile(r"(?m)^.*FATAL: (?!.*the database system is)")
UNTIL_THE_END: Final = """
folder=$1
shift
"$@" &
server=$!
read -r how
if [ "$how" = stay ]; then
    kill -INT $server
    wait $server
else
    kill -TERM $server
    kill -QUIT $server
    wait $server
    rm -rf "$folder"
fi
"""
"""Run a server until the input ends, and remove its folder unless the last line was `stay`.

A server that has just been started ignores `QUIT`, as all does that a shell starts in the background, until it has
said what it does on it; `TERM` ends it then.
"""


def binaries() -> Path | None:
    """Where the newest PostgreSQL of this machine has its programs, or the one that was asked for."""
    if (wanted := asked_for(os.environ)) is not None:
        return wanted
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else []
    found += [Path(place) for pattern in PLACES for place in glob.glob(pattern)]
    able = {place: version(place) for place in found if (place / "postgres").exists()}
    newest = max(able, key=lambda place: able[place], default=None)
    return newest if newest is not None and able[newest] >= OLDEST else None


def version(place: Path) -> int:
    said = subprocess.run([place / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return int("".join(c if c.isdigit() else " " for c in said).split()[0])


def client_program(server: Server, name: str) -> Path:
    """A program that comes with a server, or, where versions that are fetched lack it, with one that is newer."""
    places = [server.programs, *(Path(place) for pattern in PLACES for place in glob.glob(pattern))]
    least = version(server.programs)
    able = [place for place in places if (place / name).exists() and version(place) >= least]
    if not able:
        pytest.skip(f"no {name} of version {least} or newer is on this machine")
    return min(able, key=version) / name


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """A running server, whose superuser is `postgres`. `ada`, by the password `hunter2`, and `canary` need one."""

    def __init__(self, programs: Path, *, settings: Mapping[str, str] = SETTINGS) -> None:
        self.programs = programs
        self.settings = settings
        self.port = 0
        self.places = 0
        self._user: dict[str, Any] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="tidegauge-postgres-"))
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            who = next(name for name in UNPRIVILEGED if _known(name))
            self._user = {"user": who, "group": pwd.getpwnam(who).pw_gid, "extra_groups": []}
            shutil.chown(self.folder, who)
            if programs.is_relative_to(Path.home()):  # where nobody else gets in
                shutil.copytree(programs.parent, self.folder / "programs", symlinks=True)
                _given(self.folder / "programs", who)  # or it cannot remove them
                self.programs = programs = self.folder / "programs" / programs.name
        self.data = self.folder / "data"
        quickly, who_and_how = ("--no-sync",), ("--auth=trust", "--username=postgres")
        self._run([programs / "initdb", *quickly, *who_and_how, "--encoding=UTF8", "--locale=C", "-D", self.data])
        (self.data / "pg_hba.conf").write_text(ACCESS)
        self.start()
        self.query("CREATE ROLE ada LOGIN PASSWORD 'hunter2'")
        self.query("CREATE DATABASE shop OWNER ada")

    def standby(self, **settings: str) -> Server:
        """A standby that follows this server, from now on: one more to be stopped."""
        with (self.data / "pg_hba.conf").open("a") as access:
            access.write("local replication all trust\n")
        self.query("SELECT pg_reload_conf()")
        made = copy.copy(self)
        made.port, made.folder = 0, Path(tempfile.mkdtemp(prefix="tidegauge-postgres-"))
        made.data = made.folder / "data"
        if self._user:
            shutil.chown(made.folder, self._user["user"])
        where = ["-h", self.folder, "-p", str(self.port), "-U", "postgres"]
        if (copying := self.programs / "pg_basebackup").exists():
            made._run([copying, "-D", made.data, "-R", "--checkpoint=fast", "--no-sync", *where])
        else:
            self._copy_to(made)
        with (made.data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        made.start()
        return made

    def _copy_to(self, made: Server) -> None:
        """Do what `pg_basebackup -R` does, in SQL that 15 and newer know."""
        import psycopg

        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute("SELECT pg_backup_start('copy', true)")
            left = shutil.ignore_patterns("postmaster.*", "pg_replslot", "pgsql_tmp*")
            shutil.copytree(self.data, made.data, ignore=left)
            [[label]] = connection.execute("SELECT labelfile FROM pg_backup_stop(false)").fetchall()
        (made.data / "pg_replslot").mkdir()
        (made.data / "backup_label").write_text(label)
        (made.data / "standby.signal").touch()
        with (made.data / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = 'host={self.folder} port={self.port} user=postgres dbname=postgres'\n")
        made.data.chmod(0o700)
        if self._user:
            _given(made.data, self._user["user"])

    def start(self) -> None:
        """Begin to serve, on the port as before if it had one."""
        self.port = self.port or free_port()
        where = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self.folder}
        settings = [f"--{key}={value}" for key, value in {**self.settings, **where}.items()]
        server = [str(self.programs / "postgres"), "-D", str(self.data), *settings]
        with (self.folder / "log").open("ab") as log:
            said_before = log.tell()
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", UNTIL_THE_END, "sh", str(self.folder), *server],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                text=True,
                **self._settings(),
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            said = (self.folder / "log").read_text()[said_before:]
            if time.monotonic() > deadline or GIVES_UP.search(said):
                self.stop()
                raise RuntimeError(f"PostgreSQL does not start: {said}")
            with suppress(subprocess.TimeoutExpired):
                self._shell.wait(0.02)

    def stop(self, *, stay: bool = False) -> None:
        """End every connection and the server; with `stay` it can be started again and has what it had."""
        self._shell.communicate("stay\n" if stay else None, timeout=60)

    def kill(self) -> None:
        """End all processes of the server at once (SIGKILL); it can be started again and has what it committed."""
        head = int((self.data / "postmaster.pid").read_text().split()[0])
        others = Path(f"/proc/{head}/task/{head}/children").read_text().split()
        for pid in (head, *map(int, others)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: all(_gone(int(pid)) for pid in others))  # they share the memory that a start asks for
        self.stop(stay=True)

    def place(self, *, silence: int | None = None) -> str:
        """The address of an empty schema of its own, for the superuser.

        silence: seconds after which the server ends a transaction whose driver says nothing, the store's if None.
        """
        self.places += 1
        name = f"place_{self.places}"
        self.query(f"CREATE SCHEMA {name}")
        silent = "" if silence is None else f"%20-cidle_in_transaction_session_timeout%3D{silence}s"
        return self.address("postgres", options=f"-csearch_path%3D{name}{silent}")

    def address(self, database: str, *, user: str = "postgres", **settings: str) -> str:
        more = "".join(f"&{key}={settings[key]}" for key in settings)
        return f"postgresql://{user}@/{database}?host={self.folder}&port={self.port}{more}"

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement, outside of a transaction, as the superuser."""
        return query(self.address("postgres"), sql)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.address("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, command: Sequence[Any]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **self._settings())
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"

    def _settings(self) -> dict[str, Any]:
        marks = {name: value for name, value in os.environ.items() if name.startswith("TIDEGAUGE_TEST")}
        return {**self._user, "cwd": self.folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C", **marks}}


def new_database(server: Server) -> str:
    """Make an empty database, and return its name."""
    name = f"db_{uuid.uuid4().hex[:12]}"
    server.query(f"CREATE DATABASE {name}")
    return name


def query(address: str, sql: str) -> list[tuple[Any, ...]]:
    """Run one statement on a connection of its own, and return its rows."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        done = connection.execute(sql)
        return list(done.fetchall()) if done.description else []


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def _given(folder: Path, user: str) -> None:
    """Have a folder, with all that is in it, belong to somebody."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            shutil.chown(path, user)


def _known(user: str) -> bool:
    with suppress(KeyError):
        return bool(pwd.getpwnam(user))
    return False


def missing(environment: Mapping[str, str]) -> NoReturn:
    """Skip what needs a server. Where nobody reads what is skipped it fails."""
    if environment.get("CI"):
        pytest.fail(INSTALL)
    pytest.skip(INSTALL)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server of the test's own."""
    server = Server(binaries() or missing(os.environ))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server to be shared. Whoever stops it starts it again."""
    programs = binaries() or missing(os.environ)
    hidden = pytest.MonkeyPatch()
    for name in [name for name in os.environ if name.startswith("PG")]:  # what psql of this user would take
        hidden.delenv(name)
    server = Server(programs)
    try:
        yield server
    finally:
        server.stop()
        hidden.undo()


LOGICAL: Final = {**SETTINGS, "wal_level": "logical", "max_replication_slots": "60", "max_wal_senders": "10"}
"""What logical replication needs."""


@pytest.fixture(scope="session")
def logical() -> Iterator[Server]:
    """A server to be shared, with room for many slots. Whoever stops it starts it again."""
    server = Server(binaries() or missing(os.environ), settings=LOGICAL)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def own_logical() -> Iterator[Server]:
    """One of the test's own."""
    server = Server(binaries() or missing(os.environ), settings=LOGICAL)
    try:
        yield server
    finally:
        server.stop()
