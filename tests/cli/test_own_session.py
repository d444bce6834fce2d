"""`run` on the session that it makes itself: what reaches its tasks, what is told of an expression that fails, and
what a signal to all does."""

from __future__ import annotations

import os
import runpy
import signal
from pathlib import Path

import pytest
from tests.cli.conftest import Shop

import tidegauge as tg

pytestmark = pytest.mark.spark

NUMBERS = """
from pathlib import Path

import tidegauge as tg
from beside import shout

HERE = Path(__file__).parent
MARK = "?"


def ask(batch):
    return shout(batch, MARK)


flow = tg.Dataflow("numbers", store=f"sqlite:///{HERE}/numbers.db", tick=0.05)
orders = flow.source("orders", tg.FileSource(str(HERE / "in" / "*.jsonl"), format=tg.Json("id long, user string")))
flow.sink("asked", orders.map_batches(ask), tg.DeltaSink(str(HERE / "lake" / "asked")))
flow.sink("large", orders.filter("id > 1").map_batches(ask), tg.ParquetSink(str(HERE / "lake" / "large")))
flow.sink("numbers", orders.select("CAST(reverse(user) AS INT) AS n"), tg.DeltaSink(str(HERE / "lake" / "numbers")))
"""
BESIDE = """
import pyarrow as pa


def shout(batch, mark):
    names = pa.array([name + mark for name in batch["user"].to_pylist()], pa.string())
    return pa.record_batch({"id": batch["id"], "user": names})
"""


@pytest.mark.long
def test_functions_of_the_file_and_beside_it_reach_the_tasks_and_an_expression_that_fails_is_told_in_our_words(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(1, 2)
    (shop.root / "numbers_of.py").write_text(NUMBERS, encoding="utf-8")
    (shop.root / "beside.py").write_text(BESIDE, encoding="utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = ("run", f"{shop.root}/numbers_of.py", "--until", "caught-up", "--spark", "local[1]", "--debug")
    done = shop(*command, cwd=elsewhere)
    assert done.code == 1
    said, _, trace = done.err.partition("Traceback (most recent call last):\n")
    lines = [line[9:] if line[2:3] == ":" else line for line in said.splitlines()]  # without the time
    known = ("source orders: ", "output asked: ", "output large: ", "output numbers: ", "published epoch 0: ")
    java = "WARNING: Using incubator modules: jdk.incubator.vector"
    assert [line for line in lines if not line.startswith(known) and line != java] == []
    assert "NumberFormatException: [CAST_INVALID_INPUT] The value '1u'" in trace
    assert "The above exception was the direct cause of the following exception" in trace
    assert "TG-0506: " in trace.splitlines()[-3]

    monkeypatch.syspath_prepend(shop.root)
    flow = runpy.run_path(str(shop.root / "numbers_of.py"))["flow"]
    users = {output: sorted(tg.read_arrow(flow, output).column("user").to_pylist()) for output in ("asked", "large")}
    assert users == {"asked": ["u1?", "u2?"], "large": ["u2?"]}


@pytest.mark.long
def test_a_signal_to_the_whole_process_group_finishes_the_epoch_under_way(shop: Shop) -> None:
    shop.write(1)
    shop.hold()
    run = shop.start("run", "shop.py", "--spark", "local[1]")
    run.until(shop.held, "an epoch under way")
    os.killpg(run.process.pid, signal.SIGTERM)
    run.says("stopping after the epoch under way; once more to stop at once\n")
    shop.write(2)
    shop.release()
    assert run.ended() == 0
    assert run.err().endswith("shop: stopped; epoch 0 is the last published\n")
    assert shop.rows("orders") == shop.rows("slow") == [(1, 0)]
