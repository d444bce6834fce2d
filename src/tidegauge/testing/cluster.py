"""A real Kafka cluster of three that a program has for itself: what one broker cannot show, a test sees here.

Invariant: whichever one of the three is killed, the other two serve everything that was acknowledged. Every topic has
three copies, Kafka's own as well, a write is acknowledged by two of them (`min.insync.replicas`, for producers that
ask for `acks=all`), and each node is broker and controller at once, so two are a majority.

    with KafkaCluster() as cluster:
        cluster.create_topic("orders", partitions=6)
        cluster.nodes[1].kill()
        Producer({"bootstrap.servers": cluster.servers, "acks": "all"}).produce("orders", b"...")
        cluster.nodes[1].start()

>>> cluster = KafkaCluster()
>>> len(cluster.nodes), cluster.servers.count(","), [node.running for node in cluster.nodes]
(3, 2, [False, False, False])
>>> cluster.nodes[2].settings["node.id"], cluster.nodes[2].settings["min.insync.replicas"]
('3', '2')
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final, Self

from tidegauge.testing.broker import KafkaBroker, cluster_name
from tidegauge.testing.endpoint import Endpoint
from tidegauge.testing.properties import HOST

__all__ = ["KafkaCluster"]

_NODES: Final = 3
_COPIES: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


class KafkaCluster:
    """Three brokers, started by `with` or `start`. Each of `nodes` is a `KafkaBroker`, to be stopped and killed.

    settings: of Kafka's `server.properties`, for all three. heap: how much memory Java takes for the objects of each.
    within: how many seconds a start may take.
    """

    def __init__(
        self, *, settings: Mapping[str, str] | None = None, heap: str = "256m", within: float = 120.0
    ) -> None:
        name = cluster_name(uuid.uuid4())
        self.nodes = tuple(KafkaBroker(heap=heap, within=within, cluster=name) for _ in range(_NODES))
        numbered = dict(enumerate(self.nodes, 1))
        voters = ",".join(f"{number}@{HOST}:{node.ports.controller}" for number, node in numbered.items())
        for number, node in numbered.items():
            own = {"node.id": str(number), "controller.quorum.voters": voters}
            node.settings.update({**_COPIES, **own, **(settings or {})})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    @property
    def endpoint(self) -> Endpoint:
        """Where the three are, as a value."""
        ends = [node.endpoint for node in self.nodes]
        return Endpoint(",".join(end.servers for end in ends), ",".join(end.sasl_servers for end in ends))

    @property
    def servers(self) -> str:
        """What a client's `bootstrap.servers` takes: all three."""
        return self.endpoint.servers

    def leader(self, topic: str, partition: int = 0) -> KafkaBroker:
        """Return the node that leads a partition at present."""
        found = self.endpoint.admin().list_topics(topic, timeout=30).topics[topic].partitions[partition]
        return self.nodes[int(found.leader) - 1]

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Make a topic of three copies, wait until it can be written, and return its name."""
        return self.endpoint.create_topic(name, partitions=partitions, config=config)

    def run_tool(self, tool: str, *arguments: str, timeout: float = 120.0) -> str:
        """Run one of Kafka's own command-line tools, see `Endpoint.run_tool`."""
        return self.endpoint.run_tool(tool, *arguments, timeout=timeout)

    def admin(self) -> Any:
        """Return an `AdminClient` that may do everything."""
        return self.endpoint.admin()

    def start(self) -> None:
        """Begin to serve, all three at once, as one alone is no majority; return when each of them answers.

        Raises what `KafkaBroker.start` raises.
        """
        with ExitStack() as resources, ThreadPoolExecutor(_NODES) as threads:
            resources.callback(self.close)
            for started in [threads.submit(node.start) for node in self.nodes]:
                started.result()
            resources.pop_all()

    def close(self) -> None:
        """Kill the brokers and remove all they had."""
        for node in self.nodes:
            node.close()
