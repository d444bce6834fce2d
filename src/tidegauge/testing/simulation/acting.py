"""What others do in a world: writers, brokers, operators and readers, each at the instant that the plan has.

Some of it takes a while: an upstream is away, an operator stops the drivers and gives a command. That goes on beside
the rest, as an actor of its own.

Invariant: nobody here meets a fault. Only drivers do, and commands, which are lives of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegauge.testing.simulation.arriving import cease
from tidegauge.testing.simulation.compacting import let_go
from tidegauge.testing.simulation.plan import AT_FILES, Act
from tidegauge.testing.simulation.remaking import remake
from tidegauge.testing.simulation.restoring import restore, rewind
from tidegauge.testing.simulation.resuming import attend, look_at_files
from tidegauge.testing.simulation.steering import steer, taking_in

if TYPE_CHECKING:
    from tidegauge.testing.simulation.world import World

__all__ = ["act_out"]


def act_out(world: World) -> None:
    """Do what the plan has others do until it ends, then let nothing go wrong any more."""
    for act in world.plan.acts:
        world.scheduler.sleep(act.at - world.clock.monotonic())
        _act(world, act)
    world.scheduler.sleep(world.plan.ends - world.clock.monotonic())
    cease(world)


def _act(world: World, act: Act) -> None:
    begin = world.scheduler.begin
    world.note(act.what, f"{act.on} {act.number}".strip())
    match act.what:
        case "full":
            world.strikes.full_until = world.clock.monotonic() + act.number
        case "away":
            begin("world", lambda: _away(world, act))
        case "late" | "stale":
            begin("world", lambda: _for_a_while(world, act))
        case "clock":
            for life in world.living():
                life.skew = life.skew.jumping(act.number)
        case "drift":
            for life in world.living():
                life.skew = life.skew.drifting(act.number / 100, world.clock.monotonic())
        case "promote":
            begin("world", lambda: _promote(world, act))
        case "recreate":
            begin("world", lambda: _recreate(world, act))
        case "restore":
            begin("restorer", lambda: restore(world, after=act.number))
        case "rewind":
            begin("restorer", lambda: rewind(world, after=act.number))
        case "hold":
            world.readers.come(act.number)
        case "let go":
            begin("operator", lambda: let_go(world))
        case "rival":
            world.start()
        case "stop":
            for life in world.living():
                life.stop()
        case "outputs" | "add":
            begin("operator", lambda: _without(world, act))
        case "put off" | "limit" | "drop" | "anew":
            begin("operator", lambda: steer(world, act))
        case "gain":
            world.gains.gain(act.on)
            for life in world.living():
                life.stop()
        case "remake":
            begin("operator", lambda: remake(world, act))
        case "spoil":
            world.upstreams[act.on].act(act)
            attend(world)
        case _:
            world.upstreams[act.on].act(act)
            if act.what in AT_FILES and look_at_files(world, act.on):
                attend(world)


def _away(world: World, act: Act) -> None:
    world.upstreams[act.on].set_away(True)
    world.scheduler.sleep(act.number)
    world.upstreams[act.on].set_away(False)


def _without(world: World, act: Act) -> None:
    """Run the flow without an output for a while. The next driver has it, or has it no longer.

    add: the driver that runs by then is to take it in.
    """
    world.checks.late.names.add(act.on)
    world.missing.append(act)
    for life in world.living():
        life.stop()
    world.scheduler.sleep(act.number)
    if act not in world.missing:  # nothing goes wrong any more
        return
    world.missing.remove(act)
    if act.what == "add":
        world.steering.under_way += 1
        taking_in(world, act.on)
        world.steering.under_way -= 1
        return
    for life in world.living():
        life.stop()


def _for_a_while(world: World, act: Act) -> None:
    """Let an upstream hear late what it is told, or give an old answer."""
    world.upstreams[act.on].act(act)
    world.scheduler.sleep(act.number)
    if not world.healed:
        world.upstreams[act.on].act(replace(act, what="arrive" if act.what == "late" else "fresh"))


def _promote(world: World, act: Act) -> None:
    """Give a database's standby nothing more; at once, or a while later, it takes the server's place."""
    world.upstreams[act.on].act(replace(act, what="part"))
    if act.number > 1:
        world.scheduler.sleep(act.number)
    if not world.healed:
        world.upstreams[act.on].act(act)
        attend(world)


def _recreate(world: World, act: Act) -> None:
    """Delete topics and create others, at once or a while later; from now on somebody resumes failed sources."""
    upstream = world.upstreams[act.on]
    upstream.act(replace(act, what="delete"))
    if act.number > 1:
        world.scheduler.sleep(act.number)
    upstream.act(replace(act, what="create"))
    attend(world)
