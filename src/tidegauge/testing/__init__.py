"""What tests of flows and connectors need: a real Kafka broker, a log that is served over TCP, a clock moved by hand.

Invariant: importing it starts nothing, and loads neither pytest nor a Kafka client, nor anything else before its use.

>>> from tidegauge.testing import KafkaBroker, kafka_broker
>>> KafkaBroker().running
False

`KafkaBroker` is one broker of your own, `KafkaCluster` three of them, each with a copy of everything. `LogServer` is
a log for a `SocketSource` to read, in a thread of your test. `HandClock` is a clock for flows that you move.
`simulate` runs a whole flow of yours from a seed. The package is a plugin of pytest, too (`testing.plugin`), with
fixtures: `kafka_broker` is one broker for a whole test run; each test gets its `Endpoint`.
"""

from typing import TYPE_CHECKING

from tidegauge.lazy import names

if TYPE_CHECKING:
    from tidegauge.testing.broker import KafkaBroker as KafkaBroker
    from tidegauge.testing.cluster import KafkaCluster as KafkaCluster
    from tidegauge.testing.endpoint import Endpoint as Endpoint
    from tidegauge.testing.fixtures import kafka_broker as kafka_broker
    from tidegauge.testing.hand_clock import HandClock as HandClock
    from tidegauge.testing.log_server import LogServer as LogServer
    from tidegauge.testing.simulation import carry_out as carry_out
    from tidegauge.testing.simulation import replay as replay
    from tidegauge.testing.simulation import simulate as simulate
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "broker": "KafkaBroker",
            "cluster": "KafkaCluster",
            "endpoint": "Endpoint",
            "fixtures": "kafka_broker",
            "hand_clock": "HandClock",
            "log_server": "LogServer",
            "simulation": "carry_out replay simulate",
        },
    )
