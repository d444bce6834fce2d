"""What tests of flows need and a laptop lacks: a real Kafka broker, and a log that is served over TCP.

Invariant: importing it starts nothing and loads neither pytest nor a Kafka client.

>>> from tidegauge.testing import KafkaBroker, kafka_broker
>>> KafkaBroker().running
False

`KafkaBroker` is one broker of your own, `KafkaCluster` three of them, each with a copy of everything. `kafka_broker`,
imported into a `conftest.py`, is the fixture: one broker for a whole test run; each test gets its `Endpoint`.
`LogServer` is what a `SocketSource` reads, in a thread of your test.
"""

from typing import TYPE_CHECKING, Any

from tidegauge.testing.broker import KafkaBroker
from tidegauge.testing.cluster import KafkaCluster
from tidegauge.testing.endpoint import Endpoint
from tidegauge.testing.log_server import LogServer

if TYPE_CHECKING:
    from tidegauge.testing.fixtures import kafka_broker

__all__ = ["Endpoint", "KafkaBroker", "KafkaCluster", "LogServer", "kafka_broker"]


def __getattr__(name: str) -> Any:
    """Load pytest with the fixture, and not before."""
    if name == "kafka_broker":
        from tidegauge.testing.fixtures import kafka_broker

        return kafka_broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
