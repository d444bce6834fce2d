"""Flows over sources that are polled, in simulated worlds: each merge strategy, a death at each step of a poll."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import pytest
from tests.simulation import polled
from tests.simulation.lived import lived_through

import tidegauge as tg
from tidegauge.errors.simulation import SimulationFailed
from tidegauge.remap.fromtime.polled import POLLS
from tidegauge.sources.polls.poller import Poller
from tidegauge.testing.simulation import simulate
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, Plan, planned
from tidegauge.testing.simulation.world import World
from tidegauge.testing.simulation.writers.polls import PollsUpstream

MERGES = ["append", "ledger", "snapshot", "upsert"]
ENDS = 6.5
STEPS = ("fetch", "fetched", "probe", "probed", "before stage poll", "after stage poll", "before append bindings")
STORE = ("store commit", "store committed")


def make_flow(merge: Any) -> tg.Dataflow:
    """A table of what is polled, with operations as plain data, and one of its first column."""
    flow = tg.Dataflow("shop", store="sqlite:///shop.db", tick=1.0)
    source = tg.PollingSource(
        lambda _state: tg.Fetched([]),
        columns="id long, name string",
        staging="/nowhere",
        merge=merge,
        key=() if merge == "append" else "id",
    )
    orders = flow.source("orders", source)
    orders = orders if merge in ("append", "ledger") else orders.changelog("op")
    flow.sink("all", orders, tg.DeltaSink("lake/all"))
    flow.sink("ids", orders.select("id"), tg.ParquetSink("lake/ids"))
    return flow


@pytest.mark.parametrize("merge", MERGES)
def test_every_law_holds_of_a_flow_that_polls(merge: str) -> None:
    done = simulate(partial(make_flow, merge), seeds=range(3), epochs=12)
    assert done.rows > 0


@pytest.mark.long
@pytest.mark.parametrize("merge", MERGES)
def test_every_law_holds_of_many_flows_that_poll(merge: str) -> None:
    assert simulate(partial(make_flow, merge), seeds=range(100, 140)).rows > 0


@cache
def ground(merge: str) -> Ground:
    return Ground.of(partial(make_flow, merge))


def lived(merge: str, *faults: Fault) -> World:
    acts = tuple(Act(0.3 + 0.9 * n, "append", "orders", 3) for n in range(6))
    return lived_through(ground(merge), acts, faults, ends=ENDS)


def upstream_of(world: World) -> PollsUpstream:
    found = world.upstreams["orders"]
    assert isinstance(found, PollsUpstream)
    return found


def steps(merge: str) -> Iterator[Fault]:
    met = Counter[str]()
    for at, _who, place in lived(merge).trace.events:
        if place in STORE or place.rpartition(": ")[2] in STEPS:
            met[place] += 1
            if at < ENDS:
                yield Fault("crash", place, met[place])


@pytest.mark.parametrize("some", [5, pytest.param(0, marks=pytest.mark.long, id="all")])
@pytest.mark.parametrize("merge", MERGES)
def test_o5_a_death_at_any_step_of_a_poll_loses_nothing_and_asks_for_nothing_twice(merge: str, some: int) -> None:
    """The world looks at every row, and at each question that upstream is asked."""
    every, rows = [*steps(merge)], lived(merge).lake.rows("all").num_rows
    assert {fault.place.rpartition(": ")[2] for fault in every} >= {*STEPS, *STORE}
    for fault in every[len(merge) % 5 :: len(every) // some] if some else every:
        world = lived(merge, fault)
        assert len(world.strikes.struck) == 1, fault
        assert upstream_of(world).there() == {POLLS: upstream_of(world).end(POLLS)}, "nothing is left to be told"
        assert merge == "snapshot" or world.lake.rows("all").num_rows == rows


def test_two_drivers_at_a_time_stage_what_they_poll_once() -> None:
    acts = [Act(0.3 + 0.5 * n, "append", "orders", 2) for n in range(12)]
    acts += [Act(1.1 + n, "rival") for n in range(4)]
    faults = (Fault("slow", "orders: fetched", 2, 3.0), Fault("pause", "before stage poll", 3, 31.0))
    world = World(ground("append"), Plan(7, 8.0, tuple(sorted(acts, key=lambda act: act.at)), faults))
    world.run()
    assert len(world.strikes.struck) == 2
    assert world.lake.rows("all").num_rows == 24


def test_a_disk_without_room_is_waited_for() -> None:
    acts = (Act(0.3, "append", "orders", 2), Act(1.0, "full", "", 3), Act(1.5, "append", "orders", 2))
    world = World(ground("append"), Plan(1, 5.0, acts, ()))
    world.run()
    assert world.lake.rows("all").num_rows == 4


def test_a_question_for_what_is_staged_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that goes on from the binding, and does not look what is staged after it, gets the right rows."""
    settled = Poller._settled

    def from_the_binding(self: Any, bound: Any) -> Any:
        place = settled(self, bound)
        if place.ahead and self._memory is None and self._due < 0:
            place.state = bound.state
        return place

    monkeypatch.setattr(Poller, "_settled", from_the_binding)
    with pytest.raises(SimulationFailed, match="upstream is not asked again for what is staged"):
        lived("append", Fault("crash", "after stage poll", 2))


def test_a_row_that_a_merge_forgets_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegauge.sources.polls import merging

    monkeypatch.setattr(merging, "_same", lambda _one, _other: True)
    with pytest.raises(SimulationFailed, match="rows missing"):
        lived("snapshot")


def test_a_store_that_knows_a_table_which_somebody_has_removed_since_is_not_put_back() -> None:
    """The removal ends while the flow is being stopped for the backup; the flow would wait for the table for good."""
    ground = Ground.of(polled.make_flow)
    world = World(ground, planned(910_064, ground.facts))
    world.run()
    assert "ledger_table: removed" in world.trace.text()
