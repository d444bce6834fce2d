"""A parted table that takes on columns is still parted, packed and read as any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

import tidegauge as tg

OLD, NEW = "id long, country string", "id long, country string, note string"


def flow_of(root: Path, kind: Any, columns: str) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db")
    source = tg.FileSource(f"{root}/in/*.jsonl", format=tg.Json(columns), settle=0)
    sink = kind(str(root / "lake"), partition_by=["country", tg.bucket(4, "id")], sort_by="id")
    flow.sink("orders", flow.source("orders", source), sink, schema="add")
    return flow


def write(root: Path, number: int, **more: Any) -> None:
    (root / "in").mkdir(exist_ok=True)
    rows = [{"id": 10 * number + at, "country": country, **more} for at, country in enumerate(["DE", "FR", None])]
    (root / "in" / f"{number}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def run(root: Path, kind: Any, columns: str) -> tg.Dataflow:
    flow = flow_of(root, kind, columns)
    flow.run(until="caught-up", engine="local")
    return flow


def found(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["country"], row["note"], row["_epoch"]) for row in rows)


@pytest.mark.parametrize("kind", [tg.DeltaSink, tg.ParquetSink])
def test_new_columns_are_null_in_the_rows_of_before_in_every_partition(kind: Any, tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path, number)
        run(tmp_path, kind, OLD)
    for number in (6, 7):
        write(tmp_path, number, note=f"n{number}")
        flow = run(tmp_path, kind, NEW)
    wanted = sorted(
        (10 * n + at, country, f"n{n}" if n > 5 else None, n)
        for n in range(8)
        for at, country in enumerate(["DE", "FR", None])
    )
    assert found(tg.read_arrow(flow, "orders").to_pylist()) == wanted
    assert found(tg.read_arrow(flow, "orders", as_of=3).to_pylist()) == wanted[:12]
    if kind is tg.DeltaSink:
        packed = tg.maintain(flow)
        assert len(DeltaTable(str(tmp_path / "lake")).file_uris()) < 24, packed
        assert found(tg.read_arrow(flow, "orders").to_pylist()) == wanted
        assert found(DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().to_pylist()) == wanted
        write(tmp_path, 8, note="n8")
        assert len(tg.read_arrow(run(tmp_path, kind, NEW), "orders")) == 27
    else:
        columns = tg.read_arrow(flow, "orders").schema
        rows = ds.dataset(tmp_path / "lake", partitioning="hive", schema=columns).to_table()
        assert sorted(rows["id"].to_pylist()) == [row[0] for row in wanted]
