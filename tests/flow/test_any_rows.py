"""Whatever rows a source has, a flow carries them: each table holds them unchanged, or refuses their columns."""

from __future__ import annotations

import tempfile
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from tests.depth import deep

import tidegauge as tg
from tidegauge.errors.sinks import LocalTimesInMap
from tidegauge.testing.strategies import column_types, rows, schemas

LOCAL = pa.timestamp("us")
NOON = datetime(2026, 11, 23, 12)  # noqa: DTZ001 - a local time


def run(folder: Path, *batches: pa.RecordBatch) -> tg.Dataflow:
    """Let the batches, a file each, go through a flow into a table of either kind."""
    (folder / "in").mkdir()
    for number, batch in enumerate(batches):
        pq.write_table(pa.Table.from_batches([batch]), folder / "in" / f"{number}.parquet")
    flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/shop.db")
    orders = flow.source("orders", tg.FileSource(f"{folder}/in/*.parquet", format=tg.Parquet()))
    flow.sink("delta", orders, tg.DeltaSink(f"{folder}/delta"))
    flow.sink("parquet", orders, tg.ParquetSink(f"{folder}/parquet"))
    flow.run(until="caught-up", engine=tg.LocalEngine(threads=0))
    return flow


def is_plain(kind: pa.DataType) -> bool:
    """Whether no local time can be in a map within the type."""
    return "map<" not in str(kind) or "timestamp[us]" not in str(kind)


@deep(16)
@given(schemas(types=column_types().filter(is_plain)).flatmap(partial(rows, min_size=1)))
def test_any_rows_are_in_the_tables_as_they_were(batch: pa.RecordBatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        flow = run(Path(folder), batch)
        for output in ("delta", "parquet"):
            found = tg.read_arrow(flow, output).drop_columns(["_epoch"])
            assert [(field.name, field.type) for field in found.schema] == [(f.name, f.type) for f in batch.schema]
            assert repr(found.to_pylist()) == repr(batch.to_pylist())


def column(kind: Any, value: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([value], kind)], names=["c"])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.map_(pa.string(), LOCAL), [("a", NOON)]),
        (pa.map_(LOCAL, pa.string()), [(NOON, "a")]),
        (pa.list_(pa.map_(pa.string(), pa.struct([("at", LOCAL)]))), [[("a", {"at": NOON})]]),
    ],
)
def test_a_local_time_that_is_only_in_maps_is_refused_before_a_table_that_nobody_can_read_is_made(
    kind: Any, value: Any, tmp_path: Path
) -> None:
    with pytest.raises(LocalTimesInMap, match=r"TG-0441.*'c'"):
        run(tmp_path, column(kind, value))
    assert not (tmp_path / "delta" / "_delta_log").exists()


def test_beside_another_local_time_one_in_a_map_is_carried(tmp_path: Path) -> None:
    kind = pa.struct([("at", LOCAL), ("m", pa.map_(pa.string(), LOCAL))])
    batch = column(kind, {"at": NOON, "m": [("a", NOON)]})
    flow = run(tmp_path, batch)
    assert tg.read_arrow(flow, "delta").column("c").to_pylist() == batch.column("c").to_pylist()
