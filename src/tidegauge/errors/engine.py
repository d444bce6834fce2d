"""TG-05xx: engines and running a flow.

>>> error = RecordUnparsable(source="orders", place="orders/1.jsonl", position=120, raw="{'id': 7,", detail="no JSON")
>>> print(error.summary)
the record at position 120 of orders/1.jsonl (source 'orders') cannot be decoded: no JSON. It reads: {'id': 7,
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "DuplicateColumn",
    "ExpressionFailed",
    "JavaEnded",
    "JavaLost",
    "JavaMissing",
    "JobFailed",
    "LostEpoch",
    "LostOperation",
    "NoSparkType",
    "ReadFailed",
    "RecordUnparsable",
    "SchemaUnknown",
    "SessionDecidesRows",
    "SessionNotShared",
    "SinkBroke",
    "SourceBroke",
    "StorageFailed",
    "StreamRecordUnparsable",
    "TransformFailed",
    "UnknownOperation",
    "WrongBatch",
    "WrongOperation",
]


class JobFailed(Transient):
    """The engine could not finish a job: a worker was killed, an executor was lost, the session ended."""

    code = "TG-0501"
    what = "the job for the epochs {first} to {last} failed in the engine: {detail}"
    cause = "a worker was killed (often for want of memory), an executor was lost, or the session was stopped"
    remedy = (
        "nothing if it passes: the job is run again and nothing was committed; otherwise look at the engine's own log"
    )


class RecordUnparsable(Definite):
    """A record that cannot be decoded, from a source that does not collect such records."""

    code = "TG-0502"
    what = (
        "the record at position {position} of {place} (source {source!r}) cannot be decoded: {detail}. "
        "It reads: {raw}"
    )
    cause = "the file or message was written with another format or schema, or it is damaged"
    remedy = (
        "correct the file's producer, or collect such records: flow.sink('bad_{source}', {source}.errors, ...); the "
        "record's epoch is then run again. To go on without this one: tidegauge skip FLOW {source} PARTITION "
        "{position} END"
    )


class StreamRecordUnparsable(RecordUnparsable):
    """A record of one stream, of a source with several, that cannot be decoded."""

    code = "TG-0968"
    of_stream = True
    cause = "a value that its column in Arrow cannot hold, or another format; see the reference of the source"
    remedy = (
        "the outputs of this stream end before this record, and others go on. Collect such records: "
        "flow.sink('bad_{source}', {source}.errors, ..., start=EPOCH), with the first epoch that these outputs lack "
        "(tidegauge status), and run the flow again. Or drop them (tidegauge outputs drop FLOW OUTPUT): until then "
        "upstream keeps its log for them"
    )


class UnknownOperation(RecordUnparsable):
    """A record whose operation is none, from a source that does not collect such records."""

    code = "TG-0520"
    what = (
        "the record at position {position} of {place} (source {source!r}) has no operation: {detail}. It reads: {raw}"
    )
    cause = "the producer uses other words, or the column '_op' holds something else than the operation of its row"
    remedy = (
        "let the producer write 'insert', 'update', 'before' or 'delete', or collect such records: "
        "flow.sink('bad_{source}', {source}.errors, ...); the record's epoch is then run again. If your data means "
        "something else by '_op', read the records with tg.Raw() and give the column another name"
    )


class StorageFailed(Transient):
    """Rows could not be written to an output's storage."""

    code = "TG-0503"
    what = "writing the rows of output {output!r} to {path} failed: {detail}"
    cause = "a full disk, a missing permission, or a storage service that does not answer"
    remedy = "free space or grant access; the job is run again by itself and nothing was committed"


class ReadFailed(Transient):
    """A split could not be read, for a reason that may pass."""

    code = "TG-0504"
    what = "reading source {source!r} at {place} failed: {detail}"
    cause = "a disk, a network or a service that does not answer, or a missing permission"
    remedy = "restore access to the source; the job is run again by itself"


class SourceBroke(Transient):
    """A source or its format raised an exception that is neither ours nor the operating system's."""

    code = "TG-0513"
    what = "reading source {source!r} at {place} raised an exception: {detail}"
    cause = "a bug in the source or its format, or a record that it was not made for"
    remedy = "run again with --debug and report the record and the output; nothing of the epoch is committed"


class SinkBroke(Transient):
    """A sink raised an exception that is neither ours nor the operating system's, while staging rows."""

    code = "TG-0514"
    what = "staging the rows of output {output!r} raised an exception: {detail}"
    cause = "a bug in the sink, or rows that it was not made for"
    remedy = "run again with --debug and report the rows and the output; nothing of the epoch is committed"


class JavaMissing(TidegaugeError):
    """Spark, or the test kit's Kafka broker, needs a Java that is missing."""

    code = "TG-0505"
    what = "{found}; {who} needs Java 17 or newer. Install it: {install}"
    cause = "Java is not installed, or JAVA_HOME or PATH lead to another one"
    remedy = "install Java and start again; flows of Arrow functions run on the local engine without it"


