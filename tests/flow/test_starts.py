"""Where an output begins: settled once, and kept through crashes, backups, recoveries and compactions."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.flow.badinput import begin, finish, lines, numbers, rows, source, write
from tests.flow.by_hand import Crash, World

import tidegauge as tg
from tidegauge.errors.command import BeforeStart
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.history import EpochsCompacted, StoreBehindTable
from tidegauge.errors.outputs import StartChanged, StartNotThere
from tidegauge.job import portion
from tidegauge.remap.store import EXPIRY

PAST = 12
"""How many epochs there are before the late output; epoch n holds the number n, and is minted n minutes after the
first."""

SINKS = [tg.ParquetSink, tg.DeltaSink]


def flow_of(
    start: Any = None, *, sink: Callable[[str], Any] = tg.ParquetSink, name: str = "late"
) -> Callable[..., tg.Dataflow]:
    """One source into the table `a` with all of it, and into one that begins elsewhere."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("a", orders, tg.DeltaSink(str(world.root / "lake" / "a")))
        if name:
            flow.sink(name, orders, sink(str(world.root / "lake" / name)), start=start)
        return flow

    return make


alone = flow_of(name="")


def add(world: World, n: int) -> None:
    write(world.root / "orders" / "1.jsonl", lines(n))


def go_on(world: World, make: Callable[[World], tg.Dataflow], *more: int) -> None:
    """One life, in which there is an epoch for each of these numbers."""
    run = begin(world, make)
    run.catch_up()
    for n in more:
        add(world, n)
        run.catch_up()
    run.abandon()


def mended(world: World) -> None:
    """Let the lease of a driver that died expire."""
    world.clock.seconds += EXPIRY + 1


def starts(world: World, name: str = "late") -> int | None:
    start = world.loaded().outputs[name].start
    return None if start is None else start.epoch


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A flow with one table, that has run for some epochs; a job of late outputs takes one epoch."""
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1)
    world = World(tmp_path, alone)
    run = begin(world)
    for n in range(PAST):
        world.clock.seconds = max(60.0 * n, world.clock.seconds)
        add(world, n)
        run.catch_up()
    run.abandon()
    return world


def position(world: World, n: int) -> dict[str, int]:
    """The place of the line of a number, in the source's terms."""
    [partition] = world.loaded().sources["orders"].table.frontier
    return {partition: sum(len(lines(before)) for before in range(n))}


def minted(world: World, epoch: int) -> Any:
    return {record.epoch: record.minted_at for record, _ in tg.epochs(alone(world))}[epoch]


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize(
    ("say", "first"),
    [
        (lambda _world: None, 0),
        (lambda _world: 0, 0),
        (lambda _world: 7, 7),
        (lambda _world: PAST - 1, PAST - 1),
        (lambda _world: "now", PAST),
        (lambda world: minted(world, 5), 5),
        (lambda world: minted(world, 5) - timedelta(microseconds=1), 4),
        (lambda world: minted(world, 5).replace(tzinfo=None).isoformat(sep=" "), 5),
        (lambda world: minted(world, 0) - timedelta(days=300), 0),
        (lambda world: position(world, 6), 6),
        (lambda world: {p: at + 1 for p, at in position(world, 6).items()}, 6),
        (lambda world: position(world, PAST), PAST),
    ],
)
def test_an_output_begins_where_it_is_said_to_and_gets_every_epoch_from_there_on(
    world: World, say: Callable[[World], Any], first: int, sink: Any
) -> None:
    make = flow_of(say(world), sink=sink)
    go_on(world, make, PAST, PAST + 1)
    assert rows(make(world), "late") == [row for row in rows(make(world), "a") if row["_epoch"] >= first]
    assert numbers(make(world), "late") == list(range(first, PAST + 2))
    for epoch in range(first, PAST + 2):
        assert numbers(make(world), "late", as_of=epoch) == list(range(first, epoch + 1))


@pytest.mark.parametrize(
    ("start", "why"),
    [
        (PAST, "the flow has bound 12 epochs"),
        ("2126-11-20 17:00", "the clock of this machine says"),
        ({"elsewhere": 3}, "source 'orders' has no partition 'elsewhere' bound"),
    ],
)
def test_a_start_that_is_not_there_is_refused_and_nothing_is_begun(world: World, start: Any, why: str) -> None:
    with pytest.raises(StartNotThere, match=rf"TG-0227: output 'late' cannot begin at .*{why}"):
        begin(world, flow_of(start))
    assert starts(world) is None
    assert not (world.root / "lake" / "late").exists()
    finish(world, alone)


