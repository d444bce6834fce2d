"""A disk that is full holds up the output on it alone, for as long as it is full."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.env import at_once
from tidegauge.flow.board import Board
from tidegauge.flow.runner import Runner
from tidegauge.sinks.protocol import OutputId


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of half a megabyte. Only for who may mount."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


class Shop:
    """A flow with a table on the small disk and one beside it, and a thread that runs it."""

    def __init__(self, root: Path, sink: Callable[[str], tg.DeltaSink | tg.ParquetSink]) -> None:
        self.root = root
        self.flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db", tick=0.02)
        orders = self.flow.source("orders", tg.FileSource(f"{root}/in/*.csv", format=tg.Csv("id long")))
        self.flow.sink("tight", orders, sink(f"{root}/small/tight"))
        self.flow.sink("roomy", orders, sink(f"{root}/roomy"))
        self.board: Board | None = None
        (root / "in").mkdir()

    def add(self, order: int) -> None:
        made = self.root / f"{order}.csv"
        made.write_text(f"id\n{order}\n")
        made.rename(self.root / "in" / made.name)

    def watch(self, board: Board) -> None:
        self.board = board

    def state(self, output: str) -> str:
        return "" if self.board is None else self.board.outputs[output].state

    def upper(self, output: str) -> int:
        return 0 if self.board is None else self.board.outputs[output].upper

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the flow beside the block, until all that is upstream is in the tables."""
        ended: list[BaseException | None] = []

        def run() -> None:
            try:
                self.flow.run("caught-up", engine=tg.LocalEngine(threads=2), watch=self.watch)
                ended.append(None)
            except BaseException as error:
                ended.append(error)
                raise

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            fullness = self.root / "small" / "ballast"
            fullness.unlink(missing_ok=True)  # or it would wait for ever after a test that failed
            thread.join(timeout=120)
        assert ended == [None]


@dataclass(frozen=True)
class FullAtLast:
    """A sink whose disk is full whenever something is to be committed."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open(self, output: OutputId) -> Any:
        return FullTable(self.inner.open(output))


@dataclass(frozen=True)
class FullTable:
    inner: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def commit(self, *_given: Any, **_named: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as out:
        while out.write(bytes(4096)):
            pass
    return ballast


@pytest.mark.parametrize("sink", [tg.ParquetSink, tg.DeltaSink])
def test_a_full_disk_holds_up_its_own_output_until_there_is_room_and_nothing_is_lost(
    small: Path, tmp_path: Path, sink: Callable[[str], tg.DeltaSink | tg.ParquetSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("job.groups", "flow.render"):  # so that it is tried more often than it would be counted
        monkeypatch.setattr(f"tidegauge.{module}.backoff", lambda _attempt: 0.02)
    shop = Shop(tmp_path, sink)
    shop.add(1)
    with shop.running():
        pass
    ballast = fill(small)
    shop.add(2)
    with shop.running():
        eventually(lambda: shop.upper("roomy") == 2)
        eventually(lambda: shop.state("tight") == "stalled")
        assert shop.board is not None
        tight = shop.board.outputs["tight"]
        eventually(lambda: tight.attempt > 10, within=60)
        assert (tight.upper, shop.state("roomy")) == (1, "live")
        assert "No space left" in str(tight.error)
        report = {o.name: (o.upper, o.lag) for o in tg.status(shop.flow).outputs}
        assert report == {"tight": (1, 1), "roomy": (2, 0)}, "behind what is bound, though nothing is published since"
        ballast.unlink()
    for output in ("tight", "roomy"):
        assert sorted(tg.read_arrow(shop.flow, output).column("id").to_pylist()) == [1, 2]


def test_a_run_that_is_stopped_does_not_wait_for_a_table_that_cannot_be_committed_to(tmp_path: Path) -> None:
    shop = Shop(tmp_path, lambda path: FullAtLast(tg.ParquetSink(path)))  # type: ignore[arg-type,return-value]
    shop.add(1)
    runner = Runner(shop.flow.spec, tg.LocalEngine(threads=0), env=tg.Env(), spawn=at_once)
    try:
        while {output.state for output in runner.board.outputs.values()} != {"stalled"}:
            runner.step()
        runner.stop()
        assert runner.run(None).why == "stopped"
    finally:
        runner.close()
