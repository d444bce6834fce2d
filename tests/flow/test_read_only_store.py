"""A store on a disk, or in a folder, that may only be read: a flow can be looked at, and cannot be run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tidegauge as tg
from tidegauge.errors.store import StoreNotWritable


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Makes a folder one that can only be read: root is stopped by nothing but a mount, and others cannot mount."""
    locked: list[Path] = []

    def make_read_only(folder: Path) -> None:
        locked.append(folder)
        if os.geteuid():
            folder.chmod(0o555)
            return
        for options in (["--bind"], ["-o", "remount,ro,bind"]):
            if subprocess.run(["mount", *options, folder, folder], capture_output=True, check=False).returncode:
                pytest.skip("nothing can be mounted here")

    yield make_read_only
    for folder in locked:
        folder.chmod(0o755) if os.geteuid() else subprocess.run(["umount", folder], check=False)


def shop(root: Path) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/state/shop.db")
    orders = flow.source("orders", tg.FileSource(f"{root}/in/*.csv", format=tg.Csv("id long")))
    flow.sink("orders", orders, tg.DeltaSink(f"{root}/lake"))
    return flow


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_a_flow_whose_store_may_only_be_read_can_be_looked_at(
    lock: Callable[[Path], None], tmp_path: Path, killed: bool
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id\n1\n2\n")
    state, flow = tmp_path / "state", shop(tmp_path)

    def leave(point: str) -> None:
        if killed and point == "before release lease":  # what a driver that dies now leaves
            shutil.copytree(state, tmp_path / "left")

    flow.run("caught-up", engine=tg.LocalEngine(threads=1), env=tg.Env(point=leave))
    if killed:
        shutil.rmtree(state)
        (tmp_path / "left").rename(state)
    before = {found.name: found.read_bytes() for found in state.iterdir()}
    assert bool(before.get("shop.db-wal")) == killed
    lock(state)
    report = tg.status(flow)
    assert (report.published, report.outputs[0].rows, report.store) == (1, 2, f"sqlite:///{state}/shop.db")
    assert [record.epoch for record, _ in tg.epochs(flow)] == [0]
    assert tg.explain(flow, 0).rows == {"orders": 2}
    assert tg.read_arrow(flow, "orders").column("id").to_pylist() == [1, 2]
    with pytest.raises(StoreNotWritable):
        flow.run("caught-up", engine=tg.LocalEngine(threads=1))
    assert {found.name: found.read_bytes() for found in state.iterdir()} == before
