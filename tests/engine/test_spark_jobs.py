"""Jobs on a classic session: failures as data, failures of the engine, and what is refused before a job runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.cases import ROWS, closed_while_running
from tests.engine.kit import RowSource, job_of, plan_of, read_of, rows_of

from tidegauge.engine import SparkEngine
from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.engine import (
    DuplicateColumn,
    ExpressionFailed,
    JobFailed,
    LostEpoch,
    NoSparkType,
    RecordUnparsable,
    TransformFailed,
)
from tidegauge.errors.flow import BatchFunctionFailed, InvalidExpression, ReservedColumn, UnknownColumn
from tidegauge.errors.running import SourceUnreachable, UpstreamRecreated
from tidegauge.job.plan import Filter, MapBatches, Select, Transform
from tidegauge.sources.protocol import Split

pytestmark = pytest.mark.spark


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def test_a_killed_worker_fails_the_job_and_the_next_job_runs(spark: SparkEngine, tmp_path: Path) -> None:
    mark = tmp_path / "killed"

    def die_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    plan = plan_of("x", tmp_path, MapBatches(die_once, ROWS.schema))
    job = job_of(spark, [read_of(RowSource(ROWS))], [plan])
    error = spark.submit(job).exception(timeout=60)
    assert isinstance(error, JobFailed)
    assert "Python worker exited unexpectedly" in str(error)
    assert ids(rows_of(job, spark.submit(job).result(timeout=60), "x")) == list(range(40))


def test_closing_cancels_a_running_job(classic: Any, tmp_path: Path) -> None:
    error = closed_while_running(SparkEngine(classic), tmp_path)
    assert isinstance(error, JobFailed)
    assert "the engine was closed" in str(error)
    assert classic.range(3).count() == 3


def test_a_function_that_raises_fails_its_output_alone_wherever_it_stands(spark: SparkEngine, tmp_path: Path) -> None:
    def fussy(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 30 in batch["id"].to_pylist():
            raise ValueError("thirty")
        return batch

    plans = [
        plan_of("direct", tmp_path, MapBatches(fussy)),
        plan_of("before", tmp_path, MapBatches(fussy), Filter("id >= 0")),
        plan_of("after", tmp_path, Filter("id >= 0"), MapBatches(fussy)),
        plan_of("between", tmp_path, Filter("id >= 0"), MapBatches(fussy), Select(("id",))),
        plan_of("fine", tmp_path, Filter("id >= 0")),
        plan_of("plain", tmp_path),
    ]
    job = job_of(spark, [read_of(RowSource(ROWS), epochs=4)], plans)
    result = spark.submit(job).result(timeout=120)
    assert {f.output: f.epoch for f in result.failures} == {"direct": 3, "before": 3, "after": 3, "between": 3}
    assert all(isinstance(f.error, BatchFunctionFailed) for f in result.failures)
    assert ids(rows_of(job, result, "fine")) == ids(rows_of(job, result, "plain")) == list(range(40))


@pytest.mark.long
def test_a_row_that_an_expression_cannot_take_fails_that_output_at_its_epoch(
    spark: SparkEngine, tmp_path: Path
) -> None:
    plans = [
        plan_of("divided", tmp_path, Select(("id", "100 / (id - 25) AS q"))),
        plan_of("cast", tmp_path, Select(("cast(user AS int) AS u",))),
        plan_of("guarded", tmp_path, Filter("id <> 25"), Select(("id", "100 / (id - 25) AS q"))),
        plan_of("plain", tmp_path),
    ]
    job = job_of(spark, [read_of(RowSource(ROWS), epochs=4)], plans)
    result = spark.submit(job).result(timeout=120)
    assert {f.output: f.epoch for f in result.failures} == {"divided": 2, "cast": 0}
    assert all(isinstance(f.error, ExpressionFailed) for f in result.failures)
    texts = {f.output: str(f.error) for f in result.failures}
    assert "[DIVIDE_BY_ZERO]" in texts["divided"]
    assert "CAST_INVALID_INPUT" in texts["cast"]
    assert ids(rows_of(job, result, "guarded")) == [i for i in range(40) if i != 25]
    assert ids(rows_of(job, result, "plain")) == list(range(40))


def test_bad_records_fail_the_source_or_are_rows_with_steps_of_their_own(spark: SparkEngine, tmp_path: Path) -> None:
    source = RowSource(ROWS, bad=frozenset({5, 35}))
    plans = [
        plan_of("good", tmp_path, Filter("id > 3")),
        plan_of("bad", tmp_path, channel="errors"),
        plan_of("late", tmp_path, Filter("position > 10"), Select(("position",)), channel="errors"),
    ]
    job = job_of(spark, [read_of(source, epochs=4, collect=True)], plans)
    result = spark.submit(job).result(timeout=60)
    assert result.failures == ()
    assert ids(rows_of(job, result, "good")) == [i for i in range(4, 40) if i not in (5, 35)]
    assert sorted((r["position"], r["_epoch"]) for r in rows_of(job, result, "bad")) == [(5, 0), (35, 3)]
    assert rows_of(job, result, "late") == [{"position": 35, "_epoch": 3}]

    strict = job_of(spark, [read_of(source, epochs=4)], plans[:1])
    (failure,) = spark.submit(strict).result(timeout=60).failures
    assert (failure.output, failure.epoch) == (None, 0)
    assert isinstance(failure.error, RecordUnparsable)


def test_a_source_that_failed_leaves_the_outputs_of_another(spark: SparkEngine, tmp_path: Path) -> None:
    reads = [read_of(RowSource(ROWS), name="a"), read_of(RowSource(ROWS, fails_at=3), name="b")]
    plans = [
        plan_of("a1", tmp_path, Filter("id < 9"), source="a"),
        plan_of("a2", tmp_path, Transform(lambda frame: frame.distinct()), source="a"),
        plan_of("b1", tmp_path, Filter("id < 9"), source="b"),
        plan_of("b2", tmp_path, Transform(lambda frame: frame.distinct()), source="b"),
    ]
    job = job_of(spark, reads, plans)
    result = spark.submit(job).result(timeout=120)
    assert [(f.source, f.output) for f in result.failures] == [("b", None)]
    assert {name: staged.rows for name, staged in result.staged.items()} == {"a1": 9, "a2": 40, "b1": 0, "b2": 0}


@dataclass(frozen=True)
class Unread(RowSource):
    """A source that Spark is to read by itself and cannot. why: what upstream says when it is asked."""

    why: TidegaugeError | None = None
    framed: bool = True

    def frame(self, session: Any, splits: Sequence[Any]) -> Any:
        return session.range(0, 1, 1, 1).selectExpr("raise_error('no answer') AS value")

    def received(self, batches: Iterator[pa.RecordBatch], splits: Sequence[Any]) -> Iterator[Split]:
        yield from splits

    def missing(self, splits: Sequence[Any]) -> tuple[int, TidegaugeError] | None:
        assert self.why is not None
        if isinstance(self.why, Transient):
            raise self.why
        return splits[-1].epoch, self.why


def test_sources_that_spark_cannot_read_leave_the_outputs_of_another(spark: SparkEngine, tmp_path: Path) -> None:
    lost = UpstreamRecreated(source="lost", known="a", found="b")
    away = SourceUnreachable(source="away", error="OSError", detail="no route")
    reads = [
        read_of(Unread(ROWS, why=lost), name="lost", epochs=4),
        read_of(Unread(ROWS, why=away), name="away", epochs=4),
        read_of(RowSource(ROWS), epochs=4),
    ]
    plans = [
        plan_of("lost", tmp_path, source="lost"),
        plan_of("away", tmp_path, source="away"),
        plan_of("arrow", tmp_path),
        plan_of("sql", tmp_path, Filter("id >= 0")),
    ]
    job = job_of(spark, reads, plans)
    result = spark.submit(job).result(timeout=120)
    found = [(failure.source, failure.output, failure.epoch, failure.error.code) for failure in result.failures]
    assert found == [("lost", None, 3, lost.code), ("away", None, 0, away.code)]
    assert ids(rows_of(job, result, "arrow")) == ids(rows_of(job, result, "sql")) == list(range(40))


def test_a_large_plan_reaches_its_tasks(spark: SparkEngine, tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(20_000), pa.int64())})
    job = job_of(spark, [read_of(RowSource(rows), epochs=2, pieces=2500)], [plan_of("x", tmp_path)])
    result = spark.submit(job).result(timeout=120)
    assert result.staged["x"].rows == 20_000
    assert len(result.staged["x"].files) <= spark.parallelism * 4


def test_a_job_that_leaves_room_for_others_has_half_as_many_tasks_as_there_are_slots(
    spark: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.engine.parts.TINY", 1)
    job = job_of(spark, [read_of(RowSource(ROWS), pieces=20)], [plan_of("x", tmp_path)])
    result = spark.submit(job).result(timeout=120)
    assert len(result.staged["x"].files) > spark.parallelism
    result = spark.submit(replace(job, beside=True, id="j1")).result(timeout=120)
    assert result.staged["x"].rows == ROWS.num_rows
    assert len(result.staged["x"].files) == spark.parallelism // 2


@pytest.mark.parametrize(
    ("steps", "error", "said"),
    [
        ([Filter("nn > 1")], UnknownColumn, "filter of output 'x' names the column 'nn'"),
        ([Select(("id", "usr"))], UnknownColumn, "the nearest is 'user'"),
        ([Select(("id",)), Select(("n",))], UnknownColumn, "Known: 'id'"),
        ([Filter("n >")], InvalidExpression, "filter is not accepted by Spark"),
        ([Filter("user + 1")], InvalidExpression, "filter"),
        ([Select(("sum(n)",))], InvalidExpression, "select"),
        ([Filter("1 / 0 > 1")], InvalidExpression, "filter is not accepted by Spark: [DIVIDE_BY_ZERO]"),
        ([Filter("n > 1"), Select(("cast('x' AS int) AS x",)), Filter("x = 1")], InvalidExpression, "select is not"),
        ([Select(("id AS _epoch",))], ReservedColumn, "_epoch"),
        ([Select(("id AS __tg_x",))], ReservedColumn, "__tg_x"),
        ([Select(("id", "n AS ID"))], DuplicateColumn, "ID"),
        ([Transform(lambda frame: frame.select("id"))], LostEpoch, "id bigint"),
        ([Transform(lambda frame: frame.nope)], TransformFailed, "nope"),
        ([Transform(lambda frame: 3)], TransformFailed, "returned a int"),
    ],
)
def test_steps_that_cannot_be_are_refused_before_a_job_runs(
    spark: SparkEngine,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    steps: list[Any],
    error: type[Exception],
    said: str,
) -> None:
    with pytest.raises(error) as caught:
        spark.schema(plan_of("x", tmp_path, *steps), ROWS.schema)
    assert said in str(caught.value)
    assert "JVM" not in str(caught.value)
    assert "QueryContextLogger" not in capfd.readouterr().err


def test_columns_that_spark_has_no_type_for_are_named(spark: SparkEngine, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.time32("s"))])
    with pytest.raises(NoSparkType, match="'at'"):
        spark.schema(plan_of("x", tmp_path, Filter("id > 1")), schema)
    assert spark.schema(plan_of("x", tmp_path), schema).names == ["id", "at", "_epoch"]


def test_a_given_session_keeps_its_configuration(classic: Any, tmp_path: Path) -> None:
    before = dict(classic.conf.getAll)
    engine = SparkEngine(classic, pool="backfill")
    job = job_of(engine, [read_of(RowSource(ROWS))], [plan_of("x", tmp_path, Filter("id > 3"))])
    assert engine.submit(job).result(timeout=60).staged["x"].rows == 36
    engine.close()
    assert dict(classic.conf.getAll) == before


def test_values_cross_the_session_unchanged_in_any_zone(spark: SparkEngine, tmp_path: Path) -> None:
    assert spark.session.conf.get("spark.sql.session.timeZone") == "America/New_York"
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.uint32()),
            "at": pa.array([1_774_742_400_000_000_123, None], pa.timestamp("ns", "Europe/Oslo")),
            "wall": pa.array([0, 7_200_000], pa.timestamp("ms")),
            "money": pa.array(["1.50", None]).cast(pa.decimal128(10, 2)),
            "raw": pa.array([b"\x00\xff", b""], pa.large_binary()),
            "deep": pa.array([[{"k": [1]}], None], pa.list_(pa.struct([("k", pa.list_(pa.int8()))]))),
            "name with `.`": pa.array(["x", "y"]).dictionary_encode(),
        }
    )
    plans = [plan_of("spark", tmp_path, Filter("id > 0")), plan_of("arrow", tmp_path)]
    job = job_of(spark, [read_of(RowSource(rows))], plans)
    result = spark.submit(job).result(timeout=60)
    through, direct = rows_of(job, result, "spark"), rows_of(job, result, "arrow")
    assert direct[0]["at"].nanosecond == 123
    assert [(r["at"] and int(r["at"].timestamp() * 1e6)) for r in through] == [1_774_742_400_000_000, None]
    assert [{k: v for k, v in r.items() if k != "at"} for r in through] == [
        {k: v for k, v in r.items() if k != "at"} for r in direct
    ]
