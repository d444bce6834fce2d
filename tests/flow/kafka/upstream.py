"""A topic of a real broker, and beside it a model of what has to be in it: each change is made to both.

A model of a partition (`Log`) is a list: at each offset a record, or None for a hole (the marker of a transaction, an
aborted record, one that compaction took). After every change the broker is asked where its partitions begin and end,
and has to say what the model says; so the model knows every offset without asking where a record went.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from tests.sources.kafka.writing import delete, grow
from tests.waiting import eventually

from tidegauge.kafka.clients import kafka
from tidegauge.testing import KafkaBroker
from tidegauge.testing.endpoint import quiet

_ADMIN: Any = kafka("confluent_kafka.admin")
_COMPACT = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.0"}
_ROLL = "roll"
"""The key of the records that are written to end a segment: only what lies before the last segment is compacted."""


class Record(NamedTuple):
    """A record: its number, which no other has, and its key."""

    n: int
    key: str


@dataclass
class Log:
    """What is in a partition. low: where it begins. open: the first offset of a transaction that is under way."""

    held: list[Record | None] = field(default_factory=list)
    low: int = 0
    open: int | None = None

    @property
    def end(self) -> int:
        """Where the committed records end: no open transaction comes before."""
        return len(self.held) if self.open is None else self.open

    def records(self, lower: int, upper: int) -> dict[int, int]:
        """The numbers of the committed records of `[lower, upper)` that are there, by offset."""
        places = range(max(lower, self.low), min(upper, self.end))
        return {offset: held.n for offset in places if (held := self.held[offset]) is not None}

    def superseded(self, before: int) -> set[int]:
        """The offsets of records that compaction takes when it looks at those before an offset."""
        last = {held.key: at for at, held in enumerate(self.held[:before]) if held is not None}
        return {
            at
            for at, held in enumerate(self.held[:before])
            if held is not None and at >= self.low and last[held.key] > at
        }


class Upstream:
    """The topic `name` of a broker. `logs` is its model; `generation` counts how often it was made."""

    def __init__(self, broker: KafkaBroker, *, partitions: int) -> None:
        self.broker = broker
        self.name = f"laws-{uuid.uuid4().hex[:12]}"
        self.generations: list[list[Log]] = []
        self.open: Producer | None = None
        """The producer of an open transaction."""
        self._admin = broker.admin()
        self._transactional: Producer | None = None
        self._touched: list[tuple[int, int]] = []
        self._number = 0
        self._create(partitions)

    @property
    def logs(self) -> list[Log]:
        """The model of the topic as it is."""
        return self.generations[-1]

    @property
    def generation(self) -> int:
        """Which topic of this name it is."""
        return len(self.generations) - 1

    def close(self) -> None:
        """Delete the topic; an open transaction ends with its producer."""
        self.open = self._transactional = None
        self._admin.delete_topics([self.name])[self.name].result(30)

    # Changes.

    def write(self, writes: Sequence[tuple[int, Sequence[str]]]) -> None:
        """Produce plain records to partitions."""
        producer = Producer(quiet(self.broker.servers, **{"linger.ms": "1", "acks": "all"}))
        for partition, keys in writes:
            self._produce(producer, partition, keys)
        assert producer.flush(30) == 0
        self._settled()

    def transact(self, writes: Sequence[tuple[int, Sequence[str]]], *, commit: bool) -> None:
        """Produce records to several partitions in one transaction, and end it."""
        self.begin(writes)
        self.finish(commit=commit)

    def begin(self, writes: Sequence[tuple[int, Sequence[str]]]) -> None:
        """Begin a transaction, and leave it open."""
        if self._transactional is None:
            lasting = {"transactional.id": uuid.uuid4().hex, "transaction.timeout.ms": "600000", "linger.ms": "1"}
            self._transactional = Producer(quiet(self.broker.servers, **lasting))
            self._transactional.init_transactions(30)
        self.open = self._transactional
        self.open.begin_transaction()
        for partition, keys in writes:
            log = self.logs[partition]
            first = len(log.held)
            self._produce(self.open, partition, keys)
            self._touched += [(partition, offset) for offset in range(first, len(log.held))]
            if log.open is None:
                log.open = first
        assert self.open.flush(30) == 0
        self._settled()

    def finish(self, *, commit: bool) -> None:
        """Commit or abort the open transaction: a marker in each of its partitions."""
        assert self.open is not None
        if commit:
            self.open.commit_transaction(30)
        else:
            self.open.abort_transaction(30)
        for partition, offset in self._touched:
            if not commit:
                self.logs[partition].held[offset] = None
        for partition in {partition for partition, _ in self._touched}:
            self.logs[partition].held.append(None)
            self.logs[partition].open = None
        self.open, self._touched = None, []
        self._settled()

    def forget(self, partition: int, upto: int) -> None:
        """Delete the records before an offset, as retention does."""
        place = TopicPartition(self.name, partition, upto)
        self._admin.delete_records([place])[place].result(30)
        self.logs[partition].low = upto
        self._settled()

    def grow(self) -> None:
        """Give the topic one more partition, of which a producer that knew the topic does not know."""
        self._transactional = None
        self.logs.append(Log())
        grow(self.broker.endpoint, self.name, len(self.logs))
        self._settled()

    def recreate(self, partitions: int) -> None:
        """Delete the topic, and make another one of its name."""
        self._transactional = None
        delete(self.broker.endpoint, self.name)
        self._create(partitions)

    def compact(self) -> None:
        """Have the broker compact all partitions, and learn from it what is left: no more than has to be gone."""
        self._configure({name: (_ADMIN.AlterConfigOpType.SET, value) for name, value in _COMPACT.items()})
        rolled = [len(log.held) for log in self.logs]
        self.write([(partition, [_ROLL]) for partition in range(len(self.logs))])

        def compacted() -> bool:
            left = self._read()
            return not any(log.superseded(rolled[p]) & left[p].keys() for p, log in enumerate(self.logs))

        eventually(compacted)
        self._configure(dict.fromkeys(_COMPACT, (_ADMIN.AlterConfigOpType.DELETE, "")))
        for log, left, upto in zip(self.logs, self._read(), rolled, strict=True):
            there = log.records(0, log.end)
            gone = there.keys() - left.keys()
            assert left.items() <= there.items()
            assert gone <= log.superseded(upto), "compaction took what it has to leave"
            for offset in gone:
                log.held[offset] = None

    def restart(self, *, kill: bool) -> None:
        """Stop or kill the broker, and start it on the same data. An open transaction stays open.

        One that is killed may not have noted yet where its partitions begin, and finds deleted records again.
        """
        self._transactional = None
        if kill:
            self.broker.kill()
        else:
            self.broker.stop()
        self.broker.start()
        eventually(lambda: [end for _, end in self._ends() or ()] == [log.end for log in self.logs])
        lows = [low for low, _ in self._ends() or ()]
        assert all(low == log.low or (kill and low < log.low) for low, log in zip(lows, self.logs, strict=True))
        before = [log.low for log in self.logs]
        for low, log in zip(lows, self.logs, strict=True):
            log.low = low
        if lows != before:
            for low, log, left in zip(before, self.logs, self._read(), strict=True):
                for offset in set(log.records(0, low)) - left.keys():  # compacted where nobody saw it
                    log.held[offset] = None

    # The broker's side.

    def _create(self, partitions: int) -> None:
        self.broker.create_topic(self.name, partitions=partitions)
        self.generations.append([Log() for _ in range(partitions)])

    def _produce(self, producer: Producer, partition: int, keys: Sequence[str]) -> None:
        for key in keys:
            self._number += 1
            self.logs[partition].held.append(Record(self._number, key))
            producer.produce(
                self.name, json.dumps({"n": self._number}), key=key, partition=partition, on_delivery=_sure
            )

    def _configure(self, changes: dict[str, tuple[Any, str]]) -> None:
        entries = [
            _ADMIN.ConfigEntry(name, value, incremental_operation=how) for name, (how, value) in changes.items()
        ]
        resource = _ADMIN.ConfigResource(_ADMIN.ResourceType.TOPIC, self.name, incremental_configs=entries)
        for answer in self._admin.incremental_alter_configs([resource]).values():
            answer.result(30)

    def _settled(self) -> None:
        """Wait until the broker says what the model says: a marker comes after the answer to the commit."""
        expected = [(log.low, log.end) for log in self.logs]
        eventually(lambda: self._ends() == expected)

    def _ends(self) -> list[tuple[int, int]] | None:
        """Where each partition begins and where its committed records end, None when the broker does not say."""
        places = [TopicPartition(self.name, number) for number in range(len(self.logs))]
        level = IsolationLevel.READ_COMMITTED
        try:
            lows, ends = (
                self._admin.list_offsets(dict.fromkeys(places, spec), isolation_level=level, request_timeout=10)
                for spec in (_ADMIN.OffsetSpec.earliest(), _ADMIN.OffsetSpec.latest())
            )
            return [(lows[place].result(30).offset, ends[place].result(30).offset) for place in places]
        except KafkaException:
            with suppress(KafkaException):
                self._admin.list_topics(self.name, timeout=10)  # the client learns of new partitions by this alone
            return None

    def _read(self) -> list[dict[int, int]]:
        found = consumed(
            self.broker.servers, self.name, [log.low for log in self.logs], [log.end for log in self.logs]
        )
        return [{at: n for (number, at), n in found.items() if number == p} for p in range(len(self.logs))]


def _sure(error: object, _message: object) -> None:
    assert error is None, error


def consumed(servers: str, topic: str, lows: Sequence[int], ends: Sequence[int]) -> dict[tuple[int, int], int]:
    """What a consumer that knows nothing of Tidegauge finds: the committed records, by partition and offset."""
    settings: dict[str, Any] = {"group.id": "nobody", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({**quiet(servers), **settings, "auto.offset.reset": "error"})
    found: dict[tuple[int, int], int] = {}
    left = {number for number, (low, end) in enumerate(zip(lows, ends, strict=True)) if low < end}
    try:
        consumer.assign([TopicPartition(topic, number, lows[number]) for number in left])
        while left:
            messages: list[Any] = consumer.consume(1000, 0.05)
            for message in messages:
                if message.error() is None:
                    found[message.partition(), message.offset()] = int(json.loads(message.value())["n"])
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
    finally:
        consumer.close()
    return found
