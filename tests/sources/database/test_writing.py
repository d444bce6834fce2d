"""Only the connection of the driver that had the lease last changes a source's folder, wherever another one slept."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegauge.errors.databases import FolderTaken
from tidegauge.errors.store import LeaseLost
from tidegauge.sources.database import writing
from tidegauge.sources.database.folder import LogBeginning, SourceFolder
from tidegauge.sources.postgres.progress import RowsProgress

OURS = LogBeginning("ours", "server 1", 0, point=64)
THEIRS = LogBeginning("theirs", "server 1", 0, point=32)


def lost() -> None:
    raise LeaseLost(flow="shop", now="another driver has it")


def asleep(folder: SourceFolder) -> list[SourceFolder]:
    """Take a folder over as a driver does that has its lease confirmed, and sleeps while its successor takes over."""
    found: list[SourceFolder] = []
    with pytest.raises(FolderTaken, match=r"TG-0976: connection 1 cannot write to .*: connection 2 of process"):
        folder.taken_over(lambda: found.append(folder.taken_over(print)))
    return found


def test_a_driver_that_slept_before_it_began_does_not_begin_any_more(tmp_path: Path) -> None:
    folder = SourceFolder(str(tmp_path))
    [newer] = asleep(folder)
    newer.keep_stream(OURS)
    assert folder.stream() == OURS


def test_a_driver_that_asks_after_its_successor_finds_its_lease_lost_and_the_successor_writes_on(
    tmp_path: Path,
) -> None:
    folder = SourceFolder(str(tmp_path))
    newer = folder.taken_over(print)
    with pytest.raises(LeaseLost):
        folder.taken_over(lost)
    newer.keep_stream(OURS)
    assert folder.stream() == OURS
    folder.taken_over(print).keep_told(7)
    with pytest.raises(FolderTaken):
        newer.keep_stream(THEIRS)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.keep_stream(THEIRS),
        lambda one: one.keep_told(5),
        lambda one: one.note("later.json", {}, durable=True),
        lambda one: one.clear_snapshot(),
        lambda one: one.clear_spill(1 << 60),
        lambda one: one.forget_spill(0),
        lambda one: RowsProgress(one.snapshot, one.changing).plan("orders", "facts", []),
        lambda one: RowsProgress(one.snapshot, one.changing).tidy(),
    ],
)
def test_nothing_of_an_overtaken_connection_changes_the_folder(
    change: Callable[[SourceFolder], Any], tmp_path: Path
) -> None:
    folder = SourceFolder(str(tmp_path))
    older, newer = folder.taken_over(print), folder.taken_over(print)
    newer.keep_stream(OURS)
    RowsProgress(newer.snapshot, newer.changing).begin(64)
    (newer.snapshot / "0.csv").write_text("1\n")
    newer.spill(64, b"rows")

    def content() -> dict[str, bytes]:
        return {str(one): one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()}

    before = content()
    with pytest.raises(FolderTaken):
        change(older)
    assert content() == before
    change(newer)
    assert content() != before, "it is a change, from who may make it"


def test_a_connection_that_is_still_at_its_last_transaction_writes_into_no_file_of_its_successor(
    tmp_path: Path,
) -> None:
    folder = SourceFolder(str(tmp_path))
    older, newer = folder.taken_over(print), folder.taken_over(print)
    places = [one.spill(64, data) for one, data in ((older, b"half"), (newer, b"half"), (older, b"rest"))]
    assert [start for _, start in places] == [0, 0, 4]
    newer.clear_spill(64)
    assert [Path(path).read_bytes() for path, _ in places[:2]] == [b"halfrest", b"half"], "both are of this process"
    newer.clear_spill(65)
    assert not any(Path(path).exists() for path, _ in places)


def test_a_writer_that_does_not_move_is_named_and_once_it_moves_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = SourceFolder(str(tmp_path))
    older = folder.taken_over(print)
    with monkeypatch.context() as short, older.changing():
        short.setattr(writing, "_PATIENCE", 0.1)
        with pytest.raises(FolderTaken, match=rf"process {os.getpid()} on .* is in the middle of a change"):
            folder.taken_over(print)
    folder.taken_over(print).keep_stream(OURS)
    assert folder.stream() == OURS


def test_a_process_that_is_forked_in_the_midst_of_a_change_keeps_nobody_from_the_next(tmp_path: Path) -> None:
    folder = SourceFolder(str(tmp_path))
    writer = folder.taken_over(print)
    waits, ends = os.pipe()
    with writer.changing():
        child = os.fork()
        if not child:
            os.close(ends)
            os.read(waits, 1)
            os._exit(0)
    try:
        before = time.monotonic()
        writer.keep_stream(OURS)
        folder.taken_over(print)
        assert time.monotonic() - before < writing._PATIENCE
    finally:
        os.close(ends)
        os.waitpid(child, 0)
        os.close(waits)


def test_a_folder_that_was_put_back_from_an_older_copy_is_taken_over_anew(tmp_path: Path) -> None:
    folder = SourceFolder(str(tmp_path))
    folder.taken_over(print)
    copy = (tmp_path / "writer.json").read_bytes()
    (tmp_path / "writer.json").unlink()
    older = folder.taken_over(print)
    (tmp_path / "writer.json").write_bytes(copy)
    with pytest.raises(FolderTaken):
        older.keep_stream(THEIRS)
    folder.taken_over(print).keep_stream(OURS)
    assert folder.stream() == OURS


def test_a_file_system_without_locks_does_for_drivers_that_are_awake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.ENOTSUP, "no locks")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    folder = SourceFolder(str(tmp_path))
    [newer] = asleep(folder)
    newer.keep_stream(OURS)
    assert folder.stream() == OURS


@pytest.mark.parametrize("said", ["", "[]", "{}", json.dumps({"asked": "?", "begun": 0, "by": "", "process": ""})])
def test_a_damaged_word_of_who_writes_is_no_harm(said: str, tmp_path: Path) -> None:
    folder = SourceFolder(str(tmp_path))
    older = folder.taken_over(print)
    (tmp_path / "writer.json").write_text(said)
    with pytest.raises(FolderTaken):
        older.keep_stream(THEIRS)
    folder.taken_over(print).keep_stream(OURS)
    assert folder.stream() == OURS
