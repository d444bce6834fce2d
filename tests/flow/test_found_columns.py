"""Columns that nobody declared, and that records have from some day on: taken on at an epoch, or ignored."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.flow.badinput import begin, rows, write
from tests.flow.by_hand import Crash, World

import tidegauge as tg
from tidegauge.errors.columns import SourceColumnsRefused
from tidegauge.evolution import Evolution
from tidegauge.remap.store import EXPIRY
from tidegauge.sources.scouting import SCOUTED

SINKS = [tg.ParquetSink, pytest.param(tg.DeltaSink, marks=pytest.mark.long)]
Make = Callable[[World], tg.Dataflow]


def flow_of(
    *others: tuple[str, Evolution, Sequence[str]],
    how: Evolution = "add",
    sink: Any = tg.DeltaSink,
    format: Any = None,
    **options: Any,
) -> Make:
    """One source without declared columns into table `t`, and others: a name, how, and what it selects."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        pattern = str(world.root / "orders" / "*")
        options.setdefault("max_bytes_per_epoch", 400)
        orders = flow.source("orders", tg.FileSource(pattern, format=format or tg.Json(), **options))
        flow.sink("t", orders, sink(str(world.root / "lake" / "t")), schema=how)
        for name, its, columns in others:
            step = orders.select(*columns) if columns else orders
            flow.sink(name, step, sink(str(world.root / "lake" / name)), schema=its)
        return flow

    return make


def add(world: World, *records: dict[str, Any], file: str = "1.jsonl") -> None:
    write(world.root / "orders" / file, "".join(json.dumps(record) + "\n" for record in records))