def test_a_position_that_is_not_bound_yet_is_refused(world: World) -> None:
    beyond = {partition: at + 1 for partition, at in position(world, PAST).items()}
    with pytest.raises(StartNotThere, match="is bound up to"):
        begin(world, flow_of(beyond))


@pytest.mark.parametrize("start", ["soon", "", -1, True, 1.5, {}, {"p": -1}, {"p": "1"}, {0: 1}, b"now", [1]])
def test_what_is_no_start_is_refused_before_anything_runs(world: World, start: Any) -> None:
    with pytest.raises(InvalidArgument, match="start cannot be"):
        flow_of(start)(world)


def test_a_start_among_compacted_epochs_is_refused(world: World) -> None:
    tg.compact(alone(world), before=6)
    for start in (0, 5, 6, minted(world, 6), position(world, 3)):
        with pytest.raises(StartNotThere, match="the epochs up to 6 were compacted"):
            begin(world, flow_of(start))
        mended(world)
    make = flow_of(7)
    go_on(world, make)
    assert numbers(make(world), "late") == list(range(7, PAST))


def test_s17_reads_before_the_start_say_that_the_output_begins_later(world: World) -> None:
    make = flow_of("now")
    go_on(world, make)
    assert not {"before begin backfill", "before record unit"} & set(world.points)
    for as_of in (None, 0, PAST - 1):
        with pytest.raises(BeforeStart, match=rf"TG-0618: output 'late' begins at epoch {PAST} \(start=.now.\)"):
            tg.read_arrow(make(world), "late", as_of=as_of)
    [_, late] = tg.status(make(world)).outputs
    assert (late.state, late.lag, late.start.epoch if late.start else None) == ("live", 0, PAST)
    go_on(world, make, PAST)
    assert numbers(make(world), "late") == [PAST]
    with pytest.raises(BeforeStart):
        tg.read_arrow(make(world), "late", as_of=PAST - 1)
    place = tg.locate(make(world), "orders", *next(iter(position(world, 3).items())))
    assert {held.output: held.holds for held in place.tables} == {"a": True, "late": False}


DEATHS = ["record start", "begin backfill", "record unit", "commit output", "end backfill"]


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("effect", DEATHS)
def test_an_output_whose_driver_dies_begins_where_the_first_one_settled_it(
    world: World, effect: str, side: str
) -> None:
    """A position, which is in another epoch once the history before it is folded."""
    make = flow_of(position(world, 4))
    world.strike = f"{side} {effect}"
    with pytest.raises(Crash):
        begin(world, make).catch_up()
    mended(world)
    assert (starts(world) == 4) == (f"{side} {effect}" != "before record start")
    go_on(world, alone, PAST)
    go_on(world, make, PAST + 1)
    assert starts(world) == 4
    assert rows(make(world), "late") == [row for row in rows(make(world), "a") if row["_epoch"] >= 4]


@pytest.mark.parametrize("strike", ["before record start", "after record start", "before commit output"])
def test_now_is_the_instant_at_which_it_was_settled(world: World, strike: str) -> None:
    make = flow_of("now")
    world.strike = strike
    with pytest.raises(Crash):
        go_on(world, make, PAST)
    mended(world)
    first = PAST + 2 if strike == "before record start" else PAST
    go_on(world, alone, PAST + 1, *([PAST] if first != PAST else []))
    go_on(world, make, PAST + 2)
    assert starts(world) == first
    assert rows(make(world), "late") == [row for row in rows(make(world), "a") if row["_epoch"] >= first] != []


@pytest.mark.parametrize("other", [None, 3, 5, "now", "2026-11-20 17:02"])
def test_another_start_for_a_table_with_rows_is_refused(world: World, other: Any) -> None:
    make = flow_of(4)
    go_on(world, make)
    with pytest.raises(
        StartChanged, match=r"TG-0228: output 'late' is to begin at .*, and its table began at epoch 4"
    ):
        begin(world, flow_of(other))
    mended(world)
    go_on(world, make, PAST)
    assert numbers(make(world), "late") == list(range(4, PAST + 1))


