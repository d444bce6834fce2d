"""A bench for `check_source`: a source of bytewax whose partition grows."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.sources.benches import START
from tests.sources.bytewax.connectors import Numbers, until

from tidegauge.env import Env, at_once
from tidegauge.remap.binding import Bound
from tidegauge.sources import BytewaxSource

__all__ = ["BytewaxBench"]


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
