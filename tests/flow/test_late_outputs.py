"""An output that is added to a flow which has run: it gets every epoch, and the others go on meanwhile."""

from __future__ import annotations

import errno
import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flow.badinput import begin, lines, numbers, rows, source, states, write
from tests.flow.by_hand import Crash, Run, World

import tidegauge as tg
from tidegauge.env import POINTS
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import OutputIsBehind
from tidegauge.errors.store import LeaseLost, StoreReplaced
from tidegauge.flow import stage
from tidegauge.job import portion
from tidegauge.job.plan import EpochJob
from tidegauge.remap.binding import Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import EXPIRY
from tidegauge.remap.table import RemapTable
from tidegauge.sinks.parquet.chain import ParquetChain
from tidegauge.sinks.protocol import OutputId

PAST = 12
"""How many epochs there are before the late output."""


def flow_of(
    *late: str,
    function: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    sink: Callable[[str], Any] = tg.ParquetSink,
) -> Callable[..., tg.Dataflow]:
    """One source into the table `a`, and into these tables besides."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("a", orders, tg.DeltaSink(str(world.root / "lake" / "a")))
        for name in late:
            stream = orders if function is None else orders.map_batches(function)
            flow.sink(name, stream, sink(str(world.root / "lake" / name)))
        return flow

    return make


alone, with_late = flow_of(), flow_of("late")


def add(world: World, n: int) -> None:
    write(world.root / "orders" / "1.jsonl", lines(n))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A flow with one table, that has run for some epochs; a job of late outputs takes one epoch."""
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1)
    world = World(tmp_path, alone)
    run = begin(world)
    for n in range(PAST):
        add(world, n)
        run.catch_up()
    run.abandon()
    return world


def upper(run: Run, output: str) -> int:
    return run.runner.board.outputs[output].upper


def filled(run: Run, output: str) -> int:
    """The percentage of its past that is staged."""
    found = run.runner.board.outputs[output].filled
    return 100 if found is None else found.percent


def test_s6_s32_the_others_publish_while_a_late_output_gets_the_past(world: World) -> None:
    world.lag = 30
    run = begin(world, with_late)
    seen = []
    for n in range(PAST, PAST + 2):
        add(world, n)
        while run.runner.board.published <= n:
            run.step()
        seen.append(filled(run, "late"))
        assert numbers(alone(world), "a", as_of=n) == list(range(n + 1))
    assert 0 < seen[0] < seen[-1] < 100, "it gets on, and nobody waits for it"
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_what_is_published_waits_for_an_output_that_has_caught_up(world: World) -> None:
    run = begin(world, with_late)
    run.catch_up()
    assert states(run.runner.board.outputs.values()) == {"a": "live", "late": "live"}

    def full(*_args: object, **_how: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParquetChain, "commit", full)
        add(world, PAST)
        for _ in range(20):
            run.step()
        assert (upper(run, "a"), upper(run, "late"), run.runner.board.published) == (PAST + 1, PAST, PAST)
    run.step(60.0)
    run.catch_up()
    run.abandon()


def test_upstream_keeps_what_a_late_output_lacks(world: World) -> None:
    told: list[tuple[Frontier, int]] = []
    world.lag = 2
    run = begin(world, with_late)
    timeline = run.runner.board.timeline
    files = run.flow.spec.sources["orders"]
    original = type(files).acknowledge

    def acknowledge(self: tg.FileSource, frontier: Frontier) -> None:
        told.append((frontier, upper(run, "late")))
        original(self, frontier)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tg.FileSource, "acknowledge", acknowledge)
        add(world, PAST)
        run.catch_up()
    run.abandon()
    assert told
    table = timeline.tables["orders"]
    assert all(frontier.less_equal(table.inverse(late)) for frontier, late in told)


def test_a_late_output_that_cannot_take_a_row_fails_alone(world: World) -> None:
    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 5 in batch["n"].to_pylist():
            raise ValueError("five is not wanted")
        return batch

    run = begin(world, flow_of("late", function=refuse))
    add(world, PAST)
    run.catch_up()
    assert states(run.runner.board.outputs.values()) == {"a": "live", "late": "failed"}
    assert states(run.runner.board.sources.values()) == {"orders": "running"}
    run.abandon()


