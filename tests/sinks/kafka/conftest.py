"""What the tests of topics as outputs share: sinks on the broker of the run, and a consumer that knows no more."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.waiting import eventually

from tidegauge.errors.base import Transient
from tidegauge.errors.kafkasink import OutputTopicRecreated, StagedMessagesMissing
from tidegauge.kafka import Settings
from tidegauge.kafka.clients import admin
from tidegauge.kafka.cluster import described, offsets, partition
from tidegauge.sinks import KafkaSink, OutputId, StagedFile
from tidegauge.testing import Endpoint

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])
OUTPUT = OutputId("shop", "orders", "a" * 32)


@dataclass(frozen=True)
class Message:
    """A message as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int

    @property
    def epoch(self) -> int:
        return int(dict(self.headers)["tidegauge-epoch"] or b"")

    @property
    def row(self) -> Any:
        return json.loads(self.value or b"null")


def consumed(
    servers: str, topic: str, *, level: str = "read_committed", within: float = 30, stable: bool = False
) -> list[Message]:
    """Return what a consumer sees in a topic now, partition by partition; nothing when there is no such topic.

    It waits for what is open in the topic to be committed or aborted; stable: not for that.
    """
    config: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "test",
        "enable.partition.eof": True,
        "isolation.level": level,
        "fetch.wait.max.ms": 10,
        "enable.auto.commit": False,
    }
    consumer: Any = Consumer(config)
    try:
        metadata = consumer.list_topics(topic, timeout=10).topics[topic]
        waiting = set(metadata.partitions) if metadata.error is None else set()
        ends = true_ends(servers, topic, waiting)
        consumer.assign([TopicPartition(topic, number, 0) for number in waiting])
        found: list[Message] = []
        deadline = time.monotonic() + within
        while waiting:
            assert time.monotonic() < deadline, f"{topic} did not end"
            for message in consumer.consume(500, 0.02):
                error = message.error()
                if error is None:
                    found.append(
                        Message(
                            message.partition(),
                            message.offset(),
                            message.key(),
                            message.value(),
                            message.headers() or [],
                            message.timestamp()[1],
                        )
                    )
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    if stable or message.offset() >= ends[partition(topic, message.partition())]:
                        waiting.discard(message.partition())
        return sorted(found, key=lambda message: (message.partition, message.offset))
    finally:
        consumer.close()


def true_ends(servers: str, topic: str, numbers: Collection[int]) -> dict[str, int]:
    """Return where the partitions end for those who read uncommitted messages, as soon as a broker tells of all."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with admin(Settings.of(servers)) as client:
                places = [(topic, number) for number in numbers]
                ends = offsets(client, places, "latest", servers=servers, committed=False)
        except Transient:
            ends = {}
        if len(ends) == len(numbers):
            return ends
        assert time.monotonic() < deadline


def write_id() -> str:
    return OUTPUT.incarnation[-16:] + uuid.uuid4().hex[-16:]


KIND = SimpleNamespace(name="kafka", traits=frozenset(), missing=StagedMessagesMissing, lost=OutputTopicRecreated)
"""A topic has no files and no columns of its own, and takes messages of any number of outputs."""


@dataclass(frozen=True)
class Bench:
    """A sink to a topic of its own, and short words for what the tests do."""

    servers: str
    sink: KafkaSink
    kind: ClassVar[Any] = KIND

    @property
    def topic(self) -> str:
        return self.sink.topic

    @property
    def path(self) -> str:
        """Return where tasks stage."""
        return f"{self.sink.staging}/{self.topic}"

    def given(self, **options: Any) -> Bench:
        """Return the bench with other options of the sink."""
        return replace(self, sink=replace(self.sink, **options))

    @property
    def folder(self) -> str:
        """Return the folder that the sink was given."""
        return str(self.sink.staging)

    def at(self, folder: str) -> KafkaSink:
        """Return the sink with another folder."""
        return replace(self.sink, staging=folder)

    def ways(self) -> list[KafkaSink]:
        """Return sinks to the same topic that were told otherwise."""
        many = [replace(self.sink, servers=servers) for servers in ("b:1,A:1", "a:1,b:1")]
        assert many[0].identity == many[1].identity
        return [replace(self.sink, key="user"), self.at(f"{self.folder}-2")]

    def elsewhere(self) -> KafkaSink:
        """Return a sink to another topic."""
        return replace(self.sink, topic=f"{self.topic}-2")

    def remove(self) -> None:
        """Delete the topic, and wait until it is gone."""
        with admin(Settings.of(self.servers)) as client:
            for deleted in client.handle.delete_topics([self.topic]).values():
                deleted.result()
            eventually(lambda: not described(client, [self.topic], servers=self.servers))

    def open(self, output: OutputId = OUTPUT) -> Any:
        return self.sink.open(output)

    def stage(self, epochs: Iterable[int], user: str = "ada", task: int = 0) -> list[StagedFile]:
        listed = list(epochs)
        columns = {"user": [user] * len(listed), "amount": [1.5] * len(listed), "_epoch": listed}
        return self.stage_rows(pa.record_batch(columns, schema=SCHEMA), task=task)

    def stage_rows(self, batch: pa.RecordBatch, task: int = 0) -> list[StagedFile]:
        stager = self.sink.stage(batch.schema, job=write_id(), task=task)
        stager.write(batch)
        return stager.close()

    def commit(self, table: Any, lower: int, upper: int, user: str = "ada", *, empty: bool = False) -> None:
        files = [] if empty else self.stage(range(lower, upper), user)
        table.commit(lower, upper, SCHEMA, files, write=write_id())

    def messages(self, **how: Any) -> list[Message]:
        return consumed(self.servers, self.topic, **how)

    def rows(self, **how: Any) -> list[tuple[str, int]]:
        """Return `(user, epoch)` of every message that readers of committed messages see, sorted."""
        return sorted((message.row["user"], message.epoch) for message in self.messages(**how))


def topic_bench(servers: str, topic: str, staging: Path, **options: Any) -> Bench:
    """Return a bench of a topic that its first commit makes."""
    given: dict[str, Any] = {"topic": topic, "partitions": 1, "staging": str(staging)} | options
    return Bench(servers, KafkaSink(servers, **given))


@pytest.fixture
def make_bench(kafka_broker: Endpoint, topic_name: str, tmp_path: Path) -> Callable[..., Bench]:
    """Make a bench with options of the sink; the topic is made by the first commit, unless it is there."""

    def make(**options: Any) -> Bench:
        return topic_bench(kafka_broker.servers, options.pop("topic", topic_name), tmp_path / "staging", **options)

    return make


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()
