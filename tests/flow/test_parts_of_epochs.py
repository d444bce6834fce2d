"""The past of a late output is staged in parts of its epochs, as large as a job may be, and comes out as one."""

from __future__ import annotations

import gzip
import itertools
import os
from collections.abc import Callable, Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flow.badinput import begin, finish, lines, numbers, rows, states, write
from tests.flow.by_hand import Crash, Run, World
from tests.flow.test_late_outputs import DEATHS, PAST, add, alone, filled, flow_of, with_late
from tests.flow.test_paused_outputs import decide

import tidegauge as tg
from tidegauge.job import portion
from tidegauge.reclock.parts import START
from tidegauge.remap.binding import Slice
from tidegauge.remap.store import EXPIRY, BackfillUnit

LINE = len(lines(10))
"""The bytes of a record with a number of two digits."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A flow with one table, that has run for some epochs, folded into one by now; a late job takes three records."""
    world = World(tmp_path, alone)
    run = begin(world)
    for n in range(10, 10 + PAST):
        add(world, n)
        run.catch_up()
    run.abandon()
    tg.compact(alone(world), before=PAST - 2)
    takes(monkeypatch, 3)
    return world


def takes(patch: pytest.MonkeyPatch, records: int, unit: str = "bytes") -> None:
    patch.setitem(portion.JOB_LIMITS, unit, portion.LATE_PART * records * (LINE if unit == "bytes" else 1))


def units(world: World, output: str = "late") -> list[BackfillUnit]:
    found = world.loaded().backfills.get(output)
    return [] if found is None else list(found.units)


def same(world: World, make: Callable[[World], tg.Dataflow], *late: str) -> bool:
    """Whether these tables are those that they would be from the start, in a flow that was compacted since."""
    since = world.loaded().flow.since
    wanted = [{**row, "_epoch": max(row["_epoch"], since)} for row in rows(make(world), "a")]
    return all(
        sorted(rows(make(world), name), key=lambda row: (row["_epoch"], row["n"]))
        == sorted(wanted, key=lambda row: (row["_epoch"], row["n"]))
        for name in late or ("late",)
    )


def dies(world: World, make: Callable[[World], tg.Dataflow], *strikes: str) -> None:
    """Lives that each die at a place."""
    for strike in strikes:
        world.strike = strike
        with pytest.raises(Crash):
            begin(world, make).catch_up()
        world.clock.seconds += EXPIRY + 1


def test_s1_p1_a_compacted_past_is_many_units_and_its_progress_is_exact(world: World) -> None:
    assert [len(alone(world).spec.outputs), world.loaded().flow.since] == [1, PAST - 2]
    world.lag = 12
    run = begin(world, with_late)
    seen: list[int] = []
    while (found := run.runner.board.outputs["late"].filled) is not None:
        seen += [found.done] if found.done not in seen else []
        assert found.total == PAST * LINE
        assert (found.percent == 100) == (found.done == found.total)
        [_, shown] = tg.status(with_late(world)).outputs
        assert shown.filled is None or shown.filled.done in (found.done, *seen), "as the store knows it"
        run.step()
    assert seen == [LINE * records for records in (0, 3, 6, 9, 11, 12)]
    run.catch_up()
    run.abandon()
    assert same(world, with_late)


def test_s7_a_crash_repeats_the_unit_under_way_and_no_other(world: World) -> None:
    dies(world, with_late, "after record unit", "after record unit")
    assert [unit.rows for unit in units(world)] == [3, 3]
    assert {(unit.lower, unit.upper) for unit in units(world)} == {(PAST - 2, PAST - 2)}
    assert [unit.position for unit in units(world)] == [3 * LINE, 6 * LINE]
    run = begin(world, with_late)
    assert filled(run, "late") == 50
    run.catch_up()
    assert run.runner.board.sources["orders"].records == PAST - 6
    run.abandon()
    assert same(world, with_late)


