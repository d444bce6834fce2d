"""One thread that runs many actors, one at a time; where an actor pauses, a seed decides which goes on.

An *actor* is a function in a greenlet: the worker of a driver, a job beside it, a commit, a writer upstream. It runs
until it calls `pause`, `sleep` or `wait`, and nothing else runs meanwhile. When no actor can run, time passes to the
instant at which the first of them can.

Actors may have an *owner*, such as a driver. The actors of an owner that is frozen do not run until it thaws; those
of one that is dead are thrown out, each with `Crash` at the place where it waits.

Invariant: which actor runs next is a function of the random numbers and of the actors' own doing. No set and no
hash decides anything.

>>> from random import Random
>>> def life(seed):
...     clock, said = VirtualClock(), []
...     scheduler = Scheduler(Random(seed), clock)
...     def actor(name):
...         for number in range(2):
...             said.append(f"{name}{number}")
...             scheduler.pause()
...     for name in "abc":
...         scheduler.begin(name, lambda name=name: actor(name))
...     scheduler.run(lambda: False)
...     return " ".join(said)
>>> life(1) == life(1), len({life(seed) for seed in range(10)}) > 1
(True, True)
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol

import greenlet

from tidegauge.testing.simulation.clock import VirtualClock

__all__ = ["Actor", "Crash", "Owner", "Scheduler", "Standstill", "Turnstile"]


class Crash(BaseException):
    """The driver died here. Nothing catches it; what does all the same can do no more harm, being dead."""


class Standstill(AssertionError):
    """Every actor waits, and no time is due."""


class Owner(Protocol):
    """Whose actors these are."""

    @property
    def dead(self) -> bool:
        """Whether nothing of it runs any more."""
        ...

    @property
    def thaws(self) -> float:
        """The instant from which on it runs."""
        ...


class Actor:
    """A function under way. `ready` and `due`: when it goes on, whichever comes first."""

    __slots__ = ("due", "greenlet", "name", "owner", "ready")

    def __init__(self, name: str, work: Callable[[], Any], owner: Owner | None, hub: Any) -> None:
        self.name = name
        self.owner = owner
        self.ready: Callable[[], bool] | None = None
        self.due: float | None = 0.0
        self.greenlet = greenlet.greenlet(work, hub)  # whoever begins it, it ends in the hub

    def runs(self, now: float) -> bool:
        """Whether it can go on."""
        if self.owner is not None and self.owner.thaws > now:
            return False
        return (self.due is not None and self.due <= now) or (self.ready is not None and self.ready())

    def instant(self) -> float | None:
        """Return when it can go on at the latest; None when time alone does not bring it on."""
        if self.due is None:
            return None if self.owner is None or self.ready is None or not self.ready() else self.owner.thaws
        return self.due if self.owner is None else max(self.due, self.owner.thaws)


class Turnstile:
    """A lock. An actor that dies while it has it gives it back, which does no harm: its owner is dead."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Final = scheduler
        self._taken = False

    def __enter__(self) -> None:
        while self._taken:
            self._scheduler.wait(lambda: not self._taken)
        self._taken = True

    def __exit__(self, *_raised: object) -> None:
        self._taken = False


class Scheduler:
    """Runs the actors. `pause`, `sleep` and `wait` are called by the actor that runs.

    most: how many turns the actors may have altogether, so that one that spins ends the run and not the patience.
    """

    def __init__(self, random: Random, clock: VirtualClock, *, most: int = 2_000_000) -> None:
        self.turns = 0
        self._random: Final = random
        self._clock: Final = clock
        self._most: Final = most
        self._actors: Final[list[Actor]] = []
        self._running: Actor | None = None
        self._failed: list[BaseException] = []
        self._hub: Final = greenlet.getcurrent()

    @property
    def running(self) -> str:
        """The name of the actor that runs."""
        return "" if self._running is None else self._running.name

    def begin(self, name: str, work: Callable[[], Any], *, owner: Owner | None = None) -> None:
        """Let a function run from now on. What it raises, but `Crash`, ends `run`."""

        def guarded() -> None:
            try:
                work()
            except Crash:
                pass
            except BaseException as error:  # noqa: BLE001 - it is raised by `run`
                self._failed.append(error)

        self._actors.append(Actor(name, guarded, owner, self._hub))

    def count(self, owner: Owner) -> int:
        """Return how many actors an owner has."""
        return sum(actor.owner is owner for actor in self._actors)

    def pause(self) -> None:
        """Let others run, if the seed says so, and go on at any time after."""
        self._rest(None, self._clock.monotonic())

    def sleep(self, seconds: float) -> None:
        """Go on when this number of seconds has passed."""
        self._rest(None, self._clock.monotonic() + max(0.0, seconds))

    def wait(self, ready: Callable[[], bool], *, until: float | None = None) -> None:
        """Go on when something is so, or at an instant. ready: asked often, so cheap; it changes nothing."""
        self._rest(ready, until)

    def lock(self) -> Turnstile:
        """Return a lock that one actor has at a time."""
        return Turnstile(self)

    def _rest(self, ready: Callable[[], bool] | None, due: float | None) -> None:
        actor = self._running
        if actor is None:
            raise AssertionError("only an actor can wait")
        actor.ready, actor.due = ready, due
        self._hub.switch()

    def run(self, over: Callable[[], bool]) -> None:
        """Run the actors until it is over or none is left. Raises what an actor raised, and `Standstill`."""
        while not over():
            self._bury()
            if self._failed:
                raise self._failed.pop(0)
            if not self._actors:
                return
            now = self._clock.monotonic()
            able = [actor for actor in self._actors if actor.runs(now)]
            if not able:
                self._clock.pass_to(self._next())
                continue
            self.turns += 1
            if self.turns > self._most:
                raise Standstill(f"{self._most} turns, and no end: {[actor.name for actor in able]} can run")
            self._turn(able[0] if len(able) == 1 else self._random.choice(able))

    def _next(self) -> float:
        instants = [instant for actor in self._actors if (instant := actor.instant()) is not None]
        if not instants:
            raise Standstill(f"nobody can go on: {[actor.name for actor in self._actors]}")
        return min(instants)

    def _turn(self, actor: Actor) -> None:
        self._running = actor
        try:
            actor.greenlet.switch()
        finally:
            self._running = None
        if actor.greenlet.dead:
            self._actors.remove(actor)

    def _bury(self) -> None:
        """Throw out the actors of owners that died."""
        while (actor := next((a for a in self._actors if a.owner is not None and a.owner.dead), None)) is not None:
            self._actors.remove(actor)
            self._running = actor
            if actor.greenlet:  # one that has not begun never does
                actor.greenlet.throw(Crash)
            self._running = None

    def close(self) -> None:
        """Throw out all that is left."""
        for actor in self._actors:
            if actor.greenlet:
                actor.greenlet.throw(Crash)
        self._actors.clear()
