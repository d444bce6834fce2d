"""TG-0454 to TG-0457: messages that are changes of rows by key."""

from __future__ import annotations

from tidegauge.errors.base import Definite

__all__ = ["BadKeyWithdrawn", "ChangeUnreadable", "KeyUnreadable", "MessageWithoutKey"]

_COLLECTED = (
    "correct the producer, and write the source's errors stream to an output of its own, which collects such messages"
)


class MessageWithoutKey(Definite):
    """A message without a key, or with a null in it, in a source whose envelope goes by the key."""

    code = "TG-0454"
    what = "the message at position {position} of {partition!r} has no key: {detail}"
    cause = "a producer that sends no key, or a table without a primary key"
    remedy = _COLLECTED


class KeyUnreadable(Definite):
    """A key that its format does not understand, in a source whose envelope goes by the key."""

    code = "TG-0455"
    what = "the key of the message at position {position} of {partition!r} cannot be decoded: {detail}"
    cause = "a broken producer, or another format than key= declares"
    remedy = _COLLECTED


class BadKeyWithdrawn(Definite):
    """A tombstone for a key that is missing or cannot be decoded: it takes back what was bad under that key."""

    code = "TG-0456"
    what = "the message at position {position} of {partition!r} takes back the bad ones with the same bytes as key"
    cause = "a producer has deleted what it had sent with a bad key"
    remedy = "nothing: of the rows with these bytes as key in the errors stream, those before this one are settled"


class ChangeUnreadable(Definite):
    """A record that is no Debezium change: it lacks an operation that we know, or the row that this needs."""

    code = "TG-0457"
    what = "the message at position {position} of {partition!r} is no Debezium change: {detail}"
    cause = (
        "a topic without Debezium's envelope (its transform ExtractNewRecordState takes it off), or an operation "
        "other than c, r, u and d, such as a TRUNCATE"
    )
    remedy = (
        "read flattened records with envelope='upsert'; or write the source's errors stream to an output of its own, "
        "which collects such messages"
    )
