"""A simulated table that is made again under its name: all of its rows change places with others in one commit.

It holds nothing until that commit, and is the table from then on, as the seam has it (`Replaceable`).

Invariant: the commit is made as a whole of a table whose upper and edition are those that were seen when it was
opened, or nothing is changed.

>>> from tidegauge.testing.simulation.tables.sink import unhooked
>>> lake, mine = Lake(), OutputId("shop", "orders", "0" * 32)
>>> schema = pa.schema([("id", pa.int64()), ("_epoch", pa.int64())])
>>> table = SimulatedTable(lake, "orders", mine, unhooked)
>>> table.commit(0, 2, schema, [], write="1" * 32)
>>> anew = table.replacement("e" * 32)
>>> anew.upper, lake.upper("orders")
(0, 2)
>>> anew.commit(0, 3, schema, [], write="2" * 32)
>>> anew.upper, lake.upper("orders"), lake.tables["orders"].edition == "e" * 32
(3, 3, True)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.remap.history import History
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.commits import check_span
from tidegauge.sinks.protocol import OutputId, StagedFile
from tidegauge.testing.simulation.tables.lake import Lake, LakeCommit, LakeTable
from tidegauge.testing.simulation.tables.sink import Meet, SimulatedTable, answered, check_staged

__all__ = ["SimulatedSwap"]


@dataclass(frozen=True, slots=True)
class SimulatedSwap:
    """Puts the rows of an edition in the place of those that a table has.

    seen: the upper and the edition of these.
    """

    lake: Lake
    name: str
    output: OutputId
    meet: Meet
    seen: tuple[int, str]
    edition: str

    def __call__(
        self,
        lower: int,
        upper: int,
        schema: pa.Schema,
        files: Sequence[StagedFile],
        *,
        remove: Sequence[StagedFile],
        write: str,
        history: History,
    ) -> SimulatedTable:
        """Make the swap; see `Swap`."""
        if lower:
            raise self._mismatch(lower, 0)
        check_span(lower, upper, files, remove=remove)
        columns = rows_schema(schema)
        self.meet("commit")
        table = self.lake.tables.get(self.name) or LakeTable()
        if (table.upper, table.edition) != self.seen or table.edition == self.edition:
            raise self._mismatch(0, table.upper)
        check_staged(table, files, name=self.name)
        made = LakeCommit(self.output, 0, upper, write, tuple(files), (), history.digest, history.links)
        table.renew(made, columns, self.edition)
        answered(table, write, self.meet)
        return SimulatedTable(self.lake, self.name, self.output, self.meet)

    def _mismatch(self, expected: int, actual: int) -> TableUpperMismatch:
        return TableUpperMismatch(table=self.name, output=str(self.output), expected=expected, actual=actual)
