"""TG-0246 and on, TG-0422 and on, TG-0623 and on: why a table cannot be repaired as it was asked.

>>> print(ForeignRows(table="lake/orders", output="shop:orders", files="part-7.parquet (WRITE, version 3)"))
TG-0422: the table lake/orders holds files that 'shop:orders' did not write: part-7.parquet (WRITE, version 3)
  likely cause: another program appended to the table, or wrote rows of it anew
  what to do:   look at them; --remove-foreign removes them. Nothing was changed
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegauge.errors.base import TidegaugeError

__all__ = ["EpochsCompacted", "EpochsGone", "EpochsUnknown", "ForeignRows", "HistoriesPart", "OnlyAppended", "listed"]


class ForeignRows(TidegaugeError):
    """A table with rows of others, which nobody has allowed to be removed."""

    code = "TG-0422"
    what = "the table {table} holds files that {output!r} did not write: {files}"
    cause = "another program appended to the table, or wrote rows of it anew"
    remedy = "look at them; --remove-foreign removes them. Nothing was changed"


class EpochsGone(TidegaugeError):
    """Epochs that a table lacks and its source can no longer provide."""

    code = "TG-0423"
    what = "output {output!r} lacks epochs of which source {source!r} no longer has all records: {epochs}; {detail}"
    cause = "upstream forgot records that every output had held, as it may"
    remedy = (
        "bring the records back upstream, or RESTORE the table to a version that still holds these epochs; or let "
        "tidegauge skip record the loss as a gap, and repair without it. Nothing was changed"
    )


class EpochsCompacted(TidegaugeError):
    """Epochs that a table lacks and that can no longer be told apart."""

    code = "TG-0424"
    what = "output {output!r} lacks some of the epochs {epochs}, and those up to {since} were compacted"
    cause = "tidegauge compact made them indistinguishable after the table held them"
    remedy = (
        "RESTORE the table to a version that still holds them; or --from 0 rewrites the whole table, where the "
        "epochs up to {since} become one. Nothing was changed"
    )


class EpochsUnknown(TidegaugeError):
    """Missing files of a table whose epochs nothing records."""

    code = "TG-0425"
    what = "it is not known which epochs of {output!r} were in files that the table {table} lacks: {files}"
    cause = "the files were removed, and so were the entries of the log that added them"
    remedy = "RESTORE the table to a version that has them; or --from 0 rewrites all of it. Nothing was changed"


class HistoriesPart(TidegaugeError):
    """A table to be rewritten from an epoch before which its history already differs from the store's."""

    code = "TG-0246"
    what = (
        "output {output!r} cannot be written anew from epoch {epoch} on: the store and its table have one history "
        "of the epochs before {parted} only"
    )
    cause = "the store was put back to an older copy, and has bound other data since"
    remedy = "--from {parted} keeps everything that both agree on. Nothing was changed"


class OnlyAppended(TidegaugeError):
    """An output from which nothing can be removed."""

    code = "TG-0623"
    what = "output {output!r} cannot be repaired: nothing of it can be taken out or replaced"
    cause = "it is a topic, to which messages can only be appended, or a custom sink without `mend`"
    remedy = "write it to another topic: a new output begins with the first epoch there is"


def listed(epochs: Iterable[range]) -> str:
    """Return epochs for people.

    >>> listed([range(2, 3), range(5, 8)])
    '2, 5 to 7'
    """
    return ", ".join(str(one.start) if len(one) == 1 else f"{one.start} to {one.stop - 1}" for one in epochs)
