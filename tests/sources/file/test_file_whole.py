"""FileSource on files that are read whole: gzip and Parquet."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.sources import CorruptFile, FileOvertaken, FileRewritten, TruncatedFile, UnreadableFile
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import Csv, FileSource, Json, Parquet
from tidegauge.sources.file import admitting

Drive = Callable[[FileSource], Any]
WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)
SETTLED = WRITTEN + timedelta(seconds=2)


def settle(path: Path, at: datetime = WRITTEN) -> None:
    os.utime(path, (at.timestamp(), at.timestamp()))


def write_gzip(path: Path, *numbers: int) -> None:
    path.write_bytes(gzip.compress("".join(f'{{"n": {n}}}\n' for n in numbers).encode(), mtime=0))
    settle(path)


def write_parquet(path: Path, count: int, group: int = 100) -> None:
    pq.write_table(pa.table({"n": range(count)}), path, row_group_size=group)
    settle(path)


@pytest.mark.parametrize("kind", ["gzip", "parquet"])
def test_a_whole_file_enters_once_when_it_has_settled(landing: Path, drive: Drive, kind: str) -> None:
    path = landing / f"a.{kind}.gz"
    if kind == "gzip":
        write_gzip(path, *range(10))
    else:
        write_parquet(path, 10)
    flow = drive(FileSource(f"{landing}/*", format=Json("n long") if kind == "gzip" else Parquet("n long")))
    assert flow.tick(SETTLED - timedelta(milliseconds=1)) == []
    assert flow.last.more
    assert flow.last.note == f"{path} was modified only just now: it enters when it no longer changes"
    assert flow.last.end.distance(Frontier()) == path.stat().st_size
    [piece] = flow.tick(SETTLED)
    assert (piece.lower, piece.upper) == (0, path.stat().st_size)
    assert not flow.last.more
    assert flow.tick(SETTLED) == []
    assert [row["n"] for row in flow.catch_up()] == list(range(10))


@pytest.mark.parametrize("change", ["append", "rewrite", "replace the end"])
def test_a_whole_file_that_changed_after_it_was_bound_is_a_definite_error(
    landing: Path, drive: Drive, change: str
) -> None:
    path = landing / "a.gz"
    write_gzip(path, *range(3000))
    flow = drive(FileSource(str(path), format=Json("n long")))
    slices = flow.tick()
    splits = flow.plan(slices)
    content = path.read_bytes()
    assert len(content) > 4096
    changed = {"append": content + b"x", "rewrite": content[::-1], "replace the end": content[:-1] + b"x"}[change]
    path.write_bytes(changed)
    for attempt in (flow.probe, lambda: flow.plan(slices)):
        with pytest.raises(FileRewritten):
            attempt()
    with pytest.raises(FileOvertaken):
        flow.rows_of(splits)


def test_a_whole_file_that_was_touched_is_the_same(landing: Path, drive: Drive) -> None:
    write_gzip(landing / "a.gz", 1)
    flow = drive(FileSource(f"{landing}/*.gz", format=Json("n long")))
    flow.tick()
    settle(landing / "a.gz", SETTLED)
    assert flow.tick() == []
    assert len(flow.catch_up()) == 1


def test_a_parquet_file_is_cut_by_groups_of_rows(landing: Path, drive: Drive) -> None:
    write_parquet(landing / "a.parquet", 1000)
    flow = drive(FileSource(f"{landing}/*.parquet", format=Parquet("n long"), metadata=True, split_bytes=1))
    splits = flow.plan(flow.tick())
    assert [split.groups for split in splits] == [(i, i + 1) for i in range(10)]
    rows = flow.rows_of(splits)
    assert [(row["n"], row["_offset"]) for row in rows] == [(i, i) for i in range(1000)]


def test_a_parquet_file_without_rows_has_one_split_and_no_row(landing: Path, drive: Drive) -> None:
    write_parquet(landing / "a.parquet", 0)
    flow = drive(FileSource(f"{landing}/*.parquet", format=Parquet("n long")))
    assert flow.tick() != []
    assert flow.catch_up() == []


def test_a_parquet_file_without_its_footer_waits_for_more(landing: Path, drive: Drive) -> None:
    path = landing / "a.parquet"
    write_parquet(path, 10)
    content = path.read_bytes()
    path.write_bytes(content[:-8])
    flow = drive(FileSource(f"{landing}/*.parquet", format=Parquet()))
    assert flow.tick() == []
    assert (flow.last.more, flow.last.note) == (False, f"{path} is not complete")
    path.write_bytes(content)
    flow.tick()
    assert len(flow.catch_up()) == 10
    assert flow.bound.schema.names == ["n"]


def test_whole_files_larger_than_an_epoch_enter_one_at_a_time(landing: Path, drive: Drive) -> None:
    for name in "abc":
        write_gzip(landing / f"{name}.gz", 1, 2)
    flow = drive(FileSource(f"{landing}/*.gz", format=Json("n long"), max_bytes_per_epoch=1))
    more = []
    while flow.tick():
        more.append(flow.last.more)
    assert more == [True, True, False]
    assert len(flow.catch_up()) == 6


def test_the_columns_of_a_compressed_file_are_inferred(landing: Path, drive: Drive) -> None:
    (landing / "a.csv.gz").write_bytes(gzip.compress(b"n,user\n1,ann\n2,bob\n"))
    flow = drive(FileSource(f"{landing}/*.csv.gz", format=Csv()))
    flow.tick()
    assert flow.catch_up() == [{"n": 1, "user": "ann"}, {"n": 2, "user": "bob"}]


def test_a_compressed_file_that_was_cut_off_is_named(landing: Path, drive: Drive) -> None:
    path = landing / "a.gz"
    write_gzip(path, *range(1000))
    path.write_bytes(path.read_bytes()[:-20])
    flow = drive(FileSource(f"{landing}/*.gz", format=Json("n long")))
    flow.tick()
    with pytest.raises(UnreadableFile) as caught:
        flow.catch_up()
    assert str(path) in str(caught.value)
    assert caught.value.evidence["problem"] == TruncatedFile.code


ROWS = [{"n": n} for n in range(3000)]


@pytest.mark.parametrize("flaw", ["cut off", "not written yet"])
@pytest.mark.parametrize("repair", ["in place", "moved over it"])
def test_a_compressed_file_that_is_not_whole_is_waited_for_and_read_when_it_is(
    landing: Path, drive: Drive, flaw: str, repair: str
) -> None:
    path = landing / "a.gz"
    write_gzip(path, *range(3000))
    content = path.read_bytes()
    half = len(content) // 2
    path.write_bytes(content[:half] + (bytes(len(content) - half) if flaw == "not written yet" else b""))
    settle(path)
    write_gzip(landing / "b.gz", -1)
    flow = drive(FileSource(f"{landing}/*.gz", format=Json("n long")))
    flow.tick(SETTLED)
    assert flow.catch_up() == [{"n": -1}], "it holds up no other file"
    waiting = SETTLED + timedelta(minutes=50)
    assert flow.tick(waiting) == []
    assert flow.last.note.startswith(f"{path} is not complete: ")
    assert not flow.last.more
    assert flow.last.end.distance(flow.bound.frontier) == path.stat().st_size, "it is what the source lags by"
    if repair == "moved over it":
        (landing / ".part").write_bytes(content)
        (landing / ".part").rename(path)
    else:
        path.write_bytes(content)
    settle(path, waiting)
    assert flow.tick(waiting) == []
    flow.tick(waiting + timedelta(seconds=2))
    assert flow.catch_up() == ROWS


def test_a_compressed_file_that_does_not_change_is_looked_through_once(
    landing: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []

    def flaw(stream: object) -> str:
        looked.append(stream)
        return "cut off"

    monkeypatch.setattr(admitting, "flaw", flaw)
    write_gzip(landing / "a.gz", 1)
    flow = drive(FileSource(f"{landing}/*.gz", format=Json("n long")))
    for _ in range(3):
        assert flow.tick(SETTLED) == []
    assert len(looked) == 1


@pytest.mark.parametrize("flaw", [TruncatedFile, CorruptFile])
def test_a_compressed_file_that_does_not_become_whole_fails_its_source_at_last(
    landing: Path, drive: Drive, flaw: type[TidegaugeError]
) -> None:
    path = landing / "a.gz"
    write_gzip(path, *range(3000))
    content = path.read_bytes()
    path.write_bytes(content[:-8] + (bytes(8) if flaw is CorruptFile else b""))
    settle(path)
    flow = drive(FileSource(f"{landing}/*.gz", format=Json("n long")))
    assert flow.tick(WRITTEN + timedelta(minutes=59)) == []
    [piece] = flow.tick(WRITTEN + timedelta(minutes=60))
    assert (piece.lower, piece.upper) == (0, path.stat().st_size)
    with pytest.raises(UnreadableFile, match=re.escape(str(path))) as caught:
        flow.catch_up()
    assert caught.value.evidence["problem"] == flaw.code


def test_a_csv_file_grows_like_any_other(landing: Path, drive: Drive) -> None:
    path = landing / "a.csv"
    path.write_text("n,user\n")
    flow = drive(FileSource(f"{landing}/*.csv", format=Csv(), split_bytes=1))
    assert flow.tick() == []
    assert "no full record yet" in flow.last.note
    with path.open("a") as stream:
        stream.write('1,"ann\nb"\n2,"bo')
    flow.tick()
    with path.open("a") as stream:
        stream.write('b"\n3,eve\n')
    flow.tick()
    assert flow.tick() == []
    rows = [flow.read_slices(epoch) for epoch in flow.epochs]
    assert rows == [[{"n": 1, "user": "ann\nb"}], [{"n": 2, "user": "bob"}, {"n": 3, "user": "eve"}]]
