"""What was seen of a file and is taken away before it is read is a loss, bound or not (law 9)."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tidegauge.errors.sources import EndTakenBack, FileGone, FolderAway
from tidegauge.sources import FileSource, Json

Drive = Callable[[FileSource], Any]
LATER = datetime(2100, 1, 1, tzinfo=UTC)
LINE = len('{"n": 1}\n')


def lines(*numbers: int) -> str:
    return "".join(f'{{"n": {number}}}\n' for number in numbers)


def source(landing: Path, pattern: str = "*.jsonl", **options: Any) -> FileSource:
    return FileSource(str(landing / pattern), **{"format": Json("n long"), **options})


def remembering(flow: Any) -> Any:
    """Let a driver remember what its last probe said, as the reader of a flow does."""

    def tick(now: datetime = LATER) -> Any:
        flow.bound = replace(flow.bound, last=flow.last)
        return flow.tick(now)

    return tick


def test_a_file_that_goes_after_its_end_was_seen_is_bound_to_that_end_and_found_gone(
    landing: Path, drive: Drive
) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1, 2, 3))
    flow = drive(source(landing, max_bytes_per_epoch=LINE))
    [first] = flow.tick()
    assert flow.last.end.distance(flow.last.upper) == 2 * LINE
    path.unlink()
    [rest] = flow.tick()  # of a driver that was started just now: the end is kept with the binding
    assert (rest.partition, rest.lower, rest.upper) == (first.partition, LINE, 3 * LINE)
    assert flow.last.note.startswith(f"{path} is gone, with {2 * LINE} bytes that were not read")
    with pytest.raises(FileGone) as caught:
        flow.plan([rest])
    assert (caught.value.evidence["lower"], caught.value.evidence["upper"]) == (LINE, 3 * LINE)
    assert flow.tick() == []


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("more", [0, 2])
def test_a_file_that_was_bound_to_its_end_as_it_was_gone_is_read_where_somebody_brings_it_back(
    landing: Path, drive: Drive, more: int, packed: bool
) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1, 2, 3))
    flow = drive(source(landing, "*.jsonl*", max_bytes_per_epoch=LINE))
    flow.tick()
    content = path.read_text()
    path.unlink()
    assert [piece.size for piece in flow.tick()] == [2 * LINE]
    back = (content + lines(*range(4, 4 + more))).encode()
    (landing / ".a").write_bytes(gzip.compress(back) if packed else back)
    (landing / ".a").rename(landing / "a.jsonl.gz" if packed else path)
    while flow.tick():
        pass
    assert [row["n"] for row in flow.catch_up()] == list(range(1, 4 + more))


@pytest.mark.parametrize("on_data_loss", ["stop", "gap"])
def test_a_file_that_is_gone_before_anything_of_it_was_bound_is_not_taken_for_the_next_one_of_its_name(
    landing: Path, drive: Drive, on_data_loss: str
) -> None:
    """Nothing of it is known by which to tell."""
    (landing / "a.jsonl").write_text(lines(1, 1))
    path = landing / "b.jsonl"
    path.write_text(lines(2))
    flow = drive(source(landing, max_bytes_per_epoch=LINE, on_data_loss=on_data_loss))
    tick = remembering(flow)
    assert [row["n"] for row in flow.read_slices(tick())] == [1]
    path.unlink()
    [rest, lost] = sorted(tick(), key=lambda piece: -piece.lower)
    assert [row["n"] for row in flow.read_slices([rest])] == [1]
    (landing / ".b").write_text(lines(33, 44))
    (landing / ".b").rename(path)
    with pytest.raises(FileGone):
        flow.plan([lost])
    flow.read_up_to = len(flow.epochs)
    while tick():
        pass
    assert [row["n"] for row in flow.catch_up()] == [33, 44]


def test_a_torn_last_line_that_goes_with_its_file_is_lost(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1) + '{"n"')
    flow = drive(source(landing))
    flow.tick()
    path.unlink()
    [rest] = flow.tick()
    assert rest.size == len('{"n"')
    with pytest.raises(FileGone):
        flow.plan([rest])


@pytest.mark.parametrize("limit", [LINE, 1 << 20], ids=["for which an epoch had no room", "of an unfinished line"])
def test_a_file_of_which_nothing_is_bound_is_remembered_by_the_driver(
    landing: Path, drive: Drive, limit: int
) -> None:
    (landing / "a.jsonl").write_text(lines(1, 2))
    other = landing / "b.jsonl"
    other.write_text('{"n": 3')
    flow = drive(source(landing, max_bytes_per_epoch=limit))
    tick = remembering(flow)
    tick()
    other.unlink()
    lost = [piece for piece in tick() if piece.size == len('{"n": 3')]
    assert len(lost) == 1
    with pytest.raises(FileGone, match=str(other)):
        flow.plan(lost)


def test_what_was_seen_since_the_last_binding_is_remembered_by_the_driver(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1))
    flow = drive(source(landing))
    tick = remembering(flow)
    tick()
    with path.open("a") as stream:
        stream.write('{"n"')
    assert tick() == []
    path.unlink()
    assert [piece.size for piece in tick()] == [len('{"n"')]


def test_where_its_user_chose_so_it_goes_on_without_and_other_ranges_are_read(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1, 2, 3))
    flow = drive(source(landing, max_bytes_per_epoch=LINE, on_data_loss="gap"))
    first = flow.tick()
    flow.catch_up()
    path.unlink()
    (landing / "b.jsonl").write_text(lines(7))
    slices = flow.tick()
    assert flow.source.lost(first, flow.bound) == first
    lost = flow.source.lost(slices, flow.bound)
    assert [piece.size for piece in lost] == [2 * LINE]
    assert [row["n"] for row in flow.read_slices([piece for piece in slices if piece not in lost])] == [7]


def test_bytes_that_were_seen_and_are_cut_off_again_are_said(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1, 2, 3))
    flow = drive(source(landing, max_bytes_per_epoch=LINE))
    [first] = flow.tick()
    os.truncate(path, 2 * LINE)
    with pytest.raises(EndTakenBack) as caught:
        flow.probe()
    assert (caught.value.evidence["seen"], caught.value.evidence["end"]) == (3 * LINE, 2 * LINE)
    flow.source = replace(flow.source, on_data_loss="gap")
    flow.tick()
    assert flow.last.taken_back == {first.partition: (2 * LINE, 3 * LINE)}
    flow.tick()
    assert flow.last.taken_back == {}
    assert [row["n"] for row in flow.catch_up()] == [1, 2]


def test_a_folder_that_is_away_is_waited_for_and_nothing_of_it_is_lost(landing: Path, drive: Drive) -> None:
    (landing / "a.jsonl").write_text(lines(1) + "{")
    flow = drive(source(landing))
    flow.tick()
    away = landing.rename(landing.with_name("away"))
    with pytest.raises(FolderAway):
        flow.probe()
    away.rename(landing)
    assert flow.tick() == []
    shutil.rmtree(landing)
    landing.mkdir()
    assert [piece.size for piece in flow.tick()] == [1]


def test_a_file_whose_every_seen_byte_was_read_may_go(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl"
    path.write_text(lines(1))
    flow = drive(source(landing))
    flow.tick()
    path.unlink()
    assert flow.tick() == []
    assert flow.last.note.startswith("waiting")


def test_a_whole_file_that_goes_before_it_has_settled_was_never_delivered(landing: Path, drive: Drive) -> None:
    path = landing / "a.jsonl.gz"
    path.write_bytes(b"still being written")
    flow = drive(source(landing, "*.gz", settle=600))
    tick, now = remembering(flow), datetime.now(UTC)
    tick(now)
    assert flow.last.more
    path.unlink()
    assert tick(now) == []