def test_a_late_output_that_is_added_meanwhile_meets_the_other_inside_the_epoch(world: World) -> None:
    dies(world, with_late, "after record unit", "after record unit")
    two = flow_of("late", "later")
    run = begin(world, two)
    run.catch_up()
    assert run.runner.board.sources["orders"].records == PAST, "what both lack is read once"
    run.abandon()
    assert same(world, two, "late", "later")


def test_an_output_whose_steps_see_whole_epochs_gets_whole_epochs(world: World) -> None:
    class Engine(tg.LocalEngine):
        def rowwise(self, plan: Any, source_schema: pa.Schema) -> bool:
            return bool(plan.name != "late")

    jobs = []
    submit = Engine.submit

    def submitted(self: Engine, job: Any) -> Any:
        jobs.append(job)
        return submit(self, job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "submit", submitted)
        with_late(world).run("caught-up", engine=Engine(threads=0))
    assert [(job.lower, job.upper) for job in jobs] == [(e, e + 1) for e in range(PAST - 2, PAST)]
    assert same(world, with_late)


def test_beside_a_topic_or_any_table_that_shows_what_it_gets_epochs_are_whole(world: World) -> None:
    class Showing:
        """A Parquet table that cannot keep what it has staged."""

        def __init__(self, path: str) -> None:
            self.sink = tg.ParquetSink(path)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.sink, name)

        def open(self, output: Any) -> Any:
            table = self.sink.open(output)

            class Table:
                def __getattr__(self, name: str) -> Any:
                    if name == "keep":
                        raise AttributeError(name)
                    return getattr(table, name)

            return Table()

    make = flow_of("late", sink=Showing)
    run = begin(world, make)
    world.points.clear()
    run.catch_up()
    run.abandon()
    assert world.points.count("before stage") == 2, "the epoch that was folded, and the last one"
    assert "before record unit" not in world.points
    assert same(world, make)


def test_a_row_that_the_output_cannot_take_shows_nothing_and_the_next_run_goes_on_at_its_unit(
    world: World,
) -> None:
    unwanted = [17]

    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        if {*unwanted} & {*batch["n"].to_pylist()}:
            raise ValueError("not wanted")
        return batch

    make = flow_of("late", function=refuse)
    run = begin(world, make)
    run.catch_up()
    assert states(run.runner.board.outputs.values()) == {"a": "live", "late": "failed"}
    run.abandon()
    assert [unit.rows for unit in units(world)] == [3, 3]
    assert not list((world.root / "lake" / "late").glob("from_epoch=*"))
    unwanted.clear()
    run = begin(world, make)
    run.catch_up()
    assert run.runner.board.sources["orders"].records == PAST - 6
    run.abandon()
    assert same(world, make)


def bound_only(world: World, text: str) -> None:
    """Bind one more epoch that nobody has read yet."""
    world.lag = 100
    run = begin(world, alone)
    before = run.runner.board.upper
    write(world.root / "orders" / "1.jsonl", text)
    while run.runner.board.upper == before:
        run.step(1.0)
    run.abandon()
    run.under_way.clear()


@pytest.mark.parametrize("restarts", [False, True])
def test_nothing_is_shown_of_an_epoch_at_which_the_source_fails_whatever_parts_of_it_are_staged(
    world: World, restarts: bool
) -> None:
    bound_only(world, lines(*range(30, 40)) + "no json\n" + lines(*range(40, 50)))
    world.lag = 12
    run = begin(world, with_late)
    while not units(world) or units(world)[-1].upper < PAST or units(world)[-1].position == 0:
        run.step()
    assert [(unit.lower, unit.upper, unit.rows) for unit in units(world)][-1] == (PAST, PAST, 3), (
        "a part of the epoch"
    )
    if restarts:
        run.abandon()
        run = begin(world, with_late)
    while world.loaded().backfills:
        run.step()
    run.abandon()
    assert same(world, with_late)
    assert numbers(with_late(world), "late") == list(range(10, 10 + PAST))
    assert (world.loaded().sources["orders"].failure or (0,))[0] == PAST


