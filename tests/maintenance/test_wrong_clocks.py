"""A clock that was a year ahead: what it leaves behind is said, bounded, and put right by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.postgres import Server
from typer.testing import CliRunner

import tidegauge as tg
from tidegauge.cli.app import app
from tidegauge.cli.load import load_flow
from tidegauge.errors.store import ClockBehind, ClocksApart, FlowAlreadyRunning, LeaseLost
from tidegauge.remap.store import EXPIRY, LeaseHolder, Store

FLOW = """
from pathlib import Path
import tidegauge as tg
HERE = Path(__file__).parent
flow = tg.Dataflow("shop", store=f"sqlite:///{HERE}/shop.db")
orders = flow.source("orders", tg.FileSource(f"{HERE}/in/*.csv", format=tg.Csv("id long")))
flow.sink("orders", orders, tg.ParquetSink(f"{HERE}/lake"))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    path = tmp_path / "shop.py"
    path.write_text(FLOW)
    add(path, 1)
    return path


def add(shop: Path, order: int) -> None:
    (shop.parent / "in" / f"{order}.csv").write_text(f"id\n{order}\n")


def run(shop: Path, *, ahead: timedelta = timedelta()) -> tg.Dataflow:
    flow = load_flow(str(shop))
    env = tg.Env(now=lambda: datetime.now(UTC) + ahead)
    flow.run("caught-up", engine=tg.LocalEngine(threads=1), env=env)
    return flow


def command(shop: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*words, str(shop)])
    return done.exit_code, done.output


def test_epochs_minted_a_year_ahead_stop_the_next_run_until_their_times_are_put_right(shop: Path) -> None:
    run(shop, ahead=timedelta(days=365))
    add(shop, 2)
    with pytest.raises(ClockBehind, match="retime") as caught:
        run(shop)
    assert caught.value.evidence["epoch"] == 0
    assert tg.status(load_flow(str(shop))).upper == 1, "nothing was bound"
    code, said = command(shop, "retime", "--json")
    assert (code, json.loads(said)) == (0, {"flow": "shop", "epochs": 1})
    flow = run(shop)
    times = [record.minted_at for record, _ in tg.epochs(flow)]
    assert times == sorted(times)
    assert times[-1] <= datetime.now(UTC)
    assert tg.read_arrow(flow, "orders").num_rows == 2


def test_a_clock_that_was_some_minutes_ahead_is_logged_and_passed_over(
    shop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(shop, ahead=timedelta(minutes=5))
    add(shop, 2)
    assert tg.status(run(shop)).published == 2
    assert "epoch 0 was minted at" in caplog.text


def hold(shop: Path, holder: LeaseHolder, *, ahead: timedelta = timedelta()) -> Store:
    """Take the lease of the flow, and keep it."""
    env = tg.Env(now=lambda: datetime.now(UTC) + ahead)
    store = Store.open(load_flow(str(shop)).store, env=env)
    store.acquire("shop", holder=holder)
    return store


def test_a_lease_that_was_renewed_a_year_ahead_is_broken_by_hand_which_says_whose_it_was(shop: Path) -> None:
    far = replace(LeaseHolder.current(tg.Env()), name="grace", host="elsewhere", pid=4711, run="e" * 32)
    hold(shop, far, ahead=timedelta(days=365)).close()
    with pytest.raises(FlowAlreadyRunning, match="lease break"):
        run(shop)
    code, said = command(shop, "lease", "break")
    assert code == 0
    assert "held by grace on elsewhere, process 4711" in said
    run(shop)
    code, said = command(shop, "lease", "break")
    assert (code, "TG-0254" in said) == (1, True), "there is none any more"


def test_the_lease_of_a_driver_that_lives_on_this_machine_is_broken_by_force_alone(shop: Path) -> None:
    env = tg.Env()
    store = Store.open(load_flow(str(shop)).store, env=env)
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    code, said = command(shop, "lease", "break")
    assert (code, "TG-0253" in said, f"kill {lease.holder.pid}" in said) == (1, True, True)
    lease.renew()
    assert command(shop, "lease", "break", "--force")[0] == 0
    with pytest.raises(LeaseLost, match="nobody has it now"):
        lease.renew()
    store.close()


def test_the_lease_of_a_process_that_is_gone_needs_no_force(shop: Path) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    hold(shop, replace(LeaseHolder.current(tg.Env()), pid=int(gone.stdout), run="e" * 32)).close()
    assert command(shop, "lease", "break")[0] == 0


@pytest.mark.parametrize("ahead", [timedelta(days=365), timedelta(days=-365)])
def test_a_machine_whose_clock_is_far_from_the_servers_does_not_begin(postgres: Server, ahead: timedelta) -> None:
    env = tg.Env(now=lambda: datetime.now(UTC) + ahead)
    store = Store.open(postgres.place(), env=env)
    with pytest.raises(ClocksApart):
        store.acquire("shop", holder=LeaseHolder.current(env))
    store.close()


def test_a_lease_on_a_server_runs_out_by_the_servers_clock(postgres: Server) -> None:
    """Whose clock is half an hour ahead of the others' keeps no lease longer, and gets none sooner."""
    place, ahead = postgres.place(), timedelta(minutes=30)
    fast, slow = tg.Env(now=lambda: datetime.now(UTC) + ahead), tg.Env(now=lambda: datetime.now(UTC) - ahead)
    far = replace(LeaseHolder.current(fast), host="elsewhere", run="e" * 32)
    one, two = Store.open(place, env=fast), Store.open(place, env=slow)
    one.acquire("shop", holder=far)
    with pytest.raises(FlowAlreadyRunning):
        two.acquire("shop", holder=LeaseHolder.current(slow))
    past = (datetime.now(UTC) - timedelta(seconds=EXPIRY)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    from tests.postgres import query

    query(place, f"UPDATE leases SET renewed_at = '{past}'")
    two.acquire("shop", holder=LeaseHolder.current(slow)).release()
    one.close()
    two.close()
