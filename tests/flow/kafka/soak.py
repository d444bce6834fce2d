"""A soak: a steady producer, a broker and drivers that are killed again and again, and three tables at the end.

Run as a program (`make soak`) it takes ten minutes. It ends when everything is read that was produced: every record
of the topic is in each of the three tables exactly once, and every record that the broker acknowledged is in the
topic.

What the topic has is the truth, and Kafka's promise for it is this. A broker that is killed (SIGKILL) has given what
it acknowledged to the operating system, which keeps it: nothing of it is lost, though the broker has only one copy
and does not wait for the disk. A crash of the whole machine could lose what was not yet on the disk; that is what
more copies are for, and is not played here. A producer that is idempotent sends again what was not acknowledged,
without doubling it.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Producer, TopicPartition
from tests.flow.kafka.driving import Drivers, Shop, numbers
from tests.flow.kafka.upstream import consumed

import tidegauge as tg
from tidegauge.kafka.clients import kafka
from tidegauge.kafka.cluster import split
from tidegauge.testing import KafkaBroker
from tidegauge.testing.endpoint import quiet

PARTITIONS = 4
OUTPUTS = ("parquet", "delta", "tagged")
LIFE = (1.0, 4.0)
"""Seconds between two kills of a driver."""
CALM = (5.0, 10.0)
"""Seconds between a start of the broker and its next kill."""
DOWN = (0.0, 2.0)
"""Seconds for which it stays down, besides those that its start takes."""

Row = tuple[int, int, int]
"""A partition, an offset, a number."""


@dataclass(frozen=True)
class Soaked:
    """What happened: how many records were produced, were acknowledged, are in the topic; how many kills there were.

    doubled: how many records the topic has twice.
    """

    produced: int
    acknowledged: int
    records: int
    doubled: int
    drivers: int
    brokers: int
    epochs: int


class Feed:
    """Produces numbered records at a steady rate, whatever becomes of the broker, until it is stopped."""

    def __init__(self, servers: str, topic: str, *, rate: float) -> None:
        self.topic = topic
        self.rate = rate
        self.produced = 0
        self.acknowledged: set[int] = set()
        self.refused: list[str] = []
        sure = {"acks": "all", "enable.idempotence": "true", "message.timeout.ms": "0", "linger.ms": "5"}
        self._producer = Producer(quiet(servers, **sure))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Stop, and wait until all that was produced is acknowledged."""
        self._over.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        assert not self.refused, self.refused[:5]

    def _run(self) -> None:
        began = time.monotonic()
        while not self._over.wait(0.05):
            while self.produced < (time.monotonic() - began) * self.rate:
                self._send(self.produced)
                self.produced += 1
            self._producer.poll(0)

    def _send(self, n: int) -> None:
        def heard(error: KafkaError | None, _message: Any) -> None:
            if error is None:
                self.acknowledged.add(n)
            else:
                self.refused.append(f"{n}: {error}")

        self._producer.produce(self.topic, b'{"n": %d}' % n, partition=n % PARTITIONS, on_delivery=heard)


class Outages:
    """Kills the broker at random instants and starts it again, until it is stopped."""

    def __init__(self, broker: KafkaBroker, chance: random.Random) -> None:
        self.count = 0
        self._broker = broker
        self._chance = chance
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="outages", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Stop; the broker is there."""
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._over.wait(self._chance.uniform(*CALM)):
                self._broker.kill()
                self.count += 1
                self._over.wait(self._chance.uniform(*DOWN))
                self._broker.start()
        except BaseException as error:
            self._error = error


def soak(
    broker: KafkaBroker,
    drivers: Drivers,
    root: Path,
    *,
    seconds: float,
    rate: float,
    seed: int,
    say: Callable[[str], None] = print,
) -> Soaked:
    """Play so many seconds, then let everything come to rest, and compare. Raises `AssertionError`."""
    chance = random.Random(seed)
    topic = broker.create_topic(f"soak-{uuid.uuid4().hex[:8]}", partitions=PARTITIONS)
    shop = Shop(
        root=str(root), name="soak", servers=broker.servers, topic=topic, outputs=OUTPUTS, split=100, tick=0.25
    )
    feed = Feed(broker.servers, topic, rate=rate)
    outages = Outages(broker, random.Random(chance.random()))
    kills, end = 0, time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0:
            pid = drivers.start(shop, until=None)
            drivers.wait(min(left, chance.uniform(*LIFE)))
            how = drivers.kill(pid)
            assert how.killed, (
                f"seed {seed}: a driver ended by itself ({how.code}): {drivers.log.read_text()[-4000:]}"
            )
            kills += 1
    finally:
        outages.finish()
    feed.finish()
    say(f"{feed.produced} records, {kills} drivers and {outages.count} brokers killed")
    drivers.start(shop)
    how = drivers.ended()
    assert not how.killed
    assert not how.code, f"seed {seed}: {drivers.log.read_text()[-4000:]}"
    truth = _topic(broker, topic)
    counts = Counter(n for _, _, n in truth)
    assert not (lost := sorted(feed.acknowledged - counts.keys())), (
        f"seed {seed}: acknowledged, not there: {lost[:20]}"
    )
    flow = shop.flow()
    for output in OUTPUTS:
        _compare(output, truth, _table(flow, output), seed=seed)
    doubled = sum(count - 1 for count in counts.values())
    epochs = tg.status(flow).published
    return Soaked(feed.produced, len(feed.acknowledged), len(truth), doubled, kills, outages.count, epochs)


def _topic(broker: KafkaBroker, topic: str) -> list[Row]:
    admin, spec = broker.admin(), kafka("confluent_kafka.admin").OffsetSpec
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    answers = admin.list_offsets(dict.fromkeys(places, spec.latest()), request_timeout=30)
    ends = [answers[place].result(30).offset for place in places]
    return sorted((*place, n) for place, n in consumed(broker.servers, topic, [0] * PARTITIONS, ends).items())


def _table(flow: tg.Dataflow, output: str) -> list[Row]:
    table = tg.read_arrow(flow, output)
    partitions = (split(name)[1] for name in table.column("_partition").to_pylist())
    offsets, found = table.column("_offset").to_pylist(), numbers(output, table).to_pylist()
    return sorted(zip(partitions, offsets, found, strict=True))


def _compare(output: str, truth: list[Row], found: list[Row], *, seed: int) -> None:
    if found == truth:
        return
    there, want = Counter(found), Counter(truth)
    missing, more = sorted((want - there).elements()), sorted((there - want).elements())
    raise AssertionError(
        f"seed {seed}: {output} lacks {len(missing)} records, such as {missing[:10]}, and has {len(more)} that it "
        f"should not have or has twice, such as {more[:10]} (partition, offset, number)"
    )


def main() -> None:
    """Play it with a broker of its own, and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=400.0, help="records a second")
    parser.add_argument("--seed", type=int, default=None, help="of the instants of death; printed when not given")
    given = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if given.seed is None else given.seed
    print(f"seed {seed}, {given.seconds:g} seconds, {given.rate:g} records a second", flush=True)
    with tempfile.TemporaryDirectory(prefix="tidegauge-soak-") as folder, KafkaBroker() as broker:
        root = Path(folder, "flow")
        root.mkdir()
        with Drivers(Path(folder, "drivers.log")) as drivers:
            print(soak(broker, drivers, root, seconds=given.seconds, rate=given.rate, seed=seed))


if __name__ == "__main__":
    main()
