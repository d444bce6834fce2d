"""The runner: opens the durable state, renders the flow into a worker, and steps it until there is reason to stop.

Invariant: nothing that the runner holds in memory matters. Killed at any instant, the next run starts from the store
and the tables and comes to the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Any, Final, cast

import pyarrow as pa

from tidegauge.dataflow import Holder, Worker
from tidegauge.env import Env, Spawn
from tidegauge.errors.base import TidegaugeError, Transient, brief
from tidegauge.errors.dataflow import OperatorFailed
from tidegauge.errors.flow import EmptyFlow
from tidegauge.errors.outputs import OutputLeftBehind
from tidegauge.errors.running import SpanConflict
from tidegauge.errors.sinks import TableUpperMismatch, TableWentBack
from tidegauge.flow.adding import successor
from tidegauge.flow.away import WAITED_FOR, Absent, Away, Outage
from tidegauge.flow.belonging import present
from tidegauge.flow.beside import renewing
from tidegauge.flow.board import Board
from tidegauge.flow.cataloguing import Registering
from tidegauge.flow.deciding import Deciding
from tidegauge.flow.dropping import drop_decided, without
from tidegauge.flow.ending import Course, Until, Why, nothing_more, why_over
from tidegauge.flow.following import catch_up, take_up
from tidegauge.flow.marking import Marks
from tidegauge.flow.opening import opened, register
from tidegauge.flow.polling import Polling
from tidegauge.flow.publication import Publications
from tidegauge.flow.pushing import Pushing
from tidegauge.flow.render import render
from tidegauge.flow.spec import FlowSpec
from tidegauge.flow.stalls import Stalls
from tidegauge.job.perform import OutputSchemas, performer
from tidegauge.job.plan import Engine
from tidegauge.job.portion import late_limit as real_late_limit
from tidegauge.remap.policy import in_batch
from tidegauge.remap.round import Requests
from tidegauge.remap.store import Lease, LeaseHolder, ResumeOutput, SetRate, Store
from tidegauge.sinks.backlog import Backlog
from tidegauge.sinks.protocol import Finishing, Table, job_mark
from tidegauge.sinks.working import Working

__all__ = ["LAST_WORDS", "RENEW_EVERY", "Outcome", "Runner"]

RENEW_EVERY = 5.0
"""Seconds between two renewals of the lease."""

LAST_WORDS = 15.0
"""Seconds for which a run waits in the end until upstream has taken what it is told."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a run stopped: every epoch before `published` is in every live output. `why` is for people."""

    flow: str
    published: int
    why: Why


