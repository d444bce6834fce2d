"""Flows over connectors of bytewax, in simulated worlds: partitions hang, raise, end and come, and drivers die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tidegauge.errors.simulation import SimulationFailed
from tidegauge.remap.fromtime.polled import POLLS
from tidegauge.sources.bytewax import fetching, pulling
from tidegauge.sources.bytewax.pulling import Pull
from tidegauge.testing.simulation import simulate
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, FaultKind, Plan
from tidegauge.testing.simulation.upstream import BYTEWAX_POINTS
from tidegauge.testing.simulation.upstream.served import ServedParts, ServedQueue, is_left_out
from tidegauge.testing.simulation.world import World

pytest.importorskip("bytewax", reason="bytewax needs Python 3.11 or 3.12")

from tests.simulation.foreign import make_flow

GROUND = Ground.of(make_flow)
ENDS = 6.5
STEPS = (*BYTEWAX_POINTS, "probe", "probed", "before stage poll", "after stage poll", "before append bindings")


def lived(*faults: Fault, acts: tuple[Act, ...] = (), calm: bool = True) -> World:
    """A world with four partitions: of two that say when they wake, of one that is asked and asked, and of one that
    has its driver wait."""
    written = [Act(0.3 + 0.9 * n, "append", name, 3) for n in range(6) for name in ("parts", "queue")]
    world = World(GROUND, Plan(7, ENDS, tuple(sorted([*written, *acts], key=lambda act: act.at)), faults, calm))
    world.run()
    return world


def served(world: World, name: str = "parts") -> Any:
    return world.upstreams[name].served


def kept(world: World) -> int:
    """How many rows of partitions are to be read, and no items that `row=` leaves out."""
    parts, reader = served(world).parts, served(world).readers[-1]
    items = [(part.number, at) for name, part in parts.items() for at in range(reader.reaches(name, part.rows))]
    return sum(not is_left_out(item) for item in items)


def test_every_law_holds_of_a_flow_over_connectors() -> None:
    assert simulate(make_flow, seeds=range(1), epochs=6).rows > 0


@pytest.mark.long
def test_every_law_holds_of_many_flows_over_connectors() -> None:
    assert simulate(make_flow, seeds=range(100, 112)).rows > 0


def test_partitions_and_a_queue_are_read_whole_and_each_in_its_manner() -> None:
    world = lived()
    assert isinstance(served(world), ServedParts)
    assert isinstance(served(world, "queue"), ServedQueue)
    assert {part.manner for part in served(world).parts.values()} == {"wakes", "asked", "waits"}
    assert world.lake.rows("all").num_rows == kept(world) > 0
    assert world.lake.rows("air").num_rows == served(world, "queue").rows == 18


def steps() -> Iterator[Fault]:
    met = Counter[str]()
    for at, _who, place in lived().trace.events:
        if place.rpartition(": ")[2] in STEPS:
            met[place] += 1
            if at < ENDS:
                yield Fault("crash", place, met[place])


@pytest.mark.parametrize("some", [2, pytest.param(15, marks=pytest.mark.long, id="many")])
def test_a_death_at_any_step_loses_no_row_of_a_partition_and_brings_none_twice(some: int) -> None:
    """The world looks at every row, and at each state that a partition is built from."""
    every = [*steps()]
    assert {fault.place.rpartition(": ")[2] for fault in every} >= {*STEPS}
    for fault in every[:: len(every) // some]:
        world = lived(fault)
        assert len(world.strikes.struck) == 1, fault
        assert world.lake.rows("all").num_rows == kept(world), fault


def test_methods_that_raise_cost_no_row() -> None:
    """An error after a partition has read its items is the one that `lost` stands for."""
    points: dict[str, FaultKind] = {
        "list": "error",
        "build": "error",
        "fetch": "error",
        "fetched": "lost",
        "snapshot": "error",
    }
    faults = [Fault(kind, f"parts: {name}", nth) for name, kind in points.items() for nth in (1, 4, 7)]
    world = lived(*faults)
    assert {fault.place for fault in world.strikes.struck} == {f"parts: {name}" for name in points}
    assert world.lake.rows("all").num_rows == kept(world)


def test_a_partition_that_hangs_past_its_deadline_holds_up_no_other() -> None:
    world = lived(Fault("slow", "parts: fetch", 9, 60.0))
    assert world.lake.rows("all").num_rows == kept(world)
    said = [what for _at, _who, what in world.trace.events if "[TG-0981]. Other partitions go on" in what]
    assert said


def test_a_state_of_a_kind_that_cannot_be_kept_stages_nothing_and_costs_no_row() -> None:
    world = lived(acts=(Act(1.0, "transact", "parts", 4), Act(2.0, "transact", "parts", 4)))
    assert any("TG-0983" in what for _at, _who, what in world.trace.events)
    assert not served(world).unkept
    assert world.lake.rows("all").num_rows == kept(world)


def test_a_partition_that_is_listed_no_more_keeps_its_place() -> None:
    acts = [Act(0.9 + n, "compact", "parts", 1) for n in range(5)] + [Act(1.4 + n, "stop", "") for n in range(5)]
    world = lived(acts=tuple(acts))
    listed = [reader.listed for reader in served(world).readers if reader.listed is not None]
    assert any(served(world).staged[-1].keys() - {*names} for names in listed)


def test_two_drivers_at_a_time_stage_what_they_read_once() -> None:
    acts = tuple(Act(1.1 + n, "rival") for n in range(4))
    faults = (Fault("slow", "parts: fetched", 2, 3.0), Fault("pause", "before stage poll", 3, 31.0))
    world = lived(*faults, acts=acts, calm=False)
    assert len(world.strikes.struck) == 2
    assert world.lake.rows("all").num_rows == kept(world)
    assert served(world).staged[-1] == {name: part.rows for name, part in served(world).parts.items()}
    assert world.upstreams["parts"].there() == {POLLS: world.upstreams["parts"].end(POLLS)}


def test_items_that_are_given_twice_break_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pull, "drop", lambda _pull, _batches: None)
    with pytest.raises(SimulationFailed, match="a state is the one after its items"):
        lived()


def test_a_state_that_is_kept_as_another_one_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "encoded", lambda _state: "another")
    with pytest.raises(SimulationFailed, match="a state is kept as it was told"):
        lived()


def test_what_is_staged_and_read_again_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "places_of", lambda _state: {})
    with pytest.raises(SimulationFailed, match="staged items are not read again"):
        lived(Fault("crash", "after stage poll", 3))


def test_what_is_taken_of_a_queue_and_not_staged_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Pull.first

    def the_last(self: Pull, items: int) -> Any:
        return first(self, items)[-1:]

    monkeypatch.setattr(Pull, "first", the_last)
    with pytest.raises(SimulationFailed, match="what a driver took of a queue is staged whole"):
        lived()
