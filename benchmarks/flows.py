"""Our side: the same flow for every benchmark, and a driver in a thread, watched through the runner's board."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute

import tidegauge as tg
from benchmarks.data import COLUMNS, LARGE, PAGES
from tidegauge.dsl.dataflow import Dataflow
from tidegauge.engine.plain.steps import without_spark
from tidegauge.env import Env
from tidegauge.errors.flow import NeedsSpark
from tidegauge.flow.board import Board
from tidegauge.flow.runner import Runner
from tidegauge.flow.running import threads
from tidegauge.job.plan import Engine, EpochJob, Filter, JobResult, OutputPlan, Select
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.working import Work
from tidegauge.sources.protocol import Source

__all__ = ["TICK", "Driver", "Recording", "Steps", "flow_of", "large", "orders_in", "pages"]

TICK: Final = 0.01
"""Of a flow whose epochs are timed. Over a backlog a flow has the tick that flows have by default."""

Steps: TypeAlias = Literal["SQL", "SQL in the JVM", "Arrow"]
"""In what filters and selections are written. The JVM runs what is not plain, be it for one literal's suffix."""

_SQL: Final = (LARGE, PAGES)
_IN_THE_JVM: Final = (
    (LARGE[0], ("id", "user", "amount * 1.2D AS gross")),
    (PAGES[0], ("id | 0 AS id", "at", "page")),
)
_ORDERS: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("page", pa.string()),
    ]
)
"""`COLUMNS`, as Arrow has them."""

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see


def orders_in(folder: Path) -> tg.FileSource:
    """Return our source of the orders in the files of a folder."""
    return tg.FileSource(f"{folder}/*.jsonl", format=tg.Json(COLUMNS))


def flow_of(
    source: Source,
    target: Path,
    *,
    outputs: int,
    sink: Literal["delta", "parquet"] = "delta",
    raw: bool = False,
    steps: Steps = "SQL",
    tick: float = 0.5,
) -> Dataflow:
    """Return the flow whose peer are the queries of `streaming`: raw rows, and two filters with selections in turns.

    raw: the other outputs hold all rows too, so that no row passes through the JVM. steps: the same filters and
    selections, written in another way.
    """
    made = tg.Dataflow("bench", store=f"sqlite:///{target}/store.db", tick=tick)
    orders = made.source("orders", source)
    if steps == "Arrow":
        some = [orders.map_batches(large), orders.map_batches(pages)]
    else:
        written = _SQL if steps == "SQL" else _IN_THE_JVM
        if {_plain(condition, columns) for condition, columns in written} != {steps == "SQL"}:
            raise RuntimeError(f"these are no longer steps of {steps!r}: {written}")
        some = [orders.filter(condition).select(*columns) for condition, columns in written]
    others = islice(cycle([orders] if raw else some), outputs - 1)
    for number, stream in enumerate([orders, *others]):
        path = str(target / f"table-{number}")
        made.sink(f"output-{number}", stream, tg.DeltaSink(path) if sink == "delta" else tg.ParquetSink(path))
    return made


def _plain(condition: str, columns: tuple[str, ...]) -> bool:
    """Whether the task that reads runs a filter and a selection by itself."""
    try:
        without_spark((Filter(condition), Select(columns)), _ORDERS, output="orders")
    except NeedsSpark:
        return False
    return True


def large(orders: pa.RecordBatch) -> pa.RecordBatch:
    """`LARGE`, as a function."""
    some = orders.filter(pc.greater(orders["amount"], 900))
    gross = pc.multiply(some["amount"], 1.2)
    return pa.RecordBatch.from_arrays([some["id"], some["user"], gross], names=["id", "user", "gross"])


def pages(orders: pa.RecordBatch) -> pa.RecordBatch:
    """`PAGES`, as a function."""
    some = orders.filter(pc.starts_with(orders["page"], "/checkout"))
    return some.select(["id", "at", "page"])


class Recording:
    """An engine that also keeps what its jobs report: source bytes read, and records."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine
        self.results: Final[list[JobResult]] = []

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def parallelism(self) -> int:
        return self._engine.parallelism

    def rowwise(self, plan: OutputPlan, source_schema: pa.Schema) -> bool:
        return self._engine.rowwise(plan, source_schema)

    def schema(self, plan: OutputPlan, source_schema: pa.Schema) -> pa.Schema:
        return self._engine.schema(plan, source_schema)

    def submit(self, job: EpochJob) -> Future[JobResult]:
        future = self._engine.submit(job)
        future.add_done_callback(lambda done: self.results.append(done.result()))
        return future

    def work(self, tasks: Sequence[Work]) -> list[list[StagedFile]]:
        return self._engine.work(tasks)

    def close(self) -> None:
        self._engine.close()

    @property
    def bytes_read(self) -> int:
        """Source bytes that all jobs so far have read."""
        return sum(sum(result.bytes_read.values()) for result in self.results)

    def rows(self, output: str) -> int:
        """Rows that all jobs so far have staged for an output, all of which a flow that ended well has committed."""
        return sum(result.staged[output].rows for result in self.results if output in result.staged)


class Driver:
    """A flow that runs in a thread of its own until it is stopped."""

    def __init__(self, made: Dataflow, engine: Engine, *, env: Env | None = None) -> None:
        self._published = threading.Condition()
        self._upper = 0
        self.seen: Final[list[tuple[int, float]]] = []
        """How far it was published, and when this was seen (`time.time`)."""
        self._error: BaseException | None = None
        self._pool = threads(made.spec)
        self._runner = Runner(made.spec, engine, env=env or Env(), spawn=self._pool.submit, watch=self._changed)
        self._upper = self._runner.board.published
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)
        self._thread.start()

    def _changed(self, board: Board) -> None:
        if board.published != self._upper:
            with self._published:
                self._upper = board.published
                self.seen.append((board.published, time.time()))
                self._published.notify_all()

    @property
    def published(self) -> int:
        """How far it was published when this was looked at last."""
        return self._upper

    def state(self, output: str) -> str:
        """Return the state of an output."""
        return str(self._runner.board.outputs[output].state)

    def _run(self) -> None:
        try:
            self._runner.run(None)
        except BaseException as error:
            self._error = error
            with self._published:
                self._published.notify_all()

    def wait_published(self, upper: int, *, patience: float = 60.0) -> None:
        """Wait until the epochs before `upper` are published: every table holds them, and readers see them."""
        with self._published:
            self._published.wait_for(lambda: self._upper >= upper or self._error is not None, patience)
        if self._error is not None:
            raise self._error
        if self._upper < upper:
            raise TimeoutError(f"epoch {upper - 1} is not published after {patience} s")

    def stop(self) -> None:
        """Finish what is under way and end."""
        self._runner.stop()
        self._thread.join(60.0)
        self._runner.close()
        self._pool.shutdown()
        if self._error is not None:
            raise self._error