class Runner:
    """A flow under way. `step` it, or `run` it to its end; `close` it in any case.

    batch: whether the run ends when it has caught up, so that every look at the sources is a tick. requests: what
    takes the ticks that are asked for. rate: how many rows a second are read for late outputs, from now on.
    late_limit: how many positions of a source one of their jobs takes, by what they count; simulated worlds take few.
    """

    def __init__(
        self,
        flow: FlowSpec,
        engine: Engine,
        *,
        env: Env,
        spawn: Spawn,
        watch: Callable[[Board], None] | None = None,
        batch: bool = False,
        requests: Requests | None = None,
        rate: int | None = None,
        late_limit: Callable[[str], int] = real_late_limit,
        newer: Callable[[], FlowSpec] | None = None,
    ) -> None:
        if not flow.outputs:
            raise EmptyFlow(flow=flow.name)
        self._schemas: Final = OutputSchemas(engine)
        for plan in flow.outputs.values():
            declared = flow.sources[plan.source].schema
            if declared is not None:
                self._schemas.of(plan, declared)
        self.flow = replace(flow, policy=in_batch(flow.policy)) if batch else flow
        self._service: Final = not batch
        self._policy: Final = flow.policy
        self._newer: Final = newer
        self._weighed_newer: object = frozenset[str]()
        self.successor: FlowSpec | None = None
        """The flow to go on with, once this run has stopped for that."""
        self.env = env
        self.engine = engine
        self.stopping = self._anew = False
        self.missed: Final[list[Transient]] = []
        """Why renewals of the lease were missed, as far as the run has not looked at it yet."""
        self.requests = requests or Requests(flow.name)
        self._spawn = spawn
        self._watch = watch
        self._late_limit = late_limit
        self._overtaken: set[str] = set()
        self._undropped: dict[str, Away] = {}
        """Outputs that could not be dropped, and when that is tried again."""
        self._going = Event()
        """Set while the present worker may begin anything new."""
        self._weighed: object = None
        """What the board said when it was last weighed: that the run goes on."""
        self._news: dict[str, None] = {}
        """What the flow is told once: which of its outputs are new, changed or gone."""
        self._columns: Final[dict[str, pa.Schema]] = {}
        """What looks have found in this run of the columns of sources that infer them."""
        self._tables: Mapping[str, Table] = {}
        self._commits: Final[list[Future[Any]]] = []
        self._told: Final[list[Future[Any]]] = []
        """Acknowledgements under way."""
        self._publications: Final = Publications()
        self._behind: Final[dict[str, OutputLeftBehind]] = {}
        self._pushing = self._pushed()
        self._polling: Final = Polling(self.flow, env)
        self._registering = Registering(self.flow, engine, env=env, spawn=spawn)
        self._resources = ExitStack()
        try:
            self._store = Store.open(flow.store, env=env)
            self._resources.callback(self._store.close)
            self.lease: Lease = self._store.acquire(flow.name, holder=LeaseHolder.current(env))
            self._resources.callback(_give_back, self.lease)
            self._resources.callback(self.requests.close)  # not before the lease is ours: another run may have them
            self._resources.callback(self._end_tables)
            self._resources.callback(lambda: self._pushing.close())
            self._resources.callback(self._polling.close)
            if self.lease.decisions:
                drop_decided(self.flow, self._store, self.lease)  # which begin anew: they are in the flow
            self._owner = take_up(self.flow, self._store)
            register(self.flow, self._store, self.lease, self._owner.incarnation if self._owner else "")
            if rate is not None:
                self._store.decide(flow.name, SetRate(rate))
            self._deciding = Deciding(self.flow, self._store, self.lease, env=env, spawn=spawn)
            self._absent = Absent(self.flow, self.lease, env=env, spawn=spawn)
            self._marks = Marks(self.flow, self.lease.incarnation, env=env, spawn=spawn)
            self._resources.callback(self._marks.end)
            self._outage = Outage(lambda: self._store.recognise(self.lease), env=env, spawn=spawn)
            self._begin()
        except BaseException:
            self._resources.close()
            raise

    def _begin(self) -> None:
        """Open the flow, and render it from its present state.

        What an earlier worker held is abandoned, which releases no capability; of a job of its that is under way
        nobody commits anything.
        """
        self._pushing.close()
        self._end_tables()
        if self._deciding.dropping:
            self._drop()
        flow, env = self.flow, self.env
        self._left = False
        if self._owner is not None:
            catch_up(flow, self._store, self.lease, self._owner)
        self._absent.seen(self._tables)  # before opening: a table that holds less by then is away
        found = opened(
            flow,
            self._store,
            self.lease,
            known=self._absent.errors,
            least=self._absent.least,
            now=env.now(),
            columns=self._schemas.known,
            found=self._columns,
        )
        for name in found.decisions.added & flow.outputs.keys():
            self._store.decide(flow.name, ResumeOutput(name, "add"))
        self._tables = found.tables
        for table in found.tables.values():
            if isinstance(table, Working):
                table.work_by(self.engine.work)
        self._news |= dict.fromkeys(found.news)
        self._stalls = Stalls(found.stalls, self._store, self.lease, env=env)
        mark = job_mark(self.lease.incarnation)
        cadences = {plan.name: plan.cadence for plan in flow.outputs.values() if plan.cadence is not None}
        self._backlog = Backlog(env.monotonic, cadences if self._service else {})
        pausing, pacing = self._deciding.begin(flow, found.decisions, late=found.late)
        self.board = Board(
            found.timeline,
            units={name: source.unit for name, source in flow.sources.items()},
            plans=flow.outputs,
            origins={name: flow.origins(name) for name in flow.outputs},
            uppers={**dict.fromkeys(found.away, found.published), **found.uppers},
            published=found.published,
            failed=found.failed,
            retried=found.outstanding,
            fills=found.fills,
            taking=found.taking,
            replacing=found.replacing,
            paused=self._deciding.paused,
            news=tuple(self._news),
            env=env,
            redaction=self.lease.redaction,
            publications=self._publications,
            changed=self._watch,
        )
        self._absent.note(found.away, found.held, found.filling, self.board.stalled)
        self._deciding.follow(self.board)
        self._show_outage()
        worker = self._worker = Worker(monotonic=env.monotonic)
        self._going.clear()  # an earlier worker's threads may ask still
        self._going = Event()
        if not self.stopping:
            self._going.set()
        self._pushing = self._pushed()
        render(
            found,
            worker,
            perform=performer(
                flow.outputs,
                flow.sources,
                self.engine,
                env,
                mark=mark,
                passed=found.passed,
                tables=found.tables,
                schemas=self._schemas,
                pieces=self._pushing.pieces,
                stamps={name: start.stamp for name, start in found.starts.items()},
                present=partial(present, flow, self.lease.incarnation),
                since=found.since,
            ),
            board=self.board,
            env=env,
            spawn=self._spawn,
            commit=partial(self._spawned, self._commits),
            tell=partial(self._spawned, self._told),
            ticking=self._going.is_set,
            requests=self.requests,
            pushing=self._pushing,
            polling=self._polling,
            pausing=pausing,
            backlog=self._backlog,
            pacing=pacing,
            service=self._service,
            late_limit=self._late_limit,
            owner=self._owner,
            anew=self._leave,
            columned=self._columned,
            rowwise=frozenset(
                name
                for name in found.fills
                if (schema := found.timeline.schema(flow.outputs[name].source)) is not None
                and self._schemas.rowwise(flow.outputs[name], schema)
            ),
        )

    def _pushed(self) -> Pushing:
        return Pushing(self.flow, behind=self._behind, anew=self._leave)

    def _leave(self) -> None:
        """Take in that the flow is to be opened anew: something came along that opening looks at."""
        self._left = True

    def _columned(self, source: str, columns: pa.Schema) -> None:
        """Take in the columns that records of a source have: to settle them, the flow is opened anew."""
        self._columns[source] = columns
        self._left = True

    def step(self, *, park: float = 0.0) -> None:
        """Run what can run; when nothing can, wait at most `park` seconds for something to happen.

        If an operator raised an error with its own code, that error is raised unchanged, unless it is an `outage`.
        """
        try:
            self._step(park)
        except WAITED_FOR as error:
            self._outage.begin(error, at=self._reached)
            self._show_outage()

    def _step(self, park: float) -> None:
        if self._outage.waiting:
            if wait(self._commits, timeout=park).not_done:
                return
            if not self._outage.back():
                self._show_outage()
                if park:
                    self.env.sleep(park)
                return
            self._anew = True
        if self._anew:
            if not wait(self._commits, timeout=park).not_done:
                self._anew = False
                self._begin()
            return
        if self._absent.away and not self.stopping and self._absent.back(self.board.stalled):
            self._anew = True
            return
        try:
            self._worker.step_or_park(park)
        except OperatorFailed as failed:
            error = failed.__cause__
            if isinstance(error, TableUpperMismatch | SpanConflict) and self._was_overtaken(error):
                self._anew = True  # not before the commits under way are over: opening looks at the tables
            elif isinstance(error, TableUpperMismatch) and error.evidence["actual"] < error.evidence["expected"]:
                self._absent.vanished(self._output_of(error), TableWentBack(**error.evidence))
                self._anew = True
            elif isinstance(error, TidegaugeError):
                raise error from error.__cause__
            else:
                raise
        else:
            if self.env.monotonic() >= self._stalls.due:
                self._stalls.tell(self.board)
            self._deciding.look(self.board)
            self._registering.look(self.board)
            self._marks.look(self.board, self._tables)
            if self._deciding.lacking and not self.stopping:
                self._go_over()
            # Once the commits under way are over:
            self._anew = not self.stopping and (self._left or self._to_drop() or self._to_replace())
            if not self.stopping and any(away.due(self.env.monotonic()) for away in self._undropped.values()):
                self._anew |= self._drop()  # nothing is under way for it since it was tried first
            if self._outage.away is not None and not self._outage.lasts(at=self._reached):
                self._show_outage()

    def _drop(self) -> bool:
        """Carry out the decided drops; whether any output is gone for it. Raises `EmptyFlow` for the last."""
        now, tried = self.env.monotonic(), drop_decided(self.flow, self._store, self.lease)
        gone = frozenset(name for name, error in tried.items() if error is None)
        for name in gone:
            self._undropped.pop(name, None)
        for name, error in tried.items():
            if error is not None:
                before = self._undropped.get(name)
                self._undropped[name] = before.again(error, now=now) if before else Away.first(error, now=now)
        self._absent.forget(gone)
        self._tables = {name: table for name, table in self._tables.items() if name not in gone}
        self.flow = without(self.flow, gone)
        if not self.flow.outputs:
            raise EmptyFlow(flow=self.flow.name)
        return bool(gone)

    def _go_over(self) -> None:
        """Look, once for each decision, whether there is a newer flow that has the outputs which this one lacks."""
        lacking, decided = self._deciding.lacking, self._deciding.known
        if self._newer is None or (decided.number, lacking) == self._weighed_newer:
            return
        self._weighed_newer = decided.number, lacking
        replacing = {name: decided.replacements[name] for name in lacking & decided.replacements.keys()}
        try:
            flow = replace(self.flow, policy=self._policy)
            found = successor(flow, self._newer(), adding=decided.added & lacking, replacing=replacing)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the newer flow, this one goes on
            found = f"it cannot be loaded: {brief(error)}"
        if isinstance(found, str):
            names = ", ".join(sorted(lacking))
            self.board.tell(f"the newer flow for {names} is not taken: {found}; this run goes on as before")
            return
        self.stop()
        self.successor = found

    def _to_drop(self) -> bool:
        """Whether an output is to be dropped for which no job is under way."""
        wanted = (self._deciding.dropping - self._undropped.keys()) & self.flow.outputs.keys()
        return bool(wanted) and not wanted <= {name for need in self.board.jobs for name in need.outputs}

    def _to_replace(self) -> bool:
        """Whether a table is to be replaced, which the worker knows nothing of, and for which no job is under way."""
        wanted = self._deciding.replacing & self._tables.keys()
        return bool(wanted) and not wanted <= {name for need in self.board.jobs for name in need.outputs}

    @property
    def _reached(self) -> tuple[int, int]:
        return self.board.upper, self.board.published

    def _show_outage(self) -> None:
        away = self._outage.away
        if away is None:
            self.board.store_back()
        else:
            self.board.store_away(away.error, since=self._outage.since, attempt=away.attempt)

    def _spawned(self, known: list[Future[Any]], work: Callable[[], Any]) -> Future[Any]:
        """Run something beside the worker, and know of it until it ends."""
        future = self._spawn(work)
        known[:] = [*(one for one in known if not one.done()), future]
        return future

    @contextmanager
    def _seen_through(self) -> Iterator[None]:
        """Wait in the end for the commits under way; not when somebody has interrupted them (see `persist`)."""
        try:
            yield
        except Exception:
            wait(self._commits)
            raise
        wait(self._commits)

    def _was_overtaken(self, error: TableUpperMismatch | SpanConflict) -> bool:
        """Whether a table was found ahead because a driver before this one came to its commit only now.

        It may have slept between its last look at the lease and the commit. What it committed is what this driver
        would have: epochs that are bound, of the same output of the same store, which opening the table compares. So
        the table's upper is the truth, and the flow goes on from it. A driver has one commit of an output under way;
        a table that is found ahead again is changed by somebody else. Raises `LeaseLost` when it is this driver that
        slept.
        """
        output = self._output_of(error)
        expected, actual = error.evidence.get("expected", error.evidence.get("lower")), error.evidence["actual"]
        self.lease.renew()
        if output in self._overtaken or not expected < actual <= self.board.upper:
            return False
        self._overtaken.add(output)
        return True

    def _output_of(self, error: TableUpperMismatch | SpanConflict) -> str:
        return str(error.evidence["output"]).removeprefix(f"{self.flow.name}:")

    def stop(self) -> None:
        """Bind and stage nothing more. The steps that follow finish the current work."""
        self.successor = None  # whoever says so later means the end
        self._cease()

    def _cease(self) -> None:
        self.stopping = True
        self._going.clear()

    def ended(self, until: Until) -> Why | None:
        """Say why the run is over, or None while it is not."""
        if self._outage.waiting:
            return "stopped" if self.stopping else None
        away = bool(self._absent.away)
        if self._absent.away.keys() - self._deciding.pausing.outputs and not self.stopping:
            return None
        spent = self.stopping and self._worker.idle and not self.busy
        course = Course(until=until, stopping=self.stopping, spent=spent, away=away)
        weighed = course, self.board, self.board.changes
        if weighed == self._weighed:
            return None
        self._weighed = weighed
        over = nothing_more(self.board, required=self.flow.required)
        if self.stopping or over:
            self._backlog.gather_no_more()
        return why_over(self.board, course, over=over)

    def run(self, until: Until) -> Outcome:
        """Step until the run is over. Raises the first definite error of a source or an output, at the end."""
        with renewing(self.lease, every=RENEW_EVERY, missed=self.missed.append) as lost, self._seen_through():
            course = self.course(until, lost)
            while True:
                try:
                    park = next(course)
                except StopIteration as over:
                    return cast("Outcome", over.value)
                self.step(park=park)

    def course(self, until: Until, lost: Sequence[Exception]) -> Generator[float, None, Outcome]:
        """Say before each step for how long it may park, and return where the run stopped.

        lost: why the lease is not ours any more, as soon as that is known. Raises as `run` does.
        """
        while (why := self.ended(until)) is None:
            if lost:
                raise lost[0]
            if self.missed and isinstance(error := self.missed.pop(), WAITED_FOR) and not self._outage.waiting:
                self._outage.begin(error, at=self._reached)  # there may be nothing to bind, to run into it
            if self.stopping and not self.board.stopping:
                self.board.stop()
            if until and self._absent.away and (missing := self._absent.missing(self.board)) is not None:
                raise missing
            yield 0.2
        if self.stopping and not all(commit.done() for commit in self._commits):
            self.board.stop()  # they are waited for, and may be on a mount that does not answer
        while not self.stopping and self._registering.missing(self.board):
            yield 0.05
        unnamed = None if self.stopping else self._registering.error
        yield from self._last_marks()
        yield from self._last_words()
        if self.board.errors:
            raise self.board.errors[0]
        if unnamed is not None:
            raise unnamed
        return Outcome(self.flow.name, self.board.published, why)

    def _last_marks(self) -> Iterator[float]:
        """Have the tables show their published states. A catalog may not answer: then the next run sees to it."""
        self._cease()
        until = self.env.monotonic() + LAST_WORDS
        while self._marks.missing(self.board, self._tables) and self.env.monotonic() < until:
            if self._outage.waiting:
                return
            yield 0.05

    def _last_words(self) -> Iterator[float]:
        """Acknowledge the last publication, which nobody waits for while the flow goes on. Once, as ever.

        Upstream may not answer: then it is told by the next run, which costs nothing but its room.
        """
        self._cease()
        until = self.env.monotonic() + LAST_WORDS
        while not self._outage.waiting:
            if not self._worker.idle:
                yield 0.0
            elif self._telling and self.env.monotonic() < until:
                yield 0.05
            else:
                return

    @property
    def idle(self) -> bool:
        """Whether a step would do nothing before time passes, or something beside the worker ends."""
        return self._outage.waiting or self._anew or self._worker.idle

    @property
    def next_timer(self) -> float | None:
        """When a step has something to do although nothing else has happened, by the monotonic clock."""
        return None if self._outage.waiting or self._anew else self._worker.next_timer

    @property
    def busy(self) -> bool:
        """Whether a commit is under way, which is seen through before the store is closed."""
        return not all(commit.done() for commit in self._commits)

    @property
    def _telling(self) -> bool:
        return any(one.busy for one in self._pushing.readers.values()) or not all(one.done() for one in self._told)

    def explain_stuck(self) -> tuple[Holder, ...]:
        """Return who holds a frontier of the flow back; see `Worker.explain_stuck`."""
        return self._worker.explain_stuck()

    def _end_tables(self) -> None:
        """Wait for what the tables do beside their commits."""
        for table in self._tables.values():
            if isinstance(table, Finishing):
                table.end()

    def close(self) -> None:
        """Release the lease and close the store. Operators are simply abandoned: that releases no capability."""
        self._cease()
        self._resources.close()


def _give_back(lease: Lease) -> None:
    """Release a lease. Where the store cannot be written it runs out by itself, and what stopped the flow is told."""
    with suppress(TidegaugeError):
        lease.release()
