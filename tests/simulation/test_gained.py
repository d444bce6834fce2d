"""Sources of a world gain columns while it runs, whoever dies, and the laws of that can break."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.gained import FAULTS, LIVING, make_flow
from tests.simulation.lived import lived_through

import tidegauge as tg
from tidegauge.errors.simulation import SimulationFailed
from tidegauge.job import perform
from tidegauge.remap.binding import Bound, Slice
from tidegauge.testing import simulate
from tidegauge.testing.simulation import ledger
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault
from tidegauge.testing.simulation.world import World

APPENDS = tuple(Act(0.2 + n, "append", "orders", 2) for n in range(12))
"""Two orders a second, each time in another epoch."""
GAINS = (Act(3.1, "gain", "orders"), Act(6.1, "gain", "orders"))


def lived(*faults: Fault, also: tuple[Act, ...] = ()) -> World:
    """A world in which orders gain a column, and later another one."""
    return lived_through(Ground.of(make_flow), (*APPENDS, *GAINS, *also), faults, ends=13.0, unit=2)


def begins(world: World, output: str, column: str) -> int:
    """The first epoch of a table that has a value of a column."""
    rows = world.lake.rows(output).to_pylist()
    return int(min(row["_epoch"] for row in rows if row[column] is not None))


def test_a_flow_says_which_of_its_columns_it_can_do_without() -> None:
    """`amount` is what an output is filtered by, and `id` is the first column."""
    assert Ground.of(make_flow).facts.gaining == {"orders": 2, "clicks": 1}
    strict = tg.Dataflow("strict", store="sqlite:///strict.db")
    log = tg.KafkaSource("nowhere:9092", topic="orders", format=tg.Json("id long, note string"))
    strict.sink("orders", strict.source("orders", log), tg.ParquetSink("lake/orders"))
    assert Ground.of(lambda: strict).facts.gaining == {}


@pytest.mark.parametrize(
    ("place", "count"),
    [
        ("before record columns", 2),
        ("after record columns", 2),
        ("before record columns", 3),
        ("after record columns", 3),
        ("orders: commit", 4),
        ("orders: committed", 4),
        ("after append bindings", 4),
        ("large: commit", 4),
    ],
)
def test_each_column_has_one_beginning_for_all_tables_whenever_a_driver_dies(place: str, count: int) -> None:
    world = lived(Fault("crash", place, count))
    assert [life.dead for life in world.lives].count(True) == 1, "nobody came to the place"
    for column in ("note", "place"):
        assert begins(world, "orders", column) == begins(world, "large", column) > 0
    assert begins(world, "orders", "note") <= begins(world, "orders", "place")  # a lease is waited for
    assert world.lake.rows("ids").column_names == ["id", "_epoch"]


def test_a_late_output_and_one_that_is_made_again_have_the_columns_from_the_same_epochs() -> None:
    world = lived(also=(Act(0.0, "outputs", "large", 9), Act(8.0, "remake", "orders", 1)))
    assert world.codes.remade == 1
    for column in ("note", "place"):
        assert begins(world, "orders", column) == begins(world, "large", column) > 0


def test_worlds_of_many_kinds_of_faults_hold() -> None:
    """In 9 columns came while a table was filled, and files for it were left over.

    In 44 a driver has no output that takes them on; in 186 one of before wakes up.
    """
    assert simulate(make_flow, seeds=(9, 44, 186), faults=LIVING).seeds == 3


@pytest.mark.parametrize("how", ["restore", "rewind"])
def test_columns_are_had_back_from_the_tables_with_the_epochs_that_an_older_store_does_not_know(how: str) -> None:
    """The backup is of before both columns. What is late reads epochs that had them, by the recovered store."""
    world = lived(also=(Act(2.0, how, number=6), Act(0.0, "outputs", "large", 11)))
    assert world.checks.era == 2, "the store was put back, and recovered"
    for column in ("note", "place"):
        assert begins(world, "orders", column) == begins(world, "large", column) > 0


def test_worlds_with_older_stores_hold() -> None:
    assert simulate(make_flow, seeds=(27, 102), faults=FAULTS).seeds == 2


def test_a_value_that_was_read_by_columns_of_later_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_now(slices: list[Slice], bound: Bound) -> Any:
        return [(bound.schema, [*slices])] if slices else []

    monkeypatch.setattr(perform, "by_columns", by_now)
    with pytest.raises(SimulationFailed, match="an epoch has the rows that its bindings say"):
        lived(also=(Act(0.0, "outputs", "large", 9),))


def test_a_value_that_is_null_although_its_column_was_in_force_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger.BindingLedger, "columns", lambda *_of: None)
    with pytest.raises(SimulationFailed, match="an epoch has the rows that its bindings say"):
        lived()


def test_a_simulated_log_is_read_by_columns_of_before() -> None:
    world = lived()
    source = world.upstreams["orders"].source(lambda _call: None)
    assert source.unreadable(pa.schema([("id", pa.int64())])) == ""
