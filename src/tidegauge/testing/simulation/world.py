"""A simulated world: one flow, its upstreams, its store, its tables, and one driver after the other.

The world carries out a plan. What survives drivers is in memory: a log for each source, a database, a lake. What a
driver meets on its way goes through `strike`, where the plan's faults are. When the plan's time is over nothing goes
wrong any more: then everything has to arrive within `PATIENCE`, and to be in order when the last driver has stopped.

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

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from random import Random
from string import ascii_uppercase
from typing import Any, Final

from tidegauge.errors.base import Definite, TidegaugeError, Transient
from tidegauge.errors.outputs import OutputBelowIncarnation, OutputBelowSince
from tidegauge.errors.simulation import SimulationFailed
from tidegauge.errors.sinks import StagedFileMissing
from tidegauge.errors.store import ClockBehind, ClocksApart, FlowAlreadyRunning, LeaseLost
from tidegauge.flow.dropping import without
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.portion import late_limit
from tidegauge.testing.simulation.acting import act_out
from tidegauge.testing.simulation.checks import Checks
from tidegauge.testing.simulation.clock import RIGHT, VirtualClock
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.harms import FileLaws
from tidegauge.testing.simulation.holding import Readers
from tidegauge.testing.simulation.leaks import nothing_leaked, threads
from tidegauge.testing.simulation.ledger import BindingLedger, Broken
from tidegauge.testing.simulation.life import Life, Meeting
from tidegauge.testing.simulation.outside import no_room, outside
from tidegauge.testing.simulation.plan import Act, Fault, Plan
from tidegauge.testing.simulation.restoring import misled
from tidegauge.testing.simulation.resuming import attend, resumable
from tidegauge.testing.simulation.scheduler import Scheduler, Standstill
from tidegauge.testing.simulation.shrink import FailedPlan
from tidegauge.testing.simulation.steering import Steering, have_heard, let_all_go_on, lift_limit
from tidegauge.testing.simulation.store import URL, Memory
from tidegauge.testing.simulation.tables import Lake
from tidegauge.testing.simulation.tables.counterpart import counterpart_of
from tidegauge.testing.simulation.trace import EventTrace, logged
from tidegauge.testing.simulation.writers import upstream_of

__all__ = ["PATIENCE", "World"]

PATIENCE: Final = 240.0
"""Virtual seconds after the last fault, within which everything is in every table: a pause of a minute, a lease that
has to run out, and the longest delay before something is tried again, each twice."""

_FROZEN: Final = 5.0
"""Seconds after which somebody starts another driver in place of one that does not move."""

_RECORD: Final = 20
"""Bytes of a line, on average."""

_OUTSIDE: Final = (FlowAlreadyRunning, LeaseLost, Transient, OSError)
_JUMPED: Final = (ClockBehind, ClocksApart)


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
        self.littered: Final[set[str]] = set()
        """The tables with a staged file that could not be removed."""
        self.threads: Final = threads()
        self.upstreams: Final = {
            name: upstream_of(ground.spec.name, name, source, self.clock, seed=plan.seed)
            for name, source in ground.spec.sources.items()
        }
        self.ledger: Final = BindingLedger(self.memory, self.upstreams)
        self.checks: Final = Checks(ground.spec, self.ledger, self.lake, self.upstreams)
        self.readers: Final = Readers(self)
        self.steering: Final = Steering(self.ledger, self.checks, self.clock, watched=plan.steered)
        self.file_laws: Final = FileLaws(self.checks, self.ledger, self.upstreams)
        self._armed: Final[dict[tuple[str, int], list[Fault]]] = {}
        for fault in plan.faults:
            self._armed.setdefault((fault.place, fault.nth), []).append(fault)
        self._met: Final[dict[str, int]] = {}
        self.struck: Final[list[Fault]] = []
        """The faults that have struck."""
        self.full_until = 0.0
        """Until when the store and the tables have no room."""
        self.healed = False
        """Whether nothing goes wrong any more."""
        self.closing = False
        self.attended = False
        """Whether somebody looks in now and then, and resumes sources that have failed."""
        self.left_behind: Final[set[str]] = set()
        """Sources of an incarnation that some output lacks records of, which somebody has to give up."""
        self._over = False
        self._lingering: set[str] = set()
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
        try:
            with logged(self.note):
                self.scheduler.run(lambda: self._over or self.parted or self.checks.broken is not None)
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
        return FailedPlan(self.plan, self.clock.monotonic(), tuple(self.struck))

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
        return later | self._lingering

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
        found, plans = {*self.checks.late.shut_out}, self.ground.spec.outputs
        for name in [act.on for act in self.missing]:
            if any(other not in (name, *found) and plans[other].source == plans[name].source for other in plans):
                found.add(name)
        return frozenset(found)

    def spec(self, life: Life, *, whole: bool = False) -> FlowSpec:
        """Return the flow as one driver has it: with this world's store, sources and tables.

        Sources that it shares it binds itself here: its tables are the same either way (`remap.store.following`).
        whole: with all outputs that it may have.
        """
        life.without = frozenset(self.checks.late.shut_out) if whole else self.without()
        try:
            spec = without(self.ground.again(), life.without)
        except TidegaugeError as error:
            self._unmade = error
            raise
        sources: dict[str, Any] = {}
        for name in spec.sources:
            sources[name] = self.upstreams[name].source(Meeting(life, name))
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
        """Let a driver come to a place: the plan's faults strike, or time passes, or others go first.

        Between `store commit` and what follows nobody else runs: they would wait for the transaction's lock.
        """
        now = self.clock.monotonic()
        self.trace.note(now, self.scheduler.running, place)
        self.checks.at(place, who=self.scheduler.running, without=life.without)
        if place == "store committed":
            self.file_laws.at_commit()
        self.steering.at(life, place)
        if place.endswith(": sweep"):
            self.swept[place.removesuffix(": sweep")] = len(self.drew)
        alone = place == "store commit"
        if not self.healed:
            for fault in self._due(place):
                if not (alone and fault.kind in ("pause", "slow")):
                    self._befall(life, fault)
            if now < self.full_until and (error := no_room(place)) is not None:
                raise error
        if not (alone or life.dead):
            self._let_others()

    def between(self, life: Life, place: str) -> None:
        """Let a driver be between two things that it does. It is there so often that only faults are in the trace."""
        if not self.healed:
            for fault in self._due(place):
                self.note(place)
                self._befall(life, fault)

    def _due(self, place: str) -> Sequence[Fault]:
        """Count that a driver came to a place, and return the faults that strike now."""
        count = self._met[place] = self._met.get(place, 0) + 1
        return self._armed.get((place, count), ())

    def _let_others(self) -> None:
        """Let others go first, or let a moment pass, as the seed has it."""
        drawn = 1.0 if self.plan.calm else self.random.random()
        if drawn < 0.02:
            self.scheduler.sleep(self.random.choice((0.001, 0.01, 0.1, 0.7)))
        elif drawn < 0.3:
            self.scheduler.pause()

    def _befall(self, life: Life, fault: Fault) -> None:
        """Let a fault strike. Raises the error that the driver gets."""
        self.struck.append(fault)
        error = outside(fault.kind, fault.place) if fault.kind in ("error", "lost") else None
        if fault.kind not in ("error", "lost") or error is not None:
            self.note(f"!! {fault.kind}", f"{fault.seconds:g} s" if fault.seconds else "")
        if fault.kind == "crash":
            life.dead, life.gone = True, self.clock.monotonic()
        elif fault.kind == "pause":
            life.thaws = self.clock.monotonic() + fault.seconds
            self.scheduler.pause()
        elif fault.kind == "slow":
            self.scheduler.sleep(fault.seconds)
        elif fault.kind == "torn":
            self.lake.tear(fault.place.removesuffix(": closed"), lambda job: self.drew[job] is life)
        if error is not None:
            table, _, call = fault.place.rpartition(": ")
            if call in ("abort", "discard"):
                self.littered.add(table)
            raise error

    def ended(self, life: Life) -> None:
        """Hear of a life that came to its end. Raises its error, where nothing from outside is to blame."""
        life.gone = self.clock.monotonic()
        error = life.error
        self.note("ended" if error is None else f"ended with {type(error).__name__}")
        if error is None or (isinstance(error, _OUTSIDE) and error is not self._unmade):
            return
        ailing = any(upstream.overtaken or upstream.spoilt for upstream in self.upstreams.values())
        if isinstance(error, OutputBelowSince) and self._is_shut_out(str(error.evidence["output"])):
            return
        if isinstance(error, OutputBelowIncarnation) and self.checks.late.names:
            self.left_behind.add(str(error.evidence["source"]))
            attend(self)
            return
        lossy = ailing and isinstance(error, Definite)
        jumped = isinstance(error, _JUMPED) and any(act.what in ("clock", "drift") for act in self.plan.acts)
        torn = isinstance(error, StagedFileMissing) and any(fault.kind == "torn" for fault in self.struck)
        if not (lossy or jumped or torn or misled(self, life)):
            raise error
        if self.ledger.failed().keys() == self.upstreams.keys() and not resumable(self):
            self.closing = True  # nothing is left to do: whoever restarts the flow finds the same

    def _is_shut_out(self, output: str) -> bool:
        """Whether the flow refuses an output with reason. It is run without it from now on."""
        if output in self.checks.late.names and 0 < self.lake.upper(output) <= self.ledger.since:
            self.checks.late.shut_out.add(output)
        return output in self.checks.late.shut_out

    def note(self, what: str, more: str = "") -> None:
        """Keep in the trace what came to pass."""
        self.trace.note(self.clock.monotonic(), self.scheduler.running, f"{what} {more}".rstrip())

    # Who drives it.

    def cease(self) -> None:
        """Let nothing go wrong from now on, and end when everything has arrived and the drivers have stopped."""
        self.note("from here on nothing goes wrong")
        self.healed, self.full_until = True, 0.0
        for upstream in self.upstreams.values():
            upstream.set_away(False)
        for life in self.lives:
            life.skew = RIGHT
        self.missing.clear()
        for life in self.living():
            if life.without - self.checks.late.shut_out:
                life.stop()
        self._end()

    def living(self) -> list[Life]:
        """Return the lives that go on."""
        return [life for life in self.lives if not life.is_gone()]

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
            soon = self.clock.monotonic() + _FROZEN
            if not any(life.thaws <= soon for life in self.living()):
                self.scheduler.sleep(self.random.choice((0.0, 0.1, 2.0)))
                self.start()
            self.scheduler.sleep(0.5)

    def _read(self) -> None:
        """Read all tables at one published epoch, now and then."""
        while not self._over:
            self.scheduler.sleep(self.plan.ends * self.random.uniform(0.05, 0.3))
            self.checks.read(self.random)

    def _end(self) -> None:
        """Wait until everything has arrived, and then for the drivers, which are told to stop."""
        if self.steering.watched:
            self._expect(lambda: not self.steering.under_way, "a command of somebody's comes to its end")
            lift_limit(self)
            self._expect(lambda: self._has_arrived(but=self.steering.paused), "a paused output holds nobody")
            let_all_go_on(self)
        law = "everything arrives once nothing goes wrong any more"
        self._expect(lambda: have_heard(self.living()) and self._has_arrived(), law)
        self.closing = True
        self._lingering = {life.name for life in self.lives if life.is_gone() and self.scheduler.count(life)}
        for life in self.lives:
            life.stop()
        self._expect(lambda: not self.living(), "a driver that is told to stop does")
        self.readers.clear()
        self._expect(lambda: not self.readers.here, "a reader lets go of what it holds")
        self._expect(
            lambda: not any(map(self.scheduler.count, self.lives)), "nothing of a driver goes on after its end"
        )
        self._over = True

    def _has_arrived(self, *, but: Collection[str] = ()) -> bool:
        settled = not (resumable(self) or self.left_behind or any(life.binding for life in self.living()))
        return settled and self.checks.caught_up(but=but) and self._is_driven()

    def _is_driven(self) -> bool:
        """Whether a driver has opened the flow, and so can end it in order; or nothing is left to do.

        The last one may have stopped while it could not give its lease back.
        """
        return self.closing or any(
            life.runner is not None and life.without <= self.checks.late.shut_out for life in self.living()
        )

    def _expect(self, so: Callable[[], bool], law: str) -> None:
        until = self.clock.monotonic() + PATIENCE
        while not so():
            if self.clock.monotonic() > until:
                raise Broken(law, self.checks.state())
            self.scheduler.sleep(0.5)
