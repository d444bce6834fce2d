"""A table whose rows are made again, by other code or by the same: hidden, and at once in the place of the old."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.flow.badinput import begin, lines, numbers, rows, source, states, write
from tests.flow.by_hand import Crash, Run, World

import tidegauge as tg
from tidegauge.errors.command import OutputIsBehind, RowsUnreadable
from tidegauge.errors.history import EpochsOfOtherCode, StoreBehindTable
from tidegauge.errors.outputs import CannotReplace, CodeChanged, OutputMoved, StartChanged, TimestampsChanged
from tidegauge.errors.sinks import FilesChangedByOthers, TableChangedByOthers, TableUpperMismatch
from tidegauge.job import portion
from tidegauge.looking import read
from tidegauge.looking.view import view_of
from tidegauge.remap.store import EXPIRY
from tidegauge.sinks.protocol import OutputId, Replaceable

PAST = 6
KINDS = {"delta": tg.DeltaSink, "parquet": tg.ParquetSink}


def at_least(least: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.greater_equal(batch["n"], least))


def wider(batch: pa.RecordBatch) -> pa.RecordBatch:
    at = pc.cast(pc.multiply(batch["n"], 1_000_000), pa.timestamp("us"))
    return batch.append_column("at", at)


def flow_of(least: int = 0, *, also: int = 0, more: tuple[str, ...] = (), shape: Any = None) -> Any:
    """One source into the table `a` with all of it, and into `some` with some of it."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("a", orders, tg.ParquetSink(str(world.root / "lake" / "a")))
        some = orders.map_batches(partial(at_least, least))
        if shape is not None:
            some = some.map_batches(shape)
        flow.sink("some", some, world.table(str(world.root / "lake" / "some")))
        for name in more:
            flow.sink(name, some, world.table(str(world.root / "lake" / name)))
        return flow

    return make


