"""What Kafka says is wrong, as an error that says what to change: in one place, for all who talk to a broker.

All of them are transient. A broker that does not answer, refuses us or does not know a topic is put right on its side
as often as on ours, and nothing is lost meanwhile; definite failures (a topic that was deleted, records that are
gone) are decided where the bindings are known.

Invariant: no error quotes a setting's value but the servers.

>>> told(22, "Broker: Topic authorization failed", servers="here:9092", doing="read orders").code
'TG-0816'
>>> told(29, "Broker: Topic authorization failed", servers="here:9092", doing="read orders").code
'TG-0808'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tidegauge.errors.base import Transient
from tidegauge.errors.kafka import (
    BrokerForbids,
    BrokerRefusesUs,
    BrokerTooOld,
    BrokerUnreachable,
    KafkaFailed,
    SettingInvalid,
    TopicUnknown,
)

__all__ = ["ALL_DOWN", "REFUSALS", "TIMED_OUT", "UNKNOWN_TOPIC", "explained", "number", "told", "unanswered"]

# Numbers of librdkafka (below 0) and of the protocol, so that nothing is imported to know them.
ALL_DOWN: Final = -187
UNKNOWN_TOPIC: Final = frozenset({3, -188, 100})
"""The topic does not exist; or, of a partition that was just deleted, its topic's id does not."""
TIMED_OUT: Final = -185
REFUSALS: Final = frozenset({-169, -181, 33, 34, 58})
"""The client and the broker do not come to terms: authentication, SSL, SASL."""

_TOOK: Final = re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)")
"""What differs from one attempt to the next: an error that stays the same reads the same."""

_NO_WAY: Final = (-195, -193)
_UNREACHABLE: Final = frozenset({-195, -187, -193, -185, -166, 8, 13})
_FORBIDDEN: Final = frozenset({29, 30, 31, 53, 65})
_OLD: Final = frozenset({-165, 35, 43})
_SETTINGS: Final = frozenset({-186})


def number(error: object) -> int:
    """Return the number of a `KafkaException` or a `KafkaError`, 0 for any other object."""
    found = _kafka_error(error)
    return 0 if found is None else int(found.code())


def _kafka_error(error: object) -> Any:
    found = next(iter(getattr(error, "args", ())), error)
    return found if callable(getattr(found, "code", None)) else None


def unanswered(heard: Mapping[int, str], otherwise: str) -> str:
    """Return why nobody answers, of what a client has heard: the last connection's trouble, or that all are down."""
    return next((heard[code] for code in (*_NO_WAY, ALL_DOWN) if code in heard), otherwise)


def explained(error: object, *, servers: str, doing: str, topics: tuple[str, ...] = ()) -> Transient:
    """Return a `KafkaException`, or a `KafkaError`, as an error of ours. `doing` completes "to ..."."""
    found = _kafka_error(error)
    if found is None:
        return KafkaFailed(servers=servers, doing=doing, detail=f"{type(error).__name__}: {error}")
    return told(found.code(), found.str(), servers=servers, doing=doing, topics=topics)


def told(code: int, detail: str, *, servers: str, doing: str, topics: tuple[str, ...] = ()) -> Transient:
    """Return the error for one of Kafka's numbers and the text that came with it."""
    said = _TOOK.sub("", " ".join(detail.split()))
    if code in REFUSALS:
        return BrokerRefusesUs(servers=servers, detail=said)
    if code in _UNREACHABLE:
        return BrokerUnreachable(servers=servers, detail=said)
    if code in UNKNOWN_TOPIC:
        return TopicUnknown(servers=servers, topics=list(topics) or [doing])
    if code in _SETTINGS:
        return SettingInvalid(detail=said)
    kinds: Mapping[type[Transient], frozenset[int]] = {BrokerForbids: _FORBIDDEN, BrokerTooOld: _OLD}
    for kind, codes in kinds.items():
        if code in codes:
            return kind(servers=servers, doing=doing, detail=said)
    return KafkaFailed(servers=servers, doing=doing, detail=f"{said} ({code})")
