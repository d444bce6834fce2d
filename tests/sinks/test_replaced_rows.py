"""All rows of a table change places with others in one commit, for every reader of the table; the rest is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from tests.forked import FORKS, end_of
from tests.sinks import dying
from tests.sinks.conftest import OUTPUT, SCHEMA, write_id

from tidegauge.errors.sinks import (
    DamagedManifest,
    FilesChangedByOthers,
    TableNotRemovable,
    TableOfAnotherIncarnation,
    TableUpperMismatch,
)
from tidegauge.objects.reading import parquet_rows
from tidegauge.remap.history import NO_HISTORY
from tidegauge.sinks.parquet import commits, ground
from tidegauge.sinks.parquet.manifest import MANIFEST, REMOVED, ROWS, Manifest, folder_name, placed
from tidegauge.sinks.protocol import Keeping, Replaceable, StagedFile

OLD = [("ada", epoch) for epoch in range(3)]


@pytest.fixture
def three(bench: Any) -> Any:
    """A table of three epochs, a commit each."""
    table = bench.open()
    for epoch in range(3):
        bench.commit(table, epoch, epoch + 1)
    return bench


@pytest.fixture
def parquet(tmp_path: Path, kinds: Callable[[str, str], Any]) -> Any:
    bench = kinds("parquet", str(tmp_path / "t"))
    table = bench.open()
    for epoch in range(3):
        bench.commit(table, epoch, epoch + 1)
    return bench


def replace(bench: Any, upper: int = 3, *, edition: str = "e" * 32, user: str = "new", before: Any = None) -> Any:
    """Replace all rows; return what was the table that held nothing."""
    anew = (before or bench.open()).replacement(edition)
    anew.commit(0, upper, SCHEMA, bench.stage(range(upper), user), write=write_id())
    return anew


def of(user: str, upper: int, lower: int = 0) -> list[tuple[str, int]]:
    return [(user, epoch) for epoch in range(lower, upper)]


def held(bench: Any) -> list[tuple[str, int]]:
    """Return `(user, epoch)` of every row that Tidegauge reads."""
    table = bench.open()
    uris = table.uris(table.files())
    found = parquet_rows(uris, SCHEMA).to_table() if uris else SCHEMA.empty_table()
    return sorted(zip(found["user"].to_pylist(), found["_epoch"].to_pylist(), strict=True))


@pytest.mark.parametrize("upper", [1, 3, 5])
def test_other_rows_take_the_place_of_all_and_the_table_goes_on_after_them(three: Any, upper: int) -> None:
    before = three.open()
    anew = before.replacement("e" * 32)
    assert [isinstance(before, Replaceable), isinstance(anew, Keeping)] == [True, True]
    assert (anew.upper, anew.digest, anew.schema, anew.files(), anew.version_of(0)) == (0, None, None, [], None)
    files = three.stage(range(upper), "new")
    assert three.rows() == held(three) == OLD, "staged rows are hidden"
    anew.commit(0, upper, SCHEMA, files, write=write_id())
    assert three.rows() == held(three) == of("new", upper)
    for table in (anew, three.open()):
        assert (table.upper, table.schema, table.volume().rows) == (upper, SCHEMA, upper)
        assert len({table.version_of(epoch) for epoch in range(upper)}) == 1
        assert table.version_of(upper) is None
    three.commit(anew, upper, upper + 1, "new")
    three.commit(three.open(), upper + 1, upper + 3, "new")
    assert three.rows() == held(three) == of("new", upper + 3)
    assert three.open().edition.startswith("e" * 15)


def test_it_is_replaced_again_and_again(three: Any) -> None:
    upper = 3
    for user, change in (("b", -1), ("c", -1), ("d", 3), ("e", 0), ("f", -3)):
        upper += change
        replace(three, upper, edition=user * 32, user=user)
        assert three.rows() == held(three) == of(user, upper)
        for _ in range(2):
            three.commit(three.open(), upper, upper + 1, user)
            upper += 1
        assert three.rows() == held(three) == of(user, upper)


def test_the_rows_of_the_new_edition_may_have_other_columns(three: Any) -> None:
    other = pa.schema([("id", pa.int64()), ("_epoch", pa.int64())])
    stager = three.sink.stage(other, job="b" * 32, task=0)
    stager.write(pa.RecordBatch.from_pydict({"id": [7], "_epoch": [0]}, schema=other))
    table = three.open().replacement("e" * 32)
    table.commit(0, 2, other, stager.close(), write=write_id())
    assert table.schema == three.open().schema == other
    [uri] = table.uris(table.files())
    assert parquet_rows([uri], other).to_table().to_pylist() == [{"id": 7, "_epoch": 0}]


def test_whoever_slept_finds_another_table(three: Any) -> None:
    """Also where the uppers are the same, and where the names of its commits would be free."""
    asleep, appending = three.open().replacement("f" * 32), three.open()
    replace(three)
    for table, lower in ((asleep, 0), (appending, 3)):
        with pytest.raises(TableUpperMismatch):
            table.commit(lower, 4, SCHEMA, three.stage(range(lower, 4), "late"), write=write_id())
    with pytest.raises(TableUpperMismatch):
        appending.withdraw("d" * 32)
    with pytest.raises(TableUpperMismatch):  # this edition is there
        replace(three, before=three.open())
    assert three.rows() == held(three) == of("new", 3)


def test_an_append_that_was_first_refuses_the_replacement(three: Any) -> None:
    asleep = three.open().replacement("e" * 32)
    three.commit(three.open(), 3, 4)
    files = three.stage(range(3), "new")
    with pytest.raises(TableUpperMismatch):
        asleep.commit(0, 3, SCHEMA, files, write=write_id())
    assert asleep.keep(files), "they are where they were staged"
    assert three.rows() == held(three) == of("ada", 4)


def test_one_that_is_taken_back_is_not_made_any_more_and_the_next_is(three: Any) -> None:
    asleep, appending = three.open().replacement("e" * 32), three.open()
    three.open().withdraw("d" * 32)
    for table, lower in ((asleep, 0), (appending, 3)):
        with pytest.raises(TableUpperMismatch):
            table.commit(lower, 4, SCHEMA, three.stage(range(lower, 4), "late"), write=write_id())
    assert three.rows() == held(three) == OLD
    three.commit(three.open(), 3, 4)
    three.open().withdraw("c" * 32)
    assert three.rows() == held(three) == of("ada", 4)
    replace(three, 2)
    assert three.rows() == held(three) == of("new", 2)


def test_what_only_moves_files_about_is_no_hindrance(three: Any) -> None:
    asleep, table = three.open().replacement("e" * 32), three.open()
    table.commit(3, 3, SCHEMA, three.stage(range(3)), remove=table.files(), write=write_id())
    asleep.commit(0, 3, SCHEMA, three.stage(range(3), "new"), write=write_id())
    assert three.rows() == held(three) == of("new", 3)
    table = three.open()
    table.commit(3, 4, SCHEMA, [], remove=table.files(), write=write_id())
    assert three.rows() == held(three) == []
    replace(three, 4, edition="f" * 32)
    assert three.rows() == held(three) == of("new", 4)


def test_killed_at_any_instant_it_leaves_the_old_rows_or_the_new_ones(bench: Any) -> None:
    """Tidegauge reads one or the other; who lists a folder may see fewer, and none twice; the next run mends that."""
    before, dies, seen = [], 0, set[str]()
    while True:
        dies += 1
        shutil.rmtree(bench.path, ignore_errors=True)
        table = bench.open()
        for epoch in range(3):
            bench.commit(table, epoch, epoch + 1)
        end = end_of(dying.swap, bench.kind.name, bench.path, dies, 4)
        before = held(bench)
        assert before in (OLD, of("new", 4))
        for listed in listings(bench):
            assert set(listed) in ({*OLD[:n]} for n in range(4)) or listed == of("new", 4), listed
            assert before == of("new", 4) or listed == OLD
            assert len(set(listed)) == len(listed)
            seen.add("some" if 0 < len(listed) < 3 else "none" if not listed else listed[0][0])
        table = bench.open()
        if bench.kind.name == "parquet":
            table.sweep(lambda: None)
            assert not list(Path(bench.path).glob("_staged/*"))
        assert table.upper == len(before)
        assert bench.rows() == held(bench) == before
        user = before[0][0]
        bench.commit(bench.open(), len(before), len(before) + 1, user)
        assert bench.rows() == held(bench) == of(user, len(before) + 1)
        if end != -signal.SIGKILL:
            break
    assert seen == ({"ada", "new", "some", "none"} if bench.kind.name == "parquet" else {"ada", "new"})


def listings(bench: Any) -> list[list[tuple[str, int]]]:
    """Return what several readers see who know nothing of Tidegauge."""
    if bench.kind.name == "delta":
        return [bench.rows()]
    pattern = f"{bench.path}/from_epoch=*/*.parquet"
    if not list(Path(bench.path).glob("from_epoch=*/*.parquet")):  # which these two say by an error
        return [bench.rows()]
    listed = duckdb.execute(f"select user, _epoch from read_parquet('{pattern}')").fetchall()
    return [bench.rows(), sorted(listed), sorted(pl.read_parquet(pattern).select("user", "_epoch").rows())]


# -- Parquet: its folders, and those who list them


def test_who_reads_while_rows_are_replaced_sees_none_twice_and_never_two_editions(parquet: Any) -> None:
    stop, results = FORKS.Event(), FORKS.Queue()
    looker = FORKS.Process(target=dying.look, args=(parquet.path, stop, results))
    looker.start()
    looks, swaps = list[tuple[Any, Any, int]](), 0
    try:
        while swaps < 12 or len(looks) < 40:
            swaps += 1
            user = f"{swaps}"
            table = replace(parquet, 3, edition=f"{swaps:032x}", user=user)
            for epoch in range(3, 9):
                parquet.commit(table, epoch, epoch + 1, user)
            while not results.empty():
                looks.append(results.get())
            assert looker.is_alive()
    finally:
        stop.set()
        while looker.is_alive() or not results.empty():
            if not results.empty():
                looks.append(results.get())
        looker.join(60)
    assert looker.exitcode == 0
    for listed, ours, upper in looks:
        for found in (listed, ours):
            users, epochs = {user for user, _ in found or ()}, [epoch for _, epoch in found or ()]
            assert len(users) <= 1
            assert len(set(epochs)) == len(epochs)
        assert ours is None or sorted(epoch for _, epoch in ours) == list(range(upper)), "Tidegauge sees all of one"
    assert len({user for _, ours, _ in looks for user, _ in ours or ()}) > 1


def states_of(parquet: Any) -> list[Any]:
    """Return a table that was opened at each state that it has been in."""
    shutil.rmtree(parquet.path)
    table, found = parquet.open(), list[Any]()
    for epoch in range(3):
        found.append(parquet.open())
        parquet.commit(table, epoch, epoch + 1)
    found.append(parquet.open())
    table = parquet.open()
    table.commit(3, 3, SCHEMA, parquet.stage(range(3)), remove=table.files(), write=write_id())
    return [*found, parquet.open()]


def commit_of(table: Any, files: Sequence[Any]) -> Manifest:
    """Return the manifest that a table's next commit would have, by what it has seen."""
    upper, place = table._now.upper, table._now.place
    name = folder_name(upper, place)
    files = tuple(placed(file, name) for file in files)
    return Manifest(OUTPUT, upper, upper + 1, write_id(), files, SCHEMA if upper == 0 else None, place=place)


