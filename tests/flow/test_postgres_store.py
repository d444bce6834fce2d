"""A flow whose store is a PostgreSQL database: only the address is another one."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.flow.orders import forty_orders
from tests.postgres import Server, query
from tests.remap.store.raw import dump, sql
from tests.waiting import eventually
from typer.testing import CliRunner

import tidegauge as tg
from tidegauge.cli.app import app
from tidegauge.cli.load import load_flow
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import FlowNeverRan
from tidegauge.errors.running import SpanConflict
from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.errors.store import FlowAlreadyRunning, LeaseLost
from tidegauge.remap.store import EXPIRY

FLOW = """
import os

import pyarrow as pa
import pyarrow.compute as pc

import tidegauge as tg

HERE = os.path.dirname(__file__)


def initials(batch):
    return pa.record_batch({"initial": pc.utf8_slice_codeunits(batch.column("user"), 0, 1)})


flow = tg.Dataflow("shop", store=os.environ["SHOP_STORE"], tick=0.02)
files = tg.FileSource(
    f"{HERE}/in/*.csv", format=tg.Csv("id long, user string"), max_bytes_per_epoch=100, metadata=True
)
orders = flow.source("orders", files)
flow.sink("orders", orders, tg.ParquetSink(f"{HERE}/lake/orders"))
flow.sink("initials", orders.map_batches(initials), tg.ParquetSink(f"{HERE}/lake/initials"))
"""

DRIVER = """
import os, runpy, signal, sys
import tidegauge as tg

_, _, point, nth, number = sys.argv
seen = []

def strike(name):
    seen.append(name)
    if name == point and seen.count(name) == int(nth):
        os.kill(os.getpid(), int(number))

runpy.run_path(sys.argv[1])["flow"].run(until="caught-up", engine="local", env=tg.Env(point=strike))
"""


@pytest.fixture
def shop(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a flow, with forty orders upstream."""
    monkeypatch.setenv("SHOP_STORE", postgres.place())
    return forty_orders(tmp_path, FLOW)


def driver(shop: Path, point: str, nth: int, number: signal.Signals) -> list[str]:
    """The command of a driver that sends itself a signal when it comes to a point for the nth time."""
    return [sys.executable, "-c", DRIVER, str(shop), point, str(nth), str(int(number))]


def command(*words: str) -> Any:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done


