"""`tidegauge resume`: a source that has failed goes on, as it was or as a new incarnation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.flow.upstream import Topic
from typer.testing import CliRunner

import tidegauge as tg
from tidegauge.cli.app import app
from tidegauge.cli.load import load_flow

FLOW = """
from pathlib import Path

import tidegauge as tg
from tests.flow.upstream import Topic

HERE = Path(__file__).parent


def pick(batch):
    if (HERE / "picky").exists() and 4 in batch.column("n").to_pylist():
        raise ValueError("4")
    return batch


flow = tg.Dataflow("again", store=f"sqlite:///{HERE}/flow.db", tick=0.01)
numbers = flow.source("numbers", Topic(HERE / "topic"))
flow.sink("all", numbers, tg.ParquetSink(str(HERE / "all")))
flow.sink("some", numbers.map_batches(pick), tg.ParquetSink(str(HERE / "some")))
"""

Command = Callable[..., Any]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A flow's file, beside an upstream that was recreated after it was read."""
    (tmp_path / "flow.py").write_text(FLOW)
    topic = Topic(tmp_path / "topic")
    topic.create("first")
    topic.write("p0", 1, 2, 3)
    run(tmp_path)
    (tmp_path / "picky").touch()
    return tmp_path


@pytest.fixture
def command(shop: Path) -> Command:
    return lambda name, *words: CliRunner().invoke(app, [name, str(shop / "flow.py"), *words])


def run(root: Path, *, fails: bool = False) -> None:
    flow = load_flow(str(root / "flow.py"))
    if not fails:
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))
        return
    with pytest.raises(tg.TidegaugeError):
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))


def recreate(root: Path) -> None:
    topic = Topic(root / "topic")
    topic.create("second")
    topic.write("p0", 7, 8)
    run(root, fails=True)


def test_as_a_new_incarnation(shop: Path, command: Command) -> None:
    recreate(shop)
    refused = command("resume", "numbers", "--new-incarnation", "--json")
    assert refused.exit_code == 0
    assert json.loads(refused.stdout) == {"source": "numbers", "incarnation": 1, "began_at": 1, "gaps": []}
    run(shop)
    [source] = json.loads(command("status", "--json").stdout)["sources"]
    assert (source["state"], source["incarnation"], source["lost"], source["bound"]) == ("idle", 1, 0, 2)
    assert "numbers: incarnation 1 of its upstream" in command("status").stdout
    again = command("resume", "numbers", "--new-incarnation")
    assert (again.exit_code, again.stderr.partition(":")[0]) == (1, "TG-0557")


def test_a_loss_is_refused_unless_it_is_accepted_and_then_shown(shop: Path, command: Command) -> None:
    Topic(shop / "topic").write("p0", 4, 5)
    run(shop, fails=True)
    recreate(shop)
    refused = command("resume", "numbers", "--new-incarnation")
    assert (refused.exit_code, refused.stderr.partition(":")[0]) == (1, "TG-0558")
    accepted = command("resume", "numbers", "--new-incarnation", "--accept-loss")
    assert accepted.exit_code == 0
    assert "numbers goes on with the next run: incarnation 1, from epoch 2 on; 2 records are lost" in accepted.stdout
    assert "some lacks it" in accepted.stdout
    assert "numbers: 2 records lost" in command("status").stdout
    assert "some lacks it" in command("explain", "1").stdout
    [gap] = json.loads(command("explain", "1", "--json").stdout)["gaps"]
    assert (gap["source"], gap["partition"], gap["lower"], gap["upper"], gap["code"]) == (
        *("numbers", "p0", 3, 5, "TG-0554"),
    )
    assert json.loads(command("explain", "0", "--json").stdout)["gaps"] == []
    assert "lost" not in command("explain", "0").stdout


def test_as_before(shop: Path, command: Command) -> None:
    kept = (shop / "topic").rename(shop / "kept")
    recreate(shop)
    (shop / "topic").rename(shop / "new")
    kept.rename(shop / "topic")
    assert "goes on with the next run: as before" in command("resume", "numbers").stdout
    run(shop)
    assert json.loads(command("status", "--json").stdout)["sources"][0]["state"] == "idle"


def test_bad_usage(command: Command) -> None:
    assert command("resume").exit_code == 2
    assert command("resume", "numbers", "--accept-loss").exit_code == 2
    unknown = command("resume", "number")
    assert (unknown.exit_code, unknown.stderr.partition(":")[0]) == (1, "TG-0104")
