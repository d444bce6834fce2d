"""Damaged and lost tables of a source that pushes: nobody can read an old epoch from it again, and it is said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.waiting import eventually
from typer.testing import CliRunner

import tidegauge as tg
from tidegauge.cli.app import app
from tidegauge.cli.load import load_flow
from tidegauge.remap.frontier import Frontier
from tidegauge.testing import LogServer

FLOW = """
import tidegauge as tg

flow = tg.Dataflow("pushed", store="sqlite:///{root}/flow.db", tick=0.01)
feed = flow.source("feed", tg.SocketSource("127.0.0.1", {port}, columns="n long"))
flow.sink("all", feed, tg.ParquetSink("{root}/all"))
"""

Command = Callable[..., Any]


@pytest.fixture
def log() -> Iterator[LogServer]:
    with LogServer(forgets=True) as server:
        yield server


@pytest.fixture
def command(tmp_path: Path, log: LogServer) -> Command:
    (tmp_path / "flow.py").write_text(FLOW.format(root=tmp_path, port=log.port))

    return lambda name, *words: CliRunner().invoke(app, [name, str(tmp_path / "flow.py"), *words])


def run(command: Command) -> Any:
    return command("run", "--engine", "local", "--until", "caught-up")


def append(log: LogServer, *numbers: int) -> None:
    for n in numbers:
        log.append({"n": n})


def numbers(root: Path) -> list[int]:
    return sorted(tg.read_arrow(load_flow(str(root / "flow.py")), "all")["n"].to_pylist())


def test_a_repair_is_refused_and_changes_nothing_until_the_loss_is_accepted(
    tmp_path: Path, log: LogServer, command: Command
) -> None:
    append(log, 1, 2, 3)
    assert run(command).exit_code == 0
    append(log, 4)
    assert run(command).exit_code == 0
    for file in (tmp_path / "all").rglob("*.parquet"):
        if pq.read_table(file).num_rows == 3:
            file.unlink()
    there = sorted((tmp_path / "all").rglob("*"))
    for words in ((), ("--from", "0")):
        refused = command("repair", "all", "--engine", "local", *words)
        assert refused.exit_code == 1
        assert (
            "TG-0423: output 'all' lacks epochs whose records source 'feed' no longer has in full" in refused.stderr
        )
        assert "TG-0353" in refused.stderr
        assert "tidegauge skip" in refused.stderr
        assert sorted((tmp_path / "all").rglob("*")) == there
    assert command("skip", "feed", "p0", "0", "3").exit_code == 0
    repaired = command("repair", "all", "--engine", "local")
    assert repaired.exit_code == 0, repaired.stderr
    assert numbers(tmp_path) == [4]
    [source] = json.loads(command("status", "--json").stdout)["sources"]
    assert source["lost"] == 3
    append(log, 5)
    assert run(command).exit_code == 0
    assert numbers(tmp_path) == [4, 5]


def test_a_table_that_is_written_anew_needs_records_that_upstream_was_told_are_durable(
    tmp_path: Path, log: LogServer, command: Command
) -> None:
    append(log, 1, 2, 3)
    assert run(command).exit_code == 0
    eventually(lambda: log.acknowledged == log.end)
    shutil.rmtree(tmp_path / "all")
    begun = command("repair", "all", "--engine", "local", "--from", "0")
    assert begun.exit_code == 0, begun.stderr
    refused = run(command)
    assert refused.exit_code == 1
    assert "TG-0352" in refused.stderr
    assert "bring these records back upstream" in refused.stderr
    assert "TG-0557" in command("resume", "feed", "--new-incarnation", "--accept-loss").stderr
    assert command("resume", "feed").exit_code == 0


def test_a_lost_store_is_recovered_from_the_tables_and_upstream_is_read_on(
    tmp_path: Path, log: LogServer, command: Command
) -> None:
    append(log, 1, 2, 3)
    assert run(command).exit_code == 0
    (tmp_path / "flow.db").unlink()
    recovered = command("recover")
    assert recovered.exit_code == 0, recovered.stderr
    append(log, 4)
    assert run(command).exit_code == 0
    assert numbers(tmp_path) == [1, 2, 3, 4]
    assert log.starts[-1] == Frontier({"p0": 3})
