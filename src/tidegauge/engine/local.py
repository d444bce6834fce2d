"""The local engine: the tasks of a job in threads of this process, without Java.

Invariant: it stages what the Spark engine would stage for the same job. It runs Arrow functions and plain SQL
(`plain.py`), and says which step needs Spark.

>>> engine = LocalEngine(threads=0)
>>> engine.name, engine.parallelism
('local', 1)
>>> engine.close()
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from typing import Final

import pyarrow as pa

from tidegauge.engine.parts import Analysed, dealt, stream_schema, write_of
from tidegauge.engine.plain.steps import without_spark
from tidegauge.env import at_once
from tidegauge.errors.engine import JobFailed
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sinks import MergeFailed
from tidegauge.job.functions import said, with_epoch
from tidegauge.job.plan import EpochJob, JobResult, OutputPlan, SourceRead
from tidegauge.job.report import Report, merge
from tidegauge.job.task import Write, run
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.working import Work, alone

__all__ = ["LocalEngine"]


class LocalEngine:
    """Runs each job in at most `threads` threads of its own, by default one for each processor.

    So a job whose source does not answer keeps no other one from running. With 0 threads a job runs inside `submit`,
    whose future is done when it returns: nothing is left to chance.
    """

    def __init__(self, *, threads: int | None = None) -> None:
        if threads is not None and (not isinstance(threads, int) or threads < 0):
            raise InvalidArgument(parameter="threads", value=threads, expected="a number of threads, 0 for none")
        self._threads: Final = (os.cpu_count() or 1) if threads is None else threads
        self._pools: Final[set[ThreadPoolExecutor]] = set()
        self._steps: Final = Analysed(lambda plan, rows: without_spark(plan.steps, rows, output=plan.name))
        self._lock: Final = threading.Lock()
        self._closed: Final = threading.Event()

    @property
    def name(self) -> str:
        """The engine's name for people."""
        return "local"

    @property
    def parallelism(self) -> int:
        """How many tasks of a job run at once."""
        return max(1, self._threads)

    def schema(self, plan: OutputPlan, source_schema: pa.Schema) -> pa.Schema:
        """Return the columns that the plan's steps give, with `_epoch` last. Raises `NeedsSpark`."""
        return with_epoch(self._steps.of(plan, stream_schema(plan, source_schema))[1])

    def rowwise(self, plan: OutputPlan, source_schema: pa.Schema) -> bool:  # noqa: ARG002 - the seam's shape
        """Whether no step sees other rows. All but `Dedupe` that do need Spark."""
        return not plan.ordered

    def submit(self, job: EpochJob) -> Future[JobResult]:
        """Start the job's tasks. The future fails with `JobFailed` when the engine is closed meanwhile."""
        most = self.parallelism * 4
        reads = {read.name: read for read in job.reads}
        streams = [stream_schema(work.plan, reads[work.plan.source].schema) for work in job.outputs]
        writes = [
            write_of(work, self._steps.of(work.plan, rows)[0], rows)
            for work, rows in zip(job.outputs, streams, strict=True)
        ]
        names = [work.plan.name for work in job.outputs]
        done: Future[JobResult] = Future()
        done.set_running_or_notify_cancel()
        tasks = [
            partial(self._task, part, writes, job, number) for number, part in enumerate(dealt(job.reads, tasks=most))
        ]
        if not self._threads:
            futures = [at_once(task) for task in tasks]
        else:
            pool = ThreadPoolExecutor(job.slots(self._threads), thread_name_prefix="tidegauge-task")
            with self._lock:
                if self._closed.is_set():
                    done.set_exception(_closed(job))
                    return done
                self._pools.add(pool)
                futures = [pool.submit(task) for task in tasks]
            pool.shutdown(wait=False)  # its threads end with its tasks
            done.add_done_callback(lambda _done: self._over(pool))
        left = [len(futures)]
        lock = threading.Lock()

        def settle(_future: Future[Report]) -> None:
            with lock:
                left[0] -= 1
                if left[0]:
                    return
            try:
                done.set_result(merge([future.result() for future in futures], names))
            except JobFailed as error:
                done.set_exception(error)
            except BaseException as error:  # noqa: BLE001 - whatever ended a task is what the job failed of
                failed = JobFailed(first=job.lower, last=job.upper - 1, detail=said(error, where=True))
                failed.__cause__ = error
                done.set_exception(failed)

        for future in futures:
            future.add_done_callback(settle)
        return done

    def work(self, tasks: Sequence[Work]) -> list[list[StagedFile]]:
        """Do tasks in at most as many threads as a job has. Raises `MergeFailed` when the engine is closed meanwhile.

        A task that runs is seen through: what it holds is bounded, and so is what it takes.
        """
        if not self._threads or len(tasks) == 1:
            return alone(tasks)
        pool = ThreadPoolExecutor(min(self._threads, len(tasks)), thread_name_prefix="tidegauge-merge")
        with self._lock:
            if self._closed.is_set():
                raise MergeFailed(tasks=len(tasks), detail="the engine was closed")
            self._pools.add(pool)
            futures = [pool.submit(task) for task in tasks]
        try:
            return [future.result() for future in futures]
        except CancelledError as error:
            raise MergeFailed(tasks=len(tasks), detail="the engine was closed") from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)  # no task writes after its merge was given up
            self._over(pool)

    def close(self) -> None:
        """Stop running jobs after their current batch and wait for their threads."""
        with self._lock:
            self._closed.set()
            pools = list(self._pools)
        for pool in pools:
            pool.shutdown(wait=True, cancel_futures=True)

    def _over(self, pool: ThreadPoolExecutor) -> None:
        with self._lock:
            self._pools.discard(pool)

    def _task(self, reads: list[SourceRead], writes: list[Write], job: EpochJob, number: int) -> Report:
        report = Report()
        for _ in run(reads, writes, [], report, job=job.id, task=number, halted=self._closed.is_set):
            pass
        if self._closed.is_set():
            raise _closed(job)
        return report


def _closed(job: EpochJob) -> JobFailed:
    return JobFailed(first=job.lower, last=job.upper - 1, detail="the engine was closed")
