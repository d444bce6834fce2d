"""The snapshot of a commit, made of pyiceberg's own parts: manifests, the list of them, and what it says of itself.

pyiceberg's transactions would make it as well. They copy all of the table's metadata a dozen times for that, which
makes a commit to a table of some hundred snapshots last a second; they put the files of a stale writer on top of what
came between; and where they hear of a conflict they remove the manifests that they wrote. But a
proxy whose first answer was lost asks twice, and hears of a conflict with itself: then they are those of the table.

Invariant: the snapshot has the live files of the one before it, less those removed, plus those added; it counts only
if the table's branch `main` is still at the one before it. Small manifests become one when they are many, so a commit
costs the same at any number of files.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as PyIcebergTable
    from pyiceberg.table.update import TableRequirement, TableUpdate

__all__ = ["Built", "build"]

_MANY: Final = 100
_SMALL: Final = 8 << 20
"""As many manifests of less than this size become one: as Iceberg's own default has it."""
_ENTRIES: Final = 10_000
"""As many entries become one manifest, where files of several are taken out."""
_MAIN: Final = "main"
_FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class Built:
    """A snapshot that is written and not committed: its id, its number in order, and what a catalog is asked for."""

    snapshot: int
    sequence: int
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]


def build(
    table: PyIcebergTable,
    schema: Schema,
    spec: PartitionSpec,
    added: Sequence[DataFile],
    *,
    removes: Callable[[DataFile], bool] | None,
    said: dict[str, str],
    mark: str,
    packing: bool = False,
) -> Built:
    """Write the snapshot that comes after the table's current one.

    schema, spec: the table's columns and partitions, after the commit. removes: tells the files that are removed,
    None for none. said: what the snapshot says besides. mark: 16 hex digits that the names of its files begin with.
    packing: whether it has the same rows as the one before it, in other files.
    """
    from pyiceberg.manifest import write_manifest_list
    from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotSummaryCollector, Summary
    from pyiceberg.table.snapshots import update_snapshot_summaries as with_totals
    from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate

    metadata, before = table.metadata, table.current_snapshot()
    writing = _Writing(table, schema, spec, metadata.new_snapshot_id(), mark)
    counted = SnapshotSummaryCollector()
    for file in added:
        counted.add_file(file, schema)
    held = [] if before is None else before.manifests(table.io)
    kept = writing.left(held, removes, lambda file: counted.remove_file(file, schema))
    manifests = [*writing.added(added), *writing.merged(kept)]
    operation = Operation.APPEND if removes is None else Operation.OVERWRITE
    summary = with_totals(
        Summary(operation, **counted.build(), **said),
        None if before is None or before.summary is None else before.summary.additional_properties,
    )
    if packing:
        summary = Summary(Operation.REPLACE, **summary.additional_properties)
    sequence, parent = metadata.next_sequence_number(), None if before is None else before.snapshot_id
    listed = writing.place(f"snap-{writing.snapshot}-0-{writing.name}.avro")
    with write_manifest_list(
        _FORMAT, table.io.new_output(listed), writing.snapshot, parent, sequence, writing.compression
    ) as out:
        out.add_manifests(manifests)
    # As a catalog is told of it: by the names of Iceberg's own specification.
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": writing.snapshot,
            "parent-snapshot-id": parent,
            "manifest-list": listed,
            "sequence-number": sequence,
            "summary": summary,
            "schema-id": schema.schema_id,
        }
    )
    ref = metadata.refs.get(_MAIN)
    kept_for = {} if ref is None else {name: value for name, value in ref.model_dump(by_alias=True).items() if value}
    moved = {**kept_for, "ref-name": _MAIN, "type": "branch", "snapshot-id": writing.snapshot}
    unmoved = {"ref": _MAIN, "snapshot-id": parent}
    return Built(
        writing.snapshot,
        sequence,
        (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(moved)),
        (AssertTableUUID(uuid=metadata.table_uuid), AssertRefSnapshotId.model_validate(unmoved)),
    )


