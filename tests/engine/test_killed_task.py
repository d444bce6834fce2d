"""A task's process that is killed, and an executor: what they did is done again, and every row is there once."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from tests.engine.elsewhere import Found

import tidegauge as tg
from tidegauge.engine import SparkEngine

pytestmark = [pytest.mark.spark]


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


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the executor by /proc")
@pytest.mark.long
def test_a_flow_on_a_cluster_goes_on_without_an_executor_that_is_killed(cluster: Found) -> None:
    ids = {output: sorted(json.loads(row)["id"] for row in rows) for output, rows in cluster.survivors.items()}
    orders = [json.loads(row) for row in cluster.rows["orders"]]
    assert ids["plain"] == ids["deadly"] == sorted(order["id"] for order in orders)
    assert ids["large"] == sorted(order["id"] for order in orders if order["amount"] > 20)
