"""A simulated world: one flow, its upstreams, its store, its tables, and one driver after the other.

The world carries out a plan. What survives drivers is in memory: a log for each source, a database, a lake. What a
driver meets on its way goes through `strike`, where the plan's faults are. When the plan's time is over nothing goes
wrong any more: then everything has to arrive before long (`arriving`), and to be in order when the last driver has
stopped.

Invariant: a world reads no clock of this machine, draws no random number but from its seed, and starts no thread.

>>> import tidegauge as tg
>>> from tidegauge.testing.simulation.plan import planned
>>> def make_flow():
...     flow = tg.Dataflow("shop", store="sqlite:///shop.db", tick=1.0)
...     flow.sink("lake", flow.source("orders", tg.GeneratorSource(columns="id long")), tg.ParquetSink("lake"))
...     return flow
>>> ground = Ground.of(make_flow)
>>> world = World(ground, planned(1, ground.facts, kinds=()))
>>> world.run()
>>> len(world.lives), world.lake.rows("lake").num_rows > 0
(1, True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from string import ascii_uppercase
from typing import Any, Final

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.simulation import SimulationFailed
from tidegauge.flow.dropping import without
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.portion import late_limit
from tidegauge.sources.union import UnionSource
from tidegauge.testing.simulation.acting import act_out
from tidegauge.testing.simulation.attended import AttendedLaws
from tidegauge.testing.simulation.blame import excused
from tidegauge.testing.simulation.checks import Checks
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.codes import Codes, spec_with
from tidegauge.testing.simulation.gaining import Gains
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.harms import FileLaws
from tidegauge.testing.simulation.holding import Readers
from tidegauge.testing.simulation.leaks import nothing_leaked, threads
from tidegauge.testing.simulation.ledger import BindingLedger, Broken
from tidegauge.testing.simulation.life import Life, Meeting
from tidegauge.testing.simulation.plan import Act, Plan
from tidegauge.testing.simulation.remaking import mind
from tidegauge.testing.simulation.resuming import resumable
from tidegauge.testing.simulation.scheduler import Scheduler, Standstill
from tidegauge.testing.simulation.shrink import FailedPlan
from tidegauge.testing.simulation.steering import Steering
from tidegauge.testing.simulation.store import URL, Memory
from tidegauge.testing.simulation.striking import Strikes
from tidegauge.testing.simulation.tables import Lake
from tidegauge.testing.simulation.tables.counterpart import counterpart_of
from tidegauge.testing.simulation.tables.filling import filled_streams
from tidegauge.testing.simulation.trace import EventTrace, logged
from tidegauge.testing.simulation.writers import upstream_of
from tidegauge.testing.simulation.writers.union import UnionUpstream

__all__ = ["World"]

_FROZEN: Final = 5.0
"""Seconds after which somebody starts another driver in place of one that does not move."""

_RECORD: Final = 20
"""Bytes of a line, on average."""


class World:
    """A world that carries out a plan. `run` it once."""

    def __init__(self, ground: Ground, plan: Plan) -> None:
        self.ground: Final = ground
        self.plan: Final = plan
        self.clock: Final = VirtualClock()
        self.random: Final = Random(f"schedule {plan.seed}")  # noqa: S311 - nothing is secret here
        self.scheduler: Final = Scheduler(self.random, self.clock)
        self.memory: Final = Memory()
        self.lake: Final = Lake()
        self.trace: Final = EventTrace()
        self.lives: Final[list[Life]] = []
        self.opened: Final[list[Life]] = []
        """Those that had the lease and opened the flow, in that order."""
        self.drew: Final[dict[str, Life]] = {}
        """Who drew which identifier, by the half of it that names a job."""
        self.swept: Final[dict[str, int]] = {}
        """How many identifiers had been drawn when a table was swept last."""
        self.threads: Final = threads()
        written = {
            name: upstream_of(
                ground.spec.name, name, source, self.clock, seed=plan.seed, filling=filled_streams(ground.spec, name)
            )
            for name, source in ground.spec.sources.items()
            if not isinstance(source, UnionSource)
        }
        self.unions: Final = {
            name: UnionUpstream(source, written, failed=lambda: self.ledger.failed())
            for name, source in ground.spec.sources.items()
            if isinstance(source, UnionSource)
        }
        self.upstreams: Final[Mapping[str, Any]] = {**written, **self.unions}
        self.gains: Final = Gains(plan.acts, ground.facts.gaining)
        self.altered: Final = dict.fromkeys(act.on for act in plan.acts if act.what == "alter")
        """The databases whose tables get columns."""
        self.ledger: Final = BindingLedger(self.memory, self.upstreams, gaining=(*self.gains.lacks, *self.altered))
        self.codes: Final = Codes(ground.spec, self.ledger, self.lake)
        self.checks: Final = Checks(
            ground.spec,
            self.ledger,
            self.lake,
            self.upstreams,
            made_by=self.codes.plan,
            coming=self.gains.undeclared(ground.spec),
        )
        self.readers: Final = Readers(self)
        self.steering: Final = Steering(self)
        self.attended_laws: Final = AttendedLaws(self.checks, self.ledger, written.values())
        self.file_laws: Final = FileLaws(self.checks, self.ledger, self.upstreams)
        self.strikes: Final = Strikes(self, plan.faults)
        self.healed = False
        """Whether nothing goes wrong any more."""
        self.closing = False
        self.attended = False
        """Whether somebody looks in now and then, and resumes sources that have failed."""
        self.left_behind: Final[set[str]] = set()
        """Sources of an incarnation that some output lacks records of, which somebody has to give up."""
        self.over = False
        self.lingering: set[str] = set()
        """The lives that were doing something after their end when the drivers were told to stop."""
        self._unmade: TidegaugeError | None = None
        """Why the flow could not be had anew, or not the same one."""
        self.missing: Final[list[Act]] = []
        """Why the flow is run without some outputs at present."""
        self.down = False
        """Whether somebody keeps the flow stopped."""
        self.parted = False
        """Whether its tables have two histories, so that somebody has to say which is right."""

    def run(self) -> None:
        """Carry out the plan.

        Raises `SimulationFailed` for a law that does not hold, and what `Ground.again` raises.
        """
        for name, work in (("world", lambda: act_out(self)), ("supervisor", self._supervise), ("reader", self._read)):
            self.scheduler.begin(name, work)
        if any(act.what == "remake" for act in self.plan.acts):
            self.scheduler.begin("operator", lambda: mind(self))
        try:
            with logged(self.note):
                self.scheduler.run(lambda: self.over or self.parted or self.checks.broken is not None)
                if self.parted and self.checks.broken is None:
                    return
                last = self._last()
                self.checks.at_the_end(orderly=last is not None, after=self._after(last))
                self.file_laws.at_the_end()
                if last is not None:
                    nothing_leaked(self, last)
        except Broken as broken:
            raise self._failed(broken.law, broken.detail) from broken
        except Standstill as stuck:
            raise self._failed("everything comes to an end", str(stuck)) from stuck
        except Exception as error:
            if error is self._unmade:
                raise
            detail = f"{type(error).__name__}: {error}"
            raise self._failed("a driver ends only for what comes from outside", detail) from error
        finally:
            self.scheduler.close()

    def failed_plan(self) -> FailedPlan:
        """Return what came to pass of the plan until now, when a law broke."""
        return FailedPlan(self.plan, self.clock.monotonic(), tuple(self.strikes.struck))

    def _last(self) -> Life | None:
        """Return the last driver that drove the flow, if it stopped as it was told and none died after it."""
        last = self.opened[-1] if self.opened else None
        if last is None or last.error is not None or last.gone is None:
            return None
        return None if any(life.dead and (life.gone or 0.0) >= last.gone for life in self.lives) else last

    def _after(self, last: Life | None) -> set[str]:
        """Return the lives that still did something when the last driver stopped, or was told to."""
        end = None if last is None else last.gone
        later = {life.name for life in self.lives if end is not None and (life.gone or 0.0) > end}
        return later | self.lingering

    def _failed(self, law: str, detail: str) -> SimulationFailed:
        return SimulationFailed(seed=self.plan.seed, law=law, detail=detail)

    # What a driver is given.

    def unique(self, life: Life) -> str:
        """Return a fresh identifier, and remember who has it."""
        name = f"{len(self.drew) + 1:032x}"
        self.drew[name[16:]] = life
        return name

    def without(self) -> frozenset[str]:
        """Return the outputs that the flow is run without at present. Each source keeps one."""
        found, plans = {*self._barred()}, self.ground.spec.outputs
        for name in [act.on for act in self.missing]:
            if any(other not in (name, *found) and plans[other].source == plans[name].source for other in plans):
                found.add(name)
        return frozenset(found)

    def _barred(self) -> frozenset[str]:
        """Return the outputs that no driver may have at present."""
        return frozenset(self.checks.late.shut_out) | self.gains.undeclared(self.ground.spec)

    def spec(self, life: Life, *, whole: bool = False) -> FlowSpec:
        """Return the flow as one driver has it: with this world's store, sources and tables.

        Sources that it shares it binds itself here: its tables are the same either way (`remap.store.following`).
        whole: with all outputs that it may have.
        """
        life.without = self._barred() if whole else self.without()
        life.codes, life.lacks = dict(self.codes.now), dict(self.gains.lacks)
        return self.flow_of(life, life.without, life.codes)

    def newer(self, life: Life) -> FlowSpec:
        """Return the present flow, for a driver that has an older one."""
        life.newest = dict(self.codes.now)
        return self.flow_of(life, self.without(), life.newest)

    def flow_of(self, life: Life, gone: frozenset[str], codes: dict[str, int]) -> FlowSpec:
        """Return the flow without some outputs and with this code, in this world's places."""
        try:
            spec = without(spec_with(self.ground.again(), codes), gone)
        except TidegaugeError as error:
            self._unmade = error
            raise
        sources: dict[str, Any] = {}
        for name in spec.sources:
            if name in self.unions:  # after its inputs, which have been declared before it
                sources[name] = self.unions[name].source_of(sources)
            else:
                sources[name] = self.gains.source(name, self.upstreams[name].source(Meeting(life, name)))
        outputs = {
            name: replace(plan, sink=counterpart_of(plan.sink, self.lake, name, Meeting(life, name)))
            for name, plan in spec.outputs.items()
        }
        return replace(spec, store=URL, sources=sources, outputs=outputs, following=None)

    def late_limit(self, unit: str) -> int:
        """Return how many positions of a source a job of late outputs takes, by what they count."""
        return self.plan.unit * (_RECORD if unit == "bytes" else 1) or late_limit(unit)

    # What happens to it.

    def strike(self, life: Life, place: str) -> None:
        """Let a driver come to a place: the laws are looked at, and then the plan's faults strike."""
        self.trace.note(self.clock.monotonic(), self.scheduler.running, place)
        name, _, call = place.rpartition(": ")
        first = call == "committed" and len(self.lake.tables[name].commits) == 1
        self.checks.at(place, who=self.scheduler.running, without=life.without, first=first)
        if place == "store committed":
            self.file_laws.at_commit()
        self.attended_laws.at(place)
        self.steering.at(life, name, call)
        if call == "sweep":
            self.swept[name] = len(self.drew)
        self.strikes.at(life, place)

    def between(self, life: Life, place: str) -> None:
        """Let a driver be between two things that it does."""
        self.strikes.between(life, place)

    def ended(self, life: Life) -> None:
        """Hear of a life that came to its end. Raises its error, where nothing from outside is to blame."""
        life.gone = self.clock.monotonic()
        error = life.error
        self.note("ended" if error is None else f"ended with {type(error).__name__}")
        if error is not None and (error is self._unmade or not excused(self, life)):
            raise error
        done = error is not None and self.checks.over()
        if done and not (self.down or self.checks.older or resumable(self) or self.codes.waiting()):
            self.closing = True  # nothing is left to do: whoever restarts the flow finds the same

    def note(self, what: str, more: str = "") -> None:
        """Keep in the trace what came to pass."""
        self.trace.note(self.clock.monotonic(), self.scheduler.running, f"{what} {more}".rstrip())

    # Who drives it.

    def living(self) -> list[Life]:
        """Return the lives that go on."""
        return [life for life in self.lives if not life.is_gone()]

    def take_in(self) -> None:
        """Stop the drivers that lack outputs, so that the next one has all; but those that are to go over to them."""
        added = self.steering.added
        for life in self.living():
            if life.without - self.checks.late.shut_out - (added if not life.declined else set()):
                life.stop()

    def start(self) -> None:
        """Start a driver, unless somebody keeps the flow stopped or the world comes to its end."""
        if not (self.closing or self.down):  # which may have come while somebody was about to
            self.live(None)

    def live(self, command: Callable[[Life], None] | None) -> Life:
        """Start a driver, or a command of somebody's."""
        number = len(self.lives)
        name = ascii_uppercase[number] if number < len(ascii_uppercase) else f"Z{number}"
        self.lives.append(Life(self, name, command))
        return self.lives[-1]

    def _supervise(self) -> None:
        """See to it that a driver runs. One that does not move gets a successor."""
        while not self.closing:
            if self.healed:
                self.take_in()
            soon = self.clock.monotonic() + _FROZEN
            if not any(life.thaws <= soon for life in self.living()):
                self.scheduler.sleep(self.random.choice((0.0, 0.1, 2.0)))
                self.start()
            self.scheduler.sleep(0.5)

    def _read(self) -> None:
        """Read all tables at one published epoch, now and then."""
        while not self.over:
            self.scheduler.sleep(self.plan.ends * self.random.uniform(0.05, 0.3))
            self.checks.read(self.random)