def live(world: World, make: Make, *batches: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """One life, in which these records come, one batch after the other; return what it was told."""
    run = begin(world, make)
    try:
        run.catch_up()
        for batch in batches:
            add(world, *batch)
            run.catch_up()
        return run.runner.board.news
    finally:
        run.abandon()


def die(world: World, make: Make, at: str) -> bool:
    """One life that ends at a point, if it comes there."""
    world.strike = at
    try:
        run = begin(world, make)
        try:
            run.catch_up()
        finally:
            run.abandon()
    except Crash:
        return True
    finally:
        world.strike = ""
        world.clock.seconds += EXPIRY + 1
    return False


def table(world: World, make: Make, output: str = "t") -> list[dict[str, Any]]:
    """The rows of a table without their epochs and without what is null."""
    found = rows(make(world), output)
    return [{name: value for name, value in row.items() if name != "_epoch" and value is not None} for row in found]


# -- what is taken on


@pytest.mark.parametrize("sink", SINKS)
def test_the_first_record_that_has_a_column_is_in_the_first_epoch_that_has_it(tmp_path: Path, sink: Any) -> None:
    make = flow_of(sink=sink)
    world = World(tmp_path, make)
    add(world, {"n": 0})
    told = live(world, make, [{"n": 1}], [{"n": 2, "user": "ada"}, {"n": 3}], [{"n": 4, "user": "bob"}])
    assert told == ("source orders has other columns, from epoch 2 on: user: new",)
    assert table(world, make) == [{"n": 0}, {"n": 1}, {"n": 2, "user": "ada"}, {"n": 3}, {"n": 4, "user": "bob"}]
    assert tg.read_arrow(make(world), "t").schema.names == ["n", "_epoch", "user"]
    assert [(one.epoch, one.schema.names) for one in world.loaded().sources["orders"].earlier] == [(2, ["n"])]
    assert live(world, make, [{"n": 5, "user": "eve"}]) == (), "and it stays so"
    assert table(world, make)[-1] == {"n": 5, "user": "eve"}


def test_columns_of_the_whole_first_epoch_are_known_and_not_only_those_of_the_first_records(tmp_path: Path) -> None:
    make = flow_of(max_bytes_per_epoch=1 << 30)
    world = World(tmp_path, make)
    add(world, *[{"n": n, "text": "x" * 1000} for n in range(2000)], {"n": 2000, "late": 1.5})
    live(world, make)
    assert tg.read_arrow(make(world), "t").schema.names == ["n", "text", "late", "_epoch"]


def test_several_columns_come_one_after_the_other_with_types_that_values_tell(tmp_path: Path) -> None:
    make = flow_of(metadata=True)
    world = World(tmp_path, make)
    add(world, {"n": 0})
    batches: list[list[dict[str, Any]]] = [
        [{"n": 1, "a": None, "b": []}],
        [{"n": 2, "a": 1}, {"n": 3, "a": 2.5}],
        [{"n": 4, "b": ["x"], "c": {"d": True}}],
    ]
    live(world, make, *batches)
    schema = tg.read_arrow(make(world), "t").schema
    assert schema.names == ["n", "_partition", "_offset", "_epoch", "a", "b", "c"]
    assert [schema.field(name).type for name in "abc"] == [
        pa.float64(),
        pa.list_(pa.string()),
        pa.struct([("d", pa.bool_())]),
    ]
    assert table(world, make)[2:] == [{"n": 2, "a": 1.0}, {"n": 3, "a": 2.5}, {"n": 4, "b": ["x"], "c": {"d": True}}]


@pytest.mark.parametrize("sink", SINKS)
def test_a_field_within_a_struct_is_taken_on_too_and_a_late_output_has_the_same(tmp_path: Path, sink: Any) -> None:
    make = flow_of(sink=sink)
    world = World(tmp_path, make)
    add(world, {"n": 0, "at": {"x": 1}, "all": [{"x": 1}]})
    told = live(
        world, make, [{"n": 1, "at": {"y": "a", "x": 2}, "all": [{"z": None}, {"y": 3}]}], [{"n": 2, "at": None}]
    )
    assert len(told) == 1
    assert told[0].startswith("source orders has other columns, from epoch 1 on: at: struct<x: int64> -> struct<x")
    late = flow_of(("late", "add", ()), sink=sink)
    live(world, late)
    assert table(world, late) == table(world, late, "late")
    assert table(world, late) == [
        {"n": 0, "at": {"x": 1, "y": None}, "all": [{"x": 1, "y": None}]},
        {"n": 1, "at": {"x": 2, "y": "a"}, "all": [{"x": None, "y": None}, {"x": None, "y": 3}]},
        {"n": 2},
    ]


@pytest.mark.parametrize("sink", SINKS)
def test_a_header_with_further_names_and_a_parquet_file_with_further_columns(tmp_path: Path, sink: Any) -> None:
    for how, suffix in ((tg.Csv(), "csv"), (tg.Parquet(), "parquet")):
        make = flow_of(sink=sink, format=how, settle=0)
        world = World(tmp_path / suffix, make)

        def put(name: str, **columns: list[Any]) -> None:
            path = world.root / "orders" / f"{name}.{suffix}"  # noqa: B023 - called in its turn
            path.parent.mkdir(parents=True, exist_ok=True)
            if suffix == "parquet":  # noqa: B023
                pq.write_table(pa.table(columns), path)
                os.utime(path, (0, 0))  # its writer is done
                return
            lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
            write(path, "\n".join(lines) + "\n")

        put("a", n=[0, 1])
        live(world, make)
        put("b", n=[2, 3], price=[1.5, 2.0])
        live(world, make)
        put("c", n=[4], user=["ada"])
        live(world, make)
        assert table(world, make) == [
            {"n": 0},
            {"n": 1},
            {"n": 2, "price": 1.5},
            {"n": 3, "price": 2.0},
            {"n": 4, "user": "ada"},
        ], suffix


def test_a_compressed_file_is_gone_through_to_its_end(tmp_path: Path) -> None:
    make = flow_of(settle=0)
    world = World(tmp_path, make)
    add(world, {"n": 0})
    live(world, make)
    lines = "".join(json.dumps({"n": n, **({"user": "ada"} if n == 999 else {})}) + "\n" for n in range(1, 1000))
    packed = tmp_path / "orders" / "2.jsonl.gz"
    packed.write_bytes(gzip.compress(lines.encode()))
    os.utime(packed, (0, 0))  # its writer is done
    live(world, make)
    assert table(world, make)[-1] == {"n": 999, "user": "ada"}


def test_a_backlog_is_gone_through_in_parts_and_no_part_is_bound_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCOUTED, "bytes", 150)
    make = flow_of(max_bytes_per_epoch=1 << 30)
    world = World(tmp_path, make)
    records = [{"n": n, **({f"c{n}": n} if n % 10 == 9 else {})} for n in range(40)]
    add(world, *records)
    live(world, make)
    assert table(world, make) == records
    epochs = [row["_epoch"] for row in rows(make(world), "t")]
    assert max(epochs.count(epoch) for epoch in set(epochs)) <= 16
    first = {row["_epoch"]: row["n"] for row in reversed(rows(make(world), "t"))}
    known = [(one.epoch, one.schema.names) for one in world.loaded().sources["orders"].earlier]
    assert all(first[epoch] <= 9 + 10 * (len(names) - 1) for epoch, names in known)


