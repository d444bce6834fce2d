"""Listings of a folder: each file once, in the version that was listed, whatever comes and goes meanwhile."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources.listings.listing import listing, put

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.listings import ListedFileChanged, ListedFileGone, ListedFileOvertaken
from tidegauge.errors.polls import PollDamaged, PollsForgotten
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.sources import FolderAway, RecordsLost, UnreadableFile, UnreadableRecord
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.polled import POLLS
from tidegauge.sources.listings import lister, reading


def test_f1_what_a_listing_found_is_an_epoch_and_what_comes_later_another(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", *range(10))
    put(tmp_path / "in/b.jsonl", *range(10, 14))
    it = listing(tmp_path)
    it.look_through()
    assert it.epochs == [2]
    put(tmp_path / "in/d.jsonl", 14)
    it.look_through()
    assert it.epochs == [2, 3]
    assert [it.rows(2)[at] for at in (0, 13, 14)] == [0, 13, 14]
    assert it.rows() == it.rows(1, 2) == list(range(15))


def test_nothing_new_binds_nothing_and_writes_nothing(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    it = listing(tmp_path)
    it.look_through()
    staged = sorted((tmp_path / "listings").rglob("*"))
    for _ in range(3):
        it.look_through()
    it.begin()
    it.look_through()
    assert it.epochs == [1]
    assert sorted((tmp_path / "listings").rglob("*")) == staged


def test_a_new_run_knows_what_the_log_has_and_goes_on(tmp_path: Path) -> None:
    it = listing(tmp_path)
    for n in range(5):
        put(tmp_path / f"in/{9 - n}.jsonl", n)
        it.begin()
        it.look_through()
    assert it.epochs == [1, 2, 3, 4, 5]
    assert it.rows() == [0, 1, 2, 3, 4]


def test_f8_a_listing_is_cut_into_manifests_and_a_run_that_begins_amid_them_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lister, "FILES", 7)
    for n in range(40):
        put(tmp_path / f"in/{n:02}.jsonl", n)
    it = listing(tmp_path)
    it.clock = 60
    for _ in range(2):
        it.bind(it.look())
    assert it.epochs == [7, 14]
    it.begin()
    it.look_through()
    assert it.epochs == [7, 14, 21, 28, 35, 40]
    assert it.rows() == it.rows(3, 10, 36) == list(range(40))
    assert it.bound.details == {POLLS: {"digest": it.bound.details[POLLS]["digest"], "first": 35}}


def test_an_epoch_has_its_bytes_and_at_least_one_file(tmp_path: Path) -> None:
    for n in range(4):
        put(tmp_path / f"in/{n}.jsonl", n)
    put(tmp_path / "in/2.jsonl", *range(10, 30))
    it = listing(tmp_path, max_bytes_per_epoch=20)
    it.look_through()
    assert it.epochs == [2, 3, 4]


def test_tasks_have_some_files_each_by_their_sizes(tmp_path: Path) -> None:
    for n in range(10):
        put(tmp_path / f"in/{n}.jsonl", n)
    it = listing(tmp_path, split_bytes=27)
    it.look_through()
    splits = it.source.plan(it.slices(), it.bound)
    assert [(split.lower, split.upper, split.weight) for split in splits] == [
        (0, 3, 27),
        (3, 6, 27),
        (6, 9, 27),
        (9, 10, 9),
    ]
    assert it.source.cut(it.slices()[0], 4, it.bound) == 4
    assert it.source.cut(it.slices()[0], 10, it.bound) is None


def test_f5_an_empty_file_gives_nothing_until_it_has_bytes(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", text="")
    it = listing(tmp_path)
    assert it.look_through().note.startswith("waiting: no file matches")
    put(tmp_path / "in/a.jsonl", 1)
    it.look_through()
    assert it.rows() == [1]


def test_files_that_have_not_settled_are_waited_for_and_then_read(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    put(tmp_path / "in/b.jsonl", 2, at=59)
    it = listing(tmp_path, settle=5)
    it.clock = 60
    seen = it.look()
    assert it.bind(seen)
    seen = it.look()
    assert (seen.more, seen.coming, seen.note) == (True, True, "waiting: 1 files have not settled yet")
    assert it.epochs == [1]
    seen = it.look_through(5)
    assert (seen.more, seen.note, it.rows()) == (False, "", [1, 2])


def test_a_file_of_the_future_waits_for_its_time_and_keeps_no_run(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1, at=1_000_000)
    it = listing(tmp_path)
    seen = it.look_through()
    assert not seen.more
    assert "was last changed in the future" in seen.note
    it.look_through(1_000_000)
    assert it.rows() == [1]


def test_a_file_that_a_later_listing_finds_changed_stops_the_source(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    it = listing(tmp_path)
    it.look_through()
    put(tmp_path / "in/a.jsonl", 1, 2)
    with pytest.raises(ListedFileChanged, match=r"a\.jsonl was listed as another version, and is now 18 bytes"):
        it.look_through()


def test_a_file_of_the_same_size_with_another_time_has_changed(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    it = listing(tmp_path)
    it.look_through()
    put(tmp_path / "in/a.jsonl", 2, at=-30)
    with pytest.raises(ListedFileChanged):
        it.look_through()


def test_changed_files_are_read_again_or_left_unread_by_choice(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    it = listing(tmp_path, on_change="again", on_data_loss="gap")
    it.look_through()
    assert it.rows() == [1]
    put(tmp_path / "in/a.jsonl", 2, 3)
    for _ in range(2):
        it.look_through()
    assert (it.epochs, it.rows(1)) == ([1, 2], [2, 3])
    left = listing(tmp_path / "other", on_change="ignore")
    put(tmp_path / "other/in/a.jsonl", 1)
    left.look_through()
    put(tmp_path / "other/in/a.jsonl", 2, 3)
    assert left.look_through().note == "1 files have changed since they were listed, and are left unread"
    assert left.epochs == [1]


def test_f3_a_file_that_changed_before_it_was_read_stops_the_source_or_is_a_gap(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    put(tmp_path / "in/b.jsonl", 2)
    it = listing(tmp_path)
    it.look_through()
    put(tmp_path / "in/a.jsonl", 8, at=-7)
    with pytest.raises(ListedFileChanged, match=r"a\.jsonl was listed as 9 bytes"):
        it.rows()
    gap = listing(tmp_path, on_data_loss="gap")
    gap.bound = it.bound
    assert gap.rows() == [2]
    [split] = gap.source.plan(gap.slices(), gap.bound)
    with pytest.raises(ListedFileOvertaken):
        list(gap.source.read(split, gap.bad.append))  # type: ignore[arg-type]


def test_f4_a_file_that_was_deleted_before_it_was_read_stops_the_source_or_is_a_gap(tmp_path: Path) -> None:
    for n in range(3):
        put(tmp_path / f"in/{n}.jsonl", n)
    it = listing(tmp_path)
    it.look_through()
    (tmp_path / "in/1.jsonl").unlink()
    with pytest.raises(ListedFileGone, match=r"1\.jsonl is gone: it is file 1 of those"):
        it.rows()
    gap = listing(tmp_path, on_data_loss="gap")
    gap.bound = it.bound
    assert [(one.lower, one.upper) for one in gap.source.lost(gap.slices(), gap.bound)] == [(1, 2)]
    assert gap.rows() == [0, 2]
    assert gap.source.loss == ListedFileGone.code


def test_a_folder_that_is_away_is_waited_for(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    it = listing(tmp_path, on_data_loss="gap")
    it.look_through()
    (tmp_path / "in").rename(tmp_path / "away")
    with pytest.raises(FolderAway, match="is not there, and 1 files"):
        it.rows()
    with pytest.raises(FolderAway, match="is not there, and 1 files"):
        it.source.lost(it.slices(), it.bound)
    (tmp_path / "away").rename(tmp_path / "in")
    assert it.rows() == [1]


@pytest.mark.parametrize("held", [10, 1 << 30])
def test_f9_a_file_that_cannot_be_decoded_is_one_bad_record_and_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(reading, "HELD", held)
    (tmp_path / "in").mkdir()
    for n in range(3):
        rows = pa.table({"n": [(n << 32) + i * 7919 % 100_003 for i in range(150_000 if n == 1 else 100)]})
        pq.write_table(rows, tmp_path / f"in/{n}.parquet", row_group_size=10_000)
    data = bytearray((tmp_path / "in/1.parquet").read_bytes())
    at = len(data) * 3 // 4
    data[at : at + 20_000] = b"\xff" * 20_000
    (tmp_path / "in/1.parquet").write_bytes(data)
    it = listing(tmp_path, "in/*.parquet", format=tg.Parquet("n long"), settle=0)
    it.look_through()
    assert {n >> 32 for n in it.rows()} == {0, 2}
    [bad] = it.bad
    assert (bad.partition, bad.position, bad.code) == (POLLS, 1, UnreadableFile.code)
    assert bad.raw.decode() == str(tmp_path / "in/1.parquet")
    assert "1.parquet" in bad.message
    assert it.rows() == it.rows(1)


def test_a_bad_line_is_told_with_its_file_and_where_in_it(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    put(tmp_path / "in/b.jsonl", text='{"n": 2}\n{"n": "x"}\n{"n": 3}\n')
    it = listing(tmp_path)
    it.look_through()
    assert it.rows() == [1, 2, 3]
    [bad] = it.bad
    assert (bad.position, bad.code, bad.raw) == (1, UnreadableRecord.code, b'{"n": "x"}')
    assert bad.message.startswith(f"{tmp_path}/in/b.jsonl, at 9: ")


def test_a_file_of_more_rows_than_are_held_is_read_twice_and_has_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "".join(f'{{"n": {n}}}\n' if n % 5 else "x\n" for n in range(100))
    put(tmp_path / "in/a.jsonl.gz", 0).write_bytes(gzip.compress(lines.encode()))
    it = listing(tmp_path, "in/*.gz", settle=0)
    it.look_through()
    held, told = it.rows(), list(it.bad)
    it.bad.clear()
    monkeypatch.setattr(reading, "HELD", 10)
    assert it.rows() == held == [n for n in range(100) if n % 5]
    assert it.bad == told
    assert len(told) == 20


def test_a_compressed_file_that_is_cut_off_gives_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "HELD", 1000)
    (tmp_path / "in").mkdir()
    whole = gzip.compress("".join(f'{{"n": {n}}}\n' for n in range(200_000)).encode())
    (tmp_path / "in/a.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "in/b.jsonl.gz").write_bytes(gzip.compress(b'{"n": 7}\n'))
    it = listing(tmp_path, "in/*.gz", settle=0)
    it.look_through()
    assert it.rows() == [7]
    assert [bad.position for bad in it.bad] == [0]


def test_names_that_are_hostile_are_names(tmp_path: Path) -> None:
    names = ["a\nb", "a b", "a%2Fb", "ä", "\u2028", "..x", "a..b", "%", "'\"", "a\\b", "é", "e\u0301", "😀"]
    for n, name in enumerate(names):
        put(tmp_path / f"in/{name}.jsonl", n)
    bad = os.fsencode(tmp_path) + b"/in/\xff.jsonl"
    with open(bad, "w") as file:
        file.write('{"n": 99}\n')
    os.utime(bad, (1, 1))
    it = listing(tmp_path)
    assert "its name is not valid UTF-8" in it.look_through().note
    assert sorted(it.rows()) == [n for n, name in enumerate(names) if not name.startswith(".")]
    (tmp_path / "in/a\nb.jsonl").unlink()
    with pytest.raises(ListedFileGone) as told:
        it.rows()
    assert "\n" not in told.value.summary


def test_links_and_hidden_names_are_what_they_are_to_other_patterns(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    put(tmp_path / "in/_tmp/b.jsonl", 2)
    put(tmp_path / "in/.c.jsonl", 3)
    put(tmp_path / "else/d.jsonl", 4)
    (tmp_path / "in/link.jsonl").symlink_to(tmp_path / "else/d.jsonl")
    (tmp_path / "in/linked").symlink_to(tmp_path / "else")
    (tmp_path / "in/loop").symlink_to(tmp_path / "in")
    os.mkfifo(tmp_path / "in/pipe.jsonl")
    (tmp_path / "in/broken.jsonl").symlink_to(tmp_path / "nowhere")

    def found(at: str, pattern: str) -> list[Any]:
        it = listing(tmp_path, pattern, staging=tmp_path / at)
        it.look_through()
        return sorted(it.rows())

    assert found("1", "in/**/*.jsonl") == [1, 4]
    assert found("2", "in/*/*.jsonl") == [1, 4, 4]
    assert found("3", "in/_*/*.jsonl") == [2]
    assert found("4", "in/a.jsonl") == [1]
    assert found("5", "in/**/_tmp/*.jsonl") == [2]


def test_f10_only_folders_that_can_hold_a_match_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n, name in enumerate(["hello1/a.json", "hello2/x/b.json", "other/c.json", "hello3.json"]):
        put(tmp_path / "a" / name, n)
    it = listing(tmp_path, "a/hello*/*.json")
    asked: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: asked.append(str(path)) or scandir(path))  # type: ignore[func-returns-value]
    it.look_through()
    monkeypatch.undo()
    assert it.rows() == [0]
    assert {Path(path).name for path in asked} == {"a", "hello1", "hello2"}


def test_f7_a_name_that_the_file_system_tells_twice_is_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    put(tmp_path / "in/b.jsonl", 2)
    scandir = os.scandir

    @contextmanager
    def twice(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(path) as entries:
            found = list(entries)
            yield iter([*found, *found])

    it = listing(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", twice)
        it.look_through()
    assert (it.epochs, it.rows()) == ([2], [1, 2])


def test_a_folder_that_changes_while_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lister, "FILES", 5)
    for n in range(20):
        put(tmp_path / f"in/{n:02}.jsonl", n)
    it = listing(tmp_path, on_data_loss="gap", on_change="again")
    it.clock = 60
    it.bind(it.look())
    put(tmp_path / "in/00a.jsonl", 100)
    put(tmp_path / "in/19a.jsonl", 101)
    (tmp_path / "in/15.jsonl").unlink()
    (tmp_path / "in/00.jsonl").unlink()
    it.look_through()
    it.look_through()
    assert sorted(it.rows()) == [*range(1, 15), *range(16, 20), 100, 101]


def test_two_drivers_of_one_source_list_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lister, "FILES", 3)
    for n in range(10):
        put(tmp_path / f"in/{n}.jsonl", n)
    one, other = listing(tmp_path), listing(tmp_path)
    one.clock = other.clock = 60
    for _ in range(4):
        other.bind(other.look())
        one.bind(one.look())
    one.look_through()
    other.look_through()
    put(tmp_path / "in/x.jsonl", 10)
    for it in (one, other, one):
        it.look_through()
        assert sorted(it.rows()) == list(range(11))
    assert one.bound == other.bound


def test_a_driver_that_loses_a_race_knows_what_the_log_has_and_nothing_else(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 0)
    put(tmp_path / "in/c.jsonl", 2)
    one, other = listing(tmp_path), listing(tmp_path)

    def overtake(point: str) -> None:
        if point == "before stage poll" and not one.epochs:
            (tmp_path / "in/c.jsonl").unlink()
            put(tmp_path / "in/b.jsonl", 1)
            one.look_through()

    other.point = overtake
    other.begin()
    other.look_through()
    assert other.rows() == one.rows() == [0, 1]
    put(tmp_path / "in/c.jsonl", 2)
    other.look_through()
    assert other.rows() == [0, 1, 2]


def test_a_log_that_was_emptied_or_damaged_is_named(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    put(tmp_path / "in/b.jsonl", 2)
    it = listing(tmp_path)
    it.look_through()
    [manifest] = (tmp_path / "listings").rglob("*.json")
    [rows] = (tmp_path / "listings").rglob("*.parquet")
    data = rows.read_bytes()
    rows.write_bytes(data + b"x")
    with pytest.raises(PollDamaged):
        it.rows()
    rows.write_bytes(data)
    said = manifest.read_bytes()
    manifest.write_bytes(said.replace(b'"poll": 0', b'"poll": 1'))
    with pytest.raises(PollDamaged):
        it.rows()
    manifest.unlink()
    with pytest.raises(RecordsLost):
        it.rows()
    it.begin()
    with pytest.raises(UpstreamRecreated):
        it.look_through()


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_a_log_whose_old_manifests_are_gone_is_named_until_they_are_back(tmp_path: Path, ending: str) -> None:
    it = listing(tmp_path)
    for n in range(3):
        put(tmp_path / f"in/{n}.jsonl", n)
        it.look_through()
    [first] = (tmp_path / "listings").rglob(f"000000000000*.{ending}")
    away = first.rename(tmp_path / "away")
    it.begin()
    with pytest.raises(PollsForgotten, match=r"what begins at 0 is gone .* which files were read needs all of it"):
        it.look_through()
    away.rename(first)
    it.begin()
    it.look_through()
    assert it.rows() == [0, 1, 2]


def test_files_in_order_come_without_the_old_manifests(tmp_path: Path) -> None:
    it = listing(tmp_path, ordered=True)
    for n in range(3):
        put(tmp_path / f"in/{n}.jsonl", n)
        it.look_through()
    for old in (tmp_path / "listings").rglob("000000000000*"):
        old.unlink()
    it.begin()
    put(tmp_path / "in/3.jsonl", 3)
    it.look_through(4000.0)  # it looks for files that came late, too
    it.look_through()
    assert it.bound.frontier["polls"] == 4


def test_the_log_of_a_source_of_another_kind_is_no_log_of_files(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    it = listing(tmp_path)
    it.look_through()
    it.bound = replace(it.bound, details={POLLS: {"digest": it.bound.details[POLLS]["digest"]}})
    it.begin()
    with pytest.raises(UpstreamRecreated):
        it.look_through()


def test_a_new_incarnation_lists_all_files_again(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", 1)
    it = listing(tmp_path)
    it.look_through()
    it.bound = Bound(incarnation=1)
    it.look_through()
    assert (it.bound.frontier[POLLS], it.rows()) == (1, [1])


def test_arguments_that_cannot_be(tmp_path: Path) -> None:
    for given in (
        {"format": tg.Json()},
        {"every": 0},
        {"ordered": 1},
        {"settle": -1},
        {"on_change": "no"},
        {"on_data_loss": "no"},
        {"max_bytes_per_epoch": 0},
        {"split_bytes": True},
        {"format": 7},
    ):
        with pytest.raises(InvalidArgument):
            listing(tmp_path, **given)
