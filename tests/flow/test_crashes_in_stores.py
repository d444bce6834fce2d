"""Flows whose tables are in an object store: a driver dies at each of its named points; a table moves there."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.flow.badinput import LINE, lines, write
from tests.flow.by_hand import Crash, World
from tests.s3 import Lake

import tidegauge as tg
from tidegauge.objects.path import ObjectPath
from tidegauge.remap.store import EXPIRY

pytestmark = pytest.mark.long


def made(root: Path, lake: Lake, name: str) -> World:
    root.mkdir()

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = flow.source("orders", tg.FileSource(f"{world.root}/in/*", format=tg.Json(LINE)))
        flow.sink("all", orders, tg.DeltaSink(lake.at(f"{name}/all")))
        flow.sink("last", orders, tg.DeltaSink(lake.at(f"{name}/last"), envelope="upsert", key="text"))
        return flow

    return World(root, make)


def lived(world: World) -> None:
    """One life: three epochs, and it is caught up."""
    run = world.start()
    try:
        while (count := len(list((world.root / "in").glob("*")))) < 3:
            write(world.root / "in" / f"{count}.jsonl", lines(count))
            run.catch_up()
        run.catch_up()
    finally:
        run.abandon()


@pytest.mark.parametrize("share", range(4))
def test_each_row_is_there_once_wherever_a_driver_dies(tmp_path: Path, lake: Lake, share: int) -> None:
    whole = made(tmp_path / "whole", lake, "whole")
    lived(whole)
    assert len(whole.points) > 20
    for at in range(share, len(whole.points), 4):
        world = made(tmp_path / str(at), lake, str(at))
        world.crash_at = at
        with suppress(Crash):
            lived(world)
        world.crash_at = None
        world.clock.seconds += EXPIRY + 1
        lived(world)
        for name in ("all", "last"):
            found = DeltaTable(lake.at(f"{at}/{name}")).to_pyarrow_table().to_pylist()
            assert sorted(row["n"] for row in found) == [0, 1, 2], (world.points[at], name)


@pytest.mark.parametrize("copied", [False, True])
def test_a_flow_moves_to_a_store_by_its_paths_alone(tmp_path: Path, lake: Lake, copied: bool) -> None:
    lakes = {"at": f"{tmp_path}/lake"}

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = flow.source("orders", tg.FileSource(f"{world.root}/in/*", format=tg.Json(LINE)))
        flow.sink("all", orders, tg.DeltaSink(f"{lakes['at']}/all"))
        return flow

    world = World(tmp_path, make)
    for count in range(4):
        if count == 2:
            for path in (path for path in (tmp_path / "lake").rglob("*") if path.is_file() and copied):
                ObjectPath.of(lake.at(str(path.relative_to(tmp_path / "lake")))).put(path.read_bytes())
            lakes["at"] = f"s3://{lake.bucket}"
        run = world.start()
        write(world.root / "in" / f"{count}.jsonl", lines(count))
        run.catch_up()
        run.abandon()
        world.clock.seconds += EXPIRY + 1
    found = DeltaTable(lake.at("all")).to_pyarrow_table().to_pylist()
    assert sorted(row["n"] for row in found) == [0, 1, 2, 3]
