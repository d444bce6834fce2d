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
from typing import Final

import pyarrow as pa

from tidegauge.errors.sinks import TableBusy, TableUpperMismatch
from tidegauge.remap.history import NO_HISTORY, History, Link, agree
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.commits import check_span, staged_status
from tidegauge.sinks.parquet.chain import ParquetChain
from tidegauge.sinks.parquet.manifest import Manifest, folder_name, placed
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume

__all__ = ["ParquetReplacement"]

_ATTEMPTS: Final = 50


class ParquetReplacement:
    """A `Table` that holds nothing, until its first commit puts its rows in the place of those of `before`."""

    def __init__(self, folder: str, output: OutputId, before: ParquetChain, edition: str) -> None:
        self._folder: Final = folder
        self._output: Final = output
        self._edition: Final = edition
        self._seen: Final = before.upper, before.edition
        self._before: Final = before
        self._after: ParquetChain | None = None

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
        """Put the epochs `[0, upper)` in the place of all that the table holds; from then on append to them.

        An `OSError` may come after the swap was made, while those who list the folder do not see its rows yet: the
        commit that is tried again goes on with that.
        """
        if self._after is not None:
            self._after.commit(lower, upper, schema, files, remove=remove, write=write, history=history)
            return
        now = ParquetChain(self._folder, self._output)
        if lower:
            raise self._mismatch(lower, now.upper)
        check_span(lower, upper, files, remove=remove)
        if not now.begun_by(write, self._edition):
            self._swap(upper, rows_schema(schema), files, write, history)
            now = ParquetChain(self._folder, self._output)  # which is that of the swap, or refused
        now.finish()
        self._after = now

    def _swap(
        self, upper: int, columns: pa.Schema, files: Sequence[StagedFile], write: str, history: History
    ) -> None:
        for _ in range(_ATTEMPTS):
            now = ParquetChain(self._folder, self._output)
            # What has this edition already was made by another driver, of the files that it had.
            if (now.upper, now.edition) != self._seen or (now.edition and agree(now.edition, self._edition)):
                raise self._mismatch(0, now.upper)
            for file in files:
                staged_status(self._folder, file)
            now.finish()
            swap = now.swap(self._edition)
            manifest = Manifest(
                self._output,
                0,
                upper,
                write,
                tuple(placed(file, folder_name(0, swap.anew)) for file in files),
                columns,
                history.digest,
                place=swap.anew,
                edition=self._edition,
            )
            if now.added(manifest, files, history, swap=swap):
                return
        raise TableBusy(table=self._folder, attempts=_ATTEMPTS)

    def _mismatch(self, expected: int, actual: int) -> TableUpperMismatch:
        return TableUpperMismatch(table=self._folder, output=str(self._output), expected=expected, actual=actual)

    # -- the rest is as of a table without rows, or of the new one

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. A file that was committed is not where it was staged, and so is safe."""
        self._before.discard(files)

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Keep files from the sweep of the table before; say whether all are as they were staged."""
        return self._before.keep(files)

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of the table, old or new."""
        (self._after or self._before).stand()

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        """Return the files of the new rows."""
        return [] if self._after is None else self._after.files(as_of=as_of)

    def volume(self) -> Volume:
        """Return how much the new rows come to."""
        return Volume.of(self.files())

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return absolute paths of the files."""
        return (self._after or self._before).uris(files)

    def version_of(self, epoch: int) -> str | None:
        """Return the folder whose commit brought an epoch of the new rows."""
        return None if self._after is None else self._after.version_of(epoch)

    def links(self) -> list[Link]:
        """Return the links that the table has, those of earlier editions among them: all are true."""
        return (self._after or self._before).links()
