"""Parquet tables in an object store: every law of sinks, on a real server, and what a store has of its own."""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.s3 import Lake
from tests.sinks.conftest import OUTPUT, SCHEMA, stage, write_id

from tidegauge.errors.objects import MendedOnDisksAlone
from tidegauge.errors.sinks import DamagedManifest, StagedFileMissing, TableNotRemovable, TableUpperMismatch
from tidegauge.objects.path import ObjectPath
from tidegauge.sinks import ParquetSink, Sink
from tidegauge.sinks.parquet.bucket import BucketGround
from tidegauge.sinks.parquet.ground import FolderGround
from tidegauge.testing.kit import check_sink


def listed_rows(address: str) -> list[dict[str, Any]]:
    """What a reader sees who lists the table, and skips what begins with "_" or "."."""
    place = ObjectPath.of(address)
    seen = [path for path in place.below() if not any(part[0] in "_." for part in path.split("/"))]
    tables = [pq.read_table(io.BytesIO((place / path).read_bytes())) for path in seen]
    found: list[dict[str, Any]] = pa.concat_tables(tables, promote_options="default").to_pylist() if tables else []
    return found


@dataclass
class LakeBench:
    """A table at an address of its own."""

    folder: Path
    lake: Lake
    sink: Any = field(init=False)

    def __post_init__(self) -> None:
        self.path = self.lake.at(f"{uuid.uuid4().hex}/orders")
        self.sink = ParquetSink(self.path)

    def rows(self) -> list[dict[str, Any]]:
        return listed_rows(self.path)

    def remove(self) -> None:
        ObjectPath.of(self.path).clear()

    def ways(self) -> Sequence[Sink]:
        return [ParquetSink(f"{self.path}/"), ParquetSink(self.path.replace("s3://", "s3a://"))]

    def elsewhere(self) -> Sink:
        return ParquetSink(f"{self.path}-2")


@pytest.mark.long
def test_a_table_in_a_store_holds_every_law(lake: Lake) -> None:
    report = check_sink(lambda folder: LakeBench(folder, lake), crashes=20, deadline=240)
    report.require()
    assert {finding.name for finding in report.findings if finding.untried} == {"a layout changes no rows"}


def opened(lake: Lake) -> Any:
    return ParquetSink(lake.at()).open(OUTPUT)


def committed(lake: Lake, table: Any, lower: int, upper: int, user: str = "ada", **how: Any) -> Any:
    files = stage(ParquetSink(lake.at()), range(lower, upper), user)
    table.commit(lower, upper, SCHEMA, files, write=write_id(), **how)
    return files


def test_the_manifest_is_the_commit_and_the_rows_come_into_sight_behind_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(lake)
    committed(lake, table, 0, 2)
    with monkeypatch.context() as dead:
        dead.setattr(BucketGround, "show", lambda _self, _files: (_ for _ in ()).throw(OSError("the driver died")))
        committed(lake, table, 2, 3, "bob")
    assert [row["user"] for row in listed_rows(lake.at())] == ["ada", "ada"]
    found = opened(lake)
    assert found.upper == 3
    where = [uri.removeprefix(f"{lake.at()}/").split("/")[0] for uri in found.uris(found.files())]
    assert where == ["from_epoch=000000000000", "_staged"]
    assert ObjectPath.of(found.uris(found.files())[1]).exists()
    found.sweep(lambda: None)
    assert sorted(row["user"] for row in listed_rows(lake.at())) == ["ada", "ada", "bob"]
    assert [path for path in lake.objects() if path.startswith("_staged")] == []


def test_what_jobs_have_left_goes_with_the_next_commit_and_shuts_out_the_driver_that_left_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = opened(lake)
    sink = ParquetSink(lake.at())
    mark = OUTPUT.incarnation[-16:]
    early = stage(sink, [0], "early", job=mark + uuid.uuid4().hex[:16])
    other = stage(sink, [0], "of another flow", job="b" * 16 + uuid.uuid4().hex[:16])
    awake = opened(lake)
    awake.sweep(lambda: None)
    assert len([path for path in lake.objects() if path.startswith("_staged")]) == 2
    put = ObjectPath.put_new

    def slept(path: ObjectPath, data: bytes) -> bool:
        """The old driver falls asleep right before its commit, and the new one makes its own."""
        if path.name == "_manifest.json":
            monkeypatch.setattr(ObjectPath, "put_new", put)
            committed(lake, awake, 0, 1, "new")
        return put(path, data)

    monkeypatch.setattr(ObjectPath, "put_new", slept)
    with pytest.raises(TableUpperMismatch):
        asleep.commit(0, 1, SCHEMA, early, write=write_id())
    assert [row["user"] for row in listed_rows(lake.at())] == ["new"]
    assert [path for path in lake.objects() if path.startswith("_staged")] == [other[0].path]
    late = opened(lake)
    with pytest.raises(StagedFileMissing):
        late.commit(1, 2, SCHEMA, [early[0].__class__(early[0].path, 1, early[0].bytes, 1, 1)], write=write_id())