class _Writing:
    """The manifests of one snapshot."""

    def __init__(self, table: PyIcebergTable, schema: Schema, spec: PartitionSpec, snapshot: int, mark: str) -> None:
        from pyiceberg.table import TableProperties

        self.snapshot: Final = snapshot
        self.name: Final = uuid.UUID(mark + uuid.uuid4().hex[16:])
        told = table.metadata.properties
        self.compression: Final[Any] = told.get(
            TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
        )
        self._table: Final = table
        self._schema: Final = schema
        self._spec: Final = spec
        self._numbers: Final = count()
        self._location: Final = table.location_provider()

    def place(self, name: str) -> str:
        """Return where a file of the metadata goes."""
        return self._location.new_metadata_location(name)

    def added(self, files: Sequence[DataFile]) -> list[ManifestFile]:
        """Write the manifest of the files that are added."""
        from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus

        if not files:
            return []
        with self._open(self._spec) as writer:
            for file in files:
                status = ManifestEntryStatus.ADDED
                writer.add_entry(ManifestEntry.from_args(status=status, snapshot_id=self.snapshot, data_file=file))
        return [writer.to_manifest_file()]

    def left(
        self,
        manifests: Sequence[ManifestFile],
        removes: Callable[[DataFile], bool] | None,
        removed: Callable[[DataFile], None],
    ) -> list[ManifestFile]:
        """Return the rest of manifests: they, or others for those with files that go.

        removed: is told these files.
        """
        there = [one for one in manifests if one.has_added_files() or one.has_existing_files()]
        if removes is None:
            return there
        untouched: list[ManifestFile] = []
        touched: dict[int, list[tuple[ManifestEntry, bool]]] = {}
        for manifest in there:
            entries = [(entry, removes(entry.data_file)) for entry in self._entries(manifest)]
            if any(goes for _, goes in entries):
                touched.setdefault(manifest.partition_spec_id, []).extend(entries)
            else:
                untouched.append(manifest)
        rewritten = [
            self._rewritten(spec, entries[start : start + _ENTRIES], removed)
            for spec, entries in touched.items()
            for start in range(0, len(entries), _ENTRIES)
        ]
        return [*untouched, *rewritten]

    def merged(self, manifests: Sequence[ManifestFile]) -> Iterator[ManifestFile]:
        """Yield manifests of the same files, with few small ones. Files that go with this commit stay told."""
        from pyiceberg.manifest import ManifestContent

        small: dict[int, list[ManifestFile]] = {}
        for one in manifests:
            mergeable = one.content == ManifestContent.DATA and one.added_snapshot_id not in (None, self.snapshot)
            if mergeable and one.manifest_length < _SMALL:
                small.setdefault(one.partition_spec_id, []).append(one)
        many = {spec: some for spec, some in small.items() if len(some) >= _MANY}
        merging = {one.manifest_path for some in many.values() for one in some}
        yield from (one for one in manifests if one.manifest_path not in merging)
        for spec, some in many.items():
            yield self._rewritten(spec, [(entry, False) for one in some for entry in self._entries(one)])

    def _rewritten(
        self,
        spec: int,
        entries: Sequence[tuple[ManifestEntry, bool]],
        removed: Callable[[DataFile], None] = lambda _file: None,
    ) -> ManifestFile:
        """Write a manifest of entries that are there, each with whether it goes. spec: the number of its spec."""
        with self._open(self._table.specs()[spec]) as writer:
            for entry, goes in entries:
                if goes:
                    writer.delete(entry)
                    removed(entry.data_file)
                else:
                    writer.existing(entry)
        found: ManifestFile = writer.to_manifest_file()
        return found

    def _entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        return manifest.fetch_manifest_entry(self._table.io, discard_deleted=True)

    def _open(self, spec: PartitionSpec) -> Any:
        from pyiceberg.manifest import write_manifest

        out = self._table.io.new_output(self.place(f"{self.name}-m{next(self._numbers)}.avro"))
        return write_manifest(_FORMAT, spec, self._schema_of(spec), out, self.snapshot, self.compression)

    def _schema_of(self, spec: PartitionSpec) -> Schema:
        """Return columns that have all that partitions are made of: the earlier ones, for those of earlier files."""
        known = {one.field_id for one in self._schema.fields}
        return self._schema if all(one.source_id in known for one in spec.fields) else self._table.schema()
