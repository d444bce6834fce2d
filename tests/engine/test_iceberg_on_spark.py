"""Rows that Spark's workers stage go to a table of Iceberg, which a Spark with Iceberg's JAR reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.sinks.iceberg import elsewhere

import tidegauge as tg

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_a_flow_of_the_newest_spark_is_read_by_the_one_that_knows_iceberg(classic: Any, tmp_path: Path) -> None:
    columns = "id long, user string, at timestamp, day date, price decimal(9,2), tags array<string>, small smallint"

    def flow() -> tg.Dataflow:
        made = tg.Dataflow("sparkling", store=f"sqlite:///{tmp_path}/flow.db", tick=0.05)
        file = tg.FileSource(f"{tmp_path}/orders.jsonl", format=tg.Json(columns))
        orders = made.source("orders", file).select("*", "upper(user) AS name", "map('k', id) AS pairs")
        made.sink("ice", orders, tg.IcebergSink("flows.orders", f"{tmp_path}/lake"))
        made.sink("delta", orders, tg.DeltaSink(str(tmp_path / "delta")))
        return made

    for epoch in range(2):
        with (tmp_path / "orders.jsonl").open("a") as out:
            for n in range(20 * epoch, 20 * epoch + 20):
                more = f'"at": "2026-03-29T01:30:00Z", "day": "2026-03-29", "price": "{n}.50", "small": {n}'
                out.write(f'{{"id": {n}, "user": "u{n % 7}", "tags": ["a"], {more}}}\n')
        flow().run("caught-up", spark=classic)
    ice, delta = (tg.read_arrow(flow(), name).sort_by("id") for name in ("ice", "delta"))
    assert ice.to_pylist() == delta.to_pylist()
    assert ice.num_rows == 40
    asked = "SELECT id, user, day, price, tags[0], small, name, pairs['k'], _epoch FROM default.flows.orders"
    with elsewhere.spark(tmp_path / "lake") as spark:
        found = spark.sql(f"{asked} WHERE id >= 30 ORDER BY id")
    assert found[0] == [30, "u2", "2026-03-29", "30.50", "a", 30, "U2", 30, 1]
    assert len(found) == 10
    assert tg.read(classic, flow(), "ice").count() == 40
    files = [pq.read_schema(path) for path in (tmp_path / "lake" / "flows" / "orders" / "data").glob("*.parquet")]
    assert all(b"PARQUET:field_id" in (one.metadata or {}) for schema in files for one in schema)