def test_s18_a_late_output_whose_past_is_gone_upstream_fails_alone(world: World) -> None:
    (world.root / "orders" / "1.jsonl").rename(world.root / "away")
    run = begin(world, with_late)
    write(world.root / "orders" / "2.jsonl", lines(PAST))
    run.catch_up()
    assert states(run.runner.board.outputs.values()) == {"a": "live", "late": "failed"}
    assert states(run.runner.board.sources.values())["orders"] != "failed"
    assert numbers(alone(world), "a") == list(range(PAST + 1))
    run.abandon()


def test_a_late_output_whose_disk_is_full_keeps_nobody_waiting(world: World) -> None:
    run = begin(world, with_late)
    world.faults.extend([True] * 3)
    run.step()
    assert run.runner.board.outputs["late"].state == "stalled"
    add(world, PAST)
    world.faults.extend([False])
    run.step(60.0)
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_s24_late_outputs_of_one_source_read_it_together(world: World) -> None:
    three = flow_of("late", "later", "latest")
    run = begin(world, three)
    run.catch_up()
    read = run.runner.board.sources["orders"].records
    run.abandon()
    assert read == PAST
    for name in ("late", "later", "latest"):
        assert rows(three(world), name) == rows(three(world), "a")


def test_late_jobs_leave_half_of_the_slots_to_the_others_as_long_as_these_have_jobs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[tuple[float, bool, bool]] = []
    submit = tg.LocalEngine.submit

    def submitted(self: tg.LocalEngine, job: EpochJob) -> Any:
        jobs.append((world.clock.seconds, job.late, job.beside))
        return submit(self, job)

    monkeypatch.setattr(tg.LocalEngine, "submit", submitted)
    tg.limit(alone(world), 1)  # a second for each late job
    others = world.clock.seconds  # a service may get something as soon as it begins
    run = begin(world, with_late)
    for _ in range(5):
        run.step(stage.BESIDE / 3)
    add(world, PAST)
    for _ in range(5):
        run.step(stage.BESIDE / 3)
    run.catch_up()
    run.abandon()
    seen = set()
    for at, late, beside in jobs:
        others = others if late else at
        assert beside == (late and at - others < stage.BESIDE)
        seen.add((late, beside))
    assert seen == {(True, True), (True, False), (False, False)}


def test_a_batch_leaves_nothing_unused_for_others_that_have_nothing_to_do(world: World) -> None:
    jobs: list[bool] = []

    class Engine(tg.LocalEngine):
        def submit(self, job: EpochJob) -> Any:
            jobs.append(job.beside)
            return super().submit(job)

    with_late(world).run("caught-up", engine=Engine(threads=0))
    assert jobs == [False] * PAST


