"""Outputs that are dropped with their tables: all of a table goes, or nothing, and never anything of others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.flow.badinput import begin, rows
from tests.flow.by_hand import Crash, World
from tests.flow.test_late_outputs import add, alone, flow_of

import tidegauge as tg
from tidegauge.errors.sinks import TableNotRemovable

SINKS = [tg.ParquetSink, tg.DeltaSink]


def of(sink: Callable[[str], Any]) -> Callable[[World], tg.Dataflow]:
    return flow_of("late", sink=sink)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, alone)


def grown(world: World, sink: Callable[[str], Any]) -> World:
    """A flow with two tables of some epochs."""
    run = begin(world, of(sink))
    for n in range(3):
        add(world, n)
        run.catch_up()
    run.abandon()
    return world


def lake(world: World) -> list[str]:
    return sorted(path.name for path in (world.root / "lake").iterdir())


@pytest.mark.parametrize("sink", SINKS)
def test_a_table_goes_with_its_output_and_a_new_one_has_all_rows(world: World, sink: Any) -> None:
    make = of(sink)
    before = rows(make(grown(world, sink)), "late")
    done = tg.drop(make(world), "late", table=True, env=world.env())
    assert (done.table, done.running, lake(world)) == (True, "", ["a"])
    run = begin(world, make)
    run.catch_up()
    run.abandon()
    assert rows(make(world), "late") == before


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("instant", ["before rename", "after rename", "half removed", "removed"])
def test_what_a_crash_cuts_short_is_finished_by_the_command_given_again_or_by_the_next_run(
    world: World, sink: Any, instant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = of(sink)
    grown(world, sink)
    rename, rmtree = Path.rename, shutil.rmtree

    def renaming(place: Path, target: Path) -> Path:
        if instant == "before rename":
            raise Crash(instant)
        return rename(place, target)

    def removing(place: Path) -> None:
        if instant == "half removed":
            next(path for path in sorted(place.rglob("*")) if path.is_file()).unlink()
        if instant == "removed":
            rmtree(place)
        raise Crash(instant)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", renaming)
        patch.setattr(shutil, "rmtree", removing)
        with pytest.raises(Crash):
            tg.drop(make(world), "late", table=True, env=world.env())
    world.clock.seconds += 1000
    assert world.loaded().decisions.drops == {"late": True}
    run = begin(world, make)
    run.catch_up()
    run.abandon()
    assert rows(make(world), "late") == rows(make(world), "a")
    assert lake(world) == ["a", "late"]
    tg.drop(make(world), "late", table=True, env=world.env())
    assert lake(world) == ["a"]


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("foreign", ["notes.txt", "_staged.txt", "from_epoch=7/notes.txt", "inner/_delta_log/0.json"])
def test_a_folder_with_files_of_others_is_refused(world: World, sink: Any, foreign: str) -> None:
    make = of(sink)
    path = grown(world, sink).root / "lake" / "late" / foreign
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    with pytest.raises(tg.TidegaugeError):
        tg.drop(make(world), "late", table=True, env=world.env())
    assert not world.loaded().decisions.paused, "nothing is decided"
    assert path.read_text() == "mine"
    top = world.root / "lake" / "late" / Path(foreign).parts[0]
    if top.is_dir():
        shutil.rmtree(top)
    else:
        top.unlink()
    assert len(rows(make(world), "late")) == 3


@pytest.mark.parametrize("sink", SINKS)
def test_no_link_is_followed(world: World, sink: Any) -> None:
    make = of(sink)
    table = grown(world, sink).root / "lake" / "late"
    precious = world.root / "precious"
    precious.mkdir()
    (precious / "part-0.parquet").write_text("mine")
    inside = table / ("_delta_log/linked" if sink is tg.DeltaSink else "_staged/linked")
    inside.symlink_to(precious)
    with pytest.raises(TableNotRemovable, match="no files of it"):
        tg.drop(make(world), "late", table=True, env=world.env())
    inside.unlink()
    table.rename(world.root / "elsewhere")
    table.symlink_to(world.root / "elsewhere")
    with pytest.raises(TableNotRemovable, match="symbolic link"):
        tg.drop(make(world), "late", table=True, env=world.env())
    assert len(rows(make(world), "late")) == 3
    assert (precious / "part-0.parquet").read_text() == "mine"


def test_a_link_in_the_place_that_a_table_is_moved_to_is_not_followed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = of(tg.ParquetSink)
    grown(world, tg.ParquetSink)
    precious = world.root / "precious"
    precious.mkdir()
    (precious / "part-0.parquet").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda _place: (_ for _ in ()).throw(Crash()))
        with pytest.raises(Crash):
            tg.drop(make(world), "late", table=True, env=world.env())
    world.clock.seconds += 1000
    [away] = [path for path in (world.root / "lake").iterdir() if path.name.startswith("_removed-late-")]
    shutil.rmtree(away)
    away.symlink_to(precious)
    with pytest.raises(OSError, match="symbolic link"):
        tg.drop(make(world), "late", table=True, env=world.env())
    assert (precious / "part-0.parquet").read_text() == "mine"


def test_data_of_others_in_the_place_of_a_table_without_a_commit_is_refused(world: World) -> None:
    make = of(tg.DeltaSink)
    begin(world, alone).abandon()
    place = world.root / "lake" / "late"
    place.mkdir(parents=True)
    (place / "part-00000-1b9d.c000.snappy.parquet").write_text("mine")
    with pytest.raises(TableNotRemovable):
        tg.drop(make(world), "late", table=True, env=world.env())
    assert (place / "part-00000-1b9d.c000.snappy.parquet").read_text() == "mine"


def test_the_table_of_another_store_is_refused(world: World) -> None:
    make = of(tg.ParquetSink)
    grown(world, tg.ParquetSink)
    shutil.move(world.root / "flow.db", world.root / "kept.db")
    for path in world.root.glob("flow.db*"):
        path.unlink()
    store = World(world.root, alone)
    store.env().unique(), store.env().unique(), store.env().unique()  # so its incarnation is another one
    shutil.move(world.root / "lake" / "a", world.root / "lake" / "other")
    begin(store, alone).abandon()
    with pytest.raises(tg.TidegaugeError):
        tg.drop(make(world), "late", table=True, env=world.env())
    assert list((world.root / "lake" / "late").rglob("*.parquet"))


def test_a_topic_is_never_deleted(world: World) -> None:
    make = of(lambda _path: tg.KafkaSink("127.0.0.1:1", topic="late"))
    begin(world, alone).abandon()
    with pytest.raises(TableNotRemovable, match="KafkaSink keeps what it was given"):
        tg.drop(make(world), "late", table=True, env=world.env())


def test_a_driver_that_cannot_remove_a_table_at_first_tries_again(world: World) -> None:
    make = of(tg.ParquetSink)
    grown(world, tg.ParquetSink)
    place = world.root / "lake" / "late"
    run = begin(world, make)
    run.catch_up()
    tg.drop(make(world), "late", table=True, env=world.env())
    place.rename(world.root / "elsewhere")
    place.symlink_to(world.root / "elsewhere")
    run.runner.lease.renew()
    run.catch_up()
    assert run.runner.board.outputs["late"].paused == ("drop table",)
    place.unlink()
    (world.root / "elsewhere").rename(place)
    add(world, 3)
    run.catch_up()
    assert set(run.runner.board.outputs) == {"a"}
    run.abandon()
    assert lake(world) == ["a"]
    assert not world.loaded().decisions.paused
