"""TG-024x, TG-0422 and on, TG-043x, TG-0623 and on: the one history that a store and its tables have, and why a table
cannot be repaired as it was asked.

>>> other = other_way("orders", 5, mendable=True)
>>> print(StoreBehindTable(flow="shop", output="orders", store=5, table=9, parted=5, other=other))
TG-0240: the store of flow 'shop' is older than the table of output 'orders': it has bound 5 epochs, the table holds 9
  likely cause: the store was restored from a backup, or put back to an older copy
  what to do:   tidegauge recover brings the timeline back from the tables; \
or tidegauge repair FLOW orders --from 5 writes the table anew from where the two part. Nothing was bound or written
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegauge.errors.base import Definite, TidegaugeError

__all__ = [
    "BackupExists",
    "BackupFailed",
    "DamagedHistory",
    "EpochsCompacted",
    "EpochsGone",
    "EpochsOfOtherCode",
    "EpochsUnknown",
    "ForeignRows",
    "HistoriesDiffer",
    "HistoriesPart",
    "NothingToRecoverFrom",
    "OnlyAppended",
    "ServerBacksUp",
    "StoreBehindCompaction",
    "StoreBehindTable",
    "TablesDisagree",
    "TablesOfSeveralStores",
    "TimelineLost",
    "listed",
    "other_way",
]


def other_way(output: str, parted: object, *, mendable: bool) -> str:
    """Return how an output gets the store's history, where its own is not to be had back.

    mendable: whether anything can be taken out of it; of a topic nothing can, nor of what a function was given.
    """
    if mendable:
        return f"tidegauge repair FLOW {output} --from {parted} writes the table anew from where the two part"
    return f"give {output} another place (a topic, a path), to which all epochs of the store are written"


class StoreBehindTable(TidegaugeError):
    """A table with epochs that its store has never bound."""

    code = "TG-0240"
    what = (
        "the store of flow {flow!r} is older than the table of output {output!r}: "
        "it has bound {store} epochs, the table holds {table}"
    )
    cause = "the store was restored from a backup, or put back to an older copy"
    remedy = "tidegauge recover brings the timeline back from the tables; or {other}. Nothing was bound or written"


class StoreBehindCompaction(TidegaugeError):
    """A table that has old epochs as one, which its store tells apart."""

    code = "TG-0247"
    what = (
        "the store of flow {flow!r} is older than the table of output {output!r}: it tells epochs before {table} "
        "apart, which the table has as one"
    )
    cause = "the flow was compacted, the output came later, and the store was restored from a backup of before that"
    remedy = "tidegauge recover compacts the store as far again. Nothing was bound or written"


class HistoriesDiffer(TidegaugeError):
    """A table whose epochs differ from the store's, although both have them."""

    code = "TG-0241"
    what = (
        "the store of flow {flow!r} and the table of output {output!r} have different histories: the store has bound "
        "{store} epochs, the table holds {table}, and they are not the same epochs"
    )
    cause = (
        "the store was put back to an older copy and has bound other data since, "
        "or a copy of it drives the same tables"
    )
    remedy = "tidegauge recover brings the timeline back from the tables; or {other}. Nothing was bound or written"


class NothingToRecoverFrom(TidegaugeError):
    """A flow none of whose tables holds anything."""

    code = "TG-0242"
    what = "no output of flow {flow!r} has a table that holds anything, so there is nothing to recover its store from"
    cause = "the flow never ran, or its outputs have other paths than they had"
    remedy = "give the outputs the paths that they were written to; or run the flow, which begins from scratch"


class TablesOfSeveralStores(TidegaugeError):
    """Tables of one flow that were written with different stores."""

    code = "TG-0243"
    what = "the tables of flow {flow!r} were written with different stores: {found}"
    cause = "the store was recreated at some time, and some of the outputs were given new paths then"
    remedy = (
        "leave the outputs of the older store out of the flow, recover, and give them other paths; "
        "nothing was changed"
    )


