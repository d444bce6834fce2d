"""What a task does with rows, bad records, and everything that can go wrong."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.kit import FileSink, FileStager, RowSource, job_of, plan_of, read_of, rows_of, staged_table

from tidegauge.engine import LocalEngine
from tidegauge.engine.parts import TINY, deal
from tidegauge.errors.base import Definite, TidegaugeError, Transient
from tidegauge.errors.engine import (
    DuplicateColumn,
    ReadFailed,
    RecordUnparsable,
    SchemaUnknown,
    StorageFailed,
    WrongBatch,
)
from tidegauge.errors.flow import BatchFunctionFailed, NeedsSpark, ReservedColumn
from tidegauge.job.decoding import by_epoch
from tidegauge.job.plan import Filter, MapBatches, OutputPlan
from tidegauge.job.report import Report
from tidegauge.remap.round import Failure

ROWS = pa.table({"n": pa.array(range(3000), pa.int64())})


@pytest.fixture
def inline() -> Iterator[LocalEngine]:
    engine = LocalEngine(threads=0)
    yield engine
    engine.close()


def files_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.exists() else []


@given(st.lists(st.integers(0, 5)))
def test_rows_of_mixed_epochs_are_given_apart_each_once(epochs: list[int]) -> None:
    batch = pa.record_batch({"n": pa.array(range(len(epochs)), pa.int64()), "_epoch": pa.array(epochs, pa.int64())})
    apart = [(epoch, rows["n"].to_pylist()) for epoch, rows in by_epoch(batch)]
    assert apart == [(e, [i for i, x in enumerate(epochs) if x == e]) for e in sorted(set(epochs))]


@given(st.lists(st.integers(0, 10 * TINY)), st.integers(1, 9))
def test_every_split_is_dealt_to_one_task_and_the_loads_are_even(weights: list[int], tasks: int) -> None:
    groups = deal(weights, tasks=tasks)
    assert 1 <= len(groups) <= tasks
    assert sorted(i for group in groups for i in group) == list(range(len(weights)))
    loads = [sum(weights[i] for i in group) for group in groups]
    assert max(loads) - min(loads) <= max([len(weights), *weights])


@pytest.mark.parametrize(("beside", "most"), [(False, 4), (True, 2)])
def test_a_job_that_leaves_room_for_others_takes_half_of_the_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, beside: bool, most: int
) -> None:
    """As many tasks meet as are to run at once, and there is never one more."""
    barrier, lock, now, peak = threading.Barrier(most), threading.Lock(), [0], [0]

    def meet(batch: pa.RecordBatch) -> pa.RecordBatch:
        with lock:
            now[0] += 1
            peak[0] = max(peak[0], now[0])
        barrier.wait(timeout=60)
        with lock:
            now[0] -= 1
        barrier.wait(timeout=60)
        return batch

    engine = LocalEngine(threads=4)
    monkeypatch.setattr("tidegauge.engine.parts.TINY", 1)
    rows = pa.table({"n": pa.array(range(16), pa.int64())})
    plan = plan_of("x", tmp_path, MapBatches(meet, schema=rows.schema))
    job = replace(job_of(engine, [read_of(RowSource(rows), pieces=16)], [plan]), beside=beside)
    result = engine.submit(job).result(timeout=120)
    engine.close()
    assert result.staged["x"].rows == 16
    assert peak == [most]


def test_a_function_sees_no_epoch_and_may_change_the_number_of_rows(inline: LocalEngine, tmp_path: Path) -> None:
    seen = set()

    def thrice(batch: pa.RecordBatch) -> pa.Table:
        seen.update(batch.schema.names)
        return pa.Table.from_batches([batch] * 3)

    job = job_of(inline, [read_of(RowSource(ROWS), epochs=2)], [plan_of("x", tmp_path, MapBatches(thrice))])
    rows = rows_of(job, inline.submit(job).result(), "x")
    assert seen == {"n"}
    assert sorted((r["n"], r["_epoch"]) for r in rows) == sorted(
        (n, n // 1500) for n in range(3000) for _ in range(3)
    )


def test_a_job_without_splits_names_its_outputs(inline: LocalEngine, tmp_path: Path) -> None:
    job = job_of(inline, [read_of(RowSource(ROWS.slice(0, 0)))], [plan_of("x", tmp_path)])
    result = inline.submit(job).result()
    assert result.staged["x"].files == ()
    assert result.staged["x"].rows == 0


def test_a_bad_record_fails_its_source_at_its_epoch_with_everything_one_needs_to_find_it(
    inline: LocalEngine, tmp_path: Path
) -> None:
    source = RowSource(ROWS, bad=frozenset({2, 2500, 2900}))
    job = job_of(inline, [read_of(source, epochs=3)], [plan_of("x", tmp_path)])
    late = job_of(inline, [read_of(RowSource(ROWS, bad=frozenset({2500, 2900})), epochs=3)], [plan_of("x", tmp_path)])
    (failure,) = inline.submit(job).result().failures
    assert (failure.source, failure.output, failure.epoch) == ("orders", None, 0)
    (failure,) = inline.submit(late).result().failures
    assert (failure.source, failure.output, failure.epoch) == ("orders", None, 2)
    assert isinstance(failure.error, RecordUnparsable)
    assert isinstance(failure.error, Definite)
    text = str(failure.error)
    assert "position 2500 of p (source 'orders') cannot be decoded: not a number" in text
    assert r'{"n": \x1b[31m' in text
    assert "\x1b" not in text
    assert "x" * 201 not in text
    assert "orders.errors" in text
    assert files_in(tmp_path / "x") == []


def test_collected_bad_records_are_rows_of_their_epoch(inline: LocalEngine, tmp_path: Path) -> None:
    source = RowSource(ROWS, bad=frozenset({7, 2900}))
    plans = [plan_of("good", tmp_path), plan_of("bad", tmp_path, channel="errors")]
    job = job_of(inline, [read_of(source, epochs=3, collect=True)], plans)
    result = inline.submit(job).result()
    assert result.failures == ()
    assert result.records == {"orders": 3000}
    assert result.staged["good"].rows == 2998
    rows = sorted(rows_of(job, result, "bad"), key=lambda row: int(row["position"]))
    assert [(r["position"], r["_epoch"]) for r in rows] == [(7, 0), (2900, 2)]
    assert {(r["source"], r["partition"], r["code"]) for r in rows} == {("orders", "p", "TG-0399")}
    assert rows[0]["raw"].startswith(b'{"n": \x1b[31m')


def test_a_function_that_raises_fails_its_output_alone(inline: LocalEngine, tmp_path: Path) -> None:
    def fussy(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 2000 in batch["n"].to_pylist():
            raise KeyError("amount")
        return batch

    plans = [plan_of("x", tmp_path, MapBatches(fussy)), plan_of("y", tmp_path)]
    job = job_of(inline, [read_of(RowSource(ROWS), epochs=3)], plans)
    result = inline.submit(job).result()
    (failure,) = result.failures
    assert (failure.output, failure.epoch) == ("x", 2)
    assert isinstance(failure.error, BatchFunctionFailed)
    assert "fussy" in str(failure.error)
    assert "KeyError: 'amount' (" in str(failure.error)
    assert "test_tasks.py:" in str(failure.error)
    assert result.staged["x"].files == ()
    assert files_in(tmp_path / "x") == []
    assert result.staged["y"].rows == 3000


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        (lambda batch: batch.to_pydict() if batch.num_rows else batch, "a dict"),
        (lambda batch: batch.rename_columns(["m"]) if batch.num_rows else batch, "(m: int64)"),
        (lambda batch: pa.record_batch({"n": ["1"]}) if batch.num_rows else batch, "(n: string)"),
    ],
)
def test_a_function_that_returns_something_else_is_told_what(
    inline: LocalEngine, tmp_path: Path, wrong: Any, got: str
) -> None:
    job = job_of(inline, [read_of(RowSource(ROWS))], [plan_of("x", tmp_path, MapBatches(wrong))])
    (failure,) = inline.submit(job).result().failures
    assert isinstance(failure.error, WrongBatch)
    assert f"returned {got}; expected" in str(failure.error)


def test_columns_of_a_function_are_learnt_from_an_empty_batch_or_declared(
    inline: LocalEngine, tmp_path: Path
) -> None:
    def picky(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"first": [batch["n"][0].as_py()]})

    with pytest.raises(SchemaUnknown, match="schema="):
        inline.schema(plan_of("x", tmp_path, MapBatches(picky)), ROWS.schema)
    declared = MapBatches(picky, pa.schema([("first", pa.int64())]))
    assert inline.schema(plan_of("x", tmp_path, declared), ROWS.schema).names == ["first", "_epoch"]
    job = job_of(inline, [read_of(RowSource(ROWS))], [plan_of("x", tmp_path, declared)])
    assert [row["first"] for row in rows_of(job, inline.submit(job).result(), "x")] == [0, 1000, 2000]


@pytest.mark.parametrize(
    ("names", "error"), [(["_epoch"], ReservedColumn), (["__tg_x"], ReservedColumn), (["a", "A"], DuplicateColumn)]
)
def test_names_that_cannot_stand_in_a_table_are_refused(
    inline: LocalEngine, tmp_path: Path, names: list[str], error: type[TidegaugeError]
) -> None:
    step = MapBatches(lambda batch: batch, pa.schema([(name, pa.int64()) for name in names]))
    with pytest.raises(error):
        inline.schema(plan_of("x", tmp_path, step), ROWS.schema)


def test_a_step_that_needs_spark_is_named(inline: LocalEngine, tmp_path: Path) -> None:
    with pytest.raises(NeedsSpark, match=r"output 'x' has the step filter\('n & 1 = 1'\)"):
        inline.schema(plan_of("x", tmp_path, Filter("n & 1 = 1")), ROWS.schema)


def test_a_disk_that_does_not_read_is_transient(inline: LocalEngine, tmp_path: Path) -> None:
    source = RowSource(ROWS, fails_at=1500)
    job = job_of(inline, [read_of(source, epochs=2)], [plan_of("x", tmp_path)])
    result = inline.submit(job).result()
    (failure,) = result.failures
    assert (failure.output, failure.epoch) == (None, 1)
    assert isinstance(failure.error, ReadFailed)
    assert isinstance(failure.error, Transient)
    assert "Input/output error" in str(failure.error)
    assert files_in(tmp_path / "x") == []


@pytest.fixture
def small_files() -> Iterator[None]:
    """Let files of this process grow to 4 kB and no further: a full disk, for those who write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_files")
