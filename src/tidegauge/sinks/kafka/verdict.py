"""What it means that a broker did not take a transaction, or a message: pure decisions.

>>> failed(90, "fenced", Facts("orders", "shop:orders:orders", lower=3, upper=5, elapsed=2.0, limit=60.0)).code
'TG-0861'
>>> failed(90, "fenced", Facts("orders", "shop:orders:orders", lower=3, upper=5, elapsed=61.0, limit=60.0)).code
'TG-0862'

When a broker refuses one message, others are lost with it: those of its batch, and those that were still to be sent.
They may be told first. What counts is the loss that weighs most.

>>> Loss(7, -152, "Purged in queue", size=9, partition=0, keyed=True).weight < (
...     Loss(3, 87, "Failed to validate record", size=2, partition=0, keyed=False).weight)
True
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
    WriteForbidden,
    WriterFenced,
)
from tidegauge.sinks.kafka.messages import MessageLayout

__all__ = ["Facts", "Loss", "failed", "refused", "says_nothing"]

# Numbers of the protocol, and of librdkafka below 0.
_TOO_LARGE: Final = frozenset({10, 18})
"""A message, or a batch of messages."""
_CONSEQUENCES: Final = frozenset({-138, -150, -151, -152, -172})
"""Lost with another message of its batch, or because the transaction had failed, or the producer for good."""
_FORBIDDEN: Final = frozenset({29, 31, 53})
_FENCED: Final = frozenset({-144, 47, 90})
_LAPSED: Final = frozenset({48, 49, 120, -150, -172})
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


@dataclass(frozen=True, slots=True)
class Loss:
    """A message that was not delivered: its epoch, why, its size in bytes, and its partition."""

    epoch: int
    code: int
    detail: str
    size: int
    partition: int
    keyed: bool

    @property
    def weight(self) -> tuple[int, int]:
        """How much it says of why the transaction failed.

        A batch with one bad message is refused as a whole, for one reason: it is its largest message that is too
        large, and one without a key where one is needed.
        """
        if says_nothing(self.code):
            return (0, 0)
        if self.code in _TOO_LARGE:
            return (1, self.size)
        return (1, int(self.code in _INVALID_RECORD and not self.keyed))


def says_nothing(code: int) -> bool:
    """Whether an error is only that there was another one before."""
    return code in _CONSEQUENCES


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
    if code in _FORBIDDEN:
        return WriteForbidden(topic=facts.topic, detail=detail)
    return TransactionFailed(topic=facts.topic, detail=f"{detail} ({code})")


def refused(
    layout: MessageLayout, epoch: int, code: int, detail: str, *, size: int, partition: int
) -> TidegaugeError | None:
    """Return the fault of a message that the broker will never take; None if the message is not at fault."""
    if code in _TOO_LARGE:
        return OutputMessageTooLarge(bytes=size, epoch=epoch, topic=layout.topic, detail=detail)
    if code in _UNKNOWN_PARTITION and layout.partition is not None:
        return PartitionUnknown(epoch=epoch, partition=partition, topic=layout.topic, column=layout.partition)
    if code in _INVALID_RECORD:
        return MessageRefused(epoch=epoch, topic=layout.topic, detail=detail)
    return None
