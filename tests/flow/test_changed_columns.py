"""Columns that change between runs, of the source and of the steps: taken on at a recorded epoch, or refused."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.flow.badinput import begin, rows, write
from tests.flow.by_hand import Crash, World

import tidegauge as tg
from tidegauge.errors.columns import ColumnsRefused, SourceColumnsRefused
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.outputs import CodeChanged
from tidegauge.errors.sinks import TableSchemaChanged, TableUpperMismatch
from tidegauge.errors.store import SchemaChanged
from tidegauge.evolution import Evolution
from tidegauge.flow.belonging import table_of
from tidegauge.remap.store import EXPIRY

SINKS = [tg.DeltaSink, tg.ParquetSink]
NAMES = ("a", "b", "c", "d", "e")
Sink = Callable[[str], Any]


def grown(names: Sequence[str], batch: pa.RecordBatch) -> pa.RecordBatch:
    """A step that gives columns: each the number with its name."""
    for name in names:
        text = pc.binary_join_element_wise(name, batch["n"].cast(pa.string()), "")
        batch = batch.append_column(name, text)
    return batch


def flow_of(
    columns: Sequence[str] = (),
    made: Sequence[str] = (),
    *,
    how: Evolution = "add",
    sink: Sink = tg.DeltaSink,
    kind: str = "long",
    late: Sequence[str] = (),
    keyed: bool = False,
) -> Callable[[World], tg.Dataflow]:
    """One source with these columns, into a table with those that a step makes, too. late: further plain tables."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        ddl = ", ".join([f"n {kind}", *(f"{name} string" for name in columns)])
        pattern = str(world.root / "orders" / "*")
        orders = flow.source("orders", tg.FileSource(pattern, format=tg.Json(ddl), max_bytes_per_epoch=400))
        step = orders.map_batches(partial(grown, tuple(made))) if made else orders
        more = {"envelope": "upsert", "key": "n"} if keyed else {}
        flow.sink("t", step, sink(str(world.root / "lake" / "t"), **more), schema=how)
        for name in late:
            flow.sink(name, orders, sink(str(world.root / "lake" / name)), schema=how)
        return flow

    return make


def add(world: World, *numbers: int) -> None:
    """Lines that have a text under every name that a source may ever declare."""
    text = "".join(json.dumps({"n": n, **{name: f"{name}{n}" for name in NAMES}}) + "\n" for n in numbers)
    write(world.root / "orders" / "1.jsonl", text)


def live(world: World, make: Callable[[World], tg.Dataflow], *more: int) -> tuple[str, ...]:
    """One life, in which these numbers come, each in an epoch; return what it was told."""
    run = begin(world, make)
    try:
        run.catch_up()
        for n in more:
            add(world, n)
            run.catch_up()
        return run.runner.board.news
    finally:
        run.abandon()


def die(world: World, make: Callable[[World], tg.Dataflow], at: str) -> None:
    """One life that ends at a point, if it comes there."""
    world.strike = at
    with suppress(Crash):
        run = begin(world, make)
        try:
            run.catch_up()
        finally:
            run.abandon()
    world.strike = ""
    world.clock.seconds += EXPIRY + 1


def table(world: World, make: Callable[[World], tg.Dataflow], output: str = "t") -> list[tuple[Any, ...]]:
    """The rows of a table without their epochs, each as its number and its texts."""
    found = rows(make(world), output)
    return sorted((row["n"], *(row[name] for name in sorted(row) if name not in ("n", "_epoch"))) for row in found)


# -- what takes effect


@pytest.mark.parametrize("sink", SINKS)
def test_a_declared_column_begins_with_the_first_epoch_that_is_not_bound(tmp_path: Path, sink: Sink) -> None:
    old, new = flow_of(sink=sink), flow_of(["a"], sink=sink)
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old, 1)
    assert live(world, new, 2) == ("source orders has other columns, from epoch 2 on: a: new",)
    assert live(world, new, 3) == ()
    assert table(world, new) == [(0, None), (1, None), (2, "a2"), (3, "a3")]
    assert tg.read_arrow(new(world), "t").schema.names == ["n", "_epoch", "a"]
    scanned = tg.scan_arrow(new(world), "orders").read_all().to_pylist()
    assert table(world, new) == sorted((row["n"], row["a"]) for row in scanned)
    assert [set(row) for row in rows(new(world), "t", as_of=0)] == [{"n", "_epoch", "a"}], "as of before, too"


