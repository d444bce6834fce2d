"""A log that comes back as another file, copied or compressed, is the same log: each of its lines is read once."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tidegauge.errors.sources import FileGone, FileRewritten
from tidegauge.sources import Csv, FileSource, Json

LATER = datetime(2100, 1, 1, tzinfo=UTC)
Drive = Callable[[FileSource], Any]


def lines(*numbers: int) -> str:
    return "".join(f'{{"n": {number}}}\n' for number in numbers)


def source(landing: Path, pattern: str = "app.log*", **options: Any) -> FileSource:
    return FileSource(str(landing / pattern), **{"format": Json("n long"), "settle": 0.0, **options})


def read(flow: Any) -> list[int]:
    """Tick until nothing comes, read, and return what came."""
    while flow.tick():
        pass
    return sorted(row["n"] for row in flow.catch_up())


def add(path: Path, text: str) -> None:
    with path.open("a") as stream:
        stream.write(text)


def compress(path: Path) -> None:
    """Compress a file as gzip does: beside it, with its times, then remove it."""
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    status = path.stat()
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.unlink()


@pytest.mark.parametrize("pattern", ["app.log*", "app.log"])
@pytest.mark.parametrize("size", [2, 2000], ids=["few", "many"])
def test_a_log_that_is_compressed_is_not_read_again_and_its_rest_is_read(
    landing: Path, drive: Drive, pattern: str, size: int
) -> None:
    log = landing / "app.log"
    log.write_text(lines(*range(size)))
    flow = drive(source(landing, pattern))
    assert read(flow) == list(range(size))
    add(log, lines(size) + '{"n": 99999')
    if pattern == "app.log":
        flow.tick()  # a look at the rest, of which it knows from now on
    log.rename(landing / "app.log.1")
    log.write_text(lines(7777))
    compress(landing / "app.log.1")
    flow.source = replace(flow.source, format=Json("n long"))
    while flow.tick():
        pass
    rows = flow.rows_of(flow.plan([p for epoch in flow.epochs[1:] for p in epoch]))
    assert sorted(row["n"] for row in rows) == sorted([size, 7777])
    assert [bad.raw for bad in flow.bad] == [b'{"n": 99999']  # its last line ended with it
    assert flow.tick() == []


def test_a_range_that_was_bound_before_the_log_was_compressed_is_read_out_of_it(landing: Path, drive: Drive) -> None:
    log = landing / "app.csv"
    log.write_text("n,word\n1,one\n")
    flow = drive(source(landing, "app.csv*", format=Csv()))
    flow.tick()
    add(log, '2,"two\n2"\n')
    [piece] = flow.tick()
    compress(log)
    assert flow.read_slices([piece]) == [{"n": 2, "word": "two\n2"}]
    assert flow.tick() == []


def test_a_log_that_is_copied_and_truncated_goes_on_in_both(landing: Path, drive: Drive) -> None:
    log, copy = landing / "app.log", landing / "app.log.1"
    log.write_text(lines(1, 2))
    flow = drive(source(landing))
    assert read(flow) == [1, 2]
    add(log, lines(3))
    copy.write_bytes(log.read_bytes())
    assert read(flow) == [3]  # a look between the copy and the cut
    assert "so far a copy of" in flow.last.note
    add(log, lines(4))
    os.truncate(log, 0)  # line 4 came between the copy and the cut: it is in no file any more, and nobody saw it
    assert read(flow) == []
    assert flow.last.note == ""
    add(log, lines(5))
    assert read(flow) == [5]
    copy.rename(landing / "app.log.2")
    copy.write_bytes(log.read_bytes() + lines(6).encode())
    log.write_text(lines(*range(10, 20)))  # cut, and longer than before already
    assert read(flow) == [6, *range(10, 20)]


@pytest.mark.parametrize("rotated", ["worker-1-20261122.log", "worker-1.2.log", "worker-1.log.1"])
def test_a_log_whose_name_ends_with_a_number_goes_on_in_its_copy_which_has_another_number_behind_it(
    landing: Path, drive: Drive, rotated: str
) -> None:
    log, copy = landing / "worker-1.log", landing / rotated
    log.write_text(lines(1, 2))
    flow = drive(source(landing, "worker*"))
    assert read(flow) == [1, 2]
    add(log, lines(3))
    copy.write_bytes(log.read_bytes())
    os.truncate(log, 0)
    assert read(flow) == [3], "line 1 and 2 came before"


def test_a_range_that_was_bound_before_the_cut_is_read_from_the_copy(landing: Path, drive: Drive) -> None:
    log = landing / "app.log"
    log.write_text(lines(1, 2))
    flow = drive(source(landing, "app.log"))
    slices = flow.tick()
    (landing / "app.log.1").write_bytes(log.read_bytes())
    os.truncate(log, 0)
    assert [row["n"] for row in flow.read_slices(slices)] == [1, 2]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
def test_a_copy_that_lacks_what_was_bound_since_brings_no_line_again(
    landing: Path, drive: Drive, packed: bool
) -> None:
    log, copy = landing / "app.log", landing / "app.log.1"
    log.write_text(lines(1, 2))
    flow = drive(source(landing))
    assert read(flow) == [1, 2]
    (landing / ".copy").write_bytes(log.read_bytes())
    add(log, lines(3))
    assert read(flow) == [3]
    (landing / ".copy").rename(copy)
    log.write_text("")
    if packed:
        compress(copy)
    assert read(flow) == []
    add(log, lines(4))
    assert read(flow) == [4]
    assert read(flow) == []


def test_a_log_that_is_cut_without_a_copy_loses_what_was_seen_and_goes_on(landing: Path, drive: Drive) -> None:
    log = landing / "app.log"
    log.write_text(lines(1) + '{"n"')
    flow = drive(source(landing))
    flow.tick()
    flow.catch_up()
    log.write_text("")
    [lost] = flow.tick()
    assert lost.size == len('{"n"')
    with pytest.raises((FileGone, FileRewritten)):
        flow.plan([lost])
    assert flow.source.lost([lost], flow.bound) == []
    assert replace(flow.source, on_data_loss="gap").lost([lost], flow.bound) == [lost]
    flow.read_up_to = len(flow.epochs)
    add(log, lines(2))
    assert read(flow) == [2]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
def test_a_log_of_which_nothing_was_bound_goes_on_in_a_copy_that_holds_all_that_was_seen_of_it(
    landing: Path, drive: Drive, packed: bool
) -> None:
    (landing / "aaa.log").write_text(lines(1))
    log = landing / "app.log"
    log.write_text(lines(2, 3, 4))
    flow = drive(source(landing, "a*.log*", max_bytes_per_epoch=len(lines(1))))
    flow.tick()
    assert [row["n"] for row in flow.catch_up()] == [1]
    assert flow.detail("app.log")["size"] == len(lines(2, 3, 4)), "seen, and not read: the epoch had no room"
    copy = landing / "app.log.2"
    copy.write_bytes(log.read_bytes() + lines(5).encode())
    log.write_text(lines(6))
    later = (
        landing / "app.log.1"
    )  # which its name makes the first to be asked, and which is shorter than what was seen
    later.write_bytes(log.read_bytes())
    log.write_text("")
    if packed:
        compress(copy)
        compress(later)
    assert read(flow) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("copied", [False, True], ids=["lost", "copied"])
def test_a_log_that_was_cut_grew_again_and_was_renamed_is_no_copy_of_what_it_was(
    landing: Path, drive: Drive, copied: bool, packed: bool
) -> None:
    log = landing / "app.log"
    log.write_text(lines(1, 2, 3))
    os.utime(log, (0, 0))
    flow = drive(source(landing))
    assert read(flow) == [1, 2, 3]
    if copied:
        (landing / "app.log.2").write_bytes(log.read_bytes())
    log.write_text(lines(4))
    log.rename(landing / "app.log.1")
    if packed:
        compress(landing / "app.log.1")
    assert read(flow) == [4]
    assert read(flow) == []


def test_a_log_that_is_copied_and_truncated_twice_between_two_looks_goes_on_in_its_older_copy(
    landing: Path, drive: Drive
) -> None:
    log = landing / "app.log"
    log.write_text(lines(1, 2, 3))
    os.utime(log, (0, 0))
    flow = drive(source(landing))
    assert read(flow) == [1, 2, 3]
    add(log, lines(4))
    (landing / "app.log.2").write_bytes(log.read_bytes())
    log.write_text(lines(5))
    (landing / "app.log.1").write_bytes(log.read_bytes())
    log.write_text(lines(6))
    assert read(flow) == [4, 5, 6]
    assert read(flow) == []


def test_a_log_that_began_anew_with_the_same_banner_and_was_renamed_is_no_copy_of_what_it_was(
    landing: Path, drive: Drive
) -> None:
    banner = lines(*[0] * 1000)
    log = landing / "app.log"
    log.write_text(banner + lines(1, 2, 3))
    os.utime(log, (0, 0))
    flow = drive(source(landing))
    assert read(flow) == [0] * 1000 + [1, 2, 3]
    log.write_text(banner + lines(4))
    log.rename(landing / "app.log.1")
    assert read(flow) == [0] * 1000 + [4]


def test_a_log_that_was_cut_and_is_brought_back_under_its_own_name_is_not_read_again(
    landing: Path, drive: Drive
) -> None:
    log = landing / "app.log"
    log.write_text(lines(1, 2, 3))
    flow = drive(source(landing))
    assert read(flow) == [1, 2, 3]
    log.write_text(lines(4))
    assert read(flow) == [4]
    log.rename(landing / "app.log.1")
    log.write_text(lines(1, 2, 3, 5))
    assert read(flow) == [5]
    assert read(flow) == []


def test_logs_that_begin_alike_are_told_apart_by_the_last_bytes_that_are_bound(landing: Path, drive: Drive) -> None:
    banner = lines(*[0] * 1000)
    log = landing / "app.log"
    flow = drive(source(landing))
    for number in (1, 2, 3):
        log.write_text(banner + lines(number))
        assert read(flow) == [0] * 1000 + [number]
        log.rename(landing / f"app.log.{number}")
    for number in (1, 2, 3):
        add(landing / f"app.log.{number}", lines(10 * number))
        compress(landing / f"app.log.{number}")
    assert read(flow) == [10, 20, 30]


@pytest.mark.parametrize(
    "names", [("a.jsonl", "b.jsonl.gz"), ("a-1.jsonl", "a-2.jsonl.gz"), ("a.jsonl", "ab.jsonl.gz")]
)
def test_a_file_with_another_name_is_another_file_whatever_is_in_it(
    landing: Path, drive: Drive, names: tuple[str, str]
) -> None:
    flow = drive(source(landing, "a*"))
    flow = drive(source(landing, "*"))
    (landing / names[0]).write_text(lines(1))
    assert read(flow) == [1]
    (landing / names[0]).unlink()
    (landing / names[1]).write_bytes(gzip.compress(lines(1).encode()))
    assert read(flow) == [1]


def test_a_deleted_file_is_read_to_its_end_by_the_driver_that_saw_it(landing: Path, drive: Drive) -> None:
    log = landing / "app.log"
    log.write_text(lines(1) + '{"n": 2}')
    running = source(landing)
    flow = drive(running)
    probe = running.probe(flow.bound, now=flow.probe().at)
    first = flow.bind(probe)
    log.unlink()
    second = flow.bind(running.probe(flow.bound, now=probe.at))
    assert [row["n"] for row in flow.rows_of(running.plan([*first, *second], flow.bound))] == [1, 2]
    running.acknowledge(flow.bound.frontier)
    with pytest.raises(FileGone):
        running.plan([*first, *second], flow.bound)


def test_a_log_that_is_saved_anew_goes_on_although_its_driver_holds_the_old_file_with_a_torn_line(
    landing: Path, drive: Drive
) -> None:
    log = landing / "app.log"
    log.write_text(lines(1) + '{"n"')
    running = source(landing)
    flow = drive(running)

    def tick() -> list[int]:
        pieces = flow.bind(running.probe(flow.bound, now=LATER))
        return [row["n"] for row in flow.rows_of(running.plan(pieces, flow.bound))]

    assert tick() == [1]
    (landing / ".app.log").write_text(lines(1, 2, 3))
    (landing / ".app.log").rename(log)
    assert tick() == [2, 3]
    add(log, '{"n": 4')
    assert tick() == []
    add(log, "}\n")
    assert tick() == [4]
    assert flow.bad == []


@pytest.mark.parametrize("saved", [lines(1, 2), lines(7, 8)])
def test_a_file_without_a_line_end_that_is_saved_anew_before_anything_is_bound_is_read_once(
    landing: Path, drive: Drive, saved: str
) -> None:
    log = landing / "app.log"
    log.write_text(lines(1).rstrip("\n"))
    running = source(landing)
    flow = drive(running)
    seen = running.probe(flow.bound, now=LATER)
    assert not seen.upper
    (landing / ".app.log").write_text(saved)
    (landing / ".app.log").rename(log)
    pieces = flow.bind(running.probe(replace(flow.bound, last=seen), now=LATER))
    found = [row["n"] for row in flow.rows_of(running.plan(pieces, flow.bound))]
    assert sorted(found) == ([1, 2] if saved == lines(1, 2) else [1, 7, 8])


def test_a_file_that_is_held_open_and_was_cut_and_written_anew_before_it_was_deleted_is_gone(
    landing: Path, drive: Drive
) -> None:
    log = landing / "app.log"
    log.write_text(lines(1) + '{"n"')
    running = source(landing)
    flow = drive(running)
    flow.bind(running.probe(flow.bound, now=LATER))
    log.write_text(lines(7, 8, 9))
    log.unlink()
    [lost] = flow.bind(running.probe(flow.bound, now=LATER))
    assert lost.size == len('{"n"'), "no more of it was ever seen"
