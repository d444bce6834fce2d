"""Committing offsets for a group, so that Kafka's own tools show how far a flow is. They decide nothing here.

The group is never joined: a consumer that has no partitions commits for it. (An admin client could, too, but its
requests about groups end the process when a broker goes away meanwhile: librdkafka asserts.)

Invariant: an offset that is committed is never beyond the frontier that was given, and what a group has committed
never goes back: not with a new driver, nor when an output is added that lags behind. The group's offsets are read for
that, and for nothing else.

>>> forward({"t-0": 5, "t-1": 2, "t-2": 0}, {"t-0": 7, "t-1": 1})
{'t-1': 2}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidegauge.errors.base import brief
from tidegauge.kafka import cluster
from tidegauge.kafka.clients import Client, kafka
from tidegauge.kafka.failures import UNKNOWN_TOPIC, explained, number

__all__ = ["commit", "forward", "lacking"]

_PATIENCE: Final = 3.0
"""Seconds for the group's offsets: who acknowledges waits for it, and can do so later."""
_NONE: Final = -1001


def forward(frontier: Mapping[str, int], committed: Mapping[str, int]) -> dict[str, int]:
    """Return the offsets of a frontier that are beyond the committed ones."""
    return {partition: offset for partition, offset in frontier.items() if offset > committed.get(partition, 0)}


def commit(client: Client, group: str, frontier: Mapping[str, int], *, servers: str) -> None:
    """Commit the offsets of a frontier for a group, whose consumer is given.

    Raises what `tidegauge.kafka` raises, all of it transient.
    """
    if not frontier:
        return
    library = kafka()
    doing = f"commit offsets for the group {group}"
    try:
        committed = _committed(client, frontier)
        if not (ahead := forward(frontier, committed)):
            return
        for place in client.handle.commit(offsets=_places(library, ahead), asynchronous=False):
            if (
                place.error is not None and number(place.error) not in UNKNOWN_TOPIC
            ):  # who has read it needs no offset
                raise explained(place.error, servers=servers, doing=doing, topics=(place.topic,))
    except library.KafkaException as error:
        raise explained(error, servers=servers, doing=doing) from None


def lacking(client: Client, group: str, frontier: Mapping[str, int], *, servers: str) -> str:
    """Return for people which part of a frontier is not committed for a group, and why not, if the broker says it.

    Raises nothing of Kafka's: that nobody can tell is what people are told then.
    """
    if not frontier:
        return ""
    doing = f"read the offsets of the group {group}"
    try:
        ahead = forward(frontier, _committed(client, frontier))
    except kafka().KafkaException as error:
        # One that may not know of its group waits in vain for who keeps it, and is told why beside that.
        said = client.handle.poll(0)
        beside = None if said is None else said.error()
        return brief(explained(error if beside is None else beside, servers=servers, doing=doing))
    if not ahead:
        return ""
    some = f"{len(ahead)} of {len(frontier)} partitions"
    return f"the group {group} has not committed what is published of {some}; it may lack READ on the group"


def _committed(client: Client, frontier: Mapping[str, int]) -> dict[str, int]:
    known = client.handle.committed(_places(kafka(), dict.fromkeys(frontier, _NONE)), _PATIENCE)
    return {cluster.partition(p.topic, p.partition): p.offset for p in known if p.error is None}


def _places(library: Any, offsets: Mapping[str, int]) -> list[Any]:
    return [library.TopicPartition(*cluster.split(name), offset) for name, offset in offsets.items()]
