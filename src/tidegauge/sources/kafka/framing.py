"""Ranges of offsets through Spark's own Kafka connector: one frame of the span of all splits, cut into pieces again.

The connector is told where each partition begins and ends, by offsets; nothing is left to it to decide. What it
reads are raw messages. In the tasks they are cut by the ranges of the splits, one search a batch, and decoded as
those that a task of ours has read. What lies between two ranges is of no split, and is left out.

Invariant: the pieces of a batch are in the order of offsets, and a message is in the piece of the split whose range
has its offset, or in none.

>>> split = KafkaSplit(epoch=7, ranges=(Range("t-0", 5, 8), Range("t-1", 0, 2)), schema=pa.schema([]))
>>> json.loads(pinned([split])["startingOffsets"]), json.loads(pinned([split])["endingOffsets"])
({'t': {'0': 5, '1': 0}}, {'t': {'0': 8, '1': 2}})
>>> batch = pa.record_batch({"topic": ["t"] * 3, "partition": [0] * 3, "offset": [4, 5, 7]})
>>> [(piece.epoch, piece.partition, piece.lower, piece.upper) for piece in received([batch], [split])]
[(7, 't-0', 5, 8)]
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.kafka import ConnectorMissing, MessageTimeUnfit
from tidegauge.kafka import cluster
from tidegauge.kafka.java import check_secrets, java
from tidegauge.kafka.settings import Settings
from tidegauge.sources.kafka.asking import Cluster
from tidegauge.sources.kafka.inquiry import Inquiry
from tidegauge.sources.kafka.planning import RECORD_BYTES, KafkaSplit, Range, outrun
from tidegauge.sources.kafka.reading import Bulk, messages

__all__ = ["Piece", "beyond", "bulk_of", "frame", "missing", "pinned", "received"]

_BEYOND: Final = 2**63 // 1000 + 1
"""Milliseconds since 1970 that are too many for the microseconds of Spark's instants."""

