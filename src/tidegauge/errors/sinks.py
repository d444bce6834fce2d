"""TG-04xx: sinks and tables.

>>> print(TableUpperMismatch(table="lake/orders", output="shop:orders", expected=3, actual=5))
TG-0407: the table lake/orders holds epochs of 'shop:orders' up to 5 (exclusive); a commit expected 3
  likely cause: another driver of this flow committed in between
  what to do:   stop the other driver; this one goes on from what the table holds when it starts again
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "BatchDoesNotFit",
    "BrokenChain",
    "CommitSilent",
    "DamagedManifest",
    "DeletedRows",
    "EpochColumnMissing",
    "EpochReplaced",
    "FileNotHeld",
    "FilesChangedByOthers",
    "ForeignTable",
    "InvalidColumnName",
    "KeptOtherwise",
    "KeyedColumnUnfit",
    "LeafUnreadable",
    "LocalTimesInMap",
    "MergeFailed",
    "MisplacedRows",
    "NothingTakenOut",
    "OutputIsNoTable",
    "RowsTakenOut",
    "StagedFileMissing",
    "StagingElsewhere",
    "TableBusy",
    "TableChangedByOthers",
    "TableNotWritable",
    "TableOfAnotherIncarnation",
    "TableSchemaChanged",
    "TableUnavailable",
    "TableUpperMismatch",
    "TableWentBack",
    "UnsupportedColumn",
    "UnsupportedLocation",
    "UnsupportedTable",
]


class UnsupportedLocation(TidegaugeError):
    """A location that a sink cannot write to."""

    code = "TG-0401"
    what = "{sink} cannot write to {scheme}: locations"
    cause = "the scheme is unknown, or it is an object store's: DeltaSink, ParquetSink and IcebergSink write to these"
    remedy = "pass a path or a file:// URI of a mounted disk; or, to these three, an s3://, gs:// or abfss:// address"


class UnsupportedColumn(TidegaugeError):
    """A column of a type that a table cannot hold."""

    code = "TG-0402"
    what = "the column {column!r} has the type {type}, which a table cannot hold"
    cause = "Parquet, Delta and Spark have no type for it in common"
    remedy = "cast the column to {cast}"


class InvalidColumnName(TidegaugeError):
    """A column name that a table cannot hold."""

    code = "TG-0403"
    what = "the column name {column!r} is not usable in a table: {reason}"
    cause = "Delta and Spark restrict the names of columns"
    remedy = "rename the column"


class BatchDoesNotFit(TidegaugeError):
    """Rows were staged with columns other than those that the job announced."""

    code = "TG-0404"
    what = "a batch does not have the columns of its output: {detail}"
    cause = "a function of map_batches or transform returns other columns, or other types, than it announced"
    remedy = "return the announced columns, or announce the returned ones"


class StagedFileMissing(TidegaugeError):
    """A staged file is missing or changed when it is committed."""

    code = "TG-0405"
    what = "the staged file {path} of {table} {problem}"
    cause = "something cleaned the folder of the table, or tasks and driver do not see the same file system"
    remedy = "check that {table} is one file system for tasks and driver, then run again: the epoch was not committed"


class MisplacedRows(TidegaugeError):
    """Rows of an epoch that is not being committed, or of none."""

    code = "TG-0406"
    what = "rows {found} were staged, which do not belong to {expected}"
    cause = "a transform changed the column _epoch"
    remedy = "leave _epoch alone in the transform: the epoch was not committed and will be run again"


class TableUpperMismatch(TidegaugeError):
    """The table's upper is not the one that a commit expected: nothing was changed."""

    code = "TG-0407"
    what = "the table {table} holds epochs of {output!r} up to {actual} (exclusive); a commit expected {expected}"
    cause = "another driver of this flow committed in between"
    remedy = "stop the other driver; this one goes on from what the table holds when it starts again"


class TableWentBack(Transient):
    """The table holds less than it did: nothing was changed."""

    code = "TG-0435"
    patient = True
    what = "the table {table} held the epochs of {output!r} before {expected}, and now holds those before {actual}"
    cause = "its disk is not mounted, or it was removed, moved away, or put back to an older state"
    remedy = (
        "bring it back unchanged, and the flow goes on with it. If it is gone for good, stop the flow and say so "
        "with tidegauge repair FLOW OUTPUT --from 0: the next run rewrites it, as far as upstream still has its "
        "records. If it was put back to an older state on purpose, the next run goes on with it"
    )


class CommitSilent(Transient):
    """A commit that has neither succeeded nor failed for a long time."""

    code = "TG-0436"
    patient = True
    what = "a commit to output {output!r} has been under way for {seconds:g} seconds without an answer"
    cause = "a mount that does not answer, such as one of a file server that is down; or a very slow disk"
    remedy = (
        "check that the table's folder can be listed; the flow goes on with the output once the commit is over, and "
        "the others go on meanwhile. A second Ctrl-C ends a run that waits for it"
    )


