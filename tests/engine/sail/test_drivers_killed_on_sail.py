"""A driver on Sail may be killed at any instant: each row is in each table once, as the local engine has it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine import whole_flow
from tests.engine.clusters import ROOT
from tests.engine.sail.killed_on_sail import flow_in

import tidegauge as tg


def life(root: Path, point: str = "", nth: int = 0) -> int:
    command = [sys.executable, "-m", "tests.engine.sail.killed_on_sail", str(root), point, str(nth)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.long
@pytest.mark.parametrize(
    "strikes",
    [
        [("a row", 150), ("a row", 1050)],
        [("before commit output", 1), ("after commit output", 2)],
        [("after append bindings", 1), ("before publish", 0), ("after publish", 0)],
    ],
    ids=["in a job", "at a commit", "at a binding"],
)
def test_each_row_is_in_each_table_once(strikes: list[tuple[str, int]], tmp_path: Path) -> None:
    whole_flow.fill(tmp_path)
    assert [life(tmp_path, *strike) for strike in strikes] == [-signal.SIGKILL] * len(strikes)
    assert life(tmp_path) == 0
    flow = flow_in(tmp_path)
    lines = [json.loads(line) for file in sorted((tmp_path / "in").glob("*.jsonl")) for line in file.open()]
    assert sorted((row["id"], row["twice"]) for row in tg.read_arrow(flow, "plain").to_pylist()) == sorted(
        (line["id"], line["amount"] * 2) for line in lines
    )
    assert sorted((row["id"], row["n"]) for row in tg.read_arrow(flow, "sounds").to_pylist()) == sorted(
        (line["id"], len(line["tags"])) for line in lines
    )
    epochs = tg.read_arrow(flow, "plain").group_by("_epoch").aggregate([([], "count_all")]).to_pylist()
    counted = tg.read_arrow(flow, "days").group_by("_epoch").aggregate([("orders", "sum")]).to_pylist()
    assert sorted((row["_epoch"], row["count_all"]) for row in epochs) == sorted(
        (row["_epoch"], row["orders_sum"]) for row in counted
    )


@pytest.mark.long
def test_ctrl_c_finishes_the_epoch_under_way(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import tidegauge as tg\n"
        'flow = tg.Dataflow("shop", store="sqlite:///shop.db")\n'
        'orders = flow.source("orders", tg.GeneratorSource(rate=100, columns="id long, user string"))\n'
        'flow.sink("orders", orders.select("id", "soundex(user) AS sound"), tg.ParquetSink("orders"))\n'
    )
    command = [sys.executable, "-m", "tidegauge", "run", "shop.py", "--engine", "sail"]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        said = []
        for line in run.stderr:
            said.append(line)
            if "published epoch 1" in line:
                run.send_signal(signal.SIGINT)
        assert run.wait(60) == 0, "".join(said)
    assert "is the last published" in said[-1]
