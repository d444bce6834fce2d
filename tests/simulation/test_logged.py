"""Flows that read what a dataflow of bytewax writes, in simulated worlds: it dies and resumes beside drivers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.lived import lived_through
from tests.simulation.logged import FAULTS, make_flow

from tidegauge.errors.simulation import SimulationFailed
from tidegauge.sources.bytewax import logged, recovery
from tidegauge.sources.bytewax.log import sealed_in
from tidegauge.testing.simulation import simulate
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault
from tidegauge.testing.simulation.world import World
from tidegauge.testing.simulation.writers.logged import LoggedUpstream

GROUND = Ground.of(make_flow)
STEPS = ("clicks: probed", "before append bindings", "clicks: read")
WHATS = ("append", "append", "transact", "append", "grow", "append", "append", "compact", "append", "transact")
LIVES = tuple(Act(0.3 + 0.3 * n, what, "clicks", 4) for n, what in enumerate(WHATS * 3))


def lived(*faults: Fault, acts: Iterable[Act] = LIVES) -> World:
    return lived_through(GROUND, acts, faults, ends=11.0)


def upstream_of(world: World) -> LoggedUpstream:
    found = world.upstreams["clicks"]
    assert isinstance(found, LoggedUpstream)
    return found


def kept(world: World) -> list[int]:
    """The rows that bytewax cannot take back, by their numbers in the log; as the table has to have them."""
    upstream = upstream_of(world)
    batches = [one for part, end in upstream.there().items() for one in upstream.rows(part, 0, end)]
    return sorted(number for batch in batches for number in batch["id"].to_pylist())


def held(world: World) -> list[int]:
    return sorted(world.lake.rows("clicks")["id"].to_pylist())


def test_every_law_holds_of_a_flow_that_reads_a_log() -> None:
    assert simulate(make_flow, seeds=range(2), faults=FAULTS, epochs=10).rows > 0


@pytest.mark.long
def test_every_law_holds_of_many_flows_that_read_logs() -> None:
    assert simulate(make_flow, seeds=range(100, 130)).rows > 0


def test_what_a_dataflow_has_taken_back_is_in_no_table() -> None:
    """The world looks at each piece that is published, too."""
    world = lived()
    upstream = upstream_of(world)
    assert len({*held(world)}) == len(held(world)) > 20
    assert held(world) == kept(world)
    assert len(upstream.there()) > 2, "partitions have come"
    assert upstream.remade > 0


@pytest.mark.parametrize("place", STEPS)
def test_a_death_at_any_step_costs_no_row(place: str) -> None:
    world = lived(Fault("crash", place, 3))
    assert len(world.strikes.struck) == 1
    assert held(world) == kept(world)


def test_two_drivers_publish_the_same() -> None:
    acts = (*LIVES, *(Act(1.1 + 2 * n, "rival") for n in range(3)))
    world = lived(Fault("slow", "clicks: probe", 4, 3.0), acts=acts)
    assert held(world) == kept(world)


def test_the_epoch_of_the_fastest_worker_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least of the workers counts, and of the newest execution alone."""

    def fastest(files: Any) -> Any:
        return max([1, *(at for (at,) in recovery._rows(files, "SELECT worker_frontier FROM fronts"))])

    monkeypatch.setattr(recovery, "_resume_epoch", fastest)
    with pytest.raises(SimulationFailed, match="that bytewax may take back"):
        lived()


def test_what_is_sealed_and_no_more_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publication that does not ask bytewax."""

    def publish(folder: Path, _state: str | None, known: int) -> None:
        if known in sealed_in(folder):
            shutil.copy(folder / "_sealed" / f"{known:012}.json", folder)

    monkeypatch.setattr(logged, "_publish", publish)
    with pytest.raises(SimulationFailed, match="that bytewax may take back"):
        lived()
