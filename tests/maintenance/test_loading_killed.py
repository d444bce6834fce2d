"""Loads whose processes are killed, and drivers beside them: all rows of a load are there once, or none."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.forked import end_of
from tests.maintenance import loaders
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.loads import LoadedAlready
from tidegauge.sources.batches.loading import staging

POINTS = [
    f"{side} {effect}"
    for effect in ("append bindings", "stage", "commit output", "publish")
    for side in ("before", "after")
]


def begin(root: Path) -> tg.Dataflow:
    """Make a world with three files, and one row live."""
    for folder in ("in", "live"):
        (root / folder).mkdir(parents=True)
    (root / "live" / "a.jsonl").write_text('{"id": 0}\n')
    for n in (1, 2, 3):
        pq.write_table(pa.table({"id": [n, n + 10], "name": ["a", "b"]}), root / "in" / f"{n}.parquet")
    return loaders.shop(root)


def loaded(flow: tg.Dataflow) -> list[tuple[int, int]]:
    """Run the flow, and return each number of the load with its epoch."""
    flow.run("caught-up", engine="local")
    found = sorted((row["id"], row["_epoch"]) for row in tg.read_arrow(flow, "orders").to_pylist())
    assert found.pop(0) == (0, 0)
    return found


def check_all_or_nothing(root: Path, *, run_first: bool) -> str:
    """Load again, after a load was killed; return whether that one had come to its end."""
    flow = loaders.shop(root)
    numbers = [1, 2, 3, 11, 12, 13]
    if run_first:
        assert [n for n, _ in loaded(flow)] in ([], numbers)
    try:
        tg.load(flow, "orders", root / "in" / "*.parquet")
        before = "nothing"
    except LoadedAlready:
        before = "all"
    found = loaded(flow)
    assert [n for n, _ in found] == numbers
    assert len({epoch for _, epoch in found}) == 1
    assert [path.name for path in (root / "loads" / "_loads").iterdir()] == ["lock"], "what is abandoned is removed"
    return before


def test_a_load_that_is_killed_before_its_rename_is_nothing_and_after_it_all(tmp_path: Path) -> None:
    seen = []
    for nth in range(9):
        root = tmp_path / str(nth)
        begin(root)
        end = end_of(loaders.load, root, nth, frozenset({"os.rename", "os.rmdir"}))
        if end == 0:
            break
        assert end == -signal.SIGKILL
        seen.append(check_all_or_nothing(root, run_first=bool(nth % 2)))
    assert seen == sorted(seen, reverse=True), seen
    assert set(seen) == {"nothing", "all"}


@pytest.mark.long
def test_a_load_is_all_or_nothing_wherever_it_is_killed(tmp_path: Path) -> None:
    seen = []
    for nth in range(999):
        root = tmp_path / str(nth)
        begin(root)
        if end_of(loaders.load, root, nth) == 0:
            break
        seen.append(check_all_or_nothing(root, run_first=bool(nth % 2)))
    assert seen == sorted(seen, reverse=True), seen
    assert set(seen) == {"nothing", "all"}
    assert len(seen) > 20


@pytest.mark.parametrize("point", POINTS)
def test_a_load_is_in_one_epoch_wherever_the_driver_is_killed(tmp_path: Path, point: str) -> None:
    flow = begin(tmp_path)
    assert loaded(flow) == []
    tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    assert end_of(loaders.drive, tmp_path, point) == -signal.SIGKILL
    assert loaded(flow) == [(n, 1) for n in (1, 2, 3, 11, 12, 13)]


def test_a_load_that_goes_on_for_long_is_not_swept_away_by_others(tmp_path: Path) -> None:
    flow = begin(tmp_path)
    begun, go = threading.Event(), threading.Event()

    class Slow(tg.LocalEngine):
        def work(self, tasks: Any) -> Any:
            done = super().work(tasks)
            begun.set()
            assert go.wait(60)
            return done

    made: list[tg.Load] = []
    slow = threading.Thread(
        target=lambda: made.append(tg.load(flow, "orders", tmp_path / "in" / "[12].parquet", engine=Slow()))
    )
    slow.start()
    try:
        assert begun.wait(60)
        for second in ("3", "4"):
            os.utime(next((tmp_path / "loads" / "_loads").glob("*/")), (0, 0))  # its age says nothing
            pq.write_table(pa.table({"id": [30]}), tmp_path / "in" / "4.parquet")
            tg.load(flow, "orders", tmp_path / "in" / f"{second}.parquet")
    finally:
        go.set()
        slow.join()
    assert [one.rows for one in made] == [4]
    assert [n for n, _ in loaded(flow)] == [1, 2, 3, 11, 12, 13, 30]


def test_maintenance_removes_what_a_killed_load_has_staged_and_not_what_another_one_stages(tmp_path: Path) -> None:
    flow = begin(tmp_path)
    assert loaded(flow) == []
    with staging(tmp_path / "loads") as running:
        assert end_of(loaders.load, tmp_path, 0, frozenset({"os.rename"})) == -signal.SIGKILL
        assert len(list((tmp_path / "loads" / "_loads").glob("*/"))) == 2
        tg.maintain(flow, dry_run=True)
        assert len(list((tmp_path / "loads" / "_loads").glob("*/"))) == 2
        tg.maintain(flow)
        assert list((tmp_path / "loads" / "_loads").glob("*/")) == [running]


def test_a_driver_that_runs_takes_loads_as_they_come(tmp_path: Path) -> None:
    flow = begin(tmp_path)
    driver = flow.start(engine="local")
    try:
        eventually(lambda: tg.epochs(flow))
        for n in (3, 1, 2):
            done = tg.load(flow, "orders", tmp_path / "in" / f"{n}.parquet")
            tg.wait_for(flow, done.positions, timeout=30)
            found = {row["id"]: row["_epoch"] for row in tg.read_arrow(flow, "orders").to_pylist()}
            assert found[n] == found[n + 10] == max(found.values())
    finally:
        driver.stop()
