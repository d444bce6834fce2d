"""`locate` and `trace`: what they print for people and for programs, and how they end when they cannot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import tidegauge as tg
from tidegauge.cli.app import app
from tidegauge.cli.load import load_flow

FLOW = """
from pathlib import Path

import tidegauge as tg

HERE = Path(__file__).parent
flow = tg.Dataflow("shop", store=f"sqlite:///{HERE}/shop.db")
files = {"path": f"{HERE}/in/*.jsonl", "format": tg.Json("id long, user string")}
orders = flow.source("orders", tg.FileSource(**files, metadata=True))
bare = flow.source("bare", tg.FileSource(**files))
flow.sink("orders", orders, tg.DeltaSink(f"{HERE}/lake/orders"))
flow.sink("copy", orders, tg.ParquetSink(f"{HERE}/lake/copy"))
flow.sink("bare", bare, tg.ParquetSink(f"{HERE}/lake/bare"))
"""
USER = "eve\x1b[31m\n[red]ü"
Command = Callable[..., Result]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flow of two epochs: ids 1 and 2, then 3 to 25, of one user."""
    root = tmp_path_factory.mktemp("shop")
    (root / "located.py").write_text(FLOW)
    (root / "in").mkdir()
    with (root / "in" / "a.jsonl").open("a") as file:
        for numbers in (range(1, 3), range(3, 26)):
            file.writelines(json.dumps({"id": n, "user": USER if n > 2 else None}) + "\n" for n in numbers)
            file.flush()
            load_flow(root / "located.py").run(until="caught-up", engine=tg.LocalEngine(threads=0))
    return root


@pytest.fixture
def command(folder: Path) -> Command:
    """Run a command on the flow."""

    def run(name: str, *arguments: str) -> Result:
        return CliRunner().invoke(app, [name, str(folder / "located.py"), *arguments], env={"NO_COLOR": "1"})

    return run


def row(folder: Path, number: int) -> dict[str, Any]:
    found = tg.read_arrow(load_flow(folder / "located.py"), "orders").to_pylist()
    [one] = [row for row in found if row["id"] == number]
    return dict(one)


