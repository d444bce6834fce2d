"""The past of an output in one epoch: settled once, told by the table, and one piece to readers and repairs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flow.badinput import begin, finish, lines, numbers, source, write
from tests.flow.by_hand import Crash, World

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import OutputIsBehind, RowOfAnotherLife, WithinPast
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.history import EpochsCompacted
from tidegauge.errors.outputs import TimestampsChanged, TimestampsNotThere
from tidegauge.job import portion
from tidegauge.looking.read import trace
from tidegauge.remap.store import EXPIRY
from tidegauge.sinks.protocol import OutputId
from tidegauge.testing import LogServer

PAST = 6
"""How many epochs there are before the late output; epoch n holds the number n, minted n minutes after the first."""

SINKS = [tg.ParquetSink, tg.DeltaSink]


def flow_of(
    timestamps: Any = "faithful",
    *,
    sink: Callable[[str], Any] = tg.ParquetSink,
    name: str = "late",
    start: Any = None,
) -> Callable[..., tg.Dataflow]:
    """One source into the table `a`, and into one that may have another past."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("a", orders, tg.DeltaSink(str(world.root / "lake" / "a")))
        if name:
            there = sink(str(world.root / "lake" / name))
            flow.sink(name, orders, there, start=start, timestamps=timestamps)
        return flow

    return make


alone = flow_of(name="")
COLLAPSE = "collapse"


def go_on(world: World, make: Callable[[World], tg.Dataflow], *more: int) -> None:
    """One life, in which there is an epoch for each of these numbers."""
    run = begin(world, make)
    run.catch_up()
    for n in more:
        write(world.root / "orders" / "1.jsonl", lines(n))
        run.catch_up()
    run.abandon()


def mended(world: World) -> None:
    """Let the lease of a driver that died expire."""
    world.clock.seconds += EXPIRY + 1


