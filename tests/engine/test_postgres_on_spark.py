"""Rows that Spark's workers stage go to tables in PostgreSQL, live and late, as they go to a Delta table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.postgres import Server, new_database
from tests.sinks.postgres.conftest import seen

import tidegauge as tg
from tidegauge.errors.sinks import OutputIsNoTable

pytestmark = [pytest.mark.spark, pytest.mark.long]

COLUMNS = "id long, user string, at timestamp, day date, price decimal(9,2), _op string"
BY_USER: dict[str, Any] = {"envelope": "upsert", "key": "user", "order": "_offset"}


def test_rows_and_changes_of_spark_are_in_the_database_as_in_a_delta_table(
    classic: Any, tmp_path: Path, postgres: Server
) -> None:
    address = postgres.address(new_database(postgres))

    def make(*late: str) -> tg.Dataflow:
        flow = tg.Dataflow("sparkling", store=f"sqlite:///{tmp_path}/flow.db", tick=0.05)
        file = tg.FileSource(f"{tmp_path}/orders.jsonl", format=tg.Json(COLUMNS), metadata=True)
        orders = flow.source("orders", file).select("*", "upper(user) AS name")
        flow.sink("lake", orders, tg.DeltaSink(f"{tmp_path}/lake", **BY_USER))
        for name in ("latest", *late):
            sink = tg.PostgresSink(address, name, staging=f"{tmp_path}/staging", **BY_USER)
            flow.sink(name, orders, sink)
        plain = orders.changelog("op").transform(lambda frame: frame.where("price > 0"))
        flow.sink("added", plain, tg.PostgresSink(address, "added", staging=f"{tmp_path}/staging"))
        return flow

    def add(epoch: int) -> None:
        rows = [
            {"id": n, "user": f"ada{n % 7}", "at": "2026-03-29T01:30:00Z", "day": "2026-03-29", "price": f"{n}.50"}
            | {"_op": "delete" if n % 5 == 4 else "insert"}
            for n in range(20 * epoch, 20 * epoch + 20)
        ]
        with (tmp_path / "orders.jsonl").open("a") as out:
            out.write("".join(json.dumps(row) + "\n" for row in rows))

    for epoch in range(3):
        add(epoch)
        flow = make(*(["late"] if epoch == 2 else []))
        flow.run("caught-up", spark=classic)
    lake = sorted(tg.read_arrow(flow, "lake").to_pylist(), key=lambda row: row["user"])
    assert 0 < len(lake) < 8
    for table in ("latest", "late"):
        assert sorted(seen(address, table), key=lambda row: row["user"]) == lake
    added = seen(address, "added")
    assert sorted((row["id"], row["op"], row["_epoch"]) for row in added) == [
        (n, "delete" if n % 5 == 4 else "insert", n // 20) for n in range(60)
    ]
    with pytest.raises(OutputIsNoTable):
        tg.read(classic, flow, "latest")