def test_a_start_for_a_table_that_was_made_without_one_is_refused(world: World) -> None:
    go_on(world, flow_of())
    with pytest.raises(StartChanged, match="is to begin at epoch 3, and its table began at the start of its source"):
        begin(world, flow_of(3))


def test_a_table_without_rows_may_begin_elsewhere(world: World) -> None:
    go_on(world, flow_of("now"))
    make = flow_of(9)
    go_on(world, make)
    assert numbers(make(world), "late") == [9, 10, 11]
    finish(world, flow_of("now", name="other"))
    finish(world, flow_of(name="other"))
    assert numbers(flow_of(name="other")(world), "other") == list(range(PAST))


def test_an_output_that_writes_to_another_place_begins_there_anew(world: World) -> None:
    go_on(world, flow_of(4))
    make = flow_of(8, sink=tg.DeltaSink)
    shutil.rmtree(world.root / "lake" / "late")
    go_on(world, make)
    assert numbers(make(world), "late") == list(range(8, PAST))


def test_compaction_leaves_what_an_output_without_rows_begins_with(world: World) -> None:
    world.strike = "after begin backfill"
    with pytest.raises(Crash):
        begin(world, flow_of(7))
    mended(world)
    assert tg.compact(alone(world), before=10).since == 6
    make = flow_of(7)
    assert tg.compact(make(world), before=10).since == 6
    go_on(world, make)
    assert numbers(make(world), "late") == list(range(7, PAST))
    assert tg.compact(make(world), before=10).since == 10
    go_on(world, make, PAST)
    assert numbers(make(world), "late") == list(range(7, PAST + 1))


def test_compaction_waits_for_a_paused_output_that_holds_nothing_of_what_it_begins_with(world: World) -> None:
    make = flow_of("now")
    go_on(world, make)
    tg.pause(make(world), "late")
    go_on(world, make, PAST, PAST + 1, PAST + 2)
    found = tg.compact(make(world), before=PAST + 2)
    assert (found.since, found.kept) == (PAST - 1, f"output 'late' begins at epoch {PAST}")
    tg.unpause(make(world), "late")
    go_on(world, make)
    assert numbers(make(world), "late") == [PAST, PAST + 1, PAST + 2]


def test_an_idle_output_from_now_on_keeps_no_history_for_ever(world: World) -> None:
    """Its source brings nothing for it, and another one's epochs go on: they may be compacted."""

    def make(world: World) -> tg.Dataflow:
        flow = alone(world)
        clicks = source(world, flow, "clicks")
        flow.sink("late", clicks, tg.ParquetSink(str(world.root / "lake" / "late")), start="now")
        return flow

    go_on(world, make, PAST, PAST + 1, PAST + 2)
    assert starts(world) == PAST
    assert tg.compact(make(world), before=PAST + 2).since == PAST + 2
    run = begin(world, make)
    write(world.root / "clicks" / "1.jsonl", lines(77))
    run.catch_up()
    run.abandon()
    assert numbers(make(world), "late") == [77]


def test_a_start_that_was_compacted_by_a_flow_without_the_output_is_said(world: World) -> None:
    go_on(world, flow_of("now"))
    go_on(world, alone, PAST, PAST + 1, PAST + 2)
    assert tg.compact(alone(world), before=PAST + 2).since == PAST + 2
    with pytest.raises(StartNotThere, match=f"the epochs up to {PAST + 2} were compacted"):
        begin(world, flow_of("now"))


@pytest.mark.parametrize("sink", SINKS)
def test_a_backup_of_the_store_from_before_the_output_does_not_move_its_start(world: World, sink: Any) -> None:
    """It has bound all that the table holds, so they are of one history; the table's commits know the start."""
    make, kept = flow_of(5, sink=sink), backup(world)
    go_on(world, make)
    for other in (None, 2):
        put_back(world, kept)
        with pytest.raises(StartChanged, match="and its table began at epoch 5"):
            begin(world, flow_of(other, sink=sink))
        mended(world)
    put_back(world, kept)
    go_on(world, make, PAST)
    assert starts(world) == 5
    with pytest.raises(BeforeStart):
        tg.read_arrow(make(world), "late", as_of=4)
    assert numbers(make(world), "late") == list(range(5, PAST + 1))


