"""A flow that runs in a thread of its own: it is stopped from anywhere, and what ended it is told."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.dsl.started import FlowRun
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.flow import EmptyFlow, InvalidArgument, WaitsForItself
from tidegauge.errors.store import FlowAlreadyRunning


def write(root: Path, *keys: int) -> None:
    with open(root / "in.jsonl", "a") as file:
        file.writelines(f"{json.dumps({'k': key})}\n" for key in keys)


@pytest.fixture
def flow(tmp_path: Path) -> tg.Dataflow:
    write(tmp_path, 0)
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=0.01)
    rows = flow.source("rows", tg.FileSource(str(tmp_path / "*.jsonl"), format=tg.Json("k long")))
    flow.sink("rows", rows, tg.ParquetSink(str(tmp_path / "table")))
    return flow


def keys(flow: tg.Dataflow) -> list[int]:
    return sorted(tg.read_arrow(flow, "rows")["k"].to_pylist())


def test_a_flow_runs_beside_the_program_until_it_is_stopped(flow: tg.Dataflow, tmp_path: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run = flow.start(engine="local")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert repr(run) == "FlowRun('shop': running)"
    eventually(lambda: run.status.published == 1)
    write(tmp_path, 1, 2)
    eventually(lambda: run.status.published == 2)
    with pytest.raises(TimeoutError):
        run.wait(0.01)
    with pytest.raises(FlowAlreadyRunning):
        flow.start(engine="local")
    run.stop()
    run.stop()
    assert run.wait() == run.wait()
    assert (run.wait().why, run.wait().published) == ("stopped", 2)
    assert repr(run) == "FlowRun('shop': stopped)"
    assert not run.status.running
    assert keys(flow) == [0, 1, 2]
    with flow.start(engine="local"):
        pass
    assert keys(flow) == [0, 1, 2]


def test_a_flow_is_started_and_left_from_any_thread(flow: tg.Dataflow) -> None:
    outcomes: list[Any] = []

    def work() -> None:
        with flow.start("caught-up", engine="local") as run:
            outcomes.append(run.wait())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [outcome.why for outcome in outcomes] == ["caught up"]
    assert keys(flow) == [0]


def test_what_stands_in_the_way_is_raised_at_once(flow: tg.Dataflow, tmp_path: Path) -> None:
    with pytest.raises(EmptyFlow):
        tg.Dataflow("empty", store=f"sqlite:///{tmp_path}/empty.db").start(engine="local")
    with pytest.raises(InvalidArgument):
        flow.start("never", engine="local")  # type: ignore[arg-type]


def failed_beside(run: FlowRun) -> LookupError:
    eventually(lambda: "failed" in repr(run))
    return LookupError("in the block")


def test_what_ends_a_run_is_raised_where_it_is_waited_for(flow: tg.Dataflow, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"k": \n')
    run = flow.start(engine="local")
    for _ in range(2):
        with pytest.raises(RecordUnparsable):
            run.wait()
    assert "failed: TG-" in repr(run)
    with pytest.raises(RecordUnparsable), flow.start(engine="local"):
        eventually(lambda: not tg.status(flow).running)
    with pytest.raises(LookupError) as caught, flow.start(engine="local") as again:
        raise failed_beside(again)
    assert "had failed, too: TG-" in caught.value.__notes__[0]


def test_a_run_does_not_wait_for_itself_but_may_stop_itself(flow: tg.Dataflow) -> None:
    raised: list[BaseException] = []
    runs: list[Any] = []
    ready = threading.Event()

    def watch(board: Any) -> None:
        if board.published and ready.wait(60) and not raised:
            try:
                runs[0].wait()
            except WaitsForItself as error:
                raised.append(error)
            runs[0].stop()

    runs.append(flow.start(engine="local", watch=watch))
    ready.set()
    assert runs[0].wait(60).why == "stopped"
    assert "TG-0120" in str(raised[0])


def test_a_run_whose_handle_is_dropped_goes_on(tmp_path: Path) -> None:
    flow = tg.Dataflow("numbers", store=f"sqlite:///{tmp_path}/numbers.db", tick=0.01)
    flow.sink(
        "rows",
        flow.source("rows", tg.GeneratorSource(50, columns="id long", rate=200)),
        tg.ParquetSink(f"{tmp_path}/t"),
    )
    flow.start(engine="local")
    gc.collect()
    eventually(lambda: not tg.status(flow).running)
    assert tg.read_arrow(flow, "rows").num_rows == 50


PROGRAM = """
import sys, tidegauge as tg
sys.path.insert(0, {root!r})
flow = tg.Dataflow("shop", store="sqlite:///{root}/shop.db", tick=0.01)
rows = flow.source("rows", tg.FileSource("{root}/*.jsonl", format=tg.Json("k long")))
flow.sink("rows", rows, tg.ParquetSink("{root}/table"))
run = flow.start(engine="local")
print("started", flush=True)
if {waits}:
    with run:
        run.wait()
"""


@pytest.mark.parametrize("waits", [False, True], ids=["it ends", "Ctrl-C"])
def test_a_program_that_ends_ends_its_runs(flow: tg.Dataflow, tmp_path: Path, *, waits: bool) -> None:
    code = PROGRAM.format(root=str(tmp_path), waits=waits)
    program = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "started\n"
        if waits:
            eventually(lambda: tg.status(flow).published == 1)
            program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=60)
    finally:
        program.kill()
    assert ("KeyboardInterrupt" in said) == waits
    assert (program.returncode == 0) == (not waits), said
    assert flow.run("caught-up", engine="local").why == "caught up"
    assert keys(flow) == [0]
