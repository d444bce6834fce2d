"""A disk that gives errors, or turns read-only, under a table or the files of a source holds up nobody else, and is
waited for as long as it takes. The disks are real ones, in images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.disks import Disk, disk_image
from tests.flow.badinput import lines, numbers, write
from tests.flow.by_hand import Run, World

import tidegauge as tg

LONG = 20
"""Attempts, of which a reason that may not pass is given less."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with disk_image(tmp_path / "image", tmp_path / "disk") as made:
        yield made


class Lake:
    """Two sources, each with a table; the folder of the source `a`, and that of its table, may be on another disk."""

    def __init__(self, root: Path, *, files: Path, tables: Path, sink: type[tg.DeltaSink | tg.ParquetSink]) -> None:
        self.files = {"a": files / "a" / "1.jsonl", "b": root / "b" / "1.jsonl"}
        self.tables = {"a": tables / "lake" / "a", "b": root / "lake" / "b"}
        self.sink = sink
        self.world = World(root, self.flow)

    def flow(self, world: World) -> tg.Dataflow:
        flow = tg.Dataflow("lake", store=world.store)
        for name, file in self.files.items():
            found = flow.source(name, tg.FileSource(f"{file.parent}/*", format=tg.Json("n long, text string")))
            flow.sink(name, found, self.sink(str(self.tables[name])))
        return flow

    def add(self, n: int) -> None:
        """Add a line to each source, so that it outlives the death of its disk."""
        for file in self.files.values():
            write(file, lines(n))
            with file.open("rb") as written:
                os.fsync(written.fileno())

    def begin(self) -> Run:
        self.add(0)
        run = self.world.start()
        run.catch_up()
        return run

    def all_there(self, run: Run) -> None:
        run.step(31)
        run.catch_up()
        run.abandon()
        assert [numbers(self.flow(self.world), name) for name in self.files] == [[0, 1]] * 2


def wait(run: Run) -> None:
    for _ in range(LONG):
        run.step(31)


@pytest.mark.parametrize("sink", [tg.DeltaSink, tg.ParquetSink])
@pytest.mark.parametrize("how", ["dead", "read-only"])
def test_a_table_on_such_a_disk_is_stalled_alone_until_the_disk_is_well(
    how: str, sink: type[tg.DeltaSink | tg.ParquetSink], disk: Disk, tmp_path: Path
) -> None:
    lake = Lake(tmp_path, files=tmp_path, tables=disk.place, sink=sink)
    run = lake.begin()
    disk.die() if how == "dead" else disk.turn_read_only()
    lake.add(1)
    wait(run)
    board = run.runner.board
    assert (board.outputs["a"].state, board.outputs["b"].state) == ("stalled", "live")
    assert board.outputs["a"].attempt >= LONG
    assert board.outputs["b"].upper == board.upper == 2
    disk.mend()
    lake.all_there(run)


def test_a_source_whose_files_are_on_such_a_disk_is_stalled_alone_until_the_disk_is_well(
    disk: Disk, tmp_path: Path
) -> None:
    lake = Lake(tmp_path, files=disk.place, tables=tmp_path, sink=tg.ParquetSink)
    run = lake.begin()
    lake.add(1)
    disk.die()
    wait(run)
    board = run.runner.board
    assert (board.sources["a"].state, board.sources["b"].state) == ("stalled", "running")
    assert board.sources["a"].attempt >= LONG
    assert board.outputs["b"].upper == board.upper == 2
    disk.mend()
    lake.all_there(run)
