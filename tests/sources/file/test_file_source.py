"""FileSource on growing files of lines: the cases, by name."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegauge.errors.base import Definite, TidegaugeError
from tidegauge.errors.flow import InvalidArgument, ReservedColumn
from tidegauge.errors.sources import FileGone, FileOvertaken, FileRewritten, ShortRead, UnreadableRecord
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import FileSource, Json
from tidegauge.sources.file.disk import LocalDisk
from tidegauge.sources.protocol import Source

Drive = Callable[[FileSource], Any]
NOW = datetime(2100, 1, 1, tzinfo=UTC)


def lines(*numbers: int) -> str:
    return "".join(f'{{"n": {number}}}\n' for number in numbers)


def source(landing: Path, pattern: str = "*.jsonl", **options: Any) -> FileSource:
    return FileSource(str(landing / pattern), **{"format": Json("n long"), **options})


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [row["n"] for row in rows]


def add(path: Path, text: str) -> None:
    with path.open("a") as stream:
        stream.write(text)


def test_it_is_a_source_and_a_value(landing: Path) -> None:
    one: Source = source(landing)
    assert isinstance(one, Source)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.unit == "bytes"
    assert json.loads(json.dumps(one.describe()))["path"] == f"{landing}/*.jsonl"
    one.acknowledge(Frontier({"a": 1}))


def test_f1_a_file_that_appears_later_is_in_a_later_epoch_only(landing: Path, drive: Drive) -> None:
    (landing / "a.jsonl").write_text(lines(1, 2))
    (landing / "b.jsonl").write_text(lines(3))
    flow = drive(source(landing))
    flow.tick()
    (landing / "d.jsonl").write_text(lines(4))
    flow.tick()
    assert [sorted(numbers(flow.read_slices(epoch))) for epoch in flow.epochs] == [[1, 2, 3], [4]]


def test_f2_a_growing_file_is_read_from_where_it_was_and_a_partial_line_waits(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1, 2) + '{"n": 3')
    flow = drive(source(landing))
    [first] = flow.tick()
    assert (first.lower, first.upper) == (0, len(lines(1, 2)))
    assert flow.last.note == f"7 bytes of an unfinished last line in {path}"
    assert list(flow.last.end.values()) == [len(lines(1, 2)) + 7]
    assert not flow.last.more
    add(path, "3}\n" + lines(4))
    [second] = flow.tick()
    assert second.partition == first.partition
    assert second.lower == first.upper
    assert numbers(flow.read_slices([first])) == [1, 2]
    assert numbers(flow.read_slices([second])) == [33, 4]
    assert flow.last.note == ""


def test_f3_a_file_changed_in_place_before_it_was_read_is_reported(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1, 2))
    flow = drive(source(landing))
    slices = flow.tick()
    splits = flow.plan(slices)
    path.write_text(lines(8, 9))
    with pytest.raises(FileOvertaken) as caught:  # whether it is lost is for the next plan to say
        flow.rows_of(splits)
    assert isinstance(caught.value.__cause__, FileRewritten)
    with pytest.raises(FileRewritten):
        flow.plan(slices)


def test_f4_a_file_deleted_before_it_was_read_is_gone(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1, 2))
    flow = drive(source(landing))
    slices = flow.tick()
    splits = flow.plan(slices)
    path.unlink()
    assert flow.tick() == []
    assert dict(flow.last.lower) == dict(flow.bound.frontier)
    with pytest.raises(FileOvertaken):
        flow.rows_of(splits)
    with pytest.raises(FileGone) as caught:
        flow.plan(slices)
    assert isinstance(caught.value, Definite)
    assert str(path) in str(caught.value)


def test_a_deleted_file_that_was_read_is_no_matter(landing: Path, drive: Drive) -> None:
    for name in "ab":
        (landing / f"{name}.jsonl").write_text(lines(1))
    flow = drive(source(landing))
    flow.tick()
    (landing / "a.jsonl").unlink()
    (landing / "c.jsonl").write_text(lines(2))
    assert numbers(flow.read_slices(flow.tick())) == [2]


def test_f5_an_empty_file_has_no_partition_and_no_row(landing: Path, drive: Drive) -> None:
    (landing / "a.jsonl").touch()
    flow = drive(source(landing))
    assert flow.tick() == []
    assert flow.last.end == Frontier()
    assert not flow.last.more
    assert flow.last.note == ""


def test_f7_a_file_under_two_names_is_one_partition(landing: Path, drive: Drive) -> None:
    (landing / "a.jsonl").write_text(lines(1, 2))
    (landing / "b.jsonl").symlink_to(landing / "a.jsonl")
    os.link(landing / "a.jsonl", landing / "c.jsonl")
    flow = drive(source(landing))
    assert len(flow.tick()) == 1
    assert flow.tick() == []
    assert numbers(flow.catch_up()) == [1, 2]


@pytest.mark.parametrize("new", [lines(7, 8), lines(7, 8, 9)])
def test_t56_a_file_rewritten_in_place_is_a_definite_error(landing: Path, drive: Drive, new: str) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1, 2))
    flow = drive(source(landing))
    flow.tick()
    before = flow.detail("a.jsonl")["digest"]
    path.write_text(new)
    os.utime(path, (1, 1))
    with pytest.raises(FileRewritten) as caught:
        flow.probe()
    evidence = caught.value.evidence
    assert isinstance(caught.value, Definite)
    assert (evidence["path"], evidence["bound"], evidence["size"]) == (str(path), len(lines(1, 2)), len(new))
    assert evidence["expected"] == before
    assert evidence["found"] != before or new in lines(1, 2)
    assert str(TidegaugeError.decode(caught.value.encode())) == str(caught.value)


@pytest.mark.parametrize("new", ["", '{"n": 1}\n', lines(17), lines(1) + "{"])
def test_a_file_that_is_shorter_than_what_is_bound_began_anew(landing: Path, drive: Drive, new: str) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1, 2))
    flow = drive(source(landing))
    flow.tick()
    flow.catch_up()
    path.write_text(new)
    flow.tick()
    flow.bound = replace(flow.bound, last=flow.last)
    add(path, lines(*range(100, 120)) if not new.endswith("{") else '"n": 3}\n')
    flow.tick()
    assert flow.tick() == []
    expected = {"": [], '{"n": 1}\n': [1], lines(17): [17], lines(1) + "{": [1, 3]}[new]
    assert numbers(flow.catch_up()) == expected + ([] if new.endswith("{") else list(range(100, 120)))
    assert len(flow.bound.frontier) == 2


def test_a_file_that_began_anew_before_it_was_read_is_lost_to_its_readers(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(*range(1000)))
    flow = drive(source(landing))
    slices = flow.tick()
    os.truncate(path, 5000)
    flow.tick()
    with pytest.raises((FileGone, FileRewritten)):
        flow.plan(slices)


def test_t56_a_deleted_file_and_a_new_one_of_its_name_are_two_partitions(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1, 2))
    flow = drive(source(landing))
    flow.tick()
    flow.catch_up()
    path.unlink()
    path.write_text(lines(1, 3))  # on many file systems the same inode number
    flow.tick()
    assert numbers(flow.catch_up()) == [1, 3]
    assert len(flow.bound.frontier) == 2


def test_an_inode_number_used_again_under_another_name_is_a_new_partition(landing: Path, drive: Drive) -> None:
    (landing / "a.jsonl").write_text(lines(1, 2))
    flow = drive(source(landing))
    flow.tick()
    flow.catch_up()
    [(key, detail)] = flow.bound.details.items()
    (landing / "a.jsonl").unlink()
    (landing / "b.jsonl").write_text(lines(3))
    # As if the number were the same, and the file system kept no birth times.
    ino = (landing / "b.jsonl").stat().st_ino
    flow.bound = Bound(
        frontier=flow.bound.frontier, details={key: {**detail, "ino": ino, "born": 0}}, schema=flow.bound.schema
    )
    flow.tick()
    assert numbers(flow.catch_up()) == [3]


def test_t56_a_file_replaced_by_rename_is_a_new_partition(landing: Path, drive: Drive) -> None:
    (landing / "a.jsonl").write_text(lines(1))
    flow = drive(source(landing))
    flow.tick()
    (landing / "tmp").write_text(lines(2, 1))
    (landing / "tmp").rename(landing / "a.jsonl")
    [piece] = flow.tick()
    assert piece.lower == 0
    assert numbers(flow.read_slices([piece])) == [2, 1]


def test_an_editors_save_of_a_file_that_only_grew_is_growth(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(*range(1000)))
    flow = drive(source(landing))
    [first] = flow.tick()
    (landing / "tmp").write_text(lines(*range(1001)))
    (landing / "tmp").rename(path)
    assert numbers(flow.read_slices([first])) == list(range(1000))  # bound before, read after
    [piece] = flow.tick()
    assert (piece.partition, piece.lower) == (first.partition, first.upper)
    assert numbers(flow.read_slices([piece])) == [1000]
    (landing / "tmp").write_text(lines(*range(998), 5555, 6666, 7777))
    (landing / "tmp").rename(path)  # it begins as it did, but the last lines that are bound are others
    assert flow.tick()[0].lower == 0


def test_a_copy_is_a_new_file(landing: Path, drive: Drive) -> None:
    (landing / "a.jsonl").write_text(lines(1))
    flow = drive(source(landing))
    flow.tick()
    (landing / "b.jsonl").write_bytes((landing / "a.jsonl").read_bytes())
    assert numbers(flow.read_slices(flow.tick())) == [1]


def test_a_rotated_log_is_read_to_its_end_under_a_name_that_does_not_match(landing: Path, drive: Drive) -> None:
    log = landing / "app.log"
    log.write_text(lines(1))
    flow = drive(source(landing, "*.log"))
    flow.tick()
    add(log, lines(2))
    log.rename(landing / "app.log.1")
    log.write_text(lines(3))
    flow.tick()
    add(landing / "app.log.1", lines(4))  # its writer still has it open
    flow.tick()
    assert flow.tick() == []
    assert [sorted(numbers(flow.read_slices(epoch))) for epoch in flow.epochs] == [[1], [2, 3], [4]]
    assert flow.detail("app.log.1")["first"] == str(log)


def test_rotation_between_probe_and_plan_and_between_plan_and_read(landing: Path, drive: Drive) -> None:
    log = landing / "app.log"
    log.write_text(lines(1, 2))
    flow = drive(source(landing, "*.log"))
    slices = flow.tick()
    log.rename(landing / "app.log.1")
    log.write_text(lines(8, 9))
    splits = flow.plan(slices)
    (landing / "app.log.1").rename(landing / "app.log.2")
    log.rename(landing / "app.log.1")
    assert numbers(flow.rows_of(splits)) == [1, 2]


def test_a_file_moved_between_folders_that_match_is_the_same_file(landing: Path, drive: Drive) -> None:
    for folder in ("in", "done"):
        (landing / folder).mkdir()
    (landing / "in/a.jsonl").write_text(lines(1))
    flow = drive(source(landing, "*/*.jsonl"))
    slices = flow.tick()
    (landing / "in/a.jsonl").rename(landing / "done/a.jsonl")
    assert numbers(flow.read_slices(slices)) == [1]
    add(landing / "done/a.jsonl", lines(2))
    assert numbers(flow.read_slices(flow.tick())) == [2]


def test_the_device_number_may_change_at_a_restart_of_the_machine(landing: Path, drive: Drive) -> None:
    (landing / "a.jsonl").write_text(lines(1))
    flow = drive(source(landing))
    flow.tick()
    [(key, detail)] = flow.bound.details.items()
    other = {**detail, "dev": int(detail["dev"]) + 1}
    flow.bound = Bound(frontier=flow.bound.frontier, details={key: other}, schema=flow.bound.schema)
    assert flow.tick() == []
    add(landing / "a.jsonl", lines(2))
    assert numbers(flow.read_slices(flow.tick())) == [2]
    assert flow.detail("a.jsonl")["dev"] == detail["dev"]


def test_an_epoch_takes_its_limit_in_the_order_of_the_paths(landing: Path, drive: Drive) -> None:
    for i in range(4):
        (landing / f"{i}.jsonl").write_text(lines(*range(10 * i, 10 * i + 5)))
    flow = drive(source(landing, max_bytes_per_epoch=7 * len(lines(10))))
    more = []
    while flow.tick():
        more.append(flow.last.more)
        assert sum(piece.size for piece in flow.epochs[-1]) <= 7 * len(lines(10))
    assert more == [True, True, False]
    rows = [sorted(numbers(flow.read_slices(epoch))) for epoch in flow.epochs]
    assert rows == [[0, 1, 2, 3, 4, 10, 11], [12, 13, 14, 20, 21, 22, 23], [24, 30, 31, 32, 33, 34]]


def test_a_record_larger_than_an_epoch_is_an_epoch(landing: Path, drive: Drive) -> None:
    (landing / "a.jsonl").write_text(lines(1) + f'{{"n": 2, "pad": "{"x" * 5000}"}}\n' + lines(3))
    flow = drive(source(landing, max_bytes_per_epoch=1))
    while flow.tick():
        pass
    assert numbers(flow.catch_up()) == [1, 2, 3]


def test_an_idle_probe_opens_no_file(landing: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(20):
        (landing / f"{i}.jsonl").write_text(lines(i))
    flow = drive(source(landing))
    flow.tick()
    opened: list[str] = []

    def spy(disk: LocalDisk, path: str) -> Any:
        opened.append(path)
        return plainly(disk, path)

    plainly = LocalDisk.open
    monkeypatch.setattr(LocalDisk, "open", spy)
    assert flow.tick() == []
    assert opened == []
    add(landing / "3.jsonl", lines(3))
    flow.tick()
    assert opened == [str(landing / "3.jsonl")]


def test_it_says_what_it_is_waiting_for(landing: Path, drive: Drive) -> None:
    flow = drive(source(landing))
    flow.tick()
    assert flow.last.note == f"waiting: no file matches '{landing}/*.jsonl'"


def test_a_name_that_is_taken_for_a_pattern_is_told_how_to_be_written(landing: Path, drive: Drive) -> None:
    add(landing / "a[1].jsonl", lines(1))
    flow = drive(source(landing, "a[1].jsonl"))
    flow.tick()
    assert flow.last.note == (
        f"waiting: no file matches '{landing}/a[1].jsonl', but there is a file of that very name: "
        f"write '{landing}/a[[]1].jsonl' for it"
    )
    assert drive(source(landing, "a[[]1].jsonl")).tick()


def test_splits_are_cut_at_records_and_together_are_the_slice(landing: Path, drive: Drive) -> None:
    (landing / "a.jsonl").write_text(lines(*range(500)))
    flow = drive(source(landing, split_bytes=1000))
    splits = flow.plan(flow.tick())
    assert len(splits) > 4
    assert numbers(flow.rows_of(splits)) == list(range(500))
    assert numbers(flow.rows_of(splits[2:3])) == numbers(flow.rows_of(splits[2:3]))
    assert sum(split.weight for split in splits) == splits[-1].upper


def test_metadata_says_where_a_row_came_from(landing: Path, drive: Drive) -> None:
    (landing / "a.jsonl").write_text(lines(1, 2, 3))
    flow = drive(source(landing, metadata=True, split_bytes=1))
    [piece] = flow.tick()
    assert flow.bound.schema == pa.schema([("n", pa.int64()), ("_partition", pa.string()), ("_offset", pa.int64())])
    assert flow.read_slices([piece]) == [
        {"n": i + 1, "_partition": piece.partition, "_offset": i * len(lines(1))} for i in range(3)
    ]


def test_columns_are_inferred_once_from_the_first_file_that_shows_them(landing: Path, drive: Drive) -> None:
    (landing / "a.jsonl").write_text('{"n"')
    (landing / "b.jsonl").write_text(lines(1))
    (landing / "c.jsonl").write_text('{"n": 2, "other": true}\n')
    flow = drive(source(landing, format=Json(), metadata=True))
    assert flow.source.schema is None
    flow.tick()
    assert flow.bound.schema.names == ["n", "_partition", "_offset"]
    add(landing / "a.jsonl", ": 3}\n")
    flow.tick()
    assert flow.last.schema is None
    assert sorted(numbers(flow.catch_up())) == [1, 2, 3]


def test_a_bad_record_is_told_with_its_place(landing: Path, drive: Drive) -> None:
    (landing / "a.jsonl").write_text(lines(1) + "{oops}\n" + lines(3))
    flow = drive(source(landing))
    flow.tick()
    assert numbers(flow.catch_up()) == [1, 3]
    [bad] = flow.bad
    assert (bad.partition, bad.position, bad.code) == (
        flow.epochs[0][0].partition,
        len(lines(1)),
        UnreadableRecord.code,
    )
    assert bad.raw.strip() == b"{oops}"


def test_a_file_truncated_under_the_reader_is_an_error_and_never_fewer_rows(
    landing: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(*range(2000)))
    flow = drive(source(landing))
    splits = flow.plan(flow.tick())
    real = Json.decode

    def truncating(*arguments: Any, **named: Any) -> Any:
        os.truncate(path, 8000)
        return real(*arguments, **named)

    monkeypatch.setattr(Json, "decode", truncating)
    with pytest.raises(FileOvertaken) as caught:
        flow.rows_of(splits)
    assert isinstance(caught.value.__cause__, ShortRead)
    assert caught.value.__cause__.evidence["size"] == 8000


def test_a_file_that_shrank_before_it_was_read_is_reported_without_a_row(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(*range(2000)))
    flow = drive(source(landing))
    slices = flow.tick()
    splits = flow.plan(slices)
    os.truncate(path, 8000)
    with pytest.raises(FileOvertaken):
        flow.rows_of(splits)
    with pytest.raises(FileRewritten) as caught:
        flow.plan(slices)
    assert caught.value.evidence["size"] == 8000


def test_the_fingerprint_grows_with_the_file_and_the_key_stays(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1))
    flow = drive(source(landing))
    flow.tick()
    [key] = flow.bound.details
    add(path, lines(2))
    flow.tick()
    assert list(flow.bound.details) == [key]
    assert flow.detail("a.jsonl")["head"] == len(lines(1, 2))
    path.write_text(lines(1, 3))
    os.utime(path, (1, 1))
    with pytest.raises(FileRewritten):
        flow.probe()
    path.write_text(lines(1, 2) + lines(*range(1000)))
    flow.tick()
    assert flow.detail("a.jsonl")["head"] == 4096


def test_a_file_rewritten_under_the_reader_is_an_error_after_its_last_row(
    landing: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1, 2))
    flow = drive(source(landing))
    splits = flow.plan(flow.tick())
    real = Json.decode

    def rewriting(*arguments: Any, **named: Any) -> Any:
        path.write_text(lines(8, 9))
        return real(*arguments, **named)

    monkeypatch.setattr(Json, "decode", rewriting)
    with pytest.raises(FileOvertaken):
        flow.rows_of(splits)


def test_names_with_newlines_quotes_and_unicode(landing: Path, drive: Drive) -> None:
    for i, name in enumerate(["a\nb", "'; drop", '"', "ü €", "[x]", "$(id)", "-rf"]):
        (landing / f"{name}.jsonl").write_text(lines(i))
    flow = drive(source(landing))
    flow.tick()
    assert sorted(numbers(flow.catch_up())) == list(range(7))


def test_a_path_is_resolved_once(landing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(landing)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert FileSource("x/*.jsonl", format=Json("n long")).path == f"{landing}/x/*.jsonl"
    assert FileSource("~/x", format=Json("n long")).path == "/home/somebody/x"


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"path": ""}, "path"),
        ({"path": "a\0b"}, "path"),
        ({"path": "a\udcff"}, "path"),
        ({"path": 3}, "path"),
        ({"format": "json"}, "format"),
        ({"format": Json}, "format"),
        ({"max_bytes_per_epoch": 0}, "max_bytes_per_epoch"),
        ({"max_bytes_per_epoch": 1.5}, "max_bytes_per_epoch"),
        ({"split_bytes": -1}, "split_bytes"),
        ({"settle": -0.1}, "settle"),
        ({"settle": float("nan")}, "settle"),
    ],
)
def test_arguments_that_cannot_mean_anything_are_refused(options: dict[str, Any], parameter: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        FileSource(**{"path": "x", "format": Json("n long"), **options})
    assert caught.value.evidence["parameter"] == parameter


def test_reserved_columns_are_refused(landing: Path, drive: Drive) -> None:
    for name in ("_partition", "_OFFSET"):
        FileSource("x", format=Json(f"{name} string"))
        with pytest.raises(ReservedColumn):
            FileSource("x", format=Json(f"{name} string"), metadata=True)
    (landing / "a.jsonl").write_text('{"_offset": 1}\n')
    with pytest.raises(ReservedColumn):
        drive(source(landing, format=Json(), metadata=True)).tick()