def test_a_flow_runs_is_killed_and_goes_on_with_its_store_on_a_server(shop: Path) -> None:
    flow = load_flow(str(shop))
    with pytest.raises(FlowNeverRan):
        tg.status(flow)
    made = query(flow.store, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    assert made == [], "looking makes nothing"

    # about here one of two tables may hold an epoch that the other does not
    died = subprocess.run(driver(shop, "after commit output", 3, signal.SIGKILL), check=False)
    assert died.returncode == -signal.SIGKILL
    between = tg.status(flow)
    assert between.running == ""
    assert max(output.upper for output in between.outputs) > 1

    command("run", str(shop), "--engine", "local", "--until", "caught-up")
    found = tg.read_arrow(flow, "orders").to_pylist()
    assert sorted(row["id"] for row in found) == list(range(40))
    assert tg.read_arrow(flow, "initials").column("initial").to_pylist() == 40 * ["u"]

    report = json.loads(command("status", str(shop), "--json").stdout)
    assert (report["store"], report["running"]) == (tg.status(flow).store, None)
    assert [(o["name"], o["state"], o["rows"]) for o in report["outputs"]] == [
        ("orders", "live", 40),
        ("initials", "live", 40),
    ]
    assert report["published"] == report["upper"] > 2
    some = found[::8]
    assert [tg.locate(flow, "orders", row["_partition"], row["_offset"]).epoch for row in some] == [
        row["_epoch"] for row in some
    ]


@pytest.mark.parametrize(
    ("point", "nth", "refused"),
    [
        ("before append bindings", 2, [LeaseLost]),
        pytest.param(
            "before commit output", 2, [TableUpperMismatch, SpanConflict, LeaseLost], marks=pytest.mark.long
        ),
        pytest.param("before publish", 1, [LeaseLost], marks=pytest.mark.long),
    ],
)
def test_a_flow_that_was_stopped_past_its_lease_and_taken_over_from_writes_nothing_any_more(
    shop: Path, point: str, nth: int, refused: list[type[TidegaugeError]]
) -> None:
    """A table knows no lease: it compares its own upper, and refuses in its own words."""
    flow = load_flow(str(shop))
    with subprocess.Popen(driver(shop, point, nth, signal.SIGSTOP), stderr=subprocess.PIPE, text=True) as stopped:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        then = (datetime.now(UTC) - timedelta(seconds=EXPIRY)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        sql(flow.store, f"UPDATE leases SET renewed_at = '{then}'")  # by the clock of the server
        assert flow.run("caught-up", engine="local").why == "caught up"
        before = dump(flow.store)
        stopped.send_signal(signal.SIGCONT)
        _, said = stopped.communicate(timeout=60)
    assert any(f"{error.__name__}: {error.code}: " in said for error in refused), said
    assert dump(flow.store) == before
    assert sorted(tg.read_arrow(flow, "orders").column("id").to_pylist()) == list(range(40))
    assert len(tg.read_arrow(flow, "initials")) == 40


@pytest.mark.parametrize(
    "point",
    [
        "after commit output",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("after record unit", "before commit output")),
    ],
)
def test_a_table_is_replaced_also_by_a_driver_that_is_killed_meanwhile(shop: Path, point: str) -> None:
    text = FLOW.replace('tg.ParquetSink(f"{HERE}/lake/initials")', 'tg.DeltaSink(f"{HERE}/lake/initials")')
    shop.write_text(text)
    load_flow(str(shop)).run("caught-up", engine="local")
    shop.write_text(text.replace("0, 1)})", "1, 3)})"))
    flow = load_flow(str(shop))

    def initials() -> set[str]:
        found = tg.read_arrow(flow, "initials").column("initial").to_pylist()
        assert len(found) == 40
        return {"old" if initial == "u" else "new" for initial in found}

    assert json.loads(command("outputs", "replace", str(shop), "initials", "--json").stdout)["changes"]
    died = subprocess.run(driver(shop, point, 1, signal.SIGKILL), check=False)
    assert died.returncode == -signal.SIGKILL
    assert initials() == {"new" if point == "after commit output" else "old"}
    command("run", str(shop), "--engine", "local", "--until", "caught-up")
    assert initials() == {"new"}
    assert query(flow.store, "SELECT * FROM replacements") == []
    assert tg.verify(flow).problems == ()


def test_a_second_driver_of_a_flow_is_refused_and_the_first_goes_on(shop: Path) -> None:
    flow = load_flow(str(shop))
    refused: list[BaseException] = []

    def strike(point: str) -> None:
        if point == "before publish" and not refused:
            with pytest.raises(FlowAlreadyRunning) as caught:
                load_flow(str(shop)).run("caught-up", engine="local")
            refused.append(caught.value)

    assert flow.run("caught-up", engine="local", env=tg.Env(point=strike)).why == "caught up"
    assert len(refused) == 1
    assert sorted(tg.read_arrow(flow, "orders").column("id").to_pylist()) == list(range(40))


CANARY = "canary/4711"
QUOTED = """{[flow.store, os.environ.get("PGPASSWORD"), *open(os.environ.get("PGPASSFILE", os.devnull))]}"""
"""All that a function may know of the store, and quote when it fails."""


GIVEN = ("PGPASSWORD", "a passfile", "the address")
FAILS = ("a function that quotes it", "a function", "one that does so at once", "the password")


@pytest.mark.parametrize(
    ("given", "fails"),
    [  # in `make test` each way once with what tells most, and each failure once
        pytest.param(given, fails, marks=() if fails == FAILS[0] or given == GIVEN[-1] else pytest.mark.long)
        for given in GIVEN
        for fails in FAILS
    ],
)
def test_a_password_is_in_nothing_that_a_failing_flow_writes(
    postgres: Server,
    shop: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    given: str,
    fails: str,
) -> None:
    """Logs at their most talkative, the traceback, what the store holds, every file of the flow's folder."""
    postgres.query("DROP DATABASE IF EXISTS secret")
    postgres.query("DROP ROLE IF EXISTS canary")
    postgres.query(f"CREATE ROLE canary LOGIN PASSWORD '{'another one' if fails == 'the password' else CANARY}'")
    postgres.query("CREATE DATABASE secret OWNER canary")
    there = f"127.0.0.1:{postgres.port}/secret"
    address = f"postgresql://canary@{there}"
    if given == "PGPASSWORD":
        monkeypatch.setenv("PGPASSWORD", CANARY)
    elif given == "a passfile":
        passes = tmp_path_factory.mktemp("secret") / "passes"
        passes.write_text(f"*:*:*:canary:{CANARY}\n")
        passes.chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(passes))
    else:
        address = f"postgresql://canary:{quote(CANARY, safe='')}@{there}"
    monkeypatch.setenv("SHOP_STORE", address)
    if fails != "the password":
        when = (
            "True" if fails == "one that does so at once" else "batch.num_rows"
        )  # it is asked for its columns first
        quoted = "" if fails == "a function" else QUOTED
        broken = f"if {when}:\n        raise ValueError(f'no initials today {quoted}')"
        shop.write_text(
            FLOW.replace('return pa.record_batch({"initial"', f'{broken}\n    return pa.record_batch({{"initial"')
        )
    caplog.set_level(logging.DEBUG)
    said = []
    for words in (
        ["run", "--engine", "local", "--until", "caught-up"],
        ["status"],
        ["run", "--debug", "--engine", "local", "--until", "caught-up"],
    ):
        done = CliRunner().invoke(app, [words[0], str(shop), *words[1:]])
        said += [done.output, *traceback.format_exception(done.exception)]
    told = "".join(said)
    assert ("TG-0220" if fails == "the password" else "ValueError: no initials today") in told
    written = [path.read_bytes() for path in shop.parent.rglob("*") if path.is_file()]
    bound = fails.startswith("a function")
    kept = query(postgres.address("secret"), "SELECT failure FROM outputs") if bound else []
    everything = f"{told}{caplog.text}{kept}{written}"
    assert CANARY not in everything
    assert quote(CANARY, safe="") not in everything


