"""TG-035x: sources that push: their streams, what they give, and the pieces that wait.

>>> print(UnknownStream(source="shop", stream="order", known="orders, users"))
TG-0350: source 'shop' has no stream 'order'; it has orders, users
  likely cause: a name that is misspelt, or a source with several streams whose rows were asked for without naming one
  what to do:   take one of its streams with .stream(name)
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "NotHeardYet",
    "NotReadByRange",
    "NothingReceived",
    "PieceUnreadable",
    "PushedEndTakenBack",
    "StagingFull",
    "StartForgotten",
    "StreamForgotten",
    "SubscriptionBroken",
    "UnknownStream",
    "WireBroken",
]


class UnknownStream(TidegaugeError):
    """A stream that a source does not declare."""

    code = "TG-0350"
    what = "source {source!r} has no stream {stream!r}; it has {known}"
    cause = "a name that is misspelt, or a source with several streams whose rows were asked for without naming one"
    remedy = "take one of its streams with .stream(name)"


class SubscriptionBroken(Definite):
    """A push source that gave what it may not give."""

    code = "TG-0351"
    what = "source {source!r} broke the rules of a subscription: {problem}"
    cause = (
        "an error in the source, or an upstream that does not keep to its protocol; if its frontier went back, also "
        "an upstream that was restored from an older backup"
    )
    remedy = (
        "correct the source, then run: tidegauge resume FLOW {source}. Nothing of what it gave wrongly is in a table"
    )


class StartForgotten(Definite):
    """An upstream that no longer has the records that the flow lacks."""

    code = "TG-0352"
    of_start = True
    what = (
        "source {source!r}: upstream's oldest record of partition {partition!r} is {oldest}, and the flow needs "
        "those from {start} on"
    )
    cause = "upstream deleted records that it had not been told are durable, or the flow was stopped for too long"
    remedy = (
        "bring these records back upstream, then run: tidegauge resume FLOW SOURCE. A new incarnation does not help: "
        "it begins with the first record of each partition. Published epochs stay readable"
    )


class NotReadByRange(Definite):
    """A pushed source that was to be read apart from a run."""

    code = "TG-0353"
    what = "source {source!r} pushes its records: epochs that are over cannot be read from it again"
    cause = "an operation that reads old epochs once more, such as a repair"
    remedy = "restore the table from a backup, or begin the output anew under another name and path"


class PieceUnreadable(Transient):
    """A staged piece of an epoch that a task cannot read."""

    code = "TG-0354"
    what = "the staged records in {path} cannot be read: {detail}"
    cause = "a staging folder that the machine of the task does not see, or a file that somebody removed"
    remedy = (
        "on a cluster, pass staging= with a folder that all machines see to flow.source(); the next run reads the "
        "records from upstream again"
    )


class WireBroken(Definite):
    """A line on the wire of a socket source that is none of its protocol."""

    code = "TG-0355"
    what = "{address} sent {raw}, which is no line of the protocol: {problem}"
    cause = "another service answers at this address, or its server writes lines that this version does not know"
    remedy = "check the address and the server, then run: tidegauge resume FLOW SOURCE"


class StagingFull(Transient):
    """Records that wait could not be written to the staging folder."""

    code = "TG-0356"
    what = "source {source!r}: {size} bytes that wait for outputs cannot be written to {path}: {detail}"
    cause = "a staging folder on a disk that is full or away"
    remedy = "free space, or pass another folder as staging= to flow.source(); nothing is received until then"


class PushedEndTakenBack(Definite):
    """An upstream that pushes, had shown records that are not bound, and now has fewer."""

    code = "TG-0357"
    what = (
        "source {source!r}: partition {partition!r} reached to {seen} when upstream last told, and ends at {end} "
        "now: the records in between are gone"
    )
    cause = "upstream was restored from an older backup, or lost records, or a copy that lags behind answered"
    remedy = (
        "none of these records is in a table. Bring them back, then run: tidegauge resume FLOW {source}. The same "
        "command goes on without them"
    )


class NotHeardYet(Transient):
    """An acknowledgement for a server that has not said how far its log goes."""

    code = "TG-0358"
    what = "{address} has not said yet how far its log goes: it is told nothing until then"
    cause = "a connection that has just begun, to a service that is slow"
    remedy = "nothing: the flow acknowledges again by itself"


class NothingReceived(Transient):
    """A source that pushes and receives nothing at present."""

    code = "TG-0359"
    what = "source {source!r} receives nothing: {why}"
    cause = "outputs that are away, or slower than upstream; or an upstream that does not answer"
    remedy = (
        "if outputs are stalled, put right what their errors name; otherwise look at upstream. Nothing is lost: "
        "upstream keeps its records, and the source goes on by itself"
    )


class StreamForgotten(TidegaugeError):
    """An output of a stream that came later, and that the source has forgotten."""

    code = "TG-0967"
    what = "output {output!r}: source {source!r} no longer knows when its stream {stream!r} began"
    cause = "the source's folder was removed, or replaced by an older copy, after the stream had been added"
    remedy = (
        "put the folder back. If it is gone, take this stream and its outputs out, and declare a source of another "
        "name for it, with other outputs; all other outputs go on"
    )
