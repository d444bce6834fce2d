"""The Sail engine: jobs as on Spark, on a Spark Connect server in Rust inside this process. Experimental.

Invariant: a flow that it runs has the rows that it has on Spark. What Sail computes otherwise, or may, is refused
before anything runs: a step by `steps`, which leave to Sail only measured expressions; an output's columns if Sail
gives them other types. Rows that several outputs want are kept by the flow (`spilled`), because Sail keeps none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tidegauge.engine.parts import stream_schema
from tidegauge.engine.sail.server import Sail
from tidegauge.engine.sail.steps import for_sail
from tidegauge.engine.spark.engine import SparkEngine
from tidegauge.engine.spark.keeping import ConnectServer, spilled
from tidegauge.errors.sail import NotOnSail
from tidegauge.job.functions import with_epoch, without_epoch
from tidegauge.job.plan import EpochJob, JobResult, OutputPlan, Step, Transform
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.working import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SailEngine"]


class SailEngine:
    """Runs jobs on Sail, from when it is made until it is closed. Raises `SailMissing`, `SailBesideSpark`."""

    def __init__(self) -> None:
        self._sail: Final = Sail()
        server = ConnectServer(spark=False, keep=spilled, slots=os.cpu_count() or 1)
        self._spark: Final = SparkEngine.on(self._sail.session, server)
        self._lock: Final = threading.RLock()
        self._known: Final[dict[str, tuple[OutputPlan, pa.Schema, OutputPlan]]] = {}

    @property
    def name(self) -> str:
        """The engine's name for people."""
        return "sail"

    @property
    def session(self) -> SparkSession:
        """The session on Sail."""
        return self._sail.session

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        return self._spark.parallelism

    def schema(self, plan: OutputPlan, source_schema: pa.Schema) -> pa.Schema:
        """Return the columns that the plan's steps give, with `_epoch` last. Raises `NotOnSail`."""
        return self._spark.schema(self._for_sail(plan, source_schema), source_schema)

    def rowwise(self, plan: OutputPlan, source_schema: pa.Schema) -> bool:  # noqa: ARG002 - the seam's shape
        """Whether no step sees other rows: nothing that is trusted does in a filter or a select."""
        return not plan.ordered and not any(isinstance(step, Transform) for step in plan.steps)

    def submit(self, job: EpochJob) -> Future[JobResult]:
        """Start a job beside the caller. The future's exception is `JobFailed`, which may be tried again."""
        reads = {read.name: read.schema for read in job.reads}
        works = [replace(work, plan=self._for_sail(work.plan, reads[work.plan.source])) for work in job.outputs]
        return self._spark.submit(replace(job, outputs=tuple(works)))

    def work(self, tasks: Sequence[Work]) -> list[list[StagedFile]]:
        """Do tasks in threads of this process. Raises `MergeFailed`."""
        return self._spark.work(tasks)

    def close(self) -> None:
        """Wait until running jobs have ended, and stop Sail."""
        try:
            self._spark.close()
        finally:
            self._sail.stop()

    def _for_sail(self, plan: OutputPlan, source_schema: pa.Schema) -> OutputPlan:
        """Return a plan as Sail is given it, made once for as long as neither it nor the source's columns change."""
        with self._lock:
            known = self._known.get(plan.name)
            if known is not None and known[0] == plan and known[1].equals(source_schema):
                return known[2]

            def framed(steps: Sequence[Step]) -> pa.Schema:
                return without_epoch(self._spark.schema(replace(plan, steps=tuple(steps)), source_schema))

            stream = stream_schema(plan, source_schema)
            steps, columns = for_sail(plan.steps, stream, output=plan.name, framed=framed)
            made = replace(plan, steps=steps)
            found = self._spark.schema(made, source_schema)
            if not found.equals(with_epoch(columns)):
                what = f"it gives the columns {_said(found)}, where Spark gives {_said(columns)}"
                raise NotOnSail(output=plan.name, step="(all)", what=what)
            self._known[plan.name] = (plan, source_schema, made)
            return made


def _said(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
