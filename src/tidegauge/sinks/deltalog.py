"""The driver's side of a Delta table: commits that carry the output's upper as an application transaction.

The log of a Delta table keeps, for each application id, the last version that the application committed. Three ids
are ours, the first two at the last epoch in the table (upper - 1):

- `flow:output` says how far the output is;
- `flow:output#digest` says with which history (`deltachain`);
- `flow:output@incarnation` says with which store. When the first is there and the second does not equal it, the
  epochs in the table are those of another timeline, and going on would skip or repeat: the table is refused.

Invariant (compare-and-append): a commit is made from a snapshot whose transaction was read and equals `lower - 1`,
and it may only become the very next version of that snapshot. If anybody committed in between, the version is taken,
the commit fails whole, and the comparison is made again with a new snapshot. delta-rs must therefore not retry by
itself: a writer that opened the table after the other's commit would not conflict.

Transactions are written without a time, so that they never expire.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from tidegauge.errors.sinks import (
    DeletedRows,
    ForeignTable,
    TableBusy,
    TableOfAnotherIncarnation,
    TableSchemaChanged,
    TableUnavailable,
    TableUpperMismatch,
    UnsupportedTable,
)
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.columns import EPOCH, differences, rows_schema, stored
from tidegauge.sinks.deltachain import carried, digest_id, kept_links, move_links, number, text_of
from tidegauge.sinks.deltahistory import version_of
from tidegauge.sinks.keeping import expect
from tidegauge.sinks.location import inside, make_folder, synchronise, writing
from tidegauge.sinks.protocol import OutputId, StagedFile
from tidegauge.sinks.staging import check_span, staged_status
from tidegauge.sinks.statistics import suited

if TYPE_CHECKING:
    from deltalake.transaction import RemoveAction  # a name that delta-rs has since 1.6.6

__all__ = ["DeltaLog"]

_ATTEMPTS: Final = 50
_CHECKPOINT_EVERY: Final = 100
_RENEW_EVERY: Final = 20
"""Each incremental update leaves one more fragment in the snapshot; after a thousand, a commit takes 100 ms."""
_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""With its hooks, delta-rs replays all files of the table after each commit: we count the checkpoints ourselves."""

pc: Final[Any] = pyarrow.compute
_Stamp: TypeAlias = tuple[int, int]
_log: Final = logging.getLogger(__name__)


