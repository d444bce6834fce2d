"""What is in the topics of a benchmark's broker: the orders of `benchmarks.data`, one in a message, or long texts.

Messages have no keys, are not compressed, and are dealt to the partitions in runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from benchmarks.data import lines
from tidegauge.testing import Endpoint

__all__ = ["LONG", "RUN", "fill", "filled", "long_texts", "orders", "producer"]

RUN: Final = 2000
"""Messages of a run, all of which go to one partition."""
LONG: Final = "id long, text string"
_AHEAD: Final = 50_000
_TEXT: Final = b"a tide gauge reads the water on many shores against one datum; " * 16


def orders(count: int) -> Iterator[list[bytes]]:
    """Yield orders as JSON, in runs."""
    for first in range(0, count, RUN):
        yield lines(first, min(RUN, count - first)).splitlines()


def long_texts(count: int) -> Iterator[list[bytes]]:
    """Yield messages of 1 kB, in runs."""
    for first in range(0, count, RUN):
        yield [b'{"id":%d,"text":"%b"}' % (i, _TEXT[:970]) for i in range(first, min(first + RUN, count))]


def producer(servers: str, **settings: Any) -> Producer:
    """Return a producer that waits for the broker's word."""
    return Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0, **settings})


def filled(broker: Endpoint, count: int, few: int, *, partitions: int) -> tuple[str, str, int]:
    """Make a topic of orders, and one of a few; return both, and how many messages the first one has."""
    topics = [broker.create_topic(name, partitions=partitions) for name in ("orders", "few")]
    sizes = [
        fill(broker.servers, topic, orders(size), partitions=partitions)
        for topic, size in zip(topics, (count, few), strict=True)
    ]
    return topics[0], topics[1], sizes[0]


def fill(servers: str, topic: str, runs: Iterable[Sequence[bytes]], *, partitions: int) -> int:
    """Produce runs, one to each partition in turn, and wait until the broker has them; return how many messages."""
    failed: list[KafkaError] = []
    made = producer(servers, **{"batch.size": 1 << 20})
    total = 0

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    for number, run in enumerate(runs):
        made.produce_batch(topic, [{"value": value} for value in run], number % partitions, on_delivery=delivered)
        total += len(run)
        while len(made) > _AHEAD:
            made.poll(0.01)
    made.flush()
    if failed:
        raise KafkaException(failed[0])
    return total
