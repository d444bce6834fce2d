"""What dead drivers left among the staged files of a Parquet folder goes; what is not theirs, or in use, stays."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.conftest import OUTPUT, SCHEMA, Bench, stage

from tidegauge.errors.store import LeaseLost
from tidegauge.sinks import OutputId
from tidegauge.sinks.protocol import job_mark

MARK = job_mark(OUTPUT.incarnation)
DEAD, OTHERS = MARK + "c" * 16, "b" * 16 + MARK


@pytest.fixture
def parquet(kinds: Any, tmp_path: Path) -> Bench:
    bench: Bench = kinds("parquet", str(tmp_path / "orders"))
    bench.commit(bench.open(), 0, 2)
    return bench


def held() -> None:
    """The lease is still ours."""


def tree(path: Path) -> set[str]:
    return {str(found.relative_to(path)) for found in path.rglob("*")}


def test_what_a_dead_driver_of_the_flow_staged_is_removed_and_nothing_else(parquet: Bench, tmp_path: Path) -> None:
    folder = Path(parquet.path)
    stage(parquet.sink, [2], job=OTHERS)
    staged = folder / "_staged"
    for name in (f"commit-{OTHERS}", "x" * 32, f"{DEAD}.old", f"mine-{DEAD}", MARK, "removed-", DEAD[:-1]):
        (staged / name).mkdir()
        (staged / name / "part.parquet").touch()
    (staged / f"commit-{MARK}{'d' * 16}").touch()  # a file, where ours are folders
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "part.parquet").touch()
    (staged / f"{MARK}{'e' * 16}").symlink_to(tmp_path / "elsewhere")
    before = tree(tmp_path)

    stage(parquet.sink, [2], job=DEAD)
    for name in (f"commit-{DEAD}", f"removed-{DEAD}", f"removed-commit-{MARK}{'0' * 16}"):
        (staged / name).mkdir()
        (staged / name / "part.parquet").touch()
    parquet.open().sweep(held)
    assert tree(tmp_path) == before
    assert parquet.rows() == [("ada", 0), ("ada", 1)]


def test_the_table_goes_on_after_it(parquet: Bench) -> None:
    stage(parquet.sink, [2], job=DEAD)
    table = parquet.open()
    table.sweep(held)
    parquet.commit(table, 2, 3)
    assert [epoch for _, epoch in parquet.rows()] == [0, 1, 2]


@pytest.mark.parametrize("other", [OutputId("shop", "orders", "b" * 32), OutputId("farm", "orders", "c" * 32)])
def test_another_flow_that_is_pointed_at_the_folder_removes_nothing(
    other: OutputId, kinds: Any, tmp_path: Path
) -> None:
    bench = kinds("parquet", str(tmp_path / "orders"))
    stage(bench.sink, [0], job=DEAD)
    before = tree(tmp_path)
    bench.open(other).sweep(held)
    assert tree(tmp_path) == before


def test_a_driver_that_has_lost_its_lease_removes_nothing(parquet: Bench) -> None:
    stage(parquet.sink, [2], job=DEAD)
    before = tree(Path(parquet.path))

    def lost() -> None:
        raise LeaseLost(flow="shop", now="somebody else has it")

    with pytest.raises(LeaseLost):
        parquet.open().sweep(lost)
    assert tree(Path(parquet.path)) == before


def test_what_is_staged_once_the_lease_was_checked_stays(parquet: Bench) -> None:
    stage(parquet.sink, [2], job=DEAD)
    successor = MARK + "f" * 16
    parquet.open().sweep(lambda: stage(parquet.sink, [2], job=successor) and None)
    assert [path.name for path in Path(parquet.path, "_staged").iterdir()] == [successor]


def test_a_folder_without_staged_files_is_left_alone(kinds: Any, tmp_path: Path) -> None:
    def unasked() -> None:
        raise AssertionError("there is nothing to confirm")

    kinds("parquet", str(tmp_path / "orders")).open().sweep(unasked)
    assert tree(tmp_path) == set()
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "_staged").touch()
    kinds("parquet", str(tmp_path / "orders")).open().sweep(unasked)


@pytest.mark.parametrize("instant", range(5), ids=["first", "second", "third", "last", "none"])
def test_a_driver_that_was_thought_dead_commits_in_whole_or_not_at_all(
    instant: int, parquet: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The successor clears up before one of the renames of a commit: of its three files, and of their folder."""
    deposed, successor = parquet.open(), parquet.open()
    staged = [file for task in range(3) for file in stage(parquet.sink, [2], "late", job=DEAD, task=task)]
    rename, done = Path.rename, 0

    def watched(self: Path, target: Path) -> Path:
        nonlocal done
        done += 1
        if done == instant + 1:
            with monkeypatch.context() as inner:
                inner.setattr(Path, "rename", rename)
                successor.sweep(held)
        return rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", watched)
        try:
            deposed.commit(2, 3, SCHEMA, staged, write=DEAD)
            committed = True
        except OSError:
            committed = False
    assert committed == (instant == 4)
    successor.sweep(held)
    old = [("ada", 0), ("ada", 1)]
    assert parquet.rows() == old + [("late", 2)] * 3 * committed
    table = parquet.open()
    assert table.upper == 2 + committed
    assert all(Path(uri).exists() for uri in table.uris(table.files()))
    assert list(Path(parquet.path, "_staged").iterdir()) == []
    parquet.commit(table, table.upper, table.upper + 1, "next")


