"""`tidegauge tail`: an output's rows, a line each, from the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tidegauge as tg
from tidegauge.cli.app import app
from tidegauge.cli.load import load_flow

FLOW = """
from pathlib import Path

import tidegauge as tg

HERE = Path(__file__).parent

flow = tg.Dataflow("shop", store=f"sqlite:///{HERE}/flow.db", tick=0.01)
users = flow.source("users", tg.FileSource(f"{HERE}/users.jsonl", format=tg.Json("id long, name string, at long")))
flow.sink("all", users, tg.ParquetSink(str(HERE / "all")))
flow.sink("newest", users, tg.DeltaSink(str(HERE / "newest"), envelope="upsert", key="id", order="at"))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "flow.py").write_text(FLOW)
    add(tmp_path, (1, "ada"), (2, "bob"))
    add(tmp_path, (1, "a\x1b[2Jda"))
    return tmp_path


def add(root: Path, *rows: tuple[int, str]) -> None:
    with (root / "users.jsonl").open("a") as file:
        file.write("".join(json.dumps({"id": key, "name": name, "at": file.tell()}) + "\n" for key, name in rows))
    load_flow(str(root / "flow.py")).run("caught-up", engine=tg.LocalEngine(threads=0))


def told(shop: Path, *words: str) -> Any:
    return CliRunner().invoke(app, ["tail", str(shop / "flow.py"), *words])


def test_the_rows_as_of_an_epoch_and_what_comes_after_it_are_lines(shop: Path) -> None:
    found = told(shop, "newest", "--as-of", "0", "--up-to", "2")
    assert found.exit_code == 0
    assert [line.split("  at=")[0] for line in found.stdout.splitlines()] == [
        "0  +1  id=1  name=ada",
        "0  +1  id=2  name=bob",
        "1  -1  id=1  name=ada",
        "1  +1  id=1  name='a\\x1b[2Jda'",
    ]


def test_json_is_a_line_for_each_row_and_says_how_far_it_is(shop: Path) -> None:
    found = told(
        shop,
        "newest",
        "--as-of",
        "0",
        "--up-to",
        "2",
        "--no-snapshot",
        "--progress",
        "--json",
        "--envelope",
        "upsert",
        "--key",
        "id",
    )
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert [(row["_epoch"], row["_progressed"], row["_state"], row["id"]) for row in rows] == [
        (0, True, None, None),
        (1, True, None, None),
        (1, False, "upsert", 1),
        (2, True, None, None),
    ]


def test_what_cannot_be_followed_ends_with_its_code(shop: Path) -> None:
    assert told(shop, "newest", "--as-of", "2", "--up-to", "1").exit_code == 1
    assert "TG-0651" in told(shop, "newest", "--as-of", "2", "--up-to", "1", "--json").stdout
    assert told(shop, "newest", "--envelope", "cdc").exit_code == 2
    assert told(shop, "latest").exit_code == 1


def test_it_follows_until_ctrl_c(shop: Path) -> None:
    command = [sys.executable, "-m", "tidegauge", "tail", str(shop / "flow.py"), "all", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["id"] for _ in range(3)] == [1, 2, 1]
        add(shop, (3, "eve"))
        assert json.loads(process.stdout.readline())["name"] == "eve"
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=60)
    assert (process.returncode, rest, said) == (0, "", "")


def test_who_has_seen_enough_ends_it_without_a_word(shop: Path) -> None:
    command = [sys.executable, "-m", "tidegauge", "tail", str(shop / "flow.py"), "all", "--progress"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        add(shop, (3, "eve"))
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
