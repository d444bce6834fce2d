"""Making all rows of a table again, as somebody does with `tidegauge outputs replace` and `rebuild`.

What the number of an act stands for:

    1     by the same code, at whatever moment it is
    2     by other code, at whatever moment it is: a driver that runs goes over to the newer flow
    5     by other code while nobody runs the flow
    10    by other code, and a moment later by yet another
    40    by other code; a moment later somebody takes it back, and the table goes on from where it is by then

A driver that has other code than its table's rows were made by, and finds no decision about it, says so and ends. It
may have begun before the flow was changed. Or the store has gone back and forgotten the decision; or the past cannot
be read again by now, as upstream was recreated, records expired or history was compacted. Then somebody says it
again, or accepts the code from where the table is.

Invariant: at any time one person says something about the code of a flow's outputs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace as replaced
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegauge.env import Env
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.outputs import CannotReplace, CodeChanged
from tidegauge.maintenance.outputs import from_here, rebuild, replace
from tidegauge.testing.simulation.codes import coded
from tidegauge.testing.simulation.commands import SimulatedFlow
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.restoring import UNLIKE, keep_stopped, wait_for_others
from tidegauge.testing.simulation.steering import give

if TYPE_CHECKING:
    from tidegauge.testing.simulation.world import World

__all__ = ["mind", "remake"]

_SAME, _STOPPED, _TWICE, _BACK = 1, 5, 10, 40
_MOMENTS: Final = (0.1, 1.0, 4.0)
"""Seconds until somebody decides otherwise."""
_LOOKS: Final = (0.5, 3.0)
"""Seconds until somebody looks again."""
_HOPELESS: Final = 60.0
"""Seconds after which somebody takes back what cannot be done, once nothing goes wrong any more."""


def remake(world: World, act: Act) -> None:
    """Have a table made again, and what follows from it."""
    world.steering.under_way += 1
    try:
        _alone(world)
        _remake(world, act)
    finally:
        world.codes.busy = False
        world.steering.under_way -= 1


def mind(world: World) -> None:
    """For as long as the world is there, decide about outputs whose code the flow refuses."""
    hopeless = 0.0
    while not world.closing:
        wanted = sorted(world.codes.wanted)
        hopeless = hopeless + 1 if world.healed else 0.0
        if not wanted and hopeless > _HOPELESS:
            wanted = [name for name in sorted(world.codes.standing) if _lost(world, name)]
        if wanted:
            _alone(world)
            try:
                _settle(world, wanted[0])
            finally:
                world.codes.busy = False
        world.scheduler.sleep(1.0 if world.healed else world.random.choice(_LOOKS))


def _alone(world: World) -> None:
    """Wait until nobody else says anything about code, or puts the store back."""
    wait_for_others(world)
    while world.codes.busy:
        world.scheduler.wait(lambda: not world.codes.busy)
        wait_for_others(world)
    world.codes.busy = True


def _remake(world: World, act: Act) -> None:
    name, how = act.on, act.number
    if how == _STOPPED:
        if world.healed or world.closing:
            return
        keep_stopped(world)
        _say(world, name, changed=True)
        world.down = False
        return
    _say(world, name, changed=how != _SAME)
    if how in (_TWICE, _BACK):
        world.scheduler.sleep(world.random.choice(_MOMENTS))
    if how == _TWICE:
        _say(world, name, changed=True)
    if how == _BACK and world.codes.standing.keys() & {name}:
        wait_for_others(world)
        _accept(world, name)


def _say(world: World, name: str, *, changed: bool) -> None:
    """Say that a table is to be made again. changed: whether by code that no table had; else by the present one."""
    codes = world.codes
    past = any(plan.past == name for plan in world.ground.spec.outputs.values())
    other = changed and not past and not world.gains.lacks  # columns that come bring other code with them
    number = codes.asked[name] = codes.fresh() if other else codes.now[name]
    command = rebuild if number == codes.last(name) else replace  # else it is made by that code as soon as can be

    def work(flow: SimulatedFlow, *, env: Env) -> None:
        if name not in flow.spec.outputs:
            return
        plan = replaced(flow.spec.outputs[name], steps=coded(world.ground.spec.outputs[name], number).steps)
        given = SimulatedFlow(replaced(flow.spec, outputs={**flow.spec.outputs, name: plan}))
        with suppress(CannotReplace, CodeChanged, *UNLIKE):  # or not heard of its commit yet
            command(given, name, env=env)

    give(world, work)


def _settle(world: World, name: str) -> None:
    """Say again that a table is to be made, or accept the code that its output has now."""
    world.note("other code", name)
    if world.random.random() < 0.5 and not _lost(world, name):
        codes = world.codes
        codes.asked[name] = codes.now[name]
        give(world, partial(_again, output=name))
        codes.wanted.discard(name)
    else:
        _accept(world, name)


def _again(flow: SimulatedFlow, output: str, *, env: Env) -> None:
    if output in flow.spec.outputs:
        with suppress(CannotReplace, *UNLIKE):
            replace(flow, output, env=env)


def _accept(world: World, name: str) -> None:
    """Let a table go on with the code that its output has now, while nobody runs the flow."""
    if world.closing:
        return
    keep_stopped(world)
    give(world, partial(_accepted, output=name, world=world))
    world.down = False


def _accepted(flow: SimulatedFlow, output: str, *, env: Env, world: World) -> None:
    if output not in flow.spec.outputs:
        return
    with suppress(UnknownName):
        from_here(flow, output, env=env)
        world.codes.accepted(output)


def _lost(world: World, name: str) -> bool:
    """Whether the past of an output may be of an upstream that is gone, compacted, or expired before it was read."""
    source = world.ground.spec.outputs[name].source
    return world.ledger.began(source) > 0 or world.ledger.since > 0 or name in world.ledger.failed_outputs()
