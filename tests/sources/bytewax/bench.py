"""Benches for `check_source`: a source of bytewax whose partition grows, and a log that a dataflow writes."""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from tests.sources.benches import START
from tests.sources.bytewax.connectors import Numbers, until

from tidegauge.env import Env, at_once
from tidegauge.remap.binding import Bound
from tidegauge.sources import BytewaxLogSource, BytewaxSource
from tidegauge.sources.bytewax.log import LogWriter, begin
from tidegauge.testing.simulation.upstream.recovery import WrittenRecovery

__all__ = ["BytewaxBench", "BytewaxLogBench"]


@dataclass
class BytewaxBench:
    """A source of bytewax with one partition that grows, and the poller of a run, which stages what it gives."""

    folder: Path
    source: BytewaxSource = field(init=False)
    rows: list[dict[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        theirs = Numbers({"a": self.rows}, size=50_000)
        folder = self.folder / "staged"
        self.source = BytewaxSource(theirs, columns="n long", staging=folder).placed("shop", "orders")
        self._begin()

    def _begin(self) -> None:
        self.poller = self.source.attended(Env(), beside=at_once)

    def _poll(self) -> None:
        def all_staged() -> bool:
            self.poller.probe(Bound(), now=START)
            manifests = (self.folder / "staged").rglob("0*.json")
            staged = [json.loads(path.read_text().splitlines()[0])["file"][2] for path in manifests]
            return sum(map(int, staged)) == len(self.rows)

        until(all_staged)

    def add(self, count: int) -> list[dict[str, int]]:
        taken = [{"n": n} for n in range(len(self.rows), len(self.rows) + count)]
        self.rows += taken
        self._poll()
        return taken

    def lose(self) -> None:
        for path in self.folder.rglob("000000000000*"):
            path.unlink()

    def recreate(self) -> None:
        self.poller.close()
        shutil.rmtree(self.folder / "staged")
        self.rows[:] = [{"n": row["n"] + 1_000} for row in self.rows]
        self._begin()
        self._poll()

    def leave(self) -> None:
        (self.folder / "staged").rename(self.folder / "away")

    def come_back(self) -> None:
        (self.folder / "away").rename(self.folder / "staged")


@dataclass
class BytewaxLogBench:
    """A log of two partitions, which have an epoch of bytewax in turn, and what publishes it in a run."""

    folder: Path
    source: BytewaxLogSource = field(init=False)
    epoch: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """A new dataflow begins, with a new recovery store."""
        recovery = self.folder / f"recovery-{uuid.uuid4().hex}"
        self.source = BytewaxLogSource(self.folder / "log", recovery=recovery, columns="n long")
        self.recovery, self.epoch = WrittenRecovery(recovery), 0
        self.recovery.execution(0, workers=1, resume=1)
        self.writers = [self._writer(f"part-{n}") for n in range(2)]

    def _writer(self, part: str) -> LogWriter:
        return begin(self.folder / "log" / part, "theirs.out", None)

    def add(self, count: int) -> list[dict[str, int]]:
        taken = range(self.rows, self.rows + count)
        self.rows += count
        self._write(taken)
        return [{"n": n} for n in taken]

    def _write(self, taken: range) -> None:
        writer = self.writers[self.epoch % 2]
        self.epoch += 1
        writer.write(pa.table({"n": pa.array(taken, pa.int64())}))
        self.recovery.snap("theirs.out", writer.folder.name, self.epoch, writer.seal().text)
        self.recovery.front(0, worker=0, frontier=self.epoch + 1)
        self.source.attended(Env(), beside=at_once).probe(Bound(), now=START)

    def lose(self) -> None:
        path = min((self.folder / "log").glob("*/0*.json"))
        path.unlink()
        shutil.rmtree(path.with_suffix(""))

    def recreate(self) -> None:
        shutil.rmtree(self.folder / "log")
        epochs, rows = self.epoch, self.rows
        self._begin()
        for _ in range(epochs):
            self._write(range(1_000, 1_000 + rows))

    def leave(self) -> None:
        (self.folder / "log").rename(self.folder / "away")

    def come_back(self) -> None:
        (self.folder / "away").rename(self.folder / "log")