@pytest.mark.parametrize("sink", SINKS)
def test_a_column_that_a_step_gives_begins_with_the_first_epoch_that_the_table_lacks(
    tmp_path: Path, sink: Sink
) -> None:
    old, new = flow_of(sink=sink), flow_of(made=["x"], sink=sink)
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old, 1)
    [told] = live(world, new, 2)
    assert told.startswith("output t has changed, from epoch 2 on: step 1 (map_batches) is new")
    assert table(world, new) == [(0, None), (1, None), (2, "x2")]
    assert tg.outputs(new(world))[0].coded_at == (2,)


def test_epochs_that_are_bound_and_not_committed_are_read_by_the_columns_of_before(tmp_path: Path) -> None:
    old, new = flow_of(), flow_of(["a"], made=["x"])
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old)
    add(world, 1)
    die(world, old, "after append bindings")
    assert live(world, new, 2)[0] == "source orders has other columns, from epoch 2 on: a: new"
    assert table(world, new) == [(0, None, None), (1, None, "x1"), (2, "a2", "x2")]


@pytest.mark.parametrize("sink", SINKS)
def test_a_late_output_gets_of_the_past_what_one_has_that_was_there(tmp_path: Path, sink: Sink) -> None:
    old, new, last = flow_of(sink=sink), flow_of(["a"], sink=sink), flow_of(["a", "b"], sink=sink, late=["late"])
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old, 1)
    live(world, new, 2)
    tg.compact(new(world), before=2, env=world.env())
    live(world, last, 3)
    assert table(world, last, "late") == table(world, last)
    assert table(world, last) == [(0, None, None), (1, None, None), (2, "a2", None), (3, "a3", "b3")]


def test_a_table_that_is_made_again_has_null_where_its_records_were_bound_without_a_column(tmp_path: Path) -> None:
    old, new = flow_of(), flow_of(["a"])
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old)
    live(world, new, 1)
    tg.rebuild(new(world), "t", env=world.env())
    live(world, new)
    assert table(world, new) == [(0, None), (1, "a1")]
    assert tg.repair(new(world), "t", engine=tg.LocalEngine(threads=0), from_epoch=0, env=world.env()).output == "t"
    assert table(world, new) == [(0, None), (1, "a1")]


def test_columns_that_go_are_null_with_evolve_and_their_values_of_before_stay(tmp_path: Path) -> None:
    wide, narrow = flow_of(["a", "b"], how="evolve"), flow_of(["b", "c"], how="evolve")
    world = World(tmp_path, wide)
    add(world, 0)
    live(world, wide)
    live(world, narrow, 1)
    assert table(world, narrow) == [(0, "a0", "b0", None), (1, None, "b1", "c1")]
    live(world, wide, 2)
    assert table(world, wide)[2] == (2, "a2", "b2", None)


@pytest.mark.parametrize("sink", SINKS)
def test_a_repair_keeps_the_columns_that_rows_no_longer_have(tmp_path: Path, sink: Sink) -> None:
    wide, narrow = flow_of(["a"], how="evolve", sink=sink), flow_of(["b"], how="evolve", sink=sink)
    world = World(tmp_path, wide)
    add(world, 0)
    live(world, wide)
    live(world, narrow, 1)
    expected = [(0, "a0", None), (1, None, "b1")]
    assert table(world, narrow) == expected
    tg.repair(narrow(world), "t", engine=tg.LocalEngine(threads=0), from_epoch=1, env=world.env())
    assert table(world, narrow) == expected
    tg.repair(narrow(world), "t", engine=tg.LocalEngine(threads=0), from_epoch=0, env=world.env())
    assert table(world, narrow) == [(0, None, None), (1, None, "b1")], (
        "the columns of now, as for any rows made again"
    )