class TimelineLost(TidegaugeError):
    """A timeline that cannot be rebuilt up to the end of a table."""

    code = "TG-0244"
    what = (
        "the timeline of flow {flow!r} cannot be rebuilt: output {output!r} holds the epochs before {upper}, and "
        "neither the store nor a table still has the bindings of epoch {epoch}"
    )
    cause = "a version without digests wrote the table, entries of its log were removed, or its history does not fit"
    remedy = (
        "restore the newest backup of the store and recover again; or leave the output out of the flow, recover, and "
        "give it another path, where it is written from scratch; nothing was changed"
    )


class TablesDisagree(TidegaugeError):
    """Tables of one store that hold different epochs under the same numbers."""

    code = "TG-0245"
    what = (
        "the tables of flow {flow!r} do not have one history: {output!r} holds the epochs before {upper}, "
        "and they are not those that {others} holds"
    )
    cause = "the store was put back to an older copy, and some of the outputs were written with other epochs since"
    remedy = (
        "leave the outputs with wrong epochs out of the flow, recover, and give them other paths, where they are "
        "written from scratch; or keep the store's timeline: tidegauge repair FLOW OUTPUT --from EPOCH writes a "
        "table anew that differs from it, as its TG-0241 says; nothing was changed"
    )


class BackupExists(TidegaugeError):
    """A backup into a file that exists already."""

    code = "TG-0620"
    what = "{target} is there already, and a backup replaces nothing"
    cause = "it is an earlier backup, or another file"
    remedy = "name a new file, such as one with the date in its name"


class BackupFailed(TidegaugeError):
    """A backup that could not be taken."""

    code = "TG-0621"
    what = "the store {store} could not be copied to {target}: {detail}"
    cause = "the folder is not writable, the disk is full, it has no hard links, or the store is damaged"
    remedy = "name a file in another folder; the store was not touched"


class ServerBacksUp(TidegaugeError):
    """A backup of a store on PostgreSQL, which the server's own tools take."""

    code = "TG-0622"
    what = "the store {store} is in a PostgreSQL database; back it up with PostgreSQL's own tools"
    cause = "tidegauge backup copies stores that are SQLite files"
    remedy = "pg_dump -Fc takes a consistent copy while the flow runs, and pg_restore --clean puts it back"


class DamagedHistory(Definite):
    """An unreadable record of the history beside a table."""

    code = "TG-0430"
    what = "the history that the table {table} keeps in {path} cannot be read: {detail}"
    cause = "it was changed by hand, damaged on disk, or written by a newer version"
    remedy = "restore the file from a backup, or take it away: it is needed only to recover a lost store"


class ForeignRows(TidegaugeError):
    """A table with rows of others, which nobody has allowed to be removed."""

    code = "TG-0422"
    what = "the table {table} holds files that {output!r} did not write: {files}"
    cause = "another program appended to the table, or wrote rows of it anew"
    remedy = "look at them; --remove-foreign removes them. Nothing was changed"


class EpochsGone(TidegaugeError):
    """Epochs that a table lacks and its source can no longer provide."""

    code = "TG-0423"
    what = "output {output!r} lacks epochs whose records source {source!r} no longer has in full: {epochs}; {detail}"
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


class EpochsOfOtherCode(TidegaugeError):
    """Epochs that a table lacks and that other code has made than the output has now."""

    code = "TG-0426"
    what = "the epochs {epochs} of output {output!r} were made by other code than it has now: {changes}"
    cause = "a step or a function of the flow was changed since; rows made by the present one would differ"
    remedy = (
        "put the code of those epochs back, repair, and run with the present one again; or --from {first} makes all "
        "rows from there on by the present code. Nothing was changed"
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
    cause = (
        "it is a topic, to which messages can only be appended; a function; in memory; a table by key, whose rows "
        "are not of single epochs; "
        "or a custom sink without `mend`"
    )
    remedy = (
        "make a table by key again: tidegauge outputs rebuild; write to another topic: a new output begins with the "
        "first epoch there is"
    )


def listed(epochs: Iterable[range]) -> str:
    """Return epochs for people.

    >>> listed([range(2, 3), range(5, 8)])
    '2, 5 to 7'
    """
    return ", ".join(str(one.start) if len(one) == 1 else f"{one.start} to {one.stop - 1}" for one in epochs)