class TableOfAnotherIncarnation(Definite):
    """The table was written with another store: its epochs are not the epochs of this timeline."""

    code = "TG-0408"
    what = "the table {table} was written by another incarnation of {output!r}; this store is {incarnation}"
    cause = "the store of the flow was recreated, or another flow of the same name writes here"
    remedy = (
        "tidegauge recover brings back the store that the table was written with; "
        "or choose another path for this output"
    )


class TableSchemaChanged(Definite):
    """Rows and their table have different columns."""

    code = "TG-0409"
    what = "the table {table} has other columns than the rows of {output!r}: {detail}"
    cause = "the flow or its source changed after the table was created, or the table was altered"
    remedy = (
        "give the rows the columns of the table again (select, cast), or write to a new path; or let the table take "
        "on columns: flow.sink(..., schema='add')"
    )


class ForeignTable(Definite):
    """An existing table that this output did not write."""

    code = "TG-0410"
    what = "{table} is not a table of {output!r}: {detail}"
    cause = "the path belongs to other data, or to another output"
    remedy = "choose a separate path for this output"


class BrokenChain(Definite):
    """A Parquet table whose commits do not follow each other."""

    code = "TG-0411"
    what = "the table {table} has the folder {folder}, which no commit leads to: they end before {reached}"
    cause = "a folder of the table was removed, renamed or copied by hand"
    remedy = (
        "tidegauge repair rewrites the missing commits before {folder}; or bring {reached} back, or take {folder} "
        "away, whichever was done by hand"
    )


class DamagedManifest(Definite):
    """A manifest that cannot be read."""

    code = "TG-0412"
    what = "the manifest {path} cannot be read: {detail}"
    cause = "it was changed by hand, damaged on disk, or written by a newer version"
    remedy = (
        "tidegauge repair rewrites the commit; if it is the last of the table, take its folder away instead, and the "
        "next run writes it again; or restore the file from a backup"
    )


class TableNotWritable(Transient):
    """The file system refuses writes."""

    code = "TG-0413"
    what = "{table} cannot be written: {detail}"
    cause = "the user that runs the flow has no permission there, or the file system is read-only"
    remedy = "give the user of the driver and of the tasks the right to write there; the flow tries again by itself"


class StagingElsewhere(TidegaugeError):
    """Staged files cannot be renamed into the table."""

    code = "TG-0414"
    what = "{table} and its folder _staged are on different file systems: {detail}"
    cause = "_staged is a mount or a link to somewhere else; a commit is one rename, which needs one file system"
    remedy = "remove the mount or the link while the flow is stopped"


class DeletedRows(Definite):
    """What says which rows of a data file are deleted, and cannot be read: the file alone has rows too many."""

    code = "TG-0415"
    what = "which rows of a file of the table {table} are deleted cannot be told: the vector {vector}: {detail}"
    cause = "somebody removed the deletion vector's file, or the disk has damaged it"
    remedy = "restore the file from a backup; or make the table again from its source: tidegauge outputs rebuild"


class TableBusy(Transient):
    """Other writers won every time."""

    code = "TG-0416"
    what = "the table {table} was changed by others {attempts} times during the commit"
    cause = "another program commits to the table without a pause"
    remedy = "nothing, if it passes; otherwise let the other program write less often"


class TableUnavailable(Transient):
    """The table's log could not be read or written."""

    code = "TG-0417"
    what = "the log of the table {table} failed: {detail}"
    cause = "the file system has a problem, this user may not read the folder, or the log is damaged"
    remedy = "look at the file system and at the folder _delta_log; a flow that runs tries again by itself"


class EpochColumnMissing(TidegaugeError):
    """Rows without their epoch."""

    code = "TG-0418"
    what = "the rows have no column _epoch of type int64; their columns are {known}"
    cause = "a transform dropped or changed the column"
    remedy = "keep _epoch in the transform"


class UnsupportedTable(Definite):
    """A Delta table with a feature that commits of files cannot honour."""

    code = "TG-0419"
    what = "the table {table} uses {feature}, which commits from Tidegauge cannot honour"
    cause = "the feature was switched on by another program"
    remedy = "switch it off, or write to another path and copy from there"


class TableChangedByOthers(Definite):
    """A table that others have written to, so that it no longer matches its commits."""

    code = "TG-0420"
    what = "the table {table} is not what {output!r} has written up to epoch {upper} (exclusive): {detail}"
    cause = "another program appended to the table, updated or replaced rows of it, or restored an older version"
    remedy = (
        "tidegauge repair reads the missing epochs again and puts them in, and removes the rows of others with "
        "--remove-foreign; or RESTORE the table to the version before that one. Nothing is read or written here "
        "until then"
    )


