"""A folder that is listed, as the kit for sources wants it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tidegauge.env import Env, at_once
from tidegauge.remap.binding import Bound
from tidegauge.sources import Json, ListingSource

__all__ = ["ListingBench"]

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class ListingBench:
    """A folder of files with one row each, and the attendant of a run, which lists it."""

    folder: Path
    source: ListingSource = field(init=False)
    number: int = 0
    clock: float = 0.0

    def __post_init__(self) -> None:
        self.inside = self.folder / "in"
        self.source = ListingSource(
            str(self.inside / "*.jsonl"),
            format=Json("n long"),
            staging=self.folder / "listings",
            settle=0,
            split_bytes=24,
        ).placed("shop", "orders")
        self._begin()

    def _begin(self) -> None:
        self.attendant = self.source.attended(Env(monotonic=lambda: self.clock), beside=at_once)

    def _list(self) -> None:
        self.clock += self.source.every
        self.attendant.probe(Bound(), now=START)

    def _write(self, name: str, line: bytes) -> None:
        self.inside.mkdir(exist_ok=True)
        (self.inside / f"{name}.jsonl").write_bytes(line)

    def add(self, count: int) -> list[dict[str, int]]:
        taken = range(self.number, self.number + count)
        self.number += count
        if count > 1000:  # a file of many rows, so that memory is told from the number of rows
            lines = b"".join(b'{"n": %d}\n' % n for n in taken)
            self._write(f"{taken.start:08}", lines)
        else:
            for n in taken:
                self._write(f"{n:08}", b'{"n": %d}\n' % n)
        self._list()
        return [{"n": n} for n in taken]

    def spoil(self) -> bytes:
        self.number += 1
        self._write(f"{self.number - 1:08}", b"surely not a number\n")
        self._list()
        return b"surely not a number\n"

    def lose(self) -> None:
        min(self.inside.iterdir()).unlink()

    def recreate(self) -> None:
        shutil.rmtree(self.folder / "listings")
        for path in self.inside.iterdir():
            path.write_bytes(b'{"n": 1%s}\n' % path.stem.encode())
        self._begin()
        self._list()

    def leave(self) -> None:
        self.inside.rename(self.folder / "away")
        (self.folder / "listings").rename(self.folder / "elsewhere")

    def come_back(self) -> None:
        (self.folder / "away").rename(self.inside)
        (self.folder / "elsewhere").rename(self.folder / "listings")
