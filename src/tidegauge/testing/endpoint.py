"""A running broker as a client sees it: its addresses, and the requests between the lines of a test.

Invariant: it is a value. It may go to another process, and knows nothing of how the broker is run.

>>> broker = Endpoint("127.0.0.1:19092", "127.0.0.1:19093")
>>> broker.sasl("mallory")["sasl.password"], broker.sasl("alice", password="a guess")["sasl.password"]
('sesame', 'a guess')
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidegauge.engine.spark.session import check_java
from tidegauge.errors.testing import KafkaToolFailed, TopicNotReady
from tidegauge.kafka.clients import kafka
from tidegauge.testing.jars import class_path
from tidegauge.testing.properties import USERS

__all__ = ["Endpoint", "asked_of_java", "quiet"]

_WITHIN: Final = 30.0
_DEFAULT: Final = -1
"""As many copies as the broker makes by itself: one where it is alone."""
_SHOWN: Final = 4000
"""Characters of a tool's output that its error shows."""


def quiet(servers: str, **settings: str) -> dict[str, Any]:
    """Return a client's settings: it tries again soon, and prints nothing about a broker that is down."""
    again = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
    return {"bootstrap.servers": servers, "log_level": 0, "error_cb": _ignore, **again, **settings}


def asked_of_java(environ: Mapping[str, str]) -> list[str]:
    """Return the options for Java in `KAFKA_OPTS`, which Kafka's own scripts take too.

    >>> asked_of_java({"KAFKA_OPTS": "-Xshare:auto -Dwho=ada"}), asked_of_java({})
    (['-Xshare:auto', '-Dwho=ada'], [])
    """
    return environ.get("KAFKA_OPTS", "").split()


def _ignore(_error: object) -> None:
    """What the broker does not answer is seen where it is asked."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The two doors of a broker: one for everyone, one that asks for a name and a password."""

    servers: str
    sasl_servers: str

    def sasl(self, user: str, *, password: str | None = None) -> dict[str, str]:
        """Return a client's settings for the second door: `alice` may do everything, `mallory` nothing."""
        return {
            "bootstrap.servers": self.sasl_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user] if password is None else password,
        }

    def admin(self) -> Any:
        """Return an `AdminClient` that may do everything. Raises `KafkaMissing`."""
        return kafka("confluent_kafka.admin").AdminClient(quiet(self.servers))

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Make a topic, wait until every partition of it can be written, and return its name.

        Raises `TopicNotReady`.
        """
        client, admins, admin = kafka(), kafka("confluent_kafka.admin"), self.admin()
        topic = admins.NewTopic(
            name, num_partitions=partitions, replication_factor=_DEFAULT, config=dict(config or {})
        )
        wanted = {client.TopicPartition(name, number): admins.OffsetSpec.latest() for number in range(partitions)}
        deadline = time.monotonic() + _WITHIN
        try:
            admin.create_topics([topic], request_timeout=_WITHIN)[name].result(_WITHIN)
            while True:  # an offset is told by the partition's leader, which is what a writer needs
                try:
                    for answer in admin.list_offsets(wanted, request_timeout=_WITHIN).values():
                        answer.result(_WITHIN)
                except client.KafkaException:
                    if time.monotonic() > deadline:
                        raise
                else:
                    return name
        except (client.KafkaException, TimeoutError) as error:
            raise TopicNotReady(topic=name, detail=str(error)) from error

    def allow(self, user: str, operation: str, name: str, *, kind: str = "topic") -> None:
        """Let a user of the second door `read`, `write` or `describe` a topic, or a `group`."""
        admins, admin = kafka("confluent_kafka.admin"), self.admin()
        of, pattern = admins.ResourceType[kind.upper()], admins.ResourcePatternType.LITERAL
        what, allowed = admins.AclOperation[operation.upper()], admins.AclPermissionType.ALLOW
        rule = admins.AclBinding(of, name, pattern, f"User:{user}", "*", what, allowed)
        for answer in admin.create_acls([rule], request_timeout=_WITHIN).values():
            answer.result(_WITHIN)

    def run_tool(self, tool: str, *arguments: str, timeout: float = 120.0) -> str:
        """Run one of Kafka's own command-line tools by the name of its class; return what it prints.

        kafka-consumer-groups is `org.apache.kafka.tools.consumer.group.ConsumerGroupCommand`, and most take
        `--bootstrap-server`. Raises `KafkaToolFailed`.
        """
        command = [check_java(who="Kafka's own tool"), "-Xmx256m", "-XX:TieredStopAtLevel=1"]
        command += [*asked_of_java(os.environ), "-cp", class_path(), tool, *arguments]
        environ = {**os.environ, "LC_ALL": "C.UTF-8"}
        try:
            done = subprocess.run(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
                env=environ,
            )
        except subprocess.TimeoutExpired as error:
            raise _failed(tool, arguments, f"no answer in {timeout:g} seconds", str(error.output or "")) from error
        if done.returncode != 0:
            raise _failed(tool, arguments, f"status {done.returncode}", done.stdout + done.stderr)
        return done.stdout


def _failed(tool: str, arguments: tuple[str, ...], status: str, output: str) -> KafkaToolFailed:
    return KafkaToolFailed(tool=tool, arguments=" ".join(arguments), status=status, output=output[-_SHOWN:].strip())
