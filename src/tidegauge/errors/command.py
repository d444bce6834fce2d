"""TG-06xx: the command line, and reading tables back."""

from __future__ import annotations

from collections.abc import Iterable

from tidegauge.errors.base import TidegaugeError, nearest

__all__ = [
    "AmbiguousPath",
    "BeforeStart",
    "EpochNotBound",
    "FlowFileBroken",
    "FlowFileMissing",
    "FlowNeverRan",
    "IncomparableValue",
    "InsideRecord",
    "NoFlowInFile",
    "NoSuchFlow",
    "NotPublished",
    "NotScannable",
    "OutputHasFailed",
    "OutputIsBehind",
    "PassedOver",
    "PastTheEnd",
    "RangeNotBound",
    "RowOfAnotherLife",
    "RowsUnreadable",
    "SeveralFlows",
    "UnknownPartition",
    "WithinPast",
]


class FlowFileMissing(TidegaugeError):
    """The file that should describe the flow does not exist."""

    code = "TG-0601"
    what = "there is no file {path!r}"
    cause = "a misspelt path, or another working directory"
    remedy = "name the Python file that makes the flow, like 'shop.py' or 'shop.py:flow'"


class FlowFileBroken(TidegaugeError):
    """Loading the flow's file raised."""

    code = "TG-0602"
    what = "{path} raised {error}: {detail}"
    cause = "a mistake in the file, or in a module that it imports; nothing was run"
    remedy = "correct it; --debug shows the whole traceback"


class NoFlowInFile(TidegaugeError):
    """The file makes no flow."""

    code = "TG-0603"
    what = "{path} makes no flow"
    cause = "tg.Dataflow(...) is not called at the top level of the file, or is not kept in a variable"
    remedy = "keep the flow in a variable: flow = tg.Dataflow('shop', store='sqlite:///shop.db')"


class SeveralFlows(TidegaugeError):
    """The file makes more than one flow."""

    code = "TG-0604"
    what = "{path} makes several flows: {names}"
    cause = "the file describes more than one flow"
    remedy = "say which one: '{path}:{first}'"


class FlowNeverRan(TidegaugeError):
    """The store has nothing about the flow."""

    code = "TG-0605"
    what = "the store {store} knows nothing of the flow {flow!r}"
    cause = "it has never run, or it ran with another store or from another folder"
    remedy = "run it first (tidegauge run FLOW), or go to the folder that it runs in"


class NotPublished(TidegaugeError):
    """An epoch or a time before or after everything that is published."""

    code = "TG-0606"
    what = "{as_of!r} is not published. Number of published epochs: {published}, counted from 0"
    cause = "nothing was published by then, or the epoch is still to come"
    remedy = "read without as_of for the newest published epoch; 'tidegauge epochs' lists them"


class NoSuchFlow(TidegaugeError):
    """The file makes flows, but none in the named variable."""

    code = "TG-0609"
    what = "{path} has no flow in a variable {variable!r}. Known: {known}."
    cause = "a misspelt variable, or one that is not a flow"
    remedy = "use one of the known names, like '{path}:{first}'"

    def __init__(self, *, path: str, variable: str, known: list[str], first: str | None = None) -> None:
        first = first or nearest(variable, known) or known[0]
        super().__init__(path=path, variable=variable, known=list(known), first=first)


class EpochNotBound(TidegaugeError):
    """An epoch that was never minted."""

    code = "TG-0610"
    what = "there is no epoch {epoch} in the flow {flow!r}; it has {upper}, counted from 0"
    cause = "a mistyped number, or an epoch that is still to come"
    remedy = "ask for an existing epoch: 'tidegauge epochs' lists the newest ones"


class OutputHasFailed(TidegaugeError):
    """A read at or after the epoch at which an output has failed."""

    code = "TG-0607"
    what = "output {output!r} has failed at epoch {epoch}, so it cannot be read as of {as_of}: {detail}"
    cause = "its source has a definite error from that epoch on, or one of its own steps, or its table, refused it"
    remedy = "read an earlier epoch with as_of, and see 'tidegauge status' for what to do about the error"


class OutputIsBehind(TidegaugeError):
    """A read of a published epoch that this output does not hold yet."""

    code = "TG-0608"
    what = "output {output!r} holds the epochs before {upper}, and epoch {as_of} was asked for"
    cause = "the output was added later, or the flow stopped between two commits, and it has not caught up"
    remedy = "run the flow until it has, or read an earlier epoch with as_of"


