"""`load`: what it says for people and for programs, and how it ends."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Ask, Shop

FLOW = """
from pathlib import Path

import tidegauge as tg

HERE = Path(__file__).parent

flow = tg.Dataflow("shop", store=f"sqlite:///{HERE}/shop.db", tick=0.05)
orders = flow.source("orders", tg.FileSource(str(HERE / "in" / "*.jsonl"), format=tg.Json("id long, user string")))
history = flow.source("history", tg.BatchSource(HERE / "loads", columns="id long, user string"))
flow.sink("orders", flow.source("every", tg.union(orders, history)), tg.ParquetSink(str(HERE / "lake" / "orders")))
flow.sink("live", orders, tg.ParquetSink(str(HERE / "lake" / "live")))
"""


@pytest.fixture(autouse=True)
def _history(shop: Shop) -> None:
    (shop.root / "shop.py").write_text(FLOW)
    (shop.root / "old").mkdir()
    for number in (1, 2):
        (shop.root / "old" / f"{number}.csv").write_text(f"id,user\n{number},u\n")


def test_a_load_is_said_and_shown_on_the_timeline_and_a_second_one_is_refused(shop: Shop, ask: Ask) -> None:
    shop.write(7)
    done = ask("load", "shop.py", "orders", "old/*.csv")
    assert (done.exit_code, done.stderr) == (0, "")
    head, _, end = done.stdout.replace("\n", " ").partition(", as history/load-")
    assert head == "shop: 2 files with 2 rows are loaded for orders"
    assert end.strip().endswith("nobody runs the flow, and the next run takes them into its first epoch")
    shop.catch_up()
    assert shop.rows("orders") == [(1, 0), (2, 0), (7, 0)]
    assert shop.rows("live") == [(7, 0)]
    assert f"{shop.root}/old/*.csv" in ask("explain", "shop.py", "0").stdout.replace("\n", "")
    [source] = [
        one for one in json.loads(ask("status", "shop.py", "--json").stdout)["sources"] if one["name"] == "history"
    ]
    assert source["state"] == "idle"
    again = ask("load", "shop.py", "orders", "old/1.csv", "--json")
    assert (again.exit_code, json.loads(again.stdout)["error"]["code"]) == (1, "TG-0695")


def test_a_load_for_programs(shop: Shop, ask: Ask) -> None:
    (shop.root / "old" / "3.txt").write_text("id,user\n3,u\n")
    done = ask("load", "shop.py", "orders", "old/1.csv", "old/3.txt", "--format", "csv", "--json")
    said = json.loads(done.stdout)
    assert (said["files"], said["rows"], said["bytes"], said["running"]) == (2, 2, 24, None)
    assert (said["flow"], said["output"], said["source"]) == ("shop", "orders", "history")


def test_what_cannot_be_loaded_ends_with_1_and_the_reason(shop: Shop, ask: Ask) -> None:
    for arguments, code in (
        (("live", "old/*.csv"), "TG-0694"),
        (("orders", "none/*.csv"), "TG-0696"),
        (("orders", "old/*.parquet", "--format", "parquet"), "TG-0696"),
        (("orders", "old/*.csv", "--format", "json"), "TG-0697"),
        (("others", "old/*.csv"), "TG-0104"),
        (("orders", "old/*"), "TG-0105"),
    ):
        done = ask("load", "shop.py", *arguments)
        assert (done.exit_code, code in done.stderr) == (1, True), done.stderr
    assert ask("load", "shop.py", "orders", "old/*.csv", "--format", "xls").exit_code == 2


def test_a_load_into_a_source_that_has_failed_says_so(shop: Shop, ask: Ask) -> None:
    shop.write(7)
    assert ask("load", "shop.py", "orders", "old/1.csv").exit_code == 0
    [manifest] = (shop.root / "loads").glob("load-*/0*.json")
    kept = manifest.read_bytes()
    manifest.write_bytes(kept[:-5])
    ask("run", "shop.py", "--until", "caught-up", "--engine", "local")
    done = ask("load", "shop.py", "orders", "old/2.csv")
    said = " ".join(done.stdout.split())
    assert done.exit_code == 0
    assert "history has failed, with TG-0684:" in said
    assert said.endswith("it takes them once it is resumed: tidegauge resume shop history")
    (shop.root / "old" / "3.csv").write_text("id,user\n3,u\n")
    as_data = json.loads(ask("load", "shop.py", "orders", "old/3.csv", "--json").stdout)
    assert as_data["failed"].startswith("TG-0684: ")
    manifest.write_bytes(kept)
    assert ask("resume", "shop.py", "history").exit_code == 0
    shop.catch_up()
    assert [n for n, _ in shop.rows("orders")] == [1, 2, 3, 7]