def test_a_commit_that_brought_columns_and_was_lost_is_written_anew_with_them(tmp_path: Path) -> None:
    old, new = flow_of(sink=tg.ParquetSink), flow_of(["a"], sink=tg.ParquetSink)
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old)
    live(world, new, 1, 2)
    shutil.rmtree(tmp_path / "lake" / "t" / "from_epoch=000000000001")
    tg.repair(new(world), "t", engine=tg.LocalEngine(threads=0), env=world.env())
    assert table(world, new) == [(0, None), (1, "a1"), (2, "a2")]
    live(world, new, 3)
    assert table(world, new)[3] == (3, "a3")


def test_a_table_by_key_takes_on_columns_and_merges_into_rows_of_before(tmp_path: Path) -> None:
    old, new = flow_of(keyed=True), flow_of(["a"], keyed=True)
    world = World(tmp_path, old)
    add(world, 0, 1, 2)
    live(world, old)
    live(world, new, 1)
    assert table(world, new) == [(0, None), (1, "a1"), (2, None)]


# -- what is refused


def test_without_schema_everything_is_refused_as_ever(tmp_path: Path) -> None:
    old = flow_of(how="strict")
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old)
    with pytest.raises(SchemaChanged):
        begin(world, flow_of(["a"], how="strict"))
    with pytest.raises(CodeChanged):
        begin(world, flow_of(made=["x"], how="strict"))
    assert live(world, old, 1) == ()
    with pytest.raises(InvalidArgument, match="'strict', 'add' or 'evolve'"):
        flow_of(how="merge")(world)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("new", "error", "told"),
    [
        (flow_of(["b"]), SourceColumnsRefused, "a: gone; b: new"),
        (flow_of(["a"], kind="string"), SourceColumnsRefused, "n: int64 -> string"),
        (flow_of(["a"], how="evolve", kind="int"), SourceColumnsRefused, "n: int64 -> int32"),
        (flow_of(["a", "A"]), InvalidArgument, ""),
        (flow_of(["a"], made=["N"]), Exception, "N"),
    ],
)
def test_what_is_refused_is_said_before_anything_is_begun(
    tmp_path: Path, new: Callable[[World], tg.Dataflow], error: type[Exception], told: str
) -> None:
    old = flow_of(["a"])
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old)
    add(world, 1)
    world.points.clear()
    with pytest.raises(Exception) as caught:
        begin(world, new)
    if error is SourceColumnsRefused:
        assert isinstance(caught.value, SourceColumnsRefused)
        assert told in caught.value.summary
        assert "It has (n int64, a string); declared are (" in caught.value.summary
    assert not {"before stage", "before append bindings", "before record columns"} & {*world.points}
    assert live(world, old, 2) == (), "as it was, it goes on"
    assert table(world, old) == [(0, "a0"), (1, "a1"), (2, "a2")]


def test_one_strict_output_of_the_source_whose_rows_would_change_refuses_for_all_and_one_whose_would_not_does_not(
    tmp_path: Path,
) -> None:
    def both(columns: Sequence[str], *steps: str) -> Callable[[World], tg.Dataflow]:
        def make(world: World) -> tg.Dataflow:
            flow = tg.Dataflow("shop", store=world.store)
            ddl = ", ".join(["n long", *(f"{name} string" for name in columns)])
            orders = flow.source("orders", tg.FileSource(str(world.root / "orders" / "*"), format=tg.Json(ddl)))
            flow.sink("t", orders, tg.DeltaSink(str(world.root / "lake" / "t")), schema="add")
            flow.sink("s", orders.select(*steps) if steps else orders, tg.DeltaSink(str(world.root / "lake" / "s")))
            return flow

        return make

    world = World(tmp_path, both([]))
    add(world, 0)
    live(world, both([]))
    with pytest.raises(SourceColumnsRefused, match="the rows of output 's' would have others"):
        begin(world, both(["a"]))
    other = World(tmp_path / "other", both([], "n"))
    add(other, 0)
    live(other, both([], "n"))
    live(other, both(["a"], "n"), 1)
    assert table(other, both(["a"], "n")) == [(0, None), (1, "a1")]
    assert table(other, both(["a"], "n"), "s") == [(0,), (1,)]


