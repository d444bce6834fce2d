"""A real Kafka broker that a program has for itself: one node, on free ports of this machine, gone with the program.

Invariant: the broker and its folder are there as long as this process, and no longer, however it ends. What the
broker acknowledged outlives `stop`, `kill` and `restart`, and so do its ports.

    with KafkaBroker() as broker:
        broker.create_topic("orders", partitions=4)
        Producer({"bootstrap.servers": broker.servers}).produce("orders", b"...")

It needs Java 17 and nothing else that is not there: Kafka comes from Maven Central, once (`jars.py`).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from tidegauge.engine.spark.session import check_java
from tidegauge.errors.testing import BrokerDidNotStart, BrokerNotRunning
from tidegauge.kafka.clients import kafka
from tidegauge.processes import LOG, Kept
from tidegauge.testing.endpoint import Endpoint, asked_of_java, quiet
from tidegauge.testing.jars import class_path
from tidegauge.testing.properties import HOST, LOGGING, Ports, properties, text

__all__ = ["KafkaBroker", "cluster_name", "free_ports"]

_STOPS_WITHIN: Final = 30.0
_PORTS: Final = range(12_000, 32_000)
"""Below those that systems give to clients: nobody takes a port while the broker is down."""
_JAVA: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""A broker lives for minutes: what Java would compile better later costs more than it gives. It leaves no traces."""
_SHOWN: Final = 20
"""Lines of the log that an error shows."""


def free_ports() -> Ports:
    """Return three ports where nobody listens."""
    found: list[int] = []
    while len(found) < 3:
        port = random.choice(_PORTS)  # noqa: S311
        with socket.socket() as one:
            if port not in found and one.connect_ex((HOST, port)) != 0:
                found.append(port)
    return Ports(*found)


def cluster_name(unique: uuid.UUID) -> str:
    """Return a cluster's name. One that begins with `-` Kafka's tool would take for an option.

    >>> cluster_name(uuid.UUID(int=0xF8 << 120))
    '_AAAAAAAAAAAAAAAAAAAAA'
    """
    return urlsafe_b64encode(unique.bytes).decode().rstrip("=").replace("-", "_")


