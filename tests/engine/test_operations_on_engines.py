"""Law: every way through an engine does to rows with an operation what the definition says of each row."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.changes import COLUMNS, Row, history, kept, table_of
from tests.depth import deep
from tests.engine.kit import BATCH, RowSource, job_of, plan_of, read_of, rows_of

from tidegauge import operations
from tidegauge.engine import LocalEngine, SparkEngine
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.engine import LostOperation, UnknownOperation, WrongOperation
from tidegauge.errors.flow import OperationColumnUnfit, ReservedColumn, UnknownColumn
from tidegauge.job.plan import Changelog, Engine, Filter, MapBatches, Select, Step, Transform

Rows = list[Row]


def as_it_is(given: Any) -> Any:
    return given


def above(limit: int) -> Callable[[Row], bool | None]:
    return lambda row: None if row["n"] is None else row["n"] > limit


def user_a(row: Row) -> bool | None:
    return None if row["user"] is None else row["user"] == "a"


def picked(rows: Rows, *names: str) -> Rows:
    return [{name: row[name] for name in (*names, "_op")} for row in rows]


PLAIN: dict[str, tuple[list[Step], Callable[[Rows], Rows]]] = {
    "filter": ([Filter("n > 2")], lambda rows: kept(rows, above(2))),
    "two_filters": ([Filter("n > 1"), Filter("user = 'a'")], lambda rows: kept(kept(rows, above(1)), user_a)),
    "select": ([Select(("user", "id"))], lambda rows: picked(rows, "user", "id")),
    "mentioned": ([Select(("_op", "id", "_epoch"))], lambda rows: picked(rows, "id")),
    "star": (
        [Filter("n > 2"), Select(("*", "user AS who"))],
        lambda rows: [
            {"id": r["id"], "n": r["n"], "user": r["user"], "who": r["user"], "_op": r["_op"]}
            for r in kept(rows, above(2))
        ],
    ),
    "filter_select_filter": (
        [Filter("n > 0"), Select(("n", "id", "user")), Filter("user = 'a'")],
        lambda rows: picked(kept(kept(rows, above(0)), user_a), "n", "id", "user"),
    ),
    "by_the_operation": ([Filter("_op <> 'before'")], lambda rows: [r for r in rows if r["_op"] != "before"]),
    "changelog": (
        [Filter("n > 2"), Select(("id",)), Changelog("op")],
        lambda rows: [{"id": r["id"], "op": r["_op"]} for r in kept(rows, above(2))],
    ),
    "after_a_changelog_rows_are_data": (
        [Changelog("op"), Filter("n > 2"), Select(("id", "op"))],
        lambda rows: [{"id": r["id"], "op": r["_op"]} for r in rows if above(2)(r)],
    ),
    "function": ([Filter("n > 2"), MapBatches(as_it_is)], lambda rows: kept(rows, above(2))),
    "never_asked_of_a_delete": (
        [Filter("n IS NULL OR n <> 0"), Filter("12 / n > 3")],
        lambda rows: kept(rows, lambda row: bool(row["n"]) and 12 / row["n"] > 3),
    ),
    "made": (
        [
            Changelog("was"),
            Select(("id", "n", "user", "CASE was WHEN 'before' THEN 'insert' ELSE was END AS _op")),
            Filter("n > 2"),
        ],
        lambda rows: kept([r | {"_op": "insert" if r["_op"] == "before" else r["_op"]} for r in rows], above(2)),
    ),
}
OTHERS: dict[str, tuple[list[Step], Callable[[Rows], Rows]]] = {
    "spelt_for_spark": ([Filter("greatest(n, -1) > 2 -- above")], lambda rows: kept(rows, above(2))),
    "partly_understood": (
        [Filter("n > 2 AND reverse(user) = 'a'")],
        lambda rows: kept(rows, lambda row: above(2)(row) and user_a(row)),
    ),
    "spark_never_asked_of_a_delete": (
        [Filter("n IS NULL OR n <> 0"), Filter("greatest(12 / n, 0) > 3")],
        lambda rows: kept(rows, lambda row: bool(row["n"]) and 12 / row["n"] > 3),
    ),
    "select_of_spark": (
        [Filter("greatest(n, -1) > 2"), Select(("id", "reverse(user) AS u"))],
        lambda rows: [
            {"id": r["id"], "u": r["user"] and r["user"][::-1], "_op": r["_op"]} for r in kept(rows, above(2))
        ],
    ),
    "star_with_exceptions": (
        [Select(("* EXCEPT (user)",)), Filter("n > 2")],
        lambda rows: [{"id": r["id"], "n": r["n"], "_op": r["_op"]} for r in kept(rows, above(2))],
    ),
    "frames": (
        [Filter("n > 2"), Transform(as_it_is), Filter("user = 'a'")],
        lambda rows: kept(kept(rows, above(2)), user_a),
    ),
    "between": (
        [Filter("greatest(n, -1) > 2"), MapBatches(as_it_is), Filter("user = 'a'")],
        lambda rows: kept(kept(rows, above(2)), user_a),
    ),
    "leading": ([MapBatches(as_it_is), Filter("n > 2")], lambda rows: kept(rows, above(2))),
    "renamed_in_spark": (
        [Filter("greatest(n, -1) > 2"), Changelog("op"), Select(("id", "upper(op) AS op"))],
        lambda rows: [{"id": r["id"], "op": r["_op"].upper()} for r in kept(rows, above(2))],
    ),
}


def check(engine: Engine, rows: Rows, cases: dict[str, tuple[list[Step], Callable[[Rows], Rows]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plans = [plan_of(name, folder, *steps) for name, (steps, _) in cases.items()]
        job = job_of(engine, [read_of(RowSource(table_of(rows)), epochs=2)], plans)
        result = engine.submit(job).result(timeout=240)
        assert result.failures == ()
        half = len(rows) // 2
        for name, (_, model) in cases.items():
            wanted = [row | {"_epoch": e} for e, part in enumerate((rows[:half], rows[half:])) for row in model(part)]
            found = rows_of(job, result, name)
            assert sorted(map(repr, found)) == sorted(map(repr, wanted)), name


@deep(40)
@given(seed=st.integers(0, 1 << 32))
def test_without_spark_every_row_has_the_operation_that_the_definition_says(seed: int) -> None:
    engine = LocalEngine(threads=0)
    check(engine, history(seed, size=40), PLAIN)
    engine.close()


@pytest.mark.spark
@deep(4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 32))
def test_on_spark_every_row_has_the_operation_that_the_definition_says(spark: SparkEngine, seed: int) -> None:
    check(spark, history(seed, size=60), PLAIN | OTHERS)


@pytest.mark.spark
def test_operations_take_the_same_ways_through_spark_as_other_rows(spark: SparkEngine, tmp_path: Path) -> None:
    for name, (steps, _) in (PLAIN | OTHERS).items():
        prepared = spark._ready(plan_of(name, tmp_path, *steps), COLUMNS)
        branch = name in {"frames", "between", "star_with_exceptions"}
        assert (prepared.alone is not None) == (name in PLAIN), f"{name} runs in the task that reads"
        assert (prepared.rowwise is None) == branch, f"{name} has a branch of its own"
    prefilter = spark._ready(plan_of("partly", tmp_path, *OTHERS["partly_understood"][0]), COLUMNS).kept
    assert prefilter is not None, "rows that no output keeps stay in the task"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ([Transform(lambda frame: frame.drop("_op"))], LostOperation),
        ([Transform(lambda frame: frame.selectExpr("id", "1 AS _op", "_epoch"))], LostOperation),
        ([Select(("id", "upper(_op) AS _op"))], ReservedColumn),
        ([Changelog("was"), Select(("id", "1 AS _op"))], OperationColumnUnfit),
        ([Changelog("op"), Changelog("again")], UnknownColumn),
    ],
)
def test_a_step_that_takes_the_operation_away_is_refused(
    spark: SparkEngine, tmp_path: Path, steps: list[Step], error: type[TidegaugeError]
) -> None:
    with pytest.raises(error, match="'x'"):
        spark.schema(plan_of("x", tmp_path, *steps), COLUMNS)


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ([MapBatches(lambda batch: batch.select(["id"]))], LostOperation),
        ([MapBatches(as_it_is, pa.schema([("id", pa.int64()), ("_op", pa.int64())]))], OperationColumnUnfit),
        ([Select(("id", "user AS _op"))], ReservedColumn),
        ([Changelog("was"), Select(("id", "n AS _op"))], OperationColumnUnfit),
        ([Changelog("op"), Changelog("again")], UnknownColumn),
    ],
)
def test_without_spark_too(
    local: LocalEngine, tmp_path: Path, steps: list[Step], error: type[TidegaugeError]
) -> None:
    with pytest.raises(error, match="'x'"):
        local.schema(plan_of("x", tmp_path, *steps), COLUMNS)


def shouted(batch: pa.RecordBatch) -> pa.RecordBatch:
    column = pa.array([op.upper() for op in batch["_op"].to_pylist()], pa.string())
    return batch.set_column(3, "_op", column)


def test_a_function_that_makes_up_an_operation_fails_its_output_alone(local: LocalEngine, tmp_path: Path) -> None:
    plans = [plan_of("all", tmp_path), plan_of("loud", tmp_path, MapBatches(shouted))]
    job = job_of(local, [read_of(RowSource(table_of(history(1, size=20))))], plans)
    [failure] = local.submit(job).result(timeout=60).failures
    assert (failure.output, type(failure.error)) == ("loud", WrongOperation)
    assert "'INSERT' is none of insert" in str(failure.error)


def test_a_source_that_gives_another_word_fails(local: LocalEngine, tmp_path: Path) -> None:
    rows = table_of([{"id": 1, "n": 1, "user": "a", "_op": "insert"}, {"id": 2, "n": 1, "user": "a", "_op": "c"}])
    job = job_of(local, [read_of(RowSource(rows))], [plan_of("all", tmp_path, Changelog("op"))])
    [failure] = local.submit(job).result(timeout=60).failures
    assert (failure.output, type(failure.error)) == (None, UnknownOperation)
    for part in ("TG-0520", "'c' is none of insert", "'id': 2", "'orders'"):
        assert part in str(failure.error)


@pytest.mark.parametrize("steps", [(), (Filter("id > 2"), Select(("id", "n AS m"))), (MapBatches(as_it_is),)])
def test_rows_without_operations_pay_nothing_for_them(tmp_path: Path, steps: tuple[Step, ...]) -> None:
    def calls(batches: int) -> int:
        """How often a job over so many batches calls what `tidegauge.operations` defines."""
        engine, found = LocalEngine(threads=0), 0

        def count(frame: Any, event: str, _arg: Any) -> None:
            nonlocal found
            found += event == "call" and frame.f_code.co_filename == operations.__file__

        rows = pa.table({"id": pa.array(range(batches * BATCH)), "n": pa.array(range(batches * BATCH))})
        job = job_of(engine, [read_of(RowSource(rows))], [plan_of(f"x{batches}", tmp_path, *steps)])
        sys.setprofile(count)
        try:
            result = engine.submit(job).result(timeout=60)
        finally:
            sys.setprofile(None)
        assert (result.failures, result.records) == ((), {"orders": batches * BATCH})
        return found

    assert calls(1) == calls(20)