class UnknownPartition(TidegaugeError):
    """A partition, or the path of a file, that has no bindings."""

    code = "TG-0611"
    what = "{partition!r} is none of the {count} partitions that source {source!r} has bound"
    cause = "a misspelt key or path{hint}, a file that has another name now, or one that no tick has bound yet"
    remedy = "take the key from the row's _partition, or the path from 'tidegauge explain'"

    def __init__(
        self, *, partition: str, source: str, count: int, hint: str | None = None, known: Iterable[str] = ()
    ) -> None:
        if hint is None:
            near = nearest(partition, known)
            hint = f" (the nearest is {near!r})" if near else ""
        super().__init__(partition=partition, source=source, count=count, hint=hint)


class AmbiguousPath(TidegaugeError):
    """A path that several files of a source had, one after the other."""

    code = "TG-0612"
    what = "source {source!r} knows several files by the path {path!r}; their partitions are {partitions}"
    cause = "a file was removed, and another one came under its name"
    remedy = "give the partition's key instead of the path: it is in the row's _partition"


class PastTheEnd(TidegaugeError):
    """A position beyond the last one of a source that has ended."""

    code = "TG-0613"
    what = "there is no position {position} in partition {partition!r} of source {source!r}: it ended at {end}"
    cause = "a mistyped number, or a position of another partition"
    remedy = "ask for a position below {end}"


class RowOfAnotherLife(TidegaugeError):
    """A row whose epoch differs from the timeline's."""

    code = "TG-0614"
    what = "a row of output {output!r} says that it is of epoch {epoch}; by the timeline {detail}"
    cause = "the row was written by another flow, or before the flow's store was recreated, or it was edited"
    remedy = "ask the flow, with the store, that wrote the row"


class IncomparableValue(TidegaugeError):
    """A value that no row's column can be equal to."""

    code = "TG-0615"
    what = "column {column!r} has the type {type}; it is never equal to {value!r}: {detail}"
    cause = "a value of another type, or a column of values that have parts"
    remedy = "write the value as the type has it, like 42, 1.5, true, ada or 2026-11-20T17:00, or take another column"


class RowsUnreadable(TidegaugeError):
    """A data file of a table that is missing, damaged, or cannot be opened."""

    code = "TG-0616"
    what = "the rows of output {output!r} cannot be read: {detail}"
    cause = "a file of the table was removed or damaged, or this user may not read it"
    remedy = "look at the files in the table's folder; another program may have cleaned them up"


class NotScannable(TidegaugeError):
    """Bound epochs of a source that its upstream does not give again."""

    code = "TG-0617"
    what = "source {source!r} cannot be scanned in the epochs {first} to {last}: {detail}"
    cause = "upstream keeps records for a while only, or sends each of them once; the tables have them"
    remedy = "read a table that has their rows, or scan later epochs: tg.scan(spark, flow, {source!r}, between=(...))"


class BeforeStart(TidegaugeError):
    """A read of an epoch before the one that an output begins with."""

    code = "TG-0618"
    what = "output {output!r} begins at epoch {start} (start={said}), and was to be read as of epoch {as_of}"
    cause = "the output has no rows of earlier epochs, though its source has records there"
    remedy = "read it as of epoch {start} or later, once that is published, or read an output that begins earlier"


class WithinPast(TidegaugeError):
    """A read of an epoch that is a part of an output's past, which has one epoch in its table."""

    code = "TG-0619"
    what = (
        "in output {output!r} all rows up to epoch {stamp} have that epoch (timestamps={said}), and it was to be "
        "read as of epoch {as_of}"
    )
    cause = "the output was made with timestamps=, so its table cannot tell these epochs apart"
    remedy = "read it as of epoch {stamp} or later, or read an output whose rows have the epochs of their records"


class PassedOver(TidegaugeError):
    """Records that somebody chose to go on without. `gaps` shows it; it is never raised."""

    code = "TG-0640"
    what = "the positions {lower} to {upper} of partition {partition!r} of source {source!r} were skipped by hand"
    cause = "a record that could not be read, or a range that was lost"
    remedy = "nothing: it was done on purpose"


class RangeNotBound(TidegaugeError):
    """A range to skip that is not, or no longer, bound as a whole."""

    code = "TG-0641"
    what = "the positions {lower} to {upper} of partition {partition!r} of source {source!r} cannot be skipped: {why}"
    cause = "mistyped numbers or another partition's, or a range that no epoch has yet"
    remedy = (
        "give a range within the bound positions: see the error in 'tidegauge status', or 'tidegauge explain' of its "
        "epoch"
    )


class InsideRecord(TidegaugeError):
    """A range to skip that would cut a record."""

    code = "TG-0642"
    what = (
        "position {position} of partition {partition!r} of source {source!r} is inside of a record: it goes {record}"
    )
    cause = "a mistyped number, or the end of the record was guessed"
    remedy = "skip whole records: give the ends of the record, or of a range of them"
