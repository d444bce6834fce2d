"""What a task holds of messages is bounded in bytes, whatever they weigh and whatever follows what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pytest
from confluent_kafka import Producer

import tidegauge as tg
from tidegauge.kafka import Settings
from tidegauge.sources import KafkaSource
from tidegauge.sources.kafka import reading
from tidegauge.sources.kafka.planning import Range
from tidegauge.sources.kafka.reading import messages
from tidegauge.testing import Endpoint
from tidegauge.testing.endpoint import quiet

Message = dict[str, Any]
PLACES = ("value", "key", "headers")


def message(n: int, place: str, size: int) -> Message:
    """A message that has its number as its value, and so many bytes somewhere."""
    made: Message = {"value": b'{"n": %d}' % n}
    weight = os.urandom(size // 2).hex().encode()
    if place == "value":
        return {"value": b'{"n": %d, "x": "%b"}' % (n, weight)}
    return made | ({"key": weight} if place == "key" else {"headers": [("h", weight)]})


def produce(broker: Endpoint, topic: str, of: Iterator[Message]) -> int:
    """Produce messages in order and return how many."""
    limits = {"message.max.bytes": "4000000", "queue.buffering.max.kbytes": "200000"}
    producer, count = Producer(quiet(broker.servers, **limits)), 0
    for count, one in enumerate(of, 1):  # noqa: B007
        while True:
            try:
                producer.produce(topic, partition=0, **one)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    return count


@pytest.mark.parametrize("place", PLACES)
def test_a_batch_is_full_by_bytes_wherever_they_are_and_each_message_is_in_one(
    place: str, kafka_broker: Endpoint, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"BATCH_BYTES": 100_000, "GULP_BYTES": 20_000}.items():
        monkeypatch.setattr(reading, name, value)
    sizes = [*[2] * 2000, *[20_000] * 200, *[2] * 2000, *[2, 20_000] * 20, 200_000, *[2] * 500]
    count = produce(kafka_broker, topic, (message(n, place, size) for n, size in enumerate(sizes)))
    source = KafkaSource(kafka_broker.servers, topic=topic, format=tg.Json("n long"))
    settings = Settings.of(kafka_broker.servers)
    bulks = list(messages(settings, "memory", [Range(f"{topic}-0", 0, count)], source._inquiry, headers=True))
    assert [json.loads(value or b"")["n"] for bulk in bulks for value in bulk.values] == list(range(count))
    heavy = [sum(size > 2 for size in sizes[bulk.offsets[0] : bulk.offsets[-1] + 1]) for bulk in bulks]
    assert sum(weight > 6 for weight in heavy) <= 5, "those of which it was not known"
    assert max(len(bulk) for bulk in bulks) <= reading.BATCH
    assert len(bulks) < 100


def few(count: int) -> Iterator[Message]:
    return (message(n, "value", 2) for n in range(count))


def many(place: str, count: int) -> Iterator[Message]:
    return (message(n, place, 1_000_000) for n in range(count))


MIXTURES: dict[str, Callable[[], Iterator[Message]]] = {
    "tiny, then huge": lambda: chain(few(12_000), many("value", 250)),
    "huge, then tiny": lambda: chain(many("value", 250), few(100_000)),
    "interleaved": lambda: chain.from_iterable(chain(few(20), many("value", 1)) for _ in range(250)),
    "keys": lambda: chain(few(30_000), many("key", 250), few(10), many("value", 20)),
    "headers": lambda: chain(few(30_000), many("headers", 250)),
    "small headers": lambda: (
        {"value": b"{}", "headers": [(f"h{i}", b"v") for i in range(2000)]} for _ in range(500)
    ),
}

READ = """
import json, sys
import tidegauge as tg
from tidegauge.sources.kafka.planning import KafkaSplit
from tidegauge.sources.kafka.planning import Range
servers, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
source = tg.KafkaSource(servers, topic=topic, format=tg.Json("n long, x string"), metadata=True)
split = KafkaSplit(epoch=0, ranges=(Range(f"{topic}-0", 0, count),), schema=source.schema)
rows = sum(batch.num_rows for batch in source.read(split, print))
"""

PEAK = """
print(json.dumps([rows, next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))]))
"""


def peak(program: str, *arguments: str) -> tuple[int, float]:
    """Run a program in a process of its own; return its rows, and its peak memory in MB."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json\n{program}{PEAK}", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows, line = json.loads(done.stdout.splitlines()[-1])
    return rows, int(line.split()[1]) * 1024 / 1e6


@pytest.mark.long
@pytest.mark.parametrize("mixture", MIXTURES)
def test_what_a_task_holds_of_messages_is_bounded_for_any_mixture(
    mixture: str, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(config={"max.message.bytes": "4000000"})
    count = produce(kafka_broker, topic, MIXTURES[mixture]())
    rows, most = peak(READ, kafka_broker.servers, topic, str(count))
    assert rows == count
    assert most < 300
