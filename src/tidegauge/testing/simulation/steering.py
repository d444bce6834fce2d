"""Pausing, limiting and dropping outputs, as somebody does with `tidegauge outputs`, mostly while drivers run.

    put off    an output is paused, and goes on some time later, or once nothing goes wrong any more
    limit      late outputs read at most a number of rows a second, or none
    drop       somebody stops the flow, drops an output and removes its table, or leaves it where it is

Each command meets the world as a driver does: it may die, be slow, or hear no answer. It is given again until it has
succeeded. The laws of it:

    while an output is paused   a driver that has begun since then begins nothing for it
    in the end                  everything arrives that is not paused; then that goes on, and arrives too
    a dropped output            leaves nothing in the store
    a table that is removed     is written anew from its beginning, and shows its past at once; nobody else waits

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

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegauge.env import Env
from tidegauge.errors.command import FlowNeverRan
from tidegauge.errors.flow import UnknownName
from tidegauge.maintenance.outputs import drop, limit, pause, unpause
from tidegauge.testing.simulation.checks import Checks
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.commands import SimulatedFlow, given
from tidegauge.testing.simulation.ledger import BindingLedger, Broken
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.restoring import keep_stopped, wait_for_others

if TYPE_CHECKING:
    from tidegauge.testing.simulation.life import Life
    from tidegauge.testing.simulation.world import World

__all__ = ["Steering", "have_heard", "let_all_go_on", "lift_limit", "steer"]

_PAUSES: Final = "SELECT DISTINCT output FROM pauses"
_LEFT: Final = (
    "SELECT name FROM outputs",
    "SELECT output FROM backfills",
    "SELECT output FROM units",
    "SELECT output FROM starts",
)
"""Where the store could still know of an output that was dropped. Somebody may pause it at once."""
_AGAIN: Final = 1.0
"""Seconds until somebody gives a command again that failed."""


class Steering:
    """What stands of the decisions about a flow's outputs. watched: whether anybody makes any in this world.

    under_way: how many people are about to decide something.
    """

    def __init__(self, ledger: BindingLedger, checks: Checks, clock: VirtualClock, *, watched: bool) -> None:
        self.under_way = 0
        self._ledger: Final = ledger
        self._checks: Final = checks
        self._clock: Final = clock
        self.watched: Final = watched
        self._since: Final[dict[str, float]] = {}

    @property
    def paused(self) -> frozenset[str]:
        """The outputs that are paused."""
        return frozenset(self._since)

    def follow(self) -> None:
        """Read which outputs are paused by now."""
        found = {str(name) for (name,) in self._ledger.ask(_PAUSES)} if self.watched else set[str]()
        for name in self._since.keys() - found:
            del self._since[name]
        for name in found - self._since.keys():
            self._since[name] = self._clock.monotonic()
        self._checks.late.put_off(self.paused)

    def at(self, life: Life, place: str) -> None:
        """Look at a driver that comes to a place. It breaks a law if it works for an output that it found paused."""
        if self.watched and place == "store committed":
            self.follow()
        elif self._since:
            name, _, call = place.rpartition(": ")
            if call in ("stage", "commit") and life.began > self._since.get(name, life.began):
                broken = Broken("nothing is begun for a paused output", f"{life.name} has come to '{place}'")
                self._checks.broken = self._checks.broken or broken


def steer(world: World, act: Act) -> None:
    """Decide something about an output, at whatever moment it is."""
    world.steering.under_way += 1
    try:
        match act.what:
            case "put off":
                _put_off(world, act.on, act.number)
            case "limit":
                _give(world, partial(limit, rate=act.number))
            case _:
                _drop(world, act.on, removed=act.number % 2 == 0)
    finally:
        world.steering.under_way -= 1


def lift_limit(world: World) -> None:
    """Let late outputs read as fast as they can."""
    _give(world, partial(limit, rate=None))


def let_all_go_on(world: World) -> None:
    """Pause no output any more."""
    for name in sorted(world.steering.paused):
        _give(world, partial(unpause, output=name))


def have_heard(drivers: Sequence[Life]) -> bool:
    """Whether none of some drivers takes an output to be paused."""
    boards = [driver.runner.board for driver in drivers if driver.runner is not None]
    return all(output.state != "paused" for board in boards for output in board.outputs.values())


def _put_off(world: World, name: str, seconds: float) -> None:
    _give(world, partial(pause, output=name))
    world.scheduler.sleep(seconds)
    if not world.healed:  # until then it stays paused
        _give(world, partial(unpause, output=name))


def _drop(world: World, name: str, *, removed: bool) -> None:
    """Stop the flow and drop an output. removed: whether its table goes, too."""
    wait_for_others(world)
    if world.healed or world.closing or not world.ledger.published:
        return
    keep_stopped(world)
    _give(world, partial(_dropped, output=name))
    if left := [question for question in _LEFT if (name,) in world.ledger.ask(question)]:
        raise Broken("a dropped output leaves nothing in the store", f"{name}: {left}")
    if removed:
        world.lake.tables.pop(name, None)
        world.file_laws.read_again(world.ground.spec.outputs[name].source)
    world.checks.dropped(name, removed=removed)
    world.note("dropped", name)
    world.down = False


def _dropped(flow: SimulatedFlow, output: str, *, env: Env) -> None:
    """Drop an output; while a driver that has died still has the lease, again and again: nobody would do it then."""
    while drop(flow, output, env=env).running:
        env.sleep(_AGAIN)


def _give(world: World, command: Callable[..., object]) -> None:
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
