"""Jobs for late outputs run in a scheduler pool of their own, and leave the thread's pool as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine.cases import ROWS
from tests.engine.kit import RowSource, job_of, plan_of, read_of
from tests.flow.badinput import begin
from tests.flow.by_hand import World
from tests.flow.test_late_outputs import add, alone, with_late

import tidegauge as tg
from tidegauge.engine import SparkEngine
from tidegauge.engine.spark.engine import LATE_POOL
from tidegauge.engine.spark.session import pooled
from tidegauge.job.plan import EpochJob, Filter

pytestmark = pytest.mark.spark


def stages(session: Any) -> dict[int, str]:
    """The stages of all jobs by now, each with its pool."""
    context = session.sparkContext
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(None)]
    ids = {stage for job in jobs if job is not None for stage in job.stageIds}
    return {stage: store.lastStageAttempt(stage).schedulingPool() for stage in ids if tracker.getStageInfo(stage)}


@pytest.mark.parametrize(("pool", "live"), [(None, "default"), ("mine", "mine")])
def test_the_stages_of_a_late_job_are_in_the_pool_of_late_jobs_and_no_others(
    classic: Any, tmp_path: Path, pool: str | None, live: str
) -> None:
    engine = SparkEngine(classic, pool=pool)
    job = job_of(engine, [read_of(RowSource(ROWS))], [plan_of("x", tmp_path, Filter("id > 3"))])
    before = set(stages(classic))
    for late, expected in (
        (False, live),
        (True, LATE_POOL),
        (False, live),
    ):  # in the same thread, as it is free again
        engine.submit(replace(job, id=f"job{len(before)}", late=late)).result(timeout=60)
        now = stages(classic)
        assert {now[stage] for stage in now.keys() - before} == {expected}
        before = set(now)
    engine.close()


def test_the_pool_of_the_thread_is_put_back_also_after_an_error(classic: Any) -> None:
    context = classic.sparkContext
    context.setLocalProperty("spark.scheduler.pool", "mine")

    def failing() -> None:
        with pooled(classic, LATE_POOL):
            assert context.getLocalProperty("spark.scheduler.pool") == LATE_POOL
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        failing()
    assert context.getLocalProperty("spark.scheduler.pool") == "mine"
    context.setLocalProperty("spark.scheduler.pool", None)
    with pooled(classic, LATE_POOL):
        pass
    assert context.getLocalProperty("spark.scheduler.pool") is None


def test_a_flow_says_which_jobs_are_those_of_late_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, jobs = World(tmp_path, alone), set[tuple[tuple[str, ...], bool]]()
    submit = tg.LocalEngine.submit

    def submitting(engine: tg.LocalEngine, job: EpochJob) -> Any:
        jobs.add((tuple(work.plan.name for work in job.outputs), job.late))
        return submit(engine, job)

    monkeypatch.setattr(tg.LocalEngine, "submit", submitting)
    run = begin(world)
    add(world, 0)
    run.catch_up()
    run.abandon()
    run = begin(world, with_late)
    run.catch_up()
    add(world, 1)
    run.catch_up()
    run.abandon()
    assert jobs == {(("a",), False), (("late",), True), (("a", "late"), False)}