def test_a_unit_with_epochs_on_both_sides_of_a_failure_is_staged_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late output has read an epoch that upstream loses before the others have it."""
    run = begin(world, alone)
    decide(run, tg.pause, "a")
    path = world.root / "orders" / "2.jsonl"
    for n in range(30, 34):
        write(path, lines(n))
        while run.runner.board.upper <= PAST + n - 30:
            run.step()
    run.abandon()
    tg.unpause(alone(world), "a")
    takes(monkeypatch, 100)
    world.faults.extend([True] * 50)
    dies(world, with_late, "after record unit")
    assert [(unit.lower, unit.upper) for unit in units(world)] == [(PAST - 2, PAST + 4)]
    world.faults.clear()
    path.write_text("x" * 4 * LINE)
    finish(world, alone)
    failed = world.loaded().sources["orders"].failure
    assert failed is not None
    run = begin(world, with_late)
    while world.loaded().backfills:
        run.step()
    run.abandon()
    assert same(world, with_late)
    assert {row["_epoch"] for row in rows(with_late(world), "late")} <= set(range(failed[0]))


def test_a_lost_part_of_an_epoch_leaves_the_same_rows_and_gaps_as_a_whole_one(world: World) -> None:
    def giving_up(*late: str) -> Callable[[World], tg.Dataflow]:
        def make(world: World) -> tg.Dataflow:
            flow = tg.Dataflow("shop", store=world.store)
            pattern = str(world.root / "orders" / "*")
            orders = flow.source(
                "orders", tg.FileSource(pattern, format=tg.Json("n long, text string"), on_data_loss="gap")
            )
            for name in ("a", *late):
                flow.sink(name, orders, tg.ParquetSink(str(world.root / "lake" / name)))
            return flow

        return make

    root = world.root / "two"
    world = World(root, giving_up())
    write(root / "orders" / "1.jsonl", lines(*range(10, 20)))
    write(root / "orders" / "2.jsonl", lines(*range(20, 30)))
    finish(world)
    dies(world, giving_up("late"), *2 * ["after record unit"])
    [first, *_] = sorted((root / "orders").iterdir(), key=lambda path: f"{path.stat().st_ino}")
    [(name, staged)] = {(unit.partition, unit.position) for unit in units(world)[-1:]}
    first.rename(root / "away") if numbers_of(first)[0] in (10, 20) else None
    finish(world, giving_up("late"))
    gaps = [(gap.partition, gap.lower, gap.upper) for gap in world.loaded().gaps]
    late, everything = numbers(giving_up("late")(world), "late"), numbers(giving_up()(world), "a")
    lost = sorted(set(everything) - set(late))
    assert sum(upper - lower for _, lower, upper in gaps) == LINE * len(lost)
    assert len(late) == len(set(late)) == 20 - len(lost)
    if gaps == [(name, staged, 10 * LINE)]:
        assert len(lost) == 4, "what was staged before it was lost is kept"


def numbers_of(path: Path) -> list[int]:
    return [int(line.split(": ")[1].split(",")[0]) for line in path.read_text().splitlines()]


def test_files_that_are_read_whole_are_units_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def parquet(*late: str) -> Callable[[World], tg.Dataflow]:
        def make(world: World) -> tg.Dataflow:
            flow = tg.Dataflow("shop", store=world.store)
            data = flow.source("data", tg.FileSource(str(world.root / "data" / "*"), format=tg.Parquet(), settle=0))
            for name in ("a", *late):
                flow.sink(name, data, tg.DeltaSink(str(world.root / "lake" / name)))
            return flow

        return make

    world = World(tmp_path, parquet())
    (tmp_path / "data").mkdir()
    for number in range(3):
        path = tmp_path / "data" / f"{number}.parquet"
        pq.write_table(pa.table({"n": range(100 * number, 100 * number + 100)}), path)
        os.utime(path, (1e9, 1e9))  # the clock of the world is not that of the disk
    finish(world)
    assert world.loaded().flow.upper == 1
    takes(monkeypatch, 1)
    dies(world, parquet("late"), "after record unit")
    assert [unit.rows for unit in units(world)] == [100]
    finish(world, parquet("late"))
    assert rows(parquet("late")(world), "late") == rows(parquet("late")(world), "a")


def test_csv_is_cut_between_records_and_compressed_files_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tg.FileSource(str(tmp_path / "in" / "*"), format=tg.Csv("n long, text string"), settle=0)

    def make(world: World, *late: str) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        found = flow.source("in", source)
        for name in ("a", *late):
            flow.sink(name, found, tg.ParquetSink(str(world.root / "lake" / name)))
        return flow

    def late(world: World) -> tg.Dataflow:
        return make(world, "late")

    world = World(tmp_path, make)
    text = "n,text\n" + "".join(f'{n},"a ""b""\n{"c" * n}\n"\n' for n in range(30))
    write(tmp_path / "in" / "1.csv", text)
    (tmp_path / "in" / "2.csv.gz").write_bytes(gzip.compress(text.encode()))
    os.utime(tmp_path / "in" / "2.csv.gz", (1e9, 1e9))
    finish(world)
    takes(monkeypatch, 2)
    dies(world, late, *3 * ["after record unit"])
    assert all(unit.rows < 30 or unit.position > 100 for unit in units(world))
    finish(world, late)
    assert same(world, late)
    assert len(rows(late(world), "late")) == 60


def test_under_a_rate_a_large_epoch_comes_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, alone)
    write(tmp_path / "orders" / "1.jsonl", lines(*range(1000, 1200)))
    finish(world)
    tg.limit(alone(world), 10)
    run = begin(world, with_late)
    jobs: list[tuple[float, int]] = []
    while run.runner.board.outputs["late"].filled is not None:
        read = run.runner.board.sources["orders"].records
        if not jobs or read > jobs[-1][1]:
            jobs.append((world.clock.seconds, read))
        run.step(0.1)
    run.catch_up()
    run.abandon()
    sizes = [after - before for (_, before), (_, after) in itertools.pairwise([(0.0, 0), *jobs])]
    assert max(sizes) <= 10, "no job reads more than a second's worth"
    for (start, before), (end, after) in itertools.combinations(jobs, 2):
        assert after - before <= 10 * (end - start + 0.1) + 10
    assert jobs[-1][0] - jobs[0][0] == pytest.approx(20, abs=2.0), "and each second has its share"
    assert same(world, with_late)


def test_what_one_job_was_to_read_and_could_not_is_read_by_the_next(world: World) -> None:
    """A source that is away while a part is read: the same part is tried again, and nothing is left out."""
    run = begin(world, with_late)
    cut = tg.FileSource.cut
    failed = [True, True]

    def away(self: tg.FileSource, piece: Slice, size: int, bound: Any) -> int | None:
        if failed:
            failed.pop()
            raise OSError(5, "Input/output error")
        return cut(self, piece, size, bound)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tg.FileSource, "cut", away)
        run.step(0.0)
        assert run.runner.board.outputs["late"].state == "stalled"
        run.step(60.0)
        run.step(60.0)
        run.catch_up()
    run.abandon()
    assert not failed
    assert same(world, with_late)


def test_a3_both_parts_of_an_update_come_together_though_a_unit_ends_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, alone)
    write(tmp_path / "orders" / "1.jsonl", "".join(lines(n, n) for n in range(10, 20)))
    finish(world)
    takes(monkeypatch, 1)
    world.lag = 2
    run = begin(world, with_late)
    visible: list[Collection[int]] = []
    while run.runner.board.outputs["late"].state != "live":
        run.step()
        if list((tmp_path / "lake" / "late").glob("from_epoch=*")):
            visible.append(numbers(with_late(world), "late"))
    run.abandon()
    assert world.points.count("after record unit") == 20
    assert all(found == sorted([*range(10, 20)] * 2) for found in visible)


def numbered(*late: str) -> Callable[[World], tg.Dataflow]:
    """Rows that can be cut anywhere, of two shards."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        made = tg.GeneratorSource(60, columns="n long", shards=2, max_records_per_epoch=13, metadata=True)
        found = flow.source("orders", made)
        for name in ("a", *late):
            flow.sink(name, found, tg.ParquetSink(str(world.root / "lake" / name)))
        return flow

    return make


