"""TG-07xx: the timely core.

>>> print(NotBeyond(path="shop/remap", held="5", wanted="3", action="downgrade"))
TG-0701: shop/remap: downgrade from time 5 to 3, which is not at or beyond it
  likely cause: permission to send never goes back in time
  what to do:   ask for a time at or beyond the one that is held
"""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError

__all__ = [
    "AmbiguousTime",
    "CapabilityGone",
    "ForeignCapability",
    "ForeignTime",
    "GraphsDiffer",
    "InvalidGraph",
    "InvalidRoute",
    "InvalidSummary",
    "InvalidTime",
    "NoBound",
    "NoSuchOutput",
    "NotBeyond",
    "NotConnected",
    "NotRun",
    "OperatorFailed",
    "ProgressViolation",
    "Reentrant",
    "Stuck",
    "UnknownDataflow",
    "UnroutableKey",
    "WorkerBroken",
    "WorkerStopped",
    "ZeroCycle",
]


class NotBeyond(TidegaugeError):
    """A capability or an input was asked to go to a time that it cannot reach."""

    code = "TG-0701"
    what = "{path}: {action} from time {held} to {wanted}, which is not at or beyond it"
    cause = "permission to send never goes back in time"
    remedy = "ask for a time at or beyond the one that is held"


class NotConnected(TidegaugeError):
    """A message was used for an output that its input cannot cause at that time."""

    code = "TG-0702"
    what = "{path}: a message at {held} on input {input} gives no permission at its own time on output {output}"
    cause = "the operator was built with {connection} between this input and this output"
    remedy = "use delayed(time, port) with a time that the connection reaches, or connect the ports when building"


class ForeignCapability(TidegaugeError):
    """A capability was used on an output that it does not belong to."""

    code = "TG-0703"
    what = "output {output} of {path} was opened with a capability at {held} of output {other} of {owner}"
    cause = "each output has its own capabilities; they cannot be moved to another output or operator"
    remedy = "keep one capability for each output: context.capabilities[port], or message.retain(port)"


class CapabilityGone(TidegaugeError):
    """A capability was used after its end."""

    code = "TG-0704"
    what = "{path}: the capability at {held} was used after {ended}"
    cause = "a capability ends when it is dropped, and a message's own capability with the invocation that drained it"
    remedy = "retain() what is needed later, and drop() only what is not"


class OperatorFailed(TidegaugeError):
    """An operator raised. Nothing of the invocation was published; its holds are kept."""

    code = "TG-0705"
    what = "the operator {path} raised {error}"
    cause = "an error in the operator, or in what it calls"
    remedy = "see the error it is chained to; the frontiers did not move by this invocation, so a restart repeats it"


class ZeroCycle(TidegaugeError):
    """A cycle along which time does not advance."""

    code = "TG-0706"
    what = "the scope {path} has a cycle that does not advance time, through {operators}"
    cause = "a feedback without an increment; such a loop can never be known to be finished"
    remedy = (
        "give the feedback a summary that advances, or open the scope with zero_cycles=True and rely on no frontier"
    )


class InvalidGraph(TidegaugeError):
    """A dataflow put together in a way that cannot run."""

    code = "TG-0707"
    what = "{path}: {problem}"
    cause = "{reason}"
    remedy = "{advice}"


class InvalidSummary(TidegaugeError):
    """A path summary that the order of the scope does not have."""

    code = "TG-0708"
    what = "{summary} is no path summary of the order {order}: {problem}"
    cause = "a summary says by how much a time grows along a path, in the terms of the scope's order"
    remedy = "pass None for no advance, or a summary that the documentation of the order describes"


class Reentrant(TidegaugeError):
    """A worker was stepped, or a dataflow built, from within one of its own steps."""

    code = "TG-0709"
    what = "{action} was called while the worker is in a step"
    cause = "an operator or a callback of it called the worker, or a second thread did"
    remedy = "let the thread that owns the worker do it between two steps; wake operators with an activator"


class ProgressViolation(TidegaugeError):
    """An operator sent, or kept permission to send, at a time that nothing entitled it to."""

    code = "TG-0710"
    what = "{path}: {kind} at {wanted} on output {output} without a message or a capability at or before it"
    cause = "permission was taken from nothing, such as an input frontier"
    remedy = "derive every capability from a message or from another capability"


