"""Law: what the local engine accepts of SQL has the names, the types and the rows that Spark gives for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.engine.cases import ROWS, double, only_ids
from tests.engine.kit import FileSink, RowSource, job_of, plan_of, read_of, rows_of
from tests.engine.plain.test_chain import STEP
from tests.engine.plain.texts import DATA, SLOW

import tidegauge as tg
from tidegauge.engine import LocalEngine
from tidegauge.engine.plain.steps import without_spark
from tidegauge.engine.spark.sql import prepare
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.engine import DuplicateColumn, ExpressionFailed, NoSparkType, WrongBatch
from tidegauge.errors.flow import NeedsSpark, ReservedColumn, UnknownColumn
from tidegauge.job.functions import result_schema, with_epoch
from tidegauge.job.plan import Filter, MapBatches, OutputPlan, Partition, Select, Step, Transform


def plan(*steps: Step) -> OutputPlan:
    return OutputPlan("x", "orders", "rows", steps, FileSink("/nowhere"))


def same_as_spark(session: Any, steps: list[Step], schema: pa.Schema) -> bool:
    """Compare what is accepted without Spark with Spark's analysis; return whether it is accepted."""
    try:
        functions, _ = without_spark(steps, schema, output="x")
    except TidegaugeError:
        return False
    prepared = prepare(plan(*steps), schema, session)
    assert with_epoch(result_schema(functions, schema, output="x")).equals(prepared.schema), steps
    [mine], [theirs] = functions, prepared.alone or ()
    assert mine.function.chain == theirs.function, steps  # type: ignore[attr-defined]
    return True


@pytest.mark.spark
@settings(max_examples=2, phases=[Phase.generate], deadline=None, suppress_health_check=SLOW)
@given(many=st.lists(st.lists(STEP, min_size=1, max_size=4), min_size=20, max_size=24))
def test_what_is_accepted_is_what_the_spark_engine_runs_in_its_tasks(classic: Any, many: list[list[Step]]) -> None:
    for steps in many:
        same_as_spark(classic, steps, DATA.schema)


@pytest.mark.spark
def test_names_and_types_are_those_of_spark(classic: Any) -> None:
    schema = pa.schema(
        [
            ("id", pa.uint32()),
            ("user", pa.large_string()),
            ("amount", pa.float64()),
            ("at", pa.timestamp("ns", "Europe/Oslo")),
            ("deep", pa.list_(pa.struct([("k", pa.int8())]))),
            ("date", pa.date64()),
        ]
    )
    chains: list[list[Step]] = [
        [Filter("amount > 100"), Select(("id", "user", "amount * 1.2 AS gross"))],
        [Select(("*", "amount - 1 AS `a b`", "at AS AT2"))],
        [Select(("deep", "date", "at")), Filter("date IS NOT NULL")],
        [Select(("id AS user", "user AS id")), Filter("user > 3 AND id LIKE 'a%'")],
        [Filter("id BETWEEN 1 AND 3 OR user IN ('a', 'b')")],
        [Select(("id", "_epoch"))],
    ]
    assert [same_as_spark(classic, steps, schema) for steps in chains] == [True] * len(chains)


@pytest.mark.parametrize(
    ("steps", "named"),
    [
        ([Filter("soundex(user) > 'a'")], "filter(\"soundex(user) > 'a'\")"),
        ([Select(("id", "amount * 2"))], "select('id', 'amount * 2')"),
        ([Select(("id", "id & 1 AS last"))], "select('id', 'id & 1 AS last')"),
        ([Select(("id", "id + 1 AS next")), Filter("id > 1")], "filter('id > 1')"),
        ([Filter("ID > 1")], "filter('ID > 1')"),
        ([Filter("amount > 1"), Select(("soundex(user) AS user",))], "select('soundex(user) AS user')"),
        ([Transform(double)], "transform(double)"),
        ([Filter("current_path = 'x'")], "filter(\"current_path = 'x'\")"),
    ],
)
def test_all_else_is_refused_with_the_step_as_it_is_written(steps: list[Step], named: str) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("user", pa.string()), ("amount", pa.float64()), ("current_path", pa.string())]
    )
    with pytest.raises(NeedsSpark) as caught:
        without_spark(steps, schema, output="x")
    assert f"output 'x' has the step {named}, which needs Spark" in str(caught.value)


