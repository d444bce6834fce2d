"""A new output whose past comes from the table of another one: upstream may have forgotten it long ago."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flow.badinput import begin, finish, lines, numbers, rows, source, states, write
from tests.flow.by_hand import Crash, World

import tidegauge as tg
from tidegauge.env import POINTS
from tidegauge.errors.engine import ExpressionFailed
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.outputs import PastNotThere, PastUnreadable
from tidegauge.job import portion
from tidegauge.remap.binding import Bound, Slice
from tidegauge.remap.store import EXPIRY
from tidegauge.sinks.protocol import OutputId

PAST = 12
"""How many epochs there are before the late output; epoch n holds the number n."""

FROM = tg.From("a")

TABLES = [tg.DeltaSink, tg.ParquetSink]


def flow_of(
    *late: str,
    start: Any = FROM,
    timestamps: Any = "faithful",
    base: Callable[[str], Any] = tg.DeltaSink,
    sink: Callable[[str], Any] = tg.ParquetSink,
    begins: Any = None,
    kept: str = "n >= 0",
    condition: str = "n >= 0",
) -> Callable[..., tg.Dataflow]:
    """One source into the table `a`, and into these tables besides, which go on from the rows of `a`."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders").filter(kept)
        flow.sink("a", orders, base(str(world.root / "lake" / "a")), start=begins)
        for name in late:
            table = sink(str(world.root / "lake" / name))
            flow.sink(name, orders.filter(condition), table, start=start, timestamps=timestamps)
        return flow

    return make


alone, with_late = flow_of(), flow_of("late")


def add(world: World, n: int) -> None:
    write(world.root / "orders" / f"{n}.jsonl", lines(n))


def gone(world: World, *kept: int) -> None:
    """Upstream forgets all that it has, but for these numbers."""
    for path in (world.root / "orders").iterdir():
        if int(path.stem) not in kept:
            path.unlink()


def live(world: World, make: Callable[[World], tg.Dataflow], *more: int) -> None:
    """One life, in which there is an epoch for each of these numbers."""
    run = begin(world, make)
    run.catch_up()
    for n in more:
        add(world, n)
        run.catch_up()
    run.abandon()


def lived(root: Path, make: Callable[[World], tg.Dataflow] = alone, *, forgotten: bool = True) -> World:
    """A flow with the table `a`, that has run for some epochs, whose records upstream does not have any more."""
    world = World(root, make)
    live(world, make, *range(PAST))
    if forgotten:
        gone(world)
    return world


@pytest.fixture(autouse=True)
def _one_epoch_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return lived(tmp_path)


def same(world: World, make: Callable[[World], tg.Dataflow], *, first: int = 0) -> None:
    """The late table has the rows of `a`, each in the same epoch."""
    assert rows(make(world), "late") == [row for row in rows(make(world), "a") if row["_epoch"] >= first]


@pytest.mark.parametrize("base", TABLES)
@pytest.mark.parametrize("sink", TABLES)
def test_a1_rows_of_the_past_come_from_the_table_and_later_ones_from_the_source(
    tmp_path: Path, base: Any, sink: Any
) -> None:
    make = flow_of("late", base=base, sink=sink)
    world = lived(tmp_path, flow_of(base=base))
    run = begin(world, make)
    run.catch_up()
    assert states(run.runner.board.outputs.values()) == {"a": "live", "late": "live"}
    run.abandon()
    same(world, make)
    live(world, make, PAST, PAST + 1)
    same(world, make)
    assert numbers(make(world), "late") == list(range(PAST + 2))
    old, new = (tg.read_arrow(make(world), name).sort_by("_epoch") for name in ("a", "late"))
    assert old.equals(new), "with its types, and the place of each record"


