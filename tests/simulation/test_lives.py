"""Outputs are added, dropped, begun anew and made again while drivers run, and the laws of that can break."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.lives import FAULTS, make_flow
from tests.simulation.test_every_crash import lived, rows

from tidegauge.errors.simulation import SimulationFailed
from tidegauge.flow import replacing, runner
from tidegauge.remap.store import Decision, Decisions, ResumeOutput, Store
from tidegauge.testing import simulate
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.tables.lake import LakeTable
from tidegauge.testing.simulation.world import World


def told(world: World, *words: str) -> list[str]:
    """What came to pass, of which one of these words is part, in its order."""
    return [what for _at, _who, what in world.trace.events if any(word in what for word in words)]


def test_worlds_of_many_kinds_of_faults_hold() -> None:
    """In seed 42 an output was dropped, and went on with code that nobody had decided any more.

    In seed 5000008 an output whose source had failed no longer waited for the one that it comes after.
    """
    assert simulate(make_flow, seeds=(42, 7, 5000008), faults=FAULTS).seeds == 3


def test_a_table_that_is_to_get_rows_of_an_old_upstream_is_not_shown_without_them() -> None:
    """A reader saw none as of an epoch of a topic that was recreated since, while another table was to give them."""
    decided, back = ("decisions", "add", "anew", "remake"), ("restore", "rewind", "history", "recreate", "clock")
    faults = ("crash", "pause", "error", "lost", "stop", *decided, *back)
    assert simulate(make_flow, seeds=[6011], faults=faults).seeds == 1


def test_nor_while_the_other_output_is_dropped_and_its_table_is_left() -> None:
    """The next run takes that table on again, and so the rows come after all."""
    assert simulate(make_flow, seeds=[710703]).seeds == 1


def test_a_table_that_is_made_again_before_a_record_is_published_is_not_late() -> None:
    """So it waits for none of those that it comes after."""
    assert simulate(make_flow, seeds=[720353]).seeds == 1


def test_a_driver_takes_an_output_in_and_goes_on() -> None:
    world = lived("added")
    first, *_ = world.lives
    assert (first.over, first.without, first.error) == (True, frozenset(), None)
    assert {life.name for life in world.opened} == {first.name}
    assert world.opened.count(first) == 2


def test_a_driver_goes_over_to_the_code_that_a_table_is_made_again_by() -> None:
    world = lived("replaced")
    assert world.opened.count(world.lives[0]) == 2
    table = world.lake.tables["b"]
    assert (bool(table.edition), len(table.earlier) > 0, table.commits[0].lower) == (True, True, 0)
    assert 0 < len(rows(world)["b"]) < len(rows(lived("rebuilt"))["b"])


def test_a_table_that_is_made_again_while_nobody_runs_has_other_rows_at_once() -> None:
    world = lived("replaced while nobody runs")
    assert rows(world) == rows(lived("replaced"))


def test_what_is_taken_back_leaves_the_old_rows_and_later_ones_are_of_the_new_code() -> None:
    world = lived("replaced, and that taken back", more=(Act(3.0, "limit", "", 0), Act(5.4, "append", "orders", 9)))
    assert told(world, "relabelled") == ["b: relabelled"]
    assert not world.lake.tables["b"].earlier
    assert world.codes.plan("b", world.ledger.upper) != world.codes.plan("b", 0) == world.ground.spec.outputs["b"]


def test_a_driver_drops_an_output_with_its_table_and_takes_it_in_again() -> None:
    world = lived("dropped with its table, and made anew")
    seen = told(world, "b: removed", "dropped", "b: committed")
    assert seen.index("b: removed") < seen.index("dropped b") < len(seen) - 1
    assert world.opened.count(world.lives[0]) == 2, "nobody has stopped it"
    assert world.lake.tables["b"].commits[0].lower == 0
    assert rows(world) == rows(lived("paused"))


# What is wrong is found.


def test_rows_beside_the_old_ones_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def beside(self: LakeTable, commit: Any, columns: Any, edition: str) -> None:
        self.edition = self.made = edition
        self.commits.clear()
        self.append(commit, columns)

    monkeypatch.setattr(LakeTable, "renew", beside)
    with pytest.raises(SimulationFailed, match="an epoch has the rows that its bindings say"):
        lived("replaced")


def test_old_code_in_new_rows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "intended", lambda _plan, _found: True)
    monkeypatch.setattr("tidegauge.flow.deciding.intended", lambda _plan, _found: True)
    with pytest.raises(SimulationFailed, match="a table gets rows of other code where somebody said so"):
        lived("replaced")


def test_a_replacement_that_nobody_makes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegauge.flow.opening.replaced", lambda table, _found: table)
    with pytest.raises(SimulationFailed):
        lived("rebuilt")


def test_a_driver_that_does_not_hear_of_what_it_lacks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner.Runner, "_go_over", lambda _self: None)
    with pytest.raises(SimulationFailed):
        lived("added")


def test_an_output_that_does_not_wait_for_the_one_that_it_comes_after_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegauge.flow.board.waiting", lambda *_what, **_more: {})
    with pytest.raises(SimulationFailed, match="a late output waits for those that it comes after"):
        lived("late, in an order")


def test_a_pause_that_a_driver_takes_back_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = Store.decide

    def more(self: Store, flow: str, decision: Decision) -> Decisions:
        if decision == ResumeOutput("b", "add"):
            decide(self, flow, ResumeOutput("a"))
        return decide(self, flow, decision)

    monkeypatch.setattr(Store, "decide", more)
    with pytest.raises(SimulationFailed, match="a pause stands until somebody lifts it"):
        lived("added", more=(Act(2.1, "put off", "a", 40),))


def test_something_that_is_left_of_a_dropped_output_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegauge.remap.store.dropping.forget_codes", lambda *_what: None)
    with pytest.raises(SimulationFailed, match="a dropped output leaves nothing in the store"):
        lived("dropped, and added again")
