"""Flows over sources that list files, in simulated worlds: files appear, change, vanish and are spoilt meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.listed import FAULTS, make_flow
from tests.simulation.lived import lived_through

import tidegauge as tg
from tidegauge.errors.simulation import SimulationFailed
from tidegauge.remap.fromtime.polled import POLLS
from tidegauge.sources.listings import source as listings
from tidegauge.sources.listings.entries import Known, Novelty
from tidegauge.sources.listings.reading import lost_of
from tidegauge.testing.simulation import simulate
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault
from tidegauge.testing.simulation.world import World
from tidegauge.testing.simulation.writers.listings import ListingsUpstream

GROUND = Ground.of(make_flow)
STEPS = (
    "ordered: poll",
    "ordered: polled",
    "before stage poll",
    "after stage poll",
    "before append bindings",
    "ordered: plan",
    "ordered: read",
)


def lived(*acts: Act, faults: tuple[Fault, ...] = (), ends: float = 8.0) -> World:
    return lived_through(GROUND, acts, faults, ends=ends)


def appear(source: str, times: int = 5, rows: int = 2) -> tuple[Act, ...]:
    return tuple(Act(0.3 + 0.9 * n, "append", source, rows) for n in range(times))


def test_every_law_holds_of_a_flow_that_lists() -> None:
    assert simulate(make_flow, seeds=range(4), faults=FAULTS, epochs=10).rows > 0


@pytest.mark.long
def test_every_law_holds_of_many_flows_that_list() -> None:
    assert simulate(make_flow, seeds=range(100, 130)).rows > 0


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("place", STEPS)
def test_a_death_at_any_step_of_a_listing_leaves_each_row_once(place: str, nth: int) -> None:
    world = lived(*appear("ordered"), faults=(Fault("crash", place, nth),))
    assert len(world.strikes.struck) == 1
    assert world.lake.rows("ordered_table").num_rows == 10


def test_a_file_that_vanishes_before_it_is_read_is_a_gap_and_the_others_come() -> None:
    held = tuple(Fault("slow", f"again: {call}", 1, 3.0) for call in ("plan", "read"))
    world = lived(*appear("again", 2), Act(4.5, "retention", "again", 1), faults=held)
    upstream = world.upstreams["again"]
    assert isinstance(upstream, ListingsUpstream)
    assert upstream.end(POLLS) == 2
    assert world.lake.rows("again_table").num_rows == 2
    assert len(world.ledger.ask("SELECT * FROM losses")) == 1


@pytest.mark.parametrize("source", ["again", "zipped"])
def test_f9_a_file_that_cannot_be_decoded_is_collected_or_skipped_and_the_others_come(source: str) -> None:
    moved = (Act(0.3, "transact", source, 2), Act(1.2, "transact", source, 2), Act(3.5, "transact", source, 2))
    world = lived(*sorted([*moved, Act(2.5, "spoil", source, 3)], key=lambda act: act.at))
    if source == "again":
        assert world.lake.rows("again_bad").num_rows == 1
    assert world.lake.rows(f"{source}_table").num_rows == (9 if source == "again" else 6)


def test_a_file_whose_staging_failed_is_not_left_out_by_a_listing_in_order() -> None:
    acts = [*appear("ordered", 4), Act(3.0, "full", "", 2)]
    world = lived(*sorted(acts, key=lambda act: act.at))
    assert world.lake.rows("ordered_table").num_rows == 8


def test_a_loss_of_a_file_that_is_there_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_lost(files: Any, first: int, **told: Any) -> Any:
        yield from lost_of(files, first, **told)
        yield first, tg.TidegaugeError

    monkeypatch.setattr(listings, "lost_of", all_lost)
    with pytest.raises(SimulationFailed, match="no loss is told that is none"):
        lived(*appear("again"))


def test_a_file_that_is_listed_twice_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Known, "judge", lambda _self, page: [Novelty.NEW for _ in page])
    with pytest.raises(SimulationFailed, match="a version of a file is listed once"):
        lived(*appear("again"))