def test_other_code_without_a_new_column_is_asked_about_and_a_filter_beside_one_is_too(tmp_path: Path) -> None:
    old = flow_of(made=["x"])
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old)

    def filtered(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        source = tg.FileSource(str(world.root / "orders" / "*"), format=tg.Json("n long"), max_bytes_per_epoch=400)
        stream = flow.source("orders", source).filter("n > 0").map_batches(lambda batch: grown(("x", "y"), batch))
        flow.sink("t", stream, tg.DeltaSink(str(world.root / "lake" / "t")), schema="add")
        return flow

    with pytest.raises(CodeChanged):
        begin(world, filtered)
    with pytest.raises(
        ColumnsRefused, match=r"the rows have no column 'x' \(string\).*The table has \(n int64, x string"
    ):
        begin(world, flow_of())
    tg.from_here(filtered(world), "t", env=world.env())
    live(world, filtered, 1)
    assert table(world, filtered) == [(0, "x0", None), (1, "x1", "y1")]


def test_columns_are_not_settled_where_something_else_is_refused(tmp_path: Path) -> None:
    old = flow_of(made=["x"])
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old)
    with pytest.raises(ColumnsRefused, match="'x'"):
        begin(world, flow_of(["a"]))
    assert live(world, old, 1) == ()
    assert [one.earlier for one in world.loaded().sources.values()] == [()]


def test_columns_with_which_nothing_was_bound_can_be_taken_back(tmp_path: Path) -> None:
    old = flow_of()
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old)
    die(world, flow_of(["a"]), "after record columns")
    [told] = live(world, flow_of(["b"]), 1)
    assert told == "source orders has other columns, from epoch 1 on: b: new"
    assert table(world, flow_of(["b"])) == [(0, None), (1, "b1")]
    die(world, flow_of(["b", "c"]), "after record columns")
    assert live(world, flow_of(["b"]), 2) == ()
    assert table(world, flow_of(["b"])) == [(0, None), (1, "b1"), (2, "b2")]
    late = flow_of(["b"], late=["late"])
    live(world, late)
    assert table(world, late, "late") == table(world, late)


# -- beside others


def test_an_older_driver_that_wakes_up_with_the_old_code_commits_nothing(tmp_path: Path) -> None:
    old, new = flow_of(), flow_of(made=["x"])
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old)
    asleep = table_of(old(world).spec, "t", world.loaded())  # right before it commits epoch 1
    assert asleep.schema is not None
    run = begin(world, new)
    with pytest.raises(TableUpperMismatch):
        asleep.commit(1, 2, asleep.schema, [], write="f" * 32)
    run.abandon()
    live(world, new, 1)
    with pytest.raises((TableUpperMismatch, TableSchemaChanged)):
        asleep.commit(2, 3, asleep.schema, [], write="f" * 32)
    assert table(world, new) == [(0, None), (1, "x1")]


@pytest.mark.parametrize("sink", SINKS)
def test_a_store_that_is_lost_gets_the_columns_of_then_back_from_the_tables(tmp_path: Path, sink: Sink) -> None:
    old, new = flow_of(sink=sink), flow_of(["a"], sink=sink)
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old)
    backup = tmp_path / "flow.backup"
    shutil.copy(tmp_path / "flow.db", backup)
    live(world, new, 1)
    newest = flow_of(["a", "b"], sink=sink, late=["late"])
    for lost in (False, True):
        for path in tmp_path.glob("flow.db*"):
            path.unlink()
        if not lost:
            shutil.copy(backup, tmp_path / "flow.db")
        world.clock.seconds += EXPIRY + 1
        assert tg.recover(new(world), env=world.env()).upper == 2
        [known] = [one.earlier for one in world.loaded().sources.values()]
        assert [(one.epoch, one.schema.names) for one in known] == [(1, ["n"])], lost
    live(world, newest, 2)
    assert table(world, newest, "late") == table(world, newest) == [(0, None, None), (1, "a1", None), (2, "a2", "b2")]


