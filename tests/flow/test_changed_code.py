"""A flow whose code was changed: told what is new, changed and gone, and refused what would change rows unasked."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rich.console import Console
from tests.flow.badinput import begin, lines, numbers, source, write
from tests.flow.by_hand import Crash, World

import tidegauge as tg
from tidegauge.cli.run import LiveBoard
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.outputs import CodeChanged
from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.errors.store import FlowAlreadyRunning
from tidegauge.flow.belonging import table_of
from tidegauge.job.code import RUNTIME
from tidegauge.remap.store import EXPIRY, CodeRecord, Store

SINKS = [tg.ParquetSink, tg.DeltaSink]


def at_least(least: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.greater_equal(batch["n"], least))


def flow_of(
    least: int = 0, *, name: str = "some", sink: Callable[[str], Any] = tg.ParquetSink, where: str = "some"
) -> Callable[[World], tg.Dataflow]:
    """One source into the table `a` with all of it, and into one with some of it."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("a", orders, tg.DeltaSink(str(world.root / "lake" / "a")))
        if name:
            some = orders.map_batches(partial(at_least, least))
            flow.sink(name, some, sink(str(world.root / "lake" / where)))
        return flow

    return make


def add(world: World, *found: int) -> None:
    for n in found:
        write(world.root / "orders" / "1.jsonl", lines(n))


def live(world: World, make: Callable[[World], tg.Dataflow], *more: int) -> tuple[str, ...]:
    """One life, in which these numbers come, each in an epoch; return what it was told of its outputs."""
    run = begin(world, make)
    try:
        run.catch_up()
        for n in more:
            add(world, n)
            run.catch_up()
        return run.runner.board.news
    finally:
        run.abandon()