# -- what is ignored


def test_with_strict_a_further_field_changes_nothing(tmp_path: Path) -> None:
    make = flow_of(how="strict")
    world = World(tmp_path, make)
    add(world, {"n": 0})
    assert live(world, make, [{"n": 1, "user": "ada"}]) == ()
    assert table(world, make) == [{"n": 0}, {"n": 1}]
    assert world.loaded().sources["orders"].earlier == ()


def test_a_field_that_one_output_does_not_take_on_is_passed_over_and_people_are_told_why(tmp_path: Path) -> None:
    make = flow_of(("other", "strict", ()))
    world = World(tmp_path, make)
    add(world, {"n": 0})
    told = live(world, make, [{"n": 1, "user": "ada"}], [{"n": 2, "user": "bob"}])
    why = "the rows of output 'other' would have others, which schema='strict' does not take on"
    assert told == (f"source orders has records with 'user' (string), not read: {why}",)
    assert table(world, make) == table(world, make, "other") == [{"n": 0}, {"n": 1}, {"n": 2}]
    both = flow_of(("other", "add", ()))
    live(world, both, [{"n": 3, "user": "eve"}])
    assert (
        table(world, both) == table(world, both, "other") == [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3, "user": "eve"}]
    )


def test_an_output_that_selects_its_columns_is_not_concerned(tmp_path: Path) -> None:
    make = flow_of(("few", "strict", ["n"]))
    world = World(tmp_path, make)
    add(world, {"n": 0})
    live(world, make, [{"n": 1, "user": "ada"}])
    assert table(world, make) == [{"n": 0}, {"n": 1, "user": "ada"}]
    assert table(world, make, "few") == [{"n": 0}, {"n": 1}]


def test_each_field_is_settled_by_itself_against_the_table(tmp_path: Path) -> None:
    """Somebody has given the table a column of another type: that one is passed over, and the other one taken on."""
    import deltalake

    make = flow_of()
    world = World(tmp_path, make)
    add(world, {"n": 0})
    live(world, make)
    lake = deltalake.DeltaTable(str(tmp_path / "lake" / "t"))
    lake.alter.add_columns([deltalake.Field("user", deltalake.schema.PrimitiveType("long"))])
    evolving = flow_of(how="evolve")
    [taken, passed] = sorted(live(world, evolving, [{"n": 1, "user": "ada", "note": "new"}], [{"n": 2, "user": "x"}]))
    assert taken == "source orders has other columns, from epoch 1 on: note: new"
    assert passed.startswith("source orders has records with 'user' (string), not read: the table ")
    assert table(world, evolving) == [{"n": 0}, {"n": 1, "note": "new"}, {"n": 2}]