def past_of(root: Path, epochs: int = PAST) -> World:
    """A flow with one table, that has run for some epochs."""
    world = World(root, alone)
    run = begin(world)
    for n in range(epochs):
        world.clock.seconds = max(60.0 * n, world.clock.seconds)
        write(world.root / "orders" / "1.jsonl", lines(n))
        run.catch_up()
    run.abandon()
    return world


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A job of late outputs takes one epoch."""
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1)
    return past_of(tmp_path)


def stamped(world: World, make: Callable[[World], tg.Dataflow], name: str = "late") -> list[tuple[int, int]]:
    """The numbers of a table, each with its epoch, in order."""
    found = tg.read_arrow(make(world), name).select(["n", "_epoch"]).to_pylist()
    return sorted((row["n"], row["_epoch"]) for row in found)


def told(world: World, name: str = "late") -> tuple[str, int] | None:
    start = world.loaded().outputs[name].start
    return None if start is None or start.stamps is None else (start.stamps.said, start.stamps.epoch)


def minted(world: World, epoch: int) -> Any:
    return {record.epoch: record.minted_at for record, _ in tg.epochs(alone(world))}[epoch]


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize(
    ("say", "stamp"),
    [
        (lambda _world: "faithful", 0),
        (lambda _world: COLLAPSE, PAST - 1),
        (lambda _world: 0, 0),
        (lambda _world: 3, 3),
        (lambda _world: PAST - 1, PAST - 1),
        (lambda world: minted(world, 2), 2),
        (lambda world: minted(world, 2) + timedelta(seconds=1), 2),
        (lambda world: minted(world, 0) - timedelta(days=300), 0),
    ],
)
def test_s30_the_past_has_the_epoch_that_it_is_said_to_have_and_all_later_rows_their_own(
    world: World, say: Callable[[World], Any], stamp: int, sink: Any
) -> None:
    make = flow_of(say(world), sink=sink)
    go_on(world, make, PAST, PAST + 1)
    assert stamped(world, make) == [(n, max(n, stamp)) for n in range(PAST + 2)]
    assert stamped(world, make, "a") == [(n, n) for n in range(PAST + 2)]
    for epoch in range(stamp, PAST + 2):
        assert numbers(make(world), "late", as_of=epoch) == list(range(epoch + 1))
    for epoch in range(stamp):
        with pytest.raises(WithinPast, match=rf"TG-0619: in output 'late' all rows up to epoch {stamp} have that"):
            tg.read_arrow(make(world), "late", as_of=epoch)


def test_the_past_shows_at_once_in_its_epoch(world: World) -> None:
    """Until the units are in, nobody sees a part of it."""
    make = flow_of(COLLAPSE)
    world.strike = "before commit output"
    with pytest.raises(Crash):
        begin(world, make).catch_up()
    assert world.points.count("after record unit") == PAST
    assert [output.state for output in tg.status(make(world)).outputs] == ["live", "backfilling"]
    with pytest.raises(OutputIsBehind):
        tg.read_arrow(make(world), "late")
    mended(world)
    go_on(world, make)
    assert stamped(world, make) == [(n, PAST - 1) for n in range(PAST)]


DEATHS = ["record start", "begin backfill", "record unit", "commit output", "end backfill"]


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("effect", DEATHS)
def test_x1_a_crash_anywhere_leaves_the_epoch_that_was_settled(world: World, effect: str, side: str) -> None:
    make = flow_of(COLLAPSE)
    world.strike = f"{side} {effect}"
    with pytest.raises(Crash):
        begin(world, make).catch_up()
    mended(world)
    was = told(world)
    assert was == (None if f"{side} {effect}" == "before record start" else ('"collapse"', PAST - 1))
    go_on(world, alone, PAST)
    go_on(world, make, PAST + 1)
    stamp = PAST if was is None else PAST - 1
    assert stamped(world, make) == [(n, max(n, stamp)) for n in range(PAST + 2)]


def test_an_output_of_a_flow_that_has_bound_nothing_has_no_past(tmp_path: Path) -> None:
    world, make = World(tmp_path, flow_of(COLLAPSE)), flow_of(COLLAPSE)
    go_on(world, make, 0, 1)
    go_on(world, make, 2)
    assert stamped(world, make) == [(0, 0), (1, 1), (2, 2)]
    assert told(world) == ('"collapse"', 0)


def test_an_output_that_takes_the_place_of_all_others_has_one_past_too(world: World) -> None:
    """Nobody is live, so nobody is late; the past is filled all the same."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("late", orders, tg.DeltaSink(str(world.root / "lake" / "late")), timestamps=COLLAPSE)
        return flow

    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, make).catch_up()
    mended(world)
    go_on(world, make, PAST)
    assert stamped(world, make) == [(n, max(n, PAST - 1)) for n in range(PAST + 1)]


@pytest.mark.parametrize("said", ["soon", "now", "", -1, True, 1.5, {"p": 1}, None, b"collapse"])
def test_what_is_no_timestamps_is_refused_before_anything_runs(world: World, said: Any) -> None:
    with pytest.raises(InvalidArgument, match="timestamps cannot be"):
        flow_of(said)(world)


@pytest.mark.parametrize(
    ("said", "start", "why"),
    [
        (PAST, None, "6 epochs are published"),
        ("2126-11-20 17:00", None, "the clock of this machine says"),
        (2, 4, "the output begins at epoch 4"),
    ],
)
def test_an_epoch_that_the_past_cannot_have_is_refused_and_nothing_is_begun(
    world: World, said: Any, start: Any, why: str
) -> None:
    with pytest.raises(TimestampsNotThere, match=rf"TG-0232: the past of output 'late' cannot have .*{why}"):
        begin(world, flow_of(said, start=start))
    assert told(world) is None
    assert not (world.root / "lake" / "late").exists()
    finish(world, alone)


def test_the_past_begins_where_the_output_does(world: World) -> None:
    make = flow_of(COLLAPSE, start=2)
    go_on(world, make, PAST)
    assert stamped(world, make) == [(n, max(n, PAST - 1)) for n in range(2, PAST + 1)]


