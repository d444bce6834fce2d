"""A task's process that is killed is tried again by the flow, and every row is there once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest

import tidegauge as tg
from tidegauge.pipeline.engine import SparkEngine

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_flow_whose_task_is_killed_once_loses_and_doubles_nothing(spark: SparkEngine, tmp_path: Path) -> None:
    marker = tmp_path / "killed"

    def deadly(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    flow = tg.Dataflow("killed", store=f"sqlite:///{tmp_path}/flow.db", tick=0.05)
    rows = flow.source("rows", tg.GeneratorSource(rows=900, columns="n long", shards=3, metadata=True))
    flow.sink("plain", rows, tg.DeltaSink(str(tmp_path / "plain")))
    flow.sink("deadly", rows.map_batches(deadly), tg.ParquetSink(str(tmp_path / "deadly")))
    stalled: list[str] = []
    flow.run(
        "caught-up",
        engine=spark,
        watch=lambda board: stalled.extend(o.name for o in board.outputs.values() if o.state == "stalled"),
    )
    assert marker.exists()
    assert set(stalled) == {"plain", "deadly"}, "the job was not tried again"
    for output in ("plain", "deadly"):
        table = tg.read_arrow(flow, output)
        places = set(zip(table.column("_partition").to_pylist(), table.column("_offset").to_pylist(), strict=True))
        assert (table.num_rows, len(places)) == (900, 900)
