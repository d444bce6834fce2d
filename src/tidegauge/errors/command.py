"""TG-06xx: the command line, and reading tables back."""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError

__all__ = [
    "FlowFileBroken",
    "FlowFileMissing",
    "FlowNeverRan",
    "NoFlowInFile",
    "NotPublished",
    "OutputHasFailed",
    "OutputIsBehind",
    "SeveralFlows",
]


class FlowFileMissing(TidegaugeError):
    """The file that should describe the flow is not there."""

    code = "TG-0601"
    what = "there is no file {path!r}"
    cause = "a misspelt path, or another working directory"
    remedy = "name the Python file that makes the flow, like 'shop.py' or 'shop.py:flow'"


class FlowFileBroken(TidegaugeError):
    """Loading the flow's file raised."""

    code = "TG-0602"
    what = "{path} raised {error} on line {line}: {detail}"
    cause = "a mistake in the file; nothing was run"
    remedy = "correct it; --debug shows the whole traceback"


class NoFlowInFile(TidegaugeError):
    """The file makes no flow."""

    code = "TG-0603"
    what = "{path} has no {wanted}"
    cause = "tg.Dataflow(...) is not called at the top level of the file, or is not kept in a variable"
    remedy = "keep the flow in a variable: flow = tg.Dataflow('shop', store='sqlite:///shop.db')"


class SeveralFlows(TidegaugeError):
    """The file makes more than one flow."""

    code = "TG-0604"
    what = "{path} makes several flows: {names}"
    cause = "the file describes more than one flow"
    remedy = "say which one: '{path}:{first}'"


class FlowNeverRan(TidegaugeError):
    """Nothing is in the store about the flow."""

    code = "TG-0605"
    what = "the store {store} knows nothing of the flow {flow!r}"
    cause = "it has never run, or it ran with another store or from another folder"
    remedy = "run it first: tidegauge run"


class NotPublished(TidegaugeError):
    """An epoch or a time before or after everything that is published."""

    code = "TG-0606"
    what = "{as_of!r} is not published; {published} epochs are, numbered from 0"
    cause = "nothing was published by then, or the epoch is still to come"
    remedy = "read without as_of for the newest published epoch; 'tidegauge epochs' lists them"


class OutputHasFailed(TidegaugeError):
    """A read at or after the epoch from which an output has failed."""

    code = "TG-0607"
    what = "output {output!r} has failed at epoch {epoch}, so it cannot be read as of {as_of}: {detail}"
    cause = "its source has a definite error from that epoch on"
    remedy = "read an earlier epoch with as_of, and see 'tidegauge status' for what to do about the error"


class OutputIsBehind(TidegaugeError):
    """A read of an epoch that is published, but that this output does not hold yet."""

    code = "TG-0608"
    what = "output {output!r} holds the epochs before {upper}, and epoch {as_of} was asked for"
    cause = "the output was added later, or failed by itself, and has not caught up"
    remedy = "run the flow until it has, or read an earlier epoch with as_of"
