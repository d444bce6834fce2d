"""A Parquet table that is made again under its name: all of its rows change places with others in one rename.

The rename is a swap (`parquet.edition`): it has the name of the next commit of the old rows, and the new rows in it.
Until then every reader of the table sees the old rows, and the output writes as to one that is not there yet.

Invariant (compare-and-replace): the swap stands at the end of the chain that was seen when the table was opened, of
the upper and the edition of then, or it is not made. A driver that has slept finds another upper, another edition, or
the name of its commit taken, and changes nothing. Who takes a replacement back adds a commit that says another
edition (`withdraw`).

>>> import tempfile
>>> mine = OutputId("shop", "users", "0" * 32)
>>> schema = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
>>> with tempfile.TemporaryDirectory() as folder:
...     table = ParquetChain(folder, mine)
...     table.commit(0, 2, schema, [], write="1" * 32)
...     anew = table.replacement("e" * 32)
...     before = anew.upper, table.edition
...     anew.commit(0, 3, schema, [], write="2" * 32)
...     now = ParquetChain(folder, mine)
...     before, anew.upper, (now.upper, now.edition[:4])
((0, ''), 3, (3, 'eeee'))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidegauge.errors.sinks import TableBusy, TableUpperMismatch
from tidegauge.remap.history import History, agree
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.commits import check_span, staged_status
from tidegauge.sinks.layout.counting import TablePartitions
from tidegauge.sinks.layout.layout import AS_IT_COMES, FileLayout
from tidegauge.sinks.parquet.chain import ParquetChain
from tidegauge.sinks.parquet.manifest import Manifest, folder_name, placed
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume

__all__ = ["ParquetSwap"]

_ATTEMPTS: Final = 50


@dataclass(frozen=True, slots=True)
class ParquetSwap:
    """Puts the rows of an edition in the place of those that a table has.

    seen: the upper and the edition of these.
    """

    folder: str
    output: OutputId
    seen: tuple[int, str]
    edition: str
    layout: FileLayout = AS_IT_COMES

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
    ) -> ParquetChain:
        """Make the swap; see `Swap`.

        An `OSError` may come after it was made, while those who list the folder do not see its rows yet: the commit
        that is tried again goes on with that.
        """
        now = self._open()
        if lower:
            raise self._mismatch(lower, now.upper)
        check_span(lower, upper, files, remove=remove, partition=self.layout.names)
        if not now.begun_by(write, self.edition):
            TablePartitions(self.layout, self.folder, str(self.output)).check(files, Volume.of(files), set)
            self._add(upper, self.layout.columns(rows_schema(schema)), files, write, history)
            now = self._open()  # which is that of the swap, or refused
        now.finish()
        return now

    def _open(self) -> ParquetChain:
        return ParquetChain(self.folder, self.output, self.layout)

    def _add(self, upper: int, columns: pa.Schema, files: Sequence[StagedFile], write: str, history: History) -> None:
        for _ in range(_ATTEMPTS):
            now = self._open()
            # What has this edition already was made by another driver, of the files that it had.
            if (now.upper, now.edition) != self.seen or (now.edition and agree(now.edition, self.edition)):
                raise self._mismatch(0, now.upper)
            for file in files:
                staged_status(self.folder, file)
            now.finish()
            swap = now.swap(self.edition)
            manifest = Manifest(
                self.output,
                0,
                upper,
                write,
                tuple(placed(file, folder_name(0, swap.anew)) for file in files),
                columns,
                history.digest,
                place=swap.anew,
                edition=self.edition,
                partition=self.layout.names,
            )
            if now.added(manifest, files, history, swap=swap):
                return
        raise TableBusy(table=self.folder, attempts=_ATTEMPTS)

    def _mismatch(self, expected: int, actual: int) -> TableUpperMismatch:
        return TableUpperMismatch(table=self.folder, output=str(self.output), expected=expected, actual=actual)
