"""TG-0246 and on, TG-0422 and on, TG-0623 and on: why a table cannot be repaired as it was asked.

>>> print(ForeignRows(table="lake/orders", output="shop:orders", files="part-7.parquet (WRITE, version 3)"))
TG-0422: the table lake/orders holds files that 'shop:orders' did not write: part-7.parquet (WRITE, version 3)
  likely cause: another program appended to the table, or wrote rows of it anew
  what to do:   look at them; with --remove-foreign they are taken out. Nothing was changed
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegauge.errors.base import TidegaugeError

__all__ = ["EpochsCompacted", "EpochsGone", "EpochsUnknown", "ForeignRows", "HistoriesPart", "OnlyAppended", "listed"]


class ForeignRows(TidegaugeError):
    """A table with rows of others, which nobody has said may go."""

    code = "TG-0422"
    what = "the table {table} holds files that {output!r} did not write: {files}"
    cause = "another program appended to the table, or wrote rows of it anew"
    remedy = "look at them; with --remove-foreign they are taken out. Nothing was changed"


class EpochsGone(TidegaugeError):
    """Epochs that a table lacks and its source can no longer give."""

    code = "TG-0423"
    what = "output {output!r} lacks epochs of which source {source!r} no longer has all: {epochs}; {detail}"
    cause = "upstream forgot records that every output had held, as it may"
    remedy = (
        "bring the records back upstream, or RESTORE the table to a version that still holds these epochs; "
        "tidegauge skip records what is lost as a gap, and a repair goes on without it. Nothing was changed"
    )


class EpochsCompacted(TidegaugeError):
    """Epochs that a table lacks and that can no longer be told apart."""

    code = "TG-0424"
    what = "output {output!r} lacks some of the epochs {epochs}, and those up to {since} were compacted"
    cause = "tidegauge compact made them indistinguishable after the table held them"
    remedy = (
        "RESTORE the table to a version that still holds them; or --from 0 writes all of the table anew, "
        "where the epochs up to {since} become one. Nothing was changed"
    )


class EpochsUnknown(TidegaugeError):
    """Files that a table lacks, of which nobody knows which epochs they held."""

    code = "TG-0425"
    what = "it is not known which epochs of {output!r} were in files that the table {table} lacks: {files}"
    cause = "the files were removed, and so were the entries of the log that added them"
    remedy = "RESTORE the table to a version that has them; or --from 0 writes all of it anew. Nothing was changed"


class HistoriesPart(TidegaugeError):
    """A table that is to be written anew from an epoch before which it has another history than the store."""

    code = "TG-0246"
    what = (
        "output {output!r} cannot be written anew from epoch {epoch} on: the store and its table have one history "
        "of the epochs before {parted} only"
    )
    cause = "the store was put back to an older copy, and has bound other data since"
    remedy = "--from {parted} keeps all that both agree on. Nothing was changed"


class OnlyAppended(TidegaugeError):
    """An output of which nothing can be taken out."""

    code = "TG-0623"
    what = "output {output!r} cannot be repaired: nothing of it can be taken out or replaced"
    cause = "it is a topic, to which messages can only be appended, or a sink of one's own without `mend`"
    remedy = "write it to another topic: a new output begins with the first epoch there is"


def listed(epochs: Iterable[range]) -> str:
    """Return epochs for people.

    >>> listed([range(2, 3), range(5, 8)])
    '2, 5 to 7'
    """
    return ", ".join(str(one.start) if len(one) == 1 else f"{one.start} to {one.stop - 1}" for one in epochs)
