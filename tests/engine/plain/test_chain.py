"""Law: steps that are understood wholly give in the task what Spark gives for them, without a way through Spark."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from tests.depth import deep
from tests.engine.cases import ROWS, double, only_ids
from tests.engine.kit import FileSink, RowSource, job_of, plan_of, read_of, rows_of
from tests.engine.plain.texts import ANY, COLUMNS, DATA, DECIMALS, PLAIN, SLOW, WHOLE_NUMBERS

from tidegauge.engine import SparkEngine
from tidegauge.engine.arrowtypes import arrow_schema
from tidegauge.engine.plain import chain, projected
from tidegauge.engine.spark.sql import prepare
from tidegauge.engine.spelling import chosen
from tidegauge.job.functions import RowRefused
from tidegauge.job.plan import Filter, MapBatches, OutputPlan, Select, Step, Transform

DOUBLES = [
    f"{left}{sign}{right}"
    for sign in (" + ", "-", " *")
    for number in [*WHOLE_NUMBERS, *DECIMALS, "x", "f"]
    for left, right in (("x", number), (number, "x"))
]
OTHERS = ["n + 1", "x / 2", "upper(user)", "x --1", "-x", "money * 2", "x * 1e2", "`x`", "count", "f * 2", "N"]


def _same(frame: Any) -> Any:
    return frame


def after_each(frame: Any, steps: Sequence[Filter | Select]) -> list[Any]:
    """Return the frame after each of the steps, as one would write them."""
    frames = []
    for step in steps:
        frame = frame.filter(step.condition) if isinstance(step, Filter) else frame.selectExpr(*step.expressions)
        frames.append(frame)
    return frames


def _written(step: Filter | Select, known: list[str]) -> Filter | Select:
    return Select(tuple(chosen(step, known))) if isinstance(step, Select) else step


def differing(mine: list[Any], theirs: list[Any]) -> list[Any]:
    """Return the first rows that differ. NaN is NaN here, and 0.0 is not -0.0."""
    pairs = itertools.zip_longest(mine, theirs)
    return list(itertools.islice((pair for pair in pairs if repr(pair[0]) != repr(pair[1])), 1))


def _select(names: list[str], others: list[str], texts: list[str], *, star: bool) -> Select:
    """Return a selection that renames columns and gives names to other values."""
    renamed = [f"`{column}` AS `{name}`" for name, column in zip(names, names[::-1], strict=True)]
    return Select((*(["*"] if star else renamed), *map("{} AS `{}`".format, texts, others)))


STEP = st.one_of(
    st.builds(Filter, PLAIN),
    st.builds(Filter, st.one_of(PLAIN, ANY)),
    st.builds(
        _select,
        st.lists(st.sampled_from(list(COLUMNS)), unique=True, min_size=4),
        st.sampled_from([["new"], ["new", "newer"], ["x"], ["f", "user"]]),
        st.lists(st.sampled_from([*DOUBLES, *OTHERS]), max_size=2),
        star=st.booleans(),
    ),
)


@pytest.mark.spark
@deep(6, phases=[Phase.generate], suppress_health_check=SLOW)
@given(many=st.lists(st.lists(STEP, min_size=1, max_size=4), min_size=30, max_size=40))
def test_any_chain_that_is_understood_gives_what_spark_gives(classic: Any, many: list[list[Filter | Select]]) -> None:
    """Where a row raises, Spark may have dropped it before; those are for `test_expressions`."""
    frame = classic.createDataFrame(pa.Table.from_batches([DATA]))
    for steps in many:
        try:
            frames = after_each(frame, steps)
        except AnalysisException:
            continue  # no such column, or one name twice
        names = [one.columns for one in frames]
        written = [_written(step, known) for step, known in zip(steps, [DATA.schema.names, *names], strict=False)]
        made = chain(written, names, DATA.schema)
        if made is not None and made.schema.equals(arrow_schema(frames[-1].schema, where="Spark")):
            try:
                mine = made(DATA).to_pylist()
            except RowRefused:
                continue
            assert differing(mine, frames[-1].toArrow().to_pylist()) == [], steps


@pytest.mark.spark
def test_arithmetic_gives_sparks_values_on_the_edges_too(classic: Any) -> None:
    picks = [f"{text} AS `{number}`" for number, text in enumerate(DOUBLES) if projected(text, DATA.schema)]
    plan = OutputPlan("x", "orders", "rows", (Select(tuple(picks)),), FileSink("/nowhere"))
    [step] = prepare(plan, DATA.schema, classic).alone or ()
    theirs = classic.createDataFrame(pa.Table.from_batches([DATA])).selectExpr(*picks).toArrow()
    assert len(picks) > 70
    assert differing(step.function(DATA).to_pylist(), theirs.to_pylist()) == []


@pytest.mark.spark
@pytest.mark.parametrize(
    ("steps", "rows"),
    [
        (
            [Filter("id < 1"), Select(("id", "user AS who"))],
            [{"id": 0, "who": "u0", "_epoch": 0}],
        ),
        ([Select(("id AS n",)), Filter("n = 39")], [{"n": 39, "_epoch": 3}]),
        (
            [Select(("*",)), Filter("n > 3"), Select(("_epoch", "id")), Filter("id > 34")],
            [{"id": 39, "_epoch": 3}],
        ),
        ([Filter("id = 7"), MapBatches(only_ids), MapBatches(double)], [{"id": 7, "twice": 14, "_epoch": 0}]),
    ],
)
def test_plain_steps_run_in_the_task_that_reads(
    spark: SparkEngine, tmp_path: Path, steps: list[Step], rows: list[dict[str, Any]]
) -> None:
    job = job_of(spark, [read_of(RowSource(ROWS), epochs=4)], [plan_of("x", tmp_path, *steps)])
    direct, others = spark._parted(job)
    assert [write.name for write in direct] == ["x"]
    assert others == []
    assert rows_of(job, spark.submit(job).result(timeout=120), "x") == rows


@pytest.mark.spark
@pytest.mark.parametrize(
    "steps",
    [
        [Filter("id & 2 = 0")],
        [Filter("_epoch > 1")],
        [Filter("id > 1"), Select(("id", "soundex(user) AS user"))],
        [Select(("id",)), Filter("n > 1")],
        [Select(("_epoch",))],
        [Select(("place.*",))],
        [Transform(_same)],
        [MapBatches(double), Filter("twice > 70")],  # called once for all outputs that begin with it
    ],
)
def test_other_steps_are_sparks(spark: SparkEngine, tmp_path: Path, steps: list[Step]) -> None:
    plain, other = plan_of("plain", tmp_path, Filter("id = 1")), plan_of("x", tmp_path, *steps)
    direct, others = spark._parted(job_of(spark, [read_of(RowSource(ROWS))], [plain, other]))
    assert ([write.name for write in direct], [work.plan.name for work, _ in others]) == (["plain"], ["x"])


def test_a_column_to_which_spark_gives_another_name_is_another_column() -> None:
    """As with `spark.sql.parser.quotedRegexColumnNames`, where quotes are those of a pattern."""
    schema = pa.schema([("a", pa.int64()), ("a|b", pa.int64())])
    assert chain([Select(("`a|b`",))], [["a"]], schema) is None
    assert chain([Select(("`a|b`",))], [["a|b"]], schema) is not None