def coded(world: World, output: str = "some") -> list[int]:
    return [one.epoch for one in world.loaded().outputs[output].codes]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A flow with three epochs in both tables."""
    world = World(tmp_path, flow_of())
    add(world, 0)
    assert live(world, flow_of(), 1, 2) == (), "nothing is new in a flow that has never run"
    return world


def test_a_flow_that_is_opened_again_and_again_is_told_nothing(world: World) -> None:
    for n in (3, 4, 5):
        assert live(world, flow_of(), n) == ()
    assert (coded(world), numbers(flow_of()(world), "some")) == ([0], list(range(6)))


@pytest.mark.parametrize("sink", SINKS)
def test_a_change_that_would_change_published_rows_is_refused_before_anything_is_begun(
    tmp_path: Path, sink: Callable[[str], Any]
) -> None:
    world = World(tmp_path, flow_of(sink=sink))
    add(world, 0)
    live(world, flow_of(sink=sink), 1, 2)
    add(world, 3)
    world.points.clear()
    with pytest.raises(CodeChanged) as caught:
        begin(world, flow_of(4, sink=sink))
    assert caught.value.code == "TG-0229"
    assert "output 'some' holds the epochs before 3" in caught.value.summary
    assert "since epoch 0: 'argument 1' in step 1 (map_batches) is another" in caught.value.summary
    assert "tidegauge outputs from-here FLOW some" in caught.value.next_step
    assert not {"before stage", "before append bindings", "before record code"} & {*world.points}
    assert live(world, flow_of(sink=sink), 4) == (), "as it was, it goes on"
    assert numbers(flow_of(sink=sink)(world), "some") == list(range(5))


def test_all_outputs_that_have_changed_are_named(world: World) -> None:
    def both(world: World, condition: str) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders").filter(condition)
        for name in ("a", "b"):
            flow.sink(name, orders, tg.ParquetSink(str(world.root / "both" / name)))
        return flow

    live(world, lambda world: both(world, "n >= 0"))
    with pytest.raises(
        CodeChanged, match=r"'a' holds .*step 1 \(filter\) is another; the code of 'b' has changed, too"
    ):
        begin(world, lambda world: both(world, "n >= 1"))


def test_from_here_the_new_code_makes_the_rows_and_the_epoch_is_kept_and_shown(world: World) -> None:
    done = tg.from_here(flow_of(4)(world), "some", env=world.env())
    assert (done.epoch, done.changes) == (3, ("'argument 1' in step 1 (map_batches) is another",))
    assert live(world, flow_of(4), 3, 4, 5) == ()
    assert numbers(flow_of(4)(world), "some") == [0, 1, 2, 4, 5]
    assert coded(world) == [0, 3]
    assert {one.name: one.coded_at for one in tg.outputs(flow_of(4)(world))} == {"a": (), "some": (3,)}
    with pytest.raises(CodeChanged, match="since epoch 3"):
        begin(world, flow_of())
    assert tg.from_here(flow_of()(world), "some", env=world.env()).epoch == 6
    assert coded(world) == [0, 3, 6]


@pytest.mark.parametrize("sink", SINKS)
def test_after_from_here_a_driver_that_slept_adds_no_row_of_the_old_code(
    tmp_path: Path, sink: Callable[[str], Any]
) -> None:
    old, new = flow_of(sink=sink), flow_of(4, sink=sink)
    world = World(tmp_path, old)
    add(world, 0)
    live(world, old, 1)
    asleep = table_of(old(world).spec, "some", world.loaded())  # right before it commits epoch 2
    assert asleep.schema is not None
    tg.from_here(new(world), "some", env=world.env())
    with pytest.raises(TableUpperMismatch):
        asleep.commit(2, 3, asleep.schema, [], write="f" * 32)
    assert live(world, new, 3, 4) == ()
    assert numbers(new(world), "some") == [0, 1, 4]


def test_from_here_of_unchanged_code_changes_nothing(world: World) -> None:
    assert tg.from_here(flow_of()(world), "some", env=world.env()).changes == ()
    assert coded(world) == [0]


def test_from_here_needs_an_output_that_is_known_and_a_flow_that_does_not_run(world: World) -> None:
    with pytest.raises(UnknownName):
        tg.from_here(flow_of(name="other")(world), "other", env=world.env())
    with pytest.raises(UnknownName):
        tg.from_here(flow_of()(world), "none", env=world.env())
    run = begin(world, flow_of())
    try:
        with pytest.raises(FlowAlreadyRunning):
            tg.from_here(flow_of(4)(world), "some", env=world.env())
    finally:
        run.abandon()


def test_what_is_new_changed_and_gone_is_told_once(world: World) -> None:
    assert live(world, flow_of(name="other", where="other")) == (
        "output other is new",
        "output some is gone from the flow; its table stays as it is",
    )
    assert live(world, flow_of(name="other", where="other")) == (
        "output some is gone from the flow; its table stays as it is",
    )
    run = begin(world, flow_of(name=""))
    run.catch_up()
    LiveBoard(Console(file=(said := io.StringIO()), width=200))(run.runner.board)
    run.abandon()
    assert said.getvalue().count("is gone from the flow") == 2


def test_an_output_without_rows_begins_with_the_code_that_it_has(tmp_path: Path) -> None:
    world = World(tmp_path, flow_of(name=""))
    add(world, 0)
    live(world, flow_of(name=""), 1)
    world.strike = "before commit output"
    with pytest.raises(Crash):
        begin(world, flow_of()).catch_up()
    world.clock.seconds += EXPIRY + 1
    assert live(world, flow_of(1), 2) == (
        "output some has changed, from epoch 0 on: 'argument 1' in step 1 (map_batches) is another",
    )
    assert numbers(flow_of(1)(world), "some") == [1, 2]
    assert coded(world) == [0]


def test_an_output_that_has_failed_goes_on_with_corrected_code_where_it_was(world: World) -> None:
    def broken(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 3 in batch["n"].to_pylist():
            raise ValueError("three is not wanted")
        return batch

    def flow(function: Callable[..., Any]) -> Callable[[World], tg.Dataflow]:
        def make(world: World) -> tg.Dataflow:
            flow = flow_of(name="")(world)
            more = source(world, flow, "more").map_batches(function)
            flow.sink("b", more, tg.ParquetSink(str(world.root / "lake" / "b")))
            return flow

        return make

    write(world.root / "more" / "1.jsonl", lines(1, 2))
    live(world, flow(broken))
    write(world.root / "more" / "1.jsonl", lines(3))
    live(world, flow(broken))
    [first] = coded(world, "b")
    news = live(world, flow(lambda batch: batch))
    assert [one for one in news if "output b" in one] == [
        f"output b has changed, from epoch {coded(world, 'b')[1]} on: the function of step 1 (map_batches) is another"
    ]
    assert first < coded(world, "b")[1]
    assert numbers(flow(broken)(world), "b") == [1, 2, 3]


def record(world: World, *texts: str) -> None:
    """Have other codes recorded for the output, from epoch 1 on."""
    store = Store.open(world.store, env=tg.Env())
    run = begin(world, flow_of())
    store.record_codes(run.runner.lease, {"some": [CodeRecord(1, text, world.clock.now()) for text in texts]})
    run.abandon()
    store.close()


@pytest.mark.parametrize("codes", [(), ("what nobody wrote",), ("elsewhere",)])
def test_tables_of_versions_without_codes_and_of_another_python_are_taken_over_silently(
    world: World, codes: tuple[str, ...]
) -> None:
    [known] = world.loaded().outputs["some"].codes
    record(world, *(known.code.replace(RUNTIME, "cpython-399") if one == "elsewhere" else one for one in codes))
    assert live(world, flow_of(1), 3) == ()
    with pytest.raises(CodeChanged):
        begin(world, flow_of(2))


def test_a_dropped_output_and_one_that_writes_elsewhere_are_compared_with_nothing(world: World) -> None:
    tg.drop(flow_of()(world), "some", env=world.env())
    assert live(world, flow_of(4), 3) == ()
    assert live(world, flow_of(5, where="elsewhere"), 4) == ("output some is new",)
    assert numbers(flow_of(5, where="elsewhere")(world), "some") == []


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_driver_that_dies_while_it_records_its_code_leaves_nothing_made_by_it(tmp_path: Path, side: str) -> None:
    world = World(tmp_path, flow_of())
    add(world, 0, 1)
    world.strike = f"{side} record code"
    with pytest.raises(Crash):
        world.start()
    world.clock.seconds += EXPIRY + 1
    live(world, flow_of(1))
    assert (coded(world), numbers(flow_of(1)(world), "some")) == ([0], [1])


def test_an_output_whose_table_is_away_is_compared_by_what_it_held(world: World) -> None:
    (world.root / "lake" / "some").rename(world.root / "away")
    with pytest.raises(TidegaugeError) as caught:
        begin(world, flow_of(4))
    assert isinstance(caught.value, CodeChanged)


@pytest.mark.spark
def test_a_transform_on_spark_is_compared_by_what_it_does(tmp_path: Path) -> None:
    def flow(above: int) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db")
        orders = flow.source("orders", tg.GeneratorSource(4, columns="n long"))
        some = orders.transform(lambda frame: frame.filter(frame.n >= above))
        flow.sink("some", some, tg.DeltaSink(str(tmp_path / "lake")))
        return flow

    engine = tg.SparkEngine(master="local[1]")
    try:
        flow(1).run(until="caught-up", engine=engine)
        flow(1).run(until="caught-up", engine=engine)
        with pytest.raises(CodeChanged, match=r"'above' in step 1 \(transform\) is another"):
            flow(2).run(until="caught-up", engine=engine)
        assert tg.from_here(flow(2), "some").epoch == 1
        assert flow(2).run(until="caught-up", engine=engine).why == "sealed"
    finally:
        engine.close()
