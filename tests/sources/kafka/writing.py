"""Writing to a real broker: plain, and in transactions that commit or abort."""

from __future__ import annotations

import ctypes
import json
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, OffsetSpec  # type: ignore[attr-defined]
from tests.waiting import eventually

from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.sources import BadRecord, KafkaSource, Source, Split
from tidegauge.sources.protocol import OnBadRecord
from tidegauge.testing import Endpoint
from tidegauge.testing.endpoint import quiet

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
"""The settings of a topic that takes any time, as brokers before Kafka 4 do, and keeps all messages."""


def numbers(of: Iterable[int]) -> list[bytes]:
    """JSON messages with a number each."""
    return [json.dumps({"n": n}).encode() for n in of]


def write(
    broker: Endpoint,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    limit: int = 1_000_000,
    **more: Any,
) -> None:
    """Produce plain messages to one partition. limit: bytes of a message; more: key, timestamp, headers."""
    producer = Producer(quiet(broker.servers, **{"linger.ms": "1", "message.max.bytes": str(limit)}))
    for value in values:
        producer.produce(topic, value, partition=partition, **more)
    assert producer.flush(30) == 0


def write_header(broker: Endpoint, topic: str, value: bytes, name: bytes) -> None:
    """Produce a message to partition 0 with a header of any name, also one that Python's client would not write."""
    [file] = Path(confluent_kafka.__file__).parent.parent.glob("confluent_kafka.libs/librdkafka-*")
    library, size, number = ctypes.CDLL(str(file)), ctypes.c_size_t, ctypes.c_int
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = ctypes.c_void_p
    settings, said = ctypes.c_void_p(library.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    library.rd_kafka_conf_set(settings, b"bootstrap.servers", broker.servers.encode(), said, size(512))
    producer = ctypes.c_void_p(library.rd_kafka_new(number(0), settings, said, size(512)))
    to, copied = (number(1), topic.encode(), number(3), ctypes.c_int32(0)), (number(7), number(2))
    what = (number(4), value, size(len(value)), number(9), name, b"1", ctypes.c_ssize_t(1))
    assert library.rd_kafka_producev(producer, *to, *copied, *what, number(0)) == 0
    assert library.rd_kafka_flush(producer, number(30_000)) == 0
    library.rd_kafka_destroy(producer)


def transact(
    broker: Endpoint, topic: str, values: Iterable[bytes], *, partition: int = 0, commit: bool = True
) -> None:
    """Produce messages in one transaction, and wait until it is over for readers, too: when its marker is written."""
    offsets: list[Any] = []
    producer = Producer(quiet(broker.servers, **{"transactional.id": uuid.uuid4().hex}))
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda _error, it: offsets.append(it.offset())
        )
    assert producer.flush(30) == 0
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
    admin, place = broker.admin(), TopicPartition(topic, partition)

    def stable() -> int:
        asked = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]
        return int(asked[place].result(30).offset)

    eventually(lambda: stable() > max(offsets, default=-1))


def forget(broker: Endpoint, topic: str, upto: int, *, partition: int = 0) -> None:
    """Delete the records before an offset, as retention does."""
    admin = broker.admin()
    place = TopicPartition(topic, partition, upto)
    admin.delete_records([place])[place].result(30)
    eventually(lambda: low(broker, topic, partition) == upto)


def low(broker: Endpoint, topic: str, partition: int = 0) -> int:
    """The first offset that there is."""
    admin, place = broker.admin(), TopicPartition(topic, partition)
    return int(admin.list_offsets({place: OffsetSpec.earliest()})[place].result(30).offset)  # type: ignore[no-untyped-call]


def delete(broker: Endpoint, topic: str) -> None:
    """Delete a topic, and wait until it is gone."""
    admin = broker.admin()
    admin.delete_topics([topic])[topic].result(30)
    eventually(lambda: topic not in broker.admin().list_topics(timeout=10).topics)


def recreate(broker: Endpoint, topic: str, *, partitions: int = 1) -> None:
    """Delete a topic and make another one of its name."""
    delete(broker, topic)
    broker.create_topic(topic, partitions=partitions)


def grow(broker: Endpoint, topic: str, partitions: int) -> None:
    """Give a topic more partitions, and wait until they can be written."""
    admin = broker.admin()
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)

    def led() -> bool:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return len(found) == partitions and all(one.leader >= 0 for one in found.values())

    eventually(led)


def bind(bound: Bound, probe: Observation, source: Source) -> tuple[Bound, list[Slice]]:
    """What is bound after a probe, and the slices of that epoch."""
    ranges = probe.upper.since(bound.frontier)
    slices = [Slice("it", 0, partition, lower, upper) for partition, (lower, upper) in ranges.items()]
    after = Bound(
        frontier=probe.upper,
        details={**bound.details, **probe.details},
        schema=bound.schema or probe.schema or source.schema,
        state=probe.state or bound.state,
        incarnation=bound.incarnation,
    )
    return after, slices


def rows(source: KafkaSource, slices: list[Slice], bound: Bound) -> list[dict[str, Any]]:
    """All rows of slices, in the order of their splits."""

    def none(record: BadRecord) -> None:
        raise AssertionError(record)

    return [row for split in source.plan(slices, bound) for row in read(source, split, none)]


def read(source: Source, split: Split, on_bad_record: OnBadRecord) -> list[dict[str, Any]]:
    """The rows of a split."""
    return [row for batch in source.read(split, on_bad_record) for row in batch.to_pylist()]


def all_rows(source: KafkaSource, *, bound: Bound | None = None) -> list[dict[str, Any]]:
    """All rows that there are beyond what is bound."""
    bound = bound or Bound()
    found: list[dict[str, Any]] = []
    while True:
        probe = source.probe(bound, now=NOW)
        bound, slices = bind(bound, probe, source)
        found += rows(source, slices, bound)
        if not probe.more:
            return found