class DeltaLog:
    """A `Table`: the log of the Delta table in `folder`, as the output `output` sees it."""

    def __init__(self, folder: str, output: OutputId) -> None:
        self._folder: Final = folder
        self._output: Final = output
        self._table: DeltaTable | None = None
        self._stamp: _Stamp | None = None
        self._updates = 0
        self._refresh()
        self._upper = self._read_upper()
        self._digest = self._read_digest()

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by the last commit seen of it."""
        return self._upper

    @property
    def digest(self) -> str | None:
        """The first digits of the digest of the flow's history up to the upper, None where the log has none."""
        return self._digest

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the table as it is now, None before it is there."""
        self._refresh()
        return None if self._table is None else _columns(self._table)

    def commit(
        self,
        lower: int,
        upper: int,
        schema: pa.Schema,
        files: Sequence[StagedFile],
        *,
        write: str,
        history: History = NO_HISTORY,
    ) -> None:
        """Append `files` as the epochs `[lower, upper)`, or raise `TableUpperMismatch` and change nothing.

        Also raises `HistoriesDiffer`, `TableOfAnotherIncarnation`, `TableSchemaChanged`, `ForeignTable`,
        `UnsupportedTable`, `StagedFileMissing`, `MisplacedRows`; `TableBusy` and `TableUnavailable` may pass by
        themselves.
        """
        check_span(lower, upper, files)
        columns = rows_schema(schema)
        with writing(self._folder):
            said = carried(self._folder, history, lower=lower, upper=upper, write=write)
        properties = self._properties(lower, upper, write, said)
        for _ in range(_ATTEMPTS):
            self._refresh()
            self._expect(lower)
            expect(self, self._output, history)
            if self._table is not None:
                self._check_columns(self._table, columns)
            actions = [self._add(file, columns) for file in files]
            if self._attempt(columns, actions, properties, write):
                self._upper = upper
                self._digest = text_of(number(history.digest)) if history.digest else None
                self._keep_log_short()
                return
        raise TableBusy(table=self._folder, attempts=_ATTEMPTS)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. Files that the log names are kept, whatever the caller believes of them.

        It looks at a snapshot of its own: that of a commit under way in another thread must stay what was compared.
        """
        with self._failures():
            table = self._opened()
            named = set() if table is None else {str(path) for path in _actions(table)["path"].to_pylist()}
        with writing(self._folder):
            for file in files:
                if file.path not in named:
                    inside(self._folder, file.path).unlink(missing_ok=True)

    def files(self) -> list[StagedFile]:
        """Return the table's data files in the order of their epochs. Raises `DeletedRows` for deletion vectors.

        A file that others have rewritten (OPTIMIZE) may hold several commits; its epochs are still known from
        the log's statistics, or from the file's own.
        """
        self._refresh()
        if self._table is None or self._table.transaction_version(str(self._output)) is None:
            return []
        with self._failures():
            if _has_deletion_vectors(self._table):
                raise DeletedRows(table=self._folder)
            found = [self._file(row) for row in _actions(self._table).to_pylist()]
        return sorted(found, key=lambda file: (file.first_epoch, file.last_epoch, file.path))

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return absolute paths of the files."""
        return [str(inside(self._folder, file.path)) for file in files]

    def version_of(self, epoch: int) -> str | None:
        """Return the number of the version that brought the epoch, None when the log no longer has its entry."""
        self._refresh()
        if self._table is None or not 0 <= epoch < self._read_upper():
            return None
        try:
            log, newest = Path(self._folder, "_delta_log"), self._table.version()
            found = version_of(log, self._output, self._life, epoch, newest=newest)
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
        """Bring the snapshot up to now.

        An incremental update does not notice that the table was removed, or made anew, under the same path; the
        log entry at which the snapshot stands tells: as long as it is the same file, the snapshot is its past.
        """
        with self._failures():
            known = self._stamp is not None and self._entry_stamp() == self._stamp
            if self._table is not None and known and self._updates < _RENEW_EVERY:
                self._table.update_incremental()
                self._updates += 1
            else:
                self._updates = 0
                self._table = self._opened()
        self._stamp = self._entry_stamp()

    def _opened(self) -> DeltaTable | None:
        """Return a snapshot of the table as it is now, None where there is none."""
        try:
            return DeltaTable(self._folder)
        except TableNotFoundError:
            return None

    def _read_upper(self) -> int:
        """Return the upper that the snapshot says, having checked that the table is ours."""
        if self._table is None:
            return 0
        last = self._table.transaction_version(str(self._output))
        if last is None:
            self._check_adoptable(self._table)
            return 0
        if self._table.transaction_version(self._life) != last:
            raise TableOfAnotherIncarnation(
                table=self._folder, output=str(self._output), incarnation=self._output.incarnation
            )
        return int(last) + 1

    def _read_digest(self) -> str | None:
        version = None if self._table is None else self._table.transaction_version(digest_id(self._output))
        return None if version is None else text_of(version)

    def _expect(self, lower: int) -> None:
        self._upper, self._digest = self._read_upper(), self._read_digest()
        if self._upper != lower:
            raise TableUpperMismatch(table=self._folder, output=str(self._output), expected=lower, actual=self._upper)

    def _check_adoptable(self, table: DeltaTable) -> None:
        """A table without our transaction may have been made for us, empty; one that holds data is not ours."""
        names = [field.name for field in table.schema().fields]
        if EPOCH not in names:
            detail = f"it has no column {EPOCH}; its columns are {', '.join(names)}"
        elif table.metadata().partition_columns:
            detail = f"it is partitioned by {', '.join(table.metadata().partition_columns)}"
        elif _actions(table).num_rows:
            detail = "it holds data, and its log has no transaction of this output"
        else:
            return
        raise ForeignTable(table=self._folder, output=str(self._output), detail=detail)

    def _check_columns(self, table: DeltaTable, columns: pa.Schema) -> None:
        config = table.metadata().configuration
        if config.get("delta.columnMapping.mode", "none") != "none":
            raise UnsupportedTable(table=self._folder, feature="column mapping")
        constraint = next((key for key in config if key.startswith("delta.constraints.")), None)
        if constraint is not None:
            raise UnsupportedTable(table=self._folder, feature=f"the constraint {constraint.rpartition('.')[2]}")
        detail = differences(_columns(table), columns)
        if detail:
            raise TableSchemaChanged(table=self._folder, output=str(self._output), detail=detail)

    # -- the append

    def _attempt(
        self, columns: pa.Schema, actions: Sequence[AddAction], properties: CommitProperties, write: str
    ) -> bool:
        """Commit as the snapshot's next version; return False when somebody else has taken that version."""
        version = 0 if self._table is None else self._table.version() + 1
        entry = self._entry(version)
        adding: list[AddAction | RemoveAction] = list(actions)
        try:
            with writing(self._folder):
                if self._table is None:
                    make_folder(Path(self._folder))
                    create_table_with_add_actions(
                        self._folder,
                        Schema.from_arrow(columns),
                        list(actions),
                        mode="error",
                        commit_properties=properties,
                        post_commithook_properties=_NO_HOOKS,
                    )
                else:
                    self._table.create_write_transaction(
                        adding,
                        mode="append",
                        schema=columns,
                        commit_properties=properties,
                        post_commithook_properties=_NO_HOOKS,
                    )
        except (DeltaError, OSError) as error:
            # Whether it failed before or after the entry was there, the entry knows.
            if not _was_written_by(entry, write):
                if entry.exists():
                    return False
                if isinstance(error, OSError):
                    raise
                raise TableUnavailable(table=self._folder, detail=str(error)) from error
        with writing(self._folder):  # delta-rs leaves this to the operating system
            synchronise(entry)
            synchronise(entry.parent)
            synchronise(self._folder)
        return True

    def _add(self, file: StagedFile, columns: pa.Schema) -> AddAction:
        changed = staged_status(self._folder, file).st_mtime_ns // 1_000_000
        configuration = {} if self._table is None else self._table.metadata().configuration
        stats = suited(file.statistics, columns, configuration)
        return AddAction(file.path, file.bytes, {}, changed, True, stats)  # noqa: FBT003 - data_change

    def _properties(self, lower: int, upper: int, write: str, said: Mapping[str, str]) -> CommitProperties:
        marks = [Transaction(str(self._output), upper - 1), Transaction(self._life, upper - 1)]
        if said:
            marks.append(Transaction(digest_id(self._output), number(said["digest"])))
        return CommitProperties(
            app_transactions=marks,
            custom_metadata={
                "flow": self._output.flow,
                "output": self._output.output,
                "lower": lower,
                "upper": upper,
                "write": write,
                **said,
            },
            max_commit_retries=0,
        )

    def _keep_log_short(self) -> None:
        """Write a checkpoint at every hundredth version, so that opening the table does not replay its whole life.

        The commit has been made, and a checkpoint is only there for speed: when it fails, the next one serves.
        """
        if self._table is None or (self._table.version() + 1) % _CHECKPOINT_EVERY:
            return
        try:
            self._refresh()
            move_links(self._folder, self._output)
            self._table.create_checkpoint()
            if self._table.metadata().configuration.get("delta.enableExpiredLogCleanup", "true") != "false":
                self._table.cleanup_metadata()
        except (DeltaError, OSError, TableUnavailable) as error:
            _log.warning("no checkpoint of the table %s: %s", self._folder, error)

    # -- the log's files

    @property
    def _life(self) -> str:
        return f"{self._output}@{self._output.incarnation}"

    def _entry(self, version: int) -> Path:
        return Path(self._folder, "_delta_log", f"{version:020d}.json")

    def _entry_stamp(self) -> _Stamp | None:
        """Return what distinguishes the log entry of the snapshot from another file of its name."""
        if self._table is not None:
            with suppress(FileNotFoundError):
                status = self._entry(self._table.version()).stat()
                return status.st_ino, status.st_mtime_ns
        return None

    def _file(self, row: dict[str, Any]) -> StagedFile:
        path, rows = row["path"], row.get("num_records")
        first, last = row.get(f"min.{EPOCH}"), row.get(f"max.{EPOCH}")
        if rows is None or first is None or last is None:  # rewritten by a writer that keeps no such statistics
            rows, first, last = _footer(inside(self._folder, path))
        return StagedFile(path=path, rows=rows, bytes=row["size_bytes"], first_epoch=first, last_epoch=last)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except DeltaError as error:
            raise TableUnavailable(table=self._folder, detail=str(error)) from error


def _columns(table: DeltaTable) -> pa.Schema:
    return stored(pa.schema(table.schema().to_arrow()))


def _actions(table: DeltaTable) -> Any:
    return pa.table(table.get_add_actions(flatten=True))


def _has_deletion_vectors(table: DeltaTable) -> bool:
    if "deletionVectors" not in (table.protocol().reader_features or []):
        return False
    return bool(pa.table(table.deletion_vectors()).num_rows)


def _footer(path: Path) -> tuple[int, int, int]:
    """Return rows, first and last epoch of a data file, read from the file itself."""
    with pq.ParquetFile(path) as file:
        epochs = file.read(columns=[EPOCH]).column(EPOCH)
    ends = pc.min_max(epochs).as_py()
    return len(epochs), ends["min"] or 0, ends["max"] or 0


def _was_written_by(entry: Path, write: str) -> bool:
    """Whether the log entry is there and is the one of this attempt."""
    try:
        lines = entry.read_text(encoding="utf-8").splitlines()
        return any(json.loads(line).get("commitInfo", {}).get("write") == write for line in lines)
    except (FileNotFoundError, ValueError):
        return False