def test_the_name_of_a_commit_is_taken_for_ever_whenever_its_driver_fell_asleep(parquet: Any) -> None:
    """It slept between its last look at the table and its rename, and files are gathered for it."""
    asleep = states_of(parquet)
    for turn, upper in enumerate((3, 1, 4, 3)):
        replace(parquet, upper, edition=f"{turn + 1:032x}", user=f"{turn}")
        for table in asleep:
            files = parquet.stage([table._now.upper], "late")
            assert not table.added(commit_of(table, files), files)
            assert table.keep(files), "they are where they were staged"
        assert parquet.rows() == held(parquet) == of(f"{turn}", upper)
        asleep.append(parquet.open())
        parquet.commit(parquet.open(), upper, upper + 1, f"{turn}")


def test_a_swap_that_the_file_system_cuts_short_is_finished_by_the_attempt_that_is_repeated(
    parquet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, files, write = parquet.open().replacement("e" * 32), parquet.stage(range(3), "new"), write_id()
    rename, left = Path.rename, 1

    def failing(source: Path, target: Any) -> Any:
        nonlocal left
        if Path(target).parent.name == REMOVED:
            left -= 1
            if left < 0:
                raise OSError(5, "Input/output error")
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", failing)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            table.commit(0, 3, SCHEMA, files, write=write)
        assert (table.upper, parquet.open().upper) == (0, 3)
        assert held(parquet) == of("new", 3)
        assert parquet.rows() == OLD[:2], "the last epochs go first"
    with pytest.raises(OSError, match="Input/output"):  # nor does anything come into sight beside old rows
        parquet.commit(parquet.open(), 3, 4, "new")
    with pytest.raises(OSError, match="Input/output"):
        parquet.open().sweep(lambda: None)
    monkeypatch.undo()
    table.commit(0, 3, SCHEMA, files, write=write)
    assert table.upper == 3
    assert parquet.rows() == held(parquet) == of("new", 3)


@pytest.mark.parametrize(("seer", "look"), [(commits, "newest"), (ground, "below")])
def test_a_table_that_is_replaced_between_two_looks_at_it_is_opened_as_it_then_is(
    parquet: Any, monkeypatch: pytest.MonkeyPatch, seer: Any, look: str
) -> None:
    """Its folders were listed, or its commits were followed."""
    real, looks = getattr(seer, look), list[Any]()

    def after_the_swap(of_what: Any) -> Any:
        looks.append(of_what)
        if len(looks) == 1:
            replace(parquet)
        return real(of_what)

    monkeypatch.setattr(seer, look, after_the_swap)
    table = parquet.open()
    assert (table.edition, table.volume().rows, len(looks) > 1) == ("e" * 32, 3, True)
    assert all(map(os.path.exists, table.uris(table.files())))


def test_files_that_were_gathered_for_a_swap_that_was_not_made_are_staged_as_before(parquet: Any) -> None:
    assert end_of(dying.swap, "parquet", parquet.path, 3, 4) == -signal.SIGKILL
    [gathered] = Path(parquet.path).glob(f"_staged/commit-*/{ROWS}/*.parquet")
    file = StagedFile(f"_staged/{'a' * 16}{3:016x}/{gathered.name}", 4, gathered.stat().st_size, 0, 3)
    table = parquet.open()
    anew = table.replacement("f" * 32)
    assert anew.keep([file])
    table.sweep(lambda: None)
    anew.commit(0, 4, SCHEMA, [file], write=write_id())
    assert parquet.rows() == held(parquet) == of("new", 4)
    assert not list(Path(parquet.path).glob("_staged/*"))


def test_who_has_looked_before_the_swap_may_find_the_files_moved_and_looks_again(parquet: Any) -> None:
    table = parquet.open()
    uris = table.uris(table.files())
    replace(parquet)
    assert not any(map(os.path.exists, uris))
    assert all(map(os.path.exists, table.uris(table.files())))
    assert {Path(uri).name for uri in uris} == set(os.listdir(Path(parquet.path, REMOVED)))


def test_the_old_rows_and_their_empty_folders_may_be_cleared_away(parquet: Any) -> None:
    replace(parquet, 2)
    parquet.commit(parquet.open(), 2, 3, "new")
    shutil.rmtree(Path(parquet.path, REMOVED))
    for folder in Path(parquet.path).glob("from_epoch=*"):
        if not list(folder.glob("*.parquet")):
            shutil.rmtree(folder)
    assert parquet.rows() == held(parquet) == of("new", 3)
    assert parquet.sink.incarnation(OUTPUT.flow, OUTPUT.output) == OUTPUT.incarnation
    parquet.commit(parquet.open(), 3, 4, "new")
    replace(parquet, 1, edition="f" * 32, user="last")
    assert parquet.rows() == held(parquet) == of("last", 1)


def test_rows_that_come_back_into_old_folders_are_refused_and_taken_out_by_a_repair(parquet: Any) -> None:
    shutil.copytree(parquet.path, f"{parquet.path}-kept")
    replace(parquet, 2)
    shutil.copytree(f"{parquet.path}-kept", parquet.path, dirs_exist_ok=True)
    with pytest.raises(FilesChangedByOthers) as caught:
        parquet.open()
    assert len(caught.value.evidence["foreign"]) == 3
    mending = parquet.sink.mend(OUTPUT)
    assert (mending.upper, len(mending.damage.foreign), mending.damage.epochs) == (2, 3, ())
    mending.replace((), 2, SCHEMA, [], write=write_id(), told=lambda *_: NO_HISTORY)
    assert parquet.rows() == held(parquet) == of("new", 2)


@pytest.mark.parametrize("finished", [True, False])
def test_a_table_that_was_replaced_is_mended(parquet: Any, finished: bool) -> None:
    if finished:
        replace(parquet, 2)
        parquet.commit(parquet.open(), 2, 4, "new")
        parquet.open().withdraw("d" * 32)
        parquet.commit(parquet.open(), 4, 5, "new")
        upper, place = 5, Path(parquet.path, folder_name(0, 1))
    else:
        assert end_of(dying.swap, "parquet", parquet.path, 9, 4) == -signal.SIGKILL
        upper, place = 4, Path(parquet.path, folder_name(3), ROWS)
    next(place.glob("*.parquet")).unlink()
    with pytest.raises(FilesChangedByOthers):
        parquet.open()
    mending = parquet.sink.mend(OUTPUT)
    [epochs] = mending.whole(mending.damage.epochs)
    assert (mending.upper, epochs.start) == (upper, 0)
    assert not mending.damage.foreign
    files = parquet.stage(epochs, "mended")
    mending.replace((epochs,), upper, SCHEMA, files, write=write_id(), told=lambda *_: NO_HISTORY)
    assert parquet.rows() == held(parquet) == sorted([*of("mended", epochs.stop), *of("new", upper, epochs.stop)])
    edition = "d" if finished else "e"
    assert parquet.open().edition == edition * 32
    parquet.commit(parquet.open(), upper, upper + 1, "new")
    replace(parquet, 3, edition="f" * 32, user="last")
    assert parquet.rows() == held(parquet) == of("last", 3)


def test_a_folder_of_the_new_edition_that_is_gone_is_mended_or_said(parquet: Any) -> None:
    replace(parquet, 2)
    parquet.commit(parquet.open(), 2, 4, "new")
    shutil.rmtree(Path(parquet.path, folder_name(0, 1)))
    mending = parquet.sink.mend(OUTPUT)
    assert (mending.upper, mending.damage.epochs) == (4, (range(2),))
    files = parquet.stage(range(2), "mended")
    mending.replace((range(2),), 4, SCHEMA, files, write=write_id(), told=lambda *_: NO_HISTORY)
    assert parquet.rows() == held(parquet) == [*of("mended", 2), *of("new", 4, 2)]
    (Path(parquet.path, folder_name(0, 1)) / MANIFEST).unlink()
    with pytest.raises(DamagedManifest):
        parquet.open()


def test_all_of_it_can_be_removed_while_a_swap_is_cut_short_and_nothing_that_is_not_ours(parquet: Any) -> None:
    assert end_of(dying.swap, "parquet", parquet.path, 9, 4) == -signal.SIGKILL
    theirs = Path(parquet.path, folder_name(3), ROWS, "notes.txt")
    theirs.write_text("mine")
    with pytest.raises((TableNotRemovable, FilesChangedByOthers)):
        parquet.sink.remove(OUTPUT)
    theirs.unlink()
    parquet.sink.remove(OUTPUT)
    assert not Path(parquet.path).exists()


def test_a_version_that_knows_nothing_of_editions_reads_no_table_that_has_some(parquet: Any) -> None:
    parquet.open().withdraw("d" * 32)
    parquet.commit(parquet.open(), 3, 4)
    replace(parquet, 2)
    formats = [
        json.loads(path.read_text())["format"] for path in sorted(Path(parquet.path).glob(f"from_epoch=*/{MANIFEST}"))
    ]
    assert sorted(formats) == [1] * 3 + [3] * 4


def test_a_swap_of_another_incarnation_is_refused(parquet: Any) -> None:
    replace(parquet, 2)
    with pytest.raises(TableOfAnotherIncarnation):
        parquet.open(dataclasses.replace(OUTPUT, incarnation="b" * 32))