@pytest.mark.parametrize("other", ["faithful", 3])
def test_other_timestamps_for_a_table_with_rows_are_refused(world: World, other: Any) -> None:
    make = flow_of(COLLAPSE)
    go_on(world, make)
    with pytest.raises(TimestampsChanged, match="TG-0233: output 'late' is to have the timestamps"):
        begin(world, flow_of(other))
    mended(world)
    go_on(world, make, PAST)
    assert stamped(world, make)[-1] == (PAST, PAST)


def test_a_table_that_was_made_without_cannot_be_collapsed(world: World) -> None:
    go_on(world, flow_of())
    with pytest.raises(TimestampsChanged, match="'collapse', and its table was made with 'faithful'"):
        begin(world, flow_of(COLLAPSE))


def test_units_that_were_staged_with_other_timestamps_do_not_count(world: World) -> None:
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, flow_of()).catch_up()
    mended(world)
    go_on(world, flow_of(COLLAPSE))
    assert stamped(world, flow_of(COLLAPSE)) == [(n, PAST - 1) for n in range(PAST)]


@pytest.mark.parametrize("sink", SINKS)
def test_a_record_is_found_in_the_epoch_of_the_past_and_its_row_leads_back_to_it(world: World, sink: Any) -> None:
    make = flow_of(COLLAPSE, sink=sink)
    go_on(world, make, PAST)
    [partition] = world.loaded().sources["orders"].table.frontier
    place = tg.locate(make(world), "orders", partition, sum(len(lines(n)) for n in range(2)))
    assert place.epoch == 2
    found = {one.output: (one.holds, one.rows, one.epoch) for one in place.tables}
    assert found == {"a": (True, 1, None), "late": (True, PAST, PAST - 1)}
    origin = tg.origin(make(world), "late", {"n": 2, "_epoch": PAST - 1})
    assert [(piece.lower, piece.upper) for piece in origin.slices] == [
        (sum(len(lines(m)) for m in range(n)), sum(len(lines(m)) for m in range(n + 1))) for n in range(PAST)
    ]
    [traced] = trace(make(world), "late", {"n": "2"}, limit=5).rows
    assert traced.origin is not None
    assert traced.origin.place == place
    with pytest.raises(RowOfAnotherLife):
        tg.origin(make(world), "late", {"n": 2, "_epoch": 2})


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("lost", ["store", "backup"])
def test_a_lost_store_is_told_the_epoch_of_the_past_by_the_table(world: World, sink: Any, lost: str) -> None:
    make = flow_of(COLLAPSE, sink=sink, start=1)
    kept = {path: path.read_bytes() for path in world.root.glob("flow.db*")}
    go_on(world, make, *([PAST] if lost == "store" else []))
    for path in world.root.glob("flow.db*"):
        path.unlink()
    if lost == "store":
        tg.recover(make(world))
    else:
        for path, content in kept.items():
            path.write_bytes(content)
        with pytest.raises(TimestampsChanged):
            begin(world, flow_of(sink=sink, start=1))
        mended(world)
    go_on(world, make, PAST + 1)
    assert told(world) == ('"collapse"', PAST - 1)
    last = [(n, n) for n in ([PAST, PAST + 1] if lost == "store" else [])]
    expected = [(n, PAST - 1) for n in range(1, PAST)] + (last or [(PAST + 1, PAST)])
    assert stamped(world, make) == expected
    with pytest.raises(WithinPast):
        tg.read_arrow(make(world), "late", as_of=3)


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("from_epoch", [None, 0, 2, PAST])
def test_a_repair_takes_the_past_as_one(world: World, sink: Any, from_epoch: int | None) -> None:
    make = flow_of(COLLAPSE, sink=sink)
    go_on(world, make, PAST)
    before = stamped(world, make)
    first = sorted((world.root / "lake" / "late").rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)[0]
    if from_epoch is None:
        first.unlink()
    done = tg.repair(make(world), "late", from_epoch=from_epoch, engine="local")
    assert done.changed
    assert stamped(world, make) == before
    assert done.epochs[0][0] == (PAST if from_epoch == PAST else 0)
    go_on(world, make, PAST + 1)
    assert stamped(world, make) == [*before, (PAST + 1, PAST + 1)]
    for path in world.root.glob("flow.db*"):
        path.unlink()
    tg.recover(make(world))
    assert told(world) == ('"collapse"', PAST - 1)


