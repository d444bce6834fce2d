"""`tidegauge simulate` runs the flow of a file in worlds of its own, and says what is wrong with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.cli.conftest import Done, Shop
from tests.waiting import eventually

FLOW = """
import pyarrow as pa

import tidegauge as tg


def step(batch):
    STEP


def make_flow():
    flow = tg.Dataflow("shop", store="sqlite:///shop.db")
    source = tg.KafkaSource("nowhere:9092", topic="orders", format=tg.Json("id long not null"))
    flow.sink("lake", flow.source("orders", source).map_batches(step), tg.ParquetSink("lake"))
    return flow
"""
RARE = "\n    ".join(
    [
        "rare = [n % 16 == 11 for n in batch['id'].to_pylist()]",
        "ranks = [sum(rare[: i + 1]) * is_so for i, is_so in enumerate(rare)]",
        "return batch.append_column('rank', pa.array(ranks, pa.int64()))",
    ]
)
"""A step that is wrong for rows which the short trials before the worlds do not have."""
FAILING = ("--first", "14", "--seeds", "9", "--epochs", "6", "--faults", "none")
FEW = ("--seeds", "2", "--epochs", "4")
LOADED = "flow = make_flow()\nwith open('loads', 'a') as loads:\n    loads.write('.')\n"


def simulated(shop: Shop, *options: str, step: str = "return batch", more: str = "") -> Done:
    (shop.root / "shop.py").write_text(FLOW.replace("STEP", step) + more, encoding="utf-8")
    return shop("simulate", "shop.py", *options)


def test_a_flow_that_holds_is_summed_up_and_touches_nothing(shop: Shop) -> None:
    done = simulated(shop, *FEW, "--first", "5")
    assert done.code == 0, done.err
    assert done.out.startswith("2 seeds, ")
    assert done.out.endswith(" rows: every law held\n")
    assert [path.name for path in shop.root.iterdir() if path.name != "__pycache__"] == ["shop.py"]


def test_a_step_that_adds_up_is_named_with_a_small_example(shop: Shop) -> None:
    done = simulated(shop, *FEW, step="return pa.record_batch({'rows': [batch.num_rows]})")
    assert (done.code, done.out) == (1, "")
    assert "TG-0954: output 'lake': map_batches(step) depends on how rows are cut into batches" in done.err
    assert "  row by row:         {rows: 1}, {rows: 1}\n" in done.err


def test_a_seed_that_fails_is_shown_and_shown_again(shop: Shop) -> None:
    done = simulated(shop, *FAILING, step=RARE)
    assert done.code == 1
    assert "TG-0924: seed " in done.err
    assert "what others did, until " in done.err
    seed = done.err.partition("TG-0924: seed ")[2].partition(":")[0]
    command = f"tidegauge simulate shop.py --faults none --epochs 6 --replay {seed}"
    assert done.err.endswith(f"\nreplay it:      {command}\n")
    again = simulated(shop, *command.split()[3:], step=RARE)
    assert (again.code, again.err) == (1, done.err)


def test_a_seed_that_holds_cannot_be_shown_as_a_failure(shop: Shop) -> None:
    done = simulated(shop, "--replay", "7", "--epochs", "4", "--faults", "crash,pause")
    assert done.code == 1
    assert "TG-0925: seed 7 does not fail any more" in done.err


def test_the_file_is_loaded_anew_for_each_driver(shop: Shop) -> None:
    done = simulated(shop, *FEW, "--faults", "crash", more=LOADED)
    lives = int(done.out.split()[2])
    assert len((shop.root / "loads").read_text()) > lives


@pytest.mark.parametrize("how", [("--faults", "crash,fire"), ("--seeds", "0")])
def test_bad_usage_is_refused(how: tuple[str, ...], shop: Shop) -> None:
    done = simulated(shop, *how)
    assert done.code == (1 if how[0] == "--faults" else 2)
    assert ("TG-0920" if how[0] == "--faults" else "--seeds") in done.err


def test_a_function_that_returns_no_flow_is_named_by_its_file(shop: Shop) -> None:
    (shop.root / "shop.py").write_text("def make_flow():\n    {}['SHOP_HOME']\n", encoding="utf-8")
    assert "TG-0921: shop.py returned no flow: KeyError: 'SHOP_HOME'" in shop("simulate", "shop.py").err


def test_the_flow_of_a_variable_is_taken_where_one_is_named(shop: Shop) -> None:
    both = "flow = make_flow()\nother = make_flow()\n"
    (shop.root / "two.py").write_text(FLOW.replace("STEP", "return batch") + both)
    assert shop("simulate", "two.py:other", *FEW).code == 0
    missing = shop("simulate", "two.py:third", *FEW)
    assert missing.code == 1
    assert "TG-0609" in missing.err


@pytest.mark.long
def test_a_terminal_shows_how_fast_it_is_and_that_a_failure_gets_shorter(shop: Shop) -> None:
    (shop.root / "shop.py").write_text(FLOW.replace("STEP", RARE), encoding="utf-8")
    command = [sys.executable, "-m", "tidegauge", "simulate", "shop.py", *FAILING]
    ours, theirs = os.openpty()
    with subprocess.Popen(command, cwd=shop.root, env=shop.environment(), stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # what Linux says when nobody has the terminal open any more
            while piece := os.read(ours, 10_000):
                shown += piece
    os.close(ours)
    assert process.returncode == 1
    assert b" lives, " in shown
    assert b" a minute" in shown
    assert b"shrinking seed " in shown
    assert b" faults and acts left" in shown


def test_ctrl_c_ends_it_with_what_was_done(shop: Shop) -> None:
    (shop.root / "shop.py").write_text(FLOW.replace("STEP", "return batch") + LOADED, encoding="utf-8")
    under = shop.start("simulate", "shop.py", "--seeds", "100000")
    loads = shop.root / "loads"
    under.until(lambda: loads.exists() and len(loads.read_text()) > 10, "drivers")
    under.interrupt()
    assert under.ended() == 130
    assert under.err().startswith("Stopped: ")


def test_warnings_of_a_step_are_not_printed_between(shop: Shop) -> None:
    done = simulated(shop, *FEW, step="import warnings; warnings.warn('old'); return batch")
    assert (done.code, done.err) == (0, "")


# `make simulate`: many processes.

SIMULATE = str(Path(__file__).parents[2] / "scripts/simulate.py")


@contextmanager
def simulating(shop: Shop, *options: str, begun: int = 2) -> Iterator[subprocess.Popen[str]]:
    """Two processes at work, without end. begun: of how many to wait for the begin."""
    command = [sys.executable, SIMULATE, "--seeds", "1000000", "--processes", "2", *options]
    with subprocess.Popen(
        command, cwd=shop.root, env=shop.environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            eventually(lambda: len(children(process.pid)) >= begun, within=60)
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.long
@pytest.mark.parametrize("begun", [1, 2])
def test_make_simulate_ends_at_once_with_ctrl_c(begun: int, shop: Shop) -> None:
    """Also while its processes are being started; they say nothing themselves."""
    with simulating(shop, begun=begun) as process:
        workers = children(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert err.startswith("Stopped: "), err
        assert err.count("\n") == 1, err
        eventually(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), within=60)


@pytest.mark.long
def test_make_simulate_tells_of_a_process_that_was_killed(shop: Shop) -> None:
    with simulating(shop) as process:
        os.kill(children(process.pid)[0], signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "a process ended with -9" in err


@pytest.mark.long
def test_the_first_failure_of_make_simulate_ends_all_its_processes(shop: Shop) -> None:
    (shop.root / "shop.py").write_text(FLOW.replace("STEP", RARE), encoding="utf-8")
    with simulating(shop, "--first", "14", "--epochs", "6", "--faults", "none", "shop.py") as process:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "TG-0924: seed " in err
        assert "replay it:      tidegauge simulate shop.py --faults none --epochs 6 --replay " in err


@pytest.mark.long
def test_make_simulate_runs_ranges_in_processes_and_stops_at_what_fails(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FLOW.replace("STEP", "return pa.record_batch({'rows': [batch.num_rows]})"))
    command = [sys.executable, SIMULATE, "--seeds", "4", "--epochs", "4", "--processes", "2"]
    held = subprocess.run(command, capture_output=True, text=True, check=True, env=shop.environment())
    assert held.stdout.startswith("4 seeds, ")
    failed = subprocess.run([*command, str(tmp_path / "shop.py")], capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "TG-0954" in failed.stderr
