"""From Kafka to tables, on a broker of its own, beside Structured Streaming and bytewax; nine minutes.

- `reading`: what a core reads of one partition.
- `probing`: what a tick costs that looks at many partitions.
- `latency`: how old records are when they are visible.
- `epoch`: the fixed cost of an epoch.
- `throughput`: rows a second into one table and into three.
- `producing`: rows a second into a topic.
- `memory`: what the tasks need while they read a backlog.

The broker is the one of `tidegauge.testing`, on this machine; whoever is measured shares the cores with it.
"""

from benchmarks.figures import Figure
from benchmarks.kafka import epoch, latency, memory, probing, producing, reading, throughput
from benchmarks.room import Room
from tidegauge.testing import KafkaBroker

__all__ = ["measure"]


def measure(room: Room) -> list[Figure]:
    """Measure it all on one broker, in about nine minutes."""
    figures: list[Figure] = []
    with KafkaBroker() as broker:
        for part in (reading, probing, latency, epoch, throughput, producing, memory):
            room.say(part.__name__.rpartition(".")[2])
            figures += part.measure(room, broker.endpoint)
    return figures
