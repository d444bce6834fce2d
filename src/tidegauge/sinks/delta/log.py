"""The driver's side of a Delta table: commits that carry the output's upper as an application transaction.

The log of a Delta table keeps, for each application id, the last version that the application committed. Three ids
are ours, the first two at the last epoch in the table (upper - 1):

- `flow:output` says how far the output is; it is believed when nobody else has added or taken rows since
  (`delta.owner`);
- `flow:output#digest` says with which history (`delta.history`);
- `flow:output@incarnation` says with which store. When the first is there and the second does not equal it, the
  epochs in the table are those of another timeline, and going on would skip or repeat: the table is refused.

Invariant (compare-and-append): a commit is made of a head whose transaction was read and equals `lower - 1`, and it
may only become the very next version of that head (`delta.appending`). If anybody committed in between, the version
is taken, the commit fails whole, and the comparison is made again with the head after theirs. So what others change
(columns, protocol, properties) is seen before each commit, and what this one cannot honour is refused.

Transactions are written without a time, so that they never expire.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tidegauge.errors.sinks import (
    FileNotHeld,
    TableBusy,
    TableChangedByOthers,
    TableUnavailable,
    TableUpperMismatch,
)
from tidegauge.evolution import Evolution
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.commits import all_staged, check_span, expect, still_to_do
from tidegauge.sinks.delta.appending import DeltaAppending, NewEntry
from tidegauge.sinks.delta.asof import version_as_of
from tidegauge.sinks.delta.checkpoints import Checkpoints
from tidegauge.sinks.delta.columns import allows_vectors
from tidegauge.sinks.delta.creating import snapshot
from tidegauge.sinks.delta.entry import MarkedFile, about_span
from tidegauge.sinks.delta.files import files_of, named, paths_of, remove_unnamed
from tidegauge.sinks.delta.head import DeltaHead, log_read
from tidegauge.sinks.delta.history import carried, kept_links, number, text_of, version_of
from tidegauge.sinks.delta.owner import (
    Mine,
    check_adoptable,
    check_columns,
    check_key,
    check_partition,
    check_taking,
    columns_of,
    digest_in,
    edition_in,
    key_mark,
    life_id,
    marks,
    open_changes,
    own_upper,
    replaced_id,
)
from tidegauge.sinks.delta.view import LogView, holding
from tidegauge.sinks.evolving import gained
from tidegauge.sinks.layout.counting import TablePartitions
from tidegauge.sinks.layout.layout import AS_IT_COMES, FileLayout
from tidegauge.sinks.layout.values import PartitionValues
from tidegauge.sinks.location import at, gone, inside
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume

if TYPE_CHECKING:
    from tidegauge.sinks.replacement import TableReplacement

__all__ = ["DeltaLog"]

_ATTEMPTS: Final = 50


class DeltaLog:
    """A `Table`: the log of the Delta table in `folder`, as the output `output` sees it."""

    def __init__(
        self,
        folder: str,
        output: OutputId,
        *,
        key: Sequence[str] = (),
        held: Callable[[int], Container[str]] | None = None,
        layout: FileLayout = AS_IT_COMES,
        vectors: bool = False,
    ) -> None:
        """key: the columns of whose values the table is to have one row; none, to have all. held: tells the names of
        the files at a version. layout: how its files are to lie. vectors: whether it is to have deletion vectors."""
        self._vectors: Final = vectors
        self._layout: Final = layout
        self._folder: Final = folder
        self._output: Final = output
        self._key: Final = tuple(key)
        self._held: Final = held or partial(named, folder)
        self._log: Final = at(folder) / "_delta_log"
        self._view: Final = LogView(folder, Mine.of(output))
        self._checkpoints: Final = Checkpoints(folder, output)
        self._partitions: Final = TablePartitions(layout, folder, str(output))
        self._appending: Final = DeltaAppending(folder, output, layout=layout, vectors=vectors)
        self._refresh()
        self._upper = self._read_upper()
        self._digest = digest_in(self._head, self._output)
        self._edition: Final = edition_in(self._head, self._output)

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by the last commit seen of it."""
        return self._upper

    @property
    def digest(self) -> str | None:
        """The first digits of the digest of the flow's history up to the upper, None where the log has none."""
        return self._digest

    @property
    def edition(self) -> str:
        """The first digits of the edition that its rows had when it was opened, "" for the first one."""
        return self._edition

    @property
    def made(self) -> str:
        """The table's id."""
        return "" if self._head is None else str(self._head.metadata.get("id", ""))

    def replacement(self, edition: str) -> TableReplacement:
        """Return a table that holds nothing, until its first commit takes this one's place."""
        from tidegauge.sinks.delta.replacement import DeltaSwap
        from tidegauge.sinks.replacement import TableReplacement

        seen, opened = (
            (self._upper, self._edition),
            partial(DeltaLog, self._folder, self._output, layout=self._layout),
        )
        return TableReplacement(self, DeltaSwap(self._folder, self._output, self._layout, seen, edition, (), opened))

    def withdraw(self, edition: str) -> None:
        """Give the rows that are there another edition, so that no replacement which was begun takes their place."""
        from tidegauge.sinks.delta.replacement import withdraw

        withdraw(self._folder, self._output, seen=(self._upper, self._edition), edition=edition)

    @property
    def version(self) -> int:
        """The newest version seen, -1 where there is no table."""
        return self._next - 1

    @property
    def marks(self) -> bool:
        """Whether rows of its files may be marked deleted, by the newest version seen."""
        return self._head is not None and (self._vectors or allows_vectors(self._head))

    @property
    def schema(self) -> pa.Schema | None:
        """The present columns of the table, None before it is there."""
        self._refresh()
        return None if self._head is None else columns_of(self._head.schema)

    def evolve(self, how: Evolution) -> None:
        """Take rows of other columns in this way from now on."""
        self._appending.how = how

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that a commit of rows with this schema would add; raise what it would raise of them."""
        if (held := self.schema) is None or self._head is None:
            return ()
        after = check_columns(
            self._folder,
            self._output,
            self._head,
            self._layout.columns(rows_schema(schema)),
            self._layout,
            self._appending.how,
        )
        return gained(held, after)

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
        changes: tuple[int, int] | None = None,
        marked: Sequence[MarkedFile] = (),
    ) -> None:
        """Append `files` as the epochs `[lower, upper)`, or raise `TableUpperMismatch` and change nothing.

        remove: files that the same entry takes out. Which files the table holds is asked of a snapshot then. changes:
        the first and the last epoch of changes by key that the files have, if there are any. marked: files that lose
        rows by the same entry.

        Also raises `HistoriesDiffer`, `TableOfAnotherIncarnation`, `TableSchemaChanged`, `ColumnsRefused`,
        `ForeignTable`, `UnsupportedTable`, `StagedFileMissing`, `MisplacedRows`, `FileNotHeld`,
        `KeptOtherwise`; `TableBusy` and `TableUnavailable` may pass by themselves.
        """
        check_span(lower, upper, files, remove=remove, partition=self._layout.names)
        columns = self._layout.columns(rows_schema(schema))
        self._appending.settle()  # before the table is found to hold the span
        # before the commit, which may refer to a file of it
        chain = carried(self._folder, history, lower=lower, upper=upper, write=write)
        mine = about_span(self._output, lower, upper, write=write, changes=changes)
        for _ in range(_ATTEMPTS):
            self.check(lower, history)
            if self._upper:
                self._view.keep()
            before = [one.before for one in marked]
            if (remove or marked) and not self._takes_out(files, [*remove, *before], rows=lower < upper):
                return
            put = [*files, *(one.after for one in marked)]
            version, volume = self._next, self._volume_with(put, [*remove, *before])
            if lower < upper:
                self._partitions.check(files, volume, self._present_partitions)
            changed = (bool(remove or marked) or changes is not None) and lower < upper
            vouching = marks(self._output, upper, chain, changed=changed, key=key_mark(self._key))
            said = {**mine, **chain, **holding(volume)}
            new = NewEntry(columns, vouching, said, files=files, remove=remove, marked=marked)
            if self._appending.attempt(self._head, new):
                self._upper = upper
                if lower < upper:
                    self._digest = text_of(number(chain["digest"])) if chain else None
                if version >= self._checkpoints.next:
                    self._checkpoints.after(version, volume)
                return
        raise TableBusy(table=self._folder, attempts=_ATTEMPTS)

    def check(self, lower: int, history: History) -> None:
        """Raise unless the present table can be given an epoch from `lower` on, with this history."""
        self._refresh()
        self._expect(lower)
        expect(self, self._output, history)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. Files that the log names are kept, whatever the caller believes of them."""
        remove_unnamed(self._folder, files)

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Say whether all files are as they were staged. Only VACUUM removes any, after days."""
        return all_staged(self._folder, files)

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of the table."""
        if (upper := self._upper) and gone(self._log):
            raise TableUpperMismatch(table=self._folder, output=str(self._output), expected=upper, actual=0)

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        """Return the table's data files in the order of their epochs.

        as_of: where rows were taken out since this epoch, the files are those of the version before; `EpochReplaced`
        where the log no longer tells it. VACUUM removes them from the disk.

        A file that others have rewritten (OPTIMIZE) may hold several commits; its epochs are still known from
        the log's statistics, or from the file's own.
        """
        with log_read(self._folder):
            table = self._opened(as_of)
            if table is None or table.transaction_version(str(self._output)) is None:
                return []
            return files_of(table, self._folder)

    def volume(self) -> Volume:
        """Return how much the table holds; its files are listed only where others have changed some of them."""
        self._refresh()
        known = self._view.volume if self._upper else Volume()
        return Volume.of(self.files()) if known is None else known

    def end(self) -> None:
        """Wait for the checkpoint under way."""
        self._checkpoints.end()

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return absolute paths of the files."""
        return [str(inside(self._folder, file.path)) for file in files]

    def version_of(self, epoch: int) -> str | None:
        """Return the number of the version that brought the epoch, None when the log no longer has its entry."""
        self._refresh()
        if self._head is None or not 0 <= epoch < self._read_upper():
            return None
        try:
            found = version_of(
                self._log,
                self._output,
                life_id(self._output),
                epoch,
                newest=self._head.version,
                replaced=self._head.transactions.get(replaced_id(self._output), -1),
            )
        except OSError as error:
            raise TableUnavailable(table=self._folder, detail=str(error)) from error
        return None if found is None else str(found)

    def links(self) -> list[Link]:
        """Return the links that the table's log and its folder `_tidegauge` have. Raises `DamagedHistory`."""
        try:
            return kept_links(self._folder, self._output)
        except OSError as error:
            raise TableUnavailable(table=self._folder, detail=str(error)) from error

    # -- the comparison

    def _refresh(self) -> None:
        """Follow the log up to now."""
        with log_read(self._folder):
            self._view.refresh()

    @property
    def _head(self) -> DeltaHead | None:
        return self._view.head

    @property
    def _next(self) -> int:
        """The version that the next commit becomes."""
        return 0 if self._view.head is None else self._view.head.version + 1

    def _opened(self, as_of: int | None = None) -> DeltaTable | None:
        """Return a snapshot of the table, of now or of when it had all rows as of an epoch; None if there is none."""
        try:
            table = snapshot(self._folder)
        except TableNotFoundError:
            return None
        version = newest = table.version()
        if as_of is not None:
            version = version_as_of(self._log, table, self._output, as_of)
        if version < 0:
            return None
        return table if version == newest else snapshot(self._folder, version)

    def _read_upper(self) -> int:
        """Return the upper that the head says, having checked that the table is ours."""
        head = self._head
        if head is None:
            return 0
        upper = own_upper(head, self._folder, self._output)
        if upper is None:
            check_adoptable(self._folder, self._output, head, self._layout, self._holds_data)
            return 0
        if detail := open_changes(self._log, head, self._output, self._view.account):
            raise TableChangedByOthers(table=self._folder, output=str(self._output), detail=detail, upper=upper)
        return upper

    def _present_partitions(self) -> set[PartitionValues]:
        return {file.partition for file in self.files()} if self._upper else set()

    def _takes_out(self, files: Sequence[StagedFile], remove: Sequence[StagedFile], *, rows: bool) -> bool:
        """Return whether the commit is still to be made. rows: whether it changes any."""
        if self._head is None:
            raise FileNotHeld(table=self._folder, path=remove[0].path)
        with log_read(self._folder):
            held = self._held(self._head.version)
        paths = [file.path for file in files]
        if not still_to_do(paths, remove, held, table=self._folder, replaces=not rows):
            return False
        if rows:
            check_taking(self._folder, self._head)
        return True

    def _volume_with(self, files: Sequence[StagedFile], remove: Sequence[StagedFile]) -> Volume | None:
        """Return what the table will hold after a commit, None where that is not known."""
        if self._head is None or not self._upper:
            return Volume.of(files)
        if self._view.volume is None and self._checkpoints.counted is not None:
            with log_read(self._folder):
                self._view.count(*self._checkpoints.counted)
        return None if self._view.volume is None else self._view.volume + Volume.of(files) - Volume.of(remove)

    def _expect(self, lower: int) -> None:
        head = self._head
        self._upper, self._digest = self._read_upper(), digest_in(head, self._output)
        # Rows of another edition are another table: even at the same upper these do not follow them.
        if self._upper != lower or edition_in(head, self._output) != self._edition:
            raise TableUpperMismatch(table=self._folder, output=str(self._output), expected=lower, actual=self._upper)
        self.check_kept()

    def check_kept(self) -> None:
        """Raise `PartitionedOtherwise` or `KeptOtherwise` unless the rows are kept as the output wants them to be."""
        if self._head is not None and self._upper:
            check_partition(self._folder, self._output, self._head, self._layout)
            check_key(self._folder, self._output, self._head, self._key)

    def _holds_data(self) -> bool:
        with log_read(self._folder):
            table = self._opened()
            return table is not None and bool(paths_of(table))
