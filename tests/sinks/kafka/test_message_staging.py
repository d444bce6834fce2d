"""Rows come out of the staged files of any tasks as the messages that went in, in the order of epochs."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

import tidegauge.sinks.ordered as ordered
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sinks import BatchDoesNotFit, MisplacedRows
from tidegauge.sinks.kafka.messages import MessageLayout
from tidegauge.sinks.kafka.staging import MessageStager
from tidegauge.sinks.location import LocalFiles
from tidegauge.sinks.ordered import merged

COLUMNS = pa.schema([("id", pa.int64()), ("_epoch", pa.int64())])
LAYOUT = MessageLayout("t", key="id", value=("id",))


def batch(epochs: list[int], first: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"id": list(range(first, first + len(epochs))), "_epoch": epochs}, schema=COLUMNS)


def stager(folder: str | Path, *, job: str | None = None, task: int = 0) -> MessageStager:
    return MessageStager(LocalFiles(str(folder)), LAYOUT, COLUMNS, job=job or uuid.uuid4().hex, task=task)


tasks = st.lists(st.lists(st.lists(st.integers(0, 4), max_size=5), max_size=4), max_size=4)


@deep(60)
@given(tasks)
def test_what_tasks_stage_comes_out_once_and_in_the_order_of_epochs(tasks: list[list[list[int]]]) -> None:
    job, first = uuid.uuid4().hex, 0
    expected: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered, "GROUP_ROWS", 6)  # so that files are cut and batches are small
        patch.setattr(ordered, "BATCH_ROWS", 2)
        files = []
        for number, batches in enumerate(tasks):
            one = stager(folder, job=job, task=number)
            for epochs in batches:
                one.write(batch(epochs, first))
                expected |= {first + index: epoch for index, epoch in enumerate(epochs)}
                first += len(epochs)
            files += one.close()
        found = [(epoch, rows) for epoch, rows in merged(folder, files)]
        for file in files:
            inside = [epoch for epoch, _ in merged(folder, [file])]
            assert inside == sorted(inside)
            assert (inside[0], inside[-1]) == (file.first_epoch, file.last_epoch)
            assert Path(folder, file.path).stat().st_size == file.bytes
        assert {epoch for epoch, rows in merged(folder, files, ["key", "_epoch"])} == set(expected.values())
    assert [epoch for epoch, _ in found] == sorted(epoch for epoch, _ in found)
    assert sum(file.rows for file in files) == first
    back = {int(key): epoch for epoch, rows in found for key in rows["key"].to_pylist()}
    assert back == expected
    assert all(set(rows["_epoch"].to_pylist()) == {epoch} and rows.num_rows <= 2 for epoch, rows in found)


def test_rows_of_one_epoch_keep_the_order_in_which_a_task_wrote_them(tmp_path: Path) -> None:
    one = stager(tmp_path)
    one.write(batch([1, 0, 1, 0, 1]))
    found = [int(key) for _, rows in merged(str(tmp_path), one.close()) for key in rows["key"].to_pylist()]
    assert found == [1, 3, 0, 2, 4]


def test_two_attempts_of_a_task_never_write_one_file(tmp_path: Path) -> None:
    first, second = stager(tmp_path, job="1" * 32), stager(tmp_path, job="1" * 32)
    for one in (first, second):
        one.write(batch([0]))
    [a], [b] = first.close(), second.close()
    assert a.path != b.path
    assert first.close() == [a]


def test_an_aborted_stager_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "GROUP_ROWS", 2)
    one = stager(tmp_path)
    one.write(batch([1, 1, 0, 0, 0]))
    one.abort()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    with pytest.raises(ValueError, match="closed"):
        one.write(batch([0]))


def test_a_batch_of_large_rows_is_cut_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "BATCH_BYTES", 10_000)
    columns = pa.schema([("body", pa.binary()), ("_epoch", pa.int64())])
    one = MessageStager(LocalFiles(str(tmp_path)), MessageLayout("t", value="body"), columns, job="1" * 32, task=0)
    one.write(pa.record_batch({"body": [b"x" * 1000] * 100, "_epoch": [0] * 100}, schema=columns))
    sizes = [rows.nbytes for _, rows in merged(str(tmp_path), one.close())]
    assert len(sizes) >= 10
    assert max(sizes) < 12_000


@pytest.mark.parametrize(("job", "task"), [("../x", 0), ("A" * 32, 0), ("1" * 32, -1)])
def test_names_that_are_no_jobs_are_refused(job: str, task: int, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        stager(tmp_path, job=job, task=task)


def test_rows_that_were_not_announced_or_have_no_epoch_are_refused(tmp_path: Path) -> None:
    one = stager(tmp_path)
    with pytest.raises(BatchDoesNotFit):
        one.write(pa.record_batch({"id": ["x"], "_epoch": [0]}))
    missing: Any = pa.array([None], pa.int64())
    with pytest.raises(MisplacedRows):
        one.write(pa.record_batch({"id": [1], "_epoch": missing}, schema=COLUMNS))
    assert one.close() == []
