"""`simulate`: run a flow of yours in simulated worlds, one a seed, and tell which law breaks in the shortest life.

Your flow's steps run unchanged. Its sources are read from logs in memory that get rows of the declared columns,
its tables are tables in memory, its store is a database in memory, and its drivers die, sleep, lose answers and run
out of room as the seed has it.

Invariant: a seed stands for one life of one flow. It does the same each time, on every machine.

>>> import tidegauge as tg
>>> def make_flow():
...     flow = tg.Dataflow("shop", store="sqlite:///shop.db", tick=1.0)
...     flow.sink("lake", flow.source("orders", tg.GeneratorSource(columns="id long")), tg.ParquetSink("lake"))
...     return flow
>>> simulate(make_flow, seeds=range(2)).seeds
2
>>> replay(make_flow, seed=1)
Traceback (most recent call last):
tidegauge.errors.simulation.SeedPasses: TG-0925: seed 1 does not fail any more: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.simulation import PlanFailed, SeedPasses, SimulationFailed
from tidegauge.flow.spec import Flow
from tidegauge.testing.simulation.definite import definite
from tidegauge.testing.simulation.elsewhere import Elsewhere
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Plan, checked_kinds, planned
from tidegauge.testing.simulation.shrink import FailedPlan, shortest
from tidegauge.testing.simulation.trace import LEGEND
from tidegauge.testing.simulation.world import World

__all__ = ["Shrinking", "Simulated", "carry_out", "replay", "simulate"]

_SHOWN = 60
"""Events before the end that a failure shows."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """The extent of a simulation: how many seeds, lives of drivers, epochs, and rows in tables."""

    seeds: int
    lives: int
    epochs: int
    rows: int

    def __str__(self) -> str:
        return f"{self.seeds} seeds, {self.lives} lives, {self.epochs} epochs, {self.rows} rows: every law held"

    def __add__(self, other: Simulated) -> Simulated:
        return Simulated(
            self.seeds + other.seeds, self.lives + other.lives, self.epochs + other.epochs, self.rows + other.rows
        )


@dataclass(frozen=True, slots=True)
class Shrinking:
    """A seed that failed, and how many of its faults and acts are left in the shortest life so far."""

    seed: int
    left: int
    of: int

    def __str__(self) -> str:
        return f"shrinking seed {self.seed}: {self.left} of {self.of} faults and acts left"


def simulate(
    make_flow: Callable[[], Flow],
    *,
    seeds: Iterable[int] = range(100),
    faults: Sequence[str] | None = None,
    epochs: int = 30,
    after: Callable[[int, Simulated], None] = lambda _seed, _so_far: None,
    shrinking: Callable[[Shrinking], None] = lambda _shrinking: None,
) -> Simulated:
    """Run a flow in one world for each seed, and raise `SimulationFailed` for the first one where a law breaks.

    Args:
        make_flow: returns the flow, a new and equal one each time: every driver that starts calls it.
        seeds: numbers. 100 of them, which takes some ten seconds for a small flow.
        faults: the kinds of things that go wrong (`KINDS`); None for all, () for none.
        epochs: for how many ticks of the flow its writers write.
        after: is told each seed that held, with everything so far.
        shrinking: is told of a seed that failed, at once, and then of each shorter life that fails too.

    Before the first world your functions are tried on a few rows: see `definite`.

    Raises `SimulationFailed`, which tells the shortest life that still fails; for a function that depends on more
    than its rows `StepRaises`, `StepDrawsChance`, `StepKeepsState`, `StepSeesOrder`, `StepSeesCuts` or
    `StepSeesProcess`; `FactoryBroke`, `FlowsDiffer`, `Ungeneratable`, `UnknownFault`, `InvalidArgument`, and what
    your flow raises when it is opened.
    """
    if epochs < 1:
        raise InvalidArgument(parameter="epochs", value=epochs, expected="at least 1")
    kinds, ground, so_far = checked_kinds(faults), Ground.of(make_flow), Simulated(0, 0, 0, 0)
    with Elsewhere() as elsewhere:
        definite(ground, elsewhere=elsewhere)
    for seed in seeds:
        world = World(ground, planned(seed, ground.facts, kinds=kinds, epochs=epochs))
        try:
            world.run()
        except SimulationFailed as failed:
            raise explained(ground, world, failed, shrinking) from failed.__cause__
        so_far += _count(world)
        after(seed, so_far)
    return so_far


def replay(
    make_flow: Callable[[], Flow], *, seed: int, faults: Sequence[str] | None = None, epochs: int = 30
) -> SimulationFailed:
    """Run a seed that failed once more, and return what it shows. Raises `SeedPasses`, and as `simulate` does."""
    try:
        held = simulate(make_flow, seeds=[seed], faults=faults, epochs=epochs)
    except SimulationFailed as failed:
        return failed
    raise SeedPasses(seed=seed, lives=held.lives)


def carry_out(make_flow: Callable[[], Flow], plan: Plan) -> Simulated:
    """Run a flow in the world of one plan, such as a property draws it: `tidegauge.testing.strategies.plans`.

    Raises `PlanFailed` for a law that breaks, and as `simulate` does for a flow that cannot be simulated.
    """
    world = World(Ground.of(make_flow), plan)
    try:
        world.run()
    except SimulationFailed as failed:
        detail = _told(world, str(failed.evidence["detail"]))
        raise PlanFailed(law=failed.evidence["law"], detail=detail) from failed.__cause__
    return _count(world)


def explained(
    ground: Ground, world: World, failed: SimulationFailed, shrinking: Callable[[Shrinking], None]
) -> SimulationFailed:
    """Return a failure with the shortest life that was found for it."""
    law, seed, size = failed.evidence["law"], world.plan.seed, _size(world.plan)

    def tried(plan: Plan) -> FailedPlan | None:
        found = _tried(ground, plan)
        return None if found is None or found[1].evidence["law"] != law else found[0].failed_plan()

    def after(shorter: FailedPlan) -> None:
        shrinking(Shrinking(seed, _size(shorter.plan), size))

    shrinking(Shrinking(seed, size, size))
    plan = shortest(world.failed_plan(), tried, after=after)
    found = _tried(ground, plan)
    last, error = found or (world, failed)
    return SimulationFailed(seed=plan.seed, law=law, detail=_told(last, str(error.evidence["detail"])))


def _size(plan: Plan) -> int:
    return len(plan.acts) + len(plan.faults)


def _tried(ground: Ground, plan: Plan) -> tuple[World, SimulationFailed] | None:
    world = World(ground, plan)
    try:
        world.run()
    except SimulationFailed as failed:
        return world, failed
    return None


def _told(world: World, detail: str) -> str:
    """Return a failed life for people."""
    plan = world.plan
    faults = [f"  {fault}" for fault in plan.faults] or ["  none"]
    acts = [f"  {act}" for act in plan.acts] or ["  none"]
    return "\n".join(
        [
            detail,
            "",
            "what went wrong:",
            *faults,
            f"what others did, until {plan.ends:g}:",
            *acts,
            "",
            world.trace.text(last=_SHOWN),
            "",
            LEGEND.rstrip(),
        ]
    )


def _count(world: World) -> Simulated:
    rows = sum(world.lake.rows(name).num_rows for name in world.ground.spec.outputs)
    return Simulated(1, len(world.lives), world.ledger.upper, rows)