@pytest.mark.parametrize("first", ["a mistake", "a crash"])
def test_a_table_is_asked_where_it_begins_also_after_a_first_run_with_a_backup_came_to_nothing(
    world: World, first: str
) -> None:
    """The store has seen the table by then, and knows of no start all the same."""
    make, kept = flow_of(5), backup(world)
    go_on(world, make)
    put_back(world, kept)
    if first == "a mistake":
        with pytest.raises(StartChanged):
            begin(world, flow_of(2))
    else:
        world.strike = "after record held"
        with pytest.raises(Crash):
            begin(world, make)
    mended(world)
    go_on(world, make, PAST)
    assert starts(world) == 5
    assert numbers(make(world), "late") == list(range(5, PAST + 1))


def backup(world: World) -> Path:
    """Copy the store, which nobody has open."""
    there = world.root / "backup"
    there.mkdir()
    for path in world.root.glob("flow.db*"):
        shutil.copy(path, there)
    return there


def put_back(world: World, there: Path) -> None:
    """Put a copy of the store back."""
    for path in world.root.glob("flow.db*"):
        path.unlink()
    for path in there.iterdir():
        shutil.copy(path, world.root)


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("start", [5, "now"])
def test_a_store_recovered_from_the_tables_knows_where_outputs_begin(world: World, start: Any, sink: Any) -> None:
    make = flow_of(start, sink=sink)
    go_on(world, make, PAST, PAST + 1)
    first = starts(world)
    for path in world.root.glob("flow.db*"):
        path.unlink()
    tg.recover(make(world))
    assert starts(world) == first
    with pytest.raises(BeforeStart):
        tg.read_arrow(make(world), "late", as_of=4)
    with pytest.raises(StartChanged):
        begin(world, flow_of(2, sink=sink))
    mended(world)
    go_on(world, make, PAST + 2)
    assert rows(make(world), "late") == [row for row in rows(make(world), "a") if row["_epoch"] >= (first or 0)]


def test_a_store_that_is_older_than_the_tables_is_refused_and_recovered_with_its_starts(world: World) -> None:
    make, kept = flow_of("now"), backup(world)
    go_on(world, make, PAST, PAST + 1)
    put_back(world, kept)
    with pytest.raises(StoreBehindTable):
        begin(world, make)
    mended(world)
    tg.recover(make(world))
    assert starts(world) == PAST
    go_on(world, make, PAST + 2)
    assert numbers(make(world), "late") == [PAST, PAST + 1, PAST + 2]


@pytest.mark.parametrize("sink", SINKS)
def test_a_repair_writes_no_epoch_from_before_the_start(world: World, sink: Any) -> None:
    make = flow_of(7, sink=sink)
    go_on(world, make, PAST)
    before = rows(make(world), "late")
    tg.repair(make(world), "late", from_epoch=0, engine="local")
    assert rows(make(world), "late") == before
    for path in world.root.glob("flow.db*"):
        path.unlink()
    tg.recover(make(world))
    assert starts(world) == 7
    go_on(world, make, PAST + 1)
    tg.compact(make(world), before=PAST)
    with pytest.raises(EpochsCompacted):
        tg.repair(make(world), "late", from_epoch=0, engine="local")


def test_a_table_that_was_rewritten_from_nothing_begins_where_it_did(world: World) -> None:
    make = flow_of(7)
    go_on(world, make)
    shutil.rmtree(world.root / "lake" / "late")
    assert tg.repair(make(world), "late", from_epoch=0, engine="local").begun_anew
    go_on(world, make, PAST)
    assert numbers(make(world), "late") == list(range(7, PAST + 1))


def test_a_clock_that_is_behind_changes_nothing_about_times_that_the_flow_has_passed(world: World) -> None:
    world.clock.seconds -= 600
    with pytest.raises(StartNotThere, match="the clock of this machine says"):
        begin(world, flow_of("2026-11-20 17:30"))
    mended(world)
    make = flow_of("2026-11-20 17:05")
    go_on(world, make)
    assert numbers(make(world), "late") == list(range(4, PAST)), "epoch 5 came a moment later"
