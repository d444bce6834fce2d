"""TG-0676 and on: streams of several sources in one.

>>> print(CannotUnite(why="stream 'web' has the step filter", remedy="unite the sources, and filter the union"))
TG-0676: the streams cannot be united: stream 'web' has the step filter
  likely cause: a union is of whole sources of one flow, whose columns are known and whose records can be read again
  what to do:   unite the sources, and filter the union
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError

__all__ = ["CannotUnite", "InputMissing", "InputRecreated"]


class CannotUnite(TidegaugeError):
    """Streams that are not those of whole sources, or whose columns do not go together."""

    code = "TG-0676"
    what = "the streams cannot be united: {why}"
    cause = "a union is of whole sources of one flow, whose columns are known and whose records can be read again"
    remedy = "{remedy}"


class InputMissing(Definite):
    """An epoch of a union has records of a source that is not in the union any more."""

    code = "TG-0677"
    what = (
        "an output of a union lacks records of its input {input!r}, which it does not have any more: it has {known}"
    )
    cause = "the input was taken out of tg.union before every output of the union had its bound records"
    remedy = "put it back until `tidegauge status` shows no lag of these outputs; then take it out"


class InputRecreated(Definite):
    """An input of a union is another upstream than the one that was bound."""

    code = "TG-0678"
    what = "input {input!r} of a union is another upstream: found {found!r}, and the records to read are of {known!r}"
    cause = (
        "it was removed and created again, or restored from an older backup, before the union had all bound records"
    )
    remedy = (
        "resume the input first: tidegauge resume FLOW {input} --new-incarnation; then the union, which goes on with "
        "it: tidegauge resume FLOW UNION --new-incarnation, with --accept-loss for records that are gone"
    )