POINTS = [
    f"{side} {effect}"
    for side in ("before", "after")
    for effect in ("record columns", "record code", "append bindings", "stage", "commit output", "publish")
]


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_leaves_the_same_columns(tmp_path: Path, sink: Sink, point: str) -> None:
    old, new = flow_of(sink=sink), flow_of(["a"], made=["x"], sink=sink)
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old, 1)
    add(world, 2)
    die(world, new, point)
    live(world, new, 3)
    assert table(world, new) == [(0, None, None), (1, None, None), (2, "a2", "x2"), (3, "a3", "x3")]


def check(actions: Sequence[Any], sink: Sink) -> None:
    """Any allowed changes at any epochs, with crashes: tables are what a dictionary says, a late one too."""
    with tempfile.TemporaryDirectory() as folder:
        columns: list[str] = []
        made: list[str] = []
        world, n = World(Path(folder), flow_of(sink=sink)), 0
        model: dict[int, dict[str, str | None]] = {}
        ends: list[int] = []

        def settle(bound: Sequence[str]) -> None:
            """Note the columns of the records that were bound in a life with these."""
            frontier = world.loaded().sources["orders"].table.frontier
            reached = sum(position for _, position in frontier.items())
            for one in range(len(model), sum(end <= reached for end in ends)):
                model[one] = {name: f"{name}{one}" for name in bound}

        for action in (("rows", 1), ("live", ""), *actions, ("rows", 1), ("live", "")):
            match action:
                case ("rows", int(count)):
                    for one in range(n, n + count):
                        add(world, one)
                        ends.append((world.root / "orders" / "1.jsonl").stat().st_size)
                    n += count
                case ("source", int(at)):
                    columns = sorted({*columns, NAMES[at]})
                case ("code", int(at)):
                    made = sorted({*made, ("x", "y", "z")[at]})
                case ("live", str(point)):
                    make = flow_of(columns, made, sink=sink)
                    if point:
                        die(world, make, point)
                    else:
                        live(world, make)
                    settle(columns)
        last = flow_of(columns, made, sink=sink, late=["late"])
        live(world, last)
        found = rows(last(world), "t")
        assert sorted(row["n"] for row in found) == list(range(n))
        for row in found:
            for name in columns:
                assert row[name] == model[row["n"]].get(name), (row, model)
        late = {row["n"]: row for row in rows(last(world), "late")}
        for row in found:
            assert late[row["n"]] == {name: value for name, value in row.items() if name not in made}
        coded = tg.outputs(last(world))[0].coded_at
        for name in made:
            firsts = [row["_epoch"] for row in found if row[name] is not None]
            assert all((row[name] is not None) == (row["_epoch"] >= min(firsts, default=0)) for row in found)
            assert not firsts or not coded or min(firsts) >= min((0, *coded))


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.integers(1, 4)),
        st.tuples(st.just("source"), st.integers(0, len(NAMES) - 1)),
        st.tuples(st.just("code"), st.integers(0, 2)),
        st.tuples(st.just("live"), st.sampled_from(["", "", *POINTS])),
    ),
    max_size=7,
)


@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(ACTIONS)
def test_any_changes_at_any_epochs_with_crashes_give_what_a_dictionary_says(actions: list[Any]) -> None:
    check(actions, tg.DeltaSink)


@pytest.mark.long
@pytest.mark.parametrize("sink", SINKS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions=ACTIONS)
def test_many_changes_at_any_epochs_with_crashes_give_what_a_dictionary_says(sink: Sink, actions: list[Any]) -> None:
    check(actions, sink)
