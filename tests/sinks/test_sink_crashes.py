"""A driver that is killed at any instant leaves a table that can be read and an upper that says what it holds."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.forked import FORKS, end_of
from tests.sinks import dying

from tidegauge.errors.sinks import BrokenChain, FilesChangedByOthers
from tidegauge.sinks.parquet.manifest import MANIFEST, folder_name

INSTANTS = [
    (kind, instant, instant == "after commit")
    for kind in ("delta", "parquet")
    for instant in ("staging", "staged", "before commit", "after commit", "gathering")
    if (kind, instant) != ("delta", "gathering")
]


@pytest.mark.long  # `check_sink` lets drivers die, too; this one knows each instant, and the litter that is left
@pytest.mark.parametrize("base", [pytest.param(0, id="first commit"), pytest.param(2, id="later commit")])
@pytest.mark.parametrize(("kind", "instant", "committed"), INSTANTS)
def test_killed_at(kind: str, instant: str, committed: bool, base: int, tmp_path: Path, kinds: Any) -> None:
    path = str(tmp_path / "t")
    bench = kinds(kind, path)
    if base:
        bench.commit(bench.open(), 0, base)
    assert end_of(dying.commit, kind, path, instant) == -signal.SIGKILL

    old = [("ada", epoch) for epoch in range(base)]
    new = [("new", base)] * 2 if committed else []
    assert bench.rows() == sorted(old + new)
    table = bench.open()
    assert table.upper == base + committed
    assert sum(file.rows for file in table.files()) == len(old + new)

    if kind == "parquet":  # what the next driver of the flow does, and what it leaves
        table.sweep(lambda: None)
        named = {Path(uri) for uri in table.uris(table.files())}
        named |= {Path(path, folder_name(lower), MANIFEST) for lower in ([0] if base else []) + [base] * committed}
        assert {found for found in Path(path).rglob("*") if found.is_file()} == named
        assert list(Path(path).glob("_staged/*")) == []
    bench.commit(table, table.upper, table.upper + 1, "again")  # and the table goes on
    assert bench.rows() == sorted([*old, *new, ("again", base + committed)])


def mend(bench: Any, dies: int) -> None:
    """Mend a table in a process that is killed at the given one of the instants around renames and links."""
    assert end_of(dying.mend, bench.kind.name, bench.path, dies) in (0, -signal.SIGKILL)


def test_killed_while_a_table_is_mended_it_is_as_it_was_or_whole(tmp_path: Path, kinds: Any) -> None:
    bench = kinds("delta", str(tmp_path / "t"))
    table = bench.open()
    for epoch in range(4):
        bench.commit(table, epoch, epoch + 1)
    DeltaTable(bench.path).restore(2)
    damaged, whole = [("ada", epoch) for epoch in range(3)], [("ada", epoch) for epoch in range(4)]
    seen, dies = [bench.rows()], 0
    while seen[-1] != whole:
        dies += 1
        mend(bench, dies)
        seen.append(bench.rows())
    assert seen == [damaged] * dies + [whole]
    assert dies > 1
    table = bench.open()
    bench.commit(table, 4, 5)
    assert bench.rows() == [*whole, ("ada", 4)]


@pytest.mark.long
@pytest.mark.parametrize("lost", ["a file in the middle", "a folder in the middle"])
def test_killed_while_folders_are_mended_no_epoch_is_half_there(lost: str, tmp_path: Path, kinds: Any) -> None:
    bench = kinds("parquet", str(tmp_path / "t"))
    table = bench.open()
    for lower in range(0, 6, 2):
        bench.commit(table, lower, lower + 2)
    middle = Path(bench.path, folder_name(2))
    if lost == "a file in the middle":
        next(middle.glob("*.parquet")).unlink()
    else:
        shutil.rmtree(middle)
    whole, dies = [("ada", epoch) for epoch in range(6)], 0
    while bench.rows() != whole:
        dies += 1
        with pytest.raises((FilesChangedByOthers, BrokenChain)):
            bench.open()
        assert set(bench.rows()) == {*whole[:2], *whole[4:]}
        mend(bench, dies)
    assert dies > 2
    table = bench.open()
    assert table.upper == 6
    table.sweep(lambda: None)
    assert list(Path(bench.path).glob("_staged/*")) == []
    bench.commit(table, 6, 7)
    assert bench.rows() == [*whole, ("ada", 6)]


@pytest.mark.parametrize("kind", ["delta", pytest.param("parquet", marks=pytest.mark.long)])
def test_of_processes_that_commit_at_one_instant_one_wins_each_epoch(kind: str, tmp_path: Path, kinds: Any) -> None:
    bench = kinds(kind, str(tmp_path / "t"))
    gate, results = FORKS.Barrier(3, timeout=60), FORKS.Queue()
    racers = [FORKS.Process(target=dying.race, args=(kind, bench.path, f"p{i}", gate, results)) for i in range(3)]
    for racer in racers:
        racer.start()
    won, running = [], len(racers)
    while running:
        result = results.get(timeout=90)
        if result is None:
            running -= 1
        else:
            won.append(result)
    for racer in racers:
        racer.join(60)
    assert [epoch for _, epoch in sorted(won, key=lambda w: w[1])] == list(range(8))
    assert bench.rows() == sorted(won)
    assert bench.open().upper == 8
