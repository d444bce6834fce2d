"""TG-065x and TG-066x: reading tables with other engines, and following them."""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError

__all__ = [
    "ChangesNotAskedFor",
    "ChangesUnknown",
    "CheckpointAhead",
    "CheckpointOfAnother",
    "ColumnsUnlike",
    "EpochListenerFailed",
    "KeyNotGiven",
    "NoRowsYet",
    "NotReadBySpark",
    "OptionMisplaced",
    "OptionMissing",
    "QueryEngineMissing",
    "SparkTooOld",
    "SubscribedFromNowhere",
    "UnknownOption",
]


class QueryEngineMissing(TidegaugeError):
    """The library of the engine that is to read a table is not there."""

    code = "TG-0650"
    what = "tg.{function} needs {library}, which cannot be loaded: {detail}"
    cause = "{library} is not installed where this program runs; Tidegauge itself does not need it"
    remedy = "pip install {library}"


class SubscribedFromNowhere(TidegaugeError):
    """A subscription that would end before it begins."""

    code = "TG-0651"
    what = "output {output!r} was to be followed from epoch {as_of} up to {up_to}, which is before it"
    cause = "up_to is the first epoch that is not of interest, and as_of the first one that is"
    remedy = "give an up_to that is not less than as_of; with as_of == up_to there are no rows"


class ChangesUnknown(TidegaugeError):
    """Epochs of a table by key whose changes nobody knows any more."""

    code = "TG-0652"
    what = "what changed in output {output!r} from epoch {lower} to {upper} is not known: {detail}"
    cause = "the table has one row for each key, and the versions from which changes are told were cleared away"
    remedy = "subscribe with a newer as_of and a snapshot; keep the table's history while subscribers may be away"


class KeyNotGiven(TidegaugeError):
    """An envelope without the columns that tell rows apart."""

    code = "TG-0653"
    what = "envelope={envelope!r} of output {output!r} needs key=, the columns that tell rows apart; it is {key!r}"
    cause = "an envelope says what becomes of the row of a key; columns of the output: {known}"
    remedy = "give the name of one of the columns, or a list of them, or leave the envelope out"


class EpochListenerFailed(TidegaugeError):
    """A function that was given to `on_epoch` has raised. It is logged; the run goes on."""

    code = "TG-0654"
    what = "{function}, which listens to flow {flow!r}, has raised for the epochs {lower} to {upper}: {error}"
    cause = "the function itself; the epochs are published, and it is called again with the next ones"
    remedy = "correct it; tg.epochs and tg.explain have the epochs that it missed"


class UnknownOption(TidegaugeError):
    """An option that the format does not have."""

    code = "TG-0660"
    what = "format('tidegauge') has no option {option!r}"
    cause = "a misspelt name, or a path: a table is named by its flow; there are {known}"
    remedy = "correct the name, or leave the option out"


class OptionMissing(TidegaugeError):
    """An option without which nothing can be read or written."""

    code = "TG-0661"
    what = "format('tidegauge') needs the option {option!r}"
    cause = (
        "an output is found by the address of its flow's store, the flow's name, and its own name; a query writes "
        "to a path, under its own name"
    )
    remedy = 'add .option("{option}", ...)'


class OptionMisplaced(TidegaugeError):
    """An option of `spark.read` that `spark.readStream` was given, or the other way round."""

    code = "TG-0662"
    what = "the option {option!r} is none of {reader}"
    cause = "asOf is for spark.read; startingOffsets, maxEpochsPerTrigger and changes are for spark.readStream"
    remedy = "leave it out, or use the other reader"


class NotReadBySpark(TidegaugeError):
    """An output whose rows no process but its own, or its own client, can read as a table."""

    code = "TG-0663"
    what = "output {output!r} is of the kind {kind!r}, which format('tidegauge') does not read"
    cause = "it reads tables of Delta, Iceberg and Parquet, by what the store says of them"
    remedy = (
        "read it with its own client, or with tg.read where the flow is declared; or give the stream a table as a "
        "second output"
    )


class NoRowsYet(TidegaugeError):
    """An output whose columns nobody but its flow can tell, because it has no table yet."""

    code = "TG-0664"
    what = "output {output!r} of flow {flow!r} has no table yet"
    cause = "the flow has not brought it any row so far; its first commit makes the table"
    remedy = "run the flow until the output holds its first rows, then load again"


class ChangesNotAskedFor(TidegaugeError):
    """A table by key as a stream: its rows do not only come, they go."""

    code = "TG-0665"
    what = "output {output!r} has one row for each key, and a stream of its rows cannot take one back"
    cause = "the sink has envelope='upsert': what an epoch changes are rows that come and rows that go"
    remedy = 'add .option("changes", "true"): the rows get a column _diff, 1 for each that comes and -1 that goes'


class CheckpointOfAnother(TidegaugeError):
    """A reader, or its checkpoint, whose epochs are not those that the output has now."""

    code = "TG-0666"
    what = "a reader is at epoch {epoch} of another {what} of output {output!r}: {was} there, {now} now"
    cause = (
        "since then the table was dropped, moved, replaced or rebuilt, or the flow has another store; its epochs may "
        "have other rows than those that the reader was given"
    )
    remedy = (
        "start the query with a new checkpoint and an empty sink; startingOffsets says at which epoch. A dataflow of "
        "bytewax: with a new recovery store and an empty sink; as_of= says at which epoch. A subscriber: anew, with "
        "the rows as of an epoch in place of those that it has"
    )


class CheckpointAhead(TidegaugeError):
    """A reader, or its checkpoint, that has epochs which the flow has not published, or the table does not hold."""

    code = "TG-0667"
    what = "a reader is at epoch {epoch}, and of output {output!r} there are the epochs below {upper}"
    cause = "the store, or the table, was put back to an older state; epochs may get other rows than they had"
    remedy = (
        "recover the store from the tables (tidegauge recover), run the flow until the output has caught up, and "
        "start the reader again; or start it with a new checkpoint, or bytewax's recovery store, and an empty sink"
    )


class ColumnsUnlike(TidegaugeError):
    """Columns that a query asks for, and that the table does not have, or no longer as it had them."""

    code = "TG-0668"
    what = "the query reads the column {column!r} of output {output!r} as {wanted}, and the table has {found}"
    cause = "the table's columns have changed since the query began, or .schema(...) names others than it has"
    remedy = "start the query again, which reads the present columns; leave .schema(...) out, or correct it"


class SparkTooOld(TidegaugeError):
    """Something that the session's version of Spark cannot do."""

    code = "TG-0669"
    what = "{feature} needs PySpark {needed}, and this is {version}"
    cause = "older versions do not tell a Python data source where a query is, nor give it batches of Arrow to write"
    remedy = (
        "use a newer Spark. Without maxEpochsPerTrigger each batch has all epochs that are there; tg.write_batches "
        "writes with any Spark"
    )
