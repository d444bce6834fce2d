"""Files that were copied to another folder or machine, or put back from a backup, are the files that they were."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegauge.sources import FileSource, Json, Parquet

Drive = Callable[[FileSource], Any]


def lines(*numbers: int) -> str:
    return "".join(f'{{"n": {number}}}\n' for number in numbers)


def source(folder: Path, pattern: str = "**/*.jsonl*", **options: Any) -> FileSource:
    return FileSource(str(folder / pattern), **{"format": Json("n long"), "settle": 0.0, **options})


def read(flow: Any) -> list[int]:
    """Tick until nothing comes, read, and return what came."""
    while flow.tick():
        pass
    return sorted(row["n"] for row in flow.catch_up())


def fill(folder: Path) -> None:
    (folder / "eu").mkdir(parents=True)
    (folder / "a.jsonl").write_text(lines(1, 2))
    (folder / "eu/c.jsonl").write_text(lines(3, 4))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines(5, 6).encode(), mtime=0))


def copied(folder: Path, to: Path) -> Path:
    """Copy a folder as `cp -a` does: other inode numbers, and the same times."""
    return Path(shutil.copytree(folder, to))


@pytest.mark.parametrize("original", ["stays", "goes"])
def test_files_that_were_copied_with_their_folder_go_on_where_the_pattern_has_moved_to(
    landing: Path, drive: Drive, original: str
) -> None:
    fill(landing / "old")
    flow = drive(source(landing / "old"))
    assert read(flow) == [1, 2, 3, 4, 5, 6]
    copied(landing / "old", landing / "new/in")
    if original == "goes":
        shutil.rmtree(landing / "old")
    else:
        with (landing / "old/a.jsonl").open("a") as stream:
            stream.write(lines(99))  # whoever writes there writes to another flow now
    flow.source = source(landing / "new/in")
    assert read(flow) == []
    with (landing / "new/in/a.jsonl").open("a") as stream:
        stream.write(lines(7))
    (landing / "new/in/c.jsonl").write_text(lines(3, 4))  # the same lines in another place are another file
    (landing / "new/in/us").mkdir()
    (landing / "new/in/us/a.jsonl").write_text(lines(1, 2))
    assert read(flow) == [1, 2, 3, 4, 7]
    assert flow.detail("b.jsonl.gz")["path"] == str(landing / "new/in/b.jsonl.gz")
    assert len(flow.bound.details) == 5


def test_what_was_bound_before_the_move_is_read_after_it(landing: Path, drive: Drive) -> None:
    fill(landing / "old")
    flow = drive(source(landing / "old"))
    flow.tick()
    copied(landing / "old", landing / "new")
    shutil.rmtree(landing / "old")
    flow.source = source(landing / "new")
    assert sorted(row["n"] for row in flow.catch_up()) == [1, 2, 3, 4, 5, 6]


def test_another_file_at_the_place_of_one_that_has_moved_is_another_file(landing: Path, drive: Drive) -> None:
    fill(landing / "old")
    flow = drive(source(landing / "old"))
    assert read(flow) == [1, 2, 3, 4, 5, 6]
    (landing / "new").mkdir()
    (landing / "new/a.jsonl").write_text(lines(1, 9))
    (landing / "new/b.jsonl.gz").write_bytes(gzip.compress(lines(5, 7).encode(), mtime=0))
    flow.source = source(landing / "new")
    assert read(flow) == [1, 5, 7, 9]


@pytest.mark.parametrize("kind", ["gzip", "parquet"])
def test_a_whole_file_that_is_put_back_under_its_path_is_not_read_again(
    landing: Path, drive: Drive, kind: str
) -> None:
    name, flow_source = "a.jsonl.gz", source(landing)
    if kind == "parquet":
        name, flow_source = "a.parquet", source(landing, "*.parquet", format=Parquet("n long"))

    def write(*numbers: int) -> None:
        (landing / name).unlink(missing_ok=True)
        (landing / "_other").touch()  # takes the inode number that was let go
        if kind == "gzip":
            (landing / name).write_bytes(gzip.compress(lines(*numbers).encode(), mtime=0))
        else:
            pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), landing / name)

    write(1, 2)
    flow = drive(flow_source)
    assert flow.tick()
    write(1, 2)
    assert read(flow) == [1, 2]  # bound before, read after
    assert flow.tick() == []
    write(1, 3)
    assert read(flow) == [1, 3]
    (landing / name).rename(landing / f"_{name}")
    shutil.copy(landing / f"_{name}", landing / name)  # beside the file that it was copied from it is another one
    flow.source = replace(flow.source)
    assert read(flow) == [1, 3]
