"""Staging knows no file system: on a disk, and in one that is in memory alone, the laws are the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from tests.sinks.conftest import OUTPUT, SCHEMA, rows

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sinks import MisplacedRows
from tidegauge.errors.store import LeaseLost
from tidegauge.sinks import StagedFile
from tidegauge.sinks.attempt import STAGED, discard, sweep
from tidegauge.sinks.kafka.messages import MessageLayout
from tidegauge.sinks.kafka.staging import MessageStager
from tidegauge.sinks.location import LocalFiles, StagingFiles
from tidegauge.sinks.protocol import job_mark
from tidegauge.sinks.staging import ParquetStager

MARK = job_mark(OUTPUT.incarnation)
JOB, DEAD, OTHERS = MARK + "1" * 16, MARK + "2" * 16, "b" * 32


@dataclass(frozen=True)
class ArrowFiles:
    """Staging on any file system of Arrow: a file is there, and durable, when its stream is closed."""

    system: Any
    root: str

    def own(self, stem: str) -> str:
        return stem

    def create(self, path: str) -> Any:
        if self.system.get_file_info(f"{self.root}/{path}").type != fs.FileType.NotFound:
            raise FileExistsError(path)
        self.system.create_dir(f"{self.root}/{path}".rpartition("/")[0], recursive=True)
        return self.system.open_output_stream(f"{self.root}/{path}")

    def keep(self, path: str) -> int:
        return int(self.system.get_file_info(f"{self.root}/{path}").size)

    def keep_names(self, folder: str) -> None:
        return

    def remove(self, path: str) -> None:
        if self.system.get_file_info(f"{self.root}/{path}").type != fs.FileType.NotFound:
            self.system.delete_file(f"{self.root}/{path}")

    def prune(self, folder: str) -> None:
        there = self.system.get_file_info(f"{self.root}/{folder}").type == fs.FileType.Directory
        if there and not self._listed(folder):
            self.system.delete_dir(f"{self.root}/{folder}")

    def folders(self, folder: str) -> list[str]:
        return [found.base_name for found in self._listed(folder) if found.type == fs.FileType.Directory]

    def clear(self, folder: str) -> None:
        self.system.delete_dir(f"{self.root}/{folder}")

    def _listed(self, folder: str, *, below: bool = False) -> list[Any]:
        asked = fs.FileSelector(f"{self.root}/{folder}".rstrip("/"), allow_not_found=True, recursive=below)
        return list(self.system.get_file_info(asked))


@pytest.fixture(params=["a disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StagingFiles:
    if request.param == "a disk":
        return LocalFiles(str(tmp_path / "lake"))
    return ArrowFiles(fs._MockFileSystem(), "lake")


def system_of(place: StagingFiles) -> Any:
    return place.system if isinstance(place, ArrowFiles) else fs.LocalFileSystem()


def files_in(place: StagingFiles) -> list[str]:
    found = ArrowFiles(system_of(place), place.root)._listed("", below=True)
    return sorted(each.path.removeprefix(f"{place.root}/") for each in found if each.type == fs.FileType.File)


def stager(place: StagingFiles, job: str = JOB) -> ParquetStager:
    return ParquetStager(place, f"{STAGED}/{job}", SCHEMA, job=job, task=0)


def staged(place: StagingFiles, job: str = JOB) -> list[StagedFile]:
    writing = stager(place, job)
    writing.write(rows([3, 4]))
    return writing.close()


def test_what_is_staged_is_there_as_it_was_said(place: StagingFiles) -> None:
    [file] = staged(place)
    with system_of(place).open_input_file(f"{place.root}/{file.path}") as data:
        assert data.size() == file.bytes
        assert pq.read_table(data)["_epoch"].to_pylist() == [3, 4]
    assert (file.rows, file.first_epoch, file.last_epoch) == (2, 3, 4)
    assert files_in(place) == [file.path]


def test_two_attempts_at_one_task_never_write_one_file(place: StagingFiles) -> None:
    one, other = stager(place), stager(place)
    for writing in (one, other):
        writing.write(rows([0]))
    paths = [file.path for writing in (one, other) for file in writing.close()]
    assert len(set(paths)) == 2
    assert files_in(place) == sorted(paths)


def test_an_attempt_that_is_aborted_leaves_no_file(place: StagingFiles) -> None:
    kept = staged(place)
    for written in ([0], range(200_000)):  # of the second some are written
        writing = stager(place)
        writing.write(rows(written))
        writing.abort()
    assert files_in(place) == [file.path for file in kept]
    writing = stager(place)
    with pytest.raises(MisplacedRows):
        writing.write(pa.record_batch({"user": ["x"], "amount": [0.0], "_epoch": pa.array([None], pa.int64())}))
    assert writing.close() == []


def test_files_are_discarded_once_or_twice_and_no_others(place: StagingFiles) -> None:
    first, second = staged(place), staged(place, DEAD)
    for _ in range(2):
        discard(place, first)
    assert files_in(place) == [file.path for file in second]
    assert place.folders(STAGED) == [DEAD]
    with pytest.raises(InvalidArgument):
        discard(place, [StagedFile("from_epoch=000000000000/part.parquet", 1, 1, 0, 0)])


def test_a_sweep_removes_what_jobs_of_the_flow_left_once_the_lease_is_confirmed(place: StagingFiles) -> None:
    def lost() -> None:
        raise LeaseLost(flow="shop", now="it is somebody else's")

    [theirs] = staged(place, OTHERS)
    sweep(place, MARK, lost)  # there is nothing of the flow, and nothing is asked
    for job in (JOB, DEAD):
        staged(place, job)
    before = files_in(place)
    with pytest.raises(LeaseLost):
        sweep(place, MARK, lost)
    assert files_in(place) == before
    sweep(place, MARK, lambda: None)
    assert files_in(place) == [theirs.path]


def test_messages_are_staged_the_same_way(place: StagingFiles) -> None:
    writing = MessageStager(place, MessageLayout("t"), SCHEMA, job=JOB, task=0)
    writing.write(rows([4, 3]))
    [file] = writing.close()
    with system_of(place).open_input_file(f"{place.root}/{file.path}") as data:
        assert pa.ipc.open_file(data).read_all()["_epoch"].to_pylist() == [3, 4]
    discard(place, [file])
    assert files_in(place) == []
