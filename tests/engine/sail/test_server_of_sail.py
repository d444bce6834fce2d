"""Sail that cannot be had, and Sail beside what a process has already."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sail import SailBesideSpark, SailMissing


def flow_in(folder: Path) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/shop.db")
    ids = flow.source("ids", tg.GeneratorSource(rows=10, columns="id long"))
    flow.sink("ids", ids, tg.ParquetSink(f"{folder}/ids"))
    return flow


@pytest.mark.parametrize("module", ["pysail", "grpc", "grpc_status"])
def test_what_is_missing_is_named_with_what_to_install(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "pysail.spark", raising=False)
    with pytest.raises(SailMissing) as caught:
        flow_in(tmp_path).run("caught-up", engine="sail")
    assert module in caught.value.summary
    assert "pip install 'tidegauge[sail]'" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_session_does_not_go_with_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no session on the sail engine"):
        flow_in(tmp_path).run("caught-up", engine="sail", spark=object())


@pytest.mark.spark
def test_it_does_not_run_beside_a_session_with_a_jvm(classic: Any, tmp_path: Path) -> None:
    assert classic.range(1).count() == 1
    with pytest.raises(SailBesideSpark):
        flow_in(tmp_path).run("caught-up", engine="sail")
    assert classic.range(1).count() == 1


def test_the_command_runs_a_flow_on_it_and_says_nothing_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import tidegauge as tg\n"
        'flow = tg.Dataflow("shop", store="sqlite:///shop.db")\n'
        'ids = flow.source("ids", tg.GeneratorSource(rows=10, columns="id long, user string"))\n'
        'flow.sink("ids", ids.select("md5(user) AS sum"), tg.ParquetSink("ids"))\n'
    )
    command = [sys.executable, "-m", "tidegauge", "run", "shop.py", "--engine", "sail"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "shop: sealed; epoch 0 is the last published" in done.stderr
    assert "sail" not in done.stderr
    assert done.stdout == ""
