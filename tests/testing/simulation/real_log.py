"""Topics of a real broker, written by the same calls as a `PartitionedLog`: what a parity test holds beside it.

What a broker does not do at will is done by its own means. `cut` is a topic that is made anew with the records that
an older copy would have, so its id is another one: whoever compares has to forget ids. Compaction runs when the
broker likes, and is compared by a test of its own.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from tests.sources.kafka.writing import ANY_TIME, delete, forget, grow
from tests.waiting import eventually

from tidegauge.kafka.cluster import split
from tidegauge.testing import Endpoint
from tidegauge.testing.endpoint import quiet

__all__ = ["ZERO", "RealLog", "message"]

ZERO = datetime(1970, 1, 1, tzinfo=UTC)


class RealLog:
    """The topics of one life. Producers are kept, but for those that know a topic that is no more."""

    def __init__(self, broker: Endpoint, topics: dict[str, int], kept: list[Producer]) -> None:
        self.broker = broker
        self.idle = kept
        self.plain = self._producer()
        self.open: dict[int, tuple[Producer, set[str]]] = {}
        for topic, partitions in topics.items():
            broker.create_topic(topic, partitions=partitions, config=ANY_TIME)

    def _producer(self, **more: str) -> Producer:
        """Return one that sends nothing before it is flushed: an append is one batch, of which the broker tells."""
        return Producer(quiet(self.broker.servers, **{"linger.ms": "10000", **more}))

    def append(
        self,
        place: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None],
        at: datetime,
        within: int | None = None,
    ) -> None:
        producer = self.plain if within is None else self.open[within][0]
        topic, number = split(place)
        time = (at - ZERO) // timedelta(milliseconds=1)
        for value, key in zip(values, keys, strict=True):
            producer.produce(topic, value, key, partition=number, timestamp=time)
        assert producer.flush(30) == 0
        if within is not None:
            self.open[within][1].add(place)

    def begin(self, number: int) -> None:
        if self.idle:
            producer = self.idle.pop()
        else:
            producer = self._producer(**{"transactional.id": uuid.uuid4().hex})
            producer.init_transactions(30)
        producer.begin_transaction()
        self.open[number] = producer, set()

    def finish(self, number: int, *, commit: bool) -> None:
        """End a transaction, and wait until its markers are written and committed records show."""
        producer, written = self.open.pop(number)
        before = {place: self._end(place) for place in written}
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
        eventually(lambda: all(self._end(place) > end for place, end in before.items()))
        shown = written.difference(*(others for _producer, others in self.open.values()))
        committed = IsolationLevel.READ_COMMITTED
        eventually(lambda: all(self._end(place, committed) == self._end(place) for place in shown))
        self.idle.append(producer)

    def _end(self, place: str, level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> int:
        admin, where = self.broker.admin(), TopicPartition(*split(place))
        asked = admin.list_offsets({where: OffsetSpec.latest()}, isolation_level=level)  # type: ignore[no-untyped-call]
        return int(asked[where].result(30).offset)

    def trim(self, place: str, to: int) -> None:
        topic, number = split(place)
        forget(self.broker, topic, to, partition=number)

    def commit_offsets(self, group: str, offsets: dict[str, int]) -> None:
        """Commit offsets for a group, as somebody does who has not looked at what it has."""
        consumer = Consumer(quiet(self.broker.servers, **{"group.id": group}))
        try:
            places = [TopicPartition(*split(place), offset) for place, offset in offsets.items()]
            found = consumer.commit(offsets=places, asynchronous=False)
            assert all(place.error is None for place in found or [])
        finally:
            consumer.close()

    def grow(self, topic: str, partitions: int) -> None:
        grow(self.broker, topic, partitions)
        self._forget_topics()

    def delete(self, topic: str) -> None:
        delete(self.broker, topic)
        self._forget_topics()

    def create(self, topic: str, partitions: int) -> None:
        self.broker.create_topic(topic, partitions=partitions, config=ANY_TIME)
        self._forget_topics()

    def _forget_topics(self) -> None:
        """Take new producers: one does not write to a topic that it takes for another."""
        assert not self.open
        self.plain = self._producer()
        self.idle.clear()

    def close(self) -> None:
        for number in [*self.open]:
            self.finish(number, commit=False)


def message(n: int) -> bytes:
    """A message with a number."""
    return json.dumps({"n": n}).encode()
