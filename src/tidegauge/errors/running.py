"""TG-055x: a flow under way."""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = ["JobGaveUp", "OutputNotWritable", "SourceUnreachable", "SpanConflict", "UpstreamRecreated"]


class JobGaveUp(TidegaugeError):
    """A job failed as often as it may."""

    code = "TG-0550"
    what = "the job for the epochs {first} to {last} failed {attempts} times; the last time: {detail}"
    cause = "what keeps it from running did not pass: a full disk, an engine that dies, too little memory"
    remedy = "put that right and start again: nothing of these epochs is visible, and the next run goes on with them"


class OutputNotWritable(TidegaugeError):
    """A commit failed as often as it may."""

    code = "TG-0551"
    what = "the table of output {output!r} could not be committed to in {attempts} attempts; the last time: {detail}"
    cause = "the disk is full, the folder is not writable, or the storage cannot be reached"
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
    what = "the upstream of source {source!r} is {found!r}, and what is bound is of {known!r}"
    cause = "it was removed and made anew, or the source was changed to read another one under the same name"
    remedy = "give the source another name, and its outputs other tables, to read the new upstream from its beginning"
