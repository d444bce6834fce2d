"""TG-068x: batches of a Structured Streaming query that become epochs of a flow."""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError

__all__ = [
    "AnotherCheckpoint",
    "BatchDamaged",
    "BatchUnlike",
    "BatchesElsewhere",
    "BatchesMissing",
    "BatchesReplaced",
    "CheckpointBehind",
    "NotAppended",
    "QueryNotTold",
]


class AnotherCheckpoint(TidegaugeError):
    """A query that writes where another one has written, or the same one with a new checkpoint."""

    code = "TG-0680"
    what = "batch {batch} of Spark's query {found} was to be written to {place}, which has those of query {known}"
    cause = (
        "the checkpoint was removed or is another one, so the batches are counted from 0 again, and they would be "
        "taken for those that are there; or two queries write under one name"
    )
    remedy = (
        "start the query with the checkpoint that it had; or give it a new name, query='...', and its source a place "
        "to begin at: the flow reads both"
    )


class CheckpointBehind(TidegaugeError):
    """A query that runs a batch again after later ones were written."""

    code = "TG-0681"
    what = "batch {batch} came again to {place}, whose newest is {newest}"
    cause = (
        "the checkpoint was put back to an older state, and the batch may have other rows now; or an old driver lives"
    )
    remedy = (
        "put the newest checkpoint back; or give the query a new name, query='...', a new checkpoint, and its source "
        "a place to begin at"
    )


class BatchesMissing(Definite):
    """Batches that should be there before one that is."""

    code = "TG-0682"
    what = "batch {batch} is in {place} or came to it, and batch {missing} before it is not there"
    cause = "somebody removed it before it was read, or put the folder back to an older state than the checkpoint"
    remedy = (
        "put it back from a backup, with its folder. If its rows are gone for good, give the query a new name, "
        "query='...', and the source a new name and its outputs new paths"
    )


class BatchUnlike(TidegaugeError):
    """A batch that was run again, and has not as many rows as before."""

    code = "TG-0683"
    what = "batch {batch} was written to {place} with {known} rows, and run again it has {found}"
    cause = (
        "the checkpoint was put back and its source was read further; or a step of the query does not give the same "
        "rows for the same input"
    )
    remedy = (
        "put the newest checkpoint back. If the rows that are there are right: a new name, query='...', a new "
        "checkpoint, and a place for its source to begin at"
    )


class BatchDamaged(Definite):
    """A manifest or a file that is not as it was written."""

    code = "TG-0684"
    what = "{path} is not as it was written: {detail}"
    cause = "somebody changed it, or the disk lost what it had promised to keep"
    remedy = "put it back from a backup, then tidegauge resume FLOW SOURCE"


class BatchesReplaced(Definite):
    """Batches that do not follow those that are bound."""

    code = "TG-0685"
    what = "batch {batch} in {place} is another one than is bound: its {what} is {found}, and was {known}"
    cause = "the folder was emptied and written anew, or put back to an older state and written on from there"
    remedy = (
        "put the batches back, then tidegauge resume FLOW SOURCE; or give the source a new name and its outputs new "
        "paths"
    )


class QueryNotTold(TidegaugeError):
    """A query that cannot be told from others, so that nobody could notice a new checkpoint."""

    code = "TG-0686"
    what = "which of Spark's queries writes to {place} is not known: {detail}"
    cause = "Spark does not tell its sinks which checkpoint a query has; it is told by the name, or read there"
    remedy = "{advice}"


class NotAppended(TidegaugeError):
    """A query that gives all its rows with each batch."""

    code = "TG-0687"
    what = "the query that writes to {place} has outputMode('complete'): each of its batches has all rows"
    cause = "rows of epochs stay; nothing can take back those of the batch before"
    remedy = "use outputMode('append') or outputMode('update')"


class BatchesElsewhere(TidegaugeError):
    """A place where batches cannot be published."""

    code = "TG-0688"
    what = "{where} cannot be at a location {scheme}: batches lie on a file system"
    cause = "an object store's address, or an unknown scheme"
    remedy = (
        "pass a path or a file:// URI of a disk that Spark's workers and the flow mount; or let the query write "
        "files to the object store, and read them with a FileSource"
    )
