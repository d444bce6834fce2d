"""An output that cannot be opened is waited for, holds up nobody else, and is as if it had been there all along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flow.badinput import numbers
from tests.flow.by_hand import Run, World
from tests.flow.recorder import Recorder
from tests.flow.upstream import Topic

import tidegauge as tg
from tidegauge.errors.kafka import BrokerUnreachable
from tidegauge.errors.sinks import TableOfAnotherIncarnation
from tidegauge.remap.frontier import Frontier
from tidegauge.sinks import OutputId

DOWN = BrokerUnreachable(servers="a:9092", detail="down")
OUTPUTS = ("a", "a2", "b")


@dataclass
class Harbour:
    """Where tables are opened: those in `away` cannot be. asked: what was tried. hidden: until swept, they do not
    show the last epoch that they hold.
    """

    away: dict[str, Exception] = field(default_factory=dict)
    swept: dict[str, Exception] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)


class Moored:
    """A table that is swept only when its harbour lets it, and that may know only then all that it holds."""

    def __init__(self, table: Any, name: str, harbour: Harbour) -> None:
        self._table, self._name, self._harbour = table, name, harbour

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    @property
    def upper(self) -> int:
        return int(self._table.upper) - (self._name in self._harbour.hidden)

    def sweep(self, confirm: Callable[[], None]) -> None:
        self._harbour.hidden.discard(self._name)
        if (error := self._harbour.swept.get(self._name)) is not None:
            raise error
        self._table.sweep(confirm)


@dataclass(frozen=True)
class Berth(tg.ParquetSink):
    """A sink in such a harbour."""

    harbour: Harbour = field(default_factory=Harbour, compare=False)

    def open(self, output: OutputId) -> Any:
        self.harbour.asked.append(output.output)
        if (error := self.harbour.away.get(output.output)) is not None:
            raise error
        return Moored(tg.ParquetSink.open(self, output), output.output, self.harbour)


class Coast:
    """Two topics into three tables, `a` and `a2` of the one, `b` of the other."""

    def __init__(self, root: Path) -> None:
        self.topics = {name: Topic(root / name) for name in ("a", "b")}
        for name, topic in self.topics.items():
            topic.create(name)
        self.harbour = Harbour()
        self.world = World(root, self.flow)
        self.count = 0
        self.told: list[Frontier] = []

    def flow(self, world: World) -> tg.Dataflow:
        made = tg.Dataflow("coast", store=world.store, tick=0.5)
        for name, topic in self.topics.items():
            stream = made.source(name, Recorder(topic, self.told.append))
            for output in (name, "a2")[: 2 if name == "a" else 1]:
                made.sink(output, stream, Berth(str(world.root / "lake" / output), harbour=self.harbour))
        return made

    def write(self) -> None:
        for topic in self.topics.values():
            topic.write("p0", self.count)
        self.count += 1

    def tick(self, run: Run, times: int = 1) -> None:
        for _ in range(times):
            self.write()
            run.step(1.0)

    def found(self) -> list[list[int]]:
        return [numbers(self.flow(self.world), output) for output in OUTPUTS]


@pytest.fixture
def coast(tmp_path: Path) -> Coast:
    return Coast(tmp_path)


@pytest.mark.parametrize("at", ["away", "swept"])
@pytest.mark.parametrize("error", [DOWN, OSError("no such mount")])
def test_a_flow_begins_without_an_output_that_is_away_and_goes_on_with_it(
    at: str, error: Exception, coast: Coast
) -> None:
    run = coast.world.start()
    coast.tick(run, 2)
    run.catch_up()
    published = run.runner.board.published
    run.abandon()
    getattr(coast.harbour, at)["a2"] = error
    run = coast.world.start()
    coast.harbour.asked.clear()
    coast.tick(run, 6)
    board = run.runner.board
    assert (board.outputs["a2"].state, str(board.outputs["a2"].error)) == ("stalled", str(error))
    assert {board.outputs[name].upper for name in ("a", "b")} == {board.upper}
    assert board.upper > published
    assert all(frontier["p0"] <= 2 for frontier in coast.told), "nothing is acknowledged that it may lack"
    assert board.published == published, "tables agree on what is published"
    tried = coast.harbour.asked.count("a2")
    assert 2 <= tried <= 5, "after growing delays"
    assert {*coast.harbour.asked} == {"a2"}, "nobody else is opened again"
    assert board.outputs["a2"].attempt >= tried
    assert run.runner.ended("caught-up") is None
    getattr(coast.harbour, at).clear()
    run.catch_up()
    assert run.runner.board.published == run.runner.board.upper
    assert {output.state for output in run.runner.board.outputs.values()} == {"live"}
    assert coast.told[-1]["p0"] > 2
    assert coast.found() == [list(range(coast.count))] * 3
    run.abandon()


def test_what_a_sweep_finds_of_an_earlier_driver_is_not_staged_again(coast: Coast) -> None:
    run = coast.world.start()
    coast.tick(run, 3)
    run.catch_up()
    run.abandon()
    coast.harbour.hidden.update(OUTPUTS)
    staged = coast.world.points.count("before stage")
    run = coast.world.start()
    run.catch_up()
    run.abandon()
    assert coast.world.points.count("before stage") == staged
    assert coast.found() == [list(range(coast.count))] * 3


def test_a_flow_all_of_whose_outputs_are_away_binds_and_waits(coast: Coast) -> None:
    coast.harbour.away = dict.fromkeys(OUTPUTS, DOWN)
    run = coast.world.start()
    coast.tick(run, 3)
    assert run.runner.board.upper >= 2
    run.runner.stop()
    run.step()
    assert run.runner.ended(None) == "stopped"
    run.abandon()
    coast.harbour.away.clear()
    coast.world.start().catch_up()
    assert coast.found() == [list(range(coast.count))] * 3


def test_what_does_not_pass_by_itself_ends_the_run_at_once_and_later(coast: Coast) -> None:
    refusal = TableOfAnotherIncarnation(table="t", output="coast:a", incarnation="0" * 32)
    coast.harbour.away["a"] = refusal
    with pytest.raises(TableOfAnotherIncarnation):
        coast.world.start()
    coast.harbour.away["a"] = DOWN
    run = coast.world.start()
    coast.harbour.away["a"] = refusal
    with pytest.raises(TableOfAnotherIncarnation):
        coast.tick(run, 3)


@settings(max_examples=6)
@given(st.lists(st.tuples(st.sampled_from([*OUTPUTS, ""]), st.booleans()), max_size=8), st.integers(0, 3))
def test_whoever_is_away_when_each_table_has_each_record_once(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[str, bool]], lag: int
) -> None:
    coast = Coast(tmp_path_factory.mktemp("coast"))
    coast.world.lag = lag
    run = coast.world.start()
    for output, anew in story:
        if output in coast.harbour.away:
            del coast.harbour.away[output]
        elif output:
            coast.harbour.away[output] = DOWN
        coast.tick(run)
        if anew:
            run.abandon()
            run = coast.world.start()
    coast.harbour.away.clear()
    coast.write()
    run.catch_up()
    run.abandon()
    assert coast.found() == [list(range(coast.count))] * 3
