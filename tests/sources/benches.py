"""Benches for `check_source`: each source of Tidegauge on an upstream of its own."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from tests.s3 import CREDENTIALS, Lake
from tests.sources.kafka.writing import forget, numbers, recreate, write
from tests.sources.polls.server import Answer, Asked, served

from tidegauge.env import Env, at_once
from tidegauge.objects.path import ObjectPath
from tidegauge.remap.binding import Bound
from tidegauge.sources import (
    BatchSource,
    Csv,
    Fetched,
    FileSource,
    GeneratorSource,
    HttpSource,
    Json,
    KafkaSource,
    Parquet,
    PollingSource,
    Source,
)
from tidegauge.sources.batches.writing import publish, stage
from tidegauge.sources.generated import rows
from tidegauge.testing import Endpoint

__all__ = [
    "FORMATS",
    "BatchBench",
    "FileBench",
    "GeneratorBench",
    "HttpBench",
    "KafkaBench",
    "ObjectBench",
    "PollBench",
    "file_bench",
    "object_bench",
]

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
class BatchBench:
    """Two queries, whose batches come in turn, of two files each."""

    folder: Path
    source: Source = field(init=False)
    number: int = 0
    batches: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.source = BatchSource(self.folder / "batches", columns="n long")

    def add(self, count: int) -> list[dict[str, int]]:
        taken, self.number = range(self.number, self.number + count), self.number + count
        name = "ab"[sum(self.batches.values()) % 2]
        self._publish(name, taken)
        return [{"n": n} for n in taken]

    def _publish(self, name: str, taken: Sequence[int]) -> None:
        folder, batch = self.folder / "batches" / name, self.batches.get(name, 0)
        parts = [taken[at : at + 50_000] for at in range(0, len(taken), 50_000)]
        halves = [parts[: len(parts) // 2], parts[len(parts) // 2 :]]
        staged = [
            stage(folder, (pa.record_batch({"n": pa.array(part, pa.int64())}) for part in half)) for half in halves
        ]
        publish(folder, self.query_id, batch, [file for file in staged if file is not None])
        self.batches[name] = batch + 1

    query_id = "first"

    def lose(self) -> None:
        path = min((self.folder / "batches").glob("*/*.json"))
        path.unlink()
        shutil.rmtree(path.with_suffix(""))

    def recreate(self) -> None:
        shutil.rmtree(self.folder / "batches")
        self.query_id, again = "second", dict(self.batches)
        self.batches = {}
        for name, count in again.items():
            for _ in range(count):
                self._publish(name, range(1_000, 1_000 + self.number))

    def leave(self) -> None:
        (self.folder / "batches").rename(self.folder / "away")

    def come_back(self) -> None:
        (self.folder / "away").rename(self.folder / "batches")


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


@dataclass
class PollBench:
    """An upstream that gives what was added since a count, and the poller of a run, which stages it."""

    folder: Path
    source: PollingSource = field(init=False)
    rows: list[int] = field(default_factory=list)
    clock: float = 0.0

    def __post_init__(self) -> None:
        folder = self.folder / "polls"
        self.source = PollingSource(self._fetch, columns="n long", staging=folder).placed("shop", "orders")
        self._begin()

    def _fetch(self, state: int | None) -> Fetched:
        return Fetched([{"n": n} for n in self.rows[state or 0 :]], len(self.rows))

    def _begin(self) -> None:
        self.poller = self.source.attended(Env(monotonic=lambda: self.clock), beside=at_once)

    def _poll(self) -> None:
        self.clock += self.source.every
        self.poller.probe(Bound(), now=START)

    def add(self, count: int) -> list[dict[str, int]]:
        taken = range(len(self.rows), len(self.rows) + count)
        self.rows += taken
        self._poll()
        return [{"n": n} for n in taken]

    def lose(self) -> None:
        for path in self.folder.rglob("000000000000*"):
            path.unlink()

    def recreate(self) -> None:
        shutil.rmtree(self.folder / "polls")
        self.rows = [n + 1_000 for n in self.rows]
        self._begin()
        self._poll()

    def leave(self) -> None:
        (self.folder / "polls").rename(self.folder / "away")

    def come_back(self) -> None:
        (self.folder / "away").rename(self.folder / "polls")


@dataclass
class HttpBench:
    """A server whose answer is new records in each version, and the poller of a run."""

    folder: Path
    source: HttpSource = field(init=False)
    secrets: Sequence[str] = ("hunter2",)
    rows: list[int] = field(default_factory=list)
    version: int = 0
    number: int = 0
    clock: float = 0.0

    def __post_init__(self) -> None:
        self.serving = ExitStack()
        self.server = self.serving.enter_context(served())
        self.server.answer = self._answer
        os.environ["TIDEGAUGE_TEST_TOKEN"] = self.secrets[0]
        source = HttpSource(
            f"{self.server.url}/rates",
            format=Json("n long"),
            staging=self.folder / "polls",
            headers={"Authorization": "env:TIDEGAUGE_TEST_TOKEN"},
        )
        self.source = source.placed("shop", "rates")
        self._begin()

    def _answer(self, asked: Asked) -> Answer:
        etag = f'"{self.version}"'
        if not self.version or asked.headers.get("if-none-match") == etag:
            return Answer(status=304)
        return Answer(b"".join(b'{"n": %d}\n' % n for n in self.rows), headers={"ETag": etag})

    def _begin(self) -> None:
        self.poller = self.source.attended(Env(monotonic=lambda: self.clock), beside=at_once)

    def _poll(self) -> None:
        self.clock += self.source.every
        self.poller.probe(Bound(), now=START)

    def add(self, count: int) -> list[dict[str, int]]:
        self.rows = list(range(self.number, self.number + count))
        self.number, self.version = self.number + count, self.version + 1
        self._poll()
        return [{"n": n} for n in self.rows]

    def lose(self) -> None:
        for path in self.folder.rglob("000000000000*"):
            path.unlink()

    def recreate(self) -> None:
        shutil.rmtree(self.folder / "polls")
        self.rows, self.version = [n + 1_000 for n in self.rows], self.version + 1
        self._begin()
        self._poll()

    def leave(self) -> None:
        (self.folder / "polls").rename(self.folder / "away")

    def come_back(self) -> None:
        (self.folder / "away").rename(self.folder / "polls")

    def close(self) -> None:
        self.serving.close()


@dataclass
class ObjectBench:
    """A prefix of objects of one kind; each `add` puts new ones. One that is read whole takes no bad line here."""

    lake: Lake
    kind: str
    split_bytes: int = 24
    source: Source = field(init=False)
    secrets: Sequence[str] = (CREDENTIALS["AWS_SECRET_ACCESS_KEY"],)
    number: int = 0
    kept: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = ObjectPath.of(self.lake.at(uuid.uuid4().hex))
        self.source = FileSource(
            f"{self.folder}/*.{self.kind}", format=FORMATS[self.kind], split_bytes=self.split_bytes
        )

    def add(self, count: int) -> list[dict[str, int]]:
        taken, self.number = range(self.number, self.number + count), self.number + count
        self._put(f"{self.number:08}", taken)
        return [{"n": n} for n in taken]

    def _put(self, name: str, taken: Sequence[int]) -> None:
        if self.kind == "parquet":
            out = io.BytesIO()
            pq.write_table(pa.table({"n": pa.array(taken, pa.int64())}), out, row_group_size=max(1, len(taken) // 2))
            data = out.getvalue()
        else:
            data = b"".join((f'{{"n": {n}}}\n' if "json" in self.kind else f"{n}\n").encode() for n in taken)
            data = b"n\n" + data if self.kind == "csv" else data
        (self.folder / f"{name}.{self.kind}").put(gzip.compress(data, mtime=0) if "gz" in self.kind else data)

    def lose(self) -> None:
        (self.folder / min(self.folder.names())).unlink()

    def recreate(self) -> None:
        for name in self.folder.names():
            self._put(name.removesuffix(f".{self.kind}"), range(1_000, 1_000 + self.number))

    def leave(self) -> None:
        place = ObjectPath(self.folder.bucket, "")
        self.kept = {path: (place / path).read_bytes() for path in place.below()}
        self.lake.server.drop(self.lake.bucket)

    def come_back(self) -> None:
        assert self.lake.server.request("PUT", f"/{self.lake.bucket}") == 200
        for path, data in self.kept.items():
            ObjectPath(self.folder.bucket, path.lstrip("/")).put(data)


class SpoiltObjectBench(ObjectBench):
    """A prefix of objects that can have lines which are no record."""

    def spoil(self) -> bytes:
        raw = b"surely not a number\n"
        self.number += 1
        data = b"n\n" + raw if self.kind == "csv" else raw
        place = self.folder / f"{self.number - 1:08}-bad.{self.kind}"
        place.put(gzip.compress(data, mtime=0) if "gz" in self.kind else data)
        return raw


def object_bench(lake: Lake, kind: str, split_bytes: int = 24) -> ObjectBench:
    """Return a bench of objects of a kind in a prefix of their own."""
    made = ObjectBench if kind == "parquet" else SpoiltObjectBench
    return made(lake, kind, split_bytes)
