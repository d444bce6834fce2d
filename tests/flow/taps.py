"""A push source of the tests' own: a log in memory that gives what it is told to give, and forgets what it may."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegauge.errors.push import StartForgotten
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.push.protocol import Received

COLUMNS = pa.schema([("n", pa.int64()), ("_partition", pa.string()), ("_offset", pa.int64())])


def _nobody(_frontier: Frontier) -> None:
    return None


@dataclass
class Well:
    """Upstream. records: of each partition, `(stream, n)`. cuts: how many records the next calls give of each
    partition; below 0 the connection breaks. starts: where connections began. tells: whether it tells its end.
    waits: for how many seconds calls might wait."""

    records: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    oldest: dict[str, int] = field(default_factory=dict)
    cuts: deque[int] = field(default_factory=deque)
    starts: list[Frontier] = field(default_factory=list)
    told: list[Frontier] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    witness: Callable[[Frontier], None] = _nobody
    identity: str = "well"
    tells: bool = True
    forgets: bool = True
    sealed: bool = False
    open: int = 0
    life: int = 0
    """How often it was restored."""

    @property
    def end(self) -> Frontier:
        return Frontier({partition: len(records) for partition, records in self.records.items()})

    def restore(self, end: Frontier) -> None:
        """Cut the log off, and its connections, as restoring an older backup does."""
        self.life += 1
        self.records = {partition: records[: end[partition]] for partition, records in self.records.items()}

    def write(self, partition: str, stream: str, *numbers: int) -> None:
        self.records.setdefault(partition, []).extend((stream, n) for n in numbers)


@dataclass(frozen=True)
class Tap:
    """The source."""

    well: Well
    names: tuple[str, ...] = ("",)

    @property
    def unit(self) -> str:
        return "records"

    @property
    def streams(self) -> Mapping[str, pa.Schema]:
        return dict.fromkeys(self.names, COLUMNS)

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "tap"}

    def connect(self, start: Frontier, bound: Bound) -> Pipe:
        for partition, oldest in self.well.oldest.items():
            if start[partition] < oldest:
                raise StartForgotten(source="tap", partition=partition, oldest=oldest, start=start[partition])
        self.well.starts.append(start)
        self.well.open += 1
        return Pipe(self.well, start)


class Pipe:
    """Its connection."""

    def __init__(self, well: Well, start: Frontier) -> None:
        self.well = well
        self.at = start
        self.identity = well.identity
        self.end: Frontier | None = None
        self.life = well.life

    def _meet(self) -> None:
        if self.life != self.well.life:
            raise ConnectionResetError("the well fell in")

    def receive(self, limit: int, seconds: float) -> Received | None:
        self._meet()
        self.well.waits.append(seconds)
        many = self.well.cuts.popleft() if self.well.cuts else limit
        if many < 0:
            raise ConnectionResetError("the pipe burst")
        found, reached = [], dict(self.at.items())
        for partition, records in self.well.records.items():
            begin = self.at[partition]
            rows = records[begin : begin + min(many, limit)]
            reached[partition] = begin + len(rows)
            for stream in sorted({stream for stream, _ in rows}):
                mine = [(begin + i, n) for i, (name, n) in enumerate(rows) if name == stream]
                columns = [[n for _, n in mine], [partition] * len(mine), [at for at, _ in mine]]
                arrays = [pa.array(column, kind.type) for column, kind in zip(columns, COLUMNS, strict=True)]
                found.append((stream, pa.RecordBatch.from_arrays(arrays, schema=COLUMNS)))
        end = self.well.end if self.well.tells else None
        if not found and end == self.end and (self.at.sealed or not self.well.sealed):
            return None
        over = self.well.sealed and Frontier(reached) == self.well.end
        self.at, self.end = Frontier(reached, sealed=over), end
        return Received(tuple(found), self.at, end)

    def acknowledge(self, frontier: Frontier) -> None:
        self._meet()
        self.well.witness(frontier)
        self.well.told.append(frontier)
        if self.well.forgets:
            self.well.oldest = dict(frontier.items())

    def close(self) -> None:
        self.well.open -= 1
