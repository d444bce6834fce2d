"""One life of a driver: from its start until it has caught up, failed, or died. A command of a user's is one, too.

A life sees the world through one function, `meet`: the environment's points, its store and its adapters call it with
the name of what they are about to do, or have just done. There the world may strike.

Invariant: a dead life changes nothing. Whatever its code does while it is thrown out, the first thing that it meets
ends that too.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol

from tidegauge.engine.local import LocalEngine
from tidegauge.env import Env, at_once
from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.flow.beside import FAREWELL
from tidegauge.flow.runner import RENEW_EVERY, Runner
from tidegauge.flow.spec import FlowSpec
from tidegauge.testing.simulation.checks import Checks
from tidegauge.testing.simulation.clock import RIGHT, VirtualClock
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.scheduler import Crash, Scheduler
from tidegauge.testing.simulation.store import Memory, SimulatedStore

__all__ = ["Life", "Meeting", "Surroundings"]

_ATTENTION: Final = 0.05
"""Seconds within which a driver that rests notices that it is told to stop."""


class Surroundings(Protocol):
    """What a life needs of its world."""

    @property
    def clock(self) -> VirtualClock: ...  # noqa: D102
    @property
    def scheduler(self) -> Scheduler: ...  # noqa: D102
    @property
    def memory(self) -> Memory: ...  # noqa: D102
    @property
    def checks(self) -> Checks: ...  # noqa: D102
    @property
    def ground(self) -> Ground: ...  # noqa: D102
    @property
    def opened(self) -> list[Life]: ...  # noqa: D102
    def unique(self, life: Life, /) -> str: ...  # noqa: D102
    def spec(self, life: Life, /) -> FlowSpec: ...  # noqa: D102
    def newer(self, life: Life, /) -> FlowSpec: ...  # noqa: D102
    def late_limit(self, unit: str, /) -> int: ...  # noqa: D102
    def strike(self, life: Life, place: str, /) -> None: ...  # noqa: D102
    def between(self, life: Life, place: str, /) -> None: ...  # noqa: D102
    def ended(self, life: Life, /) -> None: ...  # noqa: D102


class Life:
    """A driver. skew: how wrong its wall clock is. over: whether it came to its end alive.

    began: the instant at which it began, or went over to a newer flow. gone: that of its death, or of the end of its
    last work; None before.
    era: that of the store at its beginning (`Checks`).
    late: whether it was told to stop before it had opened the flow, so that it began nothing.

    without: the outputs that its flow does not have. codes: the code of its outputs (`Codes`); newest: of the newer
    flow that it was given last. lacks: how many columns its flow lacked of sources at its beginning (`Gains`).
    binding: whether it is about to bind an epoch, perhaps of records that nobody has any more.

    command: what it does in place of running the flow, given the life.
    """

    def __init__(self, world: Surroundings, name: str, command: Callable[[Life], None] | None = None) -> None:
        self.world: Final = world
        self.name: Final = name
        self.skew = RIGHT
        self.dead = False
        self.began = world.clock.monotonic()
        self.era: Final = world.checks.era
        self.gone: float | None = None
        self.thaws = 0.0
        self.over = False
        self.stopping = False
        self.late = False
        self.binding = False
        self._lacks: frozenset[str] = frozenset()
        self.codes: dict[str, int] = {}
        self.newest: dict[str, int] = {}
        self.lacks: dict[str, int] = {}
        self.error: BaseException | None = None
        self.runner: Runner | None = None
        self._asked = 0
        self._closed: Runner | None = None
        self._renewing = False
        self._work: Final = command or Life._run
        world.scheduler.begin(name, self._live, owner=self)

    @property
    def without(self) -> frozenset[str]:
        """The outputs that it does not have: it may have dropped some since it began."""
        if self.runner is None:
            return self._lacks
        return frozenset(self.world.ground.spec.outputs.keys() - self.runner.flow.outputs.keys())

    @without.setter
    def without(self, lacks: frozenset[str]) -> None:
        self._lacks = lacks

    @property
    def declined(self) -> bool:
        """Whether it has refused a newer flow, and says so: it goes on as before."""
        return self.runner is not None and any("is not taken" in said for said in self.runner.board.news)

    def env(self) -> Env:
        """Return what its code knows of the world."""
        world = self.world
        return Env(
            now=self._now,
            monotonic=world.clock.monotonic,
            unique=lambda: world.unique(self),
            sleep=world.scheduler.sleep,
            point=self.meet,
            lock=world.scheduler.lock,
            connect=lambda _address: SimulatedStore(world.memory, lambda call: self.meet(f"store {call}")),
        )

    def _now(self) -> datetime:
        clock = self.world.clock
        return clock.now(skew=self.skew.at(clock.monotonic()))

    def meet(self, place: str) -> None:
        """Come to a place where the world may strike. Raises `Crash` when the driver dies, or has died."""
        if self.dead:
            raise Crash
        self.binding = self.binding or place == "before append bindings"
        self.world.strike(self, place)
        if self.dead:
            raise Crash

    def _between(self, place: str) -> None:
        """Come to the end of one thing that it does, before the next. Raises `Crash` as `meet` does."""
        self.world.between(self, place)
        if self.dead:
            raise Crash

    def spawn(self, work: Callable[[], Any]) -> Future[Any]:
        """Run a function beside the worker."""
        self._asked += 1
        future: Future[Any] = Future()

        def beside() -> None:
            done = at_once(work)
            if self.over:
                self.gone = self.world.clock.monotonic()
            error = done.exception()
            if isinstance(error, Crash):
                raise error
            self._between("work done")
            if error is None:
                future.set_result(done.result())
            else:
                future.set_exception(error)

        self.world.scheduler.begin(f"{self.name}.{self._asked}", beside, owner=self)
        return future

    def is_gone(self) -> bool:
        """Whether it came to its end, or died."""
        return self.over or self.dead

    def stop(self) -> None:
        """Ask it to stop after its current work, as a signal does."""
        self.stopping = True
        if self.runner is not None and not self.over:
            self.runner.stop()

    def _live(self) -> None:
        """Run the flow as a process does, and tell the world how that ended."""
        try:
            self._work(self)
        except (TidegaugeError, OSError) as error:
            self.error = error
            if self.runner is not None:
                self._close(self.runner)
        self.over = True
        self.world.ended(self)

    def _run(self) -> None:
        """Run the flow, and each newer one that the driver goes over to (`flow.running`)."""
        flow = self.world.spec(self)
        while True:
            runner = self._drive(flow)
            if runner.successor is None:
                return
            flow, self.codes, self.began = runner.successor, self.newest, self.world.clock.monotonic()

    def _drive(self, flow: FlowSpec) -> Runner:
        scheduler, lost = self.world.scheduler, list[Exception]()
        runner = self.runner = Runner(
            flow,
            LocalEngine(threads=0),
            env=self.env(),
            spawn=self.spawn,
            watch=partial(self.world.checks.shown, by=self.name),
            late_limit=self.world.late_limit,
            newer=lambda: self.world.newer(self),
        )
        self.world.opened.append(self)
        if self.stopping:
            self.late = True
            runner.stop()
        scheduler.begin(f"{self.name}.lease", lambda: self._renew(runner, lost), owner=self)
        for park in runner.course(None, lost):
            runner.step()
            self.binding = False
            self._between("worker step")
            self._rest(runner, park)
        self._close(runner)
        return runner

    def _rest(self, runner: Runner, park: float) -> None:
        """Let others run until the worker has something to do, for at most `park` seconds."""
        if not runner.idle:
            self.world.scheduler.pause()
            return
        now = self.world.clock.monotonic()
        due = now + (min(park, _ATTENTION) if self.stopping else park)
        if runner.next_timer is not None:
            due = min(due, max(runner.next_timer, now))
        self.world.scheduler.wait(lambda: not runner.idle, until=due)

    def _close(self, runner: Runner) -> None:
        """End as a process does: commits are seen through, and a renewal under way is waited for a second."""
        scheduler, self._closed = self.world.scheduler, runner
        scheduler.wait(lambda: not runner.busy)
        scheduler.wait(lambda: not self._renewing, until=self.world.clock.monotonic() + FAREWELL)
        runner.close()

    def _renew(self, runner: Runner, lost: list[Exception]) -> None:
        """Renew the lease, as the thread beside a run does (`flow.beside`)."""
        scheduler, clock = self.world.scheduler, self.world.clock
        while self._closed is not runner:
            scheduler.wait(lambda: self._closed is runner, until=clock.monotonic() + RENEW_EVERY)
            try:
                self._renewing = self._closed is not runner
                if self._renewing:
                    runner.lease.renew()
            except Transient as error:
                runner.missed.append(error)
            except Exception as error:  # noqa: BLE001 - raised by the run, which may be over
                lost.append(error)
                return
            finally:
                self._renewing = False


class Meeting:
    """How an adapter of a driver comes to the world, and waits in it."""

    def __init__(self, life: Life, name: str) -> None:
        self._life: Final = life
        self._name: Final = name

    def __call__(self, call: str, /) -> None:
        """Come to a call."""
        self._life.meet(f"{self._name}: {call}")

    def gone(self) -> bool:
        """Whether the driver is."""
        return self._life.is_gone()

    def wait(self, ready: Callable[[], bool], seconds: float | None) -> None:
        """Wait until something is so, at most for some seconds. Raises `Crash` when the driver is dead."""
        world = self._life.world
        if self._life.dead:  # and has caught the `Crash` that it was thrown out with
            raise Crash
        world.scheduler.wait(ready, until=None if seconds is None else world.clock.monotonic() + seconds)

    def spawn(self, work: Callable[[], Any]) -> Future[Any]:
        """Run a function beside the driver's worker."""
        return self._life.spawn(work)

    def begin(self, name: str, work: Callable[[], None]) -> None:
        """Run a function of a name beside the driver's worker. What it raises ends the world."""
        self._life.world.scheduler.begin(f"{self._life.name}.{name}", work, owner=self._life)
