"""TG-02xx, too: an output and the history that the store has for it.

>>> print(StartChanged.code, StartChanged.__doc__)
TG-0228 An output whose table begins elsewhere than its flow says now.
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError

__all__ = [
    "CannotReplace",
    "CodeChanged",
    "OutputBelowIncarnation",
    "OutputBelowSince",
    "OutputLeftBehind",
    "OutputMoved",
    "PastGone",
    "PastNotThere",
    "PastUnreadable",
    "StartChanged",
    "StartNotThere",
    "TimestampsChanged",
    "TimestampsNotThere",
]


class OutputMoved(TidegaugeError):
    """An output that was pointed at another source while keeping its table."""

    code = "TG-0219"
    what = (
        "output {output!r} was written from source {before!r} and is to be written from {now!r}, into the same table"
    )
    cause = (
        "the source was renamed; a source of a new name begins at its first record, which the table may hold already"
    )
    remedy = "write the output from {before!r} again, or give it another path"


class OutputBelowSince(TidegaugeError):
    """An output that lacks epochs which can no longer be told from those that it holds."""

    code = "TG-0225"
    what = (
        "output {output!r} holds the epochs before {upper}, and what it lacks of those before {since} can no longer "
        "be told from what it holds"
    )
    cause = (
        "the flow was compacted while the output was not a part of it, or its table was put back to an older version"
    )
    remedy = "give the output another path: it is then written from all of the source, beginning at epoch {since}"


class OutputLeftBehind(Definite):
    """An output that lacks records which a source that pushes gives no more, while its other outputs have them."""

    code = "TG-0238"
    what = "output {output!r} lacks the epochs from {epoch} on, and source {source!r} gives them no more: {detail}"
    cause = (
        "the output was added after upstream had been told that these records are durable; its table was restored "
        "from a backup; or somebody removed the records upstream"
    )
    remedy = (
        "give a new output start='now': it begins with the next epoch. For a table with all rows, declare the "
        "source once more under another name, or drop this output. The other outputs go on, and upstream keeps "
        "nothing for this one"
    )


class OutputBelowIncarnation(TidegaugeError):
    """An output that lacks epochs whose records upstream had before it was recreated."""

    code = "TG-0226"
    what = (
        "output {output!r} lacks {positions} positions of source {source!r}, bound in the epochs {first} to {last}; "
        "they are of an upstream that was recreated since, so nothing can read them any more"
    )
    cause = (
        "the output was not a part of the flow when the source went on with the recreated upstream, or its table was "
        "put back to an older version"
    )
    remedy = (
        "give the output another path: its new table begins with the recreated upstream. Or go on without them: "
        "'tidegauge resume FLOW {source} --new-incarnation --accept-loss' makes each range a row of the view gaps"
    )


class StartNotThere(TidegaugeError):
    """A place for an output to begin at that is in no epoch, or in none that can be told apart."""

    code = "TG-0227"
    what = "output {output!r} cannot begin at {start}: {why}"
    cause = "a mistyped number or another source's partition, a place still to come, or epochs compacted by now"
    remedy = (
        "give a start from the timeline ('tidegauge epochs' and 'tidegauge locate' show it), 'now' for new "
        "records alone, or none for all that there is. Nothing was begun"
    )


class StartChanged(TidegaugeError):
    """An output whose table begins elsewhere than its flow says now."""

    code = "TG-0228"
    what = "output {output!r} is to begin at {now}, and its table began at {before}"
    cause = "start= was changed after rows had been committed; a table keeps the beginning that it was made with"
    remedy = (
        "put start= back as it was; for a table that begins elsewhere add an output of another name with another "
        "path. Nothing was begun"
    )


class CodeChanged(TidegaugeError):
    """An output whose code is another one than that which made the rows of its table."""

    code = "TG-0229"
    what = (
        "output {output!r} holds the epochs before {epoch}, and its code is not the one that has made its rows since "
        "epoch {since}: {changes}{others}"
    )
    cause = "a step or a function of the flow was changed, so later rows would differ from those that are published"
    remedy = (
        "put the code back as it was; or go on with the new code from epoch {epoch} on: 'tidegauge outputs from-here "
        "FLOW {output}'; or have all rows made by the new code, the old ones visible until then: 'tidegauge outputs "
        "replace FLOW {output}'. Nothing was begun"
    )


class CannotReplace(TidegaugeError):
    """A table whose rows cannot be made again and change places with the old ones."""

    code = "TG-0234"
    what = "the rows of output {output!r} cannot be replaced: {why}"
    cause = "rows are replaced by reading all of the source again, and in one commit of a table"
    remedy = (
        "give the output another name and path: the new one is written from all that there is, beside the old one; "
        "drop the old one with 'tidegauge outputs drop' once the new one is live. Nothing was begun"
    )


class TimestampsNotThere(TidegaugeError):
    """An epoch for the past of an output that it cannot have."""

    code = "TG-0232"
    what = "the past of output {output!r} cannot have {timestamps}: {why}"
    cause = (
        "an epoch that is not published yet, or compacted by now; or an output whose past does not become visible at "
        "once: only Parquet and Delta tables of a source that is read by ranges are filled"
    )
    remedy = (
        "give an epoch that is published and that the output does not begin after, or leave timestamps= out: every "
        "row then has the epoch of its record. Nothing was begun"
    )


class TimestampsChanged(TidegaugeError):
    """An output whose rows have other epochs than its flow says now."""

    code = "TG-0233"
    what = "output {output!r} is to have the timestamps {now}, and its table was made with {before}"
    cause = "timestamps= was changed after rows had been committed; a table keeps the epochs that its rows have"
    remedy = (
        "put timestamps= back as it was; for a table with others add an output of another name with another path. "
        "Nothing was begun"
    )


class PastNotThere(TidegaugeError):
    """An output that is to get its past from a table that does not have it."""

    code = "TG-0235"
    what = "output {output!r} cannot get its past from the table of output {table!r}: {why}"
    cause = (
        "start=tg.From(...) names another output of the same stream, declared before, whose table has each row of "
        "the past in the epoch of its record"
    )
    remedy = (
        "name such an output, go on from the stream that it is written from, or leave start= out: the past is then "
        "read from the source. Nothing was begun"
    )


class PastGone(Definite):
    """A table that is to be replaced, though nobody can make some of its rows again."""

    code = "TG-0237"
    what = (
        "the table of output {output!r} is not replaced: source {source!r} no longer has {partition!r} from {lower} "
        "to {upper}, which the table holds in epoch {epoch}"
    )
    cause = (
        "upstream deleted records since the table got them; a new table would lack them, whatever on_data_loss= says"
    )
    remedy = (
        "keep the rows: 'tidegauge outputs from-here' takes the replacement back. To do without those that cannot be "
        "made again, drop the output with its table: the next run fills it with all that there still is. "
        "The old rows are unchanged"
    )


class PastUnreadable(Definite):
    """Epochs of a table that an output is to get its past from, and that cannot be read there."""

    code = "TG-0236"
    what = "the epochs from {first} to before {upper} cannot be read from the table of output {table!r}: {detail}"
    cause = "its files were removed or damaged by others, its columns were changed, or an older version was restored"
    remedy = (
        "'tidegauge verify FLOW {table}' names the damage, 'tidegauge repair FLOW {table}' mends it while upstream "
        "has the records; then run the flow again. Units that are staged already are kept, and nobody sees a part of "
        "the past"
    )
