"""A source says in one word what its positions count: bytes, or anything else, which counts as records do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flow.upstream import Topic

import tidegauge as tg


@pytest.mark.parametrize("unit", ["bytes", "records", "rows", "changes"])
def test_whatever_a_source_calls_its_positions_it_is_read_and_read_again(tmp_path: Path, unit: str) -> None:
    upstream = Topic(tmp_path / "upstream", unit=unit)
    upstream.create("a")
    upstream.write("p", 1, 2)
    flow = tg.Dataflow("own", store=f"sqlite:///{tmp_path}/own.db", tick=0.01)
    flow.sink("rows", flow.source("numbers", upstream), tg.ParquetSink(f"{tmp_path}/rows"))
    for _run in range(2):
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))
        upstream.write("p", 3)
    assert tg.read_arrow(flow, "rows").column("n").to_pylist() == [1, 2, 3]
    [source] = tg.status(flow).sources
    assert (source.unit, source.end - source.published) == (unit, 1)

    tg.repair(flow, "rows", from_epoch=1, engine="local")
    assert tg.read_arrow(flow, "rows").num_rows == 3
