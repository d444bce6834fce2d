"""Listings in order: each begins behind the last file, and what comes late is told and not read."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.sources.listings.listing import Listings, listing, put

from tidegauge.remap.binding import Observation
from tidegauge.sources.listings import lister, walking

HOUR = 3600.0


def ordered(root: Path, pattern: str = "in/*.jsonl", **given: object) -> Listings:
    return listing(root, pattern, ordered=True, **given)


def looks(it: Listings) -> list[Observation]:
    """Look until nothing is left, and return each look that had something to bind."""
    found: list[Observation] = []
    it.clock += 60
    while it.bind(seen := it.look()):
        found.append(seen)
    return found


def test_o8_later_names_are_read_in_their_order_and_an_earlier_one_is_told_and_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lister, "FILES", 1)
    put(tmp_path / "in/2020-10-01.jsonl", 1)
    it = ordered(tmp_path)
    assert it.look_through(HOUR).note == ""
    put(tmp_path / "in/2020-01-01.jsonl", 0)
    put(tmp_path / "in/2020-10-05.jsonl", 5)
    put(tmp_path / "in/2020-10-10.jsonl", 10)
    assert [(dict(seen.upper), dict(seen.end)) for seen in looks(it)] == [
        ({"polls": 2}, {"polls": 3}),
        ({"polls": 3}, {"polls": 3}),
    ]
    assert it.rows() == [1, 5, 10]
    with caplog.at_level(logging.WARNING):
        seen = it.look_through(HOUR)
    said = f"1 file came late or changed, with paths before the last one, and are not read: {tmp_path}/in/2020-01-01"
    assert seen.note.startswith(said)
    assert said in caplog.text
    assert it.rows() == [1, 5, 10]
    caplog.clear()
    it.begin()
    assert it.look_through().note.startswith(said)
    it.look_through(HOUR)
    assert not caplog.text


def test_files_that_could_not_be_staged_are_given_again_before_those_behind_them(tmp_path: Path) -> None:
    for n in range(3):
        put(tmp_path / f"in/{n}.jsonl", n)
    it = ordered(tmp_path, max_bytes_per_epoch=1)
    full = ["before stage poll"]

    def point(name: str) -> None:
        if name in full:
            full.remove(name)
            raise OSError(28, "No space left on device")

    it.point = point
    it.begin()
    with pytest.raises(OSError, match="No space left"):
        it.look()
    it.look_through()
    assert it.rows() == [0, 1, 2]


def test_o9_a_file_without_a_row_is_passed_once(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    put(tmp_path / "in/b.jsonl", text="\n\n")
    it = ordered(tmp_path)
    for _ in range(3):
        it.look_through()
    assert (it.epochs, it.rows(), it.bad) == ([2], [1], [])


def test_folders_before_the_last_file_are_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(1, 6):
        put(tmp_path / f"in/day={day}/a.jsonl", day)
    it = ordered(tmp_path, "in/**/*.jsonl")
    it.look_through(HOUR)
    put(tmp_path / "in/day=5/b.jsonl", 50)
    put(tmp_path / "in/day=6/a.jsonl", 6)
    put(tmp_path / "in/day=1-x/a.jsonl", 99)
    asked: list[str] = []
    scandir = os.scandir
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", lambda path: asked.append(Path(path).name) or scandir(path))  # type: ignore[func-returns-value]
        it.look_through()
    assert asked == ["in", "day=5", "day=6"]
    assert it.rows() == [1, 2, 3, 4, 5, 50, 6]


def test_a_file_that_has_not_settled_ends_a_listing_so_that_none_behind_it_is_read_before(tmp_path: Path) -> None:
    put(tmp_path / "in/a/1.jsonl", 1)
    put(tmp_path / "in/a/2.jsonl", 2, at=59)
    put(tmp_path / "in/b/3.jsonl", 3)
    it = ordered(tmp_path, "in/**/*.jsonl", settle=5)
    it.clock = 60
    assert it.bind(it.look())
    seen = it.look()
    assert (seen.more, it.epochs) == (True, [1])
    it.look_through(5)
    assert it.rows() == [1, 2, 3]


def test_the_order_is_that_of_whole_paths(tmp_path: Path) -> None:
    names = ["a/b", "a-b", "a.b", "a0", "a/b/c", "a", "ä", "Z", "b/😀", "b/\ufffd", "b!", "b/a"]
    for n, name in enumerate(names):
        put(tmp_path / f"in/{name}.jsonl", n)
    it = ordered(tmp_path, "in/**/*.jsonl")
    it.look_through()
    wanted = sorted(range(len(names)), key=lambda n: f"{names[n]}.jsonl".encode())
    assert it.rows() == wanted
    for name in names:
        walk = walking.Walk(it.source.path, 0, 0, after=str(tmp_path / f"in/{name}.jsonl"))
        found = [one.path for page in walk.pages() for one in page]
        assert found == [path for path in found if path > walk.after]
        assert len(found) == len(names) - 1 - wanted.index(names.index(name))


def test_a_source_may_become_ordered_and_be_so_no_more(tmp_path: Path) -> None:
    for n, name in enumerate(("a", "c")):
        put(tmp_path / f"in/{name}.jsonl", n)
    it = listing(tmp_path)
    it.look_through()
    put(tmp_path / "in/b.jsonl", 2)
    put(tmp_path / "in/d.jsonl", 3)
    it.source = replace(it.source, ordered=True)
    it.begin()
    it.look_through()
    assert it.rows() == [0, 1, 3]
    assert "in/b.jsonl" in it.look_through(HOUR).note
    it.source = replace(it.source, ordered=False)
    it.begin()
    it.look_through()
    assert it.rows() == [0, 1, 3, 2]


def test_a_new_run_begins_behind_the_last_file_and_reads_no_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    it = ordered(tmp_path)
    it.look_through(HOUR)
    it.begin()
    put(tmp_path / "in/b.jsonl", 2)
    with monkeypatch.context() as patched:
        patched.delattr(lister.Lister, "_learn")
        it.look_through()
    assert it.rows() == [1, 2]
