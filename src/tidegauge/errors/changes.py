"""TG-0454 to TG-0459 and TG-0465: messages that are changes of rows by key."""

from __future__ import annotations

from tidegauge.errors.base import Definite

__all__ = [
    "BadKeyWithdrawn",
    "ChangeUnreadable",
    "KeyUnreadable",
    "MessageWithoutKey",
    "NoChangeRecords",
    "TableTruncated",
    "ValueUnavailable",
]

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
    """A tombstone for a key that is missing or cannot be decoded: it takes back the bad values of that key."""

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


class ValueUnavailable(Definite):
    """A row that has Debezium's placeholder for a value that the database did not send."""

    code = "TG-0458"
    what = (
        "the message at position {position} of {partition!r} lacks the value of column {column}: it has Debezium's "
        "placeholder in its place"
    )
    cause = (
        "PostgreSQL does not log a large value (TOAST) that an UPDATE leaves unchanged, unless the table has REPLICA "
        "IDENTITY FULL"
    )
    remedy = (
        "set REPLICA IDENTITY FULL, or use Debezium's ReselectColumnsPostProcessor, and read a topic whose snapshot "
        "was made since; or leave the column out of the format; or keep the changes as rows, with envelope='cdc': "
        "each as a source of another name. To pass over this message alone, so that its key keeps its row: "
        "tidegauge skip FLOW SOURCE {partition} {position} END"
    )


class NoChangeRecords(Definite):
    """A schema that is not that of Debezium's records, for a source whose messages are to be such."""

    code = "TG-0465"
    what = "the columns of the messages are not those of Debezium's records: {detail}"
    cause = (
        "a topic without Debezium's envelope (its transform ExtractNewRecordState takes it off), or the schema of "
        "the rows where that of the whole record is wanted"
    )
    remedy = "read flattened records with envelope='upsert', or give the format the schema of the whole record"


class TableTruncated(Definite):
    """A TRUNCATE, which takes all rows of a table away, and names no key."""

    code = "TG-0459"
    what = "the message at position {position} of {partition!r} says that all rows of the table are gone (TRUNCATE)"
    cause = "somebody truncated the table upstream, and the connector's skipped.operations does not leave out t"
    remedy = (
        "read what comes after it as a source of another name, with start= the time of the TRUNCATE, into another "
        "table. To pass over it, so that the rows stay: tidegauge skip FLOW SOURCE {partition} {position} END"
    )
