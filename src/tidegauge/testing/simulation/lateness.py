"""Outputs that come late to a flow: which of its laws they are excused from, and until when.

Somebody runs the flow without an output, from the beginning or for a while. Then published epochs are not in its
table, and upstream is told of more than it holds. Once it is back, it catches up, and the flow waits for it again.

    a table that holds nothing   shows its past at once, up to the cutover of its plan, or to where its source failed;
                                 it begins with the present incarnation of its source: the one that its driver found,
                                 also if the store goes back to an earlier one meanwhile
    one that holds some epochs   goes on from there, unless compaction took what it lacks: then the flow refuses it

A flow may say with which epoch an output begins (`start=`), and which one its past has (`timestamps=`). What a driver
settled of that is read when the table gets its first commit, and stays while it holds rows.

Invariant: an output that no driver did without is excused from nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from tidegauge.flow.board import Board
from tidegauge.flow.spec import FlowSpec
from tidegauge.remap.stamps import FAITHFUL
from tidegauge.testing.simulation.evidence import TableEvidence
from tidegauge.testing.simulation.ledger import BindingLedger, Broken

__all__ = ["LateOutputs", "held_back"]

_PLANNED: Final = "SELECT cutover FROM backfills WHERE output = ?"
_SETTLED: Final = "SELECT epoch, coalesce(stamp, 0) FROM starts WHERE output = ?"


class LateOutputs:
    """The late outputs of a world. names: those that a driver did without. behind: of them, those that catch up.

    shut_out: those that the flow refuses for good. paused: those that are, which may come to lack published epochs.
    coming: those of streams that come to their source later, which begin with these.
    """

    def __init__(
        self, spec: FlowSpec, ledger: BindingLedger, lake: TableEvidence, *, coming: Collection[str] = ()
    ) -> None:
        self.names: Final[set[str]] = set()
        self.behind: Final[set[str]] = set()
        self.shut_out: Final[set[str]] = set()
        self._spec: Final = spec
        self._ledger: Final = ledger
        self._lake: Final = lake
        self.paused: frozenset[str] = frozenset()
        self._empty: Final[set[str]] = set()
        self._first: Final[dict[str, int]] = {}
        self._choosing: Final = {
            *coming,
            *(name for name, plan in spec.outputs.items() if plan.start is not None or plan.stamps != FAITHFUL),
        }
        self._settled: Final[dict[str, tuple[int, int]]] = {}
        self._told: Final[dict[str, dict[str, int]]] = {}
        self._found: Final[dict[str, tuple[int, dict[str, int]]]] = {}
        """Of each driver: the era that it began in, and at which epochs the incarnations began that it found then."""

    def found(self, driver: str, *, era: int) -> None:
        """Know what a driver finds in the store. It hears no more of that once the store has gone back."""
        began_in, began = self._found.setdefault(driver, (era, {}))
        if began_in == era:
            began.update({plan.source: self._ledger.began(plan.source) for plan in self._spec.outputs.values()})

    def left_out(self, name: str) -> None:
        """Know that a driver goes on without an output: it lacks published epochs, and upstream may be told."""
        source, upper = self._spec.outputs[name].source, self._lake.upper(name)
        self.names.add(name)
        self._lags(name)
        if not upper:
            self._empty.add(name)
        told = self._told.setdefault(name, {})  # of a store that went back, more than is bound now
        for place, position in self._ledger.frontiers[source].items():
            told[place] = max(position, told.get(place, 0))

    def dropped(self, name: str, *, removed: bool) -> None:
        """Know that an output was dropped. removed: its table is gone, so that it begins as a new one does."""
        if removed:
            self.shut_out.discard(name)
            self._first.pop(name, None)
            self._settled.pop(name, None)
            self.left_out(name)
        else:
            self._lags(name)

    def _lags(self, name: str) -> None:
        """Know that an output is behind, if it lacks published epochs."""
        if self._ledger.holds(self._spec.outputs[name].source, self._lake.upper(name)) < self._ledger.published:
            self.behind.add(name)

    def put_back(self) -> None:
        """Know that the store went back: an incarnation that has not begun any more took away what they lacked."""
        for name in self.names:
            self._lags(name)

    @property
    def there(self) -> bool:
        """Whether there is an output that may have another past than one from the start."""
        return bool(self.names or self._choosing)

    def put_off(self, paused: frozenset[str]) -> None:
        """Know which outputs are paused: the others are published without them, once a driver has heard of it."""
        self.paused = paused
        self.behind.update(paused & self._spec.outputs.keys())

    def told(self, name: str) -> Mapping[str, int]:
        """Return how far upstream may have been told by drivers without an output, by place."""
        return self._told.get(name, {})

    def first(self, name: str) -> int:
        """Return the first epoch that an output can have: that of the incarnation with which it began, or would."""
        begins, _ = self._begins(name)
        if name in self._empty:
            return max(begins, self._ledger.began(self._spec.outputs[name].source))
        return max(begins, self._first.get(name, 0))

    def begun(self, name: str) -> int:
        """Return the epoch that an output begins with, where a flow says that."""
        return self._begins(name)[0]

    def stamp(self, name: str) -> int:
        """Return the epoch that all rows of earlier ones have; 0 where each has its own."""
        return self._begins(name)[1]

    def floor(self, name: str) -> int:
        """Return the first epoch that a row can have, where a flow says that; 0 where it says nothing."""
        return max(self._begins(name))

    def settled(self) -> None:
        """Look at what stands of tables with rows. Raises `Broken` where it is not what it was."""
        for name, before in self._settled.items():
            if (now := self._known(name)) != before:
                said = f"{name} had {before} when its table got rows, and has {now}"
                raise Broken("where an output begins, and which epoch its past has, is settled once", said)

    def _begins(self, name: str) -> tuple[int, int]:
        return self._settled.get(name) or self._known(name)

    def _known(self, name: str) -> tuple[int, int]:
        """Return where the store says that an output begins, and which epoch its past has."""
        if name not in self._choosing:
            return (0, 0)
        return next(((epoch, stamp) for epoch, stamp in self._ledger.ask(_SETTLED, name)), (0, 0))

    def published(self, board: Board | None) -> None:
        """Look at what a driver shows that has just published. It waits for those that it knows to hold that.

        And not for those that it takes to be paused.

        A commit that it has not heard of yet does not count: until then it goes on without that output.
        """
        there = {} if board is None else board.outputs
        self.behind.difference_update(
            [
                name
                for name in (self.behind & there.keys()) - self.paused
                if there[name].upper >= self._ledger.published and there[name].state != "paused"
            ]
        )

    def committed(self, name: str, *, driver: str, first: bool) -> None:
        """Look at a table that a driver has just committed to. Raises `Broken` where it shows a part of its past.

        first: whether that is all that the table has.
        """
        source, upper = self._spec.outputs[name].source, self._lake.upper(name)
        if name in self._choosing:
            self._settled.setdefault(name, self._known(name))
        if name in self._empty:
            self._empty.remove(name)
            _, began = self._found.get(driver, (0, {}))
            self._first[name] = began.get(source, self._ledger.began(source))
        if not first:
            return
        ends = self._ledger.failed_at(source) if source in self._ledger.failed() else self._ledger.upper
        for (cutover,) in self._ledger.ask(_PLANNED, name):
            if upper < min(cutover + 1, ends):
                said = f"{name} is to have epochs to {cutover}, and has those before {upper}"
                raise Broken("the past of a new output becomes visible at once", said)


def held_back(spec: FlowSpec, ledger: BindingLedger, names: Collection[str]) -> set[str]:
    """Return some outputs and those that have failed; those that come after them, or after a failed source's."""
    found, failed = {*names, *ledger.failed_outputs()}, ledger.failed()
    for name, plan in spec.outputs.items():  # each comes after those before it
        if any(one in found or spec.outputs[one].source in failed for one in plan.after):
            found.add(name)
    return found
