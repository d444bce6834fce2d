"""Rows are marked deleted by tasks of Spark, and `tg.read` gives a frame without them, whatever the columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable

import tidegauge as tg
from tidegauge.engine import SparkEngine
from tidegauge.sinks.delta import bykey
from tidegauge.sinks.delta.adds import vectors_in
from tidegauge.sinks.keyed.planning import Sizes

pytestmark = [pytest.mark.spark, pytest.mark.long]

COLUMNS = """id long, day date, at timestamp, local timestamp_ntz, price decimal(10,2), tags array<string>,
    country string"""


def row(number: int, turn: int) -> dict[str, Any]:
    return {
        "id": number,
        "day": f"2026-11-{number % 28 + 1:02d}",
        "at": f"2026-11-24T00:00:{number % 60:02d}.000{turn:03d}Z",
        "local": f"2026-11-24T00:00:{number % 60:02d}",
        "price": f"{number}.{turn:02d}",
        "tags": [str(turn)] * (number % 3),
        "country": "DE",
    }


@pytest.mark.parametrize("parted", [False, True])
def test_tasks_of_spark_mark_rows_and_frames_lack_them(
    parted: bool, classic: Any, spark: SparkEngine, tmp_path: Path
) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=0.02)
    file = tg.FileSource(f"{tmp_path}/users.jsonl", format=tg.Json(COLUMNS), metadata=True)
    sink = tg.DeltaSink(
        f"{tmp_path}/lake/users",
        envelope="upsert",
        key="id",
        order="_offset",
        partition_by="country" if parted else None,
        deletion_vectors=True,
    )
    flow.sink("users", flow.source("users", file), sink)
    with mock.patch.object(bykey, "SIZES", Sizes(few_rows=0, most_dead=0.9)):
        for turn, numbers in enumerate((range(3000), range(0, 3000, 2), range(5))):
            with (tmp_path / "users.jsonl").open("a") as out:
                out.write("".join(json.dumps(row(number, turn)) + "\n" for number in numbers))
            flow.run("caught-up", engine=spark)
    assert len(vectors_in(DeltaTable(sink.path), sink.path)) == 2
    for epoch in (None, 0, 1):
        wanted = tg.read_arrow(flow, "users", as_of=epoch).sort_by("id")
        found = tg.read(classic, flow, "users", as_of=epoch).toArrow().sort_by("id")
        assert wanted.num_rows == found.num_rows == 3000
        assert found.select(wanted.schema.names).to_pylist() == wanted.to_pylist()
