"""The Spark engine: each job is one pass over its sources, on the session that the user already has.

Invariants. It uses DataFrames alone, so it is the same on a classic session and on Spark Connect, on one machine and
on a cluster. A session that it was given keeps its configuration, and decides no row (`copied.py`). Each split is
read once, however many outputs want it (again only when a task is tried again, or to find out which output's
expression failed). A job ends: with a result, or with `JobFailed`.

How a job runs follows from its steps (`sql.py` says which case holds, `hops.py` what runs in the tasks, `branches.py`
what goes through Spark between them, `standing.py` what of it Spark plans only once). If a row cannot be computed,
`narrowing.py` finds whose it is.

    Arrow functions alone       one hop: read and stage in one Python worker
    plain filter, select        the same: the task that reads runs them (`pushdown`)
    row-wise filter, select     two hops in one stage, all outputs in one projection between them
    anything else               rows kept by Spark (`keeping`), one branch for each such output

The hop that reads is given raw records where a source has Spark read them (`Framed`).

Functions and sources of the user reach the workers by cloudpickle. Those of an imported module are sent by name, so
code that loads a flow from a file registers it with `pyspark.cloudpickle.register_pickle_by_value`.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from tidegauge.engine.parts import Analysed, dealt, stream_schema, write_of
from tidegauge.engine.spark.assigned import Assigned, Assignment, assigned
from tidegauge.engine.spark.branches import Branch, ended_by, in_one_pass, own_branch, prefilter, reported
from tidegauge.engine.spark.catalog import SparkCatalog
from tidegauge.engine.spark.copied import Jobs, jobs_of
from tidegauge.engine.spark.errors import carried_error, lost, quiet, root_message, row_error
from tidegauge.engine.spark.framed import framed, missing, without
from tidegauge.engine.spark.hops import FEED, REPORT, TASK, pack_work, working
from tidegauge.engine.spark.keeping import ConnectServer
from tidegauge.engine.spark.listeners import SparkListeners
from tidegauge.engine.spark.narrowing import apart
from tidegauge.engine.spark.passing import first_frame
from tidegauge.engine.spark.session import create_session, interrupt, is_connect, pooled, slots, tagged
from tidegauge.engine.spark.sql import Prepared, prepare
from tidegauge.engine.spark.standing import Plans, digest, run
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.engine import JavaLost, JobFailed
from tidegauge.errors.sinks import MergeFailed
from tidegauge.job.arrow import in_arrow, is_arrow, leading
from tidegauge.job.functions import with_epoch
from tidegauge.job.plan import EpochJob, JobResult, OutputPlan, OutputWork, SourceRead
from tidegauge.job.report import Report, merge
from tidegauge.job.task import Feed, Write
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.working import Work, settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LATE_POOL", "SparkEngine"]

LATE_POOL: Final = "tidegauge-late"
"""The scheduler pool of jobs for late outputs."""

_JOBS_AT_ONCE: Final = 32
"""More than there are as a rule: one, and one for each source that cannot be read at present."""


def _arrow_only(plan: OutputPlan) -> bool:
    return all(map(is_arrow, plan.steps))


_Work: TypeAlias = tuple[OutputWork, Prepared]


class SparkEngine:
    """Runs jobs on a Spark session.

    Args:
        session: the session to use. Without one, the active session, or else a new one on `master`, created when
            first needed and stopped by `close`.
        master: the Spark master of a new session.
        pool: the scheduler pool of this engine's jobs, on a classic session. Those of late outputs have one of their
            own, `LATE_POOL`.
    """

    def __init__(
        self, session: SparkSession | None = None, *, master: str = "local[*]", pool: str | None = None
    ) -> None:
        self._server = ConnectServer()
        self._master: Final = master
        self._scheduler_pool: Final = pool
        self._own = False
        self._session_used: SparkSession | None = session
        self._jobs: Jobs | None = None
        self._slots: int | None = None
        self._plans: Final = Plans()
        self._prepared: dict[str, tuple[pa.Schema, Prepared]] = {}
        self._in_tasks: Final = Analysed(lambda plan, rows: in_arrow(leading(plan.steps), rows, output=plan.name))
        self._lock: Final = threading.RLock()
        self._tag: Final = f"tidegauge-{uuid.uuid4().hex}"
        self._threads: Final = ThreadPoolExecutor(_JOBS_AT_ONCE, thread_name_prefix="tidegauge-job")
        self._running: set[Future[Any]] = set()
        self._closed = False

    @classmethod
    def on(cls, session: SparkSession, server: ConnectServer) -> SparkEngine:
        """Return an engine on a session whose server is not Spark's."""
        engine = cls(session)
        engine._server, engine._slots = server, server.slots
        return engine

    @property
    def session(self) -> SparkSession:
        """The session that the engine was given, or found, or made. Raises `JavaMissing` when that cannot be."""
        with self._lock:
            if self._session_used is None:
                from pyspark.sql import SparkSession

                active = SparkSession.getActiveSession()
                self._own = active is None
                self._session_used = active or create_session(self._master)
            return self._session_used

    def _for_jobs(self) -> Jobs:
        """Return the session that the jobs run on, which is copied at the first need."""
        with self._lock:
            if self._jobs is None:
                self._jobs = jobs_of(self.session, spark=self._server.spark)
            return self._jobs

    @property
    def name(self) -> str:
        """The engine's name for people."""
        return "spark"

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        if not is_connect(self.session):
            return slots(self.session)  # executors come and go, and asking costs nothing
        with self._lock:
            if self._slots is None:
                self._slots = slots(self.session)
            return self._slots

    def schema(self, plan: OutputPlan, source_schema: pa.Schema) -> pa.Schema:
        """Return the columns that the plan's steps give, with `_epoch` last, or raise the error of a step."""
        if _arrow_only(plan):
            return with_epoch(self._in_tasks.of(plan, stream_schema(plan, source_schema))[1])
        return self._ready(plan, source_schema).schema

    def rowwise(self, plan: OutputPlan, source_schema: pa.Schema) -> bool:
        """Whether Spark plans the steps without an aggregate, a window, a function of a DataFrame, or the like."""
        if plan.ordered:
            return False
        return _arrow_only(plan) or self._ready(plan, source_schema).rowwise is not None

    def submit(self, job: EpochJob) -> Future[JobResult]:
        """Start a job beside the caller. The future's exception is `JobFailed`, which may be tried again."""
        future = self._threads.submit(self._perform, job)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    @property
    def catalog(self) -> SparkCatalog:
        """The catalog of the session."""
        return SparkCatalog(self.session)

    def events(self) -> SparkListeners | None:
        """Return what tells the listeners of a classic session of the user's; None on Connect and for one of ours."""
        session = self._session_used
        if session is None and "pyspark.sql" in sys.modules:
            from pyspark.sql import SparkSession

            with suppress(Exception):  # then the jobs will tell
                session = SparkSession.getActiveSession()
        return None if session is None or self._own or is_connect(session) else SparkListeners(session)

    def work(self, tasks: Sequence[Work]) -> list[list[StagedFile]]:
        """Do tasks as one Spark job. Raises `MergeFailed` when Spark does not finish it, `JavaLost`."""
        future = self._threads.submit(self._work, tasks)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future.result()

    def _work(self, tasks: Sequence[Work]) -> list[list[StagedFile]]:
        try:
            jobs = self._for_jobs()
            with tagged(jobs.session, self._tag), pooled(jobs.session, self._scheduler_pool), quiet():
                numbers = jobs.session.range(0, len(tasks), 1, len(tasks))
                hop = working([pack_work(task) for task in tasks])
                found = numbers.mapInArrow(hop, f"{TASK} long, {REPORT} string").toArrow()
        except Exception as error:
            if not self._closed and lost(error):
                raise JavaLost(first=0, last=0) from error
            detail = "the engine was closed" if self._closed else root_message(error)
            raise MergeFailed(tasks=len(tasks), detail=detail) from error
        said = dict(zip(found.column(TASK).to_pylist(), found.column(REPORT).to_pylist(), strict=True))
        return [settled(said[number]) for number in range(len(tasks))]

    def close(self) -> None:
        """Cancel running jobs, wait until they have ended, and stop the session if this engine made it."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        session, jobs = self._session_used, self._jobs
        while session is not None and (running := set(self._running)):
            interrupt(session if jobs is None else jobs.session, self._tag)
            wait(running, timeout=0.5)
        self._threads.shutdown(wait=True)
        if jobs is not None:
            jobs.close()
        if self._own and session is not None:
            with suppress(Exception):  # its JVM may be gone, and the error that ended the run is to be told
                session.stop()
            self._session_used = None

    def _ready(self, plan: OutputPlan, source_schema: pa.Schema) -> Prepared:
        """Return an output's steps, analysed once for as long as neither they nor the source's columns change."""
        with self._lock:
            known = self._prepared.get(plan.name)
            if known is not None and known[0].equals(source_schema) and known[1].plan == plan:
                return known[1]
            prepared = prepare(plan, source_schema, self._for_jobs().session)
            self._prepared[plan.name] = (source_schema, prepared)
            return prepared

    def _perform(self, job: EpochJob) -> JobResult:
        names = [work.plan.name for work in job.outputs]
        try:
            jobs = self._for_jobs()
            pool = LATE_POOL if job.late else self._scheduler_pool
            with tagged(jobs.session, self._tag), pooled(jobs.session, pool), quiet():
                result = merge(self._finish(job), names)
                jobs.check()
                return result
        except TidegaugeError:
            raise
        except Exception as error:
            if not self._closed and lost(error):
                raise JavaLost(first=job.lower, last=job.upper - 1) from error
            detail = "the engine was closed" if self._closed else root_message(error)
            raise JobFailed(first=job.lower, last=job.upper - 1, detail=detail) from error

    def _finish(self, job: EpochJob) -> list[Report]:
        """Run a job and return what its tasks report; where Spark cannot read a source, without that source."""
        if not any(read.splits for read in job.reads):
            return []
        try:
            return self._run(job)
        except Exception as error:
            if not isinstance(error, TidegaugeError) and self._server.spark and (gone := missing(job)):
                return [Report(failures=gone), *self._finish(without(job, {one.source for one in gone}))]
            if self._row_failure(job, error) is None:
                raise
            through = [work for work, _ in self._parted(job)[1]]
            return apart(job, through, self._run, self._row_failure)

    def _run(self, job: EpochJob) -> list[Report]:
        """Run a job in one pass and return what its tasks report."""
        if self._closed:
            raise JobFailed(first=job.lower, last=job.upper - 1, detail="the engine was closed")
        direct, others = self._parted(job)
        feeds, branches = self._branches(others)
        general = [branch for branch in branches if branch.prepared.rowwise is None]
        jobs = self._for_jobs()
        theirs = [read for read in job.reads if self._server.spark and framed(read) is not None]
        mine = tuple(read for read in job.reads if read.name not in {one.name for one in theirs})
        work = assigned(job.id, mine, parts := self._dealt(job, mine) if any(read.splits for read in mine) else [])

        def read(found: Assignment) -> DataFrame:
            return first_frame(jobs.session, job, direct, feeds, work=found, tasks=len(parts), others=theirs)

        def rest(base: DataFrame, found: Assignment) -> DataFrame:
            return in_one_pass(base, branches, found, late=job.late) if branches else base

        if general:
            return self._with_branches(read(work), branches, general, work, late=job.late)
        if jobs.pinned and not theirs:
            lasting = all(branch.prepared.lasting for branch in branches)
            plan = digest(work, direct, feeds, branches if lasting else (), late=job.late)
            if (reports := run(jobs.session, self._plans, plan, work, read, rest, whole=lasting)) is not None:
                return reports
        return reported(rest(read(work), work))

    def _dealt(self, job: EpochJob, reads: tuple[SourceRead, ...]) -> list[list[SourceRead]]:
        """Return the reads of each task. Of a job that leaves room no task waits for a slot: it would be no room."""
        return dealt(reads, tasks=job.slots(self.parallelism) * (1 if job.beside else 4))

    def _parted(self, job: EpochJob) -> tuple[list[Write], list[_Work]]:
        """Return the work that the reading hop does by itself, and the outputs whose rows go through Spark."""
        reads = {read.name: read for read in job.reads}
        direct: list[Write] = []
        others: list[_Work] = []
        for work in job.outputs:
            plan, read = work.plan, reads[work.plan.source]
            if _arrow_only(plan):
                rows = stream_schema(plan, read.schema)
                direct.append(write_of(work, self._in_tasks.of(plan, rows)[0], rows))
            elif (ready := self._ready(plan, read.schema)).alone is None:
                others.append((work, ready))
            else:
                direct.append(write_of(work, ready.alone, ready.given))
        return direct, others

    def _branches(self, works: list[_Work]) -> tuple[list[Feed], list[Branch]]:
        """Return what the reading hop hands on, and the outputs that take it. Outputs of one stream share a feed."""
        feeds: list[Feed] = []
        branches: list[Branch] = []
        for work, ready in works:
            plan = work.plan
            feed = Feed(plan.source, plan.channel, ready.leading, ready.made, ready.feed, (plan.name,))
            index = next((i for i, known in enumerate(feeds) if replace(known, outputs=(plan.name,)) == feed), None)
            if index is None:
                index = len(feeds)
                feeds.append(feed)
            else:
                feeds[index] = replace(feed, outputs=(*feeds[index].outputs, plan.name))
            branches.append(Branch(ready, f"{FEED}{index}", write_of(work, ready.trailing, ready.rows)))
        filtered = [replace(feed, prefilter=prefilter(branches, f"{FEED}{i}")) for i, feed in enumerate(feeds)]
        return filtered, branches

    def _with_branches(
        self, base: DataFrame, branches: list[Branch], general: list[Branch], work: Assigned, *, late: bool
    ) -> list[Report]:
        """Run outputs in branches of their own over rows that Spark keeps, so that the sources are read once.

        The rows are kept by a first action, which also tells whether the sources could be read; else two branches on
        two executors could both find nothing kept, and read.
        """
        with self._server.keep(base) as base:
            reports = reported(base.where(f"{REPORT} IS NOT NULL").select(REPORT))
            ended = {name for report in reports for name in ended_by(report, branches)}
            left = [branch for branch in branches if branch.write.name not in ended]
            frames = [own_branch(base, branch, work, late=late) for branch in left if branch in general]
            in_one = [branch for branch in left if branch not in general]
            if in_one:
                silent = base.where(f"{REPORT} IS NULL")
                frames.append(in_one_pass(silent, in_one, work, late=late))
            if frames:
                reports += reported(reduce(lambda one, other: one.unionByName(other), frames))
            return reports

    def _row_failure(self, job: EpochJob, error: Exception) -> TidegaugeError | str | None:
        """Return the error in the data if that is why a job failed, or None if the engine failed."""
        _, works = self._parted(job)
        if not works or isinstance(error, TidegaugeError):
            return None
        python = any(ready.rowwise is None for _, ready in works)
        return carried_error(error) or row_error(error, python=python)