class KafkaBroker:
    """One broker, started by `with` or `start`.

    settings: of Kafka's `server.properties`.
    heap: how much memory Java takes for its objects, in Java's words.
    within: how many seconds a start may take.
    cluster: the name of the cluster that it is of, one of its own unless given; `KafkaCluster` makes several of one.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        heap: str = "512m",
        within: float = 60.0,
        cluster: str | None = None,
    ) -> None:
        self.settings = dict(settings or {})
        self.cluster = cluster or cluster_name(uuid.uuid4())
        self.heap = heap
        self.within = within
        self.pid = -1
        self.ports = free_ports()
        self._kept: Kept | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    @property
    def endpoint(self) -> Endpoint:
        """Where the broker is, as a value."""
        return Endpoint(f"{HOST}:{self.ports.plain}", f"{HOST}:{self.ports.sasl}")

    @property
    def servers(self) -> str:
        """What a client's `bootstrap.servers` takes."""
        return self.endpoint.servers

    @property
    def sasl_servers(self) -> str:
        """The same for the door that asks for a name and a password."""
        return self.endpoint.sasl_servers

    @property
    def running(self) -> bool:
        """Whether the broker's process is there, paused or not."""
        return self._kept is not None and self._kept.running

    @property
    def folder(self) -> Path | None:
        """Where its data and its `log` are, from the first start on."""
        return self._kept.folder if self._kept else None

    def sasl(self, user: str, *, password: str | None = None) -> dict[str, str]:
        """Return a client's settings for the second door: `alice` may do everything, `mallory` nothing."""
        return self.endpoint.sasl(user, password=password)

    def admin(self) -> Any:
        """Return an `AdminClient` that may do everything."""
        return self.endpoint.admin()

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Make a topic, wait until it can be written, and return its name. Raises `TopicNotReady`."""
        return self.endpoint.create_topic(name, partitions=partitions, config=config)

    def allow(self, user: str, operation: str, name: str, *, kind: str = "topic") -> None:
        """Let a user of the second door `read`, `write` or `describe` a topic, or a `group`."""
        self.endpoint.allow(user, operation, name, kind=kind)

    def run_tool(self, tool: str, *arguments: str, timeout: float = 120.0) -> str:
        """Run one of Kafka's own command-line tools, see `Endpoint.run_tool`."""
        return self.endpoint.run_tool(tool, *arguments, timeout=timeout)

    def start(self) -> None:
        """Begin to serve, on the ports and the data as before if it had some; return when it answers.

        Raises `BrokerDidNotStart`, and what it takes to have Kafka: `JavaMissing`, `JarsNotFetched`, `WrongJar`,
        `KafkaMissing`.
        """
        if self.running:
            return
        first = self._kept is None
        try:
            self._serve(self._kept)
        except BaseException:
            if first:  # there is nothing to be kept for another start
                self.close()
            raise

    def stop(self) -> None:
        """End the broker in order; it can be started again and has what it had."""
        self._tell("stop", "end", signal.SIGTERM, _STOPS_WITHIN)

    def kill(self) -> None:
        """End the broker at once (SIGKILL); it can be started again and has what it acknowledged."""
        self._tell("be killed", "end", signal.SIGKILL, _STOPS_WITHIN)

    def restart(self) -> None:
        """Stop, and start on the same data and the same ports."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Let the broker stand still (SIGSTOP): connections stay, nothing is answered."""
        self._tell("pause", "signal", signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused broker go on."""
        self._tell("resume", "signal", signal.SIGCONT)

    def close(self) -> None:
        """Kill the broker and remove its files, whoever else holds it."""
        if self.running:
            self.kill()
        folder = self.folder
        self.leave()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def leave(self) -> None:
        """Let go of the broker: it ends when nobody else holds it (`shared`)."""
        if self._kept is not None:
            self._kept.leave()
        self._kept, self.pid = None, -1

    def _serve(self, kept: Kept | None) -> None:
        kafka()
        java = [check_java(who="a Kafka broker"), f"-Xmx{self.heap}", *_JAVA, *asked_of_java(os.environ)]
        programs = ["-cp", class_path()]
        if kept is None:
            self._kept = kept = Kept("tidegauge-kafka-")
            (kept.folder / "log4j2.properties").write_text(LOGGING)
            self._format(kept, [*java, *programs])
        java += [f"-Dlog4j2.configurationFile={kept.folder}/log4j2.properties", f"-Djava.io.tmpdir={kept.folder}"]
        said = (kept.folder / LOG).stat().st_size
        self.pid = kept.ask("start", *java, *programs, "kafka.Kafka", self._configured(kept.folder))
        self._wait(kept, said)

    def _configured(self, folder: Path) -> str:
        file = folder / "server.properties"
        file.write_text(text(properties(str(folder), self.ports, settings=self.settings)))
        return str(file)

    def _format(self, kept: Kept, java: list[str]) -> None:
        """Make an empty data folder with the cluster's name in it."""
        tool = ["kafka.tools.StorageTool", "format", "-t", self.cluster, "-c", self._configured(kept.folder)]
        if (status := kept.ask("run", *java, *tool)) != 0:
            raise self._failed(kept, f"could not be set up (status {status})", 0)

    def _wait(self, kept: Kept, said: int) -> None:
        """Wait until the broker answers; `said` is how much its log had before."""
        deadline = time.monotonic() + self.within
        admin = kafka("confluent_kafka.admin").AdminClient(quiet(self.servers))
        failed = kafka().KafkaException
        while True:
            try:
                if admin.list_topics(timeout=0.5).brokers:
                    return
            except failed:
                pass
            if not kept.running:
                raise self._failed(kept, "ended before it answered", said)
            if time.monotonic() > deadline:
                self.kill()
                raise self._failed(kept, f"did not answer within {self.within:g} seconds", said)

    def _failed(self, kept: Kept, how: str, said: int) -> BrokerDidNotStart:
        log = (kept.folder / LOG).read_bytes()[said:].decode(errors="replace")
        return BrokerDidNotStart(servers=self.servers, how=how, log="\n".join(log.splitlines()[-_SHOWN:]))

    def _tell(self, what: str, *command: Any) -> None:
        if self._kept is None or not self._kept.running:
            raise BrokerNotRunning(servers=self.servers, what=what)
        self.pid = self._kept.ask(*command)
