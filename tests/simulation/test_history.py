"""Readers hold epochs, and what nobody holds is compacted."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, delete
from tests.simulation.test_faults import lived

from tidegauge.errors.simulation import SimulationFailed
from tidegauge.remap.store import compaction
from tidegauge.remap.store.lease import Lease
from tidegauge.remap.store.schema import changes
from tidegauge.testing.simulation.plan import Act, Fault
from tidegauge.testing.simulation.world import World

Patch = pytest.MonkeyPatch


def since(world: World) -> int:
    """The epoch before which the flow's history is compacted."""
    [(found,)] = world.memory.ask("SELECT since FROM flows")
    return int(found)


def test_history_is_compacted_while_drivers_come_and_go_and_a_command_that_dies_is_given_again() -> None:
    world = lived(Fault("crash", "before advance since", 1), acts=(Act(2.5, "let go"), Act(4.0, "let go")))
    assert since(world) > 0
    assert [life.name for life in world.lives if life.dead] == ["B"]


def test_what_a_reader_holds_is_not_compacted_and_what_it_left_when_it_died_is_released() -> None:
    world = lived(Fault("crash", "orders: open", 2), acts=(Act(2.5, "hold", "", 10), Act(3.5, "let go")))
    assert [life.name for life in world.readers.lives if life.dead] == ["R0"]
    assert world.memory.ask("SELECT count(*) FROM holds") == [(0,)]
    assert world.readers.here == 0


def test_an_epoch_that_is_in_no_table_is_bound_anew_when_the_store_is_put_back_although_readers_saw_it() -> None:
    begun = (Fault("slow", "before append bindings", 1, 1.0), Fault("crash", "before stage", 1))
    world = lived(*begun, acts=(Act(0.5, "restore", "", 2),))
    assert world.checks.era == 2
    assert world.lake.rows("orders").num_rows == 12


def test_compaction_that_takes_a_later_binding_breaks_a_law(monkeypatch: Patch) -> None:
    advance = compaction.advance_since

    def too_much(connection: Connection, lease: Lease, since: int) -> None:
        advance(connection, lease, since)
        connection.execute(delete(changes).where(changes.c.epoch == since + 1))

    monkeypatch.setattr(compaction, "advance_since", too_much)
    with pytest.raises(SimulationFailed, match="compaction leaves the bindings of later epochs as they were"):
        lived(acts=(Act(3.5, "let go"), Act(4.0, "let go"), Act(4.5, "let go")))


def test_a_hold_that_compaction_does_not_look_at_breaks_a_law(monkeypatch: Patch) -> None:
    monkeypatch.setattr(compaction, "read_holds", lambda *_of: [])
    with pytest.raises(SimulationFailed, match="a held epoch is not compacted"):
        lived(
            acts=(
                *(Act(1.5 + 0.3 * nth, "hold", "", 10) for nth in range(4)),
                *(Act(3.5 + nth, "let go") for nth in range(3)),
            )
        )