def test_a_past_of_many_small_epochs_is_read_in_jobs_of_so_many_slices(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1 << 30)
    monkeypatch.setattr(portion, "LATE_SLICES", 5)
    run = begin(world, with_late)
    world.points.clear()
    run.catch_up()
    run.abandon()
    assert world.points.count("before record unit") == -(-PAST // 5), "a crash repeats no more than that"
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_the_first_unit_is_planned_without_a_look_at_the_rest_of_the_past(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, slices = [], RemapTable.slices

    def counted(table: RemapTable, lower: int, upper: int) -> list[Slice]:
        found = slices(table, lower, upper)
        made.append(len(found))
        return found

    monkeypatch.setattr(RemapTable, "slices", counted)
    monkeypatch.setattr(portion, "LATE_SLICES", 1)
    world.lag = 30
    run = begin(world, with_late)
    while "after record unit" not in world.points:
        run.step()
    first = sum(made)
    assert 1 <= first <= 10 < PAST
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_p3_nobody_sees_a_part_of_the_past(world: World) -> None:
    world.lag = 30
    run = begin(world, with_late)
    while filled(run, "late") < 50:
        run.step()
    assert run.runner.board.outputs["late"].state == "backfilling"
    assert not list((world.root / "lake" / "late").glob("from_epoch=*"))
    with pytest.raises(OutputIsBehind):
        tg.read_arrow(with_late(world), "late")
    with pytest.raises(OutputIsBehind):
        tg.read_arrow(with_late(world), "late", as_of=0)
    [_, late] = tg.status(with_late(world)).outputs
    assert (late.state, late.filled) == ("backfilling", run.runner.board.outputs["late"].filled)
    assert numbers(with_late(world), "a") == list(range(PAST))
    run.catch_up()
    run.abandon()
    assert len(list((world.root / "lake" / "late").glob("from_epoch=*"))) == 1
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_a_table_that_is_filled_can_be_read_as_of_an_epoch_before_its_first_record(world: World) -> None:
    def quiet(world: World) -> tg.Dataflow:
        flow = alone(world)
        flow.sink("b", source(world, flow, "quiet"), tg.ParquetSink(str(world.root / "lake" / "b")))
        return flow

    def with_filled(world: World) -> tg.Dataflow:
        flow = alone(world)
        found = source(world, flow, "quiet")
        for name in ("b", "late"):
            flow.sink(name, found, tg.ParquetSink(str(world.root / "lake" / name)))
        return flow

    for n in range(2):
        run = begin(world, quiet)
        write(world.root / "quiet" / "1.jsonl", lines(n))
        run.catch_up()
        run.abandon()
    world.lag = 30
    run = begin(world, with_filled)
    assert run.runner.board.outputs["late"].state == "backfilling"
    assert numbers(with_filled(world), "b", as_of=PAST) == [0]
    assert not tg.read_arrow(with_filled(world), "late", as_of=PAST - 1).num_rows
    for as_of in (PAST, PAST + 1, None):
        with pytest.raises(OutputIsBehind):
            tg.read_arrow(with_filled(world), "late", as_of=as_of)
    run.abandon()


def test_s1_p1_all_of_the_past_is_bound_and_the_output_is_live_without_anything_new(world: World) -> None:
    world.lag = 3
    run = begin(world, with_late)
    assert world.loaded().backfills["late"].plan.cutover == PAST - 1
    seen: list[Any] = []
    while not seen or seen[-1] is not None:
        seen.append(run.runner.board.outputs["late"].filled)
        run.step()
    done = [found.done for found in seen if found is not None]
    assert done == sorted(done), "it never goes back"
    assert all(found.percent < 100 for found in seen if found is not None and found.done < found.total)
    run.catch_up()
    assert run.runner.board.outputs["late"].state == "live"
    run.abandon()


def test_s2_an_output_of_a_flow_that_has_bound_nothing_is_live_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, alone)
    begin(world).abandon()
    run = begin(world, with_late)
    assert (run.runner.board.outputs["late"].state, run.runner.board.outputs["late"].filled) == ("live", None)
    add(world, 0)
    run.catch_up()
    run.abandon()
    assert "before begin backfill" not in world.points
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


@pytest.mark.parametrize("strike", ["before begin backfill", "after begin backfill"])
def test_s8_s9_the_cutover_is_that_of_the_plan_that_is_durable(world: World, strike: str) -> None:
    world.strike = strike
    with pytest.raises(Crash):
        begin(world, with_late)
    world.clock.seconds += EXPIRY + 1
    add(world, PAST)
    run = begin(world, alone)
    run.catch_up()
    run.abandon()
    run = begin(world, with_late)
    planned = PAST if strike == "before begin backfill" else PAST - 1
    assert world.loaded().backfills["late"].plan.cutover == planned
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_s31_the_past_of_a_compacted_flow_is_of_the_first_epoch_that_is_left(world: World) -> None:
    assert tg.compact(alone(world), before=5).since == 5
    run = begin(world, with_late)
    run.catch_up()
    run.abandon()
    assert [row["_epoch"] for row in rows(with_late(world), "late")] == [5] * 6 + list(range(6, PAST))


@pytest.mark.parametrize(
    ("sink", "step"),
    [
        (tg.ParquetSink, 11),
        pytest.param(tg.ParquetSink, 1, marks=pytest.mark.long),
        pytest.param(tg.DeltaSink, 1, marks=pytest.mark.long),
    ],
)
def test_x1_a_crash_anywhere_repeats_at_most_one_unit(world: World, sink: Any, step: int) -> None:
    """The first life of each late output dies at a later point than the one before, until one comes through."""
    crashed = True
    for at in itertools.count(step=step):
        name = f"late{at}"
        make = flow_of(name, sink=sink)
        world.points.clear()
        world.crash_at = at
        try:
            run = begin(world, make)
            run.catch_up()
        except Crash:
            world.crash_at = None
            world.clock.seconds += EXPIRY + 1
        else:
            crashed = False
            run.abandon()
        loaded = world.loaded()
        table = make(world).spec.outputs[name].sink.open(OutputId("shop", name, loaded.flow.incarnation))
        assert table.upper in (0, PAST), "all of the past is there, or nothing"
        run = begin(world, make)
        run.catch_up()
        run.abandon()
        assert world.points.count("before stage") <= PAST + 1, world.points
        assert rows(make(world), name) == rows(make(world), "a")
        assert world.loaded().backfills == {}
        assert tg.status(make(world)).holds == ()
        if not crashed:
            return


def test_compaction_keeps_the_epochs_of_which_some_are_staged(world: World) -> None:
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, with_late).catch_up()
    world.clock.seconds += EXPIRY + 1
    assert [held.owner for held in tg.status(with_late(world)).holds] == ["backfill of late"]
    assert tg.compact(alone(world), before=5).since == 0
    run = begin(world, with_late)
    run.catch_up()
    run.abandon()
    assert tg.compact(alone(world), before=5).since == 5
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_a_fill_whose_epochs_were_folded_by_force_begins_anew(world: World) -> None:
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, with_late).catch_up()
    world.clock.seconds += EXPIRY + 1
    tg.release(with_late(world), "backfill of late")
    assert tg.compact(alone(world), before=5).since == 5
    run = begin(world, with_late)
    run.catch_up()
    run.abandon()
    assert sorted(numbers(with_late(world), "late")) == list(range(PAST))
    assert {row["_epoch"] for row in rows(with_late(world), "late")} == set(range(5, PAST))


