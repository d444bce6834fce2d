"""The leaves of a table of Iceberg by key: the files that a snapshot names, each with the ends of its keys.

The ends are those of its manifests, also of other writers: the specification says how a type is compared, and that
ends which are cut short are ends still. If a manifest does not tell them, the file's own footer is asked, once.

Of a table that is parted each leaf has the values of its partition, also where others wrote it. A file of another
spec may have rows of many partitions, so it is no leaf: it is refused.

Invariant: all keys of a leaf lie between its ends, and all its rows are in its partition.

>>> plain_end(b"\\x05\\0\\0\\0", "int"), plain_end(b"\\xff", "decimal(9, 2)"), plain_end(b"ada", "string")
(5, -1, b'ada')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.errors.iceberg import FilesPartedOtherwise, IcebergRowsDeleted, IcebergTableUnfit
from tidegauge.errors.sinks import LeafUnreadable
from tidegauge.lazy import library
from tidegauge.objects.reading import readable
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.iceberg.catalog import CatalogPlace
from tidegauge.sinks.iceberg.files import is_elsewhere, live_entries, relative, staged_of
from tidegauge.sinks.iceberg.look import IcebergLook
from tidegauge.sinks.iceberg.partitions import partitions_in, spec_text
from tidegauge.sinks.iceberg.staging import HIDDEN
from tidegauge.sinks.keyed.keys import Ends, ends_of
from tidegauge.sinks.keyed.planning import TableLeaf
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.location import inside

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table as PyIcebergTable

__all__ = ["IcebergLeaves", "plain_end"]

pq: Final[Any] = library("pyarrow.parquet")


class IcebergLeaves:
    """The leaves of the table at `place`. Of one thread at a time.

    key: the columns that tell the rows of a partition apart. lying: how rows lie in its files.
    """

    def __init__(self, place: CatalogPlace, key: Sequence[str], lying: FileLayout = HIDDEN) -> None:
        self._place: Final = place
        self._lying: Final = lying
        self._key: Final = tuple(key)
        self._known: dict[str, TableLeaf] = {}

    def at(self, look: IcebergLook) -> Mapping[str, TableLeaf]:
        """Return the leaves of a table's current snapshot by their paths.

        Raises `IcebergTableUnfit` for delete files, and for files outside of the table's folder;
        `FilesPartedOtherwise` for files that are not of the present partitions; `LeafUnreadable`.
        """
        if look.table is None or not look.standing.is_claimed:
            return {}
        schema, folder, name = look.table.schema(), self._place.folder, str(self._place.name)
        epoch = schema.find_field(EPOCH).field_id
        partition_of = partitions_in(look.table, self._lying)
        found: dict[str, TableLeaf] = {}
        try:
            with self._place.asking():
                for entry in live_entries(look.table, look.snapshot):
                    path = relative(entry.file_path, folder)
                    if is_elsewhere(path):
                        raise IcebergTableUnfit(table=name, feature=f"a file outside of its folder, {path},")
                    if (leaf := self._known.get(path)) is None:
                        if (partition := partition_of(entry)) is None:
                            raise self._otherwise(look.table, entry)
                        leaf = self._leaf(entry, path, schema, epoch)
                        leaf = replace(leaf, file=replace(leaf.file, partition=partition))
                    found[path] = leaf
        except IcebergRowsDeleted as error:  # it fails the output, and no other
            raise IcebergTableUnfit(table=name, feature="delete files") from error
        self._known = found
        return found

    def _otherwise(self, table: PyIcebergTable, entry: DataFile) -> FilesPartedOtherwise:
        path, held = relative(entry.file_path, self._place.folder), spec_text(table, entry.spec_id)
        about = {"table": str(self._place.name), "output": self._place.output}
        return FilesPartedOtherwise(**about, path=path, held=held, wanted=self._lying.said)

    def _leaf(self, entry: Any, path: str, schema: Any, epoch: int) -> TableLeaf:
        folder = self._place.folder
        fields = [schema.find_field(name) for name in self._key]
        low, high = (
            tuple(plain_end((ends or {}).get(one.field_id), str(one.field_type)) for one in fields)
            for ends in (entry.lower_bounds, entry.upper_bounds)
        )
        try:
            file = staged_of(entry, folder, epoch)
            if None not in low and None not in high:
                return TableLeaf(file, Ends(low, high))
            with pq.ParquetFile(readable(inside(folder, path))) as opened:
                return TableLeaf(file, ends_of(opened, self._key))
        except (OSError, KeyError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno and not isinstance(error, FileNotFoundError):
                raise  # the disk, which may be back
            raise LeafUnreadable(path=path, table=folder, detail=" ".join(str(error).split())) from error


def plain_end(raw: bytes | None, kind: str) -> Any:
    """Return an end in Iceberg's binary form as a plain key value. kind: its type, by its name in Iceberg."""
    if raw is None or kind in ("string", "binary"):
        return raw
    if kind.startswith("decimal"):
        return int.from_bytes(raw, "big", signed=True)
    if kind == "boolean":
        return int(any(raw))
    return int.from_bytes(raw, "little", signed=True)