def test_a_commit_in_the_middle_of_a_removal_finds_nothing_to_commit(
    parquet: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last rename of a commit comes when the successor has removed one of its files, and not yet the others."""
    deposed, successor = parquet.open(), parquet.open()
    staged = [file for task in range(2) for file in stage(parquet.sink, [2], "late", job=DEAD, task=task)]
    rename, remove = Path.rename, shutil.rmtree

    def last(gathered: Path, target: Path) -> Path:
        if not target.name.startswith("from_epoch="):
            return rename(gathered, target)
        found: list[OSError] = []

        def halfway(folder: Path) -> None:
            for part in sorted(folder.glob("part-*"))[:1]:
                part.unlink()
                try:
                    rename(gathered, target)
                except OSError as error:
                    found.append(error)
            remove(folder)

        with monkeypatch.context() as inner:
            inner.setattr(Path, "rename", rename)
            inner.setattr(shutil, "rmtree", halfway)
            successor.sweep(held)
        raise found[0]

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", last)
        with pytest.raises(FileNotFoundError):
            deposed.commit(2, 3, SCHEMA, staged, write=DEAD)
    assert parquet.rows() == [("ada", 0), ("ada", 1)]
    assert parquet.open().upper == 2


def test_kept_files_outlive_a_sweep_also_those_that_a_killed_commit_had_gathered(parquet: Bench) -> None:
    staged = [file for task in range(4) for file in stage(parquet.sink, [2], "late", job=DEAD, task=task)]
    stage(parquet.sink, [2], job=f"{MARK}{'e' * 16}")
    folder = Path(parquet.path, "_staged")
    for number, name in enumerate((f"commit-{DEAD}", f"removed-commit-{DEAD}", f"removed-commit-{MARK}{'0' * 16}")):
        (folder / name).mkdir()  # a commit was killed, and so was a driver that put its files back
        path = Path(parquet.path, staged[number].path)
        path.rename(folder / name / path.name)
    table = parquet.open()
    assert table.keep(staged)
    table.sweep(held)
    assert [path.name for path in folder.iterdir()] == [DEAD]
    table.commit(2, 3, SCHEMA, staged, write="f" * 32)
    assert parquet.rows() == [("ada", 0), ("ada", 1)] + [("late", 2)] * 4


@pytest.mark.parametrize("kind", ["parquet", "delta"])
@pytest.mark.parametrize("harm", ["removed", "cut"])
def test_files_that_are_not_as_they_were_staged_are_not_kept(
    kinds: Any, tmp_path: Path, kind: str, harm: str
) -> None:
    bench = kinds(kind, str(tmp_path / "orders"))
    staged = [file for task in range(2) for file in stage(bench.sink, [0], job=DEAD, task=task)]
    assert bench.open().keep(staged)
    path = Path(bench.path, staged[1].path)
    path.unlink()
    if harm == "cut":
        path.write_bytes(b"PAR1")
    assert not bench.open().keep(staged)


@pytest.mark.parametrize("instant", range(5), ids=["first", "second", "third", "last", "none"])
def test_of_a_commit_and_a_successor_that_keeps_its_files_one_wins(
    instant: int, parquet: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The successor takes the files back before one of the renames of a commit, and then commits them itself."""
    deposed, successor = parquet.open(), parquet.open()
    staged = [file for task in range(3) for file in stage(parquet.sink, [2], "late", job=DEAD, task=task)]
    rename, done = Path.rename, 0

    def watched(self: Path, target: Path) -> Path:
        nonlocal done
        done += 1
        if done == instant + 1:
            with monkeypatch.context() as inner:
                inner.setattr(Path, "rename", rename)
                assert successor.keep(staged)
                successor.sweep(held)
        return rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", watched)
        try:
            deposed.commit(2, 3, SCHEMA, staged, write=DEAD)
        except OSError:
            successor.commit(2, 3, SCHEMA, staged, write="f" * 32)
            assert instant < 4
    assert parquet.open().upper == 3
    assert parquet.rows() == [("ada", 0), ("ada", 1)] + [("late", 2)] * 3
