"""A driver that slept until its lease ran out, and wakes up while another one drives: it says who drives now, has
written nothing since and acknowledged nothing, and does not disturb the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.flow.orders import forty_orders
from tests.remap.store.raw import dump, sql

import tidegauge as tg
import tidegauge.flow.runner as runner_module
from tidegauge.cli.load import load_flow
from tidegauge.env import at_once
from tidegauge.errors.history import StoreBehindTable
from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.flow.runner import Outcome, Runner
from tidegauge.remap.store import EXPIRY
from tidegauge.sinks.protocol import OutputId

FLOW = """
import os
from pathlib import Path

import tidegauge as tg
from tests.flow.recorder import Recorder

HERE = Path(__file__).parent


def note(frontier):
    with (HERE / "acknowledged").open("a") as notes:
        notes.write(f"{os.getpid()} {dict(frontier)}\\n")


flow = tg.Dataflow("shop", store=f"sqlite:///{HERE}/shop.db", tick=0.02)
files = tg.FileSource(f"{HERE}/in/*.csv", format=tg.Csv("id long, user string"), max_bytes_per_epoch=100)
orders = flow.source("orders", Recorder(files, note))
flow.sink("delta", orders, tg.DeltaSink(f"{HERE}/lake/delta"))
flow.sink("parquet", orders, tg.ParquetSink(f"{HERE}/lake/parquet"))
"""

DRIVER = """
import contextlib, signal, sys, threading
import tidegauge as tg
from tidegauge.cli import main
from tidegauge.flow import running
from tidegauge.remap.store.connect import Database
from tidegauge.sinks import persist
from tidegauge.sinks.delta.log import DeltaLog

_, shop, point, nth = sys.argv
left = int(nth)
alone, committing = threading.Lock(), threading.RLock()

def strike(name):
    global left
    with committing, alone:  # no commit is between its look at the lease and its end
        left -= name == point
        if name == point and left == 0:
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread stops first

really, transaction, whole = DeltaLog.commit, Database._transaction, persist._Persist.commit

def commit(*args, **named):
    strike("the delta commit itself")
    really(*args, **named)

def one_after_the_other(*args, **named):
    with committing:
        whole(*args, **named)

@contextlib.contextmanager
def one_at_a_time(*args, **named):
    with alone, transaction(*args, **named) as connection:
        yield connection

DeltaLog.commit, Database._transaction, persist._Persist.commit = commit, one_at_a_time, one_after_the_other
run = running.run
running.run = lambda flow, **how: run(flow, **{**how, "env": tg.Env(point=strike)})
sys.argv = ["tidegauge", "run", shop, "--engine", "local", "--until", "caught-up"]
main()
"""
"""`tidegauge run`, in a process that stops itself when it comes to a point for the nth time, with nothing locked."""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The file of a flow, with forty orders upstream: some epochs of them."""
    return forty_orders(tmp_path, FLOW)


