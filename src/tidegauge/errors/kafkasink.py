"""TG-086x, TG-087x and TG-089x: writing to Kafka.

>>> print(TopicMissing(topic="orders", servers="localhost:9092"))
TG-0860: the topic 'orders' is not there on localhost:9092
  likely cause: its name is misspelt, or nobody has made it yet
  what to do:   make it with kafka-topics, or let the flow make it: KafkaSink(..., partitions=12)
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "ColumnUnfit",
    "DamagedProgress",
    "KeyMissing",
    "LastUndecided",
    "MessageRefused",
    "NotInJson",
    "OutputMessageTooLarge",
    "OutputTopicRecreated",
    "PartitionUnknown",
    "ProgressRegressed",
    "ProgressTopicUnfit",
    "ProgressUnreadable",
    "StagedMessagesMissing",
    "TimeUnfit",
    "TopicMissing",
    "TransactionFailed",
    "TransactionTimeoutRefused",
    "TransactionTooLong",
    "TransactionsRefused",
    "WriteForbidden",
    "WriterFenced",
]


class TopicMissing(TidegaugeError):
    """A topic to write to that is not there."""

    code = "TG-0860"
    what = "the topic {topic!r} is not there on {servers}"
    cause = "its name is misspelt, or nobody has made it yet"
    remedy = "make it with kafka-topics, or let the flow make it: KafkaSink(..., partitions=12)"


class WriterFenced(TidegaugeError):
    """A newer driver of this output has begun to write."""

    code = "TG-0861"
    what = "the broker takes nothing more from this driver for the transactional id {id!r}: a newer one has it"
    cause = "another driver of this flow was started, or another flow of the same name writes to the same topic"
    remedy = "let one driver run; two flows that write to one topic side by side need different names"


class TransactionTooLong(TidegaugeError):
    """A commit that took longer than the broker allows."""

    code = "TG-0862"
    what = "the commit of the epochs {lower} to {last} to {topic!r} took more than {seconds:g} s and was given up"
    cause = "the epochs are large, or the broker is slow; the epochs of a commit are one transaction"
    remedy = (
        "raise settings={{'transaction.timeout.ms': ...}} (and the broker's transaction.max.timeout.ms), "
        "or mint smaller epochs: max_records_per_epoch of the source"
    )


class OutputMessageTooLarge(Definite):
    """A message that is larger than the topic accepts."""

    code = "TG-0863"
    what = "a message of {bytes} bytes, of epoch {epoch}, is larger than {topic!r} takes: {detail}"
    cause = "a row with a large value; the limits are message.max.bytes here and max.message.bytes of the topic"
    remedy = "raise max.message.bytes of the topic and settings={{'message.max.bytes': ...}}, or filter such rows out"


class ProgressRegressed(Definite):
    """A progress topic that says that an output went back."""

    code = "TG-0864"
    what = (
        "the progress topic {topic!r} says of {output!r} that it holds epochs up to {upper}, and before that {known}"
    )
    cause = "something other than this flow wrote records of this output there"
    remedy = "find out what writes there; the headers of the output's messages say which epochs its topic holds"


class ProgressUnreadable(Transient):
    """A progress topic that could not be read to its end."""

    code = "TG-0865"
    patient = True
    what = "the progress topic {topic!r} could not be read from {position} to its end, {end}, in {seconds:g} s"
    cause = "the broker is slow or away, or another output's transaction is open there"
    remedy = "nothing, if it passes: the flow tries again. Without it nobody knows what the output holds"


class ProgressTopicUnfit(Definite):
    """A topic that cannot hold progress."""

    code = "TG-0866"
    what = "the topic {topic!r} cannot hold the progress of outputs: {problem}"
    cause = "it was created by hand, or for something else, or its settings were changed"
    remedy = (
        "it needs one partition and cleanup.policy=compact: correct it, or name another with progress_topic=...; "
        "outputs whose progress is lost are written again from their first epoch"
    )


class DamagedProgress(Definite):
    """A progress record that cannot be read."""

    code = "TG-0867"
    what = "the record at offset {offset} of the progress topic {topic!r} cannot be read: {detail}"
    cause = "something else wrote it, or a newer version of Tidegauge"
    remedy = "run the version that wrote it, or find out what writes to that topic"


class StagedMessagesMissing(TidegaugeError):
    """Messages that a task staged are missing when the driver sends them."""

    code = "TG-0868"
    what = "the staged messages {path} in the folder {staging} {problem}"
    cause = "tasks run on other machines than the driver, and do not all share the folder"
    remedy = "give KafkaSink(..., staging=...) a folder that driver and tasks share; the epoch was not committed"


class LastUndecided(Definite):
    """Several rows of one key in one epoch, and nothing says which is the last."""

    code = "TG-0870"
    what = "epoch {epoch} has several rows for the key {key} of {topic!r}, and nothing says which of them is the last"
    cause = (
        "tasks read an epoch side by side, so its rows have no order of their own; operations on one key need an "
        "order without ties, and offsets of two partitions say nothing of each other"
    )
    remedy = (
        "name the column that decides: order='_offset' of the sink with metadata=True on the source, for example; "
        "or, where the rows of a key come from several partitions, a position or time of the change itself"
    )


class KeyMissing(Definite):
    """A row without a key where every row needs one."""

    code = "TG-0871"
    what = "a row of epoch {epoch} has no key for {topic!r}, and envelope={envelope!r} needs one"
    cause = "the key column {key} is null in it"
    remedy = "filter such rows out, or choose a key that every row has"


class NotInJson(Definite):
    """A value that JSON cannot express."""

    code = "TG-0872"
    what = "an instant lies outside the years 1 to 9999, which its text form can express"
    cause = "a number was read as an instant in the wrong unit"
    remedy = "correct the column, or cast it to a number before the sink"


class PartitionUnknown(Definite):
    """A row for a partition that its topic does not have."""

    code = "TG-0873"
    what = "a row of epoch {epoch} is for partition {partition} of {topic!r}, which is not there"
    cause = "the column {column!r} holds other numbers than the partitions of the topic"
    remedy = "correct the column, or leave out partition=... for a partition by the hash of the key"


class TransactionsRefused(TidegaugeError):
    """A broker that allows this user no transactions."""

    code = "TG-0874"
    what = "the broker refuses transactions with the transactional id {id!r}: {detail}"
    cause = "the user has no ACL for it (WRITE and DESCRIBE on TransactionalId), or the cluster has no transactions"
    remedy = (
        "allow it, perhaps by a prefix: KafkaSink(..., transactional_id_prefix=...); if you cannot have it, "
        "exactly_once=False writes at least once"
    )


class TransactionFailed(Transient):
    """A commit to Kafka that failed, or whose outcome is not known."""

    code = "TG-0875"
    patient = True
    what = "the commit to the topic {topic!r} failed: {detail}"
    cause = "the broker is away, or its partitions moved"
    remedy = (
        "nothing, if it passes: the flow reads from the progress topic what the topic holds, and sends the rest again"
    )


class MessageRefused(Definite):
    """A message that the broker does not accept."""

    code = "TG-0876"
    what = "the broker refuses a message of epoch {epoch} for {topic!r}: {detail}"
    cause = "a compacted topic takes no message without a key; a topic may have other rules of its own"
    remedy = "give the sink a key, or change the topic"


class TransactionTimeoutRefused(TidegaugeError):
    """A transaction timeout that the broker does not allow."""

    code = "TG-0877"
    what = "the broker does not allow transactions of {milliseconds} ms"
    cause = "its transaction.max.timeout.ms is less"
    remedy = "raise that, or set settings={{'transaction.timeout.ms': ...}} to a value that it allows"


class ColumnUnfit(TidegaugeError):
    """A column for a part of a message that the rows do not have, or that does not fit that part."""

    code = "TG-0878"
    what = "{parameter}={column!r} of KafkaSink: {problem}"
    cause = "the columns of the stream are {known}"
    remedy = "name another column, or make one with select"


class OutputTopicRecreated(TidegaugeError):
    """A topic that was deleted and recreated while the flow wrote to it."""

    code = "TG-0879"
    what = "the topic {topic!r} was deleted and recreated while the flow wrote to it; it holds nothing of {output!r}"
    cause = "somebody recreated it, perhaps to empty it"
    remedy = "run again: the output is then written from its first epoch"


class WriteForbidden(Transient):
    """A topic that this user may not write to."""

    code = "TG-0890"
    what = "the broker does not let us write to the topic {topic!r}, or to its progress topic: {detail}"
    cause = "the user lacks a permission (an ACL)"
    remedy = (
        "allow WRITE and DESCRIBE on the topic, READ, WRITE and DESCRIBE on the progress topic, and WRITE and "
        "DESCRIBE on the transactional id"
    )


class TimeUnfit(Definite):
    """An instant that no message can have as its time."""

    code = "TG-0891"
    what = (
        "a row of epoch {epoch} has an instant in {column!r} that no message of {topic!r} can have as its time: "
        "{seconds} s since 1970"
    )
    cause = "Kafka has no times before 1970, and its client takes 1970-01-01T00:00:00.000 for the time of sending"
    remedy = (
        "filter such rows out or make the column null in them, which is the time of sending; or leave out "
        "timestamp=... and have the column in the value"
    )
