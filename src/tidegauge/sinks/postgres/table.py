"""The driver's side of a table in PostgreSQL. A commit is one transaction:

    take the table's lock        of this sink alone: one commit at a time, also before there is a table
    read its progress            which nobody changes any more
    compare                      owner, upper, history, columns, key
    add or merge the rows        `rows`
    set the upper
    COMMIT

Invariant: the table holds exactly the epochs before the upper in its row of `tidegauge.progress`, each once, or after
a crash, an error or a refusal nothing has changed. Where the answer to COMMIT is lost, the row says whose attempt it
was; the next one reads it, and does nothing if it was its own.

A row of an epoch that the table does not hold yet is not ours: `ProgressApart`, before anything is written beside it.
It is looked for where an index tells the greatest epoch at once, as in each table that we make; elsewhere only where
somebody else has written the progress (`progress`). Rows that others delete stay deleted, and those that others add
to earlier epochs are theirs: nothing tells them from ours. A table that is dropped holds nothing; so does one that is
recreated, while it is empty.

*Why a sweep ends transactions.* A driver that was stopped in the middle of its COPY keeps the table's lock as long as
it lives. The next driver has the lease, so that commit is nobody's; it ends the transaction that has the lock, and
reads the upper only then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from psycopg import Cursor

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.columns import ColumnsRefused
from tidegauge.errors.history import DamagedHistory
from tidegauge.errors.postgressink import (
    PostgresBusy,
    PostgresForbidden,
    ProgressApart,
    ServerTableUnfit,
    TableKeptOtherwise,
)
from tidegauge.errors.sinks import (
    ForeignTable,
    NothingTakenOut,
    OutputIsNoTable,
    TableOfAnotherIncarnation,
    TableSchemaChanged,
    TableUpperMismatch,
)
from tidegauge.evolution import Evolution, Evolved, listed
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.attempt import discard, sweep
from tidegauge.sinks.columns import EPOCH, rows_schema
from tidegauge.sinks.commits import all_staged, check_span, expect, staged_status
from tidegauge.sinks.keyed.layout import Keyed
from tidegauge.sinks.keyed.merging import merge_job
from tidegauge.sinks.location import LocalFiles
from tidegauge.sinks.postgres import catalog, progress, rows
from tidegauge.sinks.postgres.connection import PostgresServer, be_patient, lock_number, refused
from tidegauge.sinks.postgres.place import TableName
from tidegauge.sinks.postgres.progress import ProgressRow
from tidegauge.sinks.postgres.types import arrow_of, change, check, server_types
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume, job_mark

__all__ = ["ServerTable"]

_END: Final = """
    SELECT pg_catalog.pg_terminate_backend({}) FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory' AND granted AND pid <> pg_catalog.pg_backend_pid()
      AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
      AND ((classid::bigint << 32) | objid::bigint) = %s AND objsubid = 1
