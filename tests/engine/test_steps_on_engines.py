"""Law: every engine does with lists, keys and parts what the definition says, however rows are cut."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.changes import COLUMNS as OPERATIONS
from tests.changes import HISTORIES, Row, kept, table_of, view
from tests.depth import deep
from tests.engine.kit import RowSource, RowSplit, job_of, plan_of, rows_of

from tidegauge.engine import LocalEngine, SparkEngine
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import UnknownColumn
from tidegauge.errors.steps import KeyCannotTell, NoOrderOfRows, NotAList, OperationsInStep, ValueNotInColumn
from tidegauge.job.keys import parts_of
from tidegauge.job.plan import (
    Changelog,
    Dedupe,
    Engine,
    Filter,
    MapBatches,
    Partition,
    Select,
    SourceRead,
    SplitBy,
    Step,
    Transform,
    Unnest,
)

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int32()),
        ("user", pa.string()),
        ("items", pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int64())]))),
    ]
)
Rows: TypeAlias = list[Row]
Cases: TypeAlias = dict[str, tuple[list[Step], Callable[[Rows], Rows]]]


def as_it_is(given: Any) -> Any:
    return given


def first(rows: Rows, *key: str) -> Rows:
    found: dict[Any, Row] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in key), row)
    return list(found.values())


def unnested(rows: Rows) -> Rows:
    return [row | {"items": item} for row in rows for item in row["items"] or []]


def above(rows: Rows, limit: int) -> Rows:
    return [row for row in rows if row["n"] is not None and row["n"] > limit]


def in_part(row: Row, part: int) -> bool:
    return bool(parts_of(pa.record_batch({"id": pa.array([row["id"]], pa.int64())}), ("id",), 3)[0] == part)


def with_user(rows: Rows, *users: Any) -> Rows:
    return [row for row in rows if row["user"] in users]


PLAIN: Cases = {
    "unnest": ([Unnest("items")], unnested),
    "unnest_after_filter": ([Filter("n > 1"), Unnest("items")], lambda rows: unnested(above(rows, 1))),
    "unnest_before_select": (
        [Unnest("items"), Select(("id", "items AS item"))],
        lambda rows: [{"id": row["id"], "item": row["items"]} for row in unnested(rows)],
    ),
    "dedupe": ([Dedupe(("user",))], lambda rows: first(rows, "user")),
    "dedupe_by_two": ([Dedupe(("user", "n"))], lambda rows: first(rows, "user", "n")),
    "dedupe_twice": ([Dedupe(("user",)), Dedupe(("user",))], lambda rows: first(rows, "user")),
    "dedupe_then_filter": ([Dedupe(("user",)), Filter("n > 2")], lambda rows: above(first(rows, "user"), 2)),
    "filter_then_dedupe": ([Filter("n > 2"), Dedupe(("user",))], lambda rows: first(above(rows, 2), "user")),
    "between_filters": (
        [Filter("n > 1"), Dedupe(("user",)), Filter("n > 2")],
        lambda rows: above(first(above(rows, 1), "user"), 2),
    ),
    "dedupe_after_function": ([MapBatches(as_it_is), Dedupe(("n",))], lambda rows: first(rows, "n")),
    "dedupe_of_elements": (
        [Unnest("items"), Dedupe(("id",)), Select(("id", "items"))],
        lambda rows: [{"id": row["id"], "items": row["items"]} for row in first(unnested(rows), "id")],
    ),
    "part_0": ([Partition(3, ("id",), 0)], lambda rows: [row for row in rows if in_part(row, 0)]),
    "part_1": ([Partition(3, ("id",), 1)], lambda rows: [row for row in rows if in_part(row, 1)]),
    "part_2": ([Partition(3, ("id",), 2)], lambda rows: [row for row in rows if in_part(row, 2)]),
    "a": ([SplitBy("user", ("a", "b"), "a")], lambda rows: with_user(rows, "a")),
    "b": ([SplitBy("user", ("a", "b"), "b")], lambda rows: with_user(rows, "b")),
    "rest": ([SplitBy("user", ("a", "b"), None)], lambda rows: with_user(rows, "c", None)),
    "two_of_n": (
        [SplitBy("n", (2, 3), 2), Filter("id > 3")],
        lambda rows: [row for row in rows if row["n"] == 2 and row["id"] > 3],
    ),
}
OTHERS: Cases = {
    "spark_then_dedupe": ([Filter("abs(n) > 1"), Dedupe(("user",))], lambda rows: first(above(rows, 1), "user")),
    "spark_on_both_sides": (
        [Filter("abs(n) > 1"), Dedupe(("user",)), Filter("abs(n) > 2")],
        lambda rows: above(first(above(rows, 1), "user"), 2),
    ),
    "dedupe_then_spark": ([Dedupe(("user",)), Filter("abs(n) > 2")], lambda rows: above(first(rows, "user"), 2)),
    "function_then_dedupe_then_spark": (
        [MapBatches(as_it_is), Dedupe(("user",)), Filter("abs(n) > 2")],
        lambda rows: above(first(rows, "user"), 2),
    ),
    "frame_then_dedupe": (
        [Transform(lambda frame: frame.filter("n > 1")), Dedupe(("user",)), Select(("id", "abs(n) AS n"))],
        lambda rows: [{"id": row["id"], "n": row["n"]} for row in first(above(rows, 1), "user")],
    ),
    "unnest_then_spark": (
        [Unnest("items"), Select(("id", "reverse(items.sku) AS sku"))],
        lambda rows: [
            {"id": r["id"], "sku": r["items"] and r["items"]["sku"] and r["items"]["sku"][::-1]}
            for r in unnested(rows)
        ],
    ),
    "spark_then_unnest": (
        [Filter("size(items) > 1"), Unnest("items")],
        lambda rows: unnested([row for row in rows if len(row["items"] or []) > 1]),
    ),
    "spark_then_part": (
        [Filter("abs(n) > 1"), Partition(3, ("id",), 1)],
        lambda rows: [row for row in above(rows, 1) if in_part(row, 1)],
    ),
    "dedupe_then_frame": (
        [Dedupe(("user",)), Transform(lambda frame: frame.groupBy("_epoch").count())],
        lambda rows: [{"count": len(first(rows, "user"))}] if rows else [],
    ),
}


def made(seed: int, size: int) -> pa.Table:
    rng = random.Random(seed)

    def item() -> Any:
        return rng.choice([None, {"sku": rng.choice(["x", None]), "count": rng.randrange(3)}])

    rows = [
        {
            "id": rng.randrange(9),
            "n": rng.choice([None, 0, 1, 2, 3]),
            "user": rng.choice(["a", "b", "c", None]),
            "items": rng.choice([None, [], [item()], [item(), item()]]),
        }
        for _ in range(size)
    ]
    return pa.Table.from_pylist(rows, schema=COLUMNS)


def cut(seed: int, rows: int, *, partitions: int = 3, epochs: int = 2) -> list[RowSplit]:
    """Put positions into partitions and epochs, and cut them anywhere, into tasks or for a task."""
    rng = random.Random(seed)
    heavy = rng.random() < 0.5
    bounds = [rows * i // (partitions * epochs) for i in range(partitions * epochs + 1)]
    found = []
    for at, (lower, upper) in enumerate(itertools.pairwise(bounds)):
        ends = [lower, *sorted(rng.sample(range(lower, upper), min(2, upper - lower))), upper]
        place = at % epochs, f"p{at // epochs}"
        found += [RowSplit(*place, a, b, heavy) for a, b in itertools.pairwise(ends) if a < b]
    rng.shuffle(found)
    return found


def results(
    engine: Engine, rows: pa.Table, splits: Iterable[RowSplit], cases: Cases, *, batch: int
) -> dict[str, Rows]:
    """Return the rows of outputs with these steps, staged by one job."""
    with tempfile.TemporaryDirectory() as folder:
        plans = [plan_of(name, folder, *steps) for name, (steps, _) in cases.items()]
        whole = any(plan.ordered for plan in plans)
        source = RowSource(rows, batch=batch)
        read = SourceRead("orders", source, rows.schema, tuple(splits), collect=False, whole=whole)
        job = job_of(engine, [read], plans)
        result = engine.submit(job).result(timeout=240)
        assert result.failures == ()
        return {name: rows_of(job, result, name) for name in cases}


def expected(rows: pa.Table, splits: Iterable[RowSplit], model: Callable[[Rows], Rows]) -> Rows:
    listed, found = rows.to_pylist(), []
    for epoch in (0, 1):
        mine = sorted((s for s in splits if s.epoch == epoch), key=lambda split: (split.partition, split.lower))
        given = [listed[at] for split in mine for at in range(split.lower, split.upper)]
        found += [row | {"_epoch": epoch} for row in model(given)]
    return found


def agree(engine: Engine, cases: Cases, *, seed: int, size: int) -> None:
    rows, splits = made(seed, size), cut(seed, size)
    found = results(engine, rows, splits, cases, batch=seed % 7 + 1)
    for name, (_, model) in cases.items():
        wanted = expected(rows, splits, model)
        assert sorted(map(repr, found[name])) == sorted(map(repr, wanted)), name


@deep(24)
@given(seed=st.integers(0, 1 << 32), size=st.integers(0, 60), threads=st.sampled_from([0, 2]))
def test_without_spark_rows_are_those_of_the_definition(seed: int, size: int, threads: int) -> None:
    engine = LocalEngine(threads=threads)
    agree(engine, PLAIN, seed=seed, size=size)
    engine.close()


@pytest.mark.spark
def test_on_spark_too(spark: SparkEngine) -> None:
    names = ["between_filters", "spark_then_dedupe", "spark_then_unnest", "spark_then_part"]
    agree(spark, {name: (PLAIN | OTHERS)[name] for name in names}, seed=7, size=60)


@pytest.mark.spark
@pytest.mark.long
@deep(4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 32))
def test_on_spark_all_outputs_of_a_job_have_the_rows_of_the_definition(spark: SparkEngine, seed: int) -> None:
    agree(spark, PLAIN | OTHERS, seed=seed, size=60)


@pytest.mark.spark
def test_on_spark_steps_that_are_understood_run_in_the_task_that_reads(spark: SparkEngine, tmp_path: Path) -> None:
    for name, (steps, _) in (PLAIN | OTHERS).items():
        if not all(isinstance(step, MapBatches | Unnest | Dedupe | Partition | SplitBy) for step in steps):
            prepared = spark._ready(plan_of(name, tmp_path, *steps), COLUMNS)
            assert (prepared.alone is not None) == (name in PLAIN), name


@deep(20)
@given(seed=st.integers(0, 1 << 32), size=st.integers(0, 60))
def test_a_deduplicated_epoch_is_the_same_however_it_is_cut(seed: int, size: int) -> None:
    rows, engine, cases = made(seed, size), LocalEngine(threads=2), {"dedupe": PLAIN["dedupe"]}
    ways = [results(engine, rows, cut(way, size), cases, batch=way + 1) for way in range(3)]
    engine.close()
    assert ways[0] == ways[1] == ways[2]
    assert len(ways[0]["dedupe"]) == len({(row["_epoch"], row["user"]) for row in ways[0]["dedupe"]})


@deep(12)
@given(seed=st.integers(0, 1 << 32), size=st.integers(0, 60))
def test_each_row_is_in_exactly_one_part(seed: int, size: int) -> None:
    rows, engine = made(seed, size), LocalEngine(threads=0)
    cases: Cases = {name: case for name, case in PLAIN.items() if isinstance(case[0][0], Partition | SplitBy)}
    found = results(engine, rows, cut(seed, size), cases | {"all": ([], as_it_is)}, batch=5)
    engine.close()
    every = sorted(map(repr, found["all"]))
    assert sorted(map(repr, [*found["part_0"], *found["part_1"], *found["part_2"]])) == every
    assert sorted(map(repr, [*found["a"], *found["b"], *found["rest"]])) == every


@deep(40)
@given(rows=HISTORIES)
def test_of_operations_each_part_is_the_table_of_its_rows(rows: Rows) -> None:
    users = ("a", "b")
    cases: Cases = {str(value): ([SplitBy("user", users, value)], as_it_is) for value in (*users, None)}
    cases |= {str(part): ([Partition(3, ("n",), part)], as_it_is) for part in range(3)}
    engine, table = LocalEngine(threads=0), table_of(rows)
    found = results(engine, table, [RowSplit(0, "p", 0, len(rows))] if rows else [], cases, batch=4)
    engine.close()
    whole = view(rows)
    for value in (*users, None):
        mine = {key: row for key, row in whole.items() if (row["user"] if row["user"] in users else None) == value}
        assert view(in_order(found[str(value)], rows, "user", value, users)) == mine
    assert sum(len(view_of(found[str(part)], rows)) for part in range(3)) == len(whole)


def in_order(found: Rows, rows: Rows, column: str, value: Any, values: tuple[Any, ...]) -> Rows:
    """Return staged operations in the order of the history: they are what the definition keeps of each row."""
    ordered = kept(rows, lambda row: (row[column] if row[column] in values else None) == value)
    assert sorted(map(repr, ordered)) == sorted(repr({k: v for k, v in r.items() if k != "_epoch"}) for r in found)
    return ordered


def view_of(found: Rows, rows: Rows) -> dict[int, Row]:
    """Return the table of a part by hash, whose operations are told from their rows."""
    plain = [{name: value for name, value in row.items() if name != "_epoch"} for row in found]
    part = next((row for row in plain if row["_op"] in {"insert", "update"}), None)
    if part is None:
        return {}
    number = int(parts_of(pa.record_batch({"n": pa.array([part["n"]], pa.int64())}), ("n",), 3)[0])
    mine = kept(
        rows,
        lambda row: bool(parts_of(pa.record_batch({"n": pa.array([row["n"]], pa.int64())}), ("n",), 3)[0] == number),
    )
    assert sorted(map(repr, mine)) == sorted(map(repr, plain))
    return view(mine)


REFUSED: list[tuple[list[Step], pa.Schema, type[TidegaugeError], str]] = [
    ([Unnest("id")], COLUMNS, NotAList, "int64"),
    ([Unnest("item")], COLUMNS, UnknownColumn, "the nearest is 'items'"),
    ([Dedupe(("users",))], COLUMNS, UnknownColumn, "the nearest is 'user'"),
    ([Dedupe(("id", "items"))], COLUMNS, KeyCannotTell, "'items'"),
    ([Partition(2, ("items",), 0)], COLUMNS, KeyCannotTell, "partition of output 'x'"),
    ([Filter("n > 1"), Partition(2, ("idd",), 0)], COLUMNS, UnknownColumn, "the nearest is 'id'"),
    ([SplitBy("country", ("DE",), "DE")], COLUMNS, UnknownColumn, "split_by of output 'x'"),
    ([SplitBy("n", (1, "2"), 1)], COLUMNS, ValueNotInColumn, "'2'.*int32"),
    ([SplitBy("n", (1 << 40,), 1 << 40)], COLUMNS, ValueNotInColumn, "1099511627776"),
    ([SplitBy("n", (True,), True)], COLUMNS, ValueNotInColumn, "True"),
    ([SplitBy("user", (5,), 5)], COLUMNS, ValueNotInColumn, "5"),
    ([SplitBy("items", ("DE",), None)], COLUMNS, ValueNotInColumn, "list"),
    ([Dedupe(("id",))], OPERATIONS, OperationsInStep, "envelope='upsert'"),
    ([Changelog("op"), Select(("id", "op AS _op")), Dedupe(("id",))], OPERATIONS, OperationsInStep, "dedupe"),
    ([Unnest("user")], OPERATIONS, OperationsInStep, "unnest of output 'x'"),
]


@pytest.mark.parametrize(("steps", "schema", "error", "said"), REFUSED)
def test_steps_that_cannot_be_are_refused_before_anything_runs(
    local: LocalEngine, tmp_path: Path, steps: list[Step], schema: pa.Schema, error: type[TidegaugeError], said: str
) -> None:
    with pytest.raises(error, match=said):
        local.schema(plan_of("x", tmp_path, *steps), schema)


@pytest.mark.spark
def test_spark_refuses_them_too(spark: SparkEngine, tmp_path: Path) -> None:
    for steps, schema, error, said in REFUSED:
        with pytest.raises(error, match=said):
            spark.schema(plan_of("x", tmp_path, *steps), schema)


@pytest.mark.spark
@pytest.mark.parametrize(
    "steps",
    [
        [Transform(lambda frame: frame.repartition(3)), Dedupe(("id",))],
        [Transform(lambda frame: frame.groupBy("_epoch", "id").count()), Dedupe(("id",))],
        [Select(("id", "row_number() OVER (PARTITION BY _epoch ORDER BY id) AS n")), Dedupe(("id",))],
        [Transform(lambda frame: frame.sort("id")), Dedupe(("id",)), Filter("abs(id) > 1")],
    ],
)
def test_rows_that_spark_puts_elsewhere_have_no_first(spark: SparkEngine, tmp_path: Path, steps: list[Step]) -> None:
    with pytest.raises(NoOrderOfRows, match=r"dedupe\('id'\)"):
        spark.schema(plan_of("x", tmp_path, *steps), COLUMNS)


def test_an_engine_says_that_a_deduplicated_epoch_is_staged_as_a_whole(local: LocalEngine, tmp_path: Path) -> None:
    assert local.rowwise(plan_of("x", tmp_path, Unnest("items"), Partition(2, ("id",), 1)), COLUMNS)
    assert not local.rowwise(plan_of("x", tmp_path, Dedupe(("id",))), COLUMNS)
