"""The runner: opens the durable state, renders the flow into a worker, and steps it until there is reason to stop.

Invariant: nothing that the runner holds in memory matters. Killed at any instant, the next run starts from the store
and the tables and comes to the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Final, cast

import pyarrow as pa

from tidegauge.dataflow import Holder
from tidegauge.env import Env, Spawn
from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.dataflow import OperatorFailed
from tidegauge.errors.flow import EmptyFlow
from tidegauge.flow.adding import NewerFlow
from tidegauge.flow.away import WAITED_FOR, Absent, Outage
from tidegauge.flow.beside import renewing
from tidegauge.flow.board import Board
from tidegauge.flow.cataloguing import Registering
from tidegauge.flow.deciding import Deciding
from tidegauge.flow.dropping import Drops, drop_decided, without
from tidegauge.flow.ending import Course, Outcome, Until, Why, nothing_more, why_over
from tidegauge.flow.following import catch_up, take_up
from tidegauge.flow.instance import Instance, RunSetup
from tidegauge.flow.marking import Marks
from tidegauge.flow.opening import opened
from tidegauge.flow.overtaking import AHEAD, Overtaking
from tidegauge.flow.polling import Polling
from tidegauge.flow.publication import Publications
from tidegauge.flow.registering import register
from tidegauge.flow.spec import FlowSpec
from tidegauge.flow.underway import UnderWay
from tidegauge.job.perform import OutputSchemas
from tidegauge.job.plan import Engine
from tidegauge.job.portion import late_limit as real_late_limit
from tidegauge.remap.policy import in_batch
from tidegauge.remap.round import Requests
from tidegauge.remap.store import Lease, LeaseHolder, ResumeOutput, SetRate, Store
from tidegauge.sinks.protocol import Table

__all__ = ["LAST_WORDS", "RENEW_EVERY", "Outcome", "Runner"]

RENEW_EVERY = 5.0
"""Seconds between two renewals of the lease."""

LAST_WORDS = 15.0
"""Seconds for which a run waits in the end until upstream has taken what it is told."""


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
        schemas = OutputSchemas(engine)
        for plan in flow.outputs.values():
            if (declared := flow.sources[plan.source].schema) is not None:
                schemas.of(plan, declared)
        self.flow = replace(flow, policy=in_batch(flow.policy)) if batch else flow
        self._policy: Final = flow.policy
        self._newer: Final = NewerFlow(newer)
        self.successor: FlowSpec | None = None
        """The flow to go on with, once this run has stopped for that."""
        self.env = env
        self.engine = engine
        self.stopping = self._anew = False
        self.missed: Final[list[Transient]] = []
        """Why renewals of the lease were missed, as far as the run has not looked at it yet."""
        self.requests = requests or Requests(flow.name)
        self._weighed: object = None
        """What the board said when it was last weighed: that the run goes on."""
        self._news: dict[str, None] = {}
        """What the flow is told once: which of its outputs are new, changed or gone."""
        self._columns: Final[dict[str, pa.Schema]] = {}
        """What looks have found in this run of the columns of sources that infer them."""
        self._commits: Final = UnderWay(spawn)
        self._told: Final = UnderWay(spawn)
        """Acknowledgements."""
        polling = Polling(self.flow, env)
        self._registering = Registering(self.flow, engine, env=env, spawn=spawn)
        self._resources, self._present = ExitStack(), ExitStack()
        try:
            self._store = Store.open(flow.store, env=env)
            self._resources.callback(self._store.close)
            self.lease: Lease = self._store.acquire(flow.name, holder=LeaseHolder.current(env))
            self._resources.callback(_give_back, self.lease)
            self._resources.callback(self.requests.close)  # not before the lease is ours: another run may have them
            self._resources.callback(self._present.close)
            self._resources.callback(polling.close)
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
            self._overtaking = Overtaking(self.lease, vanished=self._absent.vanished)
            self._drops = Drops(self._store, self.lease, env=env)
            self._setup: Final = RunSetup(
                engine=engine,
                env=env,
                watch=watch,
                service=not batch,
                late_limit=late_limit,
                schemas=schemas,
                requests=self.requests,
                publications=Publications(),
                polling=polling,
                absent=self._absent,
                deciding=self._deciding,
                behind={},
                owner=self._owner,
                spawn=spawn,
                commit=self._commits.begin,
                tell=self._told.begin,
                anew=self._leave,
                columned=self._columned,
            )
            self._begin({})
        except BaseException:
            self._resources.close()
            raise

    @property
    def board(self) -> Board:
        """What the present instance shows of the flow."""
        return self._instance.board

    @property
    def _tables(self) -> Mapping[str, Table]:
        """The open tables, but for those of outputs that were dropped since."""
        return {name: table for name, table in self._instance.tables.items() if name in self.flow.outputs}

    def _begin(self, tables: Mapping[str, Table]) -> None:
        """Open the flow, and render it from its present state. tables: those of the instance before."""
        self._present.close()
        self._absent.seen(tables)  # before opening: a table that holds less by then is away
        if self._deciding.dropping:
            self._drop()
        flow = self.flow
        self._left = False
        if self._owner is not None:
            catch_up(flow, self._store, self.lease, self._owner)
        found = opened(
            flow,
            self._store,
            self.lease,
            known=self._absent.errors,
            least=self._absent.least,
            now=self.env.now(),
            columns=self._setup.schemas.known,
            found=self._columns,
        )
        for name in found.decisions.added & flow.outputs.keys():
            self._store.decide(flow.name, ResumeOutput(name, "add"))
        self._news |= dict.fromkeys(found.news)
        self._instance = Instance(found, self._setup, news=tuple(self._news), begins=not self.stopping)
        self._present.callback(self._instance.close)
        self._outage.show(self.board)

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
            self._outage.show(self.board)

    def _step(self, park: float) -> None:
        if self._outage.waiting:
            if not self._commits.wait(park):
                return
            if not self._outage.back():
                self._outage.show(self.board)
                if park:
                    self.env.sleep(park)
                return
            self._anew = True
        if self._anew:
            if self._commits.wait(park):
                self._anew = False
                self._begin(self._tables)
            return
        if self._absent.away and not self.stopping and self._absent.back(self.board.stalled):
            self._anew = True
            return
        try:
            self._instance.worker.step_or_park(park)
        except OperatorFailed as failed:
            error = failed.__cause__
            if isinstance(error, AHEAD) and self._overtaking.explains(error, bound=self.board.upper):
                self._anew = True  # not before the commits under way are over: opening looks at the tables
            elif isinstance(error, TidegaugeError):
                raise error from error.__cause__
            else:
                raise
        else:
            if self.env.monotonic() >= self._instance.stalls.due:
                self._instance.stalls.tell(self.board)
            self._deciding.look(self.board)
            self._registering.look(self.board)
            self._marks.look(self.board, self._tables)
            if self._deciding.lacking and not self.stopping:
                self._go_over()
            # Once the commits under way are over:
            self._anew = not self.stopping and (self._left or self._to_change())
            if not self.stopping and self._drops.due:
                self._anew |= self._drop()  # nothing is under way for it since it was tried first
            if self._outage.away is not None and not self._outage.lasts(at=self._reached):
                self._outage.show(self.board)

    def _drop(self) -> bool:
        """Carry out the decided drops; whether any output is gone for it. Raises `EmptyFlow` for the last."""
        gone = self._drops.carry_out(self.flow)
        self._absent.forget(gone)
        self.flow = without(self.flow, gone)
        if not self.flow.outputs:
            raise EmptyFlow(flow=self.flow.name)
        return bool(gone)

    def _go_over(self) -> None:
        """Look whether there is a newer flow that has the outputs which this one lacks."""
        flow = replace(self.flow, policy=self._policy)
        found = self._newer.look(flow, self._deciding.known, self._deciding.lacking, tell=self.board.tell)
        if found is not None:
            self.stop()
            self.successor = found

    def _to_change(self) -> bool:
        """Whether an output is to be dropped, or a table replaced that the instance knows nothing of, and is in no
        job."""
        dropping = (self._deciding.dropping - self._drops.hindered) & self.flow.outputs.keys()
        busy = {name for need in self.board.jobs for name in need.outputs}
        replacing = self._deciding.replacing & self._tables.keys()
        return not (dropping | replacing) <= busy

    @property
    def _reached(self) -> tuple[int, int]:
        return self.board.upper, self.board.published

    def stop(self) -> None:
        """Bind and stage nothing more. The steps that follow finish the current work."""
        self.successor = None  # whoever says so later means the end
        self._cease()

    def _cease(self) -> None:
        self.stopping = True
        self._instance.cease()

    def ended(self, until: Until) -> Why | None:
        """Say why the run is over, or None while it is not."""
        if self._outage.waiting:
            return "stopped" if self.stopping else None
        away = bool(self._absent.away)
        if self._absent.away.keys() - self._deciding.pausing.outputs and not self.stopping:
            return None
        spent = self.stopping and self._instance.worker.idle and not self.busy
        course = Course(until=until, stopping=self.stopping, spent=spent, away=away)
        weighed = course, self.board, self.board.changes
        if weighed == self._weighed:
            return None
        self._weighed = weighed
        over = nothing_more(self.board, required=self.flow.required)
        if self.stopping or over:
            self._instance.backlog.gather_no_more()
        return why_over(self.board, course, over=over)

    def run(self, until: Until) -> Outcome:
        """Step until the run is over. Raises the first definite error of a source or an output, at the end."""
        with renewing(self.lease, every=RENEW_EVERY, missed=self.missed.append) as lost, self._commits.seen_through():
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
        if self.stopping and self.busy:
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
            if not self._instance.worker.idle:
                yield 0.0
            elif (self._instance.telling or not self._told.over) and self.env.monotonic() < until:
                yield 0.05
            else:
                return

    @property
    def idle(self) -> bool:
        """Whether a step would do nothing before time passes, or something beside the worker ends."""
        return self._outage.waiting or self._anew or self._instance.worker.idle

    @property
    def next_timer(self) -> float | None:
        """When a step has something to do although nothing else has happened, by the monotonic clock."""
        return None if self._outage.waiting or self._anew else self._instance.worker.next_timer

    @property
    def busy(self) -> bool:
        """Whether a commit is under way, which is seen through before the store is closed."""
        return not self._commits.over

    def explain_stuck(self) -> tuple[Holder, ...]:
        """Return who holds a frontier of the flow back; see `Worker.explain_stuck`."""
        return self._instance.worker.explain_stuck()

    def close(self) -> None:
        """Release the lease and close the store. Operators are simply abandoned: that releases no capability."""
        self._cease()
        self._resources.close()


def _give_back(lease: Lease) -> None:
    """Release a lease. Where the store cannot be written it runs out by itself, and what stopped the flow is told."""
    with suppress(TidegaugeError):
        lease.release()
