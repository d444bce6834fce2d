"""Outputs of a world get their past from the table of another one, and the laws of that can break."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.simulation import reference
from tests.simulation.lived import lived_through
from tests.simulation.taken import make_flow
from tests.simulation.test_faults import epochs

from tidegauge.errors.simulation import SimulationFailed
from tidegauge.job.past import TableRows
from tidegauge.testing import simulate
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, planned
from tidegauge.testing.simulation.world import World

APPENDS = tuple(Act(0.2 + n, "append", "orders", 2) for n in range(8))
"""Two orders a second, each time in another epoch."""


def lived(name: str, *faults: Fault) -> World:
    """A world in which an output is left out for some epochs from the beginning."""
    acts = (Act(0.0, "outputs", name, 4), *APPENDS)
    return lived_through(Ground.of(make_flow), acts, faults, ends=9.0, unit=2)


@pytest.mark.parametrize(
    "place", ["after begin backfill", "after record unit", "large: commit", "before end backfill"]
)
def test_a_past_from_a_table_is_whole_whenever_its_driver_dies(place: str) -> None:
    world = lived("large", Fault("crash", place, 1))
    assert [life.dead for life in world.lives].count(True) == 1
    assert {*epochs(world, "large")} <= {*epochs(world, "orders")}


def test_worlds_of_many_kinds_of_faults_hold() -> None:
    """In seed 125 an epoch was published before an output held it that was not late."""
    assert simulate(make_flow, seeds=(125, *range(3000, 3003)), faults=reference.FAULTS).seeds == 4


def test_a_row_that_a_table_has_and_its_reader_leaves_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    read = TableRows.read

    def short(self: TableRows, split: Any, bad: Any) -> Iterator[pa.RecordBatch]:
        for batch in read(self, split, bad):
            yield batch.slice(1)

    monkeypatch.setattr(TableRows, "read", short)
    ground = Ground.of(make_flow)

    def holds(seed: int) -> bool:
        try:
            World(ground, planned(seed, ground.facts, kinds=reference.FAULTS)).run()
        except SimulationFailed:
            return False
        return True

    assert not all(map(holds, range(20)))
