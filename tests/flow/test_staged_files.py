"""What a driver that died had staged is cleared up by the next one, which touches nothing else in the folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flow.badinput import begin, finish, lines, numbers, source, write
from tests.flow.by_hand import Crash, World

import tidegauge as tg
from tidegauge.errors.store import FlowAlreadyRunning
from tidegauge.job import portion
from tidegauge.sinks.parquet.manifest import MANIFEST


def one(world: World) -> tg.Dataflow:
    flow = tg.Dataflow("one", store=world.store)
    flow.sink("a", source(world, flow, "a"), tg.ParquetSink(str(world.root / "lake")))
    return flow


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def named(folder: Path) -> set[str]:
    """The manifests, and what they name."""
    return {name for name in files(folder) if name.endswith(MANIFEST)} | {
        str(path.relative_to(folder)) for path in folder.glob("from_epoch=*/part-*.parquet")
    }


@pytest.mark.parametrize("point", ["after stage", "before commit output"])
@pytest.mark.parametrize("epochs", [0, 2])
def test_a_folder_holds_what_its_manifests_name_once_the_next_driver_runs(
    point: str, epochs: int, tmp_path: Path
) -> None:
    world, lake = World(tmp_path, one), tmp_path / "lake"
    for n in range(epochs):
        write(tmp_path / "a" / "1.jsonl", lines(n))
        finish(world)
    write(tmp_path / "a" / "1.jsonl", lines(epochs))
    world.strike = point
    with pytest.raises(Crash):
        finish(world)
    strange = lake / "_staged" / ("f" * 32) / "part-of-another-flow.parquet"
    strange.parent.mkdir()
    strange.touch()
    left = files(lake) - named(lake)
    assert len(left) == 2, "the dead driver's file, and the other flow's"
    finish(world)
    assert files(lake) - named(lake) == {str(strange.relative_to(lake))}
    assert numbers(one(world), "a") == list(range(epochs + 1))


def test_a_driver_that_is_refused_the_lease_clears_up_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, one)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    run = begin(world)
    run.catch_up()
    job = tmp_path / "lake" / "_staged" / f"{world.loaded().flow.incarnation[-16:]}{'0' * 16}"
    job.mkdir()
    with pytest.raises(FlowAlreadyRunning):
        begin(world)
    assert job.exists()
    run.abandon()
    finish(world)
    assert not job.exists()


def test_a_backlog_is_staged_in_jobs_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, one)
    for n in range(6):
        write(tmp_path / "a" / "1.jsonl", lines(n))
        finish(world)
    monkeypatch.setattr(portion, "JOB_LIMITS", {"bytes": portion.LATE_PART * (2 * len(lines(0)) + 1)})
    world.points.clear()
    finish(world, with_another)
    assert world.points.count("before stage") == 3, "six epochs, two a job"
    assert numbers(with_another(world), "again") == [0, 1, 2, 3, 4, 5]


def with_another(world: World) -> tg.Dataflow:
    """A second table of the same rows, which begins with a backlog."""
    flow = tg.Dataflow("one", store=world.store)
    a = source(world, flow, "a")
    flow.sink("a", a, tg.ParquetSink(str(world.root / "lake")))
    flow.sink("again", a, tg.ParquetSink(str(world.root / "again")))
    return flow
