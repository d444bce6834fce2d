"""Rows that Spark's workers stage come back to the driver: into its memory, and to a function of the user's."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegauge as tg

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_memory_and_a_function_get_the_rows_of_other_processes_in_the_types_of_a_table(
    classic: Any, tmp_path: Path
) -> None:
    given: list[tuple[int, pa.Table]] = []
    lock = threading.Lock()  # it could not go to a worker

    def take(rows: pa.RecordBatchReader, attempt: tg.EpochAttempt) -> None:
        with lock:
            given.append((attempt.epoch, rows.read_all()))

    memory = tg.MemorySink()
    flow = tg.Dataflow("sparkling", store=f"sqlite:///{tmp_path}/flow.db", tick=0.05)
    columns = "id long, user string, at timestamp, local timestamp_ntz, tags array<string>, price decimal(9,2)"
    source = flow.source("orders", tg.FileSource(f"{tmp_path}/in/*.jsonl", format=tg.Json(columns)))
    orders = source.select("*", "upper(user) AS name")
    flow.sink("lake", orders, tg.DeltaSink(str(tmp_path / "lake")))
    flow.sink("memory", orders, memory)
    flow.sink("taken", orders, tg.ForeachEpochSink(take, str(tmp_path / "taken")))
    (tmp_path / "in").mkdir()
    for epoch in range(2):
        lines = [
            {"id": n, "user": "ada", "at": "2026-03-29T01:30:00Z", "local": "2026-03-29T02:30:00", "tags": ["x"]}
            for n in range(10 * epoch, 10 * epoch + 10)
        ]
        text = "".join(json.dumps({**line, "price": "1.50"}) + "\n" for line in lines)
        (tmp_path / "in" / f"{epoch}.jsonl").write_text(text)
        flow.run("caught-up", spark=classic)
    lake = tg.read_arrow(flow, "lake").sort_by("id")
    assert lake.num_rows == 20
    assert memory.table().sort_by("id") == lake
    assert [epoch for epoch, _ in given] == [0, 1]
    assert pa.concat_tables([rows for _, rows in given]).sort_by("id") == lake
    frames = [tg.read(classic, flow, name, as_of=0) for name in ("lake", "memory")]
    assert frames[0].schema == frames[1].schema
    assert sorted(map(str, frames[0].collect())) == sorted(map(str, frames[1].collect()))
    assert frames[1].count() == 10
