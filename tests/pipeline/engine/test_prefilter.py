"""Law: a row that a filter of Spark's keeps, or for which it raises, is never dropped before Spark sees it."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pipeline.engine.cases import ROWS, double
from tests.pipeline.engine.kit import RowSource, job_of, plan_of, read_of

from tidegauge.pipeline.engine import SparkEngine
from tidegauge.pipeline.engine.prefilter import Kept, Prefilter
from tidegauge.pipeline.engine.prefiltersql import understood
from tidegauge.pipeline.job import Filter, MapBatches, Select
from tidegauge.pipeline.report import Report
from tidegauge.pipeline.task import Feed, Read, run

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [None, -128, -1, 0, 3, 127]),
    "n": (pa.int32(), [3, None, 0, -(1 << 31), 2, (1 << 31) - 1, 4]),
    "big": (pa.int64(), [None, -(1 << 63), (1 << 63) - 1, 0, 3, (1 << 53) + 1, 1 << 31, -(1 << 31) - 1]),
    "x": (
        pa.float64(),
        [None, math.nan, -math.inf, math.inf, -0.0, 0.0, 0.1, math.nextafter(0.1, 1), 900.5, 9007199254740992.0, 3.0],
    ),
    "f": (
        pa.float32(),
        [None, math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, 0.5, 3.0, 16777216.0, 900.5, -3.0, 2.0],
    ),
    "user": (
        pa.string(),
        [None, "", "a", "A", "ab", "a%", "a_b", "café", "é", "\uffff", "😀", "a\nb", "3", "true", "u\0"],
    ),
    "flag": (pa.bool_(), [True, False, None]),
    "money": (pa.decimal128(10, 2), [None, Decimal("3.00"), Decimal("-0.50")]),
    "day": (pa.date32(), [date(2026, 3, 29), None, date(1969, 12, 31), date(2026, 3, 30), date(9999, 1, 1)]),
    "a b.c": (pa.int64(), [1, None, 3]),
}
SIZE = 72
DATA = pa.record_batch(
    {name: pa.array([values[i % len(values)] for i in range(SIZE)], kind) for name, (kind, values) in COLUMNS.items()}
)


def rows_kept(batch: pa.RecordBatch, *conditions: str) -> tuple[list[int], bool] | None:
    """Return the rows that a chain of filters lets pass, and whether it is understood wholly; None if not at all."""
    found = understood(conditions, batch.schema)
    if found is None:
        return None
    numbered = batch.append_column("row", pa.array(range(batch.num_rows), pa.int64()))
    prefilter = Prefilter((Kept(found[0], closed=found[1]),))
    return prefilter(numbered)["row"].to_pylist(), found[1]


WHOLE_NUMBERS = ["0", "3", "-1", "- 3", "300", "007", "2147483647", "2147483648", "-9223372036854775808",
                 "9223372036854775807", "9223372036854775808", "9007199254740993"]  # fmt: skip
DECIMALS = ["0.1", "-0.0", "3.0", "900.5", "0.10000000000000002", "1.5"]
TEXTS = ["'a'", "''", "'a%'", "'a_b'", "'café'", "'é'", "'😀'", "'\uffff'", "'3'", "'u'", "'or'", "'--'", "'it''s'",
         r"'a\nb'", "'a\nb'"]  # fmt: skip
SIGNS = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]
PATTERNS = ["'a%'", "'%'", "'a'", "'😀%'", "'a_b'", "'a%b'", r"'a\%'", "'é%'", "'a\n%'"]
JUNK = [
    "1 / (n - 3) > 0", "n + 2147483647 > 0", "cast(user AS int) > 0", "user > 3", "user = true",
    "try_cast(user AS int) IS NULL", "n % 2 = 0", "-n > 3", "x > n", "n > 1.5", "n = 3.0", "upper(user) = 'A'",
    "user RLIKE 'a'", "user COLLATE UTF8_LCASE = 'A'", 'user = "a"', "n > 1L", "x < 1e2", "x = 'NaN'",
    "x > double('NaN')", "money > 1", "day > date'2026-03-29'", "day > '2026-01-01'",
    "CASE WHEN flag AND n > 3 THEN false ELSE true END", "n = 3 /* OR */", "n = 3 -- OR\n", "flag IS NOT TRUE",
    "n IN (3, NULL)", "n = NULL", "NULL", "! flag", "n BETWEEN 0 AND 4 + tiny", "n IS NOT DISTINCT FROM 3",
    "flag = (n > 3)", "N > 2", "user = 'a' 'b'", "user LIKE 'a/_%' ESCAPE '/'", "user || 'x' > 'b'", "r'a' = user",
    "n > 2 = flag", "(n, tiny) = (3, 3)", "n > -(-3)", "n - 3 > 0", "user LIKE ANY ('a%', 'é%')", "true",
    "flag = NOT flag", "exists(array(n), e -> e > 2)", "(n) > 2", "n!=3",
]  # fmt: skip


def _comparisons() -> st.SearchStrategy[str]:
    numbers = st.sampled_from(["tiny", "n", "big", "`n`", "`a b.c`"]), st.sampled_from(WHOLE_NUMBERS)
    floats = st.sampled_from(["x", "f", "`x`"]), st.sampled_from([*WHOLE_NUMBERS, *DECIMALS])
    texts = st.just("user"), st.sampled_from(TEXTS)
    flags = st.just("flag"), st.sampled_from(["true", "FALSE"])
    negated = st.sampled_from(["", "NOT "])
    kinds = []
    for column, literal in (numbers, floats, texts, flags):
        kinds += [
            st.builds("{} {} {}".format, column, st.sampled_from(SIGNS), literal),
            st.builds("{}{}{}".format, literal, st.sampled_from(SIGNS), column),
            st.builds("{} {}between {}\tAND {}".format, column, negated, literal, literal),
            st.builds(
                lambda column, negated, literals: f"{column} {negated}IN ({', '.join(literals)})",
                column,
                negated,
                st.lists(literal, min_size=1, max_size=12),
            ),
        ]
    likes = st.builds("user {}LIKE {}".format, negated, st.sampled_from(PATTERNS))
    nulls = st.builds("{} is {}null".format, st.sampled_from(["n", "x", "user", "flag", "money", "day"]), negated)
    return st.one_of(*kinds, likes, nulls, st.just("flag"))


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joint = st.sampled_from([" AND ", "\nand ", " OR ", " or\n"])
    return st.one_of(
        st.builds("{}{}{}".format, inner, joint, inner),
        st.builds("{}{}{}{}{}".format, inner, joint, inner, joint, inner),
        st.builds("({})".format, inner),
        st.builds("NOT {}".format, inner),
    )


def conditions(atoms: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.recursive(atoms, _joined, max_leaves=6)


PLAIN = conditions(_comparisons())
ANY = conditions(st.one_of(_comparisons(), _comparisons(), st.sampled_from(JUNK)))
BEGUN = st.builds("{} AND {}".format, PLAIN, ANY)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
CHAIN = st.lists(st.one_of(PLAIN, BEGUN, ANY), min_size=1, max_size=2)


@pytest.mark.spark
@settings(max_examples=3, deadline=None, suppress_health_check=SLOW)
@given(chains=st.lists(CHAIN, min_size=40, max_size=60), ansi=st.booleans())
def test_what_is_dropped_spark_neither_keeps_nor_refuses(
    classic: Any, chains: list[list[str]], *, ansi: bool
) -> None:
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
    classic.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        frame = classic.createDataFrame(table).selectExpr(f"CASE __case {' '.join(branches)} END AS said")
        said = frame.toArrow()["said"].to_pylist()
    finally:
        classic.conf.unset("spark.sql.ansi.enabled")
    for (number, row, stays, whole), answer in zip(cases, said, strict=True):
        assert stays or answer is not True, f"{chains[number]} keeps {DATA.slice(row, 1).to_pylist()}"
        assert not (stays and whole) or answer is True, f"{chains[number]} drops {DATA.slice(row, 1).to_pylist()}"


ORDERS = pa.record_batch(
    {
        "n": pa.array([0, 1, 2, None, 4], pa.int32()),
        "x": pa.array([0.5, math.nan, None, -0.0, math.inf]),
        "f": pa.array([0.5, math.nan, None, -0.0, 0.1], pa.float32()),
        "user": pa.array(["a", "ab", None, "", "b"]),
        "flag": pa.array([True, None, False, True, False]),
        "day": pa.array([None, date(2026, 1, 1), None, None, None]),
        "odd `name`": pa.array([1, 2, 3, 4, 5]),
        "and": pa.array([1, 2, 3, 4, 5]),
    }
)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("n > 1", [2, 4]),
        ("1 < n", [2, 4]),
        ("n >= 2147483648", []),
        ("NOT (n > 1)", [0, 1]),
        ("NOT n = 1 AND flag", [0]),
        ("flag OR n = 4 AND x > 3", [0, 3, 4]),
        ("(flag OR n = 4) AND x > 3", [4]),
        ("flag", [0, 3]),
        ("flag <> true", [2, 4]),
        ("x > 0", [0, 1, 4]),
        ("x >= 0", [0, 1, 3, 4]),
        ("x < 1", [0, 3]),
        ("x <= 0.5", [0, 3]),
        ("NOT x > 0", [3]),
        ("x = 0", [3]),
        ("x <> 0", [0, 1, 4]),
        ("x BETWEEN 0 AND 1", [0, 3]),
        ("f >= 0.5", [0, 1]),
        ("n NOT BETWEEN 1 AND 3", [0, 4]),
        ("n IN (1, 4, 99999999999)", [1, 4]),
        ("n NOT IN (1, 4)", [0, 2]),
        ("user IN ('a', '')", [0, 3]),
        ("user LIKE 'a%'", [0, 1]),
        ("user NOT LIKE 'a%'", [3, 4]),
        ("user LIKE 'a'", [0]),
        ("user >= 'ab'", [1, 4]),
        ("day IS NULL", [0, 2, 3, 4]),
        ("`day` IS NOT NULL", [1]),
        ("`and` = 3", [2]),
        ("n is null\nOr n = 0", [0, 3]),
    ],
)
def test_plain_comparisons_are_understood_wholly(condition: str, rows: list[int]) -> None:
    assert rows_kept(ORDERS, condition) == (rows, True)


@pytest.mark.parametrize(
    ("chain", "rows"),
    [
        (["n > 1 AND upper(user) = 'B'"], [2, 3, 4]),
        (["n > 1", "upper(user) = 'B'"], [2, 3, 4]),
        (["n > 1", "user = 'b' AND 1 / n > 0"], [2, 4]),
        (["n > 1 AND upper(color) = 'B'"], [2, 3, 4]),
        (["n BETWEEN 1 AND 3 AND 1 / n > 0"], [1, 2, 3]),
    ],
)
def test_a_conjunction_is_understood_up_to_what_is_not_and_its_nulls_stay(chain: list[str], rows: list[int]) -> None:
    assert rows_kept(ORDERS, *chain) == (rows, False)


@pytest.mark.parametrize(
    "condition",
    [
        "upper(user) = 'B' AND n > 1",
        "n > 1 OR upper(user) = 'B'",
        "n > 1 AND upper(user) = 'B' OR flag",
        "n > 1 AND x /* OR */ > n",
        "NOT (n > 1 AND upper(user) = 'B')",
        "NOT upper(user) = 'B' AND n > 1",
        "(n > 1 AND upper(user) = 'B')",
        "(n > 1 AND upper(user) = 'B') OR n > 2",
        "n BETWEEN 1 AND n",
        "n > 1 + 1",
        "n - 1 > 1",
        "n > 1 = flag",
        "n > 1 -- AND flag",
        "n > --\n1",
        "n > /**/ 1",
        "n <=> 1",
        "! flag",
        "n",
        "N > 1",
        "orders.n > 1",
        "missing > 1",
        "`odd ``name``` > 1",
        "and = 3",
        "n > '1'",
        "n > 1.0",
        "n > 9223372036854775808",
        "n > 1L",
        "x > 1e3",
        "x > 9007199254740993",
        "x IN (0)",
        "f = 0.1",
        "x = 'NaN'",
        "user > 1",
        'user = "a"',
        "user = 'it''s'",
        r"user = 'a\tb'",
        "user = r'a'",
        "user = 'a' 'b'",
        "user = '${spark.x}'",
        "user LIKE 'a_%'",
        "user LIKE '%a%'",
        "user LIKE '😀%'",
        "user LIKE 'a%' ESCAPE '/'",
        "user = 'a' COLLATE UTF8_LCASE",
        "flag = 1",
        "flag > false",
        "flag IS TRUE",
        "day > date'2026-01-01'",
        "n IN (SELECT 1)",
        "n IN (1, NULL)",
        "n IN (1, 'a')",
        "n = NULL",
        "TRUE",
        "",
        "n >",
        ")",
        "'",
        "n > 1é",
        "n > 1 ANDé",
        "user = '\ud800'",
        "(" * 5000 + "flag" + ")" * 5000,
        "NOT " * 1000 + "flag",
        "n > 1" + " " * 10_000,
        "n > " + "1" * 5000,
    ],
)
def test_all_else_is_not_understood_and_no_error(condition: str) -> None:
    assert understood([condition], ORDERS.schema) is None


def test_a_prefilter_keeps_what_one_of_the_outputs_may_keep_and_the_task_counts_all_rows() -> None:
    source = RowSource(pa.table({"n": pa.array(range(3000), pa.int64())}))
    schema = source.schema.append(pa.field("_epoch", pa.int64()))
    kept = [understood([text], schema) for text in ("n < 2", "n = 1 OR n > 2998")]
    prefilter = Prefilter(tuple(Kept(found[0], closed=found[1]) for found in kept if found))
    feed = Feed("orders", "rows", (), source.schema, schema, ("a", "b"), prefilter)
    read = read_of(source, epochs=2)
    report = Report()
    reads = [Read("orders", source, source.schema, collect=False, splits=read.splits)]
    batches = [batch for _, batch in run(reads, [], [feed], report, job="j", task=0)]
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
    feeds, _ = spark._branches(job)
    handed = [feed.prefilter and feed.prefilter(_fed(feed))["id"].to_pylist() for feed in feeds]
    nulls_and = [i for i in range(40) if i % 7 == 0 or i % 5 > 1]
    assert handed == [sorted({*nulls_and, *range(30, 40)}), [36, 37, 38, 39]]
    all_rows = plan_of("all", tmp_path, Select(("id",)), Filter("id > 3"))
    feeds, _ = spark._branches(job_of(spark, [read_of(RowSource(ROWS))], [filtered[0], all_rows]))
    assert [feed.prefilter for feed in feeds] == [None]


@pytest.mark.spark
def test_a_session_that_reserves_words_filters_everything_itself(spark: SparkEngine, tmp_path: Path) -> None:
    spark.session.conf.set("spark.sql.ansi.enforceReservedKeywords", "true")
    try:
        plan = plan_of("mine", tmp_path, Filter("user = 'u1'"))  # whoever runs Spark, not the column
        assert spark._ready(plan, ROWS.schema).kept is None
    finally:
        spark.session.conf.unset("spark.sql.ansi.enforceReservedKeywords")


def _fed(feed: Feed) -> pa.RecordBatch:
    rows = double(ROWS.to_batches()[0]) if feed.functions else ROWS.to_batches()[0]
    return rows.append_column("_epoch", pa.array([0] * rows.num_rows, pa.int64()))