def test_rows_change_places_in_one_commit_and_those_taken_out_stay_readable(lake: Lake) -> None:
    table = opened(lake)
    committed(lake, table, 0, 2, "old")
    committed(lake, table, 2, 4, "old")
    anew = opened(lake).replacement("e" * 32)
    files = stage(ParquetSink(lake.at()), range(5), "new")
    anew.commit(0, 5, SCHEMA, files, write=write_id())
    assert sorted(row["user"] for row in listed_rows(lake.at())) == ["new"] * 5
    now = opened(lake)
    assert (now.upper, now.edition) == (5, "e" * 32)
    with pytest.raises(TableUpperMismatch):
        committed(lake, table, 4, 5, "asleep")
    before = now.files()
    committed(lake, now, 5, 6, "more", remove=before[:1])
    assert sorted(row["user"] for row in listed_rows(lake.at())) == ["more"]
    past = opened(lake)
    assert [file.path.split("/")[0] for file in past.files(as_of=4)] == ["_removed"]
    [uri] = past.uris(past.files(as_of=4))
    assert pq.read_table(io.BytesIO(ObjectPath.of(uri).read_bytes())).num_rows == 5


@pytest.mark.long
def test_a_swap_that_was_cut_short_is_finished_by_the_next_run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(lake)
    committed(lake, table, 0, 2, "old")
    anew = opened(lake).replacement("e" * 32)
    files = stage(ParquetSink(lake.at()), range(3), "new")

    def died(*_: Any) -> None:
        raise OSError("the driver died")

    with monkeypatch.context() as dead:
        dead.setattr(BucketGround, "finish", died)
        with pytest.raises(OSError, match="died"):
            anew.commit(0, 3, SCHEMA, files, write=write_id())
    now = opened(lake)
    assert now.upper == 3
    uris = now.uris(now.files())
    assert {
        row["user"] for uri in uris for row in pq.read_table(io.BytesIO(ObjectPath.of(uri).read_bytes())).to_pylist()
    } == {"new"}
    now.sweep(lambda: None)
    assert sorted(row["user"] for row in listed_rows(lake.at())) == ["new"] * 3
    committed(lake, opened(lake), 3, 4, "more")
    assert len(listed_rows(lake.at())) == 4


def test_a_table_is_removed_with_its_first_manifest_last(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table, sink = opened(lake), ParquetSink(lake.at())
    for epoch in range(3):
        committed(lake, table, epoch, epoch + 1)
    (ObjectPath.of(lake.at()) / "notes.txt").put(b"")
    with pytest.raises(TableNotRemovable):
        sink.remove(OUTPUT)
    (ObjectPath.of(lake.at()) / "notes.txt").unlink()

    def cut_short(place: ObjectPath, paths: list[str]) -> None:
        for path in paths[:4]:
            (place / path).unlink()
        raise OSError("cut short")

    with monkeypatch.context() as dead:
        dead.setattr(ObjectPath, "remove", cut_short)
        with pytest.raises(OSError, match="cut short"):
            sink.remove(OUTPUT)
    sink.remove(OUTPUT)
    assert lake.objects() == []
    assert opened(lake).upper == 0


def copied(folder: Path, lake: Lake) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            ObjectPath.of(lake.at(f"orders/{path.relative_to(folder)}")).put(path.read_bytes())


def test_a_swap_that_was_copied_from_a_disk_half_done_is_refused(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ParquetSink(str(tmp_path / "orders"))
    here.open(OUTPUT).commit(0, 1, SCHEMA, stage(here, [0]), write=write_id())

    def died(*_: Any) -> None:
        raise OSError("the driver died")

    monkeypatch.setattr(FolderGround, "finish", died)
    with pytest.raises(OSError, match="died"):
        here.open(OUTPUT).replacement("e" * 32).commit(0, 1, SCHEMA, stage(here, [0]), write=write_id())
    assert here.open(OUTPUT).upper == 1
    copied(tmp_path / "orders", lake)
    with pytest.raises(DamagedManifest, match="carries no first commit"):
        opened(lake)


def test_a_table_that_was_copied_from_a_disk_goes_on(lake: Lake, tmp_path: Path) -> None:
    here = ParquetSink(str(tmp_path / "orders"))
    table = here.open(OUTPUT)
    for epoch in range(3):
        table.commit(epoch, epoch + 1, SCHEMA, stage(here, [epoch]), write=write_id())
    copied(tmp_path / "orders", lake)
    there = opened(lake)
    assert there.upper == 3
    committed(lake, there, 3, 4, "bob")
    assert sorted(row["user"] for row in listed_rows(lake.at())) == ["ada", "ada", "ada", "bob"]


def test_a_repair_in_place_is_refused(lake: Lake) -> None:
    with pytest.raises(MendedOnDisksAlone):
        ParquetSink(lake.at()).mend(OUTPUT)