def alone(least: int, **how: Any) -> Callable[[World], tg.Dataflow]:
    """A source with no other table than `some`."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        some = source(world, flow, "orders", **how).map_batches(partial(at_least, least))
        flow.sink("some", some, world.table(str(world.root / "lake" / "some")))
        return flow

    return make


def add(world: World, *found: int) -> None:
    for n in found:
        write(world.root / "orders" / "1.jsonl", lines(n))


def live(world: World, make: Any, *more: int) -> tuple[str, ...]:
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


def died(world: World) -> None:
    world.crash_at = None
    world.clock.seconds += EXPIRY + 1


def opened(world: World, make: Any, output: str = "some") -> Any:
    table = make(world).spec.outputs[output].sink.open(OutputId("shop", output, world.loaded().flow.incarnation))
    assert isinstance(table, Replaceable)
    return table


def folder_of(world: World) -> Path:
    return world.root / "lake" / "some"


def stranger(world: World) -> pa.Table:
    """The table as somebody reads it who knows nothing of Tidegauge."""
    folder = str(folder_of(world))
    found = DeltaTable(folder).to_pyarrow_dataset() if world.table is tg.DeltaSink else ds.dataset(folder)
    return found.to_table()


def strangers_numbers(world: World) -> list[int]:
    return sorted(stranger(world)["n"].to_pylist())


def over(world: World, make: Any) -> bool:
    """Whether nothing is left in the store of a replacement."""
    loaded = world.loaded()
    return not (loaded.decisions.replacements or loaded.backfills or tg.status(make(world)).holds)


def replace(world: World, make: Any) -> Any:
    return tg.replace(make(world), "some", env=world.env())


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: Any) -> World:
    """A flow with some epochs in both tables; a job of late outputs takes one epoch."""
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1)
    world = World(tmp_path, flow_of(), table=table)
    add(world, 0)
    live(world, flow_of(), *range(1, PAST))
    return world


def test_a_replaced_table_is_one_that_had_the_new_code_from_the_start(world: World) -> None:
    done = replace(world, flow_of(3))
    assert (done.changes, done.running) == (("'argument 1' in step 1 (map_batches) is another",), "")
    assert live(world, flow_of(3), PAST) == ("output some is being replaced; its table stays as it is until then",)
    assert live(world, flow_of(3, more=("fresh",)), PAST + 1) == ("output fresh is new",)
    assert rows(flow_of(3)(world), "some") == rows(flow_of(3, more=("fresh",))(world), "fresh")
    assert numbers(flow_of(3)(world), "some") == list(range(3, PAST + 2))
    assert numbers(flow_of(3)(world), "some", as_of=4) == [3, 4], "also as of an epoch before it was replaced"
    assert over(world, flow_of(3))
    assert not tg.verify(flow_of(3)(world)).problems
    assert [one.epoch for one in world.loaded().outputs["some"].codes] == [0]
    with pytest.raises(CodeChanged):
        begin(world, flow_of())


def test_readers_see_the_old_rows_and_nobody_waits_until_all_change_places_in_one_commit(world: World) -> None:
    replace(world, flow_of(3))
    world.lag = 10
    run = begin(world, flow_of(3))
    seen = list[list[int]]()
    before = opened(world, flow_of(3))
    for n in range(PAST, PAST + 3):
        add(world, n)
        for _ in range(40):
            if run.runner.board.published > n:
                break
            run.step()
            seen.append(numbers(flow_of(3)(world), "some"))
            assert seen[-1] == list(range(PAST)) or (seen[-1][0] == 3 and seen[-1][-1] >= PAST - 1)
            there = strangers_numbers(world)
            assert there == list(range(PAST)) or (there == list(range(3, 3 + len(there))) and there[-1] >= PAST - 1)
        if n == PAST:
            [_, report] = tg.status(flow_of(3)(world)).outputs
            assert (report.state, report.replacing, report.rows) == ("backfilling", True, PAST)
            assert run.runner.board.outputs["some"].replacing
            assert numbers(flow_of(3)(world), "a") == list(range(PAST + 1)), "nobody waits for it"
            with pytest.raises(OutputIsBehind):
                tg.read_arrow(flow_of(3)(world), "some", as_of=PAST)
            assert numbers(flow_of(3)(world), "some", as_of=PAST - 1) == list(range(PAST))
    run.catch_up()
    run.abandon()
    assert list(range(PAST)) in seen
    now = opened(world, flow_of(3))
    brought = now.version_of(0)
    assert brought is not None
    assert {now.version_of(epoch) for epoch in range(PAST)} == {brought}, "one commit has brought all of the past"
    assert (before.edition, now.edition != "") == ("", True)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
def test_a_crash_anywhere_leaves_the_old_rows_or_the_new_ones(world: World, step: int) -> None:
    """The first life of each replacement dies at a later point than the one before, until one comes through."""
    old = PAST
    for at in itertools.count(step=step):
        least = at % 4 + 1
        make = flow_of(least)
        replace(world, make)
        crashed = True
        world.crash_at = at
        try:
            run = begin(world, make)
            run.catch_up()
        except Crash:
            died(world)
        else:
            crashed = False
            run.abandon()
        found = len(numbers(make(world), "some"))
        assert found in (old, PAST - least), "the whole old table, or the whole new one"
        world.points.clear()
        assert live(world, make) in (("output some is being replaced; its table stays as it is until then",), ())
        assert world.points.count("before stage") <= PAST
        assert numbers(make(world), "some") == list(range(least, PAST))
        assert over(world, make)
        assert [one.code for one in world.loaded().outputs["some"].codes] == [
            tg_code(make(world).spec.outputs["some"])
        ]
        old = PAST - least
        if not crashed:
            return


def tg_code(plan: Any) -> str:
    from tidegauge.job.code import code_of

    return code_of(plan).encode()


@pytest.mark.parametrize("strike", ["after commit output", "before end backfill"])
def test_a_driver_that_dies_right_after_the_commit_leaves_the_code_of_the_new_rows(world: World, strike: str) -> None:
    replace(world, flow_of(3))
    world.strike = strike
    with pytest.raises(Crash):
        begin(world, flow_of(3)).catch_up()
    died(world)
    with pytest.raises(CodeChanged):
        begin(world, flow_of(4))
    assert live(world, flow_of(3)) == ()
    assert over(world, flow_of(3))


def test_rows_of_other_columns_take_the_place_of_the_old_ones(world: World) -> None:
    replace(world, flow_of(2, shape=wider))
    live(world, flow_of(2, shape=wider), PAST)
    found = tg.read_arrow(flow_of(2, shape=wider)(world), "some")
    assert found.schema.field("at").type == pa.timestamp("us")
    assert found.num_rows == PAST - 1
    assert stranger(world).select(found.schema.names).sort_by("n").equals(found.sort_by("n"))
    if world.table is tg.DeltaSink:
        table = DeltaTable(str(folder_of(world)))
        assert "timestampNtz" in (table.protocol().writer_features or [])
        assert table.protocol().min_reader_version == 3
        assert DeltaTable(str(folder_of(world)), version=0).to_pyarrow_table().schema.names == [
            name for name in found.schema.names if name != "at"
        ]
    replace(world, flow_of())
    live(world, flow_of())
    assert "at" not in tg.read_arrow(flow_of()(world), "some").schema.names


def test_a_rebuild_stages_all_again_and_refuses_code_that_has_changed(world: World) -> None:
    with pytest.raises(CodeChanged):
        tg.rebuild(flow_of(3)(world), "some", env=world.env())
    assert tg.rebuild(flow_of()(world), "some", env=world.env()).changes == ()
    world.points.clear()
    before = rows(flow_of()(world), "some")
    live(world, flow_of())
    assert world.points.count("before record unit") == PAST
    assert rows(flow_of()(world), "some") == before
    world.points.clear()
    live(world, flow_of())
    assert "before stage" not in world.points, "it is over"


def test_a_flow_with_other_code_than_was_decided_neither_replaces_nor_goes_on(world: World) -> None:
    replace(world, flow_of(3))
    with pytest.raises(CodeChanged):
        begin(world, flow_of(4))
    assert live(world, flow_of(), PAST) == (), "the old code goes on with the old table"
    assert numbers(flow_of()(world), "some") == list(range(PAST + 1))
    live(world, flow_of(3))
    assert numbers(flow_of(3)(world), "some") == list(range(3, PAST + 1))


def test_a_replacement_that_is_replaced_begins_again_with_the_last_code(world: World) -> None:
    replace(world, flow_of(3))
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, flow_of(3)).catch_up()
    died(world)
    replace(world, flow_of(4))
    live(world, flow_of(4))
    assert numbers(flow_of(4)(world), "some") == [4, 5]
    assert over(world, flow_of(4))


def test_a_rebuild_that_is_decided_once_more_stages_all_again(world: World) -> None:
    tg.rebuild(flow_of()(world), "some", env=world.env())
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, flow_of()).catch_up()
    died(world)
    tg.rebuild(flow_of()(world), "some", env=world.env())
    world.points.clear()
    live(world, flow_of())
    assert world.points.count("before record unit") == PAST, "a library may have been corrected since"


def test_it_is_taken_back_by_from_here(world: World) -> None:
    replace(world, flow_of(3))
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, flow_of(3)).catch_up()
    died(world)
    assert tg.from_here(flow_of(3)(world), "some", env=world.env()).epoch == PAST
    assert over(world, flow_of(3))
    live(world, flow_of(3), 0, PAST)
    assert numbers(flow_of(3)(world), "some") == [*range(PAST), PAST]
    tg.rebuild(flow_of(3)(world), "some", env=world.env())
    assert tg.from_here(flow_of(3)(world), "some", env=world.env()).changes == ()
    assert over(world, flow_of(3))


def test_a_driver_that_runs_hears_of_it_and_one_of_other_code_does_not_heed_it(world: World) -> None:
    run = begin(world, flow_of())
    run.catch_up()
    replace(world, flow_of(3))
    add(world, PAST)
    run.catch_up()
    assert numbers(flow_of()(world), "some") == list(range(PAST + 1)), "it has the old code"
    done = tg.rebuild(flow_of()(world), "some", env=world.env())
    assert done.running
    add(world, PAST + 1)
    for _ in range(60):
        run.step()
        if opened(world, flow_of()).edition:
            break
    run.catch_up()
    run.abandon()
    assert opened(world, flow_of()).edition
    assert numbers(flow_of()(world), "some") == list(range(PAST + 2))
    assert over(world, flow_of())


def test_the_only_output_of_a_flow_is_replaced_at_once_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: Any
) -> None:
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1)
    world = World(tmp_path, alone(0), table=table)
    add(world, 0)
    live(world, alone(0), 1, 2)
    tg.replace(alone(1)(world), "some", env=world.env())
    world.lag = 5
    run = begin(world, alone(1))
    run.step()
    assert numbers(alone(1)(world), "some") == [0, 1, 2]
    run.catch_up()
    run.abandon()
    assert numbers(alone(1)(world), "some") == [1, 2]
    assert len({opened(world, alone(1)).version_of(epoch) for epoch in range(3)}) == 1


def test_an_output_that_is_dropped_meanwhile_begins_anew(world: World) -> None:
    replace(world, flow_of(3))
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, flow_of(3)).catch_up()
    died(world)
    tg.drop(flow_of(3)(world), "some", table=True, env=world.env())
    assert over(world, flow_of(3))
    live(world, flow_of(2))
    assert numbers(flow_of(2)(world), "some") == list(range(2, PAST))


def test_one_that_is_paused_meanwhile_stays_as_it_is_until_it_is_resumed(world: World) -> None:
    replace(world, flow_of(3))
    tg.pause(flow_of(3)(world), "some", env=world.env())
    live(world, flow_of(3), PAST)
    assert numbers(flow_of(3)(world), "some") == list(range(PAST))
    tg.unpause(flow_of(3)(world), "some", env=world.env())
    live(world, flow_of(3))
    assert numbers(flow_of(3)(world), "some") == list(range(3, PAST + 1))


def test_history_is_not_compacted_under_it(world: World) -> None:
    replace(world, flow_of(3))
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, flow_of(3)).catch_up()
    died(world)
    assert tg.compact(flow_of(3)(world), before=4).since == 0
    live(world, flow_of(3))
    assert tg.compact(flow_of(3)(world), before=4).since == 4
    assert numbers(flow_of(3)(world), "some") == list(range(3, PAST))


def test_where_upstream_has_lost_the_past_it_fails_with_the_numbers_and_the_old_table_stays(world: World) -> None:
    replace(world, flow_of(3))
    (world.root / "orders" / "1.jsonl").rename(world.root / "away")
    run = begin(world, flow_of(3))
    write(world.root / "orders" / "2.jsonl", lines(PAST))
    run.catch_up()
    assert states(run.runner.board.outputs.values()) == {"a": "live", "some": "failed"}
    run.abandon()
    assert numbers(flow_of(3)(world), "some") == list(range(PAST))
    assert tg.from_here(flow_of(3)(world), "some", env=world.env()).epoch == PAST
    live(world, flow_of(3))
    assert numbers(flow_of(3)(world), "some") == list(range(PAST + 1))


def test_so_it_is_where_no_other_table_has_the_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: Any
) -> None:
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1)
    world = World(tmp_path, alone(0), table=table)
    add(world, 0)
    live(world, alone(0), 1, 2)
    tg.replace(alone(1)(world), "some", env=world.env())
    (world.root / "orders" / "1.jsonl").rename(world.root / "away")
    run = begin(world, alone(1))
    write(world.root / "orders" / "2.jsonl", lines(3))
    run.catch_up()
    assert states(run.runner.board.outputs.values()) == {"some": "failed"}
    run.abandon()
    assert numbers(alone(0)(world), "some") == [0, 1, 2]
    tg.from_here(alone(1)(world), "some", env=world.env())
    live(world, alone(1))
    assert numbers(alone(1)(world), "some") == [0, 1, 2, 3]


def test_a_source_that_goes_on_without_what_is_lost_does_not_take_rows_from_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: Any
) -> None:
    def going_on(least: int) -> Callable[[World], tg.Dataflow]:
        return alone(least, on_data_loss="gap")

    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1)
    world = World(tmp_path, going_on(0), table=table)
    add(world, 0)
    live(world, going_on(0), 1, 2)
    tg.replace(going_on(1)(world), "some", env=world.env())
    (world.root / "orders" / "1.jsonl").unlink()
    run = begin(world, going_on(1))
    write(world.root / "orders" / "2.jsonl", lines(3))
    run.catch_up()
    [some] = run.runner.board.outputs.values()
    assert (some.state, getattr(some.error, "code", "")) == ("failed", "TG-0237")
    run.abandon()
    assert not world.loaded().gaps
    assert numbers(going_on(0)(world), "some") == [0, 1, 2]
    tg.from_here(going_on(1)(world), "some", env=world.env())
    live(world, going_on(1))
    assert numbers(going_on(1)(world), "some") == [0, 1, 2, 3]


def half_way(world: World) -> Run:
    """A life that has staged some of the new rows."""
    replace(world, flow_of(3))
    world.lag = 10
    run = begin(world, flow_of(3))
    while not world.loaded().backfills["some"].units:
        run.step()
    return run


def finished(world: World, run: Run) -> None:
    world.lag = 0
    run.catch_up()
    run.abandon()
    assert numbers(flow_of(3)(world), "some") == list(range(3, PAST))
    assert strangers_numbers(world) == [3, 4, 5]


def test_what_others_compact_and_clear_away_meanwhile_is_replaced_as_well(world: World) -> None:
    run = half_way(world)
    folder = str(folder_of(world))
    if world.table is tg.DeltaSink:
        table = DeltaTable(folder)
        table.optimize.compact()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, keep_versions=None)
    else:  # what Tidegauge itself can do to a folder
        table = opened(world, flow_of(3))
        stager = world.table(folder).stage(table.schema, job="d" * 32, task=0)
        stager.write(
            ds.dataset(table.uris(table.files()), schema=table.schema).to_table().combine_chunks().to_batches()[0]
        )
        table.commit(PAST, PAST, table.schema, stager.close(), remove=table.files(), write="e" * 32)
        shutil.rmtree(folder_of(world) / "_removed")
    assert not tg.verify(flow_of(3)(world)).problems
    finished(world, run) if world.loaded().backfills else None


def test_rows_that_others_write_meanwhile_stay_and_fail_the_output_alone(world: World) -> None:
    run = half_way(world)
    folder = str(folder_of(world))
    if world.table is tg.DeltaSink:
        write_deltalake(folder, DeltaTable(folder).to_pyarrow_table().slice(0, 1), mode="append")
    else:
        pq.write_table(stranger(world).slice(0, 1), folder_of(world) / "from_epoch=000000000003" / "theirs.parquet")
    add(world, PAST)
    world.lag = 0
    run.catch_up()
    assert states(run.runner.board.outputs.values()) == {"a": "live", "some": "failed"}
    run.abandon()
    assert stranger(world).num_rows == PAST + 1
    tg.repair(flow_of(3)(world), "some", remove_foreign=True, engine="local", env=world.env())
    live(world, flow_of(3))
    assert numbers(flow_of(3)(world), "some") == list(range(3, PAST + 1))


def test_units_that_others_clear_away_are_staged_again(world: World) -> None:
    run = half_way(world)
    run.abandon()
    died(world)
    world.lag = 0
    if world.table is tg.DeltaSink:
        table = DeltaTable(str(folder_of(world)))
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    else:
        shutil.rmtree(folder_of(world) / "_staged")
    finished(world, begin(world, flow_of(3)))


def test_if_some_are_cleared_away_the_others_go_as_well(world: World) -> None:
    if world.table is not tg.ParquetSink:
        pytest.skip("what was staged for a Delta table is left to VACUUM")
    replace(world, flow_of(1))
    world.lag = 10
    run = begin(world, flow_of(1))
    while len(world.loaded().backfills["some"].units) < 3:
        run.step()
    run.abandon()
    died(world)
    world.lag = 0
    staged = folder_of(world) / "_staged"
    first, *others = staged.rglob("part-*.parquet")
    assert others
    first.unlink()
    live(world, flow_of(1))
    assert numbers(flow_of(1)(world), "some") == list(range(1, PAST))
    assert not [*staged.rglob("part-*.parquet")]


def test_of_two_drivers_the_one_that_slept_changes_nothing(world: World) -> None:
    replace(world, flow_of(3))
    [found] = world.loaded().decisions.replacements.values()
    asleep, appending = opened(world, flow_of(3)).replacement(found.edition), opened(world, flow_of(3))
    live(world, flow_of(3))
    now = opened(world, flow_of(3))
    assert now.schema is not None
    for table, lower in ((asleep, 0), (appending, PAST - 1)):
        with pytest.raises(TableUpperMismatch):
            table.commit(lower, PAST, now.schema, [], write="f" * 32)
    assert numbers(flow_of(3)(world), "some") == list(range(3, PAST))


@pytest.fixture
def refused(world: World) -> Callable[..., str]:
    def ask(make: Any, output: str) -> str:
        with pytest.raises(CannotReplace) as caught:
            tg.replace(make(world), output, env=world.env())
        assert not world.loaded().decisions.replacements
        assert caught.value.code == "TG-0234"
        return caught.value.summary

    return ask


def test_what_cannot_be_replaced_is_refused_with_the_reason(refused: Callable[..., str]) -> None:
    """A topic is refused in `test_kafka_flows`."""
    assert "it has not run yet" in refused(flow_of(more=("fresh",)), "fresh")


@pytest.mark.parametrize("ask", [tg.replace, tg.rebuild, tg.from_here])
def test_one_that_was_pointed_at_another_source_is_refused(world: World, ask: Callable[..., object]) -> None:
    def moved(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        flow.sink("some", source(world, flow, "others"), world.table(str(world.root / "lake" / "some")))
        return flow

    with pytest.raises(OutputMoved, match="others"):
        ask(moved(world), "some", env=world.env())
    assert not world.loaded().decisions.replacements


def test_one_that_is_about_to_be_dropped_is_refused_also_where_its_table_is_gone_by_then(
    world: World, refused: Callable[..., str]
) -> None:
    run = begin(world, flow_of())
    tg.drop(flow_of()(world), "some", table=True, env=world.env())
    assert "is to be dropped" in refused(flow_of(1), "some")
    run.abandon()
    world.clock.seconds += EXPIRY + 1
    shutil.rmtree(folder_of(world))
    assert "is to be dropped" in refused(flow_of(1), "some")


def kept(world: World) -> Any:
    """Return what brings the table back to what it is now, as somebody does who knows nothing of its editions."""
    if world.table is tg.DeltaSink:
        version = DeltaTable(str(folder_of(world))).version()
        return lambda: DeltaTable(str(folder_of(world))).restore(version)
    shutil.copytree(folder_of(world), world.root / "kept")
    return lambda: shutil.copytree(world.root / "kept", folder_of(world), dirs_exist_ok=True)


def test_a_replaced_table_is_repaired_as_one_of_its_edition(world: World) -> None:
    restore = kept(world)
    replace(world, flow_of(3))
    live(world, flow_of(3))
    restore()
    assert tg.verify(flow_of(3)(world)).problems
    done = tg.repair(flow_of(3)(world), "some", remove_foreign=True, engine="local", env=world.env())
    assert done.changed
    assert numbers(flow_of(3)(world), "some") == list(range(3, PAST))
    assert strangers_numbers(world) == [3, 4, 5]
    live(world, flow_of(3), PAST)
    assert numbers(flow_of(3)(world), "some") == list(range(3, PAST + 1))


def test_code_of_before_a_replacement_repairs_only_where_it_is_told_to_make_all_rows(world: World) -> None:
    replace(world, flow_of(3))
    live(world, flow_of(3))
    (folder_of(world) / opened(world, flow_of(3)).files()[0].path).unlink()
    with pytest.raises(EpochsOfOtherCode):
        tg.repair(flow_of()(world), "some", engine="local", env=world.env())
    tg.repair(flow_of()(world), "some", from_epoch=0, engine="local", env=world.env())
    assert numbers(flow_of()(world), "some") == list(range(PAST))
    live(world, flow_of(), PAST)
    assert numbers(flow_of()(world), "some") == list(range(PAST + 1))


def test_a_read_that_had_begun_gives_the_old_rows_or_the_new_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(world, flow_of(3, shape=wider))
    views = list[Any]()

    def first_look(*arguments: Any, **how: Any) -> Any:
        views.append(view_of(*arguments, **how))
        if len(views) == 1:
            live(world, flow_of(3, shape=wider))
        return views[-1]

    monkeypatch.setattr(read, "view_of", first_look)
    found = tg.read_arrow(flow_of()(world), "some")
    assert sorted(found["n"].to_pylist()) == (list(range(PAST)) if world.table is tg.DeltaSink else [3, 4, 5])
    assert len(views) == (1 if world.table is tg.DeltaSink else 2)
    [path, *_] = [Path(uri) for uri in views[-1].uris]
    path.unlink()
    monkeypatch.setattr(read, "view_of", lambda *_, **__: views[-1])
    with pytest.raises(RowsUnreadable):
        tg.read_arrow(flow_of()(world), "some")


def test_a_store_that_is_recovered_knows_of_no_replacement_and_of_the_rows_that_are_there(world: World) -> None:
    replace(world, flow_of(3))
    live(world, flow_of(3), PAST)
    for file in world.root.glob("flow.db*"):
        file.unlink()
    tg.recover(flow_of(3)(world), env=world.env())
    live(world, flow_of(3), PAST + 1)
    assert numbers(flow_of(3)(world), "some") == list(range(3, PAST + 2))


def test_a_driver_that_wakes_after_the_replacement_was_taken_back_changes_nothing(world: World) -> None:
    replace(world, flow_of(3))
    [found] = world.loaded().decisions.replacements.values()
    asleep = opened(world, flow_of(3)).replacement(found.edition)
    old = opened(world, flow_of())
    tg.from_here(flow_of(3)(world), "some", env=world.env())
    assert old.schema is not None
    with pytest.raises(TableUpperMismatch):
        asleep.commit(0, PAST, old.schema, [], write="f" * 32)
    assert numbers(flow_of(3)(world), "some") == list(range(PAST))
    assert not tg.verify(flow_of(3)(world)).problems
    live(world, flow_of(3), 0, PAST)
    assert numbers(flow_of(3)(world), "some") == [*range(PAST), PAST]
    replace(world, flow_of(4))
    live(world, flow_of(4))
    assert numbers(flow_of(4)(world), "some") == [4, 5, PAST]


def test_rows_of_the_old_edition_do_not_follow_those_of_the_new_one(world: World) -> None:
    """Even if both end with the same epoch."""
    replace(world, flow_of(3))
    appending = opened(world, flow_of())
    live(world, flow_of(3))
    now = opened(world, flow_of(3))
    assert now.schema is not None
    assert now.upper == appending.upper
    with pytest.raises(TableUpperMismatch):
        appending.commit(PAST, PAST + 1, now.schema, [], write="f" * 32)


def test_files_are_not_put_in_and_taken_out_by_one_entry(world: World) -> None:
    """The table has the edition already: the driver before has made the entry while this one was beginning."""
    replace(world, flow_of(3))
    [found] = world.loaded().decisions.replacements.values()
    live(world, flow_of(3))
    now = opened(world, flow_of(3))
    assert now.schema is not None
    again = now.replacement(found.edition)
    with pytest.raises(TableUpperMismatch):
        again.commit(0, PAST, now.schema, now.files(), write="f" * 32)
    assert numbers(flow_of(3)(world), "some") == [3, 4, 5]


def backed_up(world: World, name: str) -> None:
    tg.backup(flow_of(3)(world), str(world.root / name))


def put_back(world: World, name: str) -> None:
    for file in world.root.glob("flow.db*"):
        file.unlink()
    (world.root / "flow.db").write_bytes((world.root / name).read_bytes())


@pytest.mark.parametrize("when", ["before the decision", "after the decision", "half way"])
def test_a_store_put_back_from_before_the_commit_learns_from_the_table_that_it_was_made(
    world: World, when: str
) -> None:
    if when != "before the decision":
        replace(world, flow_of(3))
    if when == "half way":
        world.strike = "after record unit"
        with pytest.raises(Crash):
            begin(world, flow_of(3)).catch_up()
        died(world)
    backed_up(world, "backup.db")
    if when == "before the decision":
        replace(world, flow_of(3))
    live(world, flow_of(3))
    put_back(world, "backup.db")
    world.clock.seconds += EXPIRY + 1
    if when == "before the decision":
        with pytest.raises(CodeChanged):
            begin(world, flow_of(3))
        tg.from_here(flow_of(3)(world), "some", env=world.env())
    world.points.clear()
    live(world, flow_of(3), PAST)
    assert "before record unit" not in world.points
    assert numbers(flow_of(3)(world), "some") == [3, 4, 5, PAST]
    assert over(world, flow_of(3))


@pytest.mark.parametrize("when", ["half way", "over"])
def test_a_store_put_back_from_half_way_and_recovered_brings_the_rows_once(world: World, when: str) -> None:
    """Epochs have come since, in the table that was replaced, or beside the one that is to be."""
    replace(world, flow_of(3))
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, flow_of(3)).catch_up()
    died(world)
    backed_up(world, "backup.db")
    if when == "over":
        live(world, flow_of(3), PAST)
    else:
        tg.pause(flow_of(3)(world), "some", env=world.env())
        live(world, flow_of(3), PAST)
    put_back(world, "backup.db")
    world.clock.seconds += EXPIRY + 1
    with pytest.raises(StoreBehindTable):
        begin(world, flow_of(3))
    world.clock.seconds += EXPIRY + 1
    tg.recover(flow_of(3)(world), env=world.env())
    live(world, flow_of(3), PAST + 1)
    assert numbers(flow_of(3)(world), "some") == list(range(3, PAST + 2))
    assert numbers(flow_of(3)(world), "a") == list(range(PAST + 2))
    assert over(world, flow_of(3))


def test_a_lost_store_that_is_recovered_half_way_says_that_it_forgot_the_replacement(world: World) -> None:
    replace(world, flow_of(3))
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, flow_of(3)).catch_up()
    died(world)
    for file in world.root.glob("flow.db*"):
        file.unlink()
    done = tg.recover(flow_of(3)(world), env=world.env())
    assert any("replac" in lacking for lacking in done.lacking), done.lacking
    assert numbers(flow_of(3)(world), "some") == list(range(PAST)), "nothing is lost, and nothing came twice"
    replace(world, flow_of(3))
    live(world, flow_of(3), PAST)
    assert numbers(flow_of(3)(world), "some") == [3, 4, 5, PAST]


def test_an_empty_table_in_the_place_of_rows_that_somebody_restores_is_refused_until_it_is_repaired(
    world: World,
) -> None:
    restore = kept(world)
    replace(world, flow_of(100))
    live(world, flow_of(100))
    assert numbers(flow_of(100)(world), "some") == []
    if world.table is tg.DeltaSink:
        assert stranger(world).num_rows == 0
    else:
        assert not list(folder_of(world).glob("from_epoch=*/*.parquet"))
    restore()
    with pytest.raises((TableChangedByOthers, FilesChangedByOthers)):
        numbers(flow_of(100)(world), "some")
    with pytest.raises((TableChangedByOthers, FilesChangedByOthers)):
        begin(world, flow_of(100))
    world.clock.seconds += EXPIRY + 1
    done = tg.repair(flow_of(100)(world), "some", remove_foreign=True, engine="local", env=world.env())
    assert done.changed
    live(world, flow_of(100), 100)
    assert numbers(flow_of(100)(world), "some") == [100]
    assert strangers_numbers(world) == [100]


def test_where_a_table_begins_and_its_timestamps_cannot_be_changed_by_it(world: World) -> None:
    def make(**said: Any) -> Callable[[World], tg.Dataflow]:
        def made(world: World) -> tg.Dataflow:
            flow = tg.Dataflow("shop", store=world.store)
            orders = source(world, flow, "orders")
            flow.sink("a", orders, tg.ParquetSink(str(world.root / "lake" / "a")))
            some = orders.map_batches(partial(at_least, 3))
            flow.sink("some", some, world.table(str(world.root / "lake" / "some")), **said)
            return flow

        return made

    replace(world, flow_of(3))
    for said, refusal in (({"start": "now"}, StartChanged), ({"timestamps": "collapse"}, TimestampsChanged)):
        with pytest.raises(refusal):
            begin(world, make(**said))
        world.clock.seconds += EXPIRY + 1
    assert numbers(flow_of(3)(world), "some") == list(range(PAST))
    live(world, flow_of(3))
    assert numbers(flow_of(3)(world), "some") == [3, 4, 5]


@pytest.mark.parametrize("said", [{"start": 2}, {"timestamps": "collapse"}, {"start": 2, "timestamps": "collapse"}])
def test_new_rows_begin_where_the_old_ones_began_and_have_their_epochs(world: World, said: dict[str, Any]) -> None:
    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("a", orders, tg.ParquetSink(str(world.root / "lake" / "a")))
        flow.sink("late", orders, world.table(str(world.root / "lake" / "late")), **said)
        return flow

    tg.drop(flow_of()(world), "some", env=world.env())
    live(world, make, PAST)
    before = rows(make(world), "late")
    tg.rebuild(make(world), "late", env=world.env())
    world.points.clear()
    live(world, make)
    assert "before record unit" in world.points
    assert opened(world, make, "late").edition
    assert rows(make(world), "late") == before
    tg.rebuild(make(world), "late", env=world.env())
    live(world, make, PAST + 1)
    assert rows(make(world), "late")[:-1] == before
    assert over(world, make)


def test_a_driver_that_wakes_after_its_output_was_dropped_changes_nothing(world: World) -> None:
    replace(world, flow_of(3))
    [found] = world.loaded().decisions.replacements.values()
    asleep, old = opened(world, flow_of(3)).replacement(found.edition), opened(world, flow_of())
    tg.drop(flow_of(3)(world), "some", env=world.env())
    assert old.schema is not None
    with pytest.raises(TableUpperMismatch):
        asleep.commit(0, PAST, old.schema, [], write="f" * 32)
    live(world, flow_of(), PAST)
    assert numbers(flow_of()(world), "some") == list(range(PAST + 1))
    assert over(world, flow_of())
