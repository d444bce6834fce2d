"""TG-098x: bytewax's connectors as sources and outputs, and its dataflows beside ours."""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "BytewaxMissing",
    "ConnectorUnfit",
    "ItemUnfit",
    "PartitionBlocked",
    "PartitionRaised",
    "PartitionStateNotKept",
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
