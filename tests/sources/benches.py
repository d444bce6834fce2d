"""Benches for `check_source`: each source of Tidegauge on an upstream of its own."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from tests.sources.kafka.writing import forget, numbers, recreate, write

from tidegauge.sources import Csv, FileSource, GeneratorSource, Json, KafkaSource, Parquet, Source
from tidegauge.sources.generated import rows
from tidegauge.testing import Endpoint

__all__ = ["FORMATS", "FileBench", "GeneratorBench", "KafkaBench", "file_bench"]

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
    split_bytes: int = 24
    source: Source = field(init=False)
    now: datetime = LATER
    number: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.source = FileSource(
            f"{self.folder}/*.{self.kind}", format=FORMATS[self.kind], split_bytes=self.split_bytes
        )

    def add(self, count: int) -> list[dict[str, int]]:
        taken, self.number = range(self.number, self.number + count), self.number + count
        if self.kind in WHOLE:
            self._write(self.folder / f"{self.number:08}.{self.kind}", taken)
        else:
            for place, name in enumerate("ab"):
                self._append(name, [self._line(n) for n in taken if n % 2 == place])
        return [{"n": n} for n in taken]

    def _line(self, n: int) -> bytes:
        return (f'{{"n": {n}}}\n' if "json" in self.kind else f"{n}\n").encode()

    def _append(self, name: str, lines: Sequence[bytes]) -> None:
        path = self.folder / f"{name}.{self.kind}"
        if lines:
            with path.open("ab") as file:
                file.write(b"n\n" if self.kind == "csv" and not file.tell() else b"")
                file.write(b"".join(lines))

    def _write(self, path: Path, taken: Sequence[int], bad: bytes = b"") -> None:
        if self.kind == "parquet":
            size = max(1, -(-len(taken) // max(2, len(taken) // 20_000)))
            pq.write_table(pa.table({"n": pa.array(taken, pa.int64())}), path, row_group_size=size)
        else:
            path.write_bytes(gzip.compress(b"".join(map(self._line, taken)) + bad, mtime=0))

    def lose(self) -> None:
        path = min(self.folder.iterdir())
        os.truncate(path, path.stat().st_size - 3)

    def recreate(self) -> None:
        for path in self.folder.iterdir():
            if self.kind in WHOLE:
                self._write(path, range(1_000, 1_000 + self.number))
            else:
                path.write_bytes(b"7" + path.read_bytes()[1:] if self.kind == "csv" else b"{ " + path.read_bytes())

    def leave(self) -> None:
        self.folder.rename(self.folder.with_name("away"))

    def come_back(self) -> None:
        self.folder.with_name("away").rename(self.folder)


class SpoiltFileBench(FileBench):
    """A folder of files that can have lines which are no record."""

    def spoil(self) -> bytes:
        raw = b"surely not a number\n"
        if self.kind in WHOLE:
            self._write(self.folder / f"{self.number:08}-bad.{self.kind}", [], raw)
        else:
            self._append("a", [raw])
        return raw


def file_bench(folder: Path, kind: str, split_bytes: int = 24) -> FileBench:
    """Return a bench of files of a kind in an empty folder."""
    made = FileBench if kind == "parquet" else SpoiltFileBench
    return made(folder / "upstream", kind, split_bytes)


@dataclass
class KafkaBench:
    """A topic of two partitions, to which numbers are written in turn."""

    broker: Endpoint
    topic: str
    secret: tuple[str, str]
    split_records: int = 3
    source: Source = field(init=False)
    secrets: Sequence[str] = ()
    number: int = 0

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

    def add(self, count: int) -> list[dict[str, int]]:
        taken, self.number = range(self.number, self.number + count), self.number + count
        for place in (0, 1):
            mine = [n for n in taken if n % 2 == place]
            for at in range(0, len(mine), 50_000):  # the producer's queue holds twice as many
                write(self.broker, self.topic, numbers(mine[at : at + 50_000]), partition=place)
        return [{"n": n} for n in taken]

    def spoil(self) -> bytes:
        raw = b"surely not a number"
        write(self.broker, self.topic, [raw])
        return raw

    def lose(self) -> None:
        forget(self.broker, self.topic, 1)

    def recreate(self) -> None:
        recreate(self.broker, self.topic, partitions=2)
        for place in (0, 1):
            write(self.broker, self.topic, numbers(range(1_000, 1_020)), partition=place)


@dataclass
class GeneratorBench:
    """A generator of two shards, whose rows come with the time."""

    source: GeneratorSource = field(
        default_factory=lambda: GeneratorSource(rate=1.0, columns="n long", shards=2, start=START)
    )
    rows: int = 0

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.rows - 1)

    def add(self, count: int) -> list[dict[str, int]]:
        taken, self.rows = range(self.rows, self.rows + count), self.rows + count
        ends = (
            [(taken.start + 1 - shard) // 2 for shard in (0, 1)],
            [(taken.stop + 1 - shard) // 2 for shard in (0, 1)],
        )
        batches = [
            rows(self.source.schema, seed=self.source.seed, shard=shard, lower=lower, upper=upper).to_pylist()
            for shard, (lower, upper) in enumerate(zip(*ends, strict=True))
        ]
        return [row for batch in batches for row in batch]

    def recreate(self) -> None:
        self.source = replace(self.source, seed=self.source.seed + 1)

    def finish(self) -> None:
        self.source = replace(self.source, rows=self.rows)
