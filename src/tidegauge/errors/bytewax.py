"""TG-098x: bytewax's connectors as sources and outputs, and its dataflows beside ours."""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "BytewaxMissing",
    "ConnectorUnfit",
    "ItemUnfit",
    "LogBehind",
    "LogItemUnfit",
    "LogTaken",
    "PartitionBlocked",
    "PartitionRaised",
    "PartitionStateNotKept",
    "RecoveryBehind",
    "RecoveryUnread",
    "SinkUnfit",
]


class BytewaxMissing(TidegaugeError):
    """bytewax that is not installed."""

    code = "TG-0980"
    what = "bytewax could not be loaded: {detail}"
    cause = "it is an extra of tidegauge, and has wheels for Python 3.11 and 3.12 alone"
    remedy = "install tidegauge[bytewax] on one of these"


class PartitionBlocked(Transient):
    """A partition whose `next_batch` or `build_part` does not return."""

    code = "TG-0981"
    what = "source {source!r}: partition {partition!r} of {connector} has not returned from {call} for {seconds} s"
    cause = "upstream has nothing new, and the connector waits for it in {call}, as it should not; or it hangs"
    remedy = (
        "nothing where upstream is merely quiet: what comes is read at once. Otherwise look at upstream, give the "
        "connector a time limit of its own, or raise timeout=. Its other partitions go on"
    )


class PartitionRaised(Transient):
    """A partition that raised."""

    code = "TG-0982"
    what = "source {source!r}: partition {partition!r} of {connector} raised in {call}: {detail}"
    cause = "upstream is away or refuses, or the connector has a mistake"
    remedy = (
        "nothing where it passes: the partition is built again from the state after its last batch, after a growing "
        "delay. Its other partitions go on"
    )


class PartitionStateNotKept(Transient):
    """A resume state that a binding cannot keep."""

    code = "TG-0983"
    what = "source {source!r}: the resume state of partition {partition!r} of {connector} cannot be kept: {problem}"
    cause = "a state is written to the store by the type of each value, and never pickled"
    remedy = (
        "wrap the connector in one whose snapshot() returns None, bool, int, float, str, bytes, datetime, date, "
        "timedelta, list, tuple and dict alone, and whose build_part() makes its own state of that"
    )


class ItemUnfit(Transient):
    """An item that is no row."""

    code = "TG-0984"
    what = "source {source!r}: an item of partition {partition!r} is no row: {problem}"
    cause = "the connector yields something else than dicts, or row= does not return one"
    remedy = (
        "pass row=, a function of one item that returns a dict, or None to leave the item out. Nothing of the batch "
        "is staged, and no item is lost: correct it and start the flow again"
    )


class ConnectorUnfit(Transient):
    """Partitions that cannot be told apart."""

    code = "TG-0985"
    what = "source {source!r}: list_parts() of {connector} {problem}"
    cause = "a mistake in the connector, or upstream is away"
    remedy = "have it return the names of its partitions, each once, as a list of str"


class SinkUnfit(Definite):
    """A sink of bytewax that cannot be written to as an output."""

    code = "TG-0986"
    what = "the bytewax sink {connector} of the output {output!r}: {problem}"
    cause = "item= or the connector does not fit, or the folder has the states of another output"
    remedy = (
        "have item= return a pair of a str and a value, and snapshot() plain values (None, bool, int, float, str, "
        "bytes, datetime, date, timedelta, list, tuple, dict); give each output a folder of its own. Then start "
        "again: the epoch is given again"
    )


class RecoveryBehind(Transient):
    """A dataflow that would give rows again that a flow may have."""

    code = "TG-0987"
    what = "the log {place} has {held} published pieces, and bytewax resumes after {kept} of them"
    cause = (
        "bytewax's recovery store was removed, put back to an older state, or is that of another dataflow; the rows "
        "of these pieces would come again, and a flow may have them in its tables"
    )
    remedy = (
        "put the newest recovery store back. If it is gone for good: have the dataflow begin where these rows end, "
        "with a new recovery store, a new folder for its LogSink, and a new source of the flow that reads it"
    )


class LogBehind(Transient):
    """A log that lacks what bytewax does not give again."""

    code = "TG-0988"
    what = "the log {place} is not the one that the dataflow resumes with: {problem}"
    cause = "the log was removed, put back to an older state, or written by another dataflow"
    remedy = (
        "put the newest log back, with the folders of its pieces. If rows are gone for good: put back a recovery "
        "store of bytewax that is as old as the log; the dataflow then gives them again"
    )


class RecoveryUnread(Transient):
    """A recovery store of bytewax from which nobody can tell where the dataflow resumes."""

    code = "TG-0989"
    what = "bytewax's recovery store {folder} cannot be read: {problem}"
    cause = (
        "recovery= names another folder, some of its files are elsewhere, or another version of bytewax wrote them"
    )
    remedy = (
        "name the folder that the dataflow is run with (-r), with all of its files; the rows in the log "
        "wait meanwhile, and none is lost"
    )


class LogTaken(TidegaugeError):
    """Two dataflows that write one log."""

    code = "TG-0990"
    what = "step {step!r} can no longer write to the log {place}: another run of a dataflow does"
    cause = "the dataflow was started again while this run still lived; or two steps have one folder"
    remedy = "let one of them run; give each LogSink a folder of its own. What this one has not sealed comes again"


class LogItemUnfit(TidegaugeError):
    """An item that is no row of the log."""

    code = "TG-0991"
    what = "step {step!r}: an item cannot be written to the log {place}: {problem}"
    cause = "the value of the pair (key, value) is no dict or Arrow table, or does not fit columns="
    remedy = (
        "map the stream to pairs of a key and a dict of these columns. Nothing of the batch is written; correct the "
        "dataflow and start it again: the rows of its epoch come again"
    )
