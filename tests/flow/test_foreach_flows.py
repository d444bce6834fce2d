"""Flows that give epochs to a function: what becomes of the others, of a crash, and of stores that are put back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.flow.foreach_driver import INSIDE, make
from tests.sinks.recipe import rows_of
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.foreach import EpochFunctionFailed
from tidegauge.errors.history import StoreBehindTable
from tidegauge.errors.sinks import TableWentBack
from tidegauge.flow.runner import Runner
from tidegauge.flow.running import run


@dataclass
class Shop:
    """A flow with a function, `mails`, and perhaps a table, `lake`."""

    root: Path
    lake: bool = True
    fails: Callable[[tg.EpochAttempt], None] = lambda _attempt: None
    given: list[tuple[int, list[int]]] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)

    def put(self, *ids: int) -> None:
        """Let a file of orders come."""
        (self.root / "in").mkdir(exist_ok=True)
        text = "".join(json.dumps({"id": n}) + "\n" for n in ids)
        (self.root / "in" / f"{min(ids)}.jsonl").write_text(text)

    def call(self, rows: pa.RecordBatchReader, attempt: tg.EpochAttempt) -> None:
        self.calls.append(attempt.epoch)
        self.fails(attempt)
        self.given.append((attempt.epoch, sorted(rows.read_all()["id"].to_pylist())))

    @property
    def flow(self) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{self.root}/flow.db", tick=0.02)
        orders = flow.source("orders", tg.FileSource(f"{self.root}/in/*.jsonl", format=tg.Json("id long")))
        if self.lake:
            flow.sink("lake", orders, tg.ParquetSink(f"{self.root}/lake"))
        flow.sink("mails", orders, tg.ForeachEpochSink(self.call, f"{self.root}/mails"))
        return flow

    def finish(self) -> None:
        """Run until all is where it can be."""
        self.flow.run("caught-up", engine="local")

    def states(self) -> dict[str, str]:
        return {output.name: output.state for output in tg.status(self.flow).outputs}


def test_a_function_that_raises_fails_its_output_alone_and_gets_the_epoch_again_with_the_next_run(
    tmp_path: Path,
) -> None:
    def fails(attempt: tg.EpochAttempt) -> None:
        if attempt.epoch == 1:
            raise ValueError("no address")

    shop = Shop(tmp_path, fails=fails)
    shop.put(0)
    shop.finish()
    for n in (1, 2):
        shop.put(n)
        with pytest.raises(EpochFunctionFailed):  # after the others have everything
            shop.finish()
    assert shop.states() == {"lake": "live", "mails": "failed"}
    [error] = [one.error for one in tg.status(shop.flow).outputs if one.name == "mails"]
    assert isinstance(error, EpochFunctionFailed)
    assert "ValueError: no address" in str(error)
    assert tg.read_arrow(shop.flow, "lake").num_rows == 3
    shop.fails = lambda _attempt: None
    shop.finish()
    assert shop.given == [(0, [0]), (1, [1]), (2, [2])]
    assert shop.states() == {"lake": "live", "mails": "live"}


def test_a_function_that_is_slow_holds_up_no_other_output(tmp_path: Path) -> None:
    inside, go = threading.Event(), threading.Event()

    def fails(_attempt: tg.EpochAttempt) -> None:
        inside.set()
        assert go.wait(60)

    shop, runners = Shop(tmp_path, fails=fails), list[Runner]()
    shop.put(0)

    def held() -> int:
        return sum(1 for path in (tmp_path / "lake").glob("from_epoch=*/part-*"))

    with ThreadPoolExecutor(1) as pool:
        life = pool.submit(
            lambda: run(
                shop.flow.spec,
                until=None,
                spark=None,
                engine="local",
                env=tg.Env(),
                watch=None,
                requests=shop.flow._requests,
                opened=runners.append,
            )
        )
        try:
            assert inside.wait(60)
            for n in (1, 2):
                shop.put(n)
                eventually(lambda n=n: held() > n)  # type: ignore[misc]
            assert (shop.calls, shop.given) == ([0], [])
        finally:
            go.set()
            eventually(lambda: len(shop.given) == 3 or life.done())
            runners[0].stop()
        life.result(60)
    assert [ids for _, ids in shop.given] == [[0], [1], [2]]


def test_an_older_store_is_refused_before_anything_is_called_and_recovered_from_how_far_the_function_is(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path, lake=False)
    shop.put(0)
    shop.finish()
    tg.backup(shop.flow, tmp_path / "backup.db")
    shop.put(1)
    shop.finish()
    for path in tmp_path.glob("flow.db*"):
        path.unlink()
    shutil.copy(tmp_path / "backup.db", tmp_path / "flow.db")
    with pytest.raises(StoreBehindTable):
        shop.finish()
    assert shop.calls == [0, 1]
    tg.recover(shop.flow)
    shop.put(2)
    shop.finish()
    assert shop.given == [(0, [0]), (1, [1]), (2, [2])]


def test_progress_that_is_gone_is_waited_for_until_somebody_wants_every_epoch_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.put(0)
    shop.finish()
    shutil.rmtree(tmp_path / "mails")
    with pytest.raises(TableWentBack):
        shop.finish()
    assert shop.calls == [0]
    tg.repair(shop.flow, "mails", from_epoch=0)
    shop.finish()
    assert shop.given == [(0, [0]), (0, [0])]


def test_an_older_progress_file_gets_the_epochs_since_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for n in range(3):
        shop.put(n)
        shop.finish()
        if n == 0:
            shutil.copytree(tmp_path / "mails", tmp_path / "older")
    shutil.rmtree(tmp_path / "mails")
    shutil.copytree(tmp_path / "older", tmp_path / "mails")
    shop.finish()
    assert shop.given == [(0, [0]), (1, [1]), (2, [2]), (1, [1]), (2, [2])]


def test_a_late_function_gets_the_past_epoch_by_epoch(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db", tick=0.02)
    orders = flow.source("orders", tg.FileSource(f"{tmp_path}/in/*.jsonl", format=tg.Json("id long")))
    flow.sink("lake", orders, tg.ParquetSink(f"{tmp_path}/lake"))
    for n in range(5):
        shop.put(n)
        flow.run("caught-up", engine="local")
    shop.finish()
    assert shop.given == [(n, [n]) for n in range(5)]


POINTS = [*INSIDE[::-1], "before commit output", "after commit output", "before publish", "after stage"]


@pytest.mark.long
def test_a_flow_whose_driver_is_killed_again_and_again_has_each_row_once_by_the_recipe(
    tmp_path: Path,
) -> None:
    (tmp_path / "in").mkdir()
    put = 0

    def live(point: str, nth: int) -> int:
        nonlocal put
        text = "".join(json.dumps({"id": put + n}) + "\n" for n in range(10))
        (tmp_path / "in" / f"{put}.jsonl").write_text(text)
        put += 10
        command = [sys.executable, "-m", "tests.flow.foreach_driver", str(tmp_path), point, str(nth)]
        return subprocess.run(command, check=False, cwd=Path(__file__).parents[2], timeout=120).returncode

    ended = [live(point, nth) for point in POINTS for nth in (0, 2)]
    assert -9 in ended[:2]
    assert set(ended) <= {-9, 0}
    assert ended.count(-9) > len(ended) // 2
    assert live("", 0) == 0

    def ids(rows: list[dict[str, Any]]) -> list[int]:
        return sorted(row["id"] for row in rows)

    table = tg.read_arrow(make(tmp_path), "lake")
    assert ids(table.to_pylist()) == list(range(put))
    keyed, naive = rows_of(tmp_path / "keyed.db"), rows_of(tmp_path / "naive.db")
    assert sorted((row["id"], row["_epoch"]) for row in keyed) == sorted(
        zip(table["id"].to_pylist(), table["_epoch"].to_pylist(), strict=True)
    )
    assert [row["_epoch"] for row in keyed] == sorted(row["_epoch"] for row in keyed)
    assert set(ids(naive)) == set(range(put))
    assert len(naive) > put
