"""Topics of changes, and what they mean: all that happens is written as messages, and told to a dictionary."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import tidegauge as tg
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.kafka.decoding import MessageDecoder, joined, key_and_value
from tidegauge.sources.kafka.enveloping import Envelope
from tidegauge.sources.kafka.reading import Bulk
from tidegauge.sources.protocol import OnBadRecord, Split

KEY = tg.Json("id long")
VALUE = tg.Json("name string, n int")
PARTITIONS = 3

Pair = tuple[bytes | None, bytes | None]
"""The key and the value of a message."""


@dataclass(frozen=True)
class Happening:
    """What happens to a key.

    put, gone, bad value: to the row of key `id`. bad key, no key: a value that nobody can place. withdrawn: the
    tombstone of such a key.
    """

    what: str
    id: int
    n: int
    wrapped: bool
    """As Kafka Connect writes JSON together with its schema."""
    op: str
    told: bool
    """Whether Debezium tells the row before."""

    @property
    def placed(self) -> bool:
        return self.what in ("put", "gone", "bad value")

    @property
    def partition(self) -> int:
        """All that happens to one key is in one partition, as a producer has it."""
        return self.id % PARTITIONS

    @property
    def row(self) -> dict[str, Any]:
        return {"id": self.id, "name": f"user {self.n}", "n": self.n}

    def _in_json(self, content: Any) -> bytes:
        return json.dumps({"schema": {"type": "struct"}, "payload": content} if self.wrapped else content).encode()

    def messages(self, envelope: Envelope) -> list[Pair]:
        """Return the messages that say so."""
        bare = envelope == "upsert"
        key = json.dumps({"id": self.id}).encode() if bare else self._in_json({"id": self.id})
        other = b"no json" if self.id % 2 else None
        if self.what == "withdrawn":
            return [(other, None)]
        value = json.dumps(self.row).encode() if bare else self._in_json(self.record)
        if self.what in ("bad key", "no key"):
            return [(other, value)]
        if self.what == "bad value":
            return [(key, [b"?", b'{"n": "x"}', b'{"before": null, "op": "m"}'][self.n % (2 if bare else 3)])]
        if self.what == "gone":
            return [(key, None)] if bare else [(key, value), *([(key, None)] if self.told else [])]
        return [(key, value)]

    @property
    def record(self) -> dict[str, Any]:
        before = {**self.row, "name": "before"} if self.told else None
        if self.what == "gone":
            return {"before": before, "after": None, "op": "d", "source": {"lsn": 7}, "ts_ms": 5}
        return {"before": before, "after": self.row, "op": self.op, "source": {"lsn": 7}, "ts_ms": 5}


HAPPENINGS: st.SearchStrategy[Happening] = st.builds(
    Happening,
    st.sampled_from(["put", "put", "put", "gone", "bad value", "bad key", "withdrawn"]),
    st.integers(0, 6),
    st.integers(0, 9),
    st.booleans(),
    st.sampled_from("cru"),
    st.booleans(),
)


@dataclass
class Meaning:
    """What a topic says up to now: the rows by key, the keys with a bad value, the bytes that are a bad key."""

    rows: dict[int, tuple[str, int]] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)
    unplaced: set[bytes | None] = field(default_factory=set)

    def take(self, one: Happening) -> None:
        if not one.placed:
            raw = b"no json" if one.id % 2 else None
            (self.unplaced.discard if one.what == "withdrawn" else self.unplaced.add)(raw)
            return
        self.rows.pop(one.id, None)
        self.broken.discard(one.id)
        if one.what == "put":
            self.rows[one.id] = f"user {one.n}", one.n
        elif one.what == "bad value":
            self.broken.add(one.id)


def bulk_of(messages: Sequence[Pair], *, partition: str = "t-0", first: int = 0) -> Bulk:
    """Return messages as a task reads them."""
    count = len(messages)
    keys, values = [key for key, _ in messages], [value for _, value in messages]
    runs = [(partition, count)] if count else []
    return Bulk(runs, list(range(first, first + count)), values, keys, [0] * count, [None] * count)


def decoder(envelope: Envelope, *, metadata: bool = True, key: Any = KEY, value: Any = VALUE) -> MessageDecoder:
    keys = pa.schema([]) if key is None else key.schema
    schema = joined(keys, value.schema, metadata=metadata, topics="t", envelope=envelope)
    parts = key_and_value(schema, keys, value.schema, metadata=metadata, source="t", envelope=envelope)
    return MessageDecoder(value, key, metadata, schema, *parts, envelope)


@dataclass(frozen=True)
class Part:
    """A split."""

    epoch: int
    partition: str
    lower: int
    upper: int
    weight: int = 1


@dataclass(frozen=True)
class Changes:
    """A source of messages in files, in batches of `batch`, which are decoded as a topic's are.

    stumbles: how many of the first reads fail midway.
    """

    folder: Path
    envelope: Envelope
    batch: int = 3
    stumbles: int = 0
    unit: str = "records"

    @property
    def schema(self) -> pa.Schema:
        return decoder(self.envelope).schema

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "changes", "envelope": self.envelope}

    def write(self, partition: int, messages: Sequence[Pair]) -> None:
        with (self.folder / f"t-{partition}.messages").open("a") as file:
            for pair in messages:
                said = [None if part is None else base64.b64encode(part).decode() for part in pair]
                file.write(json.dumps(said) + "\n")

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        ends = Frontier({p.stem: len(p.read_text().splitlines()) for p in self.folder.glob("*.messages")})
        return Observation(at=now, upper=ends, end=ends)

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        return [Part(piece.epoch, piece.partition, piece.lower, piece.upper) for piece in slices]

    def read(self, split: Part, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        lines = (self.folder / f"{split.partition}.messages").read_text().splitlines()[split.lower : split.upper]
        said = [[None if part is None else base64.b64decode(part) for part in json.loads(line)] for line in lines]
        messages: list[Pair] = [(key, value) for key, value in said]
        for at in range(0, len(messages), self.batch):
            bulk = bulk_of(messages[at : at + self.batch], partition=split.partition, first=split.lower + at)
            yield decoder(self.envelope).decode(bulk, on_bad_record)
            if (count := len(list(self.folder.glob("stumble-*")))) < self.stumbles:
                (self.folder / f"stumble-{count}").touch()
                raise OSError(5, "the disk stumbles")

    def acknowledge(self, frontier: Frontier) -> None:
        """Do nothing."""
