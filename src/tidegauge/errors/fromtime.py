"""TG-057x: the clocks of sources, their notation, and how they are written down.

>>> print(InvalidNotation(kind="lsn", text="16-B37", problem="two hexadecimal numbers with a '/' are expected"))
TG-0570: '16-B37' is no frontier of the clock 'lsn': two hexadecimal numbers with a '/' are expected
  likely cause: a text that was cut, edited, or comes from another kind of upstream
  what to do:   copy it as upstream prints it
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, nearest

__all__ = [
    "FromTimeChanged",
    "FromTimeTaken",
    "GtidWentBack",
    "InexpressibleTimes",
    "InvalidNotation",
    "InvalidPlace",
    "InvalidState",
    "NotCanonical",
    "StateTooLarge",
    "UnknownFromTime",
]


class InvalidNotation(TidegaugeError):
    """A text that is not in the notation of a source's clock."""

    code = "TG-0570"
    what = "{text!r} is no frontier of the clock {kind!r}: {problem}"
    cause = "a text that was cut, edited, or comes from another kind of upstream"
    remedy = "copy it as upstream prints it"


class InvalidPlace(TidegaugeError):
    """A partition or a position that a clock does not have."""

    code = "TG-0571"
    what = "the clock {kind!r} has no position {position} in a partition {partition!r}: {problem}"
    cause = "a partition or a position of another kind of source, or beyond 64 bits"
    remedy = "use partitions and positions of this kind; positions are integers from 0 to 2**63 - 1"


class UnknownFromTime(TidegaugeError):
    """A kind of clock that nobody has registered."""

    code = "TG-0572"
    what = "there is no kind of clock named {kind!r}. Known: {known}."
    cause = "a misspelt name, or a custom kind that was not registered{hint}"
    remedy = "register it, or use one of the known kinds"

    def __init__(self, *, kind: str, known: list[str], hint: str | None = None) -> None:
        if hint is None:
            near = nearest(kind, known)
            hint = f"; the nearest is {near!r}" if near else ""
        super().__init__(kind=kind, known=list(known), hint=hint)


class FromTimeTaken(TidegaugeError):
    """Two kinds of clocks of one name."""

    code = "TG-0573"
    what = "the kind of clock {kind!r} is registered already"
    cause = "two kinds were given one name, or one was registered twice; the name is kept with every frontier"
    remedy = "give the second one another name"


class NotCanonical(TidegaugeError):
    """A text that is not a frontier or a state in our canonical form."""

    code = "TG-0574"
    what = "a stored {thing} cannot be read: {problem}"
    cause = "it was written by something else, edited, cut, or belongs to a newer version"
    remedy = "restore it from a backup; nothing was changed"


class FromTimeChanged(TidegaugeError):
    """A frontier of another kind of clock than the source has now."""

    code = "TG-0575"
    what = "a frontier of the clock {stored!r} was found where the source has the clock {declared!r}"
    cause = "another kind of upstream was declared under the source's old name"
    remedy = "declare it as before, or give it a new name"


class GtidWentBack(Definite):
    """A transaction that a server had given before, or that came after the end."""

    code = "TG-0576"
    what = "server {uuid} gave transaction {number} when {passed}"
    cause = "the server was reset or restored from a backup, or its replica commits out of order"
    remedy = "set replica_preserve_commit_order=ON; after a reset give the source a new name"


class InvalidState(TidegaugeError):
    """A state of a source that cannot be kept in a binding."""

    code = "TG-0577"
    what = "the state {kind!r} of {source_id!r} cannot be kept: {problem}"
    cause = "something other than plain JSON values without floats, or bytes"
    remedy = "keep bytes, or texts, integers of 64 bits, booleans, null, lists and objects of these"


class StateTooLarge(TidegaugeError):
    """A state of a source that is too large to be in every binding."""

    code = "TG-0578"
    what = "the state {kind!r} of {source_id!r} takes {size} bytes, and at most {limit} may be kept"
    cause = "a state that holds data, or grows with every read"
    remedy = "keep a cursor or a digest in it, and the data elsewhere"


class InexpressibleTimes(TidegaugeError):
    """An antichain of intervals of partitions that no frontier can express."""

    code = "TG-0579"
    what = "the times {times} are no frontier of the clock {kind!r}: {problem}"
    cause = "unseen partitions that are not at 0, ended partitions, or intervals that overlap"
    remedy = "keep the intervals between known partitions at position 0, all of them"
