"""Packing the small files of a table of Iceberg, and forgetting old snapshots, with the files that are only theirs.

A pack is a `replace` snapshot, as that of Iceberg's own `rewrite_data_files`: it takes the old files out, puts the
new ones in, and says nothing of the output. So the driver that is running meets a snapshot more, and goes on; and the
properties that its answers are judged by stay its own.

*As of an epoch.* Each row keeps its `_epoch`, and a table that is appended to is read as of any epoch from the packed
files, whatever snapshots are left. One by key is read as of an earlier epoch from an earlier snapshot, as long as
that stays; it is packed in the order of its keys, by the merge that commits use.

Invariant: a pack is committed only upon a snapshot that has every file which was packed, and no delete files. What a
driver or others have taken out meanwhile is never put back. Files are removed once no snapshot names them, never
before.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from tidegauge.errors.sinks import TableBusy
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.commits import check_span
from tidegauge.sinks.iceberg.catalog import CatalogPlace, translated
from tidegauge.sinks.iceberg.change import TableChange, committed, made
from tidegauge.sinks.iceberg.columns import check_fit, columns_of, ids_in
from tidegauge.sinks.iceberg.expiry import expired, files_in
from tidegauge.sinks.iceberg.files import is_elsewhere, live_entries, relative, removed, staged_of
from tidegauge.sinks.iceberg.gaining import check_unaltered
from tidegauge.sinks.iceberg.leaves import IcebergLeaves
from tidegauge.sinks.iceberg.look import IcebergLook, looked
from tidegauge.sinks.iceberg.partitions import check_parted, partitions_in
from tidegauge.sinks.iceberg.staging import DATA, HIDDEN, IcebergLeaf, IcebergStager
from tidegauge.sinks.iceberg.table import ATTEMPTS, discard
from tidegauge.sinks.keyed.layout import Keyed
from tidegauge.sinks.keyed.merging import MergeTask
from tidegauge.sinks.keyed.packing import packs_of_leaves
from tidegauge.sinks.keyed.parting import key_in_files
from tidegauge.sinks.keyed.planning import SIZES
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.packing import PackedRows, packed_as, packs_of
from tidegauge.sinks.location import at, inside, names_in, staging
from tidegauge.sinks.protocol import OutputId, StagedFile, job_mark
from tidegauge.sinks.upkeep import Pack, Remnant

__all__ = ["IcebergUpkeep"]

_METADATA: Final = "metadata"
_STAGING: Final = timedelta(days=1)
"""No file that was staged is a remnant sooner, whatever the retention."""


class IcebergUpkeep:
    """An `Upkeep`: the table at `place`.

    lying: how its rows lie in files. layout: how it keeps one row for each key, None where it has all.
    """

    def __init__(
        self, place: CatalogPlace, output: OutputId, lying: FileLayout = HIDDEN, layout: Keyed | None = None
    ) -> None:
        self._layout: Final = layout
        self._key: Final = () if layout is None else key_in_files(lying, layout.key)
        self._leaves: Final = None if layout is None else IcebergLeaves(place, self._key, lying)
        self._sizes: Final = SIZES.with_leaves(lying.file_bytes)
        self._place: Final = place
        self._output: Final = output
        self._lying: Final = lying
        self._folder: Final = place.folder
        self._look = looked(place, output)
        self._retention: timedelta | None = None
        self._gone: frozenset[int] = frozenset()
        """The snapshots whose files are among the remnants."""

    def files(self) -> Sequence[StagedFile]:
        """Return its files, in the order of their epochs. Raises `IcebergRowsDeleted`."""
        self._look = looked(self._place, self._output)
        return self._present(self._look)

    def plan(self) -> list[Pack]:
        """Return which of its present files are worth packing."""
        files = self.files()
        if not files:
            return []
        self._check(self._look)
        if self._leaves is not None:
            return packs_of_leaves(list(self._leaves.at(self._look).values()), self._sizes)
        return packs_of([file for file in files if not is_elsewhere(file.path)], self._lying)

    def stage(self, pack: Pack, *, job: str) -> list[StagedFile]:
        """Write the rows of a pack into new files, in memory that does not grow with them. Raises `CannotPack`."""
        schema = self._look.table.schema()
        columns = columns_of(schema)
        about: dict[str, Any] = {"job": job, "task": 0, "ids": ids_in(schema, columns)}
        if self._layout is not None:
            ordering, begin = replace(self._layout.ordering(columns), key=self._key), IcebergLeaf(about["ids"])
            partition = pack.files[0].partition
            tasks = [
                MergeTask(self._folder, columns, ordering, merge, self._sizes, job, number, partition, begin=begin)
                for number, merge in enumerate(pack.how)
            ]
            return [file for task in tasks for file in task()]
        stager = IcebergStager(staging(self._folder), columns, **about, lying=packed_as(self._lying), most=None)
        try:
            for rows in PackedRows(self._folder, columns, self._lying)(pack):
                stager.write(rows)
            return stager.close()
        except BaseException:
            stager.abort()
            raise

    def commit(self, pack: Pack, files: Sequence[StagedFile], *, write: str) -> str | None:
        """Let the new files take the places of the old ones, in one snapshot; see the module and `Upkeep.commit`."""
        least = max(file.last_epoch for file in pack.files) + 1
        check_span(least, least, files, remove=pack.files, partition=self._lying.names)
        taken = frozenset(file.path for file in pack.files)
        for _ in range(ATTEMPTS):
            look = looked(self._place, self._output)
            if look.table is None or not look.standing.is_claimed:
                return None
            with self._place.asking():
                held = {relative(one.file_path, self._folder) for one in live_entries(look.table, look.snapshot)}
            if not taken <= held:
                return None
            self._check(look)
            change = TableChange(
                place=self._place,
                output=self._output,
                look=look,
                columns=columns_of(look.table.schema()),
                lying=self._lying,
                write=write,
                files=files,
                remove=taken,
                vouching=False,
                packing=True,
            )
            if (found := made(change)) is not None:
                self._look = found
                return str(found.table.metadata.current_snapshot_id)
        raise TableBusy(table=str(self._place.name), attempts=ATTEMPTS)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. Files that a snapshot names are kept."""
        discard(self._place, files)

    def remnants(self, retention: timedelta | None) -> list[Remnant]:
        """Return the files of snapshots that are past the retention alone, and those that none names."""
        self._look = look = looked(self._place, self._output)
        self._retention = retention
        if look.table is None or not look.standing.is_claimed:
            return []
        with self._place.asking():
            gone = self._gone = frozenset(self._expired(look))
            snapshots = look.table.metadata.snapshots
            named = files_in(look.table, [one for one in snapshots if one.snapshot_id not in gone], self._folder)
            forgotten = files_in(look.table, [one for one in snapshots if one.snapshot_id in gone], self._folder)
            found = [Remnant(path, size) for path, size in sorted(forgotten.items()) if path not in named]
            staged = [one for one in self._staged(retention) if one.path not in named | forgotten]
        return [*found, *staged]

    def clear(self, remnants: Sequence[Remnant]) -> None:
        """Let the snapshots expire, then remove the remnants, but for those that a snapshot names by now."""
        if not remnants:
            return
        table = self._forgotten() if any(not one.staged for one in remnants) else self._place.load()
        if table is None:
            return
        with self._place.asking():
            named = files_in(table, table.metadata.snapshots, self._folder)
            for one in remnants:
                if one.path not in named:
                    removed(table, one.path, self._folder)

    def shorten(self) -> str | None:
        """Return None: snapshots have expired by now, and each commit keeps the manifests few."""
        return None

    def end(self) -> None:
        """Let go of the catalog's connections."""
        self._place.close()

    def _present(self, look: IcebergLook) -> list[StagedFile]:
        if look.table is None or not look.standing.is_claimed:
            return []
        epoch = look.table.schema().find_field(EPOCH).field_id
        partition_of = partitions_in(look.table, self._lying)
        with self._place.asking():
            found = [
                replace(staged_of(entry, self._folder, epoch), partition=partition_of(entry) or ())
                for entry in live_entries(look.table, look.snapshot)
            ]
        return sorted(found, key=lambda file: (file.first_epoch, file.last_epoch, file.path))

    def _check(self, look: IcebergLook) -> None:
        check_fit(look.table)
        check_unaltered(look, self._output, columns_of(look.table.schema()))
        check_parted(look.table, self._output, self._lying)

    def _expired(self, look: IcebergLook) -> list[int]:
        metadata, sequence = look.table.metadata, look.standing.sequence
        return expired(metadata, self._retention, sequence=sequence, now=time.time())

    def _forgotten(self) -> Any:
        """Let snapshots expire, and return the table without them."""
        from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate

        for _ in range(ATTEMPTS):
            look = looked(self._place, self._output)
            # What has become old enough since its files were looked for is left to the next time, and they with it.
            if look.table is None or not (gone := [one for one in self._expired(look) if one in self._gone]):
                return look.table
            metadata = look.table.metadata
            heads = [{"ref": name, "snapshot-id": ref.snapshot_id} for name, ref in metadata.refs.items()]
            unmoved = [AssertRefSnapshotId.model_validate(head) for head in heads]
            update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone})
            try:
                same = AssertTableUUID(uuid=metadata.table_uuid)
                return committed(look.table, self._folder, (update,), (same, *unmoved), {})
            except Exception as error:
                table = self._place.load()
                left = set() if table is None else {one.snapshot_id for one in table.metadata.snapshots}
                if left.intersection(gone) == set(gone) and (told := translated(error, self._place)) is not None:
                    raise told from error
        raise TableBusy(table=str(self._place.name), attempts=ATTEMPTS)

    def _staged(self, retention: timedelta | None) -> Iterator[Remnant]:
        """Yield the files that this flow has written and are old enough not to be in anybody's hands."""
        mark = job_mark(self._output.incarnation)
        name = rf"(snap-\d+-\d+-)?{mark[:8]}-{mark[8:12]}-{mark[12:]}-[0-9a-f]{{4}}-[0-9a-f]{{12}}(-m\d+)?\.avro"
        oldest = time.time() - max(retention or _STAGING, _STAGING).total_seconds()
        for folder, start, known in (
            (DATA, f"part-{mark}", re.compile(r".*\.parquet")),
            (_METADATA, "", re.compile(name)),
        ):
            with suppress(FileNotFoundError):
                for found in sorted(names_in(at(self._folder) / folder, start)):
                    path = f"{folder}/{found}"
                    if known.fullmatch(found) and (size := self._size(path, oldest)) is not None:
                        yield Remnant(path, size, staged=True)

    def _size(self, path: str, oldest: float) -> int | None:
        """Return how large a file is, None where it is gone, or was last written later."""
        with suppress(FileNotFoundError):
            status = inside(self._folder, path).stat()
            return status.st_size if status.st_mtime_ns / 1e9 < oldest else None
        return None
