"""A server that dies, forgets to answer, is full or refuses: a commit is in once or not at all, and tried again."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest import mock

import psycopg
import pyarrow as pa
import pytest
from tests.disks import fill, make_room, small_disk
from tests.forked import end_of
from tests.postgres import Server
from tests.remap.store.test_store_behind_pgbouncer import bouncing
from tests.sinks.postgres.conftest import OUTPUT, SCHEMA, ServerBench, write_id
from tests.waiting import eventually

from tidegauge.errors.base import Definite, TidegaugeError, Transient, waited_out
from tidegauge.errors.postgressink import PostgresAway, PostgresBusy, PostgresForbidden, PostgresFull
from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.sinks.postgres import progress, rows

Made = Callable[..., ServerBench]


@contextmanager
def after(module: Any, name: str, then: Callable[[], object]) -> Iterator[None]:
    """Do something right after a step of the next commit."""
    step = getattr(module, name)

    def both(*args: Any, **named: Any) -> Any:
        found = step(*args, **named)
        then()
        return found

    with mock.patch.object(module, name, both):
        yield


@pytest.mark.parametrize("step", [(rows, "append"), pytest.param((progress, "record"), marks=pytest.mark.long)])
def test_a_backend_that_is_ended_in_the_middle_leaves_nothing_and_the_commit_is_tried_again(
    bench: ServerBench, step: tuple[Any, str]
) -> None:
    opened = bench.open()
    bench.commit(opened, 0, 1)
    files, write = bench.stage([{"user": "ada", "_epoch": 1}]), write_id()
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidegauge' AND datname = "
    with (
        after(*step, lambda: bench.server.query(f"{end}'{bench.database}'") and None),
        pytest.raises(PostgresAway) as e,
    ):
        opened.commit(1, 2, SCHEMA, files, write=write)
    assert waited_out(e.value)
    assert (opened.upper, bench.epochs()) == (1, [0])
    opened.commit(1, 2, SCHEMA, files, write=write)
    assert (bench.epochs(), bench.open().upper) == ([0, 1], 2)


def test_the_answer_to_a_commit_that_is_lost_is_asked_for_and_nothing_is_written_twice(bench: ServerBench) -> None:
    opened = bench.open()
    files, write = bench.stage([{"user": "ada", "_epoch": 0}]), write_id()
    commit = psycopg.Connection.commit

    def unheard(connection: Any) -> None:
        commit(connection)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    with mock.patch.object(psycopg.Connection, "commit", unheard), pytest.raises(PostgresAway):
        opened.commit(0, 1, SCHEMA, files, write=write)
    assert (opened.upper, bench.epochs()) == (0, [0])
    opened.commit(0, 1, SCHEMA, files, write=write)
    assert (opened.upper, bench.epochs()) == (1, [0])
    with pytest.raises(TableUpperMismatch):
        opened.commit(0, 1, SCHEMA, [], write=write_id())


@pytest.mark.long
@pytest.mark.parametrize("stopped", [True, False])
def test_a_server_that_is_restarted_or_killed_is_waited_for(
    own_server: Server, tmp_path: Path, stopped: bool
) -> None:
    bench = ServerBench(tmp_path, own_server)
    opened = bench.open()
    bench.commit(opened, 0, 2)
    files = bench.stage([{"user": "ada", "_epoch": 2}])
    with (
        after(rows, "append", lambda: own_server.stop(stay=True) if stopped else own_server.kill()),
        pytest.raises(PostgresAway),
    ):
        opened.commit(2, 3, SCHEMA, files, write=write_id())
    for attempt in (lambda: opened.commit(2, 3, SCHEMA, files, write=write_id()), bench.open, opened.links):
        with pytest.raises(PostgresAway):
            attempt()
    own_server.start()
    opened.commit(2, 3, SCHEMA, files, write=write_id())
    assert bench.epochs() == [0, 1, 2]


def stands_still(bench: ServerBench) -> None:
    """Commit in a process that stops in the middle of its transaction, as a machine that sleeps."""

    def sleep() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    with after(rows, "append", sleep):
        bench.commit(bench.open(), 1, 2, "asleep")


def test_the_next_driver_ends_the_transaction_of_one_that_sleeps(bench: ServerBench) -> None:
    bench.commit(bench.open(), 0, 1)
    pid = os.fork()
    if pid == 0:
        try:
            stands_still(bench)
        except TidegaugeError:
            os._exit(3)
        finally:
            os._exit(4)
    try:
        assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
        following = bench.open()
        following.sweep(lambda: None)
        bench.commit(following, 1, 2, "next")
        os.kill(pid, signal.SIGCONT)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3, "the one that slept is refused"
        pid = 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert [(row["user"], row["_epoch"]) for row in bench.rows()] == [("ada", 0), ("next", 1)]


def killed(bench: ServerBench, place: str, name: str) -> None:
    opened = bench.open()
    with after(resolve_name(place), name, lambda: os.kill(os.getpid(), signal.SIGKILL)):
        bench.commit(opened, 1, 2, "killed")


@pytest.mark.parametrize(
    ("place", "name", "held"),
    [
        *(
            pytest.param(f"tidegauge.sinks.postgres.{place}", name, 1, marks=pytest.mark.long)
            for place, name in (("rows", "lines"), ("rows", "append"), ("progress", "record"))
        ),
        ("psycopg:Connection", "commit", 2),
    ],
)
def test_a_driver_that_is_killed_leaves_all_or_nothing(bench: ServerBench, place: str, name: str, held: int) -> None:
    bench.commit(bench.open(), 0, 1)
    there: Any = copy.copy(bench)
    there.server = None  # a process has no other's server
    assert end_of(killed, there, place, name) == -signal.SIGKILL
    following = bench.open()
    following.sweep(lambda: None)
    assert (following.upper, bench.epochs()) == (held, list(range(held)))
    assert not list((bench.folder / "staging").rglob("*.parquet"))
    bench.commit(following, held, held + 1, "next")
    assert bench.epochs() == list(range(held + 1))


@contextmanager
def locked(bench: ServerBench, statement: str) -> Iterator[psycopg.Connection[Any]]:
    """Somebody has done something to the database, and does not end the transaction."""
    with psycopg.connect(bench.address) as connection:
        text: Any = statement
        connection.execute(text)
        yield connection


def test_a_table_that_others_keep_locked_is_waited_for_and_no_longer_than_said(bench: ServerBench) -> None:
    bench.sink = dataclasses.replace(bench.sink, table="orders")
    opened = bench.open()
    bench.commit(opened, 0, 1)
    bench.query(f"ALTER DATABASE {bench.database} SET statement_timeout = '500ms'")
    with locked(bench, "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE"), pytest.raises(PostgresBusy) as caught:
        bench.commit(opened, 1, 2)
    assert "statement timeout" in str(caught.value)
    assert waited_out(caught.value)
    bench.query(f"ALTER DATABASE {bench.database} RESET statement_timeout")
    bench.commit(opened, 1, 2)
    assert bench.epochs() == [0, 1]


def test_a_deadlock_and_a_serialization_failure_pass(made: Made) -> None:
    bench = made(envelope="upsert", key="user", order="amount")
    opened = bench.open()
    people = [{"user": user, "amount": 1.0, "_epoch": 0} for user in ("ada", "bob")]
    opened.commit(0, 1, SCHEMA, bench.stage(people), write=write_id())
    bench.query(f"ALTER DATABASE {bench.database} SET default_transaction_isolation = 'serializable'")
    bench.query(f"ALTER DATABASE {bench.database} SET deadlock_timeout = '50ms'")
    later = [{**row, "amount": 2.0, "_epoch": 1} for row in people]
    failed = list[Exception]()
    files, write = bench.stage(later), write_id()

    def commit() -> None:
        try:
            opened.commit(1, 2, SCHEMA, files, write=write)
        except TidegaugeError as error:
            failed.append(error)

    with locked(bench, "UPDATE orders SET amount = 9 WHERE \"user\" = 'bob'") as other:
        beside = threading.Thread(target=commit)
        beside.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = "
        eventually(lambda: bench.server.query(f"{waits}'{bench.database}'") == [(1,)])
        other.execute("SET deadlock_timeout = '1h'")
        try:
            other.execute("UPDATE orders SET amount = 9 WHERE \"user\" = 'ada'")
        except psycopg.errors.DeadlockDetected:
            other.rollback()
        beside.join()
    assert [type(error) for error in failed] in ([PostgresBusy], [])
    if failed:
        opened.commit(1, 2, SCHEMA, files, write=write)
    assert sorted((row["user"], row["_epoch"]) for row in bench.rows()) == [("ada", 1), ("bob", 1)]


def test_privileges_that_lack_and_a_server_that_takes_no_writes_are_said(bench: ServerBench) -> None:
    name = bench.database
    bench.query(f"CREATE ROLE {name}_role LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    other = dataclasses.replace(bench.sink, dsn=bench.server.address(name, user=f"{name}_role"))
    with pytest.raises(PostgresForbidden, match="permission denied for database"):
        other.open(OUTPUT).commit(0, 1, SCHEMA, [], write=write_id())
    bench.query(f"CREATE SCHEMA tidegauge AUTHORIZATION {name}_role")
    with pytest.raises(PostgresForbidden, match="permission denied for schema public"):
        other.open(OUTPUT).commit(0, 1, SCHEMA, [], write=write_id())
    bench.query(f"GRANT CREATE ON SCHEMA public TO {name}_role")
    other.open(OUTPUT).commit(0, 1, SCHEMA, [], write=write_id())
    assert other.open(OUTPUT).upper == 1
    bench.query(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(PostgresAway, match="read-only transaction"):
        other.open(OUTPUT).commit(1, 2, SCHEMA, [], write=write_id())
    assert other.open(OUTPUT).upper == 1, "it can be looked at all the same"


STRANGE = {
    "search_path": "elsewhere",
    "datestyle": "'SQL, DMY'",
    "timezone": "'Asia/Kathmandu'",
    "intervalstyle": "sql_standard",
    "standard_conforming_strings": "off",
    "client_encoding": "LATIN1",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "synchronous_commit": "off",
    "idle_in_transaction_session_timeout": "'2s'",
    "lock_timeout": "'1ms'",
}


@pytest.mark.parametrize("options", [{}, pytest.param({"envelope": "upsert", "key": "user"}, marks=pytest.mark.long)])
def test_what_is_set_for_a_role_decides_nothing(made: Made, options: dict[str, Any]) -> None:
    kinds = {"user": pa.string(), "day": pa.date32(), "at": pa.timestamp("us", tz="UTC"), "raw": pa.binary()}
    schema = pa.schema([*kinds.items(), ("share", pa.float64()), ("_epoch", pa.int64())])
    bench = made(schema=schema, **options)
    bench.query(
        "CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.orders (n int); CREATE TABLE elsewhere.progress (n int)"
    )
    for name, value in STRANGE.items():
        bench.query(f"ALTER DATABASE {bench.database} SET {name} = {value}")
    at = dt.datetime(2026, 2, 3, 23, 59, 59, 999999, tzinfo=dt.UTC)
    more = {"day": dt.date(2026, 2, 3), "at": at, "raw": b"\\\0", "share": 0.1 + 0.2}
    wanted = [{"user": f"Zoë\\{n}'", **more, "_epoch": n} for n in range(2)]
    for n, row in enumerate(wanted):
        bench.open().commit(n, n + 1, schema, bench.stage([row]), write=write_id())
    for name in STRANGE:
        bench.query(f"ALTER DATABASE {bench.database} RESET {name}")
    assert sorted(bench.rows(), key=lambda row: row["_epoch"]) == wanted
    assert bench.query("SELECT count(*) FROM elsewhere.orders") == [(0,)]


@pytest.mark.long
def test_a_disk_that_is_full_is_waited_for(own_server: Server, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="8m") as disk:
        (disk / "space").mkdir()
        if os.geteuid() == 0:
            tmp_path.chmod(0o755)
            for folder in (*tmp_path.parents, tmp_path, disk):
                if folder.stat().st_mode & 0o777 == 0o700:
                    folder.chmod(0o711)
            shutil.chown(disk / "space", own_server.data.owner())
        bench = ServerBench(tmp_path, own_server)
        own_server.query(f"CREATE TABLESPACE small LOCATION '{disk / 'space'}'")
        bench.query(f"ALTER DATABASE {bench.database} SET default_tablespace = small")
        opened = bench.open()
        bench.commit(opened, 0, 1)
        fill(disk)
        files = bench.stage({"user": "x" * 100, "amount": n * 0.1, "_epoch": 1} for n in range(5000))
        for _ in range(2):
            with pytest.raises(PostgresFull) as caught:
                opened.commit(1, 2, SCHEMA, files, write=write_id())
            assert waited_out(caught.value)
            assert (bench.open().upper, bench.epochs()) == (1, [0])
        make_room(disk)
        opened.commit(1, 2, SCHEMA, files, write=write_id())
        assert len(bench.rows()) == 5001
        bench.query("DROP TABLE orders; DROP SCHEMA tidegauge CASCADE")


def test_every_error_of_a_server_is_one_that_passes_or_one_of_the_output(bench: ServerBench) -> None:
    raised = (
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE '%' USING ERRCODE = '{}'; END $$"
    )
    opened = bench.open()
    bench.commit(opened, 0, 1)
    found = {}
    for state in ("53100", "53200", "40001", "40P01", "57P01", "23505", "22003", "P0001", "XX000", "F0000"):
        bench.query(f"DROP FUNCTION IF EXISTS no CASCADE; {raised.replace('{}', state).replace('%', 'said')}")
        bench.query("CREATE TRIGGER no BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION no()")
        with pytest.raises(TidegaugeError) as caught:
            bench.commit(opened, 1, 2)
        assert isinstance(caught.value, Transient | Definite)
        found[state] = type(caught.value).__name__
        assert "said" in str(caught.value)
    assert found == {
        **dict.fromkeys(("53100", "53200"), PostgresFull.__name__),
        **dict.fromkeys(("40001", "40P01"), "PostgresBusy"),
        "57P01": "PostgresAway",
        **dict.fromkeys(("23505", "22003", "P0001"), "PostgresRefused"),
        **dict.fromkeys(("XX000", "F0000"), "PostgresTrouble"),
    }
    assert bench.epochs() == [0]


@pytest.mark.long
def test_behind_a_pooler_that_keeps_no_session(bench: ServerBench) -> None:
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("there is no PgBouncer")
    with bouncing(program, bench.server) as bouncer:
        ways: list[dict[str, Any]] = [{"envelope": "append"}, {"envelope": "upsert", "key": "user"}]
        for how in ways:
            sink = dataclasses.replace(bench.sink, dsn=bouncer.address(bench.database), table=how["envelope"], **how)
            through = ServerBench(bench.folder, bench.server, database=bench.database)
            through.sink = sink
            opened = through.open()
            for epoch in range(10):
                through.commit(opened, epoch, epoch + 1)
            opened.sweep(lambda: None)
            assert opened.upper == 10
            assert through.epochs() == ([9] if "key" in how else list(range(10)))
        settings = "SELECT setting FROM pg_settings WHERE name = 'lock_timeout'"
        assert psycopg.connect(bouncer.address(bench.database)).execute(settings).fetchone() == ("0",)
