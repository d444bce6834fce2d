"""Outputs of a world begin where they say, or have one epoch for their past, and the laws of that can break."""

from __future__ import annotations

import pytest
from tests.simulation.begun import FAULTS, make_flow
from tests.simulation.lived import lived_through
from tests.simulation.test_faults import epochs

from tidegauge.errors.simulation import SimulationFailed
from tidegauge.job import perform
from tidegauge.job.plan import OutputPlan
from tidegauge.testing import simulate
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.ledger import Broken
from tidegauge.testing.simulation.plan import Act, Fault, Plan
from tidegauge.testing.simulation.world import World

APPENDS = tuple(Act(0.2 + n, "append", "orders", 2) for n in range(8))
"""Two orders a second, each time in another epoch."""


def lived(name: str, *faults: Fault) -> World:
    """A world in which an output is left out for some epochs from the beginning."""
    acts = (Act(0.0, "outputs", name, 4), *APPENDS)
    return lived_through(Ground.of(make_flow), acts, faults, ends=9.0, unit=2)


@pytest.mark.parametrize(
    ("place", "count"),
    [("after record start", 3), ("after record unit", 1), ("past: commit", 1), ("before end backfill", 1)],
)
def test_a_late_table_has_one_epoch_for_its_past_whenever_its_driver_dies(place: str, count: int) -> None:
    """The starts of two others are settled before."""
    world = lived("past", Fault("crash", place, count))
    assert [life.dead for life in world.lives].count(True) == 1
    every, found = sorted({*epochs(world, "orders")}), sorted({*epochs(world, "past")})
    assert 2 <= every.index(found[0]) < len(every) - 1
    assert found == every[every.index(found[0]) :]
    assert epochs(world, "past").count(found[0]) == 2 * (every.index(found[0]) + 1)


def test_a_table_from_now_on_lacks_the_epochs_that_were_bound_before_it() -> None:
    world = lived("new")
    assert 3 < min(epochs(world, "new")) < max(epochs(world, "new")) == max(epochs(world, "orders"))


def test_worlds_of_many_kinds_of_faults_hold() -> None:
    """The last two break laws that know nothing of `start=`, and nothing of `timestamps=`."""
    assert simulate(make_flow, seeds=(712, 711, 400008), faults=FAULTS).seeds == 3


def test_rows_of_the_past_with_epochs_of_their_own_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def unchanged(plan: OutputPlan, _lower: int, *, stamp: int) -> OutputPlan:
        assert stamp >= 0
        return plan

    monkeypatch.setattr(perform, "stamped", unchanged)
    with pytest.raises(SimulationFailed, match="no row is of an epoch before that of its table's past"):
        lived("past")


def test_an_epoch_of_a_past_that_moves_is_seen() -> None:
    world = lived("past")
    world.checks.late.settled()
    world.memory.connection.execute("UPDATE starts SET stamp = stamp + 1 WHERE output = 'past'")
    with pytest.raises(Broken, match="is settled once"):
        world.checks.late.settled()


def overtaken(*others: Act) -> World:
    """A world in which retention takes what an output lacks while somebody runs the flow without it."""
    takes = tuple(Act(5.3 + n / 10, "retention", "orders", 1) for n in range(8))
    acts = (*APPENDS, Act(2.5, "outputs", "past", 4), *takes, *others)
    world = World(
        Ground.of(make_flow), Plan(1, 9.0, tuple(sorted(acts, key=lambda act: act.at)), (), calm=True, unit=2)
    )
    world.run()
    return world


def test_upstream_keeps_what_a_failed_output_lacks_and_everything_else_arrives() -> None:
    world = overtaken(*(Act(0.3 + n, "append", "clicks", 2) for n in range(6)))
    assert (world.ledger.failed(), world.ledger.failed_outputs()) == ({}, {"past"})
    assert max(epochs(world, "past")) < max(epochs(world, "orders")) == world.ledger.upper - 1


def test_a_late_output_that_lacks_records_fails_alone_beside_the_table_of_a_source_without_records() -> None:
    world = overtaken()
    assert (world.ledger.failed(), world.ledger.failed_outputs()) == ({}, {"past"})