def test_names_that_no_column_can_have_are_passed_over(tmp_path: Path) -> None:
    make = flow_of(metadata=True)
    world = World(tmp_path, make)
    add(world, {"n": 0})
    odd = {"N": 1, "_epoch": 7, "_op": "delete", "_offset": "x", "_partition": 1, "a": 1, "A": 2}
    live(world, make, [{"n": 1, **odd}])
    assert tg.read_arrow(make(world), "t").schema.names == ["n", "_partition", "_offset", "_epoch", "a"]
    assert table(world, make)[1]["a"] == 1


def test_a_line_that_cannot_be_read_tells_no_column_and_is_bad_as_ever(tmp_path: Path) -> None:
    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = flow.source("orders", tg.FileSource(str(world.root / "orders" / "*"), format=tg.Json()))
        flow.sink("t", orders, tg.DeltaSink(str(world.root / "lake" / "t")), schema="add")
        flow.sink("bad", orders.errors, tg.ParquetSink(str(world.root / "lake" / "bad")))
        return flow

    world = World(tmp_path, make)
    add(world, {"n": 0})
    live(world, make)
    write(world.root / "orders" / "1.jsonl", '{"n": 1, "x": \n[]\n{"n": "x", "note": 1}\n{"n": 2, "user": "ada"}\n')
    live(world, make)
    assert table(world, make) == [{"n": 0}, {"n": 2, "user": "ada"}]
    assert len(rows(make(world), "bad")) == 3


# -- beside others


def test_columns_that_were_found_can_be_declared_later_with_others_and_not_without_them(tmp_path: Path) -> None:
    make = flow_of()
    world = World(tmp_path, make)
    add(world, {"n": 0})
    live(world, make, [{"n": 1, "user": "ada"}])
    add(world, {"n": 2, "user": "bob", "note": "new"})
    with pytest.raises(SourceColumnsRefused, match="user: gone"):
        live(world, flow_of(format=tg.Json("n long, note string")))
    declared = flow_of(format=tg.Json("n long, user string, note string"))
    live(world, declared, [{"n": 3, "more": "of no column"}])
    assert table(world, declared)[2:] == [{"n": 2, "user": "bob", "note": "new"}, {"n": 3}]
    live(world, make, [{"n": 4, "more": "found"}])
    assert table(world, make)[4:] == [{"n": 4, "more": "found"}]


def test_a_late_output_and_a_lost_store_have_the_same_columns(tmp_path: Path) -> None:
    make = flow_of()
    world = World(tmp_path, make)
    add(world, {"n": 0})
    backup = tmp_path / "backup"
    live(world, make)
    shutil.copy(tmp_path / "flow.db", backup)
    live(world, make, [{"n": 1, "user": "ada"}], [{"n": 2, "note": "new"}])
    for lost in (False, True):
        for path in tmp_path.glob("flow.db*"):
            path.unlink()
        if not lost:
            shutil.copy(backup, tmp_path / "flow.db")
        world.clock.seconds += EXPIRY + 1
        assert tg.recover(make(world), env=world.env()).upper == 3
        [known] = [one.earlier for one in world.loaded().sources.values()]
        assert [(one.epoch, one.schema.names) for one in known] == [(1, ["n"]), (2, ["n", "user"])]
    late = flow_of(("late", "add", ()))
    live(world, late, [{"n": 3, "last": 1}])
    assert table(world, late) == table(world, late, "late")
    assert table(world, late)[1:] == [{"n": 1, "user": "ada"}, {"n": 2, "note": "new"}, {"n": 3, "last": 1}]


def test_a_driver_that_was_asleep_binds_nothing_by_the_columns_of_before(tmp_path: Path) -> None:
    make = flow_of()
    world = World(tmp_path, make)
    add(world, {"n": 0})
    asleep = begin(world, make)
    asleep.catch_up()
    world.clock.seconds += EXPIRY + 1
    live(world, make, [{"n": 1, "user": "ada"}])
    add(world, {"n": 2, "user": "bob", "note": "new"})
    with pytest.raises(tg.TidegaugeError):
        asleep.catch_up()
    asleep.abandon()
    live(world, make)
    assert table(world, make) == [{"n": 0}, {"n": 1, "user": "ada"}, {"n": 2, "user": "bob", "note": "new"}]