def test_a_past_that_was_compacted_since_cannot_be_rewritten_alone(world: World) -> None:
    make = flow_of(3, sink=tg.DeltaSink)
    go_on(world, make, PAST)
    tg.compact(make(world), before=5)
    with pytest.raises(EpochsCompacted):
        tg.repair(make(world), "late", from_epoch=4, engine="local")
    assert stamped(world, make) == [(n, max(n, 3)) for n in range(PAST + 1)]
    tg.repair(make(world), "late", from_epoch=0, engine="local")
    assert stamped(world, make) == [(n, max(n, 5)) for n in range(PAST + 1)]


def test_a_table_that_was_rewritten_from_nothing_has_the_past_that_it_had(world: World) -> None:
    make = flow_of(COLLAPSE)
    go_on(world, make, PAST)
    shutil.rmtree(world.root / "lake" / "late")
    assert tg.repair(make(world), "late", from_epoch=0, engine="local").begun_anew
    go_on(world, make)
    assert stamped(world, make) == [(n, max(n, PAST - 1)) for n in range(PAST + 1)]


def test_s31_what_compaction_took_is_said(world: World) -> None:
    tg.compact(alone(world), before=2)
    make = flow_of()
    go_on(world, make, PAST)
    assert stamped(world, make) == [(n, max(n, 2)) for n in range(PAST + 1)]
    assert told(world) == ('"faithful"', 2)
    [_, late] = tg.status(make(world)).outputs
    assert late.start is not None
    assert late.start.past == range(3)
    tg.compact(make(world), before=4)
    go_on(world, make)
    assert told(world) == ('"faithful"', 2)


def test_a_past_that_is_compacted_before_it_is_filled_has_the_first_epoch_that_is_left(world: World) -> None:
    """Nothing is planned yet, so nothing holds what the epoch stands for; all before `since` is one by then."""
    make = flow_of(2)
    world.strike = "after record start"
    with pytest.raises(Crash):
        begin(world, make).catch_up()
    mended(world)
    assert tg.compact(make(world), before=4).since == 4
    go_on(world, make, PAST)
    assert told(world) == ("2", 2)
    assert stamped(world, make) == [(n, max(n, 4)) for n in range(PAST + 1)]


def test_a_past_that_is_filled_is_not_compacted(world: World) -> None:
    make = flow_of(3)
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, make).catch_up()
    mended(world)
    assert tg.compact(make(world), before=5).since == 0
    go_on(world, make)
    assert tg.compact(make(world), before=2).since == 2
    go_on(world, make, PAST)
    assert stamped(world, make) == [(n, max(n, 3)) for n in range(PAST + 1)]
    [late] = [one for one in tg.status(make(world)).outputs if one.name == "late"]
    assert late.start is not None
    assert late.start.past == range(4)


@pytest.mark.parametrize("sink", SINKS)
def test_a_new_output_of_a_dropped_ones_name_has_a_past_of_its_own(world: World, sink: Any) -> None:
    make = flow_of(2, sink=sink)
    go_on(world, make, PAST)
    tg.drop(make(world), "late", table=True, env=world.env())
    go_on(world, flow_of(COLLAPSE, sink=sink))
    assert stamped(world, flow_of(COLLAPSE, sink=sink)) == [(n, PAST) for n in range(PAST + 1)]