def test_the_password_of_an_address_is_not_in_what_is_said_of_a_flow(
    postgres: Server, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_STORE", f"postgresql://ada:hunter3@127.0.0.1:{postgres.port}/shop")
    said = CliRunner().invoke(app, ["status", str(shop)])
    assert said.exit_code == 1
    assert "postgresql://ada:***@127.0.0.1" in said.output.replace("\n", "")
    assert "hunter3" not in said.output


@pytest.mark.long
def test_an_output_is_paused_and_resumed_with_the_store_on_a_server(shop: Path) -> None:
    flow = load_flow(str(shop))
    died = subprocess.run(driver(shop, "after commit output", 3, signal.SIGKILL), check=False)
    assert died.returncode == -signal.SIGKILL
    command("outputs", "pause", str(shop), "initials")
    before = {one.name: one.upper for one in tg.outputs(flow)}
    command("run", str(shop), "--engine", "local", "--until", "caught-up")
    after = {one.name: (one.upper, one.state) for one in tg.outputs(flow)}
    assert (after["orders"][1], after["initials"]) == ("live", (before["initials"], "paused"))
    with flow.start(engine="local") as run:
        assert tg.unpause(flow, "initials").running
        eventually(lambda: {one.state for one in tg.outputs(flow)} == {"live"})
        run.stop()
    assert tg.read_arrow(flow, "initials").column("initial").to_pylist() == 40 * ["u"]
