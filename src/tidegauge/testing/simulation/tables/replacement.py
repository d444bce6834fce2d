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
from typing import Final

import pyarrow as pa

from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.commits import check_span
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume
from tidegauge.testing.simulation.tables.lake import Lake, LakeCommit, LakeTable
from tidegauge.testing.simulation.tables.sink import Meet, SimulatedTable, answered, check_staged

__all__ = ["SimulatedReplacement"]


class SimulatedReplacement:
    """A `Table` without rows, whose first commit puts them in the place of those of `before`."""

    def __init__(
        self, lake: Lake, name: str, output: OutputId, meet: Meet, *, before: SimulatedTable, edition: str
    ) -> None:
        self._lake: Final = lake
        self._name: Final = name
        self._output: Final = output
        self._meet: Final = meet
        self._before: Final = before
        self._seen: Final = before.upper, before.edition
        self._edition: Final = edition
        self._after: SimulatedTable | None = None

    @property
    def upper(self) -> int:
        """The first epoch that the new rows lack: 0 until they are there."""
        return 0 if self._after is None else self._after.upper

    @property
    def digest(self) -> str | None:
        """The digest of the history of the new rows, None until they are there."""
        return None if self._after is None else self._after.digest

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the new rows, None until they are there."""
        return None if self._after is None else self._after.schema

    def commit(
        self,
        lower: int,
        upper: int,
        schema: pa.Schema,
        files: Sequence[StagedFile],
        *,
        remove: Sequence[StagedFile] = (),
        write: str,
        history: History = NO_HISTORY,
    ) -> None:
        """Put the epochs `[0, upper)` in the place of all that the table holds; from then on append."""
        if self._after is not None:
            self._after.commit(lower, upper, schema, files, remove=remove, write=write, history=history)
            return
        if lower:
            raise self._mismatch(lower, 0)
        check_span(lower, upper, files, remove=remove)
        columns = rows_schema(schema)
        self._meet("commit")
        table = self._lake.tables.get(self._name) or LakeTable()
        if (table.upper, table.edition) != self._seen or table.edition == self._edition:
            raise self._mismatch(0, table.upper)
        check_staged(table, files, name=self._name)
        made = LakeCommit(self._output, 0, upper, write, tuple(files), (), history.digest, history.links)
        table.renew(made, columns, self._edition)
        answered(table, write, self._meet)
        self._after = SimulatedTable(self._lake, self._name, self._output, self._meet)

    def _mismatch(self, expected: int, actual: int) -> TableUpperMismatch:
        return TableUpperMismatch(table=self._name, output=str(self._output), expected=expected, actual=actual)

    # -- the rest is as of a table without rows, or of the new one

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. Those that were committed are no longer among them."""
        self._before.discard(files)

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Keep files from the sweep of the old table; say whether all are there."""
        return self._before.keep(files)

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of the table, old or new."""
        (self._after or self._before).stand()

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        """Return the files of the new rows."""
        return [] if self._after is None else self._after.files(as_of=as_of)

    def volume(self) -> Volume:
        """Return how much the new rows come to."""
        return Volume() if self._after is None else self._after.volume()

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return what `Lake.read` finds the files by."""
        return self._before.uris(files)

    def version_of(self, epoch: int) -> str | None:
        """Return the number of the commit that brought an epoch of the new rows."""
        return None if self._after is None else self._after.version_of(epoch)

    def links(self) -> list[Link]:
        """Return the links that the table has, those of earlier editions among them."""
        return self._before.links()
