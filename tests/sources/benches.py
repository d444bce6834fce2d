"""Benches for the laws of sources (`source_laws`): each source of Tidegauge on an upstream of its own."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from tests.sources.kafka.writing import forget, numbers, recreate, write

from tidegauge.remap.binding import Bound, Slice
from tidegauge.sources import Csv, FileSource, GeneratorSource, Json, KafkaSource, Parquet, Source
from tidegauge.sources.generated import rows
from tidegauge.testing import Endpoint

__all__ = ["FileBench", "GeneratorBench", "KafkaBench"]

FORMATS: Final[dict[str, Any]] = {
    "jsonl": Json("n long"),
    "csv": Csv("n long"),
    "parquet": Parquet(),
    "jsonl.gz": Json(),
}
WHOLE: Final = ("parquet", "jsonl.gz")
LATER: Final = datetime(2100, 1, 1, tzinfo=UTC)
"""A time at which every file has settled."""
START: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class FileBench:
    """A folder of files of one kind. Records are appended to two files of lines in turn, or come in a new file."""

    folder: Path
    kind: str
    split_bytes: int
    source: Source = field(init=False)
    secrets: Sequence[str] = ()
    now: datetime = LATER
    number: int = 0
    ends: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)
    """By path, where each record ends, with its number; None for a bad one."""

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.source = FileSource(
            f"{self.folder}/*.{self.kind}", format=FORMATS[self.kind], split_bytes=self.split_bytes
        )

    def add(self, count: int) -> None:
        taken, self.number = range(self.number, self.number + count), self.number + count
        if self.kind in WHOLE:
            self._new(taken)
        else:
            for name, mine in (("a", taken[::2]), ("b", taken[1::2])):
                self._append(name, [(self._line(n), n) for n in mine])

    def _line(self, n: int) -> bytes:
        return (f'{{"n": {n}}}\n' if "json" in self.kind else f"{n}\n").encode()

    def _append(self, name: str, lines: list[tuple[bytes, int | None]]) -> None:
        path = self.folder / f"{name}.{self.kind}"
        ends = self.ends.setdefault(str(path), [])
        with path.open("ab") as file:
            if self.kind == "csv" and not ends:
                file.write(b"n\n")
            at = file.tell()
            for line, n in lines:
                at += len(line)
                ends.append((at, n))
            file.write(b"".join(line for line, _ in lines))

    def _new(self, taken: Sequence[int], bad: bytes = b"") -> None:
        path = self.folder / f"{self.number:08}{'-bad' if bad else ''}.{self.kind}"
        self._write(path, taken, bad)
        size = path.stat().st_size
        self.ends[str(path)] = [(size, n) for n in taken]

    def _write(self, path: Path, taken: Sequence[int], bad: bytes = b"") -> None:
        if self.kind == "parquet":
            size = max(1, -(-len(taken) // max(2, len(taken) // 20_000)))
            pq.write_table(pa.table({"n": pa.array(taken, pa.int64())}), path, row_group_size=size)
        else:
            path.write_bytes(gzip.compress(b"".join(map(self._line, taken)) + bad, mtime=0))

    def cuts(self, partition: str, bound: Bound) -> Sequence[int]:
        return sorted({0, *(end for end, _ in self.ends[str(bound.details[partition]["path"])])})

    def records(self, piece: Slice, bound: Bound) -> list[dict[str, Any]]:
        ends = self.ends[str(bound.details[piece.partition]["path"])]
        return [{"n": n} for end, n in ends if piece.lower < end <= piece.upper and n is not None]

    def ranges(self, split: Any) -> list[tuple[str, int, int]]:
        return [(split.partition, split.lower, split.upper)]

    def spoil(self) -> bytes | None:
        raw = b"surely not a number\n"
        if self.kind == "parquet":
            return None
        if self.kind in WHOLE:
            self._new([], raw)
        else:
            self._append("a", [(raw, None)])
        return raw

    def shorten(self) -> bool:
        path = next(iter(self.ends))
        os.truncate(path, Path(path).stat().st_size - 3)
        return True

    def recreate(self) -> None:
        for path, ends in self.ends.items():
            others = [90 + n % 10 if n is not None and n < 10 else 1_000 + (n or 0) for _, n in ends]
            if self.kind in WHOLE:
                self._write(Path(path), others)
            else:
                Path(path).write_bytes(b"".join(map(self._line, others)))


@dataclass
class KafkaBench:
    """A topic of two partitions, to which numbers are written in turn."""

    broker: Endpoint
    topic: str
    secret: tuple[str, str]
    split_records: int
    source: Source = field(init=False)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    secrets: Sequence[str] = ()
    number: int = 0
    values: dict[str, list[int | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = {"client.id": f"env:{self.secret[0]}"}
        self.secrets = [self.secret[1]]
        self.source = KafkaSource(
            self.broker.servers,
            topic=self.topic,
            format=Json("n long"),
            settings=settings,
            split_records=self.split_records,
        )

    def add(self, count: int) -> None:
        taken, self.number = range(self.number, self.number + count), self.number + count
        for place in (0, 1):
            for at in range(place, count, 100_000):  # the producer's queue holds as many
                write(self.broker, self.topic, numbers(taken[at : at + 100_000 : 2]), partition=place)
            self.values.setdefault(f"{self.topic}-{place}", []).extend(taken[place::2])

    def cuts(self, partition: str, bound: Bound) -> Sequence[int]:
        return range(bound.frontier[partition] + 1)

    def records(self, piece: Slice, bound: Bound) -> list[dict[str, Any]]:
        return [{"n": n} for n in self.values[piece.partition][piece.lower : piece.upper] if n is not None]

    def ranges(self, split: Any) -> list[tuple[str, int, int]]:
        return [(one.partition, one.lower, one.upper) for one in split.ranges]

    def spoil(self) -> bytes | None:
        raw = b"surely not a number"
        write(self.broker, self.topic, [raw])
        self.values[f"{self.topic}-0"].append(None)
        return raw

    def shorten(self) -> bool:
        forget(self.broker, self.topic, 1)
        return True

    def recreate(self) -> None:
        recreate(self.broker, self.topic, partitions=2)
        for place in (0, 1):
            write(self.broker, self.topic, numbers(range(1_000, 1_020)), partition=place)


@dataclass
class GeneratorBench:
    """A generator of two shards, whose rows come with the time."""

    source: Source = field(init=False)
    secrets: Sequence[str] = ()
    rows: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        self.recreate()

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.rows - 1)

    def add(self, count: int) -> None:
        self.rows += count

    def cuts(self, partition: str, bound: Bound) -> Sequence[int]:
        return range(bound.frontier[partition] + 1)

    def records(self, piece: Slice, bound: Bound) -> list[dict[str, Any]]:
        shard = int(piece.partition.removeprefix("shard-"))
        whole = rows(bound.schema, seed=self.seed, shard=shard, lower=0, upper=piece.upper)
        found: list[dict[str, Any]] = whole.to_pylist()[piece.lower :]
        return found

    def ranges(self, split: Any) -> list[tuple[str, int, int]]:
        return [(split.partition, split.lower, split.upper)]

    def spoil(self) -> bytes | None:
        return None

    def shorten(self) -> bool:
        return False

    def recreate(self) -> None:
        self.seed += 1
        self.source = GeneratorSource(rate=1.0, columns="n long", seed=self.seed, shards=2, start=START)
