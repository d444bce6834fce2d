"""bytewax's recovery store, read as bytewax reads it: files of its own, with rows as it leaves them where it dies."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bytewax.recovery import init_db_dir

from tidegauge.errors.bytewax import RecoveryUnread
from tidegauge.sources.bytewax.recovery import resumed_from, text_of

KEY = ("theirs.out", "part-0")


def store(folder: Path, *rows: tuple[Any, ...], files: int = 1) -> Path:
    """Make a recovery store with rows: the number of a file, a table, the values."""
    folder.mkdir()
    init_db_dir(folder, files)  # type: ignore[no-untyped-call]
    for number, table, *values in rows:
        columns = {
            "exs": "ex_num, worker_count, resume_epoch",
            "fronts": "ex_num, worker_index, worker_frontier",
            "commits": "part_index, commit_epoch",
            "snaps": "step_id, state_key, snap_epoch, ser_change",
        }[table]
        with sqlite3.connect(folder / f"part-{number}.sqlite3") as file:
            marks = ", ".join("?" * len(values))
            file.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", values)
        file.close()
    return folder


def snap(epoch: int, text: Any, key: tuple[str, str] = KEY) -> tuple[Any, ...]:
    return (0, "snaps", *key, epoch, pickle.dumps(text))


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([], None),
        ([(0, "exs", 0, 1, 1), snap(1, "one")], None),  # it died before the epoch was over
        ([(0, "exs", 0, 1, 1), (0, "fronts", 0, 0, 2), snap(1, "one"), snap(2, "two")], "one"),
        ([(0, "exs", 0, 2, 1), (0, "fronts", 0, 0, 9), snap(1, "one")], None),  # the other worker is at 1
        (
            [(0, "exs", 0, 2, 1), (0, "fronts", 0, 0, 9), (0, "fronts", 0, 1, 2), snap(1, "one"), snap(5, "five")],
            "one",
        ),
        # the newest execution has resumed at 3, and what is left of the one before at 3 is to come to nothing
        ([(0, "exs", 0, 1, 1), (0, "fronts", 0, 0, 3), (0, "exs", 1, 1, 3), snap(2, "two"), snap(3, "three")], "two"),
        ([(0, "exs", 0, 1, 1), (0, "fronts", 0, 0, 9), (0, "exs", 1, 1, 3), snap(2, "two"), snap(5, "five")], "two"),
        ([(0, "exs", 0, 1, 1), (0, "fronts", 0, 0, 9), snap(1, {"of": "another"})], None),
        ([(0, "exs", 0, 1, 1), (0, "fronts", 0, 0, 9), snap(1, "one", ("theirs.out", "part-1"))], None),
    ],
)
def test_it_is_the_newest_state_before_the_epoch_at_which_bytewax_resumes(
    tmp_path: Path, rows: list[tuple[Any, ...]], found: str | None
) -> None:
    assert resumed_from(store(tmp_path / "recovery", *rows), [KEY]).get(KEY) == found


def test_rows_are_spread_over_files(tmp_path: Path) -> None:
    spread = [(2, "exs", 0, 2, 1), (0, "fronts", 0, 0, 4), (1, "fronts", 0, 1, 3), snap(2, "two"), snap(3, "three")]
    folder = store(tmp_path / "recovery", *spread, files=3)
    assert resumed_from(folder, [KEY]) == {KEY: "two"}


def damaged(*did: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        with sqlite3.connect(folder / "part-0.sqlite3") as file:
            for one in did:
                file.execute(one)
        file.close()

    return damage


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda folder: [path.unlink() for path in folder.iterdir()], "it has no file"),
        (lambda folder: (folder / "part-1.sqlite3").unlink(), "1 of its 2 files are there"),
        (lambda folder: (folder / "part-0.sqlite3").write_bytes(b"no database" * 500), "DatabaseError"),
        (damaged("PRAGMA user_version = 9"), "version 9"),
        (damaged("DROP TABLE snaps"), "no such table"),
        (damaged("INSERT INTO commits (part_index, commit_epoch) VALUES (0, 7)"), "of different times"),
    ],
)
def test_a_store_that_cannot_be_read_is_named(tmp_path: Path, damage: Callable[[Path], Any], problem: str) -> None:
    folder = store(tmp_path / "recovery", (0, "exs", 0, 1, 1), (0, "fronts", 0, 0, 3), files=2)
    damage(folder)
    with pytest.raises(RecoveryUnread, match=problem):
        resumed_from(folder, [KEY])


def test_nothing_is_unpickled() -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return pytest.fail, ("it was unpickled",)

    assert text_of(pickle.dumps(Harmful())) is None
    assert text_of(pickle.dumps("tidegauge:1:a:3:b")) == "tidegauge:1:a:3:b"
    assert [text_of(pickle.dumps(one)) for one in (None, 7, ("a", "b"), b"a")] == [None] * 4
