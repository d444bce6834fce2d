"""Lives with faults: plans of simulated worlds, drawn by Hypothesis, so that one that breaks a law shrinks.

A seed of `simulate` stands for a plan. A property draws the plan itself: what writers do, what goes wrong and where,
and whether drivers take turns. `carry_out` runs your flow in the world of a plan.

Invariant: a plan names sources, outputs and places of the flow alone, and faults of the kinds that were asked for.

>>> import tidegauge as tg
>>> from hypothesis import find, settings
>>> steady = settings(derandomize=True)  # the same examples each time
>>> def make_flow():
...     flow = tg.Dataflow("shop", store="sqlite:///shop.db", tick=1.0)
...     flow.sink("lake", flow.source("orders", tg.GeneratorSource(columns="id long")), tg.ParquetSink("lake"))
...     return flow
>>> find(plans(make_flow, faults=["crash"], epochs=1), lambda plan: plan.acts, settings=steady)
Plan(seed=0, ends=1.0, acts=(Act(at=0.0, what='append', on='orders', number=1),), faults=(), calm=True, unit=0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tidegauge.errors.testing import InvalidStrategy
from tidegauge.testing.strategies.arguments import between

if TYPE_CHECKING:
    from tidegauge.flow.spec import Flow
    from tidegauge.testing.simulation.plan import Act, Fault, FaultKind, FlowFacts, Plan

__all__ = ["plans"]


def plans(
    make_flow: Callable[[], Flow], *, faults: Sequence[str] | None = None, epochs: int = 10, max_size: int = 8
) -> st.SearchStrategy[Plan]:
    """Plans of worlds for a flow: run each with `tidegauge.testing.carry_out(make_flow, plan)`.

    make_flow: returns the flow, a new and equal one each time. faults: the kinds of things that go wrong; None for
    all, () for none. epochs: for how many ticks of the flow its writers write. max_size: how many things go wrong at
    most.

    Raises `UnknownFault`, and as `simulate` does for a flow that cannot be simulated.
    """
    between("plans", "epochs", epochs, least=1)
    between("plans", "max_size", max_size)
    if not callable(make_flow):
        raise InvalidStrategy(
            strategy="plans", parameter="make_flow", value=repr(make_flow), expected="a function that returns a flow"
        )
    from tidegauge.testing.simulation.ground import Ground  # a simulation is much to load for those who need none
    from tidegauge.testing.simulation.plan import checked_kinds

    kinds = checked_kinds(faults)
    return _plans(Ground.of(make_flow).facts, kinds, epochs=epochs, max_size=max_size)


@st.composite
def _plans(draw: st.DrawFn, flow: FlowFacts, kinds: Sequence[FaultKind], *, epochs: int, max_size: int) -> Plan:
    from tidegauge.testing.simulation.plan import LATE_ACTS, Act, Fault, Plan, written

    chance, ends = st.randoms(), epochs * flow.tick

    def write(random: Random, source: str, at: float) -> Act:
        return written(random, source, at, rare=True)

    instants = st.floats(0, ends, exclude_max=True)
    possible: list[FaultKind] = [kind for kind in kinds if flow.having(kind)]
    writes = draw(st.lists(st.builds(write, chance, st.sampled_from(flow.sources), instants), max_size=4 * epochs))
    things = draw(st.lists(_going_wrong(flow, possible, ends), max_size=max_size)) if possible else []
    acts = [*writes, *(thing for thing in things if isinstance(thing, Act))]
    faults = [thing for thing in things if isinstance(thing, Fault)]
    seed, calm = draw(st.integers(0, 2**16)), not draw(st.booleans())
    unit = draw(st.sampled_from((0, 2, 5))) if any(act.what in LATE_ACTS for act in acts) else 0
    return Plan(seed, ends, tuple(sorted(acts, key=lambda act: act.at)), tuple(faults), calm, unit)


@st.composite
def _going_wrong(draw: st.DrawFn, flow: FlowFacts, possible: Sequence[FaultKind], ends: float) -> Act | Fault:
    """Draw what goes wrong, by as few choices as can be: Hypothesis leaves out of a list what takes five or less."""
    from tidegauge.testing.simulation.plan import AT_A_PLACE, BETWEEN, BETWEEN_ALSO, LASTING, Fault, acted, nth_time

    kind = draw(st.sampled_from(possible))
    if kind not in AT_A_PLACE:
        return acted(draw(st.randoms()), kind, flow, ends)
    place = draw(st.sampled_from([*flow.where(kind), *(BETWEEN if kind in BETWEEN_ALSO else ())]))
    nth = nth_time(place, draw(st.floats(0, 1, exclude_max=True)))
    return Fault(kind, place, nth, draw(st.sampled_from(LASTING[kind])) if kind in LASTING else 0.0)