@pytest.mark.parametrize("sink", SINKS)
def test_a_table_that_was_left_by_a_dropped_output_still_tells_the_epoch_of_its_past(world: World, sink: Any) -> None:
    make = flow_of(2, sink=sink)
    go_on(world, make)
    tg.drop(make(world), "late", env=world.env())
    assert "late" not in world.loaded().outputs
    with pytest.raises(TimestampsChanged):
        begin(world, flow_of(COLLAPSE, sink=sink))
    mended(world)
    go_on(world, make, PAST)
    assert told(world) == ("2", 2)
    assert stamped(world, make) == [(n, max(n, 2)) for n in range(PAST + 1)]


def test_other_code_fills_the_past_anew_in_the_same_epoch(world: World) -> None:
    def changed(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("a", orders, tg.DeltaSink(str(world.root / "lake" / "a")))
        some = orders.map_batches(lambda batch: batch.filter(pc.greater(batch["n"], 0)))
        flow.sink("late", some, tg.ParquetSink(str(world.root / "lake" / "late")), timestamps=COLLAPSE)
        return flow

    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, flow_of(COLLAPSE)).catch_up()
    mended(world)
    go_on(world, alone, PAST)
    go_on(world, changed)
    assert stamped(world, changed) == [(n, max(n, PAST - 1)) for n in range(1, PAST + 1)]
    tg.from_here(flow_of(COLLAPSE)(world), "late", env=world.env())
    go_on(world, flow_of(COLLAPSE), PAST + 1)
    assert stamped(world, flow_of(COLLAPSE))[-2:] == [(PAST, PAST), (PAST + 1, PAST + 1)]


def test_one_whose_source_has_brought_nothing_has_no_past_to_plan_and_holds_nothing_back(tmp_path: Path) -> None:
    """Seed 402220 of `tests/simulation/begun.py`: its hold kept all others from being compacted."""
    world = past_of(tmp_path, epochs=4)

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        flow.sink("a", source(world, flow, "orders"), tg.DeltaSink(str(world.root / "lake" / "a")))
        quiet = source(world, flow, "quiet")
        flow.sink("late", quiet, tg.ParquetSink(str(world.root / "lake" / "late")), timestamps=COLLAPSE)
        return flow

    go_on(world, make)
    assert world.loaded().backfills == {}
    assert tg.status(make(world)).holds == ()
    assert tg.compact(make(world), before=3).since == 3
    write(world.root / "quiet" / "1.jsonl", lines(7))
    go_on(world, make)
    assert numbers(make(world), "late") == [7]


@pytest.mark.spark
def test_on_spark_rows_of_the_past_have_its_epoch_whatever_steps_made_them(tmp_path: Path) -> None:
    world = past_of(tmp_path, epochs=3)

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("a", orders, tg.DeltaSink(str(world.root / "lake" / "a")))
        made = {
            "frames": orders.transform(lambda frame: frame.filter("n >= 0")),
            "sql": orders.filter("n >= 0"),
            "batches": orders.map_batches(lambda batch: batch),
        }
        for name, stream in made.items():
            flow.sink(name, stream, tg.DeltaSink(str(world.root / "lake" / name)), timestamps=COLLAPSE)
        return flow

    engine = tg.SparkEngine(master="local[1]")
    try:
        make(world).run(until="caught-up", engine=engine)
    finally:
        engine.close()
    for name in ("frames", "batches", "sql"):
        assert stamped(world, make, name) == [(n, 2) for n in range(3)]


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_collapsed_table_is_a_faithful_one_with_other_epochs_whatever_crash(data: st.DataObject) -> None:
    """Law: with the epoch c, a row of the epoch e is of max(e, c); dying anywhere makes no difference."""
    with TemporaryDirectory() as folder:
        world = past_of(Path(folder), epochs=data.draw(st.integers(0, 4)))
        upper = world.loaded().flow.upper
        said = data.draw(st.one_of(st.just(COLLAPSE), st.integers(0, upper - 1) if upper else st.just(0)))
        sink = data.draw(st.sampled_from(SINKS))
        make = flow_of(said, sink=sink)
        following = iter(range(100, 104))
        for _ in range(data.draw(st.integers(0, 3))):
            world.strike = data.draw(st.sampled_from(["before ", "after "])) + data.draw(st.sampled_from(DEATHS))
            try:
                go_on(world, make, *([next(following)] if data.draw(st.booleans()) else []))
            except Crash:
                mended(world)
            world.strike = ""
        go_on(world, make, 99)
        start = world.loaded().outputs["late"].start
        stamp = 0 if start is None else start.stamp
        assert stamp >= (said if isinstance(said, int) else max(upper - 1, 0))
        assert stamped(world, make) == [(number, max(epoch, stamp)) for number, epoch in stamped(world, make, "a")]


