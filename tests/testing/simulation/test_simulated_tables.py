"""A simulated table: what a hook raises or lets happen at each call never leaves half of anything behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegauge.errors.command import OutputIsBehind
from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.looking.view import View
from tidegauge.sinks import DeltaSink, KafkaSink, OutputId, ParquetSink, Sink
from tidegauge.sinks.protocol import Applying, Recoverable, Standing, Sweeping
from tidegauge.testing.kit import check_sink
from tidegauge.testing.simulation.tables import POINTS, Lake, SimulatedSink, applied, counterpart_of

SCHEMA = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
OUTPUT = OutputId("shop", "orders", "a" * 32)


class Crash(BaseException):
    """A driver that is no more."""


class World:
    """A lake, and one driver's way to it. at: what the hook does at a point, the next time only."""

    def __init__(self) -> None:
        self.lake = Lake()
        self.at: dict[str, Callable[[], object]] = {}
        self.seen: list[str] = []
        self.sink = SimulatedSink(self.lake, "orders", self.meet)
        self.jobs = 0

    def meet(self, point: str) -> None:
        self.seen.append(point)
        self.at.pop(point, lambda: None)()

    def stage(self, epochs: Iterable[int]) -> Any:
        self.jobs += 1
        stager = self.sink.stage(SCHEMA, job=f"{'a' * 16}{self.jobs:016d}", task=0)
        rows = [(f"job {self.jobs}", epoch) for epoch in epochs]
        stager.write(pa.RecordBatch.from_pylist([{"user": u, "_epoch": e} for u, e in rows], schema=SCHEMA))
        return stager.close()

    def commit(self, table: Any, lower: int, upper: int, files: Any = None, *, write: str = "w") -> None:
        staged = self.stage(range(lower, upper)) if files is None else files
        table.commit(lower, upper, SCHEMA, staged, write=write)

    def epochs(self) -> list[int]:
        found: list[int] = self.lake.rows("orders").column("_epoch").to_pylist()
        return found


@pytest.fixture
def world() -> World:
    return World()


