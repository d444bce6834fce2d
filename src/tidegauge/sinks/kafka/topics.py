"""The topics that an output needs: that they are there and fit, or are made, and the last progress record in them.

The progress topic has two ends. *As far as is known*: the last stable offset, where an open transaction hides
everything after it; that is for people who look. *The true end*: the end as readers of uncommitted messages see it,
asked for after older writers were fenced; nothing before it can change any more, and no record of ours is after it.
A driver that writes needs the second: another output's open transaction may hide our own last record from the
first.

Invariant: not having come to the end is an error (`ProgressUnreadable`), and never "no progress": that would write
everything again. A topic that has no records left is at its end at once, wherever its offsets begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidegauge.env import Env
from tidegauge.errors.kafkasink import ProgressTopicUnfit, ProgressUnreadable
from tidegauge.kafka.clients import Client, admin, consumer, kafka
from tidegauge.kafka.cluster import PATIENCE, Topic, described, gathered, offsets, partition
from tidegauge.kafka.failures import explained
from tidegauge.kafka.settings import Settings
from tidegauge.sinks.kafka.progress import ProgressRecord, Record, starts, step

__all__ = ["SCAN_PATIENCE", "check_progress_topic", "made", "scan"]

SCAN_PATIENCE: Final = 20.0
"""Seconds to come to the end."""

_EOF: Final = -191
_PASSING: Final = frozenset({-185, -187, -195, 30})
"""No broker at the moment; or that the group may not be joined, which nobody does."""


def scan(
    settings: Settings, topic: str, key: str, *, true_end: bool, env: Env, patience: float = SCAN_PATIENCE
) -> Any:
    """Return the `ProgressRecord` that the last record of a key says, or None when there is none.

    Raises `ProgressUnreadable`, `ProgressRegressed`, `DamagedProgress`, and errors of the broker.
    """
    place = [(topic, 0)]
    name = partition(topic, 0)
    servers = settings.servers
    with admin(settings) as client:
        low = offsets(client, place, "earliest", servers=servers).get(name)
        high = offsets(client, place, "latest", servers=servers, committed=not true_end).get(name)
    given_up = env.monotonic() + patience
    if low is None or high is None:
        raise ProgressUnreadable(topic=topic, position="its beginning", end="unknown", seconds=patience)
    wanted = key.encode()
    with consumer(settings, "tidegauge-progress", fetch_wait_max_ms=10, fetch_queue_backoff_ms=10) as client:
        for start in starts(low, high):
            found: ProgressRecord | None = None
            seen = False
            client.handle.assign([kafka().TopicPartition(topic, 0, start)])
            position = start
            while position < high:
                if env.monotonic() > given_up:
                    raise ProgressUnreadable(topic=topic, position=position, end=high, seconds=patience)
                for message in client.handle.consume(1000, 0.02):
                    error = message.error()
                    if error is None:
                        position = message.offset() + 1
                        if message.key() == wanted and message.offset() < high:
                            found = step(found, Record(message.offset(), message.value()), topic=topic)
                            seen = True
                    elif error.code() == _EOF:
                        position = max(position, message.offset())
                    elif error.code() not in _PASSING:
                        raise explained(kafka().KafkaException(error), servers=servers, doing=f"read {topic}")
            if seen:
                client.handle.unassign()
                return found
        client.handle.unassign()
    return None


_EXISTS: Final = 36
_POLICY: Final = "cleanup.policy"


def made(client: Client, settings: Settings, topic: str, *, partitions: int, compact: bool, env: Env) -> Topic:
    """Make a topic, or find that somebody just did, and return it once the broker knows it.

    Its replication factor is the broker's default.
    """
    config = {_POLICY: "compact"} if compact else {}
    new = kafka("confluent_kafka.admin").NewTopic(topic, num_partitions=partitions, config=config)
    doing = f"make the topic {topic!r}"
    asked = client.handle.create_topics([new], operation_timeout=PATIENCE, request_timeout=PATIENCE)
    error = gathered(client, asked, servers=settings.servers, doing=doing)[topic].exception()
    if error is not None and _code(error) != _EXISTS:
        raise explained(error, servers=settings.servers, doing=doing)
    given_up = env.monotonic() + PATIENCE
    while topic not in (found := described(client, [topic], servers=settings.servers)):
        if env.monotonic() > given_up:
            raise explained(
                TimeoutError("it was made, and is not seen"), servers=settings.servers, doing=doing, topics=(topic,)
            )
        env.sleep(0.05)
    return found[topic]


def check_progress_topic(client: Client, settings: Settings, topic: str, found: Topic) -> None:
    """Raise `ProgressTopicUnfit` for a topic that would forget the progress of an output, or mix it up.

    Where we are not allowed to ask for its settings, they are taken on trust.
    """
    if found.partitions != 1:
        raise ProgressTopicUnfit(topic=topic, problem=f"it has {found.partitions} partitions, not one")
    library = kafka("confluent_kafka.admin")
    resource = library.ConfigResource(library.ConfigResource.Type.TOPIC, topic)
    asked = client.handle.describe_configs([resource], request_timeout=PATIENCE)
    answer = gathered(client, asked, servers=settings.servers, doing=f"describe {topic}")[resource]
    if answer.exception() is not None:
        return
    config: Mapping[str, Any] = answer.result()
    policy = config[_POLICY].value if _POLICY in config else "compact"
    if policy != "compact":
        raise ProgressTopicUnfit(topic=topic, problem=f"its cleanup.policy is {policy!r}, which forgets old records")


def _code(error: BaseException) -> int:
    found: Any = error.args[0] if error.args else error
    return int(found.code()) if hasattr(found, "code") else 0
