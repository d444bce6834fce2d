"""An upstream of the tests' own, which can be recreated: a folder with its identity and a file for each partition."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import PARTITIONS, FromTime
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.protocol import OnBadRecord, Split

SCHEMA = pa.schema([("n", pa.int64())])


@dataclass(frozen=True)
class Piece:
    """A split."""

    epoch: int
    partition: str
    lower: int
    upper: int
    weight: int = 1


def _as_it_is(probe: Observation, _bound: Bound) -> Observation:
    return probe


@dataclass(frozen=True)
class Topic:
    """Numbers in partitions. `says` may change what it says of itself. `unit`: see `Source.unit`."""

    folder: Path
    says: Callable[[Observation, Bound], Observation] = _as_it_is
    from_time: FromTime = PARTITIONS
    unit: str = "records"

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "topic"}

    def create(self, identity: str) -> None:
        """Make it anew, empty."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "identity").write_text(identity)

    def write(self, partition: str, *numbers: int) -> None:
        with (self.folder / f"{partition}.numbers").open("a") as file:
            file.writelines(f"{number}\n" for number in numbers)

    def identity(self) -> str:
        return (self.folder / "identity").read_text()

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        ends = Frontier({p.stem: len(p.read_text().split()) for p in self.folder.glob("*.numbers")})
        upper = ends if bound.identity in ("", self.identity()) else bound.frontier.join(ends)
        return self.says(Observation(at=now, upper=upper, end=ends, identity=self.identity()), bound)

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        if bound.identity != self.identity():
            raise UpstreamRecreated(source=slices[0].source, known=bound.identity, found=self.identity())
        return [Piece(piece.epoch, piece.partition, piece.lower, piece.upper) for piece in slices]

    def read(self, split: Piece, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        numbers = (self.folder / f"{split.partition}.numbers").read_text().split()[split.lower : split.upper]
        yield pa.record_batch({"n": pa.array([int(n) for n in numbers], pa.int64())})

    def acknowledge(self, frontier: Frontier) -> None:
        """Do nothing."""
