"""One attempt at one commit to a table of Iceberg: files in and out, and what the table then says of itself.

Invariant: the catalog makes all of it or nothing, and only upon the snapshot that was looked at.

*A lost answer.* An error of a commit says nothing of whether it was made. So the table is looked at: its properties
name the attempt. If it cannot be looked at, that is the error, and the next attempt looks first.

Files whose columns have other numbers than the table's are written anew, with the right ones, before their commit:
those of rows whose columns came in another order, and of a table that was there before, or has taken on columns. Then
tasks are told the numbers (`numbers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.iceberg import CatalogAway
from tidegauge.objects.reading import parquet_rows
from tidegauge.sinks.columns import differences
from tidegauge.sinks.iceberg.catalog import CatalogPlace, is_conflict, translated
from tidegauge.sinks.iceberg.columns import columns_of, ids_in
from tidegauge.sinks.iceberg.fields import numbered, renumbered
from tidegauge.sinks.iceberg.files import entry_of, full_path, live_entries, relative, removed
from tidegauge.sinks.iceberg.gaining import as_current, with_columns
from tidegauge.sinks.iceberg.look import IcebergLook, looked
from tidegauge.sinks.iceberg.numbers import keep_numbers
from tidegauge.sinks.iceberg.partitions import brought
from tidegauge.sinks.iceberg.snapshots import build
from tidegauge.sinks.iceberg.staging import IcebergStager, said
from tidegauge.sinks.iceberg.standing import IcebergStanding, lineage
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.location import staging
from tidegauge.sinks.protocol import OutputId, StagedFile, job_mark

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as PyIcebergTable
    from pyiceberg.table.update import TableRequirement, TableUpdate

__all__ = ["TableChange", "committed", "made"]


@dataclass(frozen=True, kw_only=True)
class TableChange:
    """One commit that is wanted.

    look: the table that it is made upon. columns: those of the rows. gains: those that the table has afterwards, None
    for its own. lying: how rows lie in files. write: names the attempt. remove: paths of files to be taken out, None
    for all. summary: what the snapshot says of itself; properties: what the table then says. vouching: whether the
    snapshot is one that the table is believed by. packing: whether it changes no rows, so that the table says nothing
    new of itself.
    """

    place: CatalogPlace
    output: OutputId
    look: IcebergLook
    columns: pa.Schema
    lying: FileLayout
    write: str
    gains: pa.Schema | None = None
    files: Sequence[StagedFile] = ()
    remove: frozenset[str] | None = frozenset()
    summary: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    vouching: bool = True
    packing: bool = False


def made(change: TableChange) -> IcebergLook | None:
    """Make a change, and return the table with it; None when somebody else has committed first."""
    attempt = _Attempt(change)
    try:
        return attempt.run()
    except Exception as error:
        place = change.place
        if attempt.is_under_way:
            found = looked(place, change.output)
            if attempt.is_in(found):
                return found
            if is_conflict(error):
                attempt.undo()
                return None
        attempt.undo()
        told = translated(error, place)
        if told is None and attempt.is_under_way and not isinstance(error, TidegaugeError):
            detail = f"{type(error).__name__}: {error}"
            told = CatalogAway(table=str(place.name), catalog=place.shown, detail=detail)
        if told is None:
            raise
        raise told from error


class _Attempt:
    def __init__(self, change: TableChange) -> None:
        self._change: Final = change
        self._anew: list[StagedFile] = []
        self._rewritten: list[StagedFile] = []
        """The files that they were written of."""
        self.is_under_way = False
        """Whether the catalog was asked to commit."""
        self._snapshot = 0

    def run(self) -> IcebergLook:
        change = self._change
        output, folder, table = change.output, change.place.folder, change.look.table
        schema, changed, unchanged = as_current(table, self._schema())
        spec, parted = brought(table, schema, change.lying) if change.remove is None else (table.spec(), ())
        ids = ids_in(schema, change.columns)
        ready = [self._fitting(file, ids) for file in change.files]
        about: dict[str, Any] = {"spec": spec.spec_id, "lying": change.lying}
        added = [entry_of(folder, file, change.columns, **about) for file in ready]
        removes = self._removed if change.remove != frozenset() else None
        if removes is not None and not any(live_entries(table, change.look.snapshot)):
            removes = None
        told = IcebergStanding.told(output, **change.summary)
        mark = job_mark(output.incarnation)
        built = build(table, schema, spec, added, removes=removes, said=told, mark=mark, packing=change.packing)
        self._snapshot = built.snapshot
        vouched = {"snapshot": str(built.snapshot), "sequence": str(built.sequence)} if change.vouching else {}
        if "edition" in change.properties and change.vouching:
            vouched["replaced"] = str(built.sequence)
        properties = IcebergStanding.told(output, write=change.write, **change.properties, **vouched)
        if change.packing:
            properties = {}
        self.is_under_way = True
        requirements = (*built.requirements, *unchanged)
        after = committed(table, folder, (*changed, *parted, *built.updates), requirements, properties)
        if self._anew:
            keep_numbers(folder, ids_in(schema, columns_of(schema)))
            self._remove(self._rewritten)
        return IcebergLook(after, IcebergStanding(after.metadata.properties, list(lineage(after.metadata))[:1]))

    def _schema(self) -> Schema:
        """Return the columns that the table has afterwards."""
        change, table = self._change, self._change.look.table
        if change.remove is None:
            return _columns(table, change.columns)
        if change.gains is None:
            held: Schema = table.schema()
            return held
        return with_columns(table.schema(), change.gains, last=table.metadata.last_column_id)

    def is_in(self, look: IcebergLook) -> bool:
        """Whether a table has the change."""
        if not self._change.packing:
            return look.standing.is_of(self._change.output) and look.standing.write == self._change.write
        return look.table is not None and look.table.snapshot_by_id(self._snapshot) is not None

    def _removed(self, entry: DataFile) -> bool:
        taken = self._change.remove
        return taken is None or relative(entry.file_path, self._change.place.folder) in taken

    def undo(self) -> None:
        """Remove the files that were written anew for a commit that was not made."""
        self._remove(self._anew)

    def _fitting(self, file: StagedFile, ids: Mapping[str, int]) -> StagedFile:
        """Return a staged file whose columns have these numbers. It may lack some: readers see null there."""
        if said(file)[0].items() <= ids.items():
            return file
        change, number = self._change, len(self._anew)
        place = staging(change.place.folder)
        stager = IcebergStager(place, change.columns, job=change.write, task=number, ids=ids)
        try:
            rows = parquet_rows([full_path(file.path, change.place.folder)], change.columns)
            for batch in rows.to_batches():
                stager.write(batch)
            [anew] = [replace(one, partition=file.partition) for one in stager.close()]
        except BaseException:
            stager.abort()
            raise
        self._anew.append(anew)
        self._rewritten.append(file)
        return anew

    def _remove(self, files: Sequence[StagedFile]) -> None:
        place = staging(self._change.place.folder)
        with suppress(OSError, TidegaugeError):  # litter
            for file in files:
                place.remove(file.path)


def committed(
    table: PyIcebergTable,
    folder: str,
    updates: tuple[TableUpdate, ...],
    requirements: tuple[TableRequirement, ...],
    properties: Mapping[str, str],
) -> PyIcebergTable:
    """Ask the catalog for a commit, once, and return the table with it."""
    from pyiceberg.table.update import SetPropertiesUpdate

    told = (SetPropertiesUpdate(updates=dict(properties)),) if properties else ()
    response = table.catalog.commit_table(table, requirements, (*updates, *told))
    before, after = table.metadata, response.metadata
    table.metadata, table.metadata_location = after, response.metadata_location
    if after.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() == "true":
        kept = {one.metadata_file for one in after.metadata_log}
        for old in {one.metadata_file for one in before.metadata_log} - kept:
            with suppress(OSError, TidegaugeError):
                removed(table, relative(old, folder), folder)
    return table


def _columns(table: PyIcebergTable, columns: pa.Schema) -> Schema:
    """Return the schema that gives a table these columns, and no others."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    held = columns_of(table.schema())
    if not differences(held, columns):
        return table.schema()
    ids = renumbered(columns, held, ids_in(table.schema(), held), table.metadata.last_column_id)
    return pyarrow_to_schema(numbered(columns, ids))
