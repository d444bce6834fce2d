"""Mistakes in what a flow is made of: refused before anything runs, with the value and the nearest valid name."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.flow.badinput import begin, finish, lines, numbers, source, two, write
from tests.flow.by_hand import World

import tidegauge as tg
from tidegauge.errors.flow import (
    EmptyFlow,
    ForeignStream,
    InvalidArgument,
    InvalidExpression,
    InvalidSchema,
    NameTaken,
    NeedsSpark,
    ReservedColumn,
    TableTaken,
    UnknownColumn,
    UnknownName,
)
from tidegauge.errors.outputs import OutputMoved
from tidegauge.errors.sinks import TableOfAnotherIncarnation, TableWentBack
from tidegauge.errors.store import FlowAlreadyRunning, SchemaChanged, StoreTooNew


def flow_of(tmp_path: Path, name: str = "f") -> tuple[tg.Dataflow, tg.RowStream]:
    flow = tg.Dataflow(name, store=f"sqlite:///{tmp_path}/flow.db")
    return flow, flow.source(
        "orders", tg.FileSource(str(tmp_path / "in" / "*"), format=tg.Json("id long, amount double"))
    )


def test_two_sources_or_two_sinks_of_one_name_are_refused(tmp_path: Path) -> None:
    flow, orders = flow_of(tmp_path)
    flow.sink("orders", orders, tg.DeltaSink(str(tmp_path / "1")))
    with pytest.raises(NameTaken, match="TG-0102: the output name 'orders' is already taken in the flow 'f'"):
        flow.sink("orders", orders, tg.DeltaSink(str(tmp_path / "2")))
    with pytest.raises(NameTaken, match="TG-0102: the source name 'orders' is already taken in the flow 'f'"):
        flow.source("orders", tg.FileSource("x", format=tg.Json()))


@pytest.mark.parametrize(
    "second",
    ["lake/orders", "lake/../lake/orders/", "{root}/lake/orders", "pond/orders", "file://{root}/lake/orders"],
)
def test_two_outputs_into_one_table_are_refused(tmp_path: Path, second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pond").symlink_to("lake")
    flow, orders = flow_of(tmp_path)
    flow.sink("orders", orders, tg.DeltaSink("lake/orders"))
    with pytest.raises(TableTaken, match=r"output 'more' would write to .*lake/orders, where output 'orders' writes"):
        flow.sink("more", orders, tg.ParquetSink(second.format(root=tmp_path)))


def test_outputs_of_one_flow_may_share_a_topic_which_keeps_the_progress_of_each(tmp_path: Path) -> None:
    flow, orders = flow_of(tmp_path)
    for name in ("orders", "more"):
        flow.sink(name, orders, tg.KafkaSink("localhost:9092", topic="orders"))
    assert {plan.sink.identity for plan in flow.outputs.values()} == {"kafka:localhost:9092/orders"}


def test_a_stream_of_another_flow_is_refused(tmp_path: Path) -> None:
    flow, _orders = flow_of(tmp_path)
    _other, theirs = flow_of(tmp_path, "other")
    with pytest.raises(ForeignStream, match="belongs to the flow 'other', not to 'f'"):
        flow.sink("orders", theirs, tg.DeltaSink(str(tmp_path / "1")))


def test_a_flow_without_outputs_is_refused(tmp_path: Path) -> None:
    flow, _orders = flow_of(tmp_path)
    with pytest.raises(EmptyFlow, match="the flow 'f' has no output"):
        flow.run(until="caught-up", engine="local")
    assert not (tmp_path / "flow.db").exists()


def test_reading_an_unknown_output_names_the_nearest_one(tmp_path: Path) -> None:
    flow, orders = flow_of(tmp_path)
    flow.sink("large_orders", orders, tg.DeltaSink(str(tmp_path / "1")))
    with pytest.raises(
        UnknownName, match=r"no output named 'large_oders'. Known: 'large_orders'.(?s:.*)nearest is 'large"
    ):
        tg.read_arrow(flow, "large_oders")


def test_locating_in_an_unknown_source_names_the_nearest_one(tmp_path: Path) -> None:
    world = World(tmp_path, two)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    with pytest.raises(UnknownName, match=r"no source named 'c'. Known: 'a', 'b'"):
        tg.locate(two(world), "c", "x", 0)


@pytest.mark.parametrize(
    ("parameter", "wrong"),
    [
        ("until", lambda flow: flow.run(until="caught_up", engine="local")),
        ("engine", lambda flow: flow.run(engine="flink")),
        ("spark", lambda flow: flow.run(engine="local", spark=object())),
        ("staging", lambda flow: flow.source("more", tg.GeneratorSource(1, columns="n long"), staging="waiting")),
    ],
)
def test_an_impossible_argument_of_a_flow_or_a_run_is_refused(
    parameter: str, wrong: Callable[[tg.Dataflow], object], tmp_path: Path
) -> None:
    flow, orders = flow_of(tmp_path)
    flow.sink("orders", orders, tg.DeltaSink(str(tmp_path / "1")))
    with pytest.raises(InvalidArgument, match=f"TG-0105: {parameter} cannot be"):
        wrong(flow)
    assert not (tmp_path / "flow.db").exists()


def test_a_sql_step_on_the_local_engine_is_refused(tmp_path: Path) -> None:
    flow, orders = flow_of(tmp_path)
    flow.sink("orders", orders.filter("abs(id) > 1"), tg.DeltaSink(str(tmp_path / "1")))
    with pytest.raises(
        NeedsSpark, match=r"output 'orders' has the step filter\('abs\(id\) > 1'\), which needs Spark"
    ):
        flow.run(until="caught-up", engine="local")


@pytest.mark.spark
def test_a_wrong_expression_is_refused_before_anything_runs(tmp_path: Path) -> None:
    flow, orders = flow_of(tmp_path)
    flow.sink("orders", orders.select("id", "amout * 2 AS twice"), tg.DeltaSink(str(tmp_path / "1")))
    engine = tg.SparkEngine(master="local[1]")
    try:
        with pytest.raises(UnknownColumn, match=r"names the column 'amout'(?s:.*)nearest is 'amount'"):
            flow.run(until="caught-up", engine=engine)
        flow, orders = flow_of(tmp_path)
        flow.sink("orders", orders.filter("id >"), tg.DeltaSink(str(tmp_path / "1")))
        with pytest.raises(InvalidExpression, match="output 'orders'"):
            flow.run(until="caught-up", engine=engine)
    finally:
        engine.close()
    assert not (tmp_path / "flow.db").exists()


@pytest.mark.parametrize(
    ("schema", "said"),
    [("id long, price", "price"), ("id long, _epoch long", "_epoch"), (5, "5"), (["id long"], "id long")],
)
def test_columns_that_a_function_cannot_return_are_refused_when_it_is_named(
    tmp_path: Path, schema: Any, said: str
) -> None:
    _, orders = flow_of(tmp_path)
    with pytest.raises((InvalidSchema, ReservedColumn, InvalidArgument)) as caught:
        orders.map_batches(lambda batch: batch, schema=schema)
    assert said in str(caught.value)


def test_the_columns_that_a_function_returns_may_be_told_as_those_of_a_source_are(tmp_path: Path) -> None:
    flow, orders = flow_of(tmp_path)
    write(tmp_path / "in" / "a", '{"id": 1, "amount": 2.5}\n')
    flow.sink("ids", orders.map_batches(lambda batch: batch.select(["id"]), schema="id long"), tg.MemorySink())
    flow.run("caught-up", engine="local")
    assert tg.read_arrow(flow, "ids").to_pylist() == [{"id": 1, "_epoch": 0}]


def test_an_output_that_is_pointed_at_another_source_needs_another_table(
    tmp_path: Path,
) -> None:
    def renamed(table: str) -> Callable[[World], tg.Dataflow]:
        def make(world: World) -> tg.Dataflow:
            flow = tg.Dataflow("two", store=world.store)
            again = flow.source("again", tg.FileSource(str(world.root / "a" / "*"), format=tg.Json("n long")))
            flow.sink("a", again, tg.DeltaSink(str(world.root / "lake" / table)))
            return flow

        return make

    world = World(tmp_path, two)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    with pytest.raises(
        OutputMoved, match="TG-0219: output 'a' was written from source 'a' and is to be written from 'ag"
    ):
        begin(world, renamed("a"))
    assert numbers(two(world), "a") == [1]
    finish(world, renamed("a2"))
    assert numbers(renamed("a2")(world), "a") == [1]


def linked(name: str) -> Callable[[World], tg.Dataflow]:
    """A flow that names its table by a symbolic link. name: its source."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("two", store=world.store)
        flow.sink("a", source(world, flow, name), tg.DeltaSink(str(world.root / "link" / "a")))
        return flow

    return make


