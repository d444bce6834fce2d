"""All outputs at one epoch, in engines that nobody here wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.flow.badinput import finish, lines, source, write
from tests.flow.by_hand import World

import tidegauge as tg
from tidegauge.errors.command import NotPublished
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.sinks import OutputIsNoTable
from tidegauge.errors.store import NotYetBound


def outputs(world: World) -> tg.Dataflow:
    """One source, and a table of each layout; one output has no rows, and one is no table."""
    lake = world.root / "lake"
    flow = tg.Dataflow("outputs", store=world.store)
    a = source(world, flow, "a", metadata=False)
    flow.sink("rows", a, tg.DeltaSink(str(lake / "rows")))
    flow.sink("parted.by-text", a, tg.ParquetSink(str(lake / "parted"), partition_by="text"))
    flow.sink("newest", a, tg.DeltaSink(str(lake / "newest"), envelope="upsert", key="text", order="n"))
    flow.sink("none", a.filter("n > 1000"), tg.ParquetSink(str(lake / "none")))
    flow.sink("told", a, tg.ForeachEpochSink(lambda batches, attempt: list(batches) and None, str(lake / "told")))
    return flow


TABLES = ["rows", "parted.by-text", "newest", "none"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three epochs; the last one changes rows of the first."""
    world = World(tmp_path, outputs)
    for epoch in range(3):
        rows = [{"n": 10 * epoch + k, "text": f"t{k % (4 - epoch)}"} for k in range(6)]
        write(tmp_path / "a" / "1.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        finish(world)
    return world


def counted(table: pa.Table) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in table.to_pylist())


@pytest.mark.parametrize("as_of", [0, 1, 2, None])
def test_duckdb_and_polars_see_what_arrow_reads(world: World, as_of: int | None) -> None:
    flow = outputs(world)
    with tg.duckdb(flow, as_of=as_of) as connection:
        assert sorted(name for (name,) in connection.sql("SHOW TABLES").fetchall()) == sorted(TABLES)
        for name in TABLES:
            expected = counted(tg.read_arrow(flow, name, as_of=as_of))
            assert counted(connection.sql(f'SELECT * FROM "{name}"').to_arrow_table()) == expected
            assert counted(tg.scan_polars(flow, name, as_of=as_of).collect().to_arrow()) == expected


@pytest.mark.parametrize("condition", ["n > 12", "text = 't1'", "n = 21 OR text IS NULL", "_epoch = 1"])
def test_a_condition_keeps_what_it_keeps_of_all_rows(world: World, condition: str) -> None:
    flow = outputs(world)
    with tg.duckdb(flow, as_of=1) as connection:
        for name in TABLES:
            whole = connection.from_arrow(tg.read_arrow(flow, name, as_of=1))
            expected = counted(whole.filter(condition).to_arrow_table())
            assert counted(connection.sql(f'SELECT * FROM "{name}" WHERE {condition}').to_arrow_table()) == expected
            found = tg.scan_polars(flow, name, as_of=1).sql(f"SELECT * FROM self WHERE {condition}").collect()
            assert counted(found.to_arrow()) == expected


def test_the_newest_snapshot_is_of_the_newest_epoch_that_all_of_them_hold(world: World) -> None:
    flow = outputs(world)
    tg.pause(flow, "newest")
    write(world.root / "a" / "1.jsonl", lines(99))
    finish(world)
    with tg.duckdb(flow) as connection:
        found = connection.sql('SELECT max(n), (SELECT max(n) FROM newest) FROM "rows"').fetchall()
    assert found == [(25, 25)]
    with tg.duckdb(flow, outputs=["rows"]) as connection:
        assert connection.sql('SELECT max(n) FROM "rows"').fetchall() == [(99,)]


def test_a_moment_may_be_a_position_of_a_source(world: World) -> None:
    flow, file = outputs(world), world.root / "a" / "1.jsonl"
    first = len(b"".join(file.read_bytes().splitlines(keepends=True)[:7]))  # one record of the second epoch
    found = tg.scan_polars(flow, "rows", as_of={"a": {str(file): first}}).collect()
    assert sorted(found["n"].to_list()) == [*range(6), *range(10, 16)]
    with pytest.raises(NotYetBound):
        tg.read_arrow(flow, "rows", as_of={"a": {str(file): 10**6}})


def test_what_cannot_be_seen_is_refused(world: World, tmp_path: Path) -> None:
    flow = outputs(world)
    with pytest.raises(NotPublished):
        tg.duckdb(flow, as_of=3)
    with pytest.raises(UnknownName):
        tg.duckdb(flow, outputs=["row"])
    with pytest.raises(OutputIsNoTable):
        tg.duckdb(flow, outputs=["rows", "told"])
    with pytest.raises(OutputIsNoTable):
        tg.scan_polars(flow, "told")


@pytest.mark.parametrize(("library", "call"), [("duckdb", "duckdb(flow)"), ("polars", "scan_polars(flow, 'rows')")])
def test_a_library_that_is_not_there_is_said(world: World, library: str, call: str) -> None:
    program = f"""
import sys, tidegauge as tg
sys.modules[{library!r}] = None
flow = tg.Dataflow("outputs", store={world.store!r})
try:
    tg.{call}
except tg.TidegaugeError as error:
    print(error.code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "TG-0650\n"


def test_memory_is_a_table_too(tmp_path: Path) -> None:
    flow = tg.Dataflow("kept", store=f"sqlite:///{tmp_path}/kept.db")
    sink: Any = tg.MemorySink()
    flow.sink("ids", flow.source("ids", tg.GeneratorSource(5, columns="id long", max_records_per_epoch=3)), sink)
    flow.run(until="caught-up", engine=tg.LocalEngine(threads=0))
    with tg.duckdb(flow, as_of=0) as connection:
        assert connection.sql("SELECT count(*) FROM ids").fetchall() == [(3,)]
    assert tg.scan_polars(flow, "ids").collect().height == 5
