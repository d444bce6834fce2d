"""Where a run begins: by what the tables and the store say when it begins, and by nothing that was known before."""

from __future__ import annotations

import json
from pathlib import Path

import tidegauge as tg


def make(root: Path) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db", tick=0.01)
    orders = flow.source("orders", tg.FileSource(f"{root}/in/*.jsonl", format=tg.Json("id long")))
    flow.sink("orders", orders, tg.DeltaSink(f"{root}/orders"))
    flow.sink("copies", orders, tg.ParquetSink(f"{root}/copies"))
    return flow


def write(root: Path, *ids: int) -> None:
    (root / "in").mkdir(exist_ok=True)
    with (root / "in" / "orders.jsonl").open("a") as file:
        file.writelines(json.dumps({"id": i}) + "\n" for i in ids)


def rows(flow: tg.Dataflow, output: str) -> list[tuple[int, int]]:
    return sorted((row["id"], row["_epoch"]) for row in tg.read_arrow(flow, output).to_pylist())


def test_t26_a_flow_that_ran_elsewhere_meanwhile_goes_on_from_there(tmp_path: Path) -> None:
    ours, theirs = make(tmp_path), make(tmp_path)
    write(tmp_path, 1)
    ours.run("caught-up", engine="local")
    write(tmp_path, 2)
    theirs.run("caught-up", engine="local")
    write(tmp_path, 3)
    ours.run("caught-up", engine="local")
    assert rows(ours, "orders") == rows(ours, "copies") == [(1, 0), (2, 1), (3, 2)]


def test_t25_a_flow_whose_outputs_hold_all_that_will_ever_come_has_nothing_to_do(tmp_path: Path) -> None:
    flow = tg.Dataflow("numbers", store=f"sqlite:///{tmp_path}/numbers.db", tick=0.01)
    numbers = flow.source("numbers", tg.GeneratorSource(rows=5, columns="n long"))
    flow.sink("numbers", numbers, tg.ParquetSink(str(tmp_path / "numbers")))
    flow.run(engine="local")
    timeline = tg.epochs(flow)
    for until in ("caught-up", None):
        flow.run(until, engine="local")
    assert tg.epochs(flow) == timeline
    assert tg.read_arrow(flow, "numbers").num_rows == 5