def test_records_that_could_not_be_decoded_have_a_past_like_any_others(tmp_path: Path) -> None:
    def make(world: World, *late: str) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("a", orders, tg.DeltaSink(str(world.root / "lake" / "a")))
        flow.sink("bad", orders.errors, tg.DeltaSink(str(world.root / "lake" / "bad")))
        for name in late:
            flow.sink(name, orders.errors, tg.ParquetSink(str(world.root / "lake" / name)), start=tg.From("bad"))
        return flow

    world = World(tmp_path, make)
    for n in range(3):
        write(world.root / "orders" / f"{n}.jsonl", lines(n) + f"bad {n}\n")
        finish(world)
    gone(world)
    write(world.root / "orders" / "3.jsonl", "bad 3\n")
    finish(world, lambda world: make(world, "late"))
    flow = make(world, "late")
    assert [(row["_epoch"], row["raw"]) for row in rows(flow, "late")] == [(n, f"bad {n}".encode()) for n in range(4)]
    assert rows(flow, "late") == rows(flow, "bad")


def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs that the source is asked for from now on."""
    found: list[int] = []
    original = tg.FileSource.plan

    def plan(self: tg.FileSource, slices: Sequence[Slice], bound: Bound) -> Any:
        found.extend(piece.epoch for piece in slices)
        return original(self, slices, bound)

    monkeypatch.setattr(tg.FileSource, "plan", plan)
    return found


def test_the_source_is_asked_for_nothing_that_the_table_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = lived(tmp_path, forgotten=False)
    asked = planned(monkeypatch)
    live(world, with_late, PAST)
    assert set(asked) == {PAST}
    same(world, with_late)


def test_only_the_steps_that_are_left_are_taken(tmp_path: Path) -> None:
    world = lived(tmp_path, flow_of(kept="n > 4"))
    make = flow_of("late", kept="n > 4", condition="n < 9")
    live(world, make, PAST, PAST + 1)
    assert [(row["n"], row["_epoch"]) for row in rows(make(world), "late")] == [(n, n) for n in range(5, 9)]


def test_several_outputs_read_the_table_together(world: World) -> None:
    three = flow_of("late", "later", "latest")
    run = begin(world, three)
    run.catch_up()
    read = run.runner.board.sources["orders"].records
    run.abandon()
    assert read == PAST
    for name in ("late", "later", "latest"):
        assert rows(three(world), name) == rows(three(world), "a")


@pytest.mark.parametrize(
    ("sink", "step"),
    [
        (tg.ParquetSink, 11),
        pytest.param(tg.ParquetSink, 1, marks=pytest.mark.long),
        pytest.param(tg.DeltaSink, 1, marks=pytest.mark.long),
    ],
)
def test_a2_x1_a_crash_anywhere_repeats_at_most_one_unit(world: World, sink: Any, step: int) -> None:
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
        finish(world, make)
        assert world.points.count("before stage") <= PAST + 1, world.points
        assert rows(make(world), name) == rows(make(world), "a")
        assert world.loaded().backfills == {}
        if not crashed:
            return


def test_a3_a6_a_unit_is_made_of_whole_epochs_and_their_number_does_not_matter(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1 << 30)
    monkeypatch.setattr(portion, "LATE_SLICES", 5)
    run = begin(world, with_late)
    world.points.clear()
    run.catch_up()
    run.abandon()
    assert world.points.count("before stage") == 1
    same(world, with_late)


def data_files(world: World, name: str) -> list[Path]:
    loaded = world.loaded()
    table = with_late(world).spec.outputs[name].sink.open(OutputId("shop", name, loaded.flow.incarnation))
    return [Path(uri) for uri in table.uris(table.files())]


@pytest.mark.parametrize("damage", ["removed", "cut", "overwritten"])
def test_a7_epochs_that_the_table_lacks_fail_the_output_alone_and_it_goes_on_once_they_are_back(
    world: World, damage: str
) -> None:
    path = data_files(world, "a")[7]
    whole = path.read_bytes()
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"x" * len(whole))
    run = begin(world, with_late)
    add(world, PAST)
    run.catch_up()
    assert states(run.runner.board.outputs.values()) == {"a": "live", "late": "failed"}
    assert states(run.runner.board.sources.values()) == {"orders": "running"}
    run.abandon()
    [late] = [one for one in tg.status(with_late(world)).outputs if one.name == "late"]
    assert isinstance(late.error, PastUnreadable)
    assert str(path) in late.error.summary
    path.write_bytes(whole)
    finish(world, with_late)
    same(world, with_late)


def test_a7_a_damaged_table_is_no_failure_of_the_source_though_nobody_is_ahead(tmp_path: Path) -> None:
    """The output whose table it is has failed itself."""

    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        if PAST in batch["n"].to_pylist():
            raise ValueError("it is not wanted")
        return batch

    def make(world: World, *late: str) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders").map_batches(refuse)
        flow.sink("a", orders, tg.DeltaSink(str(world.root / "lake" / "a")))
        for name in late:
            flow.sink(name, orders, tg.ParquetSink(str(world.root / "lake" / name)), start=tg.From("a"))
        return flow

    world = lived(tmp_path, make)
    data_files(world, "a")[7].unlink()
    add(world, PAST)
    tg.limit(make(world), 0)
    run = begin(world, lambda world: make(world, "late"))
    for _ in range(40):
        run.step()
    assert states(run.runner.board.outputs.values()) == {"a": "failed", "late": "paused"}
    tg.limit(run.flow, 1_000)
    add(world, PAST + 1)  # the driver hears of the rate when it binds something
    for _ in range(40):
        run.step()
    assert states(run.runner.board.outputs.values()) == {"a": "failed", "late": "failed"}
    assert states(run.runner.board.sources.values())["orders"] != "failed"
    run.abandon()
    assert world.loaded().sources["orders"].failure is None


def test_a8_what_the_table_does_not_hold_yet_comes_from_the_source(world: World) -> None:
    """The table's disk is full for a while, so it is behind the timeline."""
    run = begin(world, with_late)
    world.faults.extend([True] * 3)
    add(world, PAST)
    run.step()
    run.step(60.0)
    run.step(60.0)
    run.catch_up()
    run.abandon()
    same(world, with_late)
    assert numbers(with_late(world), "late") == list(range(PAST + 1))


