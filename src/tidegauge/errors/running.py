"""TG-055x: a flow under way."""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
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
    """A job failed as often as it may."""

    code = "TG-0550"
    what = "the job for the epochs {first} to {last} failed {attempts} times; the last time: {detail}"
    cause = "what keeps it from running did not pass: {cause}"
    remedy = "put that right and start again: nothing of these epochs is visible, and the next run goes on with them"


class OutputNotWritable(TidegaugeError):
    """A commit failed as often as it may."""

    code = "TG-0551"
    what = "the table of output {output!r} could not be committed to in {attempts} attempts; the last time: {detail}"
    cause = "what keeps it from being committed did not pass: {cause}"
    remedy = "put that right and start again: the flow goes on at the epoch that it could not commit"


class SourceUnreachable(Transient):
    """A probe failed in a way that may pass."""

    code = "TG-0552"
    what = "source {source!r} cannot be probed: {error}: {detail}"
    cause = "a folder that is not there or not readable, or an upstream that does not answer"
    remedy = "it is tried again by itself; the other sources go on"


class SpanConflict(TidegaugeError):
    """The table ends inside the span that was to be committed."""

    code = "TG-0553"
    what = "output {output!r} was to get the epochs {lower} to {last}, and its table already ends at {actual}"
    cause = "another driver of this flow committed other spans, after this one had lost its lease"
    remedy = "stop the other driver, then start this one again: it goes on from what is in the table"


class UpstreamRecreated(Definite):
    """What is upstream now is not what was bound."""

    code = "TG-0554"
    what = (
        "source {source!r} now points at another upstream: found {found!r}, and the timeline was built from {known!r}"
    )
    cause = "it was removed and made anew, or the source was changed to read another one under the same name"
    remedy = (
        "to read the new upstream from its beginning as a new incarnation: tidegauge resume FLOW {source} "
        "--new-incarnation; once the old one is back: tidegauge resume FLOW {source}"
    )


class CannotTick(TidegaugeError):
    """A tick was asked of a flow by somebody whom it cannot answer."""

    code = "TG-0555"
    what = "the flow {flow!r} cannot be ticked: {why}"
    cause = "a tick is made by a run of the same Dataflow object in another thread"
    remedy = "start flow.run() in a thread of its own, and call flow.tick() while it runs"


class TickHeld(Transient):
    """A tick bound nothing, because a source that is required did not say how far it is."""

    code = "TG-0556"
    what = "nothing is bound: waiting for required source {sources}"
    cause = "it cannot be asked at present, it does not answer, or it has failed"
    remedy = "see its state in tidegauge status; ticks go on by themselves once it answers"


class NothingToResume(TidegaugeError):
    """A source that was to be resumed, and did not fail in a way that this would end."""

    code = "TG-0557"
    what = "source {source!r} cannot be resumed{how}: {state}"
    cause = "it was resumed already, the name is another one's, or its failure is of another kind"
    remedy = "see its state in tidegauge status; a new incarnation is for an upstream that was recreated (TG-0554)"


class LossNotAccepted(TidegaugeError):
    """A new incarnation would leave records behind that some output lacks and nobody can read any more."""

    code = "TG-0558"
    what = (
        "source {source!r} cannot begin a new incarnation: {size} {unit} of the old one, bound in the epochs {first} "
        "to {last}, are not in every output; they are lacking in {outputs}"
    )
    cause = "the old upstream went before every output had read what was bound of it"
    remedy = (
        "bring the old upstream back and run until every output has them, or go on without them with "
        "--accept-loss: each range is then a row of the view gaps"
    )