def test_units_of_other_steps_do_not_count(world: World) -> None:
    world.lag = 0
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, flow_of("late", function=lambda batch: batch)).catch_up()
    world.clock.seconds += EXPIRY + 1
    changed = flow_of("late", function=lambda batch: batch.filter(pc.less(batch["n"], 9)))
    run = begin(world, changed)
    run.catch_up()
    run.abandon()
    assert numbers(changed(world), "late") == list(range(9))


def test_units_whose_files_are_gone_are_staged_again(world: World) -> None:
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, with_late).catch_up()
    world.clock.seconds += EXPIRY + 1
    for file in (world.root / "lake" / "late").rglob("*.parquet"):
        file.unlink()
    run = begin(world, with_late)
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_a_late_output_that_failed_shows_nothing_and_goes_on_where_it_was(world: World) -> None:
    unwanted = [5]

    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        if {*unwanted} & {*batch["n"].to_pylist()}:
            raise ValueError("five is not wanted")
        return batch

    make = flow_of("late", function=refuse)
    run = begin(world, make)
    run.catch_up()
    run.abandon()
    assert states(tg.status(make(world)).outputs) == {"a": "live", "late": "failed"}
    assert len(world.loaded().backfills["late"].units) == 5
    unwanted.clear()
    world.points.clear()
    run = begin(world, make)
    run.catch_up()
    run.abandon()
    assert world.points.count("before stage") == PAST - 5
    assert rows(make(world), "late") == rows(make(world), "a")


def test_the_past_of_a_source_that_has_failed_ends_where_it_failed(world: World) -> None:
    write(world.root / "orders" / "1.jsonl", "not json" + chr(10))
    run = begin(world)
    run.catch_up()
    run.abandon()
    run = begin(world, with_late)
    for _ in range(30):
        run.step()
    run.abandon()
    assert rows(with_late(world), "late", as_of=PAST - 1) == rows(with_late(world), "a", as_of=PAST - 1)
    assert len(rows(with_late(world), "late", as_of=PAST - 1)) == PAST
    assert world.loaded().backfills == {}


def test_that_a_source_has_failed_is_durable_before_a_past_that_ends_there_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("clicks", source(world, flow, "clicks"), tg.ParquetSink(str(world.root / "lake" / "clicks")))
        name, stream = ("bad", orders.errors) if collecting else ("late", orders)
        flow.sink(name, stream, tg.ParquetSink(str(world.root / "lake" / name)))
        return flow

    collecting = True
    world = World(tmp_path, make)
    run = begin(world)
    for said in (lines(0), lines(1), "not json" + chr(10)):
        write(tmp_path / "orders" / "1.jsonl", said)
        run.catch_up()
    run.abandon()
    collecting = False
    known: list[bool] = []
    point = world.point

    def look(name: str) -> None:
        if name == "before commit output":
            known.append(world.loaded().sources["orders"].failure is not None)
        point(name)

    monkeypatch.setattr(world, "point", look)
    run = begin(world)
    for _ in range(5):
        run.step()
    run.abandon()
    assert known == [True]
    assert numbers(make(world), "late", as_of=1) == [0, 1]