def test_a_table_that_is_named_by_a_link_is_the_same_table(tmp_path: Path) -> None:
    world = World(tmp_path, two)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    with pytest.raises(OutputMoved):
        begin(world, linked("again"))
    assert numbers(two(world), "a") == [1]
    finish(world, linked("a"))
    assert numbers(two(world), "a") == [1]
    shutil.rmtree(tmp_path / "lake" / "a")
    run = begin(world, two)
    for _ in range(3):
        run.step()
    assert isinstance(run.runner.board.outputs["a"].error, TableWentBack)
    assert not (tmp_path / "lake" / "a").exists(), "nothing is written in its place"
    run.abandon()


def declared(ddl: str) -> Callable[[World], tg.Dataflow]:
    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("two", store=world.store)
        a = source(world, flow, "a", metadata=False, format=tg.Json(ddl))
        flow.sink("a", a, tg.DeltaSink(str(world.root / "lake" / "a")))
        return flow

    return make


def test_columns_that_were_declared_otherwise_before_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path, declared("n long, text string"))
    write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    write(tmp_path / "a" / "1.jsonl", lines(2))
    before = len(world.points)
    with pytest.raises(SchemaChanged) as refused:
        begin(world, declared("n string, word string"))
    text = str(refused.value)
    assert "source 'a' has other columns" in text
    for name in ("'n'", "'text'", "'word'"):
        assert name.strip("'") in text
    assert "append bindings" not in " ".join(world.points[before:])
    finish(world, declared("n long, text string"))
    assert numbers(world.make(world), "a") == [1, 2]


