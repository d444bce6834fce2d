"""The notes of what was read of first rows: whose count, and which do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge.sources.database.folder import SnapshotPiece, SourceFolder
from tidegauge.sources.mysql.marks import LogMark
from tidegauge.sources.mysql.progress import ReadingNotes


@pytest.fixture
def folder(tmp_path: Path) -> SourceFolder:
    return SourceFolder(str(tmp_path))


def begun(folder: SourceFolder, incarnation: int = 0) -> ReadingNotes:
    progress = ReadingNotes(folder, "server 57", incarnation)
    progress.begin("3-57-9")
    progress.mark(LogMark("3-57-9", 9, "ab"))
    progress.table("orders", "facts", "3-57-9")
    return progress


def piece(folder: SourceFolder, name: str) -> SnapshotPiece:
    path = folder.snapshot / name
    path.write_bytes(b"rows")
    return SnapshotPiece(str(path), 0, 4, 1, 0)


def test_a_reader_that_outlives_its_session_notes_nothing_for_the_next_one(folder: SourceFolder) -> None:
    first = begun(folder)
    first.read("orders", piece(folder, "a"), (b"1",))
    second = ReadingNotes(folder, "server 57", 0)
    first.read("orders", piece(folder, "b"), (b"2",))
    assert second.found().tables["orders"].upto == (b"1",)
    second.read("orders", piece(folder, "c"), (b"3",))
    second.read("orders", None, None)
    found = ReadingNotes(folder, "server 57", 0).found()
    assert [Path(one.file).name for one in found.tables["orders"].pieces] == ["a", "c"]
    assert found.tables["orders"].whole
    second.tidy()
    assert {one.name for one in folder.snapshot.iterdir()} == {"a", "c", "progress.jsonl"}


def test_a_table_whose_files_are_gone_was_not_read(folder: SourceFolder) -> None:
    progress = begun(folder)
    progress.read("orders", piece(folder, "a"), (b"1",))
    progress.table("users", "facts", "3-57-9")
    progress.read("users", None, None)
    (folder.snapshot / "a").unlink()
    found = progress.found()
    assert found.tables.keys() == {"users"}
    assert found.marks[0].sequence == 9


@pytest.mark.parametrize("said", [b'{"of": 1}', b'{"begun": null}', b'{"attempt"', b"[]", b'{"begun": "x"}'])
def test_notes_that_nobody_understands_are_none(folder: SourceFolder, said: bytes) -> None:
    progress = begun(folder)
    notes = folder.snapshot / "progress.jsonl"
    notes.write_bytes(notes.read_bytes() + b"\n" + said + b"\n")
    assert progress.found().begun in ("", "3-57-9")


def test_what_another_incarnation_has_read_does_not_count(folder: SourceFolder) -> None:
    begun(folder).read("orders", None, (b"1",))
    found = ReadingNotes(folder, "server 57", 1).found()
    assert (found.begun, found.tables) == ("", {})
