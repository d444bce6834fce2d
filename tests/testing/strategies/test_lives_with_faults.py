"""Plans as Hypothesis draws them: our flows hold every law in each, and a bug shows itself in the shortest life."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from tests.depth import deep
from tests.simulation.reference import make_flow
from tests.simulation.test_simulate import make_files

import tidegauge as tg
from tidegauge.errors.kafka import BrokerUnreachable
from tidegauge.errors.simulation import PlanFailed, UnknownFault
from tidegauge.sources.protocol import OnBadRecord, Source
from tidegauge.testing import carry_out
from tidegauge.testing.simulation import KINDS, Plan
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import APART, BETWEEN
from tidegauge.testing.simulation.upstream import PartitionedLog, SimulatedLog
from tidegauge.testing.strategies import plans

FLOWS: list[Callable[[], tg.Dataflow]] = [make_flow, make_files]


@deep(40)
@given(st.sampled_from(FLOWS).flatmap(lambda make: st.tuples(st.just(make), plans(make, epochs=5))))
def test_every_law_holds_in_any_life(life: tuple[Callable[[], tg.Dataflow], Plan]) -> None:
    carry_out(*life)


@deep(100)
@given(st.data())
def test_a_plan_is_of_the_flow_and_of_the_kinds_that_were_asked_for(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KINDS), unique=True))
    plan = data.draw(plans(make_flow, faults=kinds, epochs=3, max_size=4))
    facts = Ground.of(make_flow).facts
    acts = [act for act in plan.acts if act.what in KINDS]
    assert {*(fault.kind for fault in plan.faults), *(act.what for act in acts)} <= {*kinds}
    assert len(plan.faults) + len(acts) <= 4
    assert {fault.place for fault in plan.faults} <= {*facts.places, *BETWEEN}
    outputs = () if {"outputs", *APART}.isdisjoint(kinds) else facts.outputs
    assert {act.on for act in plan.acts} <= {*facts.sources, *outputs, ""}
    assert all(0 <= act.at <= plan.ends == 3 for act in plan.acts)
    assert [act.at for act in plan.acts] == sorted(act.at for act in plan.acts)


@dataclass(frozen=True)
class Forgiving(SimulatedLog):
    """A log whose reader takes a broker that does not answer for the end of what there is."""

    def simulated(self) -> Source:
        return replace(self, log=PartitionedLog({"orders": 1}))

    def read(self, split: Any, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        try:
            yield from super().read(split, on_bad_record)
        except BrokerUnreachable:
            return


def make_forgiving() -> tg.Dataflow:
    flow = tg.Dataflow("shop", store="sqlite:///shop.db", tick=1.0)
    orders = flow.source("orders", Forgiving(PartitionedLog({"orders": 1}), columns="id long"))
    flow.sink("lake", orders, tg.ParquetSink("lake"))
    return flow


@pytest.mark.long
def test_a_planted_bug_shrinks_to_one_write_and_the_one_fault_that_shows_it() -> None:
    failed: list[Plan] = []

    @settings(
        max_examples=2000,  # it ends with the first that fails, and the modules that are loaded decide which come
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,  # the broken law is noticed by a driver's life, or by a look at the end
    )
    @given(plans(make_forgiving, faults=["error"], epochs=4, max_size=3))
    def holds(plan: Plan) -> None:
        try:
            carry_out(make_forgiving, plan)
        except PlanFailed:
            failed.append(plan)
            raise

    with pytest.raises(PlanFailed, match="an epoch has the rows that its bindings say") as raised:
        holds()
    plan = failed[-1]
    assert [(fault.kind, fault.place) for fault in plan.faults] == [("error", "orders: read")]
    assert [act.what for act in plan.acts] == ["append"]
    assert plan.calm
    assert f"what went wrong:\n  {plan.faults[0]}\n" in str(raised.value)
    assert "what others did" in str(raised.value)


@pytest.mark.long
def test_no_fault_stays_that_is_not_needed_wherever_the_search_begins() -> None:
    """Hypothesis leaves five choices in a row out of a plan, no more at a time, so no fault may need more."""
    search = settings(max_examples=2_000, deadline=None, database=None, phases=[Phase.generate, Phase.shrink])
    for seed in range(6):
        found = find(
            plans(make_flow, faults=["crash", "pause"]),
            lambda plan: len({fault.kind for fault in plan.faults}) > 1,
            settings=search,
            random=Random(seed),
        )
        assert [fault.kind for fault in found.faults] == ["crash", "pause"]
        assert {(fault.place, fault.nth) for fault in found.faults} == {("before acquire lease", 1)}
        assert not found.acts


def test_an_unknown_fault_is_refused_when_the_strategy_is_asked_for() -> None:
    with pytest.raises(UnknownFault, match="'fire'"):
        plans(make_flow, faults=["fire"])
