"""What a broker for tests is configured with: one node that is everything, small, and quick to tidy up.

Invariant: a value of the user's own wins over one from here.

>>> made = properties("/tmp/b", Ports(19092, 19093, 19094), settings={"num.partitions": "3"})
>>> made["listeners"].split(",")[1], made["num.partitions"], made["offsets.topic.replication.factor"]
('SASL://127.0.0.1:19093', '3', '1')
>>> print(text({"log.dirs": "C:\\\\data"}), end="")
log.dirs=C:\\\\data

There are two doors. The first lets everyone in and allows everything. The second asks for a name and a password
(SASL/PLAIN): `alice` may do everything, `mallory` nothing until an access rule lets her.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["HOST", "LOGGING", "USERS", "Ports", "properties", "text"]

HOST: Final = "127.0.0.1"
USERS: Final[Mapping[str, str]] = {"alice": "wonderland", "mallory": "sesame"}
"""The passwords of the second door."""

LOGGING: Final = """
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c{1})%n
"""
"""What Kafka says, as settings of Log4j."""

_ALONE: Final = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""Kafka's own topics, on one node."""

_AT_ONCE: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
"""What Kafka does in the background comes within a second, where it would take minutes; and a broker that was killed
is let in again when its old session is over, two seconds after, not nine."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the broker listens: for everyone, for those with a password, and for itself."""

    plain: int
    sasl: int
    controller: int


def properties(folder: str, ports: Ports, *, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the broker's settings; its data is in `folder`."""
    doors = {"PLAINTEXT": ports.plain, "SASL": ports.sasl, "CONTROLLER": ports.controller}
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "log.dirs": f"{folder}/data",
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in doors.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
        **_ALONE,
        **_AT_ONCE,
        **settings,
    }


def text(settings: Mapping[str, str]) -> str:
    """Return settings as a Java properties file."""
    quoted = {name: str(value).replace("\\", "\\\\").replace("\n", "\\n") for name, value in settings.items()}
    return "".join(f"{name}={value}\n" for name, value in quoted.items())