"""
_WAITS: Final = 14_00_00
"""The version from which on a server can wait for the end of the session that it ends."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """A table and its progress: without a look there is no table, without a row it holds nothing."""

    look: catalog.Relation | None = None
    row: ProgressRow | None = None


class ServerTable:
    """A `Table`: the table `name`, as the output `output` sees it.

    layout: how rows become changes by key, None where they are added. folder: where tasks stage.
    """

    def __init__(
        self, server: PostgresServer, name: TableName, output: OutputId, *, layout: Keyed | None, folder: str
    ) -> None:
        self._server: Final = server
        self._name: Final = name
        self._output: Final = output
        self._layout: Final = layout
        self._folder: Final = folder
        self._kept: Final[set[str]] = set()
        self._how: Evolution = "strict"
        with server.looking() as cursor:
            self._held = self._read(cursor, lock=False)

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by the last commit seen of it."""
        return self._held.row.upper if self._held.row else 0

    @property
    def digest(self) -> str | None:
        """The digest of the flow's history up to the upper."""
        return (self._held.row.digest or None) if self._held.row else None

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the table, None before its first commit."""
        if self._held.row is None or self._held.look is None:
            return None
        return pa.schema([(name, arrow_of(kind)) for name, kind in self._held.look.columns.items()])

    def evolve(self, how: Evolution) -> None:
        """Take rows of other columns in this way from now on."""
        self._how = how

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that a commit of rows with this schema would add; raise what it would raise of them."""
        columns = self._columns(rows_schema(schema))
        check(columns)
        if self._held.row is None or self._held.look is None:
            return ()
        return self._change(self._held.look.columns, columns).added

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
        """Add the rows of `files` as the epochs `[lower, upper)`, or merge them by key; see `Table.commit`.

        Also raises `NothingTakenOut`, `StagedFileMissing`, `LastUndecided`, and the errors of the server.
        """
        if remove:
            raise NothingTakenOut(files=len(remove), table=str(self._name))
        check_span(lower, upper, files)
        given = rows_schema(schema)
        columns = self._columns(given)
        check(columns)
        refusal = refused(str(self._name), str(self._output), lower, upper)
        with self._server.writing(refusal) as cursor:
            self._lock(cursor)
            self._held = held = self._read(cursor, lock=True)
            if held.row is None or (held.row.upper, held.row.write) != (upper, write):  # else its answer was lost
                if self.upper != lower:
                    raise self._mismatch(lower)
                expect(self, self._output, history, mendable=False)
                self._check(held, columns)
                for file in files:
                    staged_status(self._folder, file)
                held = self._write(cursor, held, given, files, upper=upper, write=write, history=history)
        self._held = held
        with suppress(OSError, TidegaugeError):  # they are litter by now, and swept another time
            self.discard(files)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files."""
        discard(LocalFiles(self._folder), files)

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Keep files from the sweep; say whether all are as they were staged."""
        self._kept.update(file.path.split("/")[1] for file in files)
        return all_staged(self._folder, files)

    def sweep(self, confirm: Callable[[], None]) -> None:
        """End the transactions of earlier drivers, see what they committed, and remove what they staged in vain."""
        confirm()  # before anybody's transaction is ended
        with suppress(PostgresForbidden, PostgresBusy), self._server.writing() as cursor:  # they are waited for
            waits = cursor.connection.info.server_version >= _WAITS
            cursor.execute(_END.format("pid, 5000" if waits else "pid"), (lock_number(self._name),))
            if not waits:
                self._lock(cursor)
        with self._server.looking() as cursor:
            self._held = self._read(cursor, lock=False)
        sweep(LocalFiles(self._folder), job_mark(self._output.incarnation), confirm, kept=self._kept)

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:  # noqa: ARG002 - it has no earlier state
        """Return the table as one file: how many rows commits have left there, and the bytes staged for them."""
        row = self._held.row
        return [StagedFile(str(self._name), row.rows, row.size, 0, row.upper - 1)] if row else []

    def volume(self) -> Volume:
        """Return how much that is."""
        return Volume.of(self.files())

    def uris(self, files: Sequence[StagedFile]) -> list[str]:  # noqa: ARG002
        """Raise `OutputIsNoTable`: there are no files to read."""
        raise OutputIsNoTable(output=self._output.output, place=f"the PostgreSQL table {self._name}")

    def version_of(self, epoch: int) -> str | None:  # noqa: ARG002
        """Return None: the server tells nothing of earlier transactions."""
        return None

    def links(self) -> list[Link]:
        """Return the links that the commits brought. Raises `DamagedHistory`."""
        if self._held.row is None:
            return []
        with self._server.looking() as cursor:
            kept = progress.kept_links(cursor, self._name)
        try:
            return [link for lines in kept for link in History.decode(lines)]
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedHistory(table=str(self._name), path="tidegauge.links", detail=str(error)) from error

    # -- what is there

    def _lock(self, cursor: Cursor[Any]) -> None:
        cursor.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", (lock_number(self._name),))

    def _read(self, cursor: Cursor[Any], *, lock: bool) -> _Standing:
        """Return the table and its progress. Raises `ForeignTable`, `TableOfAnotherIncarnation`, `ProgressApart`."""
        look, number = catalog.found(cursor, self._name), progress.progress_number(cursor)
        row = progress.read(cursor, self._name, lock=lock) if number else None
        if look is None:
            return _Standing()
        if not look.is_table:
            self._foreign("it is no table, but another relation of this name")
        if row is None or not row.tells_of(look.oid, of=number):
            if catalog.any_row(cursor, self._name):
                self._foreign("it has rows, and no commit of an output brought them")
            return _Standing(look)
        if not row.is_of(self._output):
            self._foreign(f"it belongs to the output '{row.flow}:{row.output}'")
        if row.incarnation != self._output.incarnation:
            raise TableOfAnotherIncarnation(
                table=str(self._name), output=str(self._output), incarnation=self._output.incarnation
            )
        if EPOCH in look.columns and (row.unsure or look.by_epoch):
            if not look.by_epoch:  # the table is read, once
                be_patient(cursor)
            last = catalog.last_epoch(cursor, self._name)
            if last is not None and last >= row.upper:
                raise ProgressApart(table=str(self._name), epoch=last, upper=row.upper)
        return _Standing(look, row)

    def _foreign(self, detail: str) -> None:
        raise ForeignTable(table=str(self._name), output=str(self._output), detail=detail)

    def _mismatch(self, expected: int) -> TableUpperMismatch:
        return TableUpperMismatch(
            table=str(self._name), output=str(self._output), expected=expected, actual=self.upper
        )

    # -- what is to be there

    def _columns(self, given: pa.Schema) -> pa.Schema:
        return given if self._layout is None else self._layout.columns(given)

    def _key(self) -> tuple[str, ...]:
        return () if self._layout is None else self._layout.key

    def _check(self, held: _Standing, columns: pa.Schema) -> None:
        """Raise unless a table that is there can take rows of these columns, kept as this output keeps them."""
        look, row, key = held.look, held.row, self._key()
        if look is None:
            return
        if row is not None and row.key != key:
            said = [f"one row for each {', '.join(one)}" if one else "all rows" for one in (row.key, key)]
            raise TableKeptOtherwise(table=str(self._name), output=str(self._output), held=said[0], wanted=said[1])
        self._change(look.columns, columns)
        if look.fixed:
            self._unfit(f"the server itself fills its column {look.fixed[0]!r}")
        if key and not look.keeps_unique(key):
            self._unfit(f"it has no primary key or unique index of exactly {', '.join(key)}")

    def _change(self, held: Mapping[str, str], columns: pa.Schema) -> Evolved:
        """Return what becomes of the table's columns. Raises `TableSchemaChanged`, `ColumnsRefused`."""
        found = change(held, columns, self._how)
        if keyed := [name for name in found.widened if name in self._key()]:
            found = Evolved(refused=f"{keyed[0]!r} is of the key, whose types never change")
        if found.refused and self._how == "strict":
            raise TableSchemaChanged(table=str(self._name), output=str(self._output), detail=found.refused)
        if found.refused:
            said = {"held": listed(held), "given": listed(server_types(columns)), "how": self._how}
            raise ColumnsRefused(table=str(self._name), output=str(self._output), detail=found.refused, **said)
        return found

    def _unfit(self, problem: str) -> None:
        raise ServerTableUnfit(table=str(self._name), output=str(self._output), problem=problem)

    def _write(
        self,
        cursor: Cursor[Any],
        held: _Standing,
        given: pa.Schema,
        files: Sequence[StagedFile],
        *,
        upper: int,
        write: str,
        history: History,
    ) -> _Standing:
        """Put the rows and the upper into the table; return its state once the transaction is committed."""
        name, columns, layout = self._name, self._columns(given), self._layout
        number = progress.set_up(cursor)
        look = held.look
        if look is None:
            if not catalog.schema_is_there(cursor, name.schema):
                self._unfit(f"there is no schema {name.schema!r}")
            catalog.create(cursor, name, columns, self._key())
            look = catalog.found(cursor, name)
        if look is None:
            raise RuntimeError("a table that was just made is not there")
        found = self._change(look.columns, columns)
        if found.added or found.widened:
            catalog.alter(cursor, name, columns, added=found.added, widened=found.widened)
            look = catalog.found(cursor, name) or look
        row = held.row
        if row is None:
            row = ProgressRow(self._output.flow, self._output.output, self._output.incarnation)
            progress.forget_links(cursor, name)
        more = 0
        if files and layout is None:
            more = rows.append(cursor, name, columns, self._folder, files)
        elif files and layout is not None:
            parted = look.is_partitioned
            job = merge_job(self._output.incarnation, write, "carried")
            more = rows.upsert(cursor, name, given, layout, self._folder, files, job=job, partitioned=parted)
        size = sum(file.bytes for file in files)
        after = row.after(upper, history, write=write, rows=more, size=size, key=self._key())
        after = replace(after, table_oid=look.oid, progress_oid=number, unsure=False)
        progress.record(cursor, name, after, history)
        return _Standing(look, after)
