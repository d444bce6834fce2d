"""Law: whatever way a chain of filters and selects takes, it gives what Spark gives for the chain written plainly."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.depth import deep
from tests.engine.cases import ROWS
from tests.engine.kit import RowSource, job_of, plan_of, read_of, sorted_rows, staged_table

from tidegauge.engine import SparkEngine
from tidegauge.engine.arrowtypes import arrow_schema
from tidegauge.job.functions import conform
from tidegauge.job.plan import Filter, Select, Step

pytestmark = pytest.mark.spark

EPOCHS = 3
ROWWISE: list[tuple[str, list[Step]]] = [
    ("nulls in a condition", [Filter("n > 1")]),
    ("a null condition", [Filter("cast(null AS boolean)")]),
    ("not of null", [Filter("NOT (n > 1)")]),
    ("guarded division", [Filter("n <> 0"), Select(("id", "100 / n AS q"))]),
    ("guarded cast", [Filter("id < 0 OR user = 'x'"), Select(("cast(user AS int) AS u",))]),
    ("a filter guards a filter", [Filter("n <> 0"), Filter("10 / n > 3")]),
    ("a select guards a filter", [Filter("n <> 0"), Select(("n", "id")), Filter("10 / n > 3"), Select(("id",))]),
    ("star", [Select(("*", "id * 2 AS twice"))]),
    ("star after star", [Select(("*", "id + 1 AS b")), Select(("b", "*  ".replace("*", "user")))]),
    ("rename", [Select(("id AS user", "user AS id")), Filter("user > 7")]),
    ("no name", [Select(("id + 1", "upper(user)", "place.lat"))]),
    ("a name of no name", [Select(("id + 1",)), Filter("`(id + 1)` > 3")]),
    ("nested", [Select(("place", "place.tags[0] AS tag")), Select(("place.lat AS lat", "tag")), Filter("lat > 3.5")]),
    ("struct star", [Select(("place.*", "id"))]),
    ("case", [Select(("CASE WHEN n = 0 THEN -1 ELSE 100 / n END AS q", "id"))]),
    ("epoch", [Filter("_epoch > 0"), Select(("_epoch", "id", "_epoch * 10 AS tens"))]),
    ("epoch alone", [Filter("n = 1"), Select(("_epoch",))]),
    ("comments", [Filter("n > 1 -- AND"), Select(("id /* , n */", "n AS m -- last"))]),
    ("strings", [Filter("user <> '(*' AND user <> ')'"), Select(("concat(user, ' AS x') AS s",))]),
    ("or at the top", [Filter("n = 1 OR n = 2"), Filter("id > 20 OR user = 'u1'")]),
    ("instants", [Filter("hour(at) > 3"), Select(("date_trunc('day', at) AS day", "at"))]),
]
GENERAL: list[tuple[str, list[Step]]] = [
    ("explode", [Select(("id", "explode(place.tags) AS tag"))]),
    ("window", [Filter("n > 0"), Select(("id", "row_number() OVER (PARTITION BY _epoch ORDER BY id) AS r"))]),
    ("lateral alias", [Select(("id + 1 AS b", "b * 2 AS c"))]),
    ("star with exceptions", [Select(("* EXCEPT (place)",))]),
    ("a dropped column", [Select(("id",)), Filter("n > 1")]),
    ("scalar subquery", [Filter("id > (SELECT max(id) FROM range(5))")]),
    ("star in a function", [Filter("n > 1"), Select(("id", "to_json(struct(*)) AS j"))]),
]


def plainly(session: Any, steps: list[Step]) -> Any:
    """Return the chain as one would write it, over the same rows."""
    size = ROWS.num_rows
    bounds = [size * i // EPOCHS for i in range(EPOCHS + 1)]
    epochs = [e for e, (lo, hi) in enumerate(itertools.pairwise(bounds)) for _ in range(hi - lo)]
    frame = session.createDataFrame(ROWS.append_column("_epoch", pa.array(epochs, pa.int64())))
    for step in steps:
        if isinstance(step, Filter):
            frame = frame.filter(step.condition)
        elif isinstance(step, Select):
            others = [name for name in frame.columns if name != "_epoch"]
            named = [e for e in step.expressions if e.strip() != "_epoch"]
            chosen = [x for e in named for x in (others if e.strip() == "*" else [e])]
            frame = frame.selectExpr(*chosen, *([] if "EXCEPT" in "".join(chosen) else ["_epoch"]))
    return frame


def expected(session: Any, steps: list[Step]) -> pa.Table:
    frame = plainly(session, steps)
    table = frame.toArrow()
    names = [name for name in table.column_names if name != "_epoch"]
    schema = arrow_schema(frame.select(*[f"`{n}`" for n in names], "_epoch").schema, where="expected")
    batches = [conform(batch, schema) for batch in table.select([*names, "_epoch"]).to_batches()]
    return sorted_rows(pa.Table.from_batches(batches, schema=schema))


def in_utc(session: Any) -> Any:
    """Return a session beside the user's that has the zone in which flows run."""
    beside = session.newSession()
    beside.conf.set("spark.sql.session.timeZone", "UTC")
    return beside


