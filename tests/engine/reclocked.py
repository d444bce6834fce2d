"""Data of a lake that is reclocked on Spark, and the source that it came from, scanned there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tidegauge as tg

UNBOUND = {"id": -1, "_partition": "elsewhere", "_offset": 0}
"""A row of a partition that the flow never saw."""


def flow_in(folder: Path) -> tg.Dataflow:
    """A flow of two files that grew between its epochs, and has run."""
    flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/shop.db", tick=0.01)
    format_ = tg.Json("id long")
    orders = flow.source("orders", tg.FileSource(f"{folder}/in/*.jsonl", format=format_, metadata=True))
    flow.sink("orders", orders, tg.DeltaSink(f"{folder}/orders"))
    (folder / "in").mkdir(parents=True)
    for number in range(12):
        with open(folder / "in" / f"{number % 2}.jsonl", "a") as file:
            file.write(json.dumps({"id": number}) + "\n")
        if number % 4 == 3:
            flow.run(engine="local", until="caught-up")
    return flow


def epochs_by_spark(session: Any, flow: tg.Dataflow) -> dict[int, tuple[int | None, int | None]]:
    """By id: the epoch that the flow gave each row, and the one that the column gives it."""
    landed = tg.read_arrow(flow, "orders").rename_columns({"_epoch": "given"}).to_pylist()
    frame = session.createDataFrame(
        [*landed, {**UNBOUND, "given": None}], "id long, _partition string, _offset long, given long"
    )
    found = tg.reclock_column(frame.repartition(3), flow, "orders").where("id != 0")
    return {row["id"]: (row["given"], row["_epoch"]) for row in found.collect()}


def scanned_by_spark(session: Any, flow: tg.Dataflow) -> list[list[Any]]:
    """The records of the epochs 1 and 2."""
    frame = tg.scan(session, flow, "orders", between=(1, 3))
    columns = ["id", "_partition", "_offset", "_epoch"]
    assert (frame.columns, tg.scan(session, flow, "orders", between=(3, 3)).count()) == (columns, 0)
    return sorted([row[name] for name in columns] for row in frame.repartition(3).collect())


def error_of_scan(session: Any, flow: tg.Dataflow, folder: Path) -> str:
    """What Spark says of a scan when a file goes after it was planned."""
    frame = tg.scan(session, flow, "orders")
    (folder / "in" / "0.jsonl").rename(folder / "away")
    try:
        frame.count()
    except Exception as error:
        return str(error)
    return ""