@settings(max_examples=10, deadline=None)
@given(
    since=st.integers(0, 4),
    lives=DEATHS,
    sizes=st.lists(st.integers(1, 40), min_size=5, max_size=5),
    slices=st.sampled_from([1, 5000]),
)
def test_s25_s30_whatever_the_sizes_of_units_the_table_is_one_from_the_start(
    since: int, lives: list[str], sizes: list[int], slices: int
) -> None:
    """Each life is of another size, and dies."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(portion, "LATE_SLICES", slices)
        world = World(Path(folder), numbered())
        finish(world)
        tg.compact(numbered()(world), before=since)
        for strike, size in itertools.zip_longest(lives, sizes[: len(lives) + 1]):
            takes(patch, size, "records")
            world.strike = strike or ""
            run: Run | None = None
            try:
                run = begin(world, numbered("late"))
                run.catch_up()
                run.abandon()
            except Crash:
                world.clock.seconds += EXPIRY + 1
        flow = numbered("late")(world)
        table = world.loaded().sources["orders"].table
        got = tg.read_arrow(flow, "late").select(["_partition", "_offset", "_epoch"]).to_pylist()
        places = sorted((row["_epoch"], row["_partition"], row["_offset"]) for row in got)
        slices_of = table.slices(table.since, table.upper)
        assert places == sorted((s.epoch, s.partition, at) for s in slices_of for at in range(s.lower, s.upper))
        for epoch in range(since, table.upper):
            assert tg.read_arrow(flow, "late", as_of=epoch).num_rows == sum(
                piece.size for piece in slices_of if piece.epoch <= epoch
            )
        assert START == ("", 0)


@pytest.mark.spark
def test_on_spark_steps_that_see_all_rows_of_an_epoch_get_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(world: World) -> tg.Dataflow:
        flow = alone(world)
        orders = tg.RowStream(flow, "orders")
        made = {
            "frames": orders.transform(lambda frame: frame.groupBy("_epoch").count()),
            "windows": orders.select("n", "count(*) OVER (PARTITION BY _epoch) AS count"),
            "each": orders.select("n", "upper(text) AS text").filter("n > 0").map_batches(lambda batch: batch),
        }
        for name, stream in made.items():
            flow.sink(name, stream, tg.ParquetSink(str(world.root / "lake" / name)))
        return flow

    engine = tg.SparkEngine(master="local[1]")
    spec = make(world).spec
    try:
        schema = world.loaded().sources["orders"].schema
        assert schema is not None
        found = {name: engine.rowwise(plan, schema) for name, plan in spec.outputs.items()}
        assert found == {"a": True, "frames": False, "windows": False, "each": True}
        make(world).run(until="caught-up", engine=engine)
    finally:
        engine.close()
    counts = {PAST - 2: PAST - 1, PAST - 1: 1}
    assert {row["_epoch"]: row["count"] for row in rows(make(world), "frames")} == counts
    assert {row["_epoch"]: row["count"] for row in rows(make(world), "windows")} == counts
    assert len(rows(make(world), "windows")) == len(rows(make(world), "each")) == PAST
