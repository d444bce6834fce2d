"""The throughput of `kafka` over 20 million messages, one turn; filling the topic alone takes minutes."""

from __future__ import annotations

from benchmarks.figures import Figure
from benchmarks.kafka.throughput import PARTITIONS, turns
from benchmarks.kafka.topics import filled
from benchmarks.room import Room
from tidegauge.testing import KafkaBroker

__all__ = ["measure"]


def measure(room: Room) -> list[Figure]:
    """Measure one turn on a broker of its own."""
    with KafkaBroker() as broker:
        sizes = room.size(20_000_000, 40_000), room.size(200_000, 10_000)
        topic, few, rows = filled(broker.endpoint, *sizes, partitions=PARTITIONS)
        return turns(room, broker.endpoint, topic, few, rows, times=1)
