"""A dataflow of bytewax into a flow: every row once, whenever either dies; and stores that do not belong together."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from bytewax.recovery import init_db_dir
from tests.bytewax.theirs import COLUMNS
from tests.flow.by_hand import World
from tests.sources.bytewax.connectors import until

import tidegauge as tg
from tidegauge.bytewax import LogSink
from tidegauge.errors.bytewax import LogItemUnfit
from tidegauge.sources.batches.manifest import batches_in
from tidegauge.sources.bytewax.log import begin

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Both:
    """A dataflow and a flow that reads what it writes. run: how it is run; shares: files of the recovery store."""

    root: Path
    run: tuple[str, ...] = ("bytewax.run",)
    shares: int = 1
    numbers: int = 120
    world: World = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "world", World(self.root, lambda _: self.flow()))
        self.root.mkdir(exist_ok=True)
        self.recovery.mkdir()
        init_db_dir(self.recovery, self.shares)  # type: ignore[no-untyped-call]

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def recovery(self) -> Path:
        return self.root / "recovery"

    def flow(self) -> tg.Dataflow:
        flow = tg.Dataflow("ours", store=self.world.store, tick=0.3)
        source = tg.BytewaxLogSource(self.log, recovery=self.recovery, columns=COLUMNS)
        flow.sink("rows", flow.source("rows", source), tg.ParquetSink(str(self.root / "rows")))
        return flow

    def catch_up(self) -> None:
        run = self.world.start()
        run.catch_up()
        run.abandon()
        self.world.clock.seconds += 60

    def rows(self) -> list[tuple[str, int, int]]:
        found = tg.read_arrow(self.flow(), "rows").to_pylist()
        return sorted((row["part"], row["n"], row["total"]) for row in found)

    @property
    def wanted(self) -> list[tuple[str, int, int]]:
        return [(f"p{part}", n, n * (n + 1) // 2) for part in range(3) for n in range(self.numbers)]

    def pieces(self) -> int:
        """How many there are, sealed or published."""
        folders = [self.log / f"part-{number}" for number in range(2)]
        return sum(max([-1, *batches_in(folder), *batches_in(folder / "_sealed")]) + 1 for folder in folders)

    @contextmanager
    def dataflow(self) -> Iterator[subprocess.Popen[str]]:
        told = {**os.environ, "LOG": str(self.log), "NUMBERS": str(self.numbers), "PYTHONPATH": str(ROOT)}
        asked = ["-m", *self.run, "tests.bytewax.theirs:dataflow", "-r", str(self.recovery), "-s", "0", "-b", "0"]
        process = subprocess.Popen(
            [sys.executable, *asked], cwd=ROOT, env=told, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def complete(self) -> None:
        """Run the dataflow to its end."""
        with self.dataflow() as process:
            _, told = process.communicate(timeout=300)
            assert process.returncode == 0, told[-2000:]

    def refused(self) -> str:
        """Return what a dataflow says that does not begin."""
        with self.dataflow() as process:
            _, told = process.communicate(timeout=300)
            assert process.returncode != 0
            return told

    def killed_after(self, pieces: int) -> bool:
        """Kill the dataflow once it has sealed so many more pieces; whether it still lived."""
        aim = self.pieces() + pieces
        with self.dataflow() as process:
            until(lambda: self.pieces() >= aim or process.poll() is not None, tries=30_000)
            return process.poll() is None


@pytest.mark.parametrize(
    ("run", "shares"),
    [
        (("bytewax.run",), 1),
        (("bytewax.run", "-w", "2"), 3),
        pytest.param(("bytewax.testing", "-p", "2"), 2, marks=pytest.mark.long),
    ],
    ids=["one worker", "two workers", "two processes"],
)
def test_a_dataflow_that_is_killed_anywhere_gives_the_flow_every_row_once(
    tmp_path: Path, run: tuple[str, ...], shares: int
) -> None:
    chance = random.Random(shares)
    both = Both(tmp_path / "it", run, shares)
    died = 0
    for _ in range(4):
        died += both.killed_after(chance.randint(1, 15))
        if chance.random() < 0.6:
            both.catch_up()
    both.complete()
    both.catch_up()
    assert both.rows() == both.wanted
    assert died >= 2


@pytest.fixture
def half(tmp_path: Path) -> Both:
    """A dataflow that was killed half way, and a flow that has what it could not take back."""
    both = Both(tmp_path / "it")
    assert both.killed_after(12)
    both.catch_up()
    assert 0 < len(both.rows()) < len(both.wanted)
    return both


def test_an_older_recovery_store_is_refused_on_both_sides_until_the_newest_is_back(half: Both) -> None:
    shutil.copytree(half.recovery, half.root / "older")
    assert half.killed_after(5)
    half.catch_up()
    before = half.rows()
    half.recovery.rename(half.root / "newest")
    (half.root / "older").rename(half.recovery)
    assert "TG-0987" in half.refused()
    assert stalled(half) == "TG-0987"
    assert half.rows() == before
    shutil.rmtree(half.recovery)
    (half.root / "newest").rename(half.recovery)
    half.complete()
    half.catch_up()
    assert half.rows() == half.wanted


def test_a_new_recovery_store_is_refused_where_the_flow_has_rows(half: Both) -> None:
    shutil.rmtree(half.recovery)
    assert stalled(half) == "TG-0989"
    half.recovery.mkdir()
    init_db_dir(half.recovery, 1)  # type: ignore[no-untyped-call]
    assert "TG-0987" in half.refused()
    assert stalled(half) == "TG-0987"


def test_an_older_log_is_refused_until_the_newest_is_back(half: Both) -> None:
    shutil.copytree(half.log, half.root / "older")
    assert half.killed_after(5)
    half.log.rename(half.root / "newest")
    (half.root / "older").rename(half.log)
    assert "TG-0988" in half.refused()
    assert stalled(half) == "TG-0988"
    shutil.rmtree(half.log)
    (half.root / "newest").rename(half.log)
    half.complete()
    half.catch_up()
    assert half.rows() == half.wanted


def test_a_log_that_is_gone_is_refused(half: Both) -> None:
    shutil.rmtree(half.log)
    assert "TG-0988" in half.refused()


def test_a_log_and_a_recovery_store_of_one_older_moment_do_not_go_on_below_the_tables(half: Both) -> None:
    for name in ("log", "recovery"):
        shutil.copytree(half.root / name, half.root / f"{name}-older")
    assert half.killed_after(5)
    half.catch_up()
    before = half.rows()
    for name in ("log", "recovery"):
        shutil.rmtree(half.root / name)
        (half.root / f"{name}-older").rename(half.root / name)
    half.complete()
    assert stalled(half) == "TG-0685"
    assert half.rows() == before


def stalled(both: Both) -> str:
    """Return the code of the error that the source shows in a run."""
    run = both.world.start()
    board = run.runner.board.sources["rows"]
    for _ in range(20):
        run.step()
    run.abandon()
    both.world.clock.seconds += 60
    assert board.error is not None
    return board.error.code


def test_without_a_recovery_store_nothing_is_bound(tmp_path: Path) -> None:
    both = Both(tmp_path / "it")
    writer = begin(both.log / "part-0", "theirs.out", None)
    writer.write(pa.table({"part": ["p0"], "n": [0], "total": [0]}))
    writer.seal()
    both.catch_up()
    [source] = tg.status(both.flow()).sources
    assert source.note == "1 pieces wait until bytewax's recovery store has them"


def test_an_item_that_is_no_row_ends_the_dataflow_by_name(tmp_path: Path) -> None:
    part = LogSink(tmp_path, columns="n long").build_part("theirs.out", "part-0", None)
    for item in (7, {"n": "seven"}, {"m": 1}):
        with pytest.raises(LogItemUnfit, match="TG-0991"):
            part.write_batch([item])
    assert part.snapshot().endswith(":0:")
