"""A table that vanishes under a running flow is waited for, with its history; nothing is written in its place."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.disks import small_disk
from tests.pipeline.badinput import begin, finish, lines, numbers, source, two, write
from tests.pipeline.simulation import Run, World

import tidegauge as tg
from tidegauge.errors.sinks import TableWentBack

SINKS = [tg.DeltaSink, tg.ParquetSink]


@pytest.fixture(params=SINKS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Two tables of one source, and one of another."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("lake", store=world.store)
        a = source(world, flow, "a")
        for name in ("a", "a2"):
            flow.sink(name, a, request.param(str(tmp_path / "lake" / name)))
        flow.sink("b", source(world, flow, "b"), request.param(str(tmp_path / "lake" / "b")))
        return flow

    return World(tmp_path, make)


def state(run: Run, output: str) -> str:
    status = run.runner.board.outputs[output]
    return f"{status.state} {status.error.code}" if isinstance(status.error, TableWentBack) else status.state


LIVE = "live"
GONE = "stalled TG-0435"


@pytest.mark.parametrize("lag", [0, 3])
def test_a_table_that_vanished_is_stalled_alone_and_taken_up_when_it_is_back(lag: int, world: World) -> None:
    lake, away = world.root / "lake" / "a", world.root / "away"
    world.lag = lag
    run = begin(world)
    path = write(world.root / "a" / "1.jsonl", lines(0))
    other = write(world.root / "b" / "1.jsonl", lines(0))
    run.catch_up()
    lake.rename(away)
    for n in range(1, 10):
        write(path, lines(n))
        write(other, lines(n))
        run.step(3)
    assert (state(run, "a"), state(run, "a2"), state(run, "b")) == (GONE, LIVE, LIVE)
    error = run.runner.board.outputs["a"].error
    assert f"the table {lake} held the epochs of 'lake:a' before 1, and now holds those before 0" in str(error)
    assert not lake.exists(), "nothing is in its way"
    assert run.runner.board.outputs["a2"].upper >= run.runner.board.upper - 1 > 1
    assert run.runner.ended("caught-up") is None
    assert 2 < run.runner.board.outputs["a"].attempt < 10, "with growing delays"
    away.rename(lake)
    run.catch_up()
    assert (state(run, "a"), run.runner.board.published) == (LIVE, run.runner.board.upper)
    run.abandon()
    for output in ("a", "a2", "b"):
        assert numbers(world.make(world), output) == list(range(10))


def test_a_new_empty_folder_in_its_place_is_not_taken_for_it_until_the_flow_is_started_again(world: World) -> None:
    lake, away = world.root / "lake" / "a", world.root / "away"
    path = write(world.root / "a" / "1.jsonl", lines(0))
    run = begin(world)
    run.catch_up()
    lake.rename(away)
    lake.mkdir()
    write(path, lines(1))
    run.step(100)
    run.step(100)
    assert state(run, "a") == GONE
    assert list(lake.iterdir()) == []
    run.runner.stop()
    assert run.runner.run(None).why == "stopped"
    run.abandon()
    finish(world)
    assert numbers(world.make(world), "a") == [0, 1], "what the table lacked was read once more"


def test_a_table_that_vanished_unnoticed_is_found_out_when_another_does_and_not_written_anew(world: World) -> None:
    a, b = (world.root / "lake" / name for name in ("a", "b"))
    path = write(world.root / "a" / "1.jsonl", lines(0))
    write(world.root / "b" / "1.jsonl", lines(0))
    run = begin(world)
    run.catch_up()
    for table in (a, b):
        table.rename(world.root / table.name.upper())
    write(path, lines(1))
    run.step(1)
    assert (state(run, "a"), state(run, "b")) == (GONE, GONE), "nothing was to be written to the other one"
    (world.root / "A").rename(a)
    run.step(100)
    run.step(1)
    assert (state(run, "a"), state(run, "b")) == (LIVE, GONE)
    assert not b.exists()
    (world.root / "B").rename(b)
    run.catch_up()
    run.abandon()
    assert [numbers(world.make(world), output) for output in ("a", "b")] == [[0, 1], [0]]


# A real mount


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A place at which a disk is mounted, and what mounts it there again."""
    with small_disk(tmp_path / "disk", size="8m") as disk:
        place = tmp_path / "lake"
        place.mkdir()

        def mount() -> None:
            subprocess.run(["mount", "--bind", disk, place], check=True)

        mount()
        yield place, mount
        subprocess.run(["umount", "-l", place], check=False, capture_output=True)


def test_a_disk_that_is_unmounted_and_comes_back_loses_nothing_and_nothing_is_written_below_it(
    mounted: tuple[Path, Callable[[], None]], tmp_path: Path
) -> None:
    place, mount = mounted
    world = World(tmp_path, two)
    path = write(tmp_path / "a" / "1.jsonl", lines(0))
    write(tmp_path / "b" / "1.jsonl", lines(0))
    run = begin(world)
    run.catch_up()
    subprocess.run(["umount", "-l", place], check=True)
    write(path, lines(1))
    run.step(1)
    run.step(30)
    assert state(run, "a") == GONE
    assert list(place.iterdir()) == []
    mount()
    run.step(30)
    run.catch_up()
    run.abandon()
    assert numbers(two(world), "a") == [0, 1]