@pytest.mark.parametrize(
    ("since", "error"), [("before acquire lease", LeaseLost), ("after acquire lease", StoreReplaced)]
)
def test_a_store_that_goes_back_to_before_a_new_output_while_a_driver_begins_is_not_the_one_that_it_had(
    world: World, monkeypatch: pytest.MonkeyPatch, since: str, error: type[TidegaugeError]
) -> None:
    """A backup comes back into the very file, as `.restore` of `sqlite3` does it."""
    store, backup = world.root / "flow.db", world.root / "backup.db"
    copies = {since: (store, backup), "after register": (backup, store)}
    point = world.point

    def copied(name: str) -> None:
        if name in copies:
            before, after = copies[name]
            with closing(sqlite3.connect(before)) as source, closing(sqlite3.connect(after)) as target:
                source.backup(target)
        point(name)

    monkeypatch.setattr(world, "point", copied)
    with pytest.raises(error):
        begin(world, with_late)
    assert "late" not in world.loaded().outputs
    assert not (world.root / "lake" / "late").exists()


def test_an_output_that_is_moved_to_another_table_is_filled_anew(world: World) -> None:
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, with_late).catch_up()
    world.clock.seconds += EXPIRY + 1
    moved = flow_of("late", sink=tg.DeltaSink)
    run = begin(world, moved)
    run.catch_up()
    run.abandon()
    assert rows(moved(world), "late") == rows(moved(world), "a")


DEATHS = st.lists(st.sampled_from([*POINTS, "before record unit", *8 * ["after record unit"]]), max_size=4)


@settings(max_examples=8, deadline=None)
@given(
    before=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    after=st.lists(st.integers(0, 3), max_size=3),
    lives=DEATHS,
    sink=st.sampled_from([tg.ParquetSink, tg.DeltaSink]),
)
def test_s30_a_late_table_is_one_from_the_start(
    before: list[int], after: list[int], lives: list[str], sink: Any
) -> None:
    """Row by row and epoch by epoch, however many records its epochs have, and whoever dies on the way."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setitem(portion.JOB_LIMITS, "bytes", 1)
        world, count = World(Path(folder), alone), itertools.count()
        make = flow_of("late", sink=sink)
        run = begin(world)
        for size in before:
            write(world.root / "orders" / "1.jsonl", lines(*itertools.islice(count, size)))
            run.catch_up()
        run.abandon()
        for life, size in itertools.zip_longest(lives, after):
            write(world.root / "orders" / "1.jsonl", lines(*itertools.islice(count, size or 0)))
            world.strike = life or ""
            try:
                run = begin(world, make)
                run.catch_up()
                run.abandon()
            except Crash:
                world.clock.seconds += EXPIRY + 1
        world.strike = ""
        run = begin(world, make)
        run.catch_up()
        run.abandon()
        if next(count):
            assert rows(make(world), "late") == rows(make(world), "a")
            for epoch in range(world.loaded().flow.published):
                assert rows(make(world), "late", as_of=epoch) == rows(make(world), "a", as_of=epoch)


def two_lives(root: Path, deaths: tuple[int, int]) -> tuple[list[list[list[dict[str, Any]]]], list[list[str]]]:
    """Epochs are bound while a past is read, and the driver dies twice; what is there in the end, and each life."""
    world, lives = World(root, alone), list[list[str]]()
    run = begin(world)
    for n in range(4):
        add(world, n)
        run.catch_up()
    run.abandon()
    for n, at in enumerate((*deaths, None), start=4):
        add(world, n)
        world.points.clear()
        world.crash_at = at
        try:
            run = begin(world, with_late)
            run.catch_up()
            run.abandon()
        except Crash:
            world.clock.seconds += EXPIRY + 1
        world.crash_at = None
        lives.append(list(world.points))
    flow = with_late(world)
    upper = world.loaded().flow.published
    state = [[rows(flow, name, as_of=epoch) for epoch in range(upper)] for name in ("a", "late")]
    return state, lives


@pytest.mark.long
@settings(max_examples=6, deadline=None)
@given(first=st.integers(0, 90), second=st.integers(0, 90))
def test_x5_two_deaths_at_the_same_places_leave_the_same_again_and_nothing_undone(first: int, second: int) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setitem(portion.JOB_LIMITS, "bytes", 1)
        once, lives = two_lives(Path(folder) / "once", (first, second))
        again, same = two_lives(Path(folder) / "again", (first, second))
        assert (once, lives) == (again, same)
        assert once[0] == once[1], "late is from the start"
        assert [row["n"] for row in once[0][-1]] == list(range(7))
