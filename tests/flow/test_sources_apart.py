"""A source that cannot be read holds up its own outputs and nobody else's, and goes on by itself when it can be."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.flow.badinput import numbers
from tests.flow.by_hand import Run, World
from tests.flow.upstream import Piece, Topic
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.cli.run import LiveBoard
from tidegauge.engine.parts import TINY
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.engine import JobFailed, ReadFailed
from tidegauge.errors.kafka import BrokerUnreachable
from tidegauge.errors.running import JobGaveUp
from tidegauge.flow.runner import Runner
from tidegauge.job.groups import Apart, Group, Groups, needs
from tidegauge.remap.binding import Bound, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.protocol import OnBadRecord, Split

PATIENT = BrokerUnreachable(servers="a:9092", detail="down")
IMPATIENT = ReadFailed(source="a", place="p0", detail="timed out")


@dataclass
class Shore:
    """An upstream whose probes always answer. error: what who plans or reads it meets. tide: it answers once set."""

    topic: Topic
    error: TidegaugeError | OSError | None = None
    at: str = "read"
    tide: threading.Event | None = None
    asked: list[str] = field(default_factory=list)

    def meet(self, place: str) -> None:
        if place == self.at:
            self.asked.append(place)
            if self.tide is not None:
                self.tide.wait(30)
            if self.error is not None:
                raise self.error


@dataclass(frozen=True)
class Far(Topic):
    """A topic on such a shore."""

    shore: Shore | None = None

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        assert self.shore is not None
        self.shore.meet("plan")
        return [Piece(s.epoch, s.partition, s.lower, s.upper, weight=TINY) for s in slices]  # a task for each

    def read(self, split: Piece, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        assert self.shore is not None
        yield from super().read(split, on_bad_record)
        if split.partition == "p1":  # what is staged of the other one is complete
            self.shore.meet("read")

    def acknowledge(self, frontier: Frontier) -> None:
        assert self.shore is not None
        self.shore.meet("acknowledge")


class Coast:
    """Two topics, `a` on a shore, into three tables: `a`, `a2`, `b`."""

    def __init__(self, root: Path) -> None:
        self.topics = {name: Topic(root / name) for name in ("a", "b")}
        for name, topic in self.topics.items():
            topic.create(name)
        self.shore = Shore(self.topics["a"])
        self.world = World(root, self.flow)
        self.count = 0

    def flow(self, world: World) -> tg.Dataflow:
        made = tg.Dataflow("coast", store=world.store, tick=0.5)
        a = made.source("a", Far(self.topics["a"].folder, shore=self.shore))
        made.sink("a", a, tg.ParquetSink(str(world.root / "lake" / "a")))
        made.sink("a2", a, tg.ParquetSink(str(world.root / "lake" / "a2")))
        b = made.source("b", self.topics["b"])
        made.sink("b", b, tg.ParquetSink(str(world.root / "lake" / "b")))
        return made

    def write(self) -> None:
        """One number more in each partition."""
        for topic in self.topics.values():
            topic.write("p0", self.count)
            topic.write("p1", self.count + 1)
        self.count += 2

    def tick(self, run: Run, seconds: float = 1.0) -> None:
        self.write()
        run.step(seconds)

    def found(self, output: str) -> list[int]:
        return numbers(self.flow(self.world), output)

    def staged(self) -> list[str]:
        """Files that are staged and committed nowhere."""
        return [path.name for path in (self.world.root / "lake").glob("*/_staged/**/*.parquet")]


def uppers(run: Run) -> dict[str, int]:
    return {name: output.upper for name, output in run.runner.board.outputs.items()}


@pytest.fixture
def coast(tmp_path: Path) -> Coast:
    return Coast(tmp_path)


@pytest.mark.parametrize(("at", "error", "lag"), [("read", PATIENT, 0), ("read", PATIENT, 3), ("plan", OSError(), 0)])
def test_the_outputs_of_other_sources_go_on(
    at: str, error: TidegaugeError, lag: int, coast: Coast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.remap.operator.AHEAD", 3)
    coast.world.lag = lag
    run = coast.world.start()
    for _ in range(4):
        coast.tick(run)
    held, board = uppers(run)["a"], run.runner.board
    assert held > 1
    coast.shore.error, coast.shore.at = error, at
    coast.shore.asked.clear()
    for _ in range(5):
        coast.tick(run)
    stood = uppers(run)
    assert stood["a"] == stood["a2"] <= held + 1
    assert stood["b"] >= held + 4
    assert board.published == stood["a"], "tables agree on what is published"
    assert {s.epoch for s in board.timeline.tables["a"].slices(0, board.upper)} <= set(range(stood["a"] + 3))
    assert (board.sources["a"].state, board.outputs["a"].state, board.outputs["a2"].state) == ("stalled",) * 3
    assert (board.sources["b"].state, board.outputs["b"].state) == ("running", "live")
    assert board.sources["a"].error is not None
    tried = len(coast.shore.asked)
    assert 3 <= tried <= 6, "after 0.2, 0.4, 0.8, 1.6 seconds"
    assert board.sources["a"].attempt == board.outputs["a"].attempt in (tried, tried - 1)
    coast.shore.error = None
    run.catch_up()
    assert {s.state for s in board.sources.values()} == {"running"}
    assert {o.state for o in board.outputs.values()} == {"live"}
    assert [(s.error, s.attempt, s.since) for s in board.sources.values()] == [(None, 0, None)] * 2
    assert coast.found("a") == coast.found("a2") == coast.found("b") == list(range(coast.count))
    read = coast.world.points.count("before stage")
    coast.write()
    run.catch_up()
    assert coast.world.points.count("before stage") == read + 1, "one job for all again"
    run.abandon()
    assert coast.staged() == [], "what was staged in vain is gone"


def test_a_source_that_is_tried_again_takes_long_to_say_no_and_holds_up_nobody(coast: Coast) -> None:
    """With threads: one to read in, which the source that is away must not keep."""
    coast.shore.error, coast.shore.tide = PATIENT, threading.Event()
    coast.shore.tide.set()
    coast.write()
    engine = tg.LocalEngine(threads=1)
    pool = ThreadPoolExecutor(5)
    runner = Runner(coast.flow(coast.world).spec, engine, env=tg.Env(), spawn=pool.submit)
    board = runner.board

    def until(condition: object, *, write: bool = False) -> None:
        def met() -> bool:
            if write:
                coast.write()
            runner.step(park=0.01)
            return bool(condition())  # type: ignore[operator]

        eventually(met)

    try:
        until(lambda: board.sources["a"].state == "stalled")
        coast.shore.tide.clear()
        tried = len(coast.shore.asked)
        until(lambda: len(coast.shore.asked) > tried)  # it hangs from here on
        upper = board.outputs["b"].upper
        until(lambda: board.outputs["b"].upper >= upper + 2, write=True)
        assert len(coast.shore.asked) == tried + 1
        assert board.outputs["a"].upper == 0
        coast.shore.error = None
        coast.shore.tide.set()
        until(lambda: board.published >= upper + 2)
    finally:
        coast.shore.tide.set()
        runner.close()
        engine.close()
        pool.shutdown()
    assert coast.found("a") == coast.found("b")


@pytest.mark.parametrize("ends", [True, False], ids=["answers", "never answers"])
def test_an_upstream_that_is_slow_to_take_an_acknowledgement_holds_up_nobody(
    ends: bool, coast: Coast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.flow.runner.LAST_WORDS", 60.0 if ends else 0.5)
    shore = coast.shore
    shore.at, shore.tide = "acknowledge", threading.Event()
    coast.write()
    pool = ThreadPoolExecutor(7)
    runner = Runner(coast.flow(coast.world).spec, tg.LocalEngine(threads=1), env=tg.Env(), spawn=pool.submit)
    board = runner.board
    writes = iter(range(1_000))

    def met() -> bool:
        if len(shore.asked) == 1 and next(writes) % 10 == 0:
            coast.write()
        if board.upper and board.published >= 4:
            runner.stop()
        runner.step(park=0.01)
        return runner.stopping

    try:
        eventually(met)
        assert len(shore.asked) == 1, "one at a time, and the flow went on"
        if ends:
            shore.tide.set()
        assert runner.run(None).why == "stopped"
        assert len(shore.asked) == (2 if ends else 1), "what was published meanwhile is told once"
    finally:
        shore.tide.set()
        runner.close()
        pool.shutdown()
    assert coast.found("a") == coast.found("b")


def test_each_source_has_attempts_of_its_own_and_the_flow_stops_when_they_are_used_up(coast: Coast) -> None:
    run = coast.world.start()
    coast.shore.error = IMPATIENT

    def go_on() -> None:
        for _ in range(40):
            coast.tick(run)

    with pytest.raises(JobGaveUp, match="failed 6 times; the last time: TG-0504"):
        go_on()
    assert uppers(run)["b"] > 5
    run.abandon()
    coast.shore.error = None
    coast.world.clock.seconds += 60
    run = coast.world.start()
    run.catch_up()
    run.abandon()
    assert coast.found("a") == coast.found("b") == list(range(coast.count))


def test_what_is_waited_out_uses_up_no_attempt(coast: Coast) -> None:
    run = coast.world.start()
    for error in [PATIENT] * 8 + [IMPATIENT] * 5 + [PATIENT] * 2:
        coast.shore.error = error
        asked = len(coast.shore.asked)
        while len(coast.shore.asked) == asked:
            run.step(31) if run.runner.board.upper else coast.tick(run)
    coast.shore.error = None
    run.catch_up()
    run.abandon()
    assert coast.found("a") == coast.found("b")


def test_a_run_that_is_stopped_does_not_wait_for_a_source_that_rests(coast: Coast) -> None:
    run = coast.world.start()
    coast.shore.error = PATIENT
    for _ in range(8):
        coast.tick(run)
    bound = run.runner.board.upper
    run.runner.stop()
    for _ in range(2):
        run.step(0.01)
    assert run.runner.ended(None) == "stopped"
    run.abandon()
    coast.shore.error = None
    run = coast.world.start()
    assert run.runner.board.upper == bound
    run.catch_up()
    run.abandon()
    assert coast.found("a") == coast.found("a2") == coast.found("b") == list(range(coast.count))


def test_a_batch_run_has_not_caught_up_while_what_is_bound_is_unread(coast: Coast) -> None:
    coast.write()
    run = coast.world.start()
    coast.shore.error, coast.shore.at = PATIENT, "plan"
    for _ in range(20):
        run.step(1)
    assert run.runner.board.reached is not None
    assert run.runner.ended("caught-up") is None
    LiveBoard(Console(file=(said := io.StringIO()), width=200), ends=True)(run.runner.board)
    assert "not caught up: waiting for a, which cannot be read" in said.getvalue()
    coast.shore.error = None
    run.catch_up()
    run.abandon()
    assert coast.found("a") == [0, 1]


# The decisions.

SOURCES = ("a", "b", "c")
OUTPUTS = {f"{source}{n}": source for source in SOURCES for n in (1, 2)}
GROUPS = (None, *map(Apart, SOURCES), *(Apart(source, output) for output, source in OUTPUTS.items()))
GROUP = st.sampled_from(GROUPS)


@given(
    events=st.lists(st.tuples(GROUP, st.sampled_from(["failed", "passed", "joined"])), max_size=20),
    uppers=st.fixed_dictionaries({output: st.integers(0, 6) for output in OUTPUTS}),
    busy=st.sets(GROUP),
)
def test_an_output_is_in_one_group_and_only_who_is_level_joins_the_others(
    events: list[tuple[Group, str]], uppers: dict[str, int], busy: set[Group]
) -> None:
    groups, now, a = Groups(), 0.0, Apart("a")
    error = JobFailed(first=0, last=0, detail="")
    for group, event in [*events, (a, "failed"), (a, "passed"), (None, "joined")]:
        now += 1
        before = groups
        if event == "failed":
            groups = groups.failed(group, error, now=now)
            assert groups.rests(group, now=now) > 0
            assert groups.trouble(group).attempt == before.trouble(group).attempt + 1
        elif event == "passed":
            groups = groups.passed(group)
        else:
            groups = groups.joined(uppers, OUTPUTS, busy=busy)
            foremost = min((u for o, u in uppers.items() if before.group(o, OUTPUTS[o]) is None), default=0)
            for output, source in OUTPUTS.items():
                was = before.group(output, source)
                if was is not None and groups.group(output, source) is None:
                    assert was not in busy
                    assert before.trouble(was).attempt == 0
                    assert uppers[output] >= foremost
        for other in {*GROUPS} - {group}:
            assert event == "joined" or groups.trouble(other) == before.trouble(other), "each for itself"
    found = needs(groups, uppers, OUTPUTS, limits={}, sealed=7)
    wanted = [output for need in found.values() for output in need.outputs]
    assert len(wanted) == len(set(wanted))
    for group, need in found.items():
        assert {groups.group(output, OUTPUTS[output]) for output in need.outputs} == {group}
        rest = [uppers[o] for o in uppers if groups.group(o, OUTPUTS[o]) == group]
        assert need.lower == min(rest), "nobody waits for another group"
    assert {groups.group(output, source) for output, source in OUTPUTS.items()} == found.keys()
