"""What it means that a broker did not take a transaction, or a message: pure decisions.

>>> failed(90, "fenced", Facts("orders", "shop:orders:orders", lower=3, upper=5, elapsed=2.0, limit=60.0)).code
'TG-0861'
>>> failed(90, "fenced", Facts("orders", "shop:orders:orders", lower=3, upper=5, elapsed=61.0, limit=60.0)).code
'TG-0862'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.kafkasink import (
    MessageRefused,
    OutputMessageTooLarge,
    PartitionUnknown,
    TransactionFailed,
    TransactionTooLong,
    WriterFenced,
)
from tidegauge.sinks.kafka.messages import Layout

__all__ = ["TOO_LARGE", "Facts", "failed", "refused"]

# Numbers of the protocol, and of librdkafka below 0.
TOO_LARGE: Final = frozenset({10, 18})
"""A message, or a batch of messages."""
_FENCED: Final = frozenset({-144, 47, 90})
_LAPSED: Final = frozenset({48, 49, 120, -172})
_UNKNOWN_PARTITION: Final = frozenset({-190})
_INVALID_RECORD: Final = frozenset({32, 44, 87})


@dataclass(frozen=True, slots=True)
class Facts:
    """A commit under way: the epochs `[lower, upper)` to a topic, for `elapsed` of at most `limit` seconds."""

    topic: str
    id: str
    lower: int
    upper: int
    elapsed: float
    limit: float


def failed(code: int, detail: str, facts: Facts) -> TidegaugeError:
    """Return what the failure of a transaction means.

    A broker that has waited too long gives the id to nobody in particular, and says the same as if a newer driver had
    it; only the time that has passed tells the two apart.
    """
    if facts.elapsed >= facts.limit and code in _FENCED | _LAPSED:
        return TransactionTooLong(
            lower=facts.lower, last=facts.upper - 1, topic=facts.topic, seconds=round(facts.limit, 1)
        )
    if code in _FENCED:
        return WriterFenced(id=facts.id)
    return TransactionFailed(topic=facts.topic, detail=f"{detail} ({code})")


def refused(
    layout: Layout, epoch: int, code: int, detail: str, *, size: int, partition: int
) -> TidegaugeError | None:
    """Return what is wrong with a message that the broker will never take; None when it is not the message."""
    if code in TOO_LARGE:
        return OutputMessageTooLarge(bytes=size, epoch=epoch, topic=layout.topic, detail=detail)
    if code in _UNKNOWN_PARTITION and layout.partition is not None:
        return PartitionUnknown(epoch=epoch, partition=partition, topic=layout.topic, column=layout.partition)
    if code in _INVALID_RECORD:
        return MessageRefused(epoch=epoch, topic=layout.topic, detail=detail)
    return None