_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages of one range of a split, as they came from Spark."""

    epoch: int
    partition: str
    lower: int
    upper: int
    schema: pa.Schema
    messages: pa.RecordBatch

    @property
    def weight(self) -> int:
        """About how many bytes it has."""
        count: int = self.messages.num_rows
        return count * RECORD_BYTES


def pinned(splits: Iterable[KafkaSplit]) -> dict[str, str]:
    """Return the options that say what to read: for each partition the span of its ranges."""
    spans: dict[str, tuple[int, int]] = {}
    for piece in (piece for split in splits for piece in split.ranges):
        lower, upper = spans.get(piece.partition, (piece.lower, piece.upper))
        spans[piece.partition] = min(lower, piece.lower), max(upper, piece.upper)
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    starts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    ends: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for partition, (lower, upper) in sorted(spans.items()):
        topic, number = cluster.split(partition)
        numbers[topic].append(number)
        starts[topic][str(number)], ends[topic][str(number)] = lower, upper
    return {
        "assign": json.dumps(numbers),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "failOnDataLoss": "true",
    }


def frame(
    session: Any, settings: Settings, splits: Sequence[KafkaSplit], *, source: str, size: int, headers: bool
) -> Any:
    """Return the frame of the raw messages. A task of it has at most `size` offsets.

    Raises `ConnectorMissing`, `SettingNotShared`, `SecretUnavailable`.
    """
    from pyspark.errors import AnalysisException

    check_secrets(settings)
    told = {"isolation.level": "read_committed"} | java(settings)
    options = {f"kafka.{name}": value for name, value in told.items()} | pinned(splits)
    options |= {"maxRecordsPerPartition": str(size), "includeHeaders": str(headers).lower()}
    try:
        found = session.read.format("kafka").options(**options).load()
        found.schema  # noqa: B018 - on Connect the connector is looked for when its schema is asked for
        return found.select(*_COLUMNS, *(["headers"] if headers else []))
    except AnalysisException as error:
        if "find" not in str(error) or "data source: kafka" not in str(error):  # it has no condition of its own
            raise
        from pyspark import __version__

        packages = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{__version__}"
        raise ConnectorMissing(source=source, packages=packages) from error


def received(batches: Iterable[pa.RecordBatch], splits: Sequence[KafkaSplit]) -> Iterator[Piece]:
    """Cut batches of raw messages, each partition's in the order of offsets, into pieces."""
    held: defaultdict[str, list[tuple[Range, KafkaSplit]]] = defaultdict(list)
    for split in splits:
        for piece in split.ranges:
            held[piece.partition].append((piece, split))
    for mine in held.values():
        mine.sort(key=lambda one: one[0].lower)
    uppers = {name: np.array([piece.upper for piece, _ in mine], np.int64) for name, mine in held.items()}
    for batch in batches:
        for partition, found in _by_partition(batch):
            offsets = found.column("offset").to_numpy()
            places = np.searchsorted(uppers[partition], offsets, side="right")
            for start, end in _runs(places):
                if (place := int(places[start])) == len(held[partition]):
                    continue
                piece, split = held[partition][place]
                begin = start + int(np.searchsorted(offsets[start:end], piece.lower))
                if begin < end:
                    lower, upper = int(offsets[begin]), int(offsets[end - 1]) + 1
                    part = found.slice(begin, end - begin)
                    yield Piece(split.epoch, partition, lower, upper, split.schema, part)


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the runs of one partition: the whole batch, as a rule."""
    topics = batch.column("topic").dictionary_encode()
    keys = topics.indices.to_numpy().astype(np.int64) << 32 | batch.column("partition").to_numpy()
    for start, end in _runs(keys):
        name = cluster.partition(topics[start].as_py(), batch.column("partition")[start].as_py())
        yield name, batch.slice(start, end - start)


def _runs(keys: Any) -> Iterator[tuple[int, int]]:
    """Yield where equal keys that follow each other begin and end."""
    cuts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)]
    return ((start, end) for start, end in pairwise(cuts) if start < end)


def bulk_of(piece: Piece) -> Bulk:
    """Return a piece's messages as our own tasks read them."""
    rows = piece.messages
    micros = rows.column("timestamp").cast(pa.int64())
    return Bulk(
        runs=[(piece.partition, rows.num_rows)],
        offsets=rows.column("offset").to_pylist(),
        values=rows.column("value").to_pylist(),
        keys=rows.column("key").to_pylist(),
        times=[time // 1000 for time in micros.to_pylist()],
        headers=_headers(rows.column("headers")) if "headers" in rows.schema.names else [],
    )


def _headers(column: pa.Array) -> list[Any]:
    return [
        [(header["key"], header["value"]) for header in headers] if headers else None
        for headers in column.to_pylist()
    ]


def missing(asked: Cluster, what: Inquiry, splits: Sequence[KafkaSplit]) -> tuple[int, TidegaugeError] | None:
    """Return the first epoch with a message that the broker lacks, and the error; None when it has them all."""
    places = {piece.partition: cluster.split(piece.partition) for split in splits for piece in split.ranges}
    lows = asked.offsets(places.values(), "earliest")
    ends = asked.offsets(places.values(), "latest", committed=False)
    for split in sorted(splits, key=lambda split: split.epoch):
        for piece in split.ranges:
            low, end = lows.get(piece.partition, piece.lower), ends.get(piece.partition, piece.upper)
            if (error := outrun(what, piece.partition, piece.lower, piece.upper, low=low, end=end)) is not None:
                return split.epoch, error
    return None


def beyond(
    asked: Cluster, settings: Settings, group: str, what: Inquiry, splits: Sequence[KafkaSplit]
) -> tuple[int, TidegaugeError] | None:
    """Return the first epoch with a message whose time makes the connector raise, and the error; or None.

    The broker tells where the first such message of a partition is; as a rule there is none, and nothing is read.
    """
    places = {piece.partition: cluster.split(piece.partition) for split in splits for piece in split.ranges}
    firsts = asked.offsets(places.values(), _BEYOND, committed=False)  # what is read may be in an open transaction
    for split in sorted(splits, key=lambda split: split.epoch):
        for piece in split.ranges:
            if (lower := max(piece.lower, firsts.get(piece.partition, piece.upper))) >= piece.upper:
                continue
            for bulk in messages(settings, group, [Range(piece.partition, lower, piece.upper)], what):
                for offset, time in zip(bulk.offsets, bulk.times, strict=True):
                    if time >= _BEYOND:
                        found = MessageTimeUnfit(partition=piece.partition, offset=offset, milliseconds=time)
                        return split.epoch, found
    return None