def test_a_store_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    world = World(tmp_path, two)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    with sqlite3.connect(tmp_path / "flow.db") as database:
        [table] = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if "layout" in name
        ]
        database.execute(f"UPDATE {table} SET version = 99")
    for attempt in (lambda: begin(world), lambda: tg.status(two(world)), lambda: tg.read_arrow(two(world), "a")):
        with pytest.raises(
            StoreTooNew, match=r"TG-0207: the store sqlite:.*flow.db has layout 99; this version knows"
        ):
            attempt()


def test_a_table_that_another_store_wrote_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, two)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    kept = tmp_path / "kept"
    kept.mkdir()
    for file in tmp_path.glob("flow.db*"):
        shutil.move(file, kept)
    with pytest.raises(TableOfAnotherIncarnation, match=f"TG-0408: the table {tmp_path}/lake/a was written by"):
        begin(world)
    for file in tmp_path.glob("flow.db*"):
        file.unlink()
    for file in kept.iterdir():
        shutil.move(file, tmp_path)
    write(tmp_path / "a" / "1.jsonl", lines(2))
    finish(world)
    assert numbers(two(world), "a") == [1, 2], "with its own store the flow goes on"


def test_two_flows_in_one_store_do_not_disturb_each_other(tmp_path: Path) -> None:
    def other(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("other", store=world.store)
        flow.sink("a", source(world, flow, "a"), tg.DeltaSink(str(world.root / "lake" / "theirs")))
        return flow

    world, beside = World(tmp_path, two), World(tmp_path, other)
    run, theirs = begin(world), begin(beside)
    for n in range(3):
        write(tmp_path / "a" / "1.jsonl", lines(n))
        run.catch_up()
        if n != 1:
            theirs.catch_up()
    run.abandon()
    theirs.abandon()
    assert numbers(two(world), "a") == numbers(other(beside), "a") == [0, 1, 2]
    assert tg.status(two(world)).published == 3
    assert tg.status(other(beside)).published == 2


def test_a_second_driver_of_a_flow_is_refused_with_who_runs_it(tmp_path: Path) -> None:
    world = World(tmp_path, two)
    run = begin(world)
    with pytest.raises(
        FlowAlreadyRunning, match=r"TG-0204: flow 'two' is already run by .+ on .+, process \d+, since 2026"
    ):
        begin(world)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    run.catch_up()
    run.abandon()
    assert numbers(two(world), "a") == [1]
