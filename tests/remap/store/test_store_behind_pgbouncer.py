"""A store on PostgreSQL behind a real PgBouncer in transaction mode, where each transaction may be on another
connection to the server."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres import INSTALL, UNPRIVILEGED, Server, free_port
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.env import Env
from tidegauge.errors.store import FlowAlreadyRunning, InvalidStoreUrl
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import LeaseHolder, SourceSpec, Store
from tidegauge.remap.store.connect import Database
from tidegauge.remap.store.postgres import PATIENCE, SILENCE

pytestmark = [pytest.mark.long, pytest.mark.server_clock]

CONFIG = """
[databases]
* = host={server.folder} port={server.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 3
{more}
"""


@dataclass(frozen=True)
class Bouncer:
    """A PgBouncer in front of a server."""

    port: int

    def address(self, database: str, options: str = "") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}{options}"

    def answers(self) -> bool:
        try:
            psycopg.connect(self.address("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def bouncing(program: str, server: Server, *, mode: str = "transaction", more: str = "") -> Iterator[Bouncer]:
    """Run a PgBouncer until the block ends."""
    made = Bouncer(free_port())
    folder = server.folder / f"bouncer-{made.port}"
    folder.mkdir()
    (folder / "pgbouncer.ini").write_text(CONFIG.format(server=server, port=made.port, mode=mode, more=more))
    who: dict[str, Any] = {}
    if os.geteuid() == 0:  # it refuses to run as root
        name = next(name for name in UNPRIVILEGED if name in {found.pw_name for found in pwd.getpwall()})
        who = {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([program, "pgbouncer.ini"], cwd=folder, stdout=log, stderr=log, **who)
    try:
        eventually(made.answers, otherwise=(folder / "log").read_text)
        yield made
    finally:
        process.terminate()
        process.wait(timeout=30)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def program() -> str:
    found = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if found is None:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(f"there is no PgBouncer: 'sudo apt-get install pgbouncer'; {INSTALL}")
    return found


@pytest.fixture(scope="module")
def bouncer(program: str, postgres: Server) -> Iterator[Bouncer]:
    with bouncing(program, postgres) as made:
        yield made


@pytest.fixture
def url(bouncer: Bouncer, postgres: Server) -> Iterator[str]:
    """The address of an empty database."""
    postgres.query("CREATE DATABASE bounced")
    yield bouncer.address("bounced")
    postgres.query("DROP DATABASE bounced WITH (FORCE)")


def test_drivers_that_share_a_few_connections_bind_every_epoch_once(url: str) -> None:
    """Enough of them that statements would be prepared, on connections that then are another's."""
    env = Env()

    def drive(name: str) -> int:
        store = Store.open(url, env=env)
        lease = store.acquire(name, holder=LeaseHolder.current(env))
        store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
        for epoch in range(30):
            proposal = Proposal(frontier=Frontier({"p0": epoch + 1}))
            store.append(lease, expected=epoch, at=env.now(), proposals={"orders": proposal})
            lease.confirm()
            store.publish(lease, expected=epoch, upper=epoch + 1, at=env.now())
            lease.renew()
        with pytest.raises(FlowAlreadyRunning):
            store.acquire(name, holder=LeaseHolder.current(env))
        lease.release()
        flow = store.load(name).flow
        store.close()
        return flow.published

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(drive, [f"flow {n}" for n in range(6)])) == [30] * 6


def test_each_transaction_has_its_settings_and_leaves_none_behind(url: str, postgres: Server) -> None:
    database = Database(url)
    wanted = [f"{PATIENCE}s", f"{SILENCE}s", "on"]
    names = ("lock_timeout", "idle_in_transaction_session_timeout", "synchronous_commit")
    for transaction in (database.reading, database.writing):
        with transaction() as connection:
            found = [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in names]
        assert found == wanted
    database.close()
    with psycopg.connect(url) as other:  # on one of the same connections
        assert [other.execute(f"SHOW {name}").fetchone() for name in names[:2]] == [("0",), ("0",)]


def test_a_flow_runs_on_it_and_can_be_looked_at(url: str, tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=url, tick=0.02)
    rows = flow.source("rows", tg.GeneratorSource(rows=500, columns="k long", max_records_per_epoch=20))
    flow.sink("rows", rows, tg.ParquetSink(str(tmp_path / "lake")))
    flow.run("caught-up", engine=tg.LocalEngine(threads=1))
    assert tg.read_arrow(flow, "rows").num_rows == 500
    assert tg.status(flow).published >= 25


def test_statement_mode_is_refused_with_what_to_set(program: str, postgres: Server) -> None:
    with bouncing(program, postgres, mode="statement") as hasty, pytest.raises(InvalidStoreUrl) as refused:
        Store.open(hasty.address("postgres"), env=Env())
    assert "is in statement mode, and a store needs transactions: set pool_mode = transaction" in str(refused.value)
    assert postgres.query("SELECT 1 FROM pg_tables WHERE schemaname = 'public'") == []


@pytest.mark.parametrize("more", ["", "ignore_startup_parameters = options"])
def test_a_schema_that_is_not_passed_on_is_refused_and_nothing_is_made_elsewhere(
    program: str, postgres: Server, more: str
) -> None:
    with bouncing(program, postgres, more=more) as deaf, pytest.raises(InvalidStoreUrl, match="ALTER ROLE"):
        Store.open(deaf.address("postgres", "?options=-csearch_path%3Dpg_temp"), env=Env())
    assert postgres.query("SELECT 1 FROM pg_tables WHERE schemaname = 'public'") == []
