"""TG-055x: a flow under way."""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "CannotPause",
    "CannotTick",
    "JobGaveUp",
    "LossNotAccepted",
    "NothingToResume",
    "OutputNotWritable",
    "SourceUnreachable",
    "SpanConflict",
    "TickHeld",
    "UpstreamRecreated",
]


class JobGaveUp(TidegaugeError):
    """A job failed too many times."""

    code = "TG-0550"
    what = "the job for the epochs {first} to {last} failed {attempts} times; the last time: {detail}"
    cause = "the problem did not pass: {cause}"
    remedy = "fix it and start again: nothing of these epochs is visible, and the next run goes on with them"


class OutputNotWritable(TidegaugeError):
    """A commit failed too many times."""

    code = "TG-0551"
    what = "the table of output {output!r} could not be committed to in {attempts} attempts; the last time: {detail}"
    cause = "the problem did not pass: {cause}"
    remedy = "fix it and start again: the flow goes on at the epoch that it could not commit"


class SourceUnreachable(Transient):
    """A probe failed for a reason that may pass."""

    code = "TG-0552"
    what = "source {source!r} cannot be probed: {error}: {detail}"
    cause = "a folder that is missing or not readable, or an upstream that does not answer"
    remedy = "the flow tries again by itself; the other sources go on"


class SpanConflict(TidegaugeError):
    """The table ends inside the span that was to be committed."""

    code = "TG-0553"
    what = "output {output!r} was to get the epochs {lower} to {last}, and its table already ends at {actual}"
    cause = "another driver of this flow committed other spans, after this one had lost its lease"
    remedy = "stop the other driver, then start this one again: it goes on from the end of the table"


class UpstreamRecreated(Definite):
    """Upstream no longer is the one that was bound."""

    code = "TG-0554"
    what = (
        "source {source!r} now points at another upstream: found {found!r}, and the timeline was built from {known!r}"
    )
    cause = (
        "it was removed and created again, or restored from an older backup, or the source was changed to read "
        "another one under the same name"
    )
    remedy = (
        "to read the new upstream from its beginning as a new incarnation: tidegauge resume FLOW {source} "
        "--new-incarnation; once the old one is back: tidegauge resume FLOW {source}"
    )


class CannotTick(TidegaugeError):
    """A tick was requested from code that the flow cannot answer."""

    code = "TG-0555"
    what = "the flow {flow!r} cannot be ticked: {why}"
    cause = "a tick is made by a run of the same Dataflow object in another thread"
    remedy = "start flow.run() in its own thread, and call flow.tick() while it runs"


class TickHeld(Transient):
    """A tick bound nothing, because a required source did not answer."""

    code = "TG-0556"
    what = "nothing is bound: waiting for required source {sources}"
    cause = "it does not answer at present, or it has failed"
    remedy = "see its state in tidegauge status; ticks go on by themselves once it answers"


class NothingToResume(TidegaugeError):
    """A source that was to be resumed, but has no failure that this would end."""

    code = "TG-0557"
    what = "source {source!r} cannot be resumed{how}: {state}"
    cause = "it was resumed already, the name is another source's, or its failure is of another kind"
    remedy = "see its state in tidegauge status; a new incarnation is for an upstream that was recreated (TG-0554)"


class CannotPause(TidegaugeError):
    """An output whose source pushes cannot wait while others go on."""

    code = "TG-0559"
    what = "output {output!r} cannot be paused: its source {source!r} pushes"
    cause = "what a source pushes comes once, for all its outputs together, so those would have to wait as well"
    remedy = "stop the flow, or take the output out of it until it is wanted again"


class LossNotAccepted(TidegaugeError):
    """A new incarnation would leave records behind that some output lacks and that nothing can read any more."""

    code = "TG-0558"
    what = (
        "source {source!r} cannot go on with a recreated upstream: {size} {unit} of the old one, bound in the epochs "
        "{first} to {last}, are not in every output; they are lacking in {outputs}"
    )
    cause = "the old upstream disappeared before every output had read its bound records"
    remedy = (
        "bring the old upstream back and run until every output has them, or go on without them with "
        "--accept-loss: each range is then a row of the view gaps"
    )
