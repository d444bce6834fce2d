"""A hop of a late job gives way: its thread has a low priority, and nothing of that is left when it is over."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.kit import RowSource, job_of, plan_of, read_of, rows_of

from tidegauge.engine import SparkEngine
from tidegauge.engine.spark.yielding import NICENESS, giving_way, paced
from tidegauge.job.plan import Filter, MapBatches, Step

NAMED = pa.table({"name": ["ada", "bob"] * 5})

linux = pytest.mark.skipif(sys.platform != "linux", reason="threads have a priority of their own on Linux alone")


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


class Halt(BaseException):
    """What ends a task that is killed is no `Exception`."""


@given(st.lists(st.integers()), st.none() | st.sampled_from([ValueError("no"), Halt("now")]))
def test_what_comes_out_is_what_comes_out_without_it(values: list[int], error: BaseException | None) -> None:
    def plain() -> Iterator[int]:
        yield from values
        if error is not None:
            raise error

    got: list[int] = []
    raised: BaseException | None = None
    try:
        got.extend(giving_way(plain()))
    except (ValueError, Halt) as found:
        raised = found
    assert (got, raised) == (values, error)


@given(st.integers(0, 5))
def test_it_ends_with_the_caller_who_has_enough_and_nothing_is_made_ahead(taken: int) -> None:
    made: list[int] = []
    closed: list[str] = []

    def plain() -> Iterator[int]:
        try:
            for number in range(6):
                made.append(number)
                yield number
        finally:
            closed.append(threading.current_thread().name)

    before = threading.active_count()
    rows = giving_way(plain())
    assert [next(rows) for _ in range(taken)] == made == list(range(taken))
    rows.close()  # type: ignore[attr-defined]
    assert closed == (["tidegauge-late"] if taken else [])
    assert threading.active_count() == before


@linux
def test_only_the_thread_that_gives_way_has_a_low_priority_and_only_in_a_late_job() -> None:
    before = niceness()

    def hop(_: object) -> Iterator[int]:
        yield niceness()

    assert list(paced(hop, late=True)(())) == [max(before, NICENESS)]
    assert list(paced(hop, late=False)(())) == [before] == [niceness()]


COLUMNS = pa.schema([("nice", pa.int64()), ("pid", pa.int64())])


def observing() -> MapBatches:
    """A step that tells where it runs. Its function is sent by value: workers may not know this module."""
    columns = COLUMNS

    def observed(rows: pa.RecordBatch) -> pa.RecordBatch:
        here = [os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), os.getpid()]
        return pa.RecordBatch.from_arrays([pa.array([one] * rows.num_rows) for one in here], schema=columns)

    return MapBatches(observed, columns)


@linux
@pytest.mark.spark
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((observing(),), id="one hop"),
        pytest.param((Filter("length(name) > 0"), observing()), id="two hops"),
    ],
)
def test_a_late_job_gives_way_and_its_worker_serves_the_next_job_as_before(
    spark: SparkEngine, tmp_path: Path, steps: tuple[Step, ...]
) -> None:
    job = job_of(spark, [read_of(RowSource(NAMED))], [plan_of("x", tmp_path, *steps)])

    def run(number: int, *, late: bool) -> tuple[set[int], set[int]]:
        one = replace(job, id=f"job{number}", late=late)
        rows = rows_of(one, spark.submit(one).result(timeout=60), "x")
        return {row["nice"] for row in rows}, {row["pid"] for row in rows}

    found, slow = run(0, late=True)
    assert found == {max(niceness(), NICENESS)}
    for number in range(1, 50):  # until its worker has served another job
        found, pids = run(number, late=False)
        assert found == {niceness()}
        if pids & slow:
            return
    pytest.fail("no job came to the worker of the late one")