@dataclass(frozen=True)
class Shown(tg.ParquetSink):
    """A sink that cannot hide what it is given."""

    def open(self, output: OutputId) -> Any:
        return ShownTable(super().open(output))


class ShownTable:
    """A table without `keep`."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __getattr__(self, name: str) -> Any:
        if name == "keep":
            raise AttributeError(name)
        return getattr(self.table, name)


def test_a_table_that_shows_its_past_bit_by_bit_cannot_have_it_in_one_epoch(world: World) -> None:
    with pytest.raises(TimestampsNotThere, match="its sink cannot hide its rows until all of the past is in"):
        begin(world, flow_of(COLLAPSE, sink=Shown))
    mended(world)
    make = flow_of(COLLAPSE, sink=Shown, start="now")
    go_on(world, make, PAST)
    assert stamped(world, make) == [(PAST, PAST)]


def test_a_past_that_ends_before_its_epoch_is_not_shown_until_its_source_goes_on(tmp_path: Path) -> None:
    """No other output reads the source, so it fails as a whole where the past cannot be read."""

    def make(world: World, *, late: bool = True) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders, clicks = (source(world, flow, name) for name in ("orders", "clicks"))
        flow.sink("clicks", clicks, tg.DeltaSink(str(world.root / "lake" / "clicks")))
        if late:
            there = tg.ParquetSink(str(world.root / "lake" / "late"))
            flow.sink("late", orders, there, timestamps=COLLAPSE)
        else:
            flow.sink("a", orders, tg.ParquetSink(str(world.root / "lake" / "a")))
        return flow

    def without(world: World) -> tg.Dataflow:
        return make(world, late=False)

    world = World(tmp_path, without)
    run = begin(world, without)
    for n in range(4):
        write(world.root / "orders" / f"{n}.jsonl", lines(n))
        write(world.root / "clicks" / "1.jsonl", lines(n))
        run.catch_up()
    run.abandon()
    published = world.loaded().flow.published
    gone = world.root / "orders" / "2.jsonl"
    gone.rename(world.root / "kept")
    go_on(world, make)
    assert world.loaded().sources["orders"].failure is not None
    with pytest.raises(TidegaugeError):
        tg.read_arrow(make(world), "late")
    (world.root / "kept").rename(gone)
    tg.resume(make(world), "orders")
    go_on(world, make)
    assert stamped(world, make) == [(n, published - 1) for n in range(4)]


def test_the_past_of_a_source_that_pushes_cannot_have_one_epoch(tmp_path: Path) -> None:
    """Its records come once, for all outputs, so none is filled."""
    with LogServer() as log:

        def run(collapsed: str = "") -> None:
            flow = tg.Dataflow("pushed", store=f"sqlite:///{tmp_path}/flow.db", tick=0.05)
            feed = flow.source("feed", tg.SocketSource(log.host, log.port, columns="n long"))
            flow.sink("a", feed, tg.ParquetSink(str(tmp_path / "a")))
            if collapsed:
                flow.sink("late", feed, tg.ParquetSink(str(tmp_path / "late")), timestamps=COLLAPSE)
            flow.run("caught-up", engine=tg.LocalEngine(threads=0))

        for n in range(2):
            log.append({"n": n})
            run()
        with pytest.raises(TimestampsNotThere, match="source 'feed' is pushed"):
            run("late")
