"""What a life may end with: an error for which something outside of the code is to blame.

Invariant: an error is excused for something that has come to pass in this world, never for a mere possibility.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegauge.errors.base import Definite, Transient
from tidegauge.errors.columns import ColumnsRefused, SourceColumnsRefused
from tidegauge.errors.flow import EmptyFlow
from tidegauge.errors.outputs import CodeChanged, OutputBelowIncarnation, OutputBelowSince
from tidegauge.errors.sinks import StagedFileMissing
from tidegauge.errors.store import ClockBehind, ClocksApart, FlowAlreadyRunning, LeaseLost, SchemaChanged
from tidegauge.testing.simulation.restoring import misled
from tidegauge.testing.simulation.resuming import attend

if TYPE_CHECKING:
    from tidegauge.testing.simulation.life import Life
    from tidegauge.testing.simulation.world import World

__all__ = ["excused"]

_OUTSIDE: Final = (FlowAlreadyRunning, LeaseLost, Transient, OSError)
_JUMPED: Final = (ClockBehind, ClocksApart)


def excused(world: World, life: Life) -> bool:
    """Whether a life may end as it did. What somebody has to see to is seen to from now on."""
    error = life.error
    if error is None or isinstance(error, _OUTSIDE):
        return True
    if isinstance(error, OutputBelowSince) and _is_shut_out(world, str(error.evidence["output"])):
        return True
    if isinstance(error, OutputBelowIncarnation) and world.checks.late.names:
        world.left_behind.add(str(error.evidence["source"]))
        attend(world)
        return True
    if isinstance(error, SourceColumnsRefused | SchemaChanged):
        return _is_declared_otherwise(world, life, str(error.evidence["source"]))
    if isinstance(error, ColumnsRefused):  # its table has more by now
        source = world.ground.spec.outputs[str(error.evidence["output"]).rpartition(":")[2]].source
        return world.gains.lacks.get(source, 0) < life.lacks.get(source, 0)
    if isinstance(error, CodeChanged):
        return world.codes.refused(life, str(error.evidence["output"]))
    if isinstance(error, EmptyFlow):  # somebody has dropped the only output that it had
        return not world.ground.spec.outputs.keys() - life.without
    ailing = any(upstream.overtaken or upstream.spoilt for upstream in world.upstreams.values())
    lossy = ailing and isinstance(error, Definite)
    jumped = isinstance(error, _JUMPED) and any(act.what in ("clock", "drift") for act in world.plan.acts)
    torn = isinstance(error, StagedFileMissing) and any(fault.kind == "torn" for fault in world.strikes.struck)
    return lossy or jumped or torn or misled(world, life)


def _is_declared_otherwise(world: World, life: Life, source: str) -> bool:
    """Whether somebody has declared more columns since a life began, or it has no output that takes columns on."""
    outputs = world.ground.spec.outputs.items()
    taking = {name for name, plan in outputs if plan.source == source and plan.evolution != "strict"}
    return world.gains.lacks.get(source, 0) < life.lacks.get(source, 0) or taking <= life.without


def _is_shut_out(world: World, output: str) -> bool:
    """Whether the flow refuses an output with reason. It is run without it from now on."""
    if output in world.checks.late.names and 0 < world.lake.upper(output) <= world.ledger.since:
        world.checks.late.shut_out.add(output)
    return output in world.checks.late.shut_out
