"""Engines with the sources and sinks that users have: the same files, rows and failures on each engine."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine.kit import job_of, sorted_rows

import tidegauge as tg
from tidegauge.engine import LocalEngine, SparkEngine
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.job.plan import Engine, EpochJob, Filter, JobResult, OutputPlan, Select, SourceRead, Step
from tidegauge.remap.binding import Bound, Slice
from tidegauge.sinks.protocol import OutputId, Sink
from tidegauge.sources.protocol import Source

LINES = 20_000


@pytest.fixture
def orders(tmp_path: Path) -> tg.FileSource:
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(3):
        rows = ({"id": i, "user": f"u{i % 9}", "amount": i / 8} for i in range(part, LINES, 3))
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tg.FileSource(
        str(folder / "*.jsonl"),
        format=tg.Json("id long, user string, amount double"),
        metadata=True,
        split_bytes=99_999,
    )


def bound_read(name: str, source: Source, *, collect: bool = False) -> SourceRead:
    """Bind all that a source has to epoch 0, as a flow would."""
    probe = source.probe(Bound(), now=datetime.now(UTC))
    schema = probe.schema or source.schema
    bound = Bound(frontier=probe.upper, details=probe.details, schema=schema)
    slices = [Slice(name, 0, partition, 0, upper) for partition, upper in probe.upper.items()]
    return SourceRead(name, source, schema, tuple(source.plan(slices, bound)), collect)


def committed(job: EpochJob, result: JobResult, name: str) -> pa.Table:
    """Commit what a job staged, and return what the table's files then hold."""
    work = next(work for work in job.outputs if work.plan.name == name)
    table = work.plan.sink.open(OutputId("flow", name, "0" * 32))
    table.commit(job.lower, job.upper, work.schema, result.staged[name].files, write=job.id)
    parts = [pq.ParquetFile(uri.removeprefix("file://")).read() for uri in table.uris(table.files())]
    return sorted_rows(pa.concat_tables(parts))


def staged_on(engine: Engine, read: SourceRead, outputs: dict[str, tuple[Sink, tuple[Step, ...]]]) -> dict[str, Any]:
    plans = [OutputPlan(name, read.name, "rows", steps, sink) for name, (sink, steps) in outputs.items()]
    job = job_of(engine, [read], plans, id=uuid.uuid4().hex)
    result = engine.submit(job).result(timeout=120)
    assert result.failures == ()
    tables = {plan.name: committed(job, result, plan.name) for plan in plans}
    return {"tables": tables, "records": result.records, "bytes": result.bytes_read}


@pytest.mark.spark
def test_files_into_delta_and_parquet_are_the_same_on_both_engines(
    spark: SparkEngine, local: LocalEngine, orders: tg.FileSource, tmp_path: Path
) -> None:
    read = bound_read("orders", orders)
    size = sum(path.stat().st_size for path in (tmp_path / "in").iterdir())

    def sinks(folder: str) -> dict[str, tuple[Sink, tuple[Step, ...]]]:
        delta, parquet = tmp_path / folder / "delta", tmp_path / folder / "parquet"
        return {"delta": (tg.DeltaSink(str(delta)), ()), "parquet": (tg.ParquetSink(str(parquet)), ())}

    on_spark, on_local = staged_on(spark, read, sinks("spark")), staged_on(local, read, sinks("local"))
    assert on_spark == on_local
    assert on_spark["records"] == {"orders": LINES}
    assert on_spark["bytes"] == {"orders": size}
    table = on_spark["tables"]["delta"]
    assert sorted(table["id"].to_pylist()) == list(range(LINES))
    assert table.column_names[-1] == "_epoch"


@pytest.mark.spark
def test_more_outputs_read_no_more_bytes(spark: SparkEngine, orders: tg.FileSource, tmp_path: Path) -> None:
    read = bound_read("orders", orders)
    steps: dict[str, tuple[Step, ...]] = {
        "all": (),
        "large": (Filter("amount > 1000"), Select(("id", "amount * 2 AS twice"))),
        "users": (Select(("user", "_offset")),),
    }
    outputs: dict[str, tuple[Sink, tuple[Step, ...]]] = {
        name: (tg.ParquetSink(str(tmp_path / name)), chain) for name, chain in steps.items()
    }
    found = staged_on(spark, read, outputs)
    one = staged_on(spark, read, {"one": (tg.ParquetSink(str(tmp_path / "one")), steps["large"])})
    assert found["bytes"] == one["bytes"]
    assert found["tables"]["large"] == one["tables"]["one"]
    large = {(i, i / 4) for i in range(LINES) if i / 8 > 1000}
    assert set(zip(*(found["tables"]["large"][c].to_pylist() for c in ("id", "twice")), strict=True)) == large


@pytest.mark.spark
def test_a_generator_gives_the_same_rows_on_both_engines(
    spark: SparkEngine, local: LocalEngine, tmp_path: Path
) -> None:
    read = bound_read("made", tg.GeneratorSource(5000, columns="id long, at timestamp, name string", shards=3))
    tables = [
        staged_on(engine, read, {"x": (tg.ParquetSink(str(tmp_path / engine.name)), ())})["tables"]["x"]
        for engine in (spark, local)
    ]
    assert tables[0] == tables[1]
    assert tables[0].num_rows == 5000


def test_a_line_that_is_no_record_names_its_file(local: LocalEngine, orders: tg.FileSource, tmp_path: Path) -> None:
    bad = tmp_path / "in" / "9.jsonl"
    bad.write_text('{"id": 1, "user": "a", "amount": 2.0}\n{"id": oops}\n')
    plan = OutputPlan("x", "orders", "rows", (), tg.ParquetSink(str(tmp_path / "x")))
    job = job_of(local, [bound_read("orders", orders)], [plan], id=uuid.uuid4().hex)
    (failure,) = local.submit(job).result(timeout=60).failures
    assert isinstance(failure.error, RecordUnparsable)
    assert f"position 38 of {bad}" in str(failure.error)
    assert '{"id": oops}' in str(failure.error)
