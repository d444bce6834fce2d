"""TG-03xx, TG-0979: sources and formats; what any source says of bound records that are lost: TG-0812, TG-0817."""

from __future__ import annotations

from tidegauge.errors.base import Definite, Transient

__all__ = [
    "AmbiguousHeader",
    "ColumnTypeMismatch",
    "CorruptFile",
    "EndTakenBack",
    "FileGone",
    "FileOvertaken",
    "FileRewritten",
    "FolderAway",
    "HeaderMismatch",
    "OldCalendar",
    "RangeOvertaken",
    "RecordsLost",
    "ShortRead",
    "SuspiciousCompression",
    "TruncatedFile",
    "UnknownColumns",
    "UnreadableFile",
    "UnreadableRecord",
    "UnsupportedType",
    "WrongEncoding",
]


ANEW = "To go on, give the source a new name and its outputs new paths: it then reads every file from the start"
"""The one way past a file that is not what was bound: what is bound stays bound."""


# Formats: TG-0301 to TG-0319, TG-0330 to TG-0339.


class UnsupportedType(Definite):
    """A column of a type that Spark has no name for."""

    code = "TG-0301"
    what = "the column {column!r} has the type {type}, which a column cannot have here"
    cause = "an Arrow type that Spark has no name for"
    remedy = "declare the column with a Spark type, such as 'long', 'string' or 'timestamp', or leave it out"


class HeaderMismatch(Definite):
    """A file's header names none of the declared columns."""

    code = "TG-0302"
    what = "the file's header has none of the columns {columns}; it has {header}"
    cause = "the file has no header, another delimiter, or is another kind of file"
    remedy = "pass header=False or the right delimiter, or narrow the source's path"


class AmbiguousHeader(Definite):
    """A declared column that a header names twice."""

    code = "TG-0303"
    what = "the file's header names the column {column!r} more than once; it has {header}"
    cause = "the file was written from a join or by hand"
    remedy = "correct the file, or pass header=False and declare every column by its position"


class ColumnTypeMismatch(Definite):
    """A Parquet column that cannot become the declared type without loss."""

    code = "TG-0304"
    what = "the column {column!r} is {found} in the file and {declared} in the schema: {detail}"
    cause = "the file was written with another schema"
    remedy = "declare the column with the file's type, or rewrite the file"


class TruncatedFile(Definite):
    """Compressed data that is cut off."""

    code = "TG-0305"
    what = "the compressed data ends in the middle, after {compressed} bytes"
    cause = "the file was still being written when it was read, or its copy was interrupted"
    remedy = "write files elsewhere and move them into place when they are complete; then deliver this one again"


class SuspiciousCompression(Definite):
    """Compressed data that expands beyond all measure."""

    code = "TG-0306"
    what = "{compressed} compressed bytes have become {decompressed} bytes, more than {ratio} for one"
    cause = "a decompression bomb, or a file that only repeats itself"
    remedy = "look at the file; if it is correct, deliver it uncompressed"


class CorruptFile(Definite):
    """A file whose bytes contradict its format."""

    code = "TG-0307"
    what = "the file is not valid {format}: {detail}"
    cause = "damage in transit, or a file of another kind"
    remedy = "deliver the file again, or remove it from the source's path"


class OldCalendar(Definite):
    """A date or time of a Parquet file that means another one in the calendar that columns have."""

    code = "TG-0979"
    what = "the column {column!r} has {count} values before {since}, {oldest} first, in the old calendar"
    cause = (
        "Spark 2 wrote the file, or a newer one with a LEGACY rebase mode: such a value means another day, and only "
        "Spark converts it"
    )
    remedy = (
        "read the file with Spark and write it again with spark.sql.parquet.datetimeRebaseModeInWrite and "
        "spark.sql.parquet.int96RebaseModeInWrite = CORRECTED; or leave the column out"
    )


class WrongEncoding(Definite):
    """A text file that declares another encoding than UTF-8."""

    code = "TG-0330"
    what = "the file begins with the bytes {mark}, as {encoding} does; text is read as UTF-8"
    cause = "a program that saves text as {encoding}, as some spreadsheets and shells do"
    remedy = "write it as UTF-8, like 'iconv -f {encoding} -t UTF-8 FILE > NEW'"


# Losses, of any source.


class EndTakenBack(Definite):
    """An upstream that had shown unbound records, and now has fewer."""

    code = "TG-0340"
    what = (
        "{place} reached to {seen} when it was last looked at, and ends at {end} now: the records in between are gone"
    )
    cause = "its end was cut off or rewritten, or a cluster lost records, before they were read"
    remedy = (
        "bring it back, and 'tidegauge resume' the source; or go on without, and with a row of the view gaps: "
        "on_data_loss=\"gap\" of the source, and 'tidegauge resume'"
    )


