"""Staging: what one task writes, in bounded memory, under names of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sinks import BatchDoesNotFit, MisplacedRows
from tidegauge.sinks import staging
from tidegauge.sinks.location import LocalFiles
from tidegauge.sinks.staging import ParquetStager

SCHEMA = pa.schema([("n", pa.int64()), ("_epoch", pa.int64())])
JOB = "c" * 32


def batch(numbers: Any, epochs: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers), "_epoch": list(epochs)}, schema=SCHEMA)


def stager(folder: Path, task: int = 0) -> ParquetStager:
    return ParquetStager(LocalFiles(str(folder)), "", SCHEMA, job=JOB, task=task)


@deep(40)
@given(batches=st.lists(st.lists(st.integers(0, 9), max_size=30), max_size=12), group=st.integers(1, 40))
def test_what_is_written_is_what_is_staged(
    batches: list[list[int]], group: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("stage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "GROUP_ROWS", group)
        writing = stager(folder)
        for epochs in batches:
            writing.write(batch(range(len(epochs)), epochs))
        files = writing.close()
    found = [epoch for f in files for epoch in pq.read_table(folder / f.path)["_epoch"].to_pylist()]
    assert found == [epoch for epochs in batches for epoch in epochs]
    for file in files:
        assert (file.first_epoch, file.last_epoch, file.rows) == (min(found), max(found), len(found))
        meta = pq.read_metadata(folder / file.path)
        assert max(meta.row_group(i).num_rows for i in range(meta.num_row_groups)) <= group
    assert len(files) == (1 if found else 0)
    assert sorted(path.name for path in folder.iterdir()) == sorted(file.path for file in files)


def test_a_row_group_is_written_when_its_bytes_have_come_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "GROUP_BYTES", 1000)
    writing = stager(tmp_path)
    for epoch in range(10):
        writing.write(batch(range(63), [epoch] * 63))  # 1008 bytes
    [file] = writing.close()
    assert pq.read_metadata(tmp_path / file.path).num_row_groups == 10


def test_a_file_that_has_grown_is_finished_and_another_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "FILE_BYTES", 1)
    monkeypatch.setattr(staging, "GROUP_ROWS", 2)
    writing = stager(tmp_path, task=12)
    writing.write(batch(range(5), [1, 1, 2, 3, 3]))
    files = writing.close()
    assert [file.path for file in files] == [f"part-{JOB}-00012-{n:03d}.parquet" for n in range(3)]
    assert [(f.first_epoch, f.last_epoch, f.rows) for f in files] == [(1, 1, 2), (2, 3, 2), (3, 3, 1)]
    assert [f.bytes for f in files] == [(tmp_path / f.path).stat().st_size for f in files]


def test_without_rows_there_is_no_file_and_no_folder(tmp_path: Path) -> None:
    writing = stager(tmp_path / "new")
    writing.write(batch([], []))
    assert writing.close() == []
    assert not (tmp_path / "new").exists()


def test_abort_removes_finished_and_unfinished_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "GROUP_ROWS", 2)
    writing = stager(tmp_path)
    for size in (1, 1 << 20):
        monkeypatch.setattr(staging, "FILE_BYTES", size)
        writing.write(batch(range(3), [1] * 3))
    assert len(list(tmp_path.iterdir())) == 2
    writing.abort()
    writing.abort()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="closed"):
        writing.write(batch([1], [1]))


def test_closing_twice_gives_the_same_files(tmp_path: Path) -> None:
    writing = stager(tmp_path)
    writing.write(batch([1], [1]))
    assert writing.close() == writing.close()


def test_two_attempts_of_one_task_never_write_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "GROUP_ROWS", 1)
    first, second = stager(tmp_path), stager(tmp_path)
    first.write(batch([1], [1]))
    second.write(batch([2], [1]))  # a speculative attempt, or one after a lost executor
    first.write(batch([1], [1]))
    [a], [b] = first.close(), second.close()
    assert a.path != b.path
    assert pq.read_table(tmp_path / a.path)["n"].to_pylist() == [1, 1]
    assert pq.read_table(tmp_path / b.path)["n"].to_pylist() == [2]


def test_rows_without_an_epoch_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MisplacedRows, match="without an epoch"):
        stager(tmp_path).write(batch([1, 2], [1, None]))


@pytest.mark.parametrize(
    "columns",
    [
        {"_epoch": [1]},
        {"n": [1], "m": [1], "_epoch": [1]},
        {"n": ["1"], "_epoch": [1]},
    ],
)
def test_batches_with_other_columns_are_refused(tmp_path: Path, columns: Any) -> None:
    with pytest.raises(BatchDoesNotFit, match=r"'n'|'m'"):
        stager(tmp_path).write(pa.RecordBatch.from_pydict(columns))


@pytest.mark.parametrize(("job", "task"), [("short", 0), ("C" * 32, 0), (f"../{'c' * 29}", 0), (JOB, -1)])
def test_names_are_checked(tmp_path: Path, job: str, task: int) -> None:
    with pytest.raises(InvalidArgument):
        ParquetStager(LocalFiles(str(tmp_path)), "", SCHEMA, job=job, task=task)


def test_columns_that_repeat_get_a_dictionary_and_others_do_not(tmp_path: Path) -> None:
    schema = pa.schema([("kind", pa.string()), ("id", pa.string()), ("_epoch", pa.int64())])
    writing = ParquetStager(LocalFiles(str(tmp_path)), "", schema, job=JOB, task=0)
    size = 20_000
    columns = {"kind": [f"k{i % 5}" for i in range(size)], "id": [str(i) for i in range(size)], "_epoch": [0] * size}
    writing.write(pa.RecordBatch.from_pydict(columns, schema=schema))
    [file] = writing.close()
    group = pq.read_metadata(tmp_path / file.path).row_group(0)
    encoded = {group.column(i).path_in_schema: group.column(i).encodings for i in range(3)}
    assert [any(re.search("DICTIONARY", e) for e in encoded[name]) for name in ("kind", "id", "_epoch")] == [1, 0, 1]
