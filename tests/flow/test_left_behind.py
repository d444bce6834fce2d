"""An output of a push source that lacks what upstream has forgotten fails alone; the others go on without it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.flow.by_hand import Run, World
from tests.flow.taps import Tap, Well

import tidegauge as tg
from tidegauge.errors.command import BeforeStart, NotPublished
from tidegauge.errors.outputs import OutputLeftBehind
from tidegauge.errors.push import StartForgotten


@dataclass
class Grown(World):
    """A flow that has got an output since it ran first."""

    well: Well = field(default_factory=Well)
    late: bool = False
    start_at: str | None = None

    def write(self, many: int) -> None:
        known = len(self.well.records.get("p", ()))
        self.well.write("p", "", *range(known, known + many))


def make(world: World) -> tg.Dataflow:
    assert isinstance(world, Grown)
    flow = tg.Dataflow("spring", store=world.store, tick=0.5)
    feed = flow.source("feed", Tap(world.well))
    flow.sink("first", feed, tg.DeltaSink(str(world.root / "first")))
    if world.late:
        flow.sink("late", feed, tg.DeltaSink(str(world.root / "late")), start=world.start_at)
    return flow


def numbers(world: World, output: str) -> list[int]:
    try:
        return sorted(tg.read_arrow(make(world), output)["n"].to_pylist())
    except (NotPublished, BeforeStart):
        return []


def has(run: Run, output: str, count: int) -> bool:
    """Step until an output has so many rows, if it gets them."""
    for _ in range(40):
        run.step()
        if run.runner.board.outputs[output].state != "failed" and len(numbers(run.world, output)) == count:
            return True
    return False


@pytest.fixture
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    """A flow that had 5 records, of which upstream was told, and has another output since."""
    world = Grown(tmp_path_factory.mktemp("grown"), make)
    world.write(5)
    run = world.start()
    assert has(run, "first", 5)
    for _ in range(4):
        run.step()
    run.abandon()
    assert world.well.oldest == {"p": 5}
    world.late = True
    return world


def test_an_output_that_is_added_after_upstream_forgot_fails_alone(grown: Grown) -> None:
    grown.write(3)
    run = grown.start()
    assert has(run, "first", 8)
    late, source = run.runner.board.outputs["late"], run.runner.board.sources["feed"]
    assert (late.state, type(late.error), source.state) == ("failed", OutputLeftBehind, "running")
    assert late.error is not None
    assert "'late' lacks the epochs from 0 on" in str(late.error)
    assert "oldest record of partition 'p' is 5" in str(late.error)
    for _ in range(4):
        run.step()
    assert grown.well.oldest == {"p": 8}, "upstream keeps nothing for it"
    assert run.runner.board.published == run.runner.board.upper
    run.abandon()


def test_it_fails_again_in_the_next_run_which_brings_the_others_what_came_meanwhile(grown: Grown) -> None:
    for count in (8, 11):
        grown.write(3)
        run = grown.start()
        assert has(run, "first", count)
        assert run.runner.board.outputs["late"].state == "failed"
        run.abandon()


def test_a_run_until_caught_up_ends_with_its_error_and_the_others_have_all(grown: Grown) -> None:
    grown.write(3)
    with pytest.raises(OutputLeftBehind):
        make(grown).run(until="caught-up", engine=tg.LocalEngine(threads=1))
    assert numbers(grown, "first") == list(range(8))


def test_it_goes_on_once_it_begins_now(grown: Grown) -> None:
    run = grown.start()
    grown.write(3)
    assert has(run, "first", 8)
    run.abandon()
    grown.start_at = "now"
    run = grown.start()
    grown.write(2)
    assert has(run, "late", 2)
    assert has(run, "first", 10)
    assert (numbers(grown, "first"), numbers(grown, "late")) == (list(range(10)), [8, 9])
    run.abandon()


def test_outputs_that_all_lack_what_upstream_forgot_fail_with_their_source(grown: Grown) -> None:
    grown.late = False
    grown.well.oldest = {"p": 7}
    grown.write(5)
    run = grown.start()
    assert not has(run, "first", 10)
    source = run.runner.board.sources["feed"]
    assert (source.state, type(source.error)) == ("failed", StartForgotten)
    run.abandon()
