"""The local engine: the tasks of a job in threads of this process, without Java.

Invariant: it stages what the Spark engine would stage for the same job. It runs Arrow functions only, and says which
step needs Spark.

>>> engine = LocalEngine(threads=0)
>>> engine.name, engine.parallelism
('local', 1)
>>> engine.close()
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

import pyarrow as pa

from tidegauge.errors.engine import JobFailed
from tidegauge.errors.flow import InvalidArgument
from tidegauge.pipeline.engine.parts import arrow_functions, arrow_write, dealt, stream_schema
from tidegauge.pipeline.functions import result_schema, said, with_epoch
from tidegauge.pipeline.job import EpochJob, JobResult, OutputPlan
from tidegauge.pipeline.report import Report, merge
from tidegauge.pipeline.task import Read, Write, run

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
        """Return the columns that the plan's functions give, with `_epoch` last. Raises `NeedsSpark`."""
        rows = result_schema(arrow_functions(plan), stream_schema(plan, source_schema), output=plan.name)
        return with_epoch(rows)

    def submit(self, job: EpochJob) -> Future[JobResult]:
        """Start the job's tasks. The future fails with `JobFailed` when the engine is closed meanwhile."""
        reads = {read.name: read for read in job.reads}
        writes = [arrow_write(work, reads[work.plan.source]) for work in job.outputs]
        names = [work.plan.name for work in job.outputs]
        done: Future[JobResult] = Future()
        done.set_running_or_notify_cancel()
        tasks = [
            partial(self._task, part, writes, job, number)
            for number, part in enumerate(dealt(job.reads, tasks=self.parallelism * 4))
        ]
        if not self._threads:
            futures = [_finished(task) for task in tasks]
        else:
            pool = ThreadPoolExecutor(self._threads, thread_name_prefix="tidegauge-task")
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

    def _task(self, reads: list[Read], writes: list[Write], job: EpochJob, number: int) -> Report:
        report = Report()
        for _ in run(reads, writes, [], report, job=job.id, task=number, halted=self._closed.is_set):
            pass
        if self._closed.is_set():
            raise _closed(job)
        return report


def _closed(job: EpochJob) -> JobFailed:
    return JobFailed(first=job.lower, last=job.upper - 1, detail="the engine was closed")


def _finished(task: Callable[[], Report]) -> Future[Report]:
    future: Future[Report] = Future()
    try:
        future.set_result(task())
    except BaseException as error:  # noqa: BLE001 - it is handed on in the future
        future.set_exception(error)
    return future