def failing(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def checked_by_the_type_checkers(sink: SimulatedSink) -> Sink:
    """The seam in full, table and stager included."""
    return sink


def test_it_is_all_that_our_own_tables_are(world: World) -> None:
    table = world.sink.open(OUTPUT)
    assert isinstance(world.sink, Sink)
    assert isinstance(world.sink, Recoverable)
    assert isinstance(world.sink, Applying)
    assert isinstance(table, Sweeping)
    assert isinstance(table, Standing)
    assert not world.sink.applies
    assert SimulatedSink(world.lake, "orders", applies=True).applies
    world.commit(table, 0, 1)
    assert world.sink.incarnation("shop", "orders") == OUTPUT.incarnation
    assert world.sink.incarnation("shop", "clicks") is None


@pytest.mark.parametrize("point", [p for p in POINTS if p not in ("open", "sweep", "stand", "abort", "discard")])
@pytest.mark.parametrize("error", [Crash(), OSError("away")])
def test_whatever_happens_at_a_point_the_commit_is_there_in_whole_or_not_at_all(
    world: World, point: str, error: BaseException
) -> None:
    table = world.sink.open(OUTPUT)
    world.commit(table, 0, 2)
    world.at[point] = failing(error)
    seen_through = point == "committed" and isinstance(error, OSError)
    if seen_through:
        world.commit(table, 2, 4, write="w2")
    else:
        with pytest.raises(type(error)):
            world.commit(table, 2, 4, write="w2")
    made = point in ("committed", "answer")
    assert world.epochs() == ([0, 1, 2, 3] if made else [0, 1])
    later = world.sink.open(OUTPUT)
    assert later.upper == (4 if made else 2)
    later.sweep(lambda: None)
    assert world.lake.tables["orders"].staged == {}
    world.commit(later, later.upper, 5, write="w3")
    assert sorted(world.epochs()) == [0, 1, 2, 3, 4]


def test_an_attempt_that_did_not_hear_of_its_commit_finds_it_by_being_refused(world: World) -> None:
    table = world.sink.open(OUTPUT)
    files = world.stage([0])
    world.at["answer"] = failing(OSError("no answer"))
    with pytest.raises(OSError, match="no answer"):
        world.commit(table, 0, 1, files)
    assert table.upper == 0
    with pytest.raises(TableUpperMismatch):
        world.commit(table, 0, 1, files)
    assert (table.upper, world.epochs()) == (1, [0])


def test_of_two_drivers_the_one_that_slept_before_its_commit_is_refused(world: World) -> None:
    sleeper, other = world.sink.open(OUTPUT), world.sink.open(OUTPUT)
    files = world.stage([0])
    world.at["commit"] = lambda: world.commit(other, 0, 2, write="theirs")
    with pytest.raises(TableUpperMismatch):
        world.commit(sleeper, 0, 1, files)
    assert world.epochs() == [0, 1]


def test_a_commit_that_others_followed_before_its_answer_was_heard_is_seen_through(world: World) -> None:
    table, other = world.sink.open(OUTPUT), world.sink.open(OUTPUT)

    def others_go_on_and_the_answer_is_lost() -> None:
        world.commit(other, 1, 3, write="theirs")
        raise OSError("lost")

    world.at["committed"] = others_go_on_and_the_answer_is_lost
    world.commit(table, 0, 1)
    assert (table.upper, world.epochs()) == (3, [0, 1, 2])


def test_what_a_dead_task_has_begun_is_swept_by_its_flow_alone(world: World) -> None:
    world.at["close"] = failing(Crash())
    with pytest.raises(Crash):
        world.stage([0])
    [torn] = world.lake.tables["orders"].staged.values()
    assert torn is None
    stranger = world.sink.open(OutputId("shop", "orders", "b" * 32))
    stranger.sweep(failing(AssertionError("nothing here is its own")))
    lost = LookupError("the lease")
    with pytest.raises(LookupError):
        world.sink.open(OUTPUT).sweep(failing(lost))
    assert world.lake.tables["orders"].staged
    world.sink.open(OUTPUT).sweep(lambda: None)
    assert not world.lake.tables["orders"].staged


def test_a_driver_that_is_dead_tidies_nothing_up(world: World) -> None:
    stager = world.sink.stage(SCHEMA, job="1" * 32, task=0)
    stager.write(pa.RecordBatch.from_pylist([{"user": "ada", "_epoch": 0}], schema=SCHEMA))
    world.at = {"close": failing(Crash()), "abort": failing(Crash())}
    with pytest.raises(Crash):
        stager.close()
    with pytest.raises(Crash):
        stager.abort()
    assert list(world.lake.tables["orders"].staged.values()) == [None]
    stager.abort()
    assert not world.lake.tables["orders"].staged


def test_a_task_whose_file_was_swept_cannot_finish_it(world: World) -> None:
    world.at["close"] = lambda: world.sink.open(OUTPUT).sweep(lambda: None)
    with pytest.raises(FileNotFoundError):
        world.stage([0])


def test_attempts_at_one_task_have_a_file_each(world: World) -> None:
    batch = pa.RecordBatch.from_pylist([{"user": "ada", "_epoch": 0}], schema=SCHEMA)
    stagers = [world.sink.stage(SCHEMA, job="1" * 32, task=0) for _ in range(2)]
    for stager in stagers:
        stager.write(batch)
    [first], [second] = (stager.close() for stager in stagers)
    assert first.path != second.path
    stagers[0].abort()
    world.commit(world.sink.open(OUTPUT), 0, 1, [second])
    assert world.epochs() == [0]


def test_a_table_that_is_moved_away_is_missed_and_is_there_again_when_it_comes_back(world: World) -> None:
    table = world.sink.open(OUTPUT)
    world.commit(table, 0, 2)
    table.stand()
    away = world.lake.tables.pop("orders")
    with pytest.raises(TableUpperMismatch):
        table.stand()
    with pytest.raises(TableUpperMismatch):
        world.commit(table, 2, 3)
    assert world.sink.open(OUTPUT).upper == 0
    world.lake.tables["orders"] = away
    world.commit(world.sink.open(OUTPUT), 2, 3)
    assert world.epochs() == [0, 1, 2]


def test_looking_makes_no_table(world: World) -> None:
    table = world.sink.open(OUTPUT)
    table.sweep(lambda: None)
    table.discard([])
    assert (table.files(), table.volume().rows, table.schema, table.links()) == ([], 0, None, [])
    assert world.lake.tables == {}
    assert world.lake.rows("orders").num_rows == 0


def test_all_tables_are_read_at_one_epoch_or_not_at_all(world: World) -> None:
    clicks = SimulatedSink(world.lake, "clicks").open(OutputId("shop", "clicks", "a" * 32))
    world.commit(world.sink.open(OUTPUT), 0, 3)
    clicks.commit(0, 2, SCHEMA, [], write="1")
    assert {name: rows.num_rows for name, rows in world.lake.at(1).items()} == {"orders": 2, "clicks": 0}
    with pytest.raises(OutputIsBehind):
        world.lake.at(2)


def test_a_reader_that_was_told_which_files_to_read_sees_the_epochs_up_to_its_own(world: World) -> None:
    table = world.sink.open(OUTPUT)
    world.commit(table, 0, 2)
    view = View(1, table.uris(table.files(as_of=1)), SCHEMA)
    world.commit(table, 2, 3, write="w2")
    assert world.lake.read(view).column("_epoch").to_pylist() == [0, 1]
    assert world.lake.read(View(0, view.uris, SCHEMA)).num_rows == 1
    assert world.lake.read(View(0, [], SCHEMA)).num_rows == 0


def test_any_sink_has_a_counterpart_that_takes_the_rows_which_it_takes(world: World) -> None:
    upserts = KafkaSink("localhost:9092", topic="orders", key="user", envelope="upsert")
    appends = KafkaSink("localhost:9092", topic="orders")
    ours: list[Sink] = [DeltaSink("/lake/orders"), ParquetSink("/lake/orders"), appends, upserts]
    assert [counterpart_of(sink, world.lake, "orders").applies for sink in ours] == [False, False, False, True]
    table = counterpart_of(upserts, world.lake, "orders", world.meet).open(OUTPUT)
    columns = SCHEMA.append(pa.field("_op", pa.string()))
    for epoch, operation in enumerate(["insert", "update", "delete"]):
        rows = [{"user": "ada", "_epoch": epoch, "_op": operation}]
        rows += [{"user": "bob", "_epoch": epoch, "_op": "insert"}] if epoch == 0 else []
        stager = counterpart_of(upserts, world.lake, "orders").stage(columns, job=f"{epoch:032x}", task=0)
        stager.write(pa.RecordBatch.from_pylist(rows, schema=columns))
        table.commit(epoch, epoch + 1, columns, stager.close(), write=f"w{epoch}")
    assert applied(world.lake.rows("orders"), ["user"]) == {("bob",): {"user": "bob", "_epoch": 0}}
    assert applied(world.lake.rows("orders", 1), ["user"])[("ada",)] == {"user": "ada", "_epoch": 1}
    assert world.seen[0] == "open"


LAKES: dict[str, Lake] = {}


class KnownLake(Lake):
    """A lake that is itself wherever a sink on it is sent to."""

    def __init__(self, name: str) -> None:
        super().__init__()
        LAKES[name] = self
        self.name = name

    def __reduce__(self) -> Any:
        return known, (self.name,)


def known(name: str) -> Lake:
    return LAKES[name]


class LakeBench:
    """A table of a new lake."""

    def __init__(self, folder: Path) -> None:
        self.sink = SimulatedSink(KnownLake(str(folder)), "orders")

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.sink.lake.rows("orders").to_pylist()
        return found

    def remove(self) -> None:
        del self.sink.lake.tables["orders"]


def test_it_holds_every_law_of_the_kit_but_those_of_processes() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(60.0)  # a simulation has one thread; here nobody is interrupted in the middle of a commit
    try:
        report = check_sink(LakeBench, crashes=0)
    finally:
        sys.setswitchinterval(before)
    report.require()
    untried = {finding.name for finding in report.findings if finding.untried}
    processes = {"its identity is its place", "a crash leaves all or nothing"}
    assert untried == {*processes, "a layout changes no rows"}