class FilesChangedByOthers(Definite):
    """A Parquet table whose folders do not hold exactly the files that its commits name."""

    code = "TG-0421"
    what = (
        "the table {table} is not what {output!r} has written up to epoch {upper} (exclusive): "
        "missing are {missing}, and of no commit are {foreign}"
    )
    cause = "another program, or a person, put files into folders of the table or removed some"
    remedy = (
        "tidegauge repair reads the epochs of these commits again, and removes files of others with "
        "--remove-foreign; or bring the missing files back and move the others away. Nothing is read or written here "
        "until then"
    )


class FileNotHeld(TidegaugeError):
    """A commit would take a file out that the table does not hold: nothing was changed."""

    code = "TG-0437"
    what = "a commit would take the file {path} out of the table {table}, which does not hold it"
    cause = "another program rewrote or removed the file since the table was looked at, as OPTIMIZE does"
    remedy = "look at the files of the table again, and make the commit anew of what they hold now"


class NothingTakenOut(Definite):
    """A commit would take files out of a place that only takes rows in: nothing was changed."""

    code = "TG-0438"
    what = "a commit would take {files} files out of {table}, which takes rows in and gives none back"
    cause = (
        "messages in a topic cannot be replaced, nor rows that a function was given, or that are in memory; and the "
        "files of a table by key are its own"
    )
    remedy = "write the output to a table, or send the change as a message: KafkaSink(..., envelope='upsert')"


class EpochReplaced(TidegaugeError):
    """An earlier state of a table that it cannot show any more."""

    code = "TG-0439"
    what = "the table {table} cannot be read as of epoch {epoch}: a later commit has taken out rows that it held then"
    cause = (
        "that commit covers the epoch and later ones together, or the table's log no longer has the entries from then"
    )
    remedy = "read it as of a later epoch; the newest is always there"


class RowsTakenOut(Definite):
    """A table whose epochs cannot be put in again one by one."""

    code = "TG-0440"
    what = "the table {table} cannot be mended from epoch {epoch} on: commits of {output!r} have taken rows out since"
    cause = "the rows of an epoch that is read again would include those that later commits took out"
    remedy = "write the output to another path, which gets all epochs anew as far as upstream has their records"


class LocalTimesInMap(TidegaugeError):
    """The columns of a Delta table that is to be created, and that nobody could read."""

    code = "TG-0441"
    what = "the column {column!r} has the type {type}; a Delta table with local times in maps alone cannot be created"
    cause = "delta-rs creates it without the feature 'timestampNtz', and then neither it nor Spark reads the table"
    remedy = "cast the times to timestamp[us, tz=UTC], or write the output with ParquetSink"


class TableNotRemovable(TidegaugeError):
    """A table that is not removed with its output."""

    code = "TG-0442"
    what = "the table {table} is not removed: {why}"
    cause = "Tidegauge removes a folder that holds files of this output alone, and nothing else"
    remedy = "drop the output without its table, and remove by hand what nobody needs"


class KeyedColumnUnfit(TidegaugeError):
    """A column for a part of a table by key that the rows do not have, or that does not fit that part."""

    code = "TG-0450"
    what = "{parameter}={column!r} of a sink with envelope='upsert': {problem}"
    cause = "the columns of the stream are {known}"
    remedy = "name another column, or make one with select: a cast to decimal, long or string, for example"


class KeptOtherwise(Definite):
    """A table that keeps its rows in another way than its output is to: by another key, or all of them."""

    code = "TG-0451"
    what = "the table {table} keeps {held}, and the output {output} is to keep {wanted} there"
    cause = "envelope= or key= of its sink was changed since the table was written"
    remedy = (
        "give the sink the envelope and key that the table was written with; or decide that the table is made again "
        "with the new ones: tidegauge outputs replace"
    )


class LeafUnreadable(Definite):
    """A data file of a table by key that changes are to be merged into, and that cannot be read."""

    code = "TG-0452"
    what = "changes cannot be merged into the file {path} of the table {table}: {detail}"
    cause = "somebody removed the file, or the disk has damaged it"
    remedy = "restore the file from a backup; or make the table again from its source: tidegauge outputs rebuild"


class MergeFailed(Transient):
    """Merging was not finished by the engine: a worker was killed, an executor was lost, the session ended."""

    code = "TG-0453"
    what = "{tasks} tasks that merge changes into a table failed in the engine: {detail}"
    cause = "a worker was killed (often for want of memory), an executor was lost, or the session was stopped"
    remedy = "nothing if it passes: they are run again, and nothing was committed; otherwise look at the engine's log"


class OutputIsNoTable(TidegaugeError):
    """An output that cannot be read as a table."""

    code = "TG-0869"
    what = "the output {output!r} is in {place}, which cannot be read as a table"
    cause = "it has no Parquet files; a topic, for one, is read by consumers"
    remedy = (
        "read it with its own client (a topic with isolation.level=read_committed), or give the stream a table as a "
        "second output"
    )