@pytest.mark.parametrize(
    ("steps", "error", "text"),
    [
        ([Filter("amout > 1")], UnknownColumn, "filter of output 'x' names the column 'amout'"),
        ([Select(("id AS a", "amout AS b"))], UnknownColumn, "the nearest is 'amount'"),
        ([Select(("id",)), Filter("amount > 1")], UnknownColumn, "Known: 'id'"),
        ([Select(("id AS _epoch",))], ReservedColumn, "_epoch"),
        ([Select(("id", "amount AS ID"))], DuplicateColumn, "select of output 'x'"),
        ([Filter("id > 1")], NoSparkType, "'clock'"),
    ],
)
def test_what_is_wrong_with_a_step_is_said_without_spark_too(
    steps: list[Step], error: type[TidegaugeError], text: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
    if error is NoSparkType:
        schema = schema.append(pa.field("clock", pa.time64("us")))
    with pytest.raises(error, match=text):
        without_spark(steps, schema, output="x")


def test_arrow_functions_and_plain_sql_follow_one_another(local: LocalEngine, tmp_path: Path) -> None:
    chain = (Filter("n > 2"), MapBatches(double), Select(("id", "twice")), Filter("twice < 20"), MapBatches(only_ids))
    job = job_of(local, [read_of(RowSource(ROWS), epochs=3)], [plan_of("x", tmp_path, *chain)])
    found = rows_of(job, local.submit(job).result(timeout=60), "x")
    wanted = [row["id"] for row in ROWS.to_pylist() if (row["n"] or 0) > 2 and row["id"] < 10]
    assert [row["id"] for row in found] == wanted


def test_a_row_that_an_expression_cannot_take_fails_that_output_at_its_epoch(
    local: LocalEngine, tmp_path: Path
) -> None:
    """As on Spark, where it is told with the same class."""
    plans = [
        plan_of("divided", tmp_path, Select(("id", "100 / (id - 25) AS q"))),
        plan_of("guarded", tmp_path, Filter("id <> 25"), Select(("id", "100 / (id - 25) AS q"))),
        plan_of("chosen", tmp_path, Select(("id", "CASE WHEN id <> 25 THEN 100 / (id - 25) END AS q"))),
    ]
    job = job_of(local, [read_of(RowSource(ROWS), epochs=4)], plans)
    result = local.submit(job).result(timeout=60)
    assert {f.output: f.epoch for f in result.failures} == {"divided": 2}
    assert all(isinstance(f.error, ExpressionFailed) for f in result.failures)
    assert "[DIVIDE_BY_ZERO] Division by zero" in str(result.failures[0].error)
    assert sorted(row["id"] for row in rows_of(job, result, "guarded")) == [i for i in range(40) if i != 25]
    chosen = {row["id"]: row["q"] for row in rows_of(job, result, "chosen")}
    assert chosen == {i: 100 / (i - 25) if i != 25 else None for i in range(40)}


def swapped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Columns in another order as soon as there are rows."""
    return batch.select(["n", "id"] if batch.num_rows else ["id", "n"])


def as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "id", batch["id"].cast(pa.string() if batch.num_rows else pa.int64()))


@pytest.mark.parametrize("wrong", [swapped, as_text])
@pytest.mark.parametrize(
    "after",
    [Filter("id > -1"), Select(("id",)), MapBatches(only_ids), Partition(2, ("id",), 0)],
    ids=["a filter", "a select", "a function", "a part"],
)
def test_a_function_that_returns_other_columns_is_told_before_the_next_step_sees_them(
    wrong: Any, after: Step, local: LocalEngine, tmp_path: Path
) -> None:
    job = job_of(local, [read_of(RowSource(ROWS), epochs=2)], [plan_of("x", tmp_path, MapBatches(wrong), after)])
    [failure] = local.submit(job).result(timeout=60).failures
    assert isinstance(failure.error, WrongBatch)
    assert failure.error.evidence["function"] == wrong.__name__
    assert failure.epoch == 0


def test_a_flow_of_plain_sql_runs_where_there_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    flow = tg.Dataflow("plain", store=f"sqlite:///{tmp_path}/flow.db")
    rows = flow.source("rows", tg.GeneratorSource(rows=50, columns="id long, amount double"))
    large = rows.filter("amount > 0.5").select("id", "amount * 2 AS twice")
    flow.sink("all", rows, tg.DeltaSink(str(tmp_path / "all")))
    flow.sink("large", large, tg.DeltaSink(str(tmp_path / "large")))
    flow.run("caught-up", engine="local")
    every: Any = tg.read_arrow(flow, "all")
    kept = every.filter(pc.greater(every["amount"], 0.5))
    found = tg.read_arrow(flow, "large").sort_by("id")
    assert found.column_names == ["id", "twice", "_epoch"]
    assert found["twice"].to_pylist() == [2 * amount for amount in kept.sort_by("id")["amount"].to_pylist()]
    assert 0 < found.num_rows < 50
