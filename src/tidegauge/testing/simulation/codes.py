"""Which code makes an output's rows: the one that its flow has by now, and the one that made those in its table.

Code is told apart by a number. 0 is that of the user's flow; any other one leaves out some of its rows, as the number
has it, and is one more step. Somebody writes another number into the flow when they decide that a table is made
again, so the drivers that start from then on have it. A running one has the code of its beginning, or has gone over.

    a table that holds nothing   begins with the code of the driver that commits first
    one that goes on             gets rows of the code that it has, or of the one that somebody accepted (`from-here`)
    one that is made again       has rows of the decided code alone, from its first epoch on, as far as the old ones

Invariant: all that is known here of a table comes from its commits and from the commands given, not from the store.

>>> batch = pa.record_batch({"id": [*range(8)]})
>>> thinned(0, batch).num_rows, thinned(1, batch).num_rows < 8, thinned(1, batch) == thinned(2, batch)
(8, True, False)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final
from zlib import crc32

import pyarrow as pa

from tidegauge.flow.spec import FlowSpec
from tidegauge.job.plan import MapBatches, OutputPlan
from tidegauge.testing.simulation.ledger import BindingLedger, Broken
from tidegauge.testing.simulation.tables import Lake

if TYPE_CHECKING:
    from tidegauge.testing.simulation.life import Life

__all__ = ["Codes", "coded", "spec_with", "thinned"]

_MANY: Final = 4
"""One row in this many is left out."""
_STANDING: Final = "SELECT output, edition FROM replacements"


def thinned(number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out some rows by what they hold: others for each number, none for 0."""
    if not number:
        return batch
    return batch.filter(
        pa.array([crc32(repr(row).encode()) % _MANY != number % _MANY for row in batch.to_pylist()], pa.bool_())
    )


def coded(plan: OutputPlan, number: int) -> OutputPlan:
    """Return an output with other code."""
    return replace(plan, steps=(*plan.steps, MapBatches(partial(thinned, number)))) if number else plan


class Codes:
    """The code of a world's outputs. now: what the flow has by now, by output. standing: the tables to be made again.

    asked: what somebody is about to say, or said last. wanted: the outputs that the flow refuses to drivers that have
    its present code, until somebody accepts that, or has their tables made again.
    """

    def __init__(self, spec: FlowSpec, ledger: BindingLedger, lake: Lake) -> None:
        self.now: Final = dict.fromkeys(spec.outputs, 0)
        self.asked: Final[dict[str, int]] = {}
        self.standing: dict[str, str] = {}
        self.wanted: Final[set[str]] = set()
        self._spec: Final = spec
        self._ledger: Final = ledger
        self._lake: Final = lake
        self._of: Final[dict[str, int]] = {}
        """The code of each edition that was decided."""
        self._made: Final[dict[str, str]] = {}
        """The edition that each table was put in with, as it was seen last."""
        self._pieces: Final[dict[str, list[tuple[int, int]]]] = {}
        """Of each table: which code made its rows, from which epoch on."""
        self._free: Final[set[str]] = set()
        """Outputs that had failed for a reason of their own, or were dropped: they go on with what code they have."""
        self.busy = False
        """Whether somebody is about to say something."""
        self._numbers = 0
        self.remade = 0
        """How often a table's rows have changed places with others."""
        self._older = False

    def fresh(self) -> int:
        """Return the number of code that no table ever had."""
        self._numbers += 1
        return self._numbers

    def put_back(self) -> None:
        """Know that the store went back: it may have forgotten what somebody said."""
        self._older = True

    def follow(self) -> None:
        """Read which tables are to be made again. The flow has the code for it from now on."""
        self.standing = dict(self._ledger.ask(_STANDING))
        self._free.update(self._ledger.failed_outputs())
        for name, edition in self.standing.items():
            if edition not in self._of:
                self._of[edition] = self.now[name] = self.asked[name]

    def committed(self, name: str, life: Life) -> bool:
        """Look at a table that a driver has just committed to; say whether its rows have changed places with others.

        Raises `Broken` where it has rows of code that nobody has decided.
        """
        last = self._lake.tables[name].commits[-1]
        made, mine = self._lake.made(name), life.codes[name]
        changed = made != self._made.get(name, "")
        if changed:
            if made not in self._of:
                raise Broken("rows change places with others where somebody said so", f"{name}: {made}")
            reached = max((commit.upper for commit in self._lake.tables[name].earlier[-1:]), default=0)
            if last.upper < reached:
                said = f"{name}: those that went reached to {reached}, those that came reach to {last.upper}"
                raise Broken("new rows reach as far as those whose place they take", said)
            self._made[name] = made
            self._pieces[name] = [(0, self._of[made])]
            self.remade += 1
        elif not last.lower:
            self._pieces[name] = [(0, mine)]
        elif mine != self.last(name) and name in self._free:
            self._pieces[name].append((last.lower, mine))
        if mine != (wanted := self.last(name)):
            said = f"{life.name} has written {name} from {last.lower} on with code {mine}, it had rows of {wanted}"
            raise Broken("a table gets rows of other code where somebody said so", said)
        return changed

    def dropped(self, name: str) -> None:
        """Know that the store has forgotten an output, and which code has made the rows of its table."""
        self._free.add(name)

    def removed(self, name: str) -> None:
        """Know that a table is gone."""
        self._made.pop(name, None)
        self._pieces.pop(name, None)

    def accepted(self, name: str) -> None:
        """Know that a table goes on with the flow's present code, from what it lacks on."""
        if name in self._pieces:
            self._pieces[name].append((self._lake.upper(name), self.now[name]))
        self.wanted.discard(name)

    def plan(self, name: str, epoch: int) -> OutputPlan:
        """Return the output as it was when the rows of an epoch were made."""
        pieces = self._pieces.get(name, [])
        return coded(self._spec.outputs[name], next((of for first, of in reversed(pieces) if first <= epoch), 0))

    def refused(self, life: Life, name: str) -> bool:
        """Whether a driver ended with reason because an output has other code than its table's rows.

        One with code that is not the present one any more is of the past; for any other, somebody has to decide.
        """
        if life.codes[name] == self.last(name) and not self._older:
            return False
        if life.codes[name] == self.now[name]:
            self.wanted.add(name)
        return True

    def waiting(self, *, but: Collection[str] = ()) -> bool:
        """Whether somebody has to say something about an output's code, or its table is still to be made again.

        One whose source has failed keeps its old rows. but: others that cannot be made again at present.
        """
        failed = self._ledger.failed()
        able = {name for name in self.standing if self._spec.outputs[name].source not in failed}
        return bool(self.wanted or able - {*but})

    def last(self, name: str) -> int:
        """Return the code that a table's newest rows have, or will have."""
        pieces = self._pieces.get(name)
        return pieces[-1][1] if pieces else self.now[name]


def spec_with(spec: FlowSpec, codes: Mapping[str, int]) -> FlowSpec:
    """Return a flow with this code in its outputs."""
    return replace(spec, outputs={name: coded(plan, codes[name]) for name, plan in spec.outputs.items()})
