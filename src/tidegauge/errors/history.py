"""TG-024x and TG-043x: the one history that a store and its tables have.

>>> print(StoreBehindTable(flow="shop", output="orders", store=5, table=9))
TG-0240: the store of flow 'shop' is older than the table of output 'orders': it has bound 5 epochs, the table holds 9
  likely cause: the store was restored from a backup, or put back to an older copy
  what to do:   tidegauge recover brings the timeline back from the tables; nothing was bound or written
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError

__all__ = ["DamagedHistory", "HistoriesDiffer", "StoreBehindTable"]


class StoreBehindTable(TidegaugeError):
    """A table that holds epochs which its store has never bound."""

    code = "TG-0240"
    what = (
        "the store of flow {flow!r} is older than the table of output {output!r}: "
        "it has bound {store} epochs, the table holds {table}"
    )
    cause = "the store was restored from a backup, or put back to an older copy"
    remedy = "tidegauge recover brings the timeline back from the tables; nothing was bound or written"


class HistoriesDiffer(TidegaugeError):
    """A table whose epochs are not those of the store, although both have them."""

    code = "TG-0241"
    what = (
        "the store of flow {flow!r} and the table of output {output!r} have different histories: the store has bound "
        "{store} epochs, the table holds {table}, and they are not the same epochs"
    )
    cause = (
        "the store was put back to an older copy and has bound other data since, "
        "or a copy of it drives the same tables"
    )
    remedy = "tidegauge recover brings the timeline back from the tables; nothing was bound or written"


class DamagedHistory(Definite):
    """A record of the history beside a table that cannot be read."""

    code = "TG-0430"
    what = "the history that the table {table} keeps in {path} cannot be read: {detail}"
    cause = "it was changed by hand, damaged on disk, or written by a newer version"
    remedy = "bring the file back from a backup, or take it away: it is needed only to recover a lost store"
