"""The topics that an output needs: that they are there and fit, or are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidegauge.env import Env
from tidegauge.errors.kafkasink import ProgressTopicUnfit
from tidegauge.kafka.clients import Client, kafka
from tidegauge.kafka.cluster import PATIENCE, Topic, described, gathered
from tidegauge.kafka.failures import explained
from tidegauge.kafka.settings import Settings

__all__ = ["check_progress_topic", "made"]

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