def test_who_asks_for_a_tick_gets_the_epoch_that_has_the_column(tmp_path: Path) -> None:
    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store, tick=tg.Manual())
        orders = flow.source("orders", tg.FileSource(str(world.root / "orders" / "*"), format=tg.Json()))
        flow.sink("t", orders, tg.DeltaSink(str(world.root / "lake" / "t")), schema="add")
        return flow

    world = World(tmp_path, make)
    add(world, {"n": 0})
    run = begin(world, make)
    for expected, record in ((0, None), (1, {"n": 1, "user": "ada"})):
        if record:
            add(world, record)
        asked = run.runner.requests.ask()
        for _ in range(20):
            run.step()
        assert asked.result(timeout=0) == expected
    run.abandon()
    assert table(world, make) == [{"n": 0}, {"n": 1, "user": "ada"}]


POINTS = [
    f"{side} {effect}"
    for side in ("before", "after")
    for effect in ("record columns", "append bindings", "stage", "commit output", "publish")
]


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize(
    "point", [pytest.param(one, marks=[] if i % 4 == 1 else pytest.mark.long) for i, one in enumerate(POINTS)]
)
def test_a_crash_anywhere_leaves_the_same_columns(tmp_path: Path, sink: Any, point: str) -> None:
    make = flow_of(sink=sink)
    world = World(tmp_path, make)
    add(world, {"n": 0})
    live(world, make, [{"n": 1}])
    add(world, {"n": 2, "user": "ada"})
    assert die(world, make, point)
    live(world, make, [{"n": 3, "user": "bob"}])
    assert table(world, make) == [{"n": 0}, {"n": 1}, {"n": 2, "user": "ada"}, {"n": 3, "user": "bob"}]


RECORDS = st.fixed_dictionaries(
    {}, optional={name: st.one_of(st.none(), st.integers(-9, 9), st.text("xyz", max_size=3)) for name in "abcd"}
)
ACTIONS = st.lists(st.one_of(st.lists(RECORDS, min_size=1, max_size=4), st.sampled_from(["", *POINTS])), max_size=9)


def check(actions: Sequence[Any], sink: Any) -> None:
    """Any records, lives and crashes: every value is in the table, but those whose kind is not that of the first."""
    with tempfile.TemporaryDirectory() as folder:
        make = flow_of(sink=sink)
        world, n = World(Path(folder), make), 0
        kinds: dict[str, type] = {}
        expected: list[dict[str, Any]] = []

        def put(records: Sequence[dict[str, Any]]) -> None:
            nonlocal n
            for record in records:
                fit = {k: v for k, v in record.items() if v is None or kinds.setdefault(k, type(v)) is type(v)}
                add(world, {"n": n, **fit})
                expected.append({"n": n, **{k: v for k, v in fit.items() if v is not None}})
                n += 1

        put([{}])
        live(world, make)
        for action in actions:
            if isinstance(action, list):
                put(action)
            elif action:
                die(world, make, action)
            else:
                live(world, make)
        late = flow_of(("late", "add", ()), sink=sink)
        live(world, late)
        assert sorted(table(world, late), key=lambda row: row["n"]) == expected
        assert sorted(table(world, late, "late"), key=lambda row: row["n"]) == expected


@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(ACTIONS)
def test_every_value_of_any_records_is_in_the_table(actions: list[Any]) -> None:
    check(actions, tg.ParquetSink)


@pytest.mark.long
@pytest.mark.parametrize("sink", [tg.DeltaSink, tg.ParquetSink])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions=ACTIONS)
def test_every_value_of_many_records_is_in_the_table(sink: Any, actions: list[Any]) -> None:
    check(actions, sink)
