"""A table that vanishes is waited for, with its history, by the run that sees it and by those that begin without it.

Nothing is written in its place until somebody says so.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.disks import small_disk
from tests.flow.badinput import begin, finish, lines, numbers, report, source, two, write
from tests.flow.by_hand import Crash, Run, World

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


def test_a_new_empty_folder_in_its_place_is_not_taken_for_it_nor_by_the_next_run(world: World) -> None:
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
    run = begin(world)
    run.step(100)
    assert state(run, "a") == GONE
    assert list(lake.iterdir()) == []
    lake.rmdir()
    away.rename(lake)
    run.step(100)
    run.catch_up()
    run.abandon()
    assert numbers(world.make(world), "a") == [0, 1]


# A table that is away when the run begins


def without(world: World, output: str = "a") -> tuple[Path, Path]:
    """A life of the flow, after which one of its tables is moved away; where it was, and where it is."""
    for name in ("a", "b"):
        write(world.root / name / "1.jsonl", lines(0))
    finish(world)
    lake, away = world.root / "lake" / output, world.root / "away"
    lake.rename(away)
    return lake, away


def test_a_table_that_is_away_when_the_run_begins_is_waited_for_and_nothing_is_written_in_its_place(
    world: World,
) -> None:
    lake, away = without(world)
    run = begin(world)
    for name in ("a", "b"):
        write(world.root / name / "1.jsonl", lines(1))
    for _ in range(5):
        run.step(3)
    assert (state(run, "a"), state(run, "a2"), state(run, "b")) == (GONE, LIVE, LIVE)
    assert not lake.exists(), "nothing is in its way"
    assert run.runner.board.outputs["a2"].upper == run.runner.board.upper > run.runner.board.published
    with pytest.raises(TableWentBack):
        tg.read_arrow(world.make(world), "a")
    away.rename(lake)
    run.step(100)
    run.catch_up()
    run.abandon()
    for output in ("a", "a2", "b"):
        assert numbers(world.make(world), output) == [0, 1]


def test_others_are_told_that_the_table_is_away_while_nobody_runs_the_flow(world: World) -> None:
    lake, _ = without(world)
    found = {output.name: output for output in report(world).outputs}
    assert {name: one.state for name, one in found.items()} == {"a": "stalled", "a2": "live", "b": "live"}
    assert f"the table {lake} held the epochs of 'lake:a' before" in str(found["a"].error)
    with pytest.raises(TableWentBack):
        tg.compact(world.make(world), before=1)
    assert "TG-0435" in tg.verify(world.make(world)).problems[0]


def test_a_run_until_caught_up_ends_with_the_reason_when_the_others_have_caught_up(world: World) -> None:
    lake, _ = without(world)
    for name in ("a", "b"):
        write(world.root / name / "1.jsonl", lines(1))
    with pytest.raises(TableWentBack, match="lake/a held the epochs"):
        world.make(world).run("caught-up", engine="local")
    assert not lake.exists()
    outputs = {output.name: output for output in report(world).outputs}
    assert [outputs[name].rows for name in ("a2", "b")] == [2, 2]


def test_a_table_that_is_gone_for_good_is_written_anew_when_somebody_says_so(world: World) -> None:
    lake, _ = without(world)
    with pytest.raises(TableWentBack, match="--from 0"):
        tg.repair(world.make(world), "a", engine="local")
    done = tg.repair(world.make(world), "a", from_epoch=0, engine="local")
    assert (done.begun_anew, done.upper, lake.exists()) == (True, 0, False)
    finish(world)
    assert numbers(world.make(world), "a") == [0]
    assert not tg.repair(world.make(world), "a", engine="local").changed


def test_a_table_that_was_killed_after_its_first_commit_is_known_once_a_run_has_seen_it(tmp_path: Path) -> None:
    world = World(tmp_path, two, strike="before record held")
    write(tmp_path / "a" / "1.jsonl", lines(0))
    run = begin(world)
    with pytest.raises(Crash):
        run.catch_up()
    run.abandon()
    run = begin(world)
    run.abandon()
    assert world.loaded().outputs["a"].held == 1


def test_an_output_with_another_path_begins_there(world: World, tmp_path: Path) -> None:
    without(world)

    def moved(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("lake", store=world.store)
        a = source(world, flow, "a")
        flow.sink("a", a, tg.ParquetSink(str(tmp_path / "elsewhere")))
        return flow

    finish(world, moved)
    assert numbers(moved(world), "a") == [0]


def test_an_older_state_of_a_table_that_was_put_back_while_nobody_ran_the_flow_is_gone_on_with(world: World) -> None:
    lake = world.root / "lake" / "a"
    path = write(world.root / "a" / "1.jsonl", lines(0))
    finish(world)
    shutil.copytree(lake, world.root / "backup")
    write(path, lines(1))
    finish(world)
    shutil.rmtree(lake)
    (world.root / "backup").rename(lake)
    finish(world)
    assert numbers(world.make(world), "a") == [0, 1]


def test_a_store_that_was_recovered_knows_which_tables_there_were(world: World) -> None:
    lake, away = world.root / "lake" / "a", world.root / "away"
    write(world.root / "a" / "1.jsonl", lines(0))
    finish(world)
    (world.root / "flow.db").unlink()
    tg.recover(world.make(world))
    lake.rename(away)
    run = begin(world)
    assert state(run, "a") == GONE
    run.abandon()


# Several that vanish


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


@pytest.mark.parametrize("when", ["while the flow runs", "before the run begins"])
def test_a_disk_that_is_unmounted_is_waited_for_and_nothing_is_written_below_it(
    mounted: tuple[Path, Callable[[], None]], tmp_path: Path, when: str
) -> None:
    place, mount = mounted
    world = World(tmp_path, two)
    path = write(tmp_path / "a" / "1.jsonl", lines(0))
    write(tmp_path / "b" / "1.jsonl", lines(0))
    run = begin(world)
    run.catch_up()
    if when == "before the run begins":
        run.abandon()
    subprocess.run(["umount", "-l", place], check=True)
    write(path, lines(1))
    if when == "before the run begins":
        run = begin(world)
    run.step(1)
    run.step(30)
    assert state(run, "a") == GONE
    assert list(place.iterdir()) == []
    mount()
    run.step(30)
    run.catch_up()
    run.abandon()
    assert numbers(two(world), "a") == [0, 1]