def test_locate_as_json(command: Command, folder: Path) -> None:
    path, there = str(folder / "in" / "a.jsonl"), row(folder, 3)
    done = command("locate", "orders", path, str(there["_offset"]), "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert all(re.match(r"\d{4}-\d\d-\d\dT.*\+00:00$", found.pop(at)) for at in ("minted_at", "published_at"))
    assert found == {
        "source": "orders",
        "incarnation": 0,
        "epoch": 1,
        "exact": True,
        "partition": there["_partition"],
        "path": path,
        "position": there["_offset"],
        "tables": [
            {"output": "orders", "holds": True, "version": "1", "rows": 23, "epoch": None, "error": None},
            {
                "output": "copy",
                "holds": True,
                "version": "from_epoch=000000000001",
                "rows": 23,
                "epoch": None,
                "error": None,
            },
        ],
    }
    assert json.loads(command("locate", "orders", there["_partition"], str(there["_offset"]), "--json").stdout) == {
        **json.loads(done.stdout)
    }


def test_locate_for_people(command: Command, folder: Path) -> None:
    path = str(folder / "in" / "a.jsonl")
    done = command("locate", "orders", path, "0")
    assert (done.exit_code, done.stderr) == (0, "")
    assert re.match(r"epoch 0  minted 2\S+ \S+, published 2\S+ \S+ \(UTC\)\n", done.stdout)
    assert f"\norders, {path} at 0 bytes\n" in done.stdout
    table = [line.split() for line in done.stdout.splitlines()]
    assert ["orders", "yes", "0", "2"] in table
    assert ["copy", "yes", "from_epoch=000000000000", "2"] in table


def test_locate_shows_a_table_that_cannot_be_read_with_what_to_do(command: Command, folder: Path) -> None:
    manifest = folder / "lake" / "copy" / "from_epoch=000000000001" / "_manifest.json"
    text = manifest.read_bytes()
    manifest.write_text("{")
    try:
        done = command("locate", "orders", str(folder / "in" / "a.jsonl"), "0")
        found = json.loads(command("locate", "orders", str(folder / "in" / "a.jsonl"), "0", "--json").stdout)
    finally:
        manifest.write_bytes(text)
    assert done.exit_code == 0, "saying where it stands is what was asked"
    assert ["copy", "no", "-", "?"] in [line.split() for line in done.stdout.splitlines()]
    assert "TG-0412" in done.stdout
    assert [table["error"] and table["error"]["code"] for table in found["tables"]] == [None, "TG-0412"]


def test_trace_as_json(command: Command, folder: Path) -> None:
    done = command("trace", "orders", "id=3", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    found, there = json.loads(done.stdout), row(folder, 3)
    place = json.loads(command("locate", "orders", there["_partition"], str(there["_offset"]), "--json").stdout)
    [one] = found.pop("found")
    assert found == {"output": "orders", "as_of": 1, "more": False}
    assert one["row"] == there
    assert one["error"] is None
    assert one["origin"]["place"] == place
    assert {key: one["origin"][key] for key in ("source", "epoch", "exact")} == {
        "source": "orders",
        "epoch": 1,
        "exact": True,
    }
    [piece] = one["origin"]["slices"]
    assert piece["lower"] <= there["_offset"] < piece["upper"]


def test_trace_for_people_whatever_is_in_the_row(command: Command, folder: Path) -> None:
    done = command("trace", "orders", "id=3")
    assert (done.exit_code, done.stderr) == (0, "")
    there = row(folder, 3)
    first, epoch, place, version = done.stdout.splitlines()
    assert first == (
        f"id=3  user='eve\\x1b[31m\\n[red]ü'  _partition={there['_partition']}  _offset={there['_offset']}  _epoch=1"
    )
    assert re.fullmatch(r"  epoch 1, minted 2\S+ \S+, published 2\S+ \S+ \(UTC\)", epoch)
    assert place == f"  orders, {folder}/in/a.jsonl at {there['_offset']} bytes"
    assert version == "  version 1 of the table orders"
    assert "id=1  user=null" in command("trace", "copy", "id=1").stdout


def test_trace_of_rows_that_do_not_say_where_they_stand(command: Command, folder: Path) -> None:
    done = command("trace", "bare", "id=3")
    assert done.exit_code == 0
    size = (folder / "in" / "a.jsonl").stat().st_size
    assert f"  bare, within {folder}/in/a.jsonl, {row(folder, 3)['_offset']:,} to {size:,} bytes\n" in done.stdout
    [one] = json.loads(command("trace", "bare", "id=3", "--json").stdout)["found"]
    assert (one["origin"]["exact"], one["origin"]["place"]) == (False, None)


def test_trace_shows_twenty_rows_and_says_when_there_are_more(command: Command) -> None:
    done = command("trace", "orders", f"user={USER}")
    assert done.exit_code == 0
    assert len(re.findall(r"^id=", done.stdout, re.MULTILINE)) == 20
    assert done.stdout.endswith("\nthese are the first 20; there are more\n")
    found = json.loads(command("trace", "orders", f"user={USER}", "--json").stdout)
    assert (len(found["found"]), found["more"]) == (20, True)


def test_trace_that_finds_nothing_says_so(command: Command) -> None:
    done = command("trace", "orders", "id=99", "user=\x1b")
    assert (done.exit_code, done.stdout) == (
        0,
        "no row of orders has id = 99, user = '\\x1b', of the epochs to 1\n",
    )
    assert json.loads(command("trace", "orders", "id=99", "--json").stdout)["found"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("locate",),
        ("locate", "orders", "p"),
        ("locate", "orders", "p", "-1"),
        ("locate", "orders", "p", "one"),
        ("locate", "orders", "p", "9" * 5000),
        ("trace", "orders"),
        ("trace", "orders", "id"),
        ("trace", "orders", "=3"),
        ("trace", "orders", "id=3", "id=4"),
    ],
)
def test_bad_usage_ends_with_2(command: Command, arguments: tuple[str, ...]) -> None:
    done = command(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("locate", "order", "p", "0"), "TG-0104"),
        (("locate", "orders", "\udcff/../x", "0"), "TG-0611"),
        (("locate", "orders", "-7", "0"), "TG-0611"),
        (("trace", "order", "id=3"), "TG-0104"),
        (("trace", "orders", "idd=3"), "TG-0103"),
        (("trace", "orders", "id=three"), "TG-0615"),
        (("trace", "orders", "user=\udcff"), "TG-0615"),
    ],
)
def test_what_cannot_be_answered_ends_with_1_and_its_code(
    command: Command, arguments: tuple[str, ...], code: str
) -> None:
    done = command(*arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{code}: ")
    assert "what to do:" in done.stderr
    said = command(*arguments, "--json")
    assert (said.exit_code, json.loads(said.stdout)["error"]["code"]) == (1, code)


def test_a_position_beyond_all_that_is_bound_is_not_there_yet(command: Command, folder: Path) -> None:
    done = command("locate", "orders", str(folder / "in" / "a.jsonl"), str(2**200))
    assert done.exit_code == 1
    assert done.stderr.startswith("TG-0201: ")


def test_of_a_flow_that_never_ran_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "never.py").write_text(FLOW)
    for arguments in (("locate", "orders", "p", "0"), ("trace", "orders", "id=3")):
        done = CliRunner().invoke(app, [arguments[0], str(tmp_path / "never.py"), *arguments[1:]])
        assert done.exit_code == 1
        assert done.stderr.startswith("TG-0605: ")
    assert not (tmp_path / "shop.db").exists()