def run_alone(flow: tg.Dataflow, env: tg.Env) -> Outcome:
    """Run a flow in this thread alone: as long as it is kept at a point, nothing else of it happens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner_module, "RENEW_EVERY", 3600.0)
        runner = Runner(flow.spec, tg.LocalEngine(threads=0), env=env, spawn=at_once, batch=True)
        try:
            return runner.run("caught-up")
        finally:
            runner.close()


@dataclass(frozen=True)
class Written:
    """All that a driver of the shop can change: the store, what the tables hold, what was acknowledged."""

    store: dict[str, list[tuple[Any, ...]]]
    tables: dict[str, tuple[int, int]]
    acknowledged: str

    @staticmethod
    def by_now(shop: Path) -> Written:
        flow, notes = load_flow(str(shop)), shop.parent / "acknowledged"
        held = {output.name: (output.upper, output.rows) for output in tg.status(flow).outputs}
        return Written(dump(flow.store), held, notes.read_text() if notes.exists() else "")


@pytest.mark.parametrize(
    ("point", "nth", "woken"),
    [
        ("before commit output", 1, "before commit output"),
        pytest.param("before commit output", 2, "before publish", marks=pytest.mark.long),
        pytest.param("before publish", 1, "after register", marks=pytest.mark.long),
        pytest.param("before acknowledge", 1, "after register", marks=pytest.mark.long),
    ],
)
def test_x4_a_driver_that_wakes_up_while_another_drives_stops_and_has_done_nothing(
    shop: Path, point: str, nth: int, woken: str
) -> None:
    """It slept at a point, and the other one is at another when it wakes up."""
    flow = load_flow(str(shop))
    seen: list[tuple[Written, str, Written]] = []
    command = [sys.executable, "-c", DRIVER, str(shop), point, str(nth)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as asleep:
        os.waitid(os.P_PID, asleep.pid, os.WSTOPPED)

        def wake(name: str) -> None:
            if name == woken and not seen:
                before = Written.by_now(shop)
                asleep.send_signal(signal.SIGCONT)
                _, said = asleep.communicate(timeout=60)
                seen.append((before, said, Written.by_now(shop)))

        later = tg.Env(now=lambda: datetime.now(UTC) + timedelta(seconds=EXPIRY), point=wake)
        try:
            outcome = run_alone(flow, later)
        finally:
            asleep.kill()
    [(before, said, after)] = seen
    assert after == before
    assert asleep.returncode == 1
    assert "TG-0205: this driver no longer holds the lease of flow 'shop': " in said
    assert f", process {os.getpid()}, has it since " in said
    assert outcome.why == "caught up"
    for output in flow.outputs:
        assert sorted(tg.read_arrow(flow, output).column("id").to_pylist()) == list(range(40))


@pytest.mark.long
@pytest.mark.parametrize("woken", ["before stage", "before commit output"])
@pytest.mark.parametrize("nth", [1, 2])
def test_s28_a_driver_that_wakes_up_right_before_its_commit_makes_it_and_its_successor_goes_on_behind_it(
    shop: Path, nth: int, woken: str
) -> None:
    """It had looked at its lease, and a Delta table asks nobody: the commit is the one that the successor would have
    made, of the same epochs. What the successor has staged of these, alone or with later ones, it stages anew."""
    flow = load_flow(str(shop))
    upper: list[tuple[int, int]] = []
    command = [sys.executable, "-c", DRIVER, str(shop), "the delta commit itself", str(nth)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as asleep:
        os.waitid(os.P_PID, asleep.pid, os.WSTOPPED)

        def wake(name: str) -> None:
            if name == woken and not upper:
                before = Written.by_now(shop).tables["delta"]
                asleep.send_signal(signal.SIGCONT)
                _, said = asleep.communicate(timeout=60)
                assert "TG-0205: this driver no longer holds the lease" in said
                upper.append((before[0], Written.by_now(shop).tables["delta"][0]))

        later = tg.Env(now=lambda: datetime.now(UTC) + timedelta(seconds=EXPIRY), point=wake)
        try:
            outcome = run_alone(flow, later)
        finally:
            asleep.kill()
    [(before, after)] = upper
    assert after > before, "the driver that was asleep has committed"
    assert outcome.why == "caught up"
    found = {output: tg.read_arrow(flow, output) for output in flow.outputs}
    for rows in found.values():
        assert sorted(rows.column("id").to_pylist()) == list(range(40))
    ids = [
        dict(zip(rows.column("id").to_pylist(), rows.column("_epoch").to_pylist(), strict=True))
        for rows in found.values()
    ]
    assert ids[0] == ids[1]


def interfered(shop: Path, *, upper: int, times: int) -> tg.Dataflow:
    """Run a flow whose Delta table somebody commits to each time when it is about to, `upper` epochs further.

    One epoch further it goes only if that epoch is bound.
    """
    flow = load_flow(str(shop))
    left = times

    def interfere(name: str) -> None:
        nonlocal left
        if name == "before commit output" and left:
            left -= 1
            flow_id = dict(sql(flow.store, "SELECT name, incarnation FROM flows"))["shop"]
            table = tg.DeltaSink(f"{shop.parent}/lake/delta").open(OutputId("shop", "delta", flow_id))
            rows = pa.schema([("id", pa.int64()), ("user", pa.string()), ("_epoch", pa.int64())])
            [(bound,)] = sql(flow.store, "SELECT upper FROM flows")
            if upper > 1 or table.upper < bound:
                table.commit(table.upper, table.upper + upper, rows, [], write=f"{left:032x}")

    assert run_alone(flow, tg.Env(point=interfere)).why == "caught up"
    return flow


def test_once_a_table_may_be_found_ahead_by_epochs_that_are_bound(shop: Path) -> None:
    flow = interfered(shop, upper=1, times=1)
    assert sorted(tg.read_arrow(flow, "parquet").column("id").to_pylist()) == list(range(40))


@pytest.mark.parametrize(("upper", "times"), [(1, 9), (1000, 1)], ids=["again and again", "beyond what is bound"])
def test_a_table_that_goes_on_by_itself_stops_the_flow(shop: Path, upper: int, times: int) -> None:
    # the other table's commit moves it too, and so it may be beyond what is bound when the flow opens it again
    with pytest.raises((TableUpperMismatch, StoreBehindTable), match=r"TG-0407|TG-0240"):
        interfered(shop, upper=upper, times=times)