class ExpressionFailed(Definite):
    """An output's expression failed on some row."""

    code = "TG-0506"
    what = "a step of output {output!r} failed on a row in epoch {epoch}: {detail}"
    cause = "a value that the expression cannot take, such as a zero divisor or text that is not a number"
    remedy = "write the step so that it takes such values (try_divide, try_cast, a filter before it) and start again"


class WrongBatch(Definite):
    """A user's function returned something that its output's schema does not describe."""

    code = "TG-0507"
    what = "map_batches({function}) of output {output!r} returned {got}; expected {expected}"
    cause = "the function returns another type for some batches, or its declared schema is wrong"
    remedy = "return a RecordBatch with exactly these columns for every batch, or correct schema="


class SchemaUnknown(TidegaugeError):
    """Calling a function with an empty batch did not reveal its columns."""

    code = "TG-0508"
    what = "map_batches({function}) of output {output!r} did not take an empty batch: {detail}"
    cause = "without schema= the function is called once with an empty batch, to learn which columns it returns"
    remedy = "declare them: map_batches({function}, schema=pa.schema([...])), or let the function take an empty batch"


class TransformFailed(TidegaugeError):
    """A user's DataFrame function raised, or returned no DataFrame."""

    code = "TG-0509"
    what = "transform({function}) of output {output!r} failed: {detail}"
    cause = "a bug in the function, or columns that it does not expect; it is given {known}"
    remedy = "correct the function; it takes a DataFrame and returns one"


class LostEpoch(TidegaugeError):
    """A user's DataFrame function dropped or changed the column that says which epoch a row belongs to."""

    code = "TG-0510"
    what = "transform({function}) of output {output!r} returned {got} instead of keeping the column '_epoch' (bigint)"
    cause = "a select, groupBy or join in the function without '_epoch'"
    remedy = "keep '_epoch' in the result, and group or deduplicate by it, so that each row stays in its epoch"


class LostOperation(TidegaugeError):
    """A user's function dropped or changed the column that says what became of a row."""

    code = "TG-0521"
    what = "{function} of output {output!r} returned {got} instead of keeping the column '_op' (string)"
    cause = "the rows that the function is given have operations, and its result leaves them out"
    remedy = (
        "keep '_op' in the result; or put changelog('op') before the function, which makes an ordinary column of it"
    )


class WrongOperation(Definite):
    """A step that gave a row an operation that there is none of."""

    code = "TG-0522"
    what = "a step of output {output!r} gave a row of epoch {epoch} no operation: {found}"
    cause = "a select, transform or map_batches that makes or changes the column '_op'"
    remedy = "let it give one of 'insert', 'update', 'before' and 'delete' for every row, and start again"


class NoSparkType(TidegaugeError):
    """A column that cannot cross between Arrow and Spark."""

    code = "TG-0511"
    what = "the column {column!r} of {where} has the type {type}, which Spark does not have"
    cause = "a step that runs on Spark sees all columns of its stream"
    remedy = "convert the column with map_batches before the step, or leave it out of the source's schema"


class DuplicateColumn(TidegaugeError):
    """Two columns of one name."""

    code = "TG-0512"
    what = "{where} gives two columns named {column!r}"
    cause = "tables do not distinguish upper from lower case in names, and have each name once"
    remedy = 'give one of them another name, as in "amount * 2 AS twice"'


class SessionDecidesRows(TidegaugeError):
    """A Spark Connect session whose settings would change an output's rows, and which cannot be copied."""

    code = "TG-0590"
    what = "the session sets {settings}, on which an output's rows would depend, and {why}"
    cause = "rows depend on the flow alone, so its steps run with Spark's defaults, in UTC and in ANSI mode"
    remedy = (
        "give the flow a session of its own, such as spark.newSession(), with "
        "spark.sql.session.timeZone=UTC and spark.sql.ansi.enabled=true, and the others unset"
    )


class SessionNotShared(TidegaugeError):
    """A function that uses DataFrames of the user's own Connect session, while the flow runs on a copy."""

    code = "TG-0591"
    what = "transform({function}) of output {output!r} uses a DataFrame of your session: {detail}"
    cause = (
        "the flow runs on a copy of your Spark Connect session, because that has settings which change rows, "
        "and Connect does not join DataFrames of two sessions"
    )
    remedy = (
        "make the DataFrame in the function, from its argument: df.sparkSession.table(...); or set "
        "spark.sql.session.timeZone=UTC and spark.sql.ansi.enabled=true in your session, and unset the others"
    )


class JavaLost(TidegaugeError):
    """The Java of the Spark session ended while the flow ran."""

    code = "TG-0593"
    what = "Spark's Java ended under the job for the epochs {first} to {last}"
    cause = "it was killed, by somebody or by the system for want of memory; or it crashed: see hs_err_pid*.log"
    remedy = "start again, with more memory for it if needed: nothing of these epochs is visible, nothing is lost"


class JavaEnded(TidegaugeError):
    """The Java that was started for Spark ended before it could be used."""

    code = "TG-0592"
    what = "Spark's Java ended before it answered"
    cause = "see its output above: a setting that Spark does not take, or too little memory"
    remedy = "correct it (spark-defaults.conf, PYSPARK_SUBMIT_ARGS, JAVA_HOME) and start again"
