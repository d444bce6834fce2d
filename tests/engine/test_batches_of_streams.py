"""Queries of Structured Streaming whose batches become epochs of a flow, on sessions of Spark's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from tests.engine.written import done, started, table_rows

import tidegauge as tg
from tidegauge.engine import LocalEngine
from tidegauge.sources.batches.manifest import batches_in, read_manifest

pytestmark = pytest.mark.spark


def more(root: Path, name: str, ids: range) -> None:
    (root / "in").mkdir(exist_ok=True)
    lines = [json.dumps({"id": n, "at": f"2026-11-20T10:00:00.{n:06}Z"}) for n in ids]
    (root / "in" / f"{name}.json").write_text("\n".join(lines) + "\n")


def flow_of(root: Path) -> Any:
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db")
    orders = flow.source("orders", tg.BatchSource(root / "batches", columns="id long, at timestamp"))
    flow.sink("all", orders, tg.ParquetSink(f"{root}/lake/all"))
    flow.sink("few", orders.filter("id >= 7").select("id"), tg.ParquetSink(f"{root}/lake/few"))
    return flow


def run(root: Path) -> Any:
    flow, engine = flow_of(root), LocalEngine(threads=2)
    flow.run(until="caught-up", engine=engine)
    engine.close()
    return flow


def lose(log: Path, *, from_batch: int) -> None:
    """Take entries out of a log of a checkpoint, with their checksums."""
    for path in log.iterdir():
        number = path.name.strip(".").partition(".")[0]
        if number.isdigit() and int(number) >= from_batch:
            path.unlink()


def test_batches_of_a_query_are_epochs_of_two_outputs(classic: Any, tmp_path: Path) -> None:
    more(tmp_path, "a", range(6))
    more(tmp_path, "b", range(6, 10))
    done(lambda: started(classic, tmp_path, "foreachBatch", now=True))
    flow = run(tmp_path)
    assert table_rows(flow, "all") == [(n, 0) for n in range(10)]
    assert table_rows(flow, "few") == [(n, 0) for n in range(7, 10)]
    assert tg.read_arrow(flow, "all").column("at").to_pylist()[0].microsecond < 10
    folder = tmp_path / "batches" / "foreachBatch"
    assert sorted(read_manifest(folder, batch).rows for batch in batches_in(folder)) == [4, 6]


@pytest.mark.long
@pytest.mark.parametrize("way", ["foreachBatch", "format"])
def test_a_query_goes_on_from_its_checkpoint_and_another_checkpoint_is_refused(
    way: str, classic: Any, tmp_path: Path
) -> None:
    classic.newSession().createDataFrame([(1,)], "n int")  # which is the active session from now on
    tg.register(classic)
    more(tmp_path, "a", range(6))
    done(lambda: started(classic, tmp_path, way, now=True))
    more(tmp_path, "b", range(6, 10))
    done(lambda: started(classic, tmp_path, way, now=True))
    with pytest.raises(PySparkException, match="TG-0680"):
        done(lambda: started(classic, tmp_path, way, now=True, checkpoint="another"))
    assert table_rows(run(tmp_path), "all") == [(n, 0) for n in range(10)]


@pytest.mark.long
@pytest.mark.parametrize("way", ["foreachBatch", "format"])
def test_a_checkpoint_that_lost_its_last_commit_runs_the_batch_again(way: str, classic: Any, tmp_path: Path) -> None:
    tg.register(classic)
    more(tmp_path, "a", range(6))
    more(tmp_path, "b", range(6, 10))
    done(lambda: started(classic, tmp_path, way, now=True))
    lose(tmp_path / "checkpoint" / way / "commits", from_batch=1)
    more(tmp_path, "c", range(10, 12))
    done(lambda: started(classic, tmp_path, way, now=True))
    assert table_rows(run(tmp_path), "all") == [(n, 0) for n in range(12)]
    lose(tmp_path / "checkpoint" / way / "commits", from_batch=1)
    lose(tmp_path / "checkpoint" / way / "offsets", from_batch=2)
    with pytest.raises(PySparkException, match=r"TG-0681.*batch 1 came again"):
        done(lambda: started(classic, tmp_path, way, now=True))


@pytest.mark.long
def test_what_is_wrong_with_a_query_has_its_name(classic: Any, tmp_path: Path) -> None:
    tg.register(classic)
    more(tmp_path, "a", range(6))
    frame = classic.readStream.schema("id long").json(f"{tmp_path}/in")
    count = frame.groupBy().count()
    checkpoint = {"checkpointLocation": f"{tmp_path}/checkpoint"}
    path = {"path": f"{tmp_path}/batches"}
    for code, options, mode, of in (
        ("TG-0687", {**path, **checkpoint, "query": "a"}, "complete", count),
        ("TG-0661", {**path, **checkpoint}, "append", frame),
        ("TG-0660", {**path, **checkpoint, "query": "c", "store": "x"}, "append", frame),
        ("TG-0105.*query", {**path, **checkpoint, "query": "../c"}, "append", frame),
    ):
        writer = of.writeStream.format("tidegauge").options(**options).outputMode(mode).trigger(availableNow=True)
        with pytest.raises(PySparkException, match=code):
            done(writer.start)
    place = "spark.sql.streaming.checkpointLocation"
    classic.conf.set(place, f"{tmp_path}/kept")  # which the session alone knows
    try:
        with pytest.raises(PySparkException, match=r"TG-0686.*checkpointLocation"):
            done(frame.writeStream.format("tidegauge").options(**path).queryName("b").start)
    finally:
        classic.conf.unset(place)
    assert not (tmp_path / "batches").exists()