class UnknownDataflow(TidegaugeError):
    """A dataflow that the worker does not have."""

    code = "TG-0711"
    what = "the worker has no dataflow named {name!r}. Known: {known}."
    cause = "a misspelt name, or the dataflow is complete or was dropped"
    remedy = "use one of the known names"


class WorkerBroken(TidegaugeError):
    """A step of the worker itself, not of an operator, was interrupted."""

    code = "TG-0712"
    what = "the worker was interrupted within a step by {error} and cannot go on"
    cause = "progress may be half recorded, so no frontier can be trusted any more"
    remedy = "build a new worker; everything durable is still there"


class AmbiguousTime(TidegaugeError):
    """The one time of a message that has several."""

    code = "TG-0713"
    what = "{path}: a message stamped {stamp} has no single time"
    cause = "a batch may span several times that do not compare"
    remedy = "use .stamp and retain_all(port)"


class NoSuchOutput(TidegaugeError):
    """A function that chooses an output for a piece of a batch named one that does not exist."""

    code = "TG-0714"
    what = "{path}: a piece of a batch is for output {output}, of {outputs}"
    cause = "the function gives pairs (output, piece), and outputs are numbered from 0"
    remedy = "give an output for every case, or ask for as many outputs as there are cases"


class UnroutableKey(TidegaugeError):
    """A key that does not determine which worker a record belongs to."""

    code = "TG-0715"
    what = "no worker can be chosen by {key}: {problem}"
    cause = "records are routed by integers, text and bytes alone: these are the same in every process"
    remedy = "route by one of these; make one of what the key consists of"


class GraphsDiffer(TidegaugeError):
    """Two workers have built different dataflows of one name."""

    code = "TG-0720"
    what = "{path}: worker {index} built {mine}, a peer built {theirs}"
    cause = "the function that builds the dataflow does something else on some workers"
    remedy = "build the same operators in the same sequence on every worker; only what is sent may differ"


class InvalidRoute(TidegaugeError):
    """A function that chooses a worker for a batch named one that does not exist."""

    code = "TG-0721"
    what = "{path}: a piece of a batch is routed to worker {peer}, of {peers}"
    cause = "a route gives pairs (worker, piece), and workers are numbered from 0"
    remedy = "take the number modulo the number of workers, the second argument of the route"


class Stuck(TidegaugeError):
    """Nothing is left to do, and a dataflow is not complete."""

    code = "TG-0722"
    what = "nothing is left to do, but a dataflow is not complete: {holders}"
    cause = "a capability or an input handle that nobody gave up, or a batch that its operator did not take"
    remedy = "drop or close what is named, or have the operator drain its input"


class InvalidTime(TidegaugeError):
    """A time that the order cannot have, or cannot give."""

    code = "TG-0718"
    what = "the order {order} has no such time: {problem}"
    cause = "an empty range, a partition outside the range or of another type than the others, or a position below 0"
    remedy = "name partitions by keys of one type that sort, and positions by integers from 0 up"


class NoBound(TidegaugeError):
    """A bound of two times that their order does not have."""

    code = "TG-0719"
    what = "the order {order} has no {bound} both {a} and {b}"
    cause = "not every order is a lattice, and a composed order is one only if its parts are"
    remedy = "use an order whose times all have this bound, such as INT, Bounded, or a Product of them"


class ForeignTime(TidegaugeError):
    """A time that does not belong to the scope's order."""

    code = "TG-0723"
    what = "{path}: {time} is no time of the order {order}"
    cause = "every scope has times of one order, and an iterative scope's are pairs (outer, inner)"
    remedy = "give a time of this order; to use your own times, give the dataflow or the scope an order of its own"


class WorkerStopped(TidegaugeError):
    """A worker was stepped after somebody had stopped it."""

    code = "TG-0750"
    what = "worker {index} was stopped"
    cause = "another worker of the same execution has failed, or somebody pressed Ctrl-C"
    remedy = "see the error that the execution raises; the dataflows stay unchanged, nothing is released"


class NotRun(TidegaugeError):
    """A function that was to do something returned a generator or a coroutine instead, so nothing has run."""

    code = "TG-0751"
    what = "{path}: {role} returned {kind}, of which nothing has run"
    cause = "a function with `yield` in it, or an `async` one, does nothing when it is called"
    remedy = "make it a plain function; one that has more to do later returns True and is activated again"
