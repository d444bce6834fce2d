"""The published state of a table, marked in the table's own terms for readers who open it directly.

Outputs commit one after the other, so a table may hold epochs that others lack. Where the format can name a state of
a table, one name stands at a state all of whose epochs are published. The marks of a flow's live tables go to one
*cut*: the newest upper, at most the published one, that each of them has a state for (`common`). A commit may gather
several epochs, so not every table has a state of each.

Invariant: a mark never shows an epoch that is not published, and goes to newer states only.

>>> orders = [TableState("c", 7, None), TableState("b", 4, 5), TableState("a", 3, 3)]
>>> visits = [TableState("z", 6, None), TableState("y", 5, 5), TableState("x", 2, 3)]
>>> [common([orders, visits], published) for published in (2, 3, 4, 5, 6, 7, 9)]
[None, 3, 3, 5, 5, 7, 9]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tidegauge.sinks.protocol import OutputId

__all__ = ["Marker", "Marking", "TableState", "common"]


@dataclass(frozen=True, slots=True)
class TableState:
    """A state of a table, by its name in the table's own words.

    It has exactly the rows of the epochs below any upper from `least` to `most`. None: to all that the output holds.
    """

    name: str
    least: int
    most: int | None

    def shows(self, upper: int) -> bool:
        """Whether it has the rows of the epochs below `upper`, and no others."""
        return self.least <= upper and (self.most is None or upper <= self.most)


class Marker(Protocol):
    """What marks a state of one table. Used beside the driver, by one thread at a time."""

    def states(self) -> Sequence[TableState]:
        """Return the marked state and those after it, the newest first. Raises `PublishedTagTaken`."""
        ...

    def mark(self, state: TableState) -> None:
        """Mark a state, unless it or a newer one is marked by now."""
        ...

    def end(self) -> None:
        """Let go of connections."""
        ...


@runtime_checkable
class Marking(Protocol):
    """A `Sink` that can mark which state of its table is published."""

    def marker(self, output: OutputId) -> Marker:
        """Return what marks the states of an output's table. Asks for nothing yet."""
        ...


def common(tables: Sequence[Sequence[TableState]], published: int) -> int | None:
    """Return the newest upper, at most `published`, that every table has a state for; None where there is none."""
    ends = {published if one.most is None else min(published, one.most) for states in tables for one in states}
    shared = (end for end in ends if all(any(one.shows(end) for one in states) for states in tables))
    return max(shared, default=None)