def test_a_full_disk_is_transient_and_leaves_nothing(inline: LocalEngine, tmp_path: Path) -> None:
    job = job_of(inline, [read_of(RowSource(ROWS), epochs=3)], [plan_of("x", tmp_path)])
    (failure,) = inline.submit(job).result().failures
    assert failure.output == "x"
    assert isinstance(failure.error, StorageFailed)
    assert isinstance(failure.error, Transient)
    assert "File too large" in str(failure.error)
    assert str(tmp_path / "x") in str(failure.error)
    assert files_in(tmp_path / "x") == []


@dataclass(frozen=True)
class FullDisk(FileSink):
    """Writes what fits, like /dev/full."""

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> FileStager:
        return _Full(self.path, schema, f"{job}-{task}.parquet")


class _Full(FileStager):
    def write(self, batch: pa.RecordBatch) -> None:
        super().write(batch)
        with open("/dev/full", "wb", buffering=0) as disk:
            disk.write(b"x")


def test_no_space_left_on_one_output_leaves_the_others(inline: LocalEngine, tmp_path: Path) -> None:
    full = OutputPlan("x", "orders", "rows", (), FullDisk(str(tmp_path / "x")))
    job = job_of(inline, [read_of(RowSource(ROWS))], [full, plan_of("y", tmp_path)])
    result = inline.submit(job).result()
    (failure,) = result.failures
    assert failure.output == "x"
    assert isinstance(failure.error, StorageFailed)
    assert "No space left on device" in str(failure.error)
    assert files_in(tmp_path / "x") == []
    assert staged_table(job, result, "y").num_rows == 3000


def test_reports_and_failures_survive_as_json() -> None:
    failure = Failure("s", None, 4, ReadFailed(source="s", place="p", detail="gone"))
    report = Report(records={"s": 3}, failures=[failure])
    decoded = Report.decode(report.encode())
    assert decoded.records == {"s": 3}
    assert str(decoded.failures[0].error) == str(failure.error)


def test_closing_ends_running_jobs(tmp_path: Path) -> None:
    engine = LocalEngine(threads=1)
    batches = []

    def close_at_first(batch: pa.RecordBatch) -> pa.RecordBatch:
        batches.append(batch)
        engine._closed.set()
        return batch

    step = MapBatches(close_at_first, ROWS.schema)
    job = job_of(engine, [read_of(RowSource(ROWS))], [plan_of("x", tmp_path, step)])
    future = engine.submit(job)
    assert "closed" in str(future.exception(timeout=30))
    engine.close()
    assert len(batches) == 1
    assert files_in(tmp_path / "x") == []
    assert "closed" in str(engine.submit(job).exception(timeout=30))
