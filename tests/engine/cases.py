"""The same jobs for every engine and every kind of session."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from tests import java
from tests.engine import kit
from tests.engine.kit import RowSource, job_of, plan_of, read_of, rows_of

from tidegauge.engine import SparkEngine
from tidegauge.errors.engine import JobFailed
from tidegauge.job.plan import (
    Changelog,
    Dedupe,
    Engine,
    Filter,
    MapBatches,
    OutputPlan,
    Partition,
    Select,
    SplitBy,
    Transform,
    Unnest,
)

for module in (kit, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]

ROWS = pa.table(
    {
        "id": pa.array(range(40), pa.int64()),
        "n": pa.array([None if i % 7 == 0 else i % 5 for i in range(40)], pa.int32()),
        "user": pa.array([f"u{i % 3}" for i in range(40)]),
        "at": pa.array([datetime(2026, 3, 29, i % 24, 30, tzinfo=UTC) for i in range(40)], pa.timestamp("us", "UTC")),
        "place": pa.array([{"lat": i / 2, "tags": [str(i)]} for i in range(40)]),
    }
)


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("twice", pc.multiply(batch["id"], 2))


def only_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["id"])


def one_per_user(frame: Any) -> Any:
    return frame.groupBy("_epoch", "user").agg({"id": "max"}).withColumnRenamed("max(id)", "last")


def as_it_is(frame: Any) -> Any:
    return frame


def arrow_plans(folder: Path) -> dict[str, list[OutputPlan]]:
    """Jobs that need no Spark."""
    return {
        "as it is": [plan_of("all", folder)],
        "two functions": [
            plan_of("all", folder),
            plan_of("double", folder, MapBatches(double)),
            plan_of("ids", folder, MapBatches(double), MapBatches(only_ids)),
        ],
        "parts": [
            plan_of("firsts", folder, Dedupe(("user",))),
            plan_of("half", folder, Partition(2, ("id",), 1)),
            plan_of("rest", folder, SplitBy("user", ("u0", "u1"), None), Dedupe(("n",))),
        ],
    }


def spark_plans(folder: Path) -> dict[str, list[OutputPlan]]:
    """Jobs of every shape that DataFrame steps give."""
    rowwise = [
        plan_of("all", folder),
        plan_of("some", folder, Filter("n > 2"), Select(("id", "100 / n AS share", "at", "place.lat"))),
        plan_of("late", folder, Filter("at >= timestamp'2026-03-29 12:00:00Z'")),
    ]
    general = [
        plan_of("users", folder, Transform(one_per_user)),
        plan_of("exploded", folder, Select(("id", "explode(place.tags) AS tag"))),
    ]
    mixed = [
        plan_of("before", folder, MapBatches(double), Filter("twice > 20")),
        plan_of("after", folder, Select(("id",)), MapBatches(double)),
        plan_of("between", folder, Filter("n = 1"), MapBatches(double), Select(("twice",))),
    ]
    words = "CASE id % 4 WHEN 0 THEN 'insert' WHEN 1 THEN 'update' WHEN 2 THEN 'delete' ELSE 'before' END AS _op"
    operations = [
        plan_of("filtered", folder, Select(("id", "n", words)), Filter("n > 2"), Changelog("op")),
        plan_of("framed", folder, Select(("id", "n", words)), Transform(as_it_is), Filter("n > 2"), Select(("id",))),
    ]
    ordered = [
        plan_of("firsts", folder, Filter("abs(n) > 1"), Dedupe(("n",)), Select(("id", "upper(user) AS who"))),
        plan_of("tags", folder, Select(("id", "place.tags AS tag")), Unnest("tag"), Dedupe(("tag",))),
        plan_of("after", folder, Dedupe(("n",)), Filter("abs(n) > 1")),
    ]
    jobs = {"row-wise": rowwise, "general": general, "operations": operations, "ordered": ordered}
    return {**jobs, "all at once": [*rowwise, *general, *mixed]}


def run_case(engine: Engine, folder: Path, case: str, plans: list[OutputPlan]) -> dict[str, Any]:
    """Run one job over three epochs and return its rows, how often the source was read, and what else it reports."""
    log = folder / f"{case}.log"
    read = read_of(RowSource(ROWS, log=str(log)), epochs=3, pieces=2)
    read = replace(read, whole=any(plan.ordered for plan in plans))
    job = job_of(engine, [read], plans, id=case.replace(" ", "-"))
    result = engine.submit(job).result(timeout=120)
    rows = {plan.name: rows_of(job, result, plan.name) for plan in plans}
    return {
        "rows": json.loads(json.dumps(rows, default=str)),
        "schemas": {work.plan.name: str(work.schema) for work in job.outputs},
        "reads": sorted(log.read_text().splitlines()),
        "records": dict(result.records),
        "bytes": dict(result.bytes_read),
        "failures": [str(failure.error) for failure in result.failures],
    }


def closed_while_running(engine: Engine, folder: Path) -> BaseException | None:
    """Close an engine while a job waits for what never comes, and return how the job ended."""
    begun, never = folder / "begun", folder / "never"
    os.mkfifo(begun)
    os.mkfifo(never)

    def wait(batch: pa.RecordBatch) -> pa.RecordBatch:
        begun.write_text("x")
        never.read_text()
        return batch

    plan = plan_of("waits", folder, MapBatches(wait, ROWS.schema))
    future = engine.submit(job_of(engine, [read_of(RowSource(ROWS))], [plan]))
    begun.read_text()
    engine.close()
    return future.exception(timeout=60)


def session_at(url: str, *, more: Mapping[str, str] = MappingProxyType({})) -> Any:
    """Return a session on the Spark at a URL; a classic one with more settings."""
    from pyspark.sql import SparkSession

    if url.startswith("sc://"):
        return SparkSession.builder.remote(url).getOrCreate()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(url).appName("cases")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": java.SPARK,
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.shuffle.partitions": "4",
        "spark.log.level": "ERROR",
        **more,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run_cases(session: Any, folder: Path) -> dict[str, dict[str, Any]]:
    """Run all jobs on a session. Raises when an engine that is closed leaves its job, or takes the session along."""
    engine = SparkEngine(session)
    jobs = {**arrow_plans(folder), **spark_plans(folder)}
    found = {case: run_case(engine, folder, case, plans) for case, plans in jobs.items()}
    engine.close()
    ended = closed_while_running(SparkEngine(session), folder)
    if not isinstance(ended, JobFailed):
        raise RuntimeError(f"closing the engine left its job: {ended}")  # noqa: TRY004 - the test failed
    if session.range(3).count() != 3:
        raise RuntimeError("closing the engine closed a session that it was given")
    return found
