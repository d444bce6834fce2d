"""A table that is made again under its name, as the output writes to it: it holds nothing until its first commit.

That commit is a *swap*, which each kind of table makes in its own way: it puts the new rows in the place of all that
are there, in one step, and returns the table that is there from then on.

Invariant: before the swap it has no rows, and afterwards those of the new table. Staged files, and whether the
table still stands, are a matter of the table that is there.

>>> import tempfile
>>> from tidegauge.sinks.parquet.chain import ParquetChain
>>> from tidegauge.sinks.protocol import OutputId
>>> schema = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
>>> with tempfile.TemporaryDirectory() as folder:
...     table = ParquetChain(folder, OutputId("shop", "users", "0" * 32))
...     table.commit(0, 2, schema, [], write="1" * 32)
...     anew = table.replacement("e" * 32)
...     before = anew.upper, anew.schema
...     anew.commit(0, 3, schema, [], write="2" * 32)
...     before, anew.upper, anew.schema.names
((0, None), 3, ['user', '_epoch'])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import pyarrow as pa

from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.protocol import Finishing, Keeping, StagedFile, Standing, Table, Volume

__all__ = ["Standby", "Swap", "TableReplacement"]


class Standby(Table, Keeping, Standing, Protocol):
    """What a table is that can be replaced so."""


class Swap(Protocol):
    """Puts rows in the place of all that a table holds, as `Table.commit`, and returns the table that has them."""

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
    ) -> Standby:
        """Make the swap. Raises `TableUpperMismatch`, having changed nothing, where it is not to be made any more."""
        ...


class TableReplacement:
    """A `Table` that holds nothing, until its first commit puts its rows in the place of those of `before`."""

    def __init__(self, before: Standby, swap: Swap) -> None:
        self._swap: Final = swap
        self._before: Final = before
        self._after: Standby | None = None

    @property
    def _there(self) -> Standby:
        return self._before if self._after is None else self._after

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
        """Put the epochs `[0, upper)` in the place of all that the table holds; from then on append to them."""
        if self._after is None:
            self._after = self._swap(lower, upper, schema, files, remove=remove, write=write, history=history)
        else:
            self._after.commit(lower, upper, schema, files, remove=remove, write=write, history=history)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files."""
        self._before.discard(files)

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Keep files from the sweep of the table before; say whether all are as they were staged."""
        return self._before.keep(files)

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of the table, old or new."""
        self._there.stand()

    def end(self) -> None:
        """Wait for what the table does beside its commits."""
        if isinstance(table := self._there, Finishing):
            table.end()

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        """Return the files of the new rows."""
        return [] if self._after is None else self._after.files(as_of=as_of)

    def volume(self) -> Volume:
        """Return how much the new rows come to."""
        return Volume() if self._after is None else self._after.volume()

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return full paths of the files."""
        return self._there.uris(files)

    def version_of(self, epoch: int) -> str | None:
        """Return which commit brought an epoch of the new rows."""
        return None if self._after is None else self._after.version_of(epoch)

    def links(self) -> list[Link]:
        """Return the links that the table has, those of earlier editions among them: all are true."""
        return self._there.links()
