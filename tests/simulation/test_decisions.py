"""Somebody pauses, limits and drops outputs in a world, and the laws of that hold and can break."""

from __future__ import annotations

import pytest
from tests.simulation.reference import make_flow
from tests.simulation.test_faults import epochs, lived, notes

from tidegauge.errors.simulation import SimulationFailed
from tidegauge.flow.deciding import Deciding
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import STEERING, Act, Fault, Plan, checked_kinds, planned
from tidegauge.testing.simulation.world import World

LATE = (Act(0.0, "outputs", "large", 4),)


def test_an_output_that_is_put_off_gets_nothing_meanwhile_and_everything_later() -> None:
    world = lived(acts=(Act(0.9, "put off", "large", 3),))
    told = [(at, what) for at, _who, what in world.trace.events if what.endswith((": commit", "publish"))]
    meanwhile = [what for at, what in told if 1.5 < at < 3.5]
    assert "orders: commit" in meanwhile
    assert "before publish" in meanwhile
    assert "large: commit" not in meanwhile
    assert {*epochs(world, "large")} == {*epochs(world, "orders")}


def test_an_output_that_is_still_paused_in_the_end_goes_on_once_the_others_have_everything() -> None:
    world = lived(acts=(Act(0.9, "put off", "clicks", 40),))
    committed = [what for _who, what in notes(world) if what.endswith(": committed")]
    assert committed.index("clicks: committed") < len(committed) - 1
    assert committed[-1] == "clicks: committed"
    assert world.lake.rows("clicks").num_rows == 24


@pytest.mark.parametrize("rate", [0, 1])
def test_a_limit_makes_late_outputs_slow_and_changes_no_row(rate: int) -> None:
    world = lived(acts=(*LATE, Act(3.0, "limit", "", rate)), unit=2)
    [first, *_] = [at for at, _who, what in world.trace.events if what == "large: committed"]
    assert first > 5.0, "not before the limit is lifted"
    assert {*epochs(world, "large")} == {*epochs(world, "orders")}


@pytest.mark.parametrize("name", ["large", "clicks"])
def test_a_dropped_output_whose_table_is_removed_gets_its_past_at_once_and_the_others_go_on(name: str) -> None:
    world = lived(Fault("crash", "after record unit", 1), acts=(Act(3.6, "drop", name, 2),), unit=2)
    first, *_ = world.lake.tables[name].commits
    assert first.lower == 0
    assert len({*epochs(world, name)} & {*range(first.upper)}) >= 3
    others = [table for other, table in world.lake.tables.items() if other != name]
    assert all(table.commits[0].upper < first.upper for table in others)


def test_a_dropped_output_whose_table_stays_goes_on_from_what_that_holds() -> None:
    world = lived(acts=(Act(2.5, "drop", "large", 1),))
    assert "dropped large" in [what for _who, what in notes(world)]
    assert not any("backfill" in what for _who, what in notes(world))
    assert {*epochs(world, "large")} == {*epochs(world, "orders")}


def test_a_driver_that_does_not_know_what_was_paused_before_it_began_breaks_a_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Deciding, "_know", lambda _deciding, _found, _late: None)
    with pytest.raises(SimulationFailed, match="nothing is begun for a paused output"):
        lived(acts=(Act(0.9, "put off", "large", 10), Act(2.0, "stop")))


def test_what_was_drawn_before_there_were_decisions_stays_in_every_plan() -> None:
    facts, before = Ground.of(make_flow).facts, checked_kinds(["crash", "pause", "stop", "outputs", "restore"])
    decided = 0
    for seed in range(100):
        with_them = planned(seed, facts, kinds=(*before, "decisions"))
        without = planned(seed, facts, kinds=before)
        assert [act for act in with_them.acts if act.what not in STEERING] == [*without.acts]
        assert with_them.faults == without.faults
        decided += with_them != without
    assert decided > 5


def test_a_store_that_is_put_back_to_before_a_pause_knows_of_none() -> None:
    acts = (Act(0.3, "append", "orders", 3), Act(1.5, "restore", "", 2), Act(2.0, "put off", "large", 40))
    world = World(Ground.of(make_flow), Plan(1, 9.0, (*acts, Act(6.0, "append", "orders", 2)), (), calm=True))
    world.run()
    assert "put back" in world.trace.text()
    assert not world.steering.paused


def test_what_a_driver_showed_before_a_drop_says_nothing_of_the_table_that_begins_anew() -> None:
    """The backup is from after the drop, and it is recovered before another driver shows anything."""
    world = lived(acts=(Act(3.6, "drop", "orders", 2), Act(3.6, "restore", "", 0)))
    assert [what for _who, what in notes(world) if what in ("dropped orders", "put back")] == [
        "dropped orders",
        "put back",
    ]
    assert {*epochs(world, "large")} == {*epochs(world, "orders")}