class RecordsLost(Definite):
    """Records that upstream deleted before they were read."""

    code = "TG-0812"
    what = (
        "the records of {partition} from {asked} to before {there} are lost to source {source!r}: upstream has those "
        "from {there} to before {end}"
    )
    cause = "upstream deleted them before they were read: it kept them for too short a time, or somebody removed them"
    remedy = (
        "published epochs stay readable. To go on without them, with a row in the view gaps for each range: "
        "on_data_loss='gap' where the source has it, then tidegauge resume FLOW {source}; for any other source: "
        "tidegauge skip FLOW {source} {partition} {asked} {there}"
    )


class RangeOvertaken(Transient):
    """Records that disappeared between the planning of their range and the reading. The range is planned again."""

    code = "TG-0817"
    what = "the records of {partition} from {asked} to before {there} disappeared before a task could read them"
    cause = "upstream deleted them after the task was planned, and its source goes on without lost records"
    remedy = "the task is planned again by itself, without them: they are then a row of the view gaps"


# Files: TG-0320 to TG-0329, TG-0340 to TG-0349.


class FileRewritten(Definite):
    """A file whose bound bytes have changed."""

    code = "TG-0320"
    what = (
        "{path} is no longer the file it was: {bound} bytes of it are bound, with fingerprint {expected}; "
        "now it has {size} bytes, with fingerprint {found}"
    )
    cause = "it was truncated or rewritten in place (an editor, copytruncate, a job that overwrites its output)"
    remedy = (
        "append to files, or write new ones elsewhere and move them into place; published epochs stay readable. "
        + ANEW
    )


class FileGone(Definite):
    """A file that was removed before all bytes that had been seen of it were read."""

    code = "TG-0321"
    what = "{path} is gone, and its bytes {lower} to {upper} had been seen and are not in every output yet"
    cause = "it was deleted, or moved out of its folder, before every output held its rows"
    remedy = (
        "bring it back, and 'tidegauge resume' the source; or go on without these bytes, which then are a row of the "
        "view gaps: 'tidegauge skip FLOW SOURCE {path} {lower} {upper}'; or, for all that is lost so, "
        "FileSource(..., on_data_loss=\"gap\") and 'tidegauge resume'. Leave files in their folder until "
        "'tidegauge status' shows no lag"
    )


class ShortRead(Definite):
    """A read that ended before the last byte of its range."""

    code = "TG-0322"
    what = "{path} ended at byte {size} while its bytes {lower} to {upper} were read"
    cause = "it was truncated during the read"
    remedy = "append to files, or write new ones elsewhere and move them into place. " + ANEW


class UnreadableRecord(Definite):
    """A record that its format does not understand."""

    code = "TG-0323"
    what = "the record at position {position} of partition {partition!r} cannot be decoded: {detail}"
    cause = "a broken producer, or another format than the one declared"
    remedy = (
        "correct the format, or write the source's errors stream to an output of its own, which collects such records"
    )


class UnreadableFile(Definite):
    """A whole file that its format does not understand. `problem` is the code of what the format found."""

    code = "TG-0324"
    what = "{path} cannot be read: {detail} ({problem})"
    cause = "{reason}"
    remedy = (
        "{advice}. To pass over what is bound of it: tidegauge skip FLOW SOURCE {path} FROM TO, with the range that "
        "tidegauge explain FLOW EPOCH shows. " + ANEW
    )


class UnknownColumns(Definite):
    """Data from which no columns can be inferred."""

    code = "TG-0325"
    what = "no columns can be inferred from the first {size} bytes of {path}"
    cause = "a record longer than that, or a file of another format"
    remedy = "declare the columns in the format, like format=Json('id long, user string')"


class FolderAway(Transient):
    """A folder that is missing, or on another file system, while files in it are still to be read."""

    code = "TG-0341"
    patient = True
    what = "{folder} is {what}, and {count} files that were in it are not read to their end, such as {path}"
    cause = "a mount that is temporarily away"
    remedy = "mount it again: the source goes on by itself. If the files are gone for good, create the folder again"


class FileOvertaken(Transient):
    """A file that changed between the planning of its range and the reading. The range is planned again."""

    code = "TG-0342"
    patient = True
    what = "{path} is not what it was when its range was planned: {detail}"
    cause = "it was rotated, truncated or removed just now; or a worker does not see the driver's files"
    remedy = (
        "the flow looks for it again by itself; if this goes on, check that every worker has the folder under the "
        "same path"
    )
