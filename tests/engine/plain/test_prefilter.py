"""Law: a row that a filter of Spark's keeps, or for which it raises, is never dropped before Spark sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.cases import ROWS, double
from tests.engine.kit import RowSource, job_of, plan_of, read_of
from tests.engine.plain.texts import CHAIN, DATA, SIZE, SLOW, rows_kept

from tidegauge.engine import SparkEngine
from tidegauge.engine.plain import KeptRows, Prefilter, understood
from tidegauge.engine.spark.sql import Prepared
from tidegauge.job.plan import EpochJob, Filter, MapBatches, OutputWork, Select
from tidegauge.job.report import Report
from tidegauge.job.task import Feed, run


@pytest.mark.spark
@settings(max_examples=3, deadline=None, suppress_health_check=SLOW)
@given(chains=st.lists(CHAIN, min_size=40, max_size=60))
def test_what_is_dropped_spark_neither_keeps_nor_refuses(classic: Any, chains: list[list[str]]) -> None:
    """Each row that is dropped is evaluated by Spark, which raises nothing; so are all rows of what is understood."""
    chains = [["flag"], *chains]
    cases: list[tuple[int, int, bool, bool]] = []
    for number, chain in enumerate(chains):
        kept, whole = rows_kept(DATA, *chain) or (list(range(SIZE)), False)
        cases += [(number, row, row in kept, whole) for row in range(SIZE) if whole or row not in kept]
    asked = {number for number, *_ in cases}
    table = pa.Table.from_batches([DATA.take(pa.array([row for _, row, *_ in cases]))])
    table = table.append_column("__case", pa.array([number for number, *_ in cases]))
    branches = [
        f"WHEN {number} THEN " + " AND ".join(f"({text}\n)" for text in chain)
        for number, chain in enumerate(chains)
        if number in asked
    ]
    frame = classic.createDataFrame(table).selectExpr(f"CASE __case {' '.join(branches)} END AS said")
    said = frame.toArrow()["said"].to_pylist()
    for (number, row, stays, whole), answer in zip(cases, said, strict=True):
        assert stays or answer is not True, f"{chains[number]} keeps {DATA.slice(row, 1).to_pylist()}"
        assert not (stays and whole) or answer is True, f"{chains[number]} drops {DATA.slice(row, 1).to_pylist()}"


def test_a_prefilter_keeps_what_one_of_the_outputs_may_keep_and_the_task_counts_all_rows() -> None:
    source = RowSource(pa.table({"n": pa.array(range(3000), pa.int64())}))
    schema = source.schema.append(pa.field("_epoch", pa.int64()))
    kept = [understood([text], schema) for text in ("n < 2", "n = 1 OR n > 2998")]
    prefilter = Prefilter(tuple(KeptRows(found[0], closed=found[1]) for found in kept if found))
    feed = Feed("orders", "rows", (), source.schema, schema, ("a", "b"), prefilter)
    read = read_of(source, epochs=2)
    report = Report()
    batches = [batch for _, batch in run([read], [], [feed], report, job="j", task=0)]
    assert [batch.to_pydict() for batch in batches] == [{"n": [0, 1], "_epoch": [0, 0]}, {"n": [2999], "_epoch": [1]}]
    assert report.records == {"orders": 3000}


@pytest.mark.spark
def test_a_feed_is_filtered_where_all_of_its_outputs_begin_with_a_filter(spark: SparkEngine, tmp_path: Path) -> None:
    filtered = [
        plan_of("large", tmp_path, Filter("id >= 30"), Select(("id",))),
        plan_of("after", tmp_path, MapBatches(double), Filter("twice > 70")),
        plan_of("divided", tmp_path, Filter("n > 1 AND 12 / (id - 36) > 3")),
    ]
    job = job_of(spark, [read_of(RowSource(ROWS), epochs=4)], filtered)
    feeds, _ = spark._branches(_ready(spark, job))
    handed = [feed.prefilter and feed.prefilter(_fed(feed))["id"].to_pylist() for feed in feeds]
    nulls_and = [i for i in range(40) if i % 7 == 0 or i % 5 > 1]
    assert handed == [sorted({*nulls_and, *range(30, 40)}), [36, 37, 38, 39]]
    all_rows = plan_of("all", tmp_path, Select(("id",)), Filter("id > 3"))
    job = job_of(spark, [read_of(RowSource(ROWS))], [filtered[0], all_rows])
    feeds, _ = spark._branches(_ready(spark, job))
    assert [feed.prefilter for feed in feeds] == [None]


@pytest.mark.spark
def test_a_word_that_a_session_reserves_is_a_column_all_the_same(classic: Any, tmp_path: Path) -> None:
    classic.conf.set("spark.sql.ansi.enforceReservedKeywords", "true")
    spark = SparkEngine(classic)
    try:
        plan = plan_of("mine", tmp_path, Filter("user = 'u1'"))  # there it would be whoever runs Spark
        assert spark._ready(plan, ROWS.schema).alone is not None
    finally:
        classic.conf.unset("spark.sql.ansi.enforceReservedKeywords")
        spark.close()


def _ready(spark: SparkEngine, job: EpochJob) -> list[tuple[OutputWork, Prepared]]:
    """Return all outputs, as if each needed Spark."""
    return [(work, spark._ready(work.plan, ROWS.schema)) for work in job.outputs]


def _fed(feed: Feed) -> pa.RecordBatch:
    rows = double(ROWS.to_batches()[0]) if feed.functions else ROWS.to_batches()[0]
    return rows.append_column("_epoch", pa.array([0] * rows.num_rows, pa.int64()))
