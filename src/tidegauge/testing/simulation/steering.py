"""Deciding something about outputs, as somebody does with `tidegauge outputs`, mostly while drivers run.

    put off    an output is paused, and goes on some time later, or once nothing goes wrong any more
    limit      late outputs read at most a number of rows a second, none, or as many as the live ones allow (`AUTO`)
    drop       somebody stops the flow, drops an output and removes its table, or leaves it where it is
    anew       an output is dropped while a driver runs, with its table or without, and then added again
    add        the flow runs without an output, from the beginning or for a while; then its driver is to take that in
    remake     all rows of a table are made again (`remaking`)

Each command meets the world as a driver does: it may die, be slow, or hear no answer. It is given again until it has
succeeded. The laws of it:

    while an output is paused   a driver that has begun since then begins nothing for it
    an output with `after`      gets nothing of its past while one that it comes after shows nothing yet
    in the end                  everything arrives that is not paused; then that goes on, and arrives too
    a dropped output            leaves nothing in the store
    a table that is removed     is written anew from its beginning, and shows its past at once; nobody else waits
    an output that is added     is taken in by the driver that runs, which nobody stops for it

Invariant: what stands is what the store has. A pause that goes with a store that is put back is none.

>>> import tidegauge as tg
>>> from tidegauge.testing.simulation.ground import Ground
>>> from tidegauge.testing.simulation.plan import Plan
>>> from tidegauge.testing.simulation.world import World
>>> def make_flow():
...     flow = tg.Dataflow("shop", store="sqlite:///shop.db", tick=1.0)
...     flow.sink("lake", flow.source("orders", tg.GeneratorSource(columns="id long")), tg.ParquetSink("lake"))
...     return flow
>>> world = World(Ground.of(make_flow), Plan(1, 5.0, (Act(2.0, "put off", "lake", 40),), ()))
>>> world.run()
>>> [what for _at, who, what in world.trace.events if who == "world" and "put off" in what]
['put off lake 40']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegauge.env import Env
from tidegauge.errors.command import FlowNeverRan
from tidegauge.errors.flow import UnknownName
from tidegauge.maintenance.outputs import add, drop, limit, pause, unpause
from tidegauge.remap.store import Rate
from tidegauge.sinks.protocol import Removable
from tidegauge.testing.simulation.commands import SimulatedFlow, given
from tidegauge.testing.simulation.ledger import Broken
from tidegauge.testing.simulation.plan import AUTO, Act
from tidegauge.testing.simulation.restoring import keep_stopped, wait_for_others

if TYPE_CHECKING:
    from tidegauge.testing.simulation.life import Life
    from tidegauge.testing.simulation.world import World

__all__ = ["Steering", "give", "have_heard", "let_all_go_on", "lift_limit", "steer", "taking_in"]

_PAUSES: Final = "SELECT DISTINCT output FROM pauses WHERE reason <> 'add'"
_ADDED: Final = "SELECT output FROM pauses WHERE reason = 'add'"
_DROPS: Final = "SELECT output FROM pauses WHERE reason IN ('drop', 'drop table')"
_PLANS: Final = "SELECT output FROM backfills"
_LEFT: Final = (
    "SELECT name FROM outputs",
    "SELECT output FROM backfills",
    "SELECT output FROM units",
    "SELECT output FROM starts",
    "SELECT output FROM codes",
    "SELECT output FROM replacements",
    "SELECT replace(owner, 'backfill of ', '') FROM holds",
)
"""Where the store could still know of an output that was dropped. Somebody may pause it at once."""
_AGAIN: Final = 1.0
"""Seconds until somebody gives a command again that failed."""
_BEGUN: Final = ("stage", "commit")
"""What a driver does for an output."""


class Steering:
    """What stands of the decisions about a flow's outputs. watched: whether there may be any in this world.

    under_way: how many people are about to decide something.
    """

    def __init__(self, world: World) -> None:
        self.under_way = 0
        self.watched: Final = world.plan.steered or any(plan.after for plan in world.ground.spec.outputs.values())
        self._world: Final = world
        self._since: dict[str, float] = {}
        self._filled: Final[dict[str, int]] = {}
        """The outputs whose past is not shown yet, numbered in the order of their plans."""
        self.lifting: Final[list[str]] = []
        """The outputs that somebody is about to let go on."""
        self.added: frozenset[str] = frozenset()
        """The outputs that the driver is to take in."""
        self.dropping: frozenset[str] = frozenset()
        """The outputs that are about to be dropped."""

    @property
    def paused(self) -> frozenset[str]:
        """The outputs that are paused."""
        return frozenset(self._since)

    def follow(self, *, back: bool = False) -> None:
        """Read what stands by now. back: whether the store has just been put back, and is of another time.

        Raises `Broken` where something is left of a dropped output.
        """
        if not self.watched:
            return
        world, before = self._world, self.dropping
        now, paused = world.clock.monotonic(), self._named(_PAUSES)
        lost = self._since.keys() - paused - before - {*self.lifting}
        self._since = {name: self._since.get(name, now) for name in sorted(paused)}
        self._fill(self._named(_PLANS))
        self.dropping, self.added = self._named(_DROPS), self._named(_ADDED)
        world.codes.follow()
        if lost and not back:
            raise Broken("a pause stands until somebody lifts it", f"{sorted(lost)} go on")
        for name in () if back else sorted(before - self.dropping):
            if left := [question for question in _LEFT if (name,) in world.ledger.ask(question)]:
                raise Broken("a dropped output leaves nothing in the store", f"{name}: {left}")
            world.checks.dropped(name, removed=False)
            world.codes.dropped(name)
            world.note("dropped", name)
        world.checks.late.put_off(self.paused | world.codes.standing.keys())

    def _named(self, question: str) -> frozenset[str]:
        return frozenset(str(name) for (name,) in self._world.ledger.ask(question))

    def _fill(self, planned: frozenset[str]) -> None:
        """Know which outputs show nothing of their past, where that has published records: others are not late."""
        world, outputs = self._world, self._world.ground.spec.outputs
        for name in self._filled.keys() - planned:
            del self._filled[name]
        for name in sorted(planned - self._filled.keys()):
            if world.ledger.holds(outputs[name].source, world.checks.late.first(name)) < world.ledger.published:
                self._filled[name] = max(self._filled.values(), default=0) + 1

    def at(self, life: Life, name: str, call: str) -> None:
        """Look at a driver that comes to a call. It breaks a law if it works for an output that it found paused."""
        world = self._world
        if not self.watched or world.checks.broken is not None:
            return
        try:
            if call == "store committed":
                self.follow()
            elif call == "removed":
                world.checks.dropped(name, removed=True)
                world.codes.removed(name)
                world.file_laws.read_again(world.ground.spec.outputs[name].source)
            elif call == "committed" and world.codes.committed(name, life):
                world.checks.remade(name)
            elif call in _BEGUN:
                self._begins(life, name, call)
        except Broken as broken:
            world.checks.broken = broken

    def _begins(self, life: Life, name: str, call: str) -> None:
        """Look at a driver that begins something for an output."""
        if life.began > self._since.get(name, life.began):
            raise Broken("nothing is begun for a paused output", f"{life.name} has come to '{name}: {call}'")
        after = self._world.ground.spec.outputs[name].after if name in self._filled else ()
        for other in after:
            if other not in life.without and self._filled.get(other, math.inf) < self._filled[name]:
                said = f"{life.name} has come to '{name}: {call}', and {other} shows nothing yet"
                raise Broken("a late output waits for those that it comes after", said)


def steer(world: World, act: Act) -> None:
    """Decide something about an output, at whatever moment it is."""
    world.steering.under_way += 1
    try:
        match act.what:
            case "put off":
                _put_off(world, act.on, act.number)
            case "limit":
                rate: Rate = "auto" if act.number == AUTO else act.number
                give(world, partial(limit, rate=rate))
            case "anew":
                _drop_running(world, act.on, act.number)
            case _:
                _drop(world, act.on, removed=act.number % 2 == 0)
    finally:
        world.steering.under_way -= 1


def lift_limit(world: World) -> None:
    """Let late outputs read as fast as they can."""
    give(world, partial(limit, rate=None))


def let_all_go_on(world: World) -> None:
    """Pause no output any more."""
    for name in sorted(world.steering.paused):
        _lift(world, name)


def have_heard(drivers: Sequence[Life]) -> bool:
    """Whether none of some drivers takes an output to be paused, for another reason than its order."""
    boards = [driver.runner.board for driver in drivers if driver.runner is not None]
    return all({*output.paused} <= {"order"} for board in boards for output in board.outputs.values())


def taking_in(world: World, name: str) -> None:
    """Let the driver that runs take an output in that it lacks; who refuses that goes on, until somebody stops it."""
    give(world, partial(add, output=name))
    world.scheduler.wait(lambda: world.healed or not _lacking(world, name))


def _lacking(world: World, name: str) -> Collection[Life]:
    return [life for life in world.living() if name in life.without and not life.declined]


def _put_off(world: World, name: str, seconds: float) -> None:
    give(world, partial(pause, output=name))
    world.scheduler.sleep(seconds)
    if not world.healed:  # until then it stays paused
        _lift(world, name)


def _lift(world: World, name: str) -> None:
    world.steering.lifting.append(name)
    give(world, partial(unpause, output=name))
    world.steering.lifting.remove(name)


def _drop(world: World, name: str, *, removed: bool) -> None:
    """Stop the flow and drop an output. removed: whether its table goes, too."""
    wait_for_others(world)
    if world.healed or world.closing or not world.ledger.published:
        return
    keep_stopped(world)
    give(world, partial(_dropped, output=name))
    if removed:
        world.lake.tables.pop(name, None)
        world.codes.removed(name)
        world.file_laws.read_again(world.ground.spec.outputs[name].source)
        world.checks.dropped(name, removed=True)
    world.down = False


def _dropped(flow: SimulatedFlow, output: str, *, env: Env) -> None:
    """Drop an output; while a driver that has died still has the lease, again and again: nobody would do it then."""
    while drop(flow, output, env=env).running:
        env.sleep(_AGAIN)


def _drop_running(world: World, name: str, number: int) -> None:
    """Drop an output at whatever moment it is, and then add it again, or start the flow anew."""
    wait_for_others(world)
    if world.healed or world.closing or not world.ledger.published:
        return
    removed = number % 2 == 0 and isinstance(world.ground.spec.outputs[name].sink, Removable)
    give(world, partial(drop, output=name, table=removed))
    world.scheduler.wait(lambda: world.healed or name not in world.steering.dropping)
    if number < 10:  # else the next driver has it, whenever that begins
        taking_in(world, name)


def give(world: World, command: Callable[..., object]) -> None:
    """Give a command until it has succeeded, or there is nothing that it could do."""

    def work(flow: SimulatedFlow, env: Env) -> None:
        with suppress(FlowNeverRan, UnknownName):  # or another did it, and its answer was lost
            command(flow, env=env)

    while not world.closing:
        life = given(world, work)
        world.scheduler.wait(life.is_gone)
        if life.over and life.error is None:
            return
        world.scheduler.sleep(_AGAIN)