def check(spark: SparkEngine, folder: Path, chains: dict[str, list[Step]]) -> None:
    plans = [plan_of(name, folder, *steps) for name, steps in chains.items()]
    job = job_of(spark, [read_of(RowSource(ROWS), epochs=EPOCHS)], plans)
    result = spark.submit(job).result(timeout=240)
    assert result.failures == ()
    beside = in_utc(spark.session)
    for name, steps in chains.items():
        staged, wanted = staged_table(job, result, name), expected(beside, steps)
        assert staged.to_pylist() == wanted.to_pylist(), name
        assert staged.schema.equals(wanted.schema), name


def test_row_wise_chains_in_one_pass_give_what_they_give_apart(spark: SparkEngine, tmp_path: Path) -> None:
    chains = {name.replace(" ", "_"): steps for name, steps in ROWWISE}
    for name, steps in chains.items():
        prepared = spark._ready(plan_of(name, tmp_path, *steps), ROWS.schema)
        assert prepared.rowwise is not None, f"{name} takes a branch of its own"
    check(spark, tmp_path, chains)


def test_chains_that_are_not_row_wise_take_a_branch_of_their_own(spark: SparkEngine, tmp_path: Path) -> None:
    chains = {name.replace(" ", "_"): steps for name, steps in GENERAL}
    for name, steps in chains.items():
        prepared = spark._ready(plan_of(name, tmp_path, *steps), ROWS.schema)
        assert prepared.rowwise is None, f"{name} runs in the common pass"
    wanted = dict(chains)
    del wanted["star_in_a_function"]  # a plain star has `_epoch` where ours puts it, in another place of the text
    check(spark, tmp_path, wanted)


def test_a_python_function_in_sql_is_called_for_the_rows_that_are_left_only(
    spark: SparkEngine, tmp_path: Path
) -> None:
    def inverse(n: int) -> float:
        return 1 / n

    spark.session.udf.register("inverse", inverse, "double")
    plan = plan_of("x", tmp_path, Filter("n <> 0"), Select(("id", "inverse(n) AS q")))
    job = job_of(spark, [read_of(RowSource(ROWS), epochs=EPOCHS)], [plan])
    rows = staged_table(job, spark.submit(job).result(timeout=240), "x").to_pylist()
    assert {(row["id"], row["q"]) for row in rows} == {
        (row["id"], 1 / row["n"]) for row in ROWS.to_pylist() if row["n"]
    }


CONDITIONS = ["n > 1", "n <> 0", "user = 'u1'", "n IS NULL", "id % 2 = 0 OR n = 3", "place.lat < 9"]
PICKS = [
    ("id", "n", "user", "place"),
    ("*",),
    ("n AS id", "id AS n", "user", "place"),
    ("id", "coalesce(n, 7) AS n", "user", "place"),
    ("n", "user", "place", "id"),
]
CHAIN = st.lists(st.one_of(st.sampled_from(CONDITIONS).map(Filter), st.sampled_from(PICKS).map(Select)), max_size=4)


@deep(6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chains=st.lists(CHAIN, min_size=1, max_size=3))
def test_any_chains_together_give_what_they_give_apart(spark: SparkEngine, chains: list[list[Step]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(spark, Path(folder), {f"x{i}": steps for i, steps in enumerate(chains)})
