"""Jobs that differ in their splits alone run one plan of Spark's, and each of them has its own rows."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest
from tests.engine.cases import ROWS
from tests.engine.clusters import ROOT
from tests.engine.kit import RowSource, job_of, plan_of, read_of, rows_of

from tidegauge.engine import SparkEngine
from tidegauge.engine.spark.assigned import PROPERTY, assigned, pack, unpack
from tidegauge.engine.spark.hops import REPORT
from tidegauge.engine.spark.standing import LONGEST, Plans
from tidegauge.errors.engine import JobFailed
from tidegauge.job.plan import EpochJob, Filter, MapBatches, Select, Transform
from tidegauge.sources.protocol import Split

pytestmark = pytest.mark.spark

pc: Any = pyarrow.compute
SQL = (Filter("id >= 0 AND soundex(user) IS NOT NULL"), Select(("id | 0 AS id",)))


def parts(job: EpochJob) -> list[EpochJob]:
    """Return a job for each split of a job."""
    pack(job.reads)  # a class that is sent by value, such as that of these splits, has an attribute more from then on
    [read] = job.reads
    return [of(job, [split], number) for number, split in enumerate(read.splits)]


def of(job: EpochJob, splits: Sequence[Split], number: int) -> EpochJob:
    [read] = job.reads
    return replace(job, id=f"{job.id}-{number}", reads=(replace(read, splits=tuple(splits)),))


def ids(job: EpochJob, engine: SparkEngine, name: str) -> list[int]:
    return sorted(row["id"] for row in rows_of(job, engine.submit(job).result(timeout=60), name))


def standing(engine: SparkEngine) -> list[Any]:
    return list(engine._plans._frames.values())


@pytest.mark.parametrize("late", [False, True])
def test_jobs_of_other_splits_run_one_plan_and_have_their_own_rows(
    spark: SparkEngine, tmp_path: Path, late: bool
) -> None:
    job = job_of(spark, [read_of(RowSource(ROWS), epochs=4)], [plan_of("x", tmp_path), plan_of("y", tmp_path, *SQL)])
    plans = []
    for number, part in enumerate(parts(replace(job, late=late))):
        expected = list(range(10 * number, 10 * number + 10))
        assert ids(part, spark, "x") == expected
        assert ids(replace(part, id=f"again-{number}"), spark, "y") == expected
        plans += standing(spark)
    assert len(plans) == 4
    assert all(plan is plans[0] for plan in plans)


def test_what_a_function_holds_is_what_it_holds_when_the_job_runs(spark: SparkEngine, tmp_path: Path) -> None:
    least = [5]

    def enough(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pc.greater_equal(batch["id"], least[0]))

    job = job_of(spark, [read_of(RowSource(ROWS), epochs=4)], [plan_of("x", tmp_path, MapBatches(enough))])
    first, second, *_ = parts(job)
    assert ids(first, spark, "x") == [5, 6, 7, 8, 9]
    least[0] = 18
    assert ids(second, spark, "x") == [18, 19]


def test_jobs_at_the_same_time_do_not_mix(spark: SparkEngine, tmp_path: Path) -> None:
    job = job_of(spark, [read_of(RowSource(ROWS), epochs=8)], [plan_of("x", tmp_path, *SQL)])
    jobs = parts(job)
    assert ids(replace(jobs[0], id="first"), spark, "x") == list(range(5))
    running = [spark.submit(part) for part in jobs]
    for number, (part, done) in enumerate(zip(jobs, running, strict=True)):
        found = sorted(row["id"] for row in rows_of(part, done.result(timeout=120), "x"))
        assert found == list(range(5 * number, 5 * number + 5))


def test_a_plan_whose_job_has_failed_is_not_run_again(spark: SparkEngine, tmp_path: Path) -> None:
    mark = tmp_path / "failed"

    def fussy(batch: pa.RecordBatch) -> pa.RecordBatch:
        if mark.exists():
            raise SystemExit(3)
        return batch

    job = job_of(
        spark, [read_of(RowSource(ROWS), epochs=4)], [plan_of("x", tmp_path, MapBatches(fussy, ROWS.schema))]
    )
    first, second, third, _ = parts(job)
    assert ids(first, spark, "x") == list(range(10))
    [plan] = standing(spark)
    mark.touch()
    assert isinstance(spark.submit(second).exception(timeout=60), JobFailed)
    assert standing(spark) == []
    mark.unlink()
    assert ids(third, spark, "x") == list(range(20, 30))
    assert standing(spark) != [plan]


def test_a_job_with_more_to_tell_than_a_property_holds_has_a_plan_of_its_own(
    spark: SparkEngine, tmp_path: Path
) -> None:
    job = job_of(spark, [read_of(RowSource(ROWS), epochs=40)], [plan_of("x", tmp_path)])
    long = [replace(split, partition=ROWS_OF_NOISE[i]) for i, split in enumerate(job.reads[0].splits)]  # type: ignore[type-var]
    many = of(job, long, 0)
    assert len(assigned("j", many.reads, [many.reads]).text(plan="p")) > LONGEST
    assert ids(many, spark, "x") == list(range(40))
    assert standing(spark) == []


ROWS_OF_NOISE = [
    base64.b64encode(bytes(n * n * (seed + 3) * 2654435761 >> 7 & 255 for n in range(3000))).decode()
    for seed in range(40)
]


def test_sql_whose_values_spark_fixes_as_it_plans_is_planned_for_each_job_anew(
    spark: SparkEngine, tmp_path: Path
) -> None:
    made = Select(("id", "uuid() AS drawn", "current_timestamp() AS seen"))
    job = job_of(spark, [read_of(RowSource(ROWS), epochs=2)], [plan_of("x", tmp_path, made)])
    first, second = (rows_of(part, spark.submit(part).result(timeout=60), "x") for part in parts(job))
    assert len({row["drawn"] for row in first + second}) == 40
    assert max(row["seen"] for row in first) < min(row["seen"] for row in second)
    [plan] = standing(spark)
    assert len(plan.columns) > 1, "the reading hop alone"


def test_sql_that_lasts_is_in_the_plan_and_each_job_writes_its_own_files(spark: SparkEngine, tmp_path: Path) -> None:
    made = Select(("id", "soundex(user) AS sound", "at > '2000-01-01' AS recent"))
    job = job_of(spark, [read_of(RowSource(ROWS), epochs=4)], [plan_of("x", tmp_path, made), plan_of("y", tmp_path)])
    plans = []
    for number, part in enumerate(parts(job)):
        done = spark.submit(part).result(timeout=60)
        for name in ("x", "y"):
            found = sorted(row["id"] for row in rows_of(part, done, name))
            assert found == list(range(10 * number, 10 * number + 10))
            assert all(part.id in file.path for file in done.staged[name].files)
        plans += standing(spark)
    assert all(plan is plans[0] for plan in plans)
    assert plans[0].columns == [REPORT]


def test_other_sql_over_the_same_rows_is_another_plan(spark: SparkEngine, tmp_path: Path) -> None:
    for number in range(2):
        made = Select(("id", f"repeat(soundex(user), {number}) AS sound"))
        job = job_of(spark, [read_of(RowSource(ROWS), epochs=1)], [plan_of("x", tmp_path, made)])
        lengths = {len(row["sound"]) for row in rows_of(job, spark.submit(job).result(timeout=60), "x")}
        assert lengths == {4 * number}
    assert len(standing(spark)) == 2


def test_steps_that_need_kept_rows_have_no_standing_plan(spark: SparkEngine, tmp_path: Path) -> None:
    plan = plan_of("x", tmp_path, Transform(lambda frame: frame.distinct()))
    job = job_of(spark, [read_of(RowSource(ROWS), epochs=4)], [plan])
    assert ids(parts(job)[1], spark, "x") == list(range(10, 20))
    assert standing(spark) == []


def test_spark_is_told_the_splits_and_nothing_of_the_sources() -> None:
    read = read_of(RowSource(ROWS, log="/a/place/of/the/source"), epochs=4)
    told = unpack(base64.b64decode(assigned("job7", [read], [[read]]).text(plan="p")))
    assert "job7" in told
    packed = b"".join(told[-1])
    assert unpack(packed) == [("orders", read.splits)]
    assert b"/a/place" not in repr(unpack(packed)).encode()


def test_what_is_told_to_the_tasks_of_a_job_is_not_told_to_those_of_the_users(
    spark: SparkEngine, classic: Any, tmp_path: Path
) -> None:
    job = job_of(spark, [read_of(RowSource(ROWS), epochs=4)], [plan_of("x", tmp_path)])
    spark._perform(job)
    assert classic.sparkContext.getLocalProperty(PROPERTY) is None


UNPINNED = """
import sys
from pathlib import Path
from tests.engine.cases import ROWS
from tests.engine.test_standing_plans import RowSource, SparkEngine, ids, job_of, parts, plan_of, read_of, standing
engine = SparkEngine(master="local[1]")
job = job_of(engine, [read_of(RowSource(ROWS), epochs=4)], [plan_of("x", Path(sys.argv[1]))])
assert ids(parts(job)[1], engine, "x") == list(range(10, 20))
assert standing(engine) == []
engine.close()
"""


@pytest.mark.long
def test_where_threads_share_their_properties_each_job_has_a_plan_of_its_own(tmp_path: Path) -> None:
    environ = {**os.environ, "PYSPARK_PIN_THREAD": "false"}
    command = [sys.executable, "-c", UNPINNED, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_no_more_plans_stand_than_may() -> None:
    plans = Plans(most=2)
    for number in range(5):
        plans.put(str(number), number)
    assert [plans.take(str(number)) for number in range(5)] == [None, None, None, 3, 4]
