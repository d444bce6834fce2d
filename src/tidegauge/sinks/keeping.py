"""What tables have in common in keeping the flow's history: where its links go, and that it is one history.

Invariant: a commit is added only to a table whose digest is that of the history before it. A table without one,
written by a version without digests, is accepted, and has one from then on.

>>> in_line(History())
True
"""

from __future__ import annotations

from typing import Final

from tidegauge.errors.history import HistoriesDiffer, other_way
from tidegauge.remap.history import History, agree
from tidegauge.sinks.protocol import OutputId, Table

__all__ = ["LIMIT", "expect", "in_line"]

LIMIT: Final = 64 * 1024
"""Characters of links that a commit carries itself; more of them go into a file beside it."""


def in_line(history: History, *, limit: int = LIMIT) -> bool:
    """Whether a commit carries the links of a history itself."""
    return len(history.encode()) <= limit


def expect(table: Table, output: OutputId, history: History, *, mendable: bool = True) -> None:
    """Raise `HistoriesDiffer` when the table was committed with another history than that before this one.

    mendable: whether anything can be taken out of it.
    """
    kept = table.digest
    if kept is not None and history.before and not agree(kept, history.before):
        at = table.upper
        other = other_way(output.output, "EPOCH", mendable=mendable)
        raise HistoriesDiffer(flow=output.flow, output=output.output, store=at, table=at, parted="EPOCH", other=other)