def branching(*late: str, **how: Any) -> Callable[[World], tg.Dataflow]:
    """A table with all of the source, one, `a`, that may begin elsewhere, and more that go on from that one."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("all", orders, tg.ParquetSink(str(world.root / "lake" / "all")))
        if how:
            flow.sink("a", orders, tg.DeltaSink(str(world.root / "lake" / "a")), **how)
        for name in late:
            flow.sink(name, orders, tg.ParquetSink(str(world.root / "lake" / name)), start=tg.From("a"))
        return flow

    return make


@pytest.mark.parametrize(("begins", "first"), [(7, 7), ("now", 9)])
def test_it_begins_where_the_other_one_does(tmp_path: Path, begins: Any, first: int) -> None:
    world = World(tmp_path, branching())
    live(world, branching(), *range(9))
    live(world, branching(start=begins), 9, 10)
    gone(world)
    make = branching("late", start=begins)
    live(world, make, 11)
    assert numbers(make(world), "late") == numbers(make(world), "a") == list(range(first, 12))
    assert world.loaded().outputs["late"].start == world.loaded().outputs["a"].start


def test_of_a_table_whose_past_is_one_epoch_no_other_can_be_told(tmp_path: Path) -> None:
    world = World(tmp_path, branching())
    live(world, branching(), *range(PAST))
    live(world, branching(timestamps="collapse"), PAST)
    with pytest.raises(PastNotThere, match=r"TG-0235.*up to 11 are one"):
        begin(world, branching("late", timestamps="collapse"))


def test_two_that_begin_together_settle_it_once(tmp_path: Path) -> None:
    world = World(tmp_path, branching())
    live(world, branching(), *range(3))
    make = branching("late", start="now")
    live(world, make, 3, 4)
    assert numbers(make(world), "late") == numbers(make(world), "a") == [3, 4]


def test_without_it_the_table_goes_on_as_any_other(world: World) -> None:
    live(world, with_late, PAST)
    live(world, flow_of("late", start=None), PAST + 1)
    same(world, with_late)


def test_in_a_compacted_flow_the_past_is_of_the_first_epoch_that_is_left(world: World) -> None:
    assert tg.compact(alone(world), before=4).since == 4
    live(world, with_late, PAST)
    expected = [(max(row["_epoch"], 4), row["n"]) for row in rows(alone(world), "a")]
    assert [(row["_epoch"], row["n"]) for row in rows(with_late(world), "late")] == expected


def test_its_past_may_have_one_epoch(world: World) -> None:
    make = flow_of("late", timestamps="collapse")
    live(world, make, PAST)
    assert [(r["_epoch"], r["n"]) for r in rows(make(world), "late")] == [
        (max(n, PAST - 1), n) for n in range(PAST + 1)
    ]


def test_a_repair_reads_it_there_again(world: World) -> None:
    live(world, with_late, PAST)
    expected = rows(with_late(world), "late")
    data_files(world, "late")[3].unlink()
    gone(world, PAST)
    done = tg.repair(with_late(world), "late", engine="local")
    assert done.rows
    assert rows(with_late(world), "late") == expected


def test_a_table_that_is_away_is_waited_for(world: World) -> None:
    lake = world.root / "lake" / "a"
    half(world, with_late)
    lake.rename(world.root / "unmounted")
    run = begin(world, with_late)
    add(world, PAST)
    for _ in range(10):
        run.step()
    assert states(run.runner.board.outputs.values()) == {"a": "stalled", "late": "backfilling"}
    (world.root / "unmounted").rename(lake)
    run.step(60.0)
    run.catch_up()
    run.abandon()
    same(world, with_late)


def half(world: World, make: Callable[[World], tg.Dataflow]) -> None:
    """A life that dies when some of the past is staged."""
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, make).catch_up()
    world.clock.seconds += EXPIRY + 1


def test_units_are_kept_where_only_where_they_come_from_is_another(tmp_path: Path) -> None:
    world = lived(tmp_path, forgotten=False)
    half(world, with_late)
    world.points.clear()
    finish(world, flow_of("late", start=None))
    assert world.points.count("before stage") == PAST - 1
    same(world, with_late)


def test_a_table_that_is_rebuilt_meanwhile_does_not_mix_its_rows(tmp_path: Path) -> None:
    world = lived(tmp_path, forgotten=False)
    half(world, with_late)
    tg.rebuild(with_late(world), "a", env=world.env())
    world.points.clear()
    finish(world, with_late)
    same(world, with_late)
    assert numbers(with_late(world), "late") == list(range(PAST))
    assert world.points.count("before stage") == PAST, "both are staged from the source, from its beginning"


def test_dropping_the_other_output_leaves_the_rest_to_the_source(tmp_path: Path) -> None:
    world = lived(tmp_path, forgotten=False)
    world.lag = 4
    run = begin(world, with_late)
    run.step()
    tg.drop(with_late(world), "a", env=world.env())
    run.catch_up()
    run.abandon()
    assert numbers(with_late(world), "late") == list(range(PAST))


def test_a_run_that_is_told_to_stop_leaves_no_hole(world: World) -> None:
    world.lag = 4
    run = begin(world, with_late)
    run.step()
    run.runner.stop()
    for _ in range(30):
        run.step()
    assert run.runner.ended(None) is not None
    run.abandon()
    finish(world, with_late)
    same(world, with_late)


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda flow, orders, other, sink: flow.sink("x", orders, sink, start=tg.From("b")), "no such output"),
        (lambda flow, orders, other, sink: flow.sink("x", other, sink, start=tg.From("a")), "written from 'orders'"),
        (lambda flow, orders, other, sink: flow.sink("x", orders.errors, sink, start=tg.From("a")), "orders.errors"),
        (lambda flow, orders, other, sink: flow.sink("x", orders, sink, start=tg.From("dear")), "not the first ones"),
    ],
)
def test_what_is_no_past_of_the_stream_is_refused_when_it_is_declared(
    tmp_path: Path, declare: Callable[..., None], why: str
) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db")
    orders = flow.source("orders", tg.GeneratorSource(10, columns="n long"))
    other = flow.source("other", tg.GeneratorSource(10, columns="n long"))
    flow.sink("a", orders, tg.ParquetSink(str(tmp_path / "a")))
    flow.sink("dear", orders.filter("n > 1"), tg.ParquetSink(str(tmp_path / "dear")))
    with pytest.raises(PastNotThere, match=why):
        declare(flow, orders, other, tg.ParquetSink(str(tmp_path / "x")))
    assert "x" not in flow.outputs


@pytest.mark.parametrize("name", ["", None, 3])
def test_what_names_no_output_is_refused(name: Any) -> None:
    with pytest.raises(InvalidArgument):
        tg.From(name)


DEATHS = st.lists(st.sampled_from([*POINTS, "before record unit", *8 * ["after record unit"]]), max_size=4)


@settings(max_examples=8, deadline=None)
@given(
    before=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    after=st.lists(st.integers(0, 3), max_size=3),
    lives=DEATHS,
    base=st.sampled_from(TABLES),
    sink=st.sampled_from(TABLES),
)
def test_s30_a_late_table_is_one_from_the_start_wherever_its_past_comes_from(
    before: list[int], after: list[int], lives: list[str], base: Any, sink: Any
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setitem(portion.JOB_LIMITS, "bytes", 1)
        make = flow_of("late", base=base, sink=sink)
        world, count = World(Path(folder), flow_of(base=base)), itertools.count()
        run = begin(world)
        for number, size in enumerate(before):
            write(world.root / "orders" / f"{number}.jsonl", lines(*itertools.islice(count, size)))
            run.catch_up()
        run.abandon()
        for number in range(len(before)):
            (world.root / "orders" / f"{number}.jsonl").unlink()
        for number, (life, size) in enumerate(itertools.zip_longest(lives, after), start=len(before)):
            write(world.root / "orders" / f"{number}.jsonl", lines(*itertools.islice(count, size or 0)))
            world.strike = life or ""
            try:
                run = begin(world, make)
                run.catch_up()
                run.abandon()
            except Crash:
                world.clock.seconds += EXPIRY + 1
        world.strike = ""
        finish(world, make)
        if next(count):
            same(world, make)
            for epoch in range(world.loaded().flow.published):
                assert rows(make(world), "late", as_of=epoch) == rows(make(world), "a", as_of=epoch)


@pytest.mark.spark
def test_on_spark_whatever_steps_are_left(tmp_path: Path) -> None:
    world = lived(tmp_path)

    def make(world: World) -> tg.Dataflow:
        flow = alone(world)
        orders = tg.RowStream(flow, "orders").filter("n >= 0")
        made = {
            "same": orders,
            "frames": orders.transform(lambda frame: frame.filter("n % 3 = 0")),
            "sql": orders.filter("n % 3 = 0").select("n", "upper(text) AS text"),
            "batches": orders.map_batches(lambda batch: batch),
        }
        for name, stream in made.items():
            flow.sink(name, stream, tg.DeltaSink(str(world.root / "lake" / name)), start=tg.From("a"))
        return flow

    add(world, PAST)
    engine = tg.SparkEngine(master="local[1]")
    try:
        make(world).run(until="caught-up", engine=engine)
    finally:
        engine.close()
    for name, wanted in {"same": 1, "batches": 1, "frames": 3, "sql": 3}.items():
        found = [(row["_epoch"], row["n"]) for row in rows(make(world), name)]
        assert found == [(n, n) for n in range(PAST + 1) if n % wanted == 0]
    assert {row["text"] for row in rows(make(world), "sql")} == {f"T{n}" for n in range(0, PAST + 1, 3)}


@pytest.mark.long
@pytest.mark.spark
def test_on_spark_a_row_that_an_expression_cannot_take_fails_the_output_alone(tmp_path: Path) -> None:
    world = lived(tmp_path)

    def make(world: World) -> tg.Dataflow:
        flow = alone(world)
        orders = tg.RowStream(flow, "orders").filter("n >= 0")
        table = tg.ParquetSink(str(world.root / "lake" / "late"))
        flow.sink("late", orders.select("n", "100 div (n - 7) AS part"), table, start=tg.From("a"))
        return flow

    engine = tg.SparkEngine(master="local[1]")
    try:
        with pytest.raises(ExpressionFailed) as failed:
            make(world).run(until="caught-up", engine=engine)
    finally:
        engine.close()
    assert failed.value.evidence["output"] == "late"
    assert states(tg.status(make(world)).sources) == {"orders": "idle"}
    assert numbers(make(world), "a") == list(range(PAST))
