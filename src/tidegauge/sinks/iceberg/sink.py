"""A table of Iceberg as an output: tasks write Parquet into its folder `data`, the driver commits with pyiceberg.

Invariant: a file in the table's folder that no manifest names is invisible to every reader of Iceberg; so staging is
safe to repeat and to abandon, and the commit is one swap in the table's catalog.

>>> sink = IcebergSink("shop.orders", "/lake")
>>> sink.identity, sink.describe()
('iceberg:/lake/shop/orders', {'kind': 'iceberg', 'table': 'shop.orders', 'warehouse': '/lake'})
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.layout import LaidOutByKey
from tidegauge.leftout import KeptByKey
from tidegauge.objects.address import is_address
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.envelope import Envelope, check_envelope, named_columns
from tidegauge.sinks.iceberg.fields import check_names, check_paths, fresh_ids, widened
from tidegauge.sinks.iceberg.place import IcebergName, folder_of, warehouse_at
from tidegauge.sinks.keyed.layout import Keyed
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.transforms import PartitionBy
from tidegauge.sinks.location import staging
from tidegauge.sinks.protocol import OutputId, job_mark
from tidegauge.sinks.removal import check_folder, remove_folder

if TYPE_CHECKING:
    from tidegauge.sinks.iceberg.bykey import IcebergByKey
    from tidegauge.sinks.iceberg.catalog import CatalogPlace
    from tidegauge.sinks.iceberg.packing import IcebergUpkeep
    from tidegauge.sinks.iceberg.published import PublishedTag
    from tidegauge.sinks.iceberg.staging import IcebergStager
    from tidegauge.sinks.iceberg.table import IcebergTable
    from tidegauge.sinks.keyed.runs import RunStager

__all__ = ["IcebergSink"]

_FILE: Final = re.compile(r"data/.+\.(parquet|puffin)|metadata/.+\.(avro|json|puffin|stats)|(_tidegauge|_staged)/.+")
"""The paths that files of a table have, those of other writers to it among them."""


@dataclass(frozen=True, slots=True)
class IcebergSink:
    """Write an output to a table of Iceberg, which the first commit creates, with its namespace.

    The table belongs to one output. Others may read it with anything that reads Iceberg, compact it, expire its
    snapshots, and delete rows of it.

    Args:
        table: `namespace.table`; a namespace may have several levels.
        warehouse: a folder, or a `file://` URI, that the tasks see too; or, together with `catalog`, an address in an
            object store. The table's folder is in it, as `namespace/table`. None for what pyiceberg's configuration
            says of the catalog.
        catalog: the name of a catalog in pyiceberg's configuration (`~/.pyiceberg.yaml`,
            `PYICEBERG_CATALOG__NAME__...`). None for one in the warehouse itself, a database of SQLite.
        envelope: `"append"`, to add each row; or `"upsert"`, to keep the last row of each key, and none for a true
            `deleted` column or the operation `delete`.
        key: for upserts, the key column, or columns.
        order: for upserts, the column whose greatest value marks the last row of a key in an epoch.
        deleted: for upserts, a column of booleans; true takes the row of the key away. The table does not have it.
        partition_by: the columns that the table is parted by, or transforms of them: `tg.day("at")`,
            `tg.month`, `tg.hour`, `tg.bucket(16, "id")`. They are Iceberg's own: the table has no columns for them.
        sort_by: to append, the columns that the rows of a file are sorted by.
        file_size: about how large a file becomes, as stored: "128MB", or a number of bytes.

    Raises `InvalidArgument`, `UnsupportedLocation`, `CredentialsInAddress`, `WarehouseUnknown`, `LaidOutByKey`.
    """

    table: str
    warehouse: str | None = None
    _: KW_ONLY
    catalog: str | None = None
    envelope: Envelope = "append"
    key: str | Sequence[str] | None = None
    order: str | None = None
    deleted: str | None = None
    partition_by: PartitionBy | Sequence[PartitionBy] | None = None
    sort_by: str | Sequence[str] | None = None
    file_size: str | int | None = None

    def __post_init__(self) -> None:
        name = IcebergName.parse(self.table)
        if self.catalog is not None and not (
            isinstance(self.catalog, str) and re.fullmatch(r"[\w.-]+", self.catalog)
        ):
            expected = "the name of a catalog in pyiceberg's configuration"
            raise InvalidArgument(parameter="IcebergSink(catalog)", value=self.catalog, expected=expected)
        given: Any = self.warehouse
        if given is None:
            from tidegauge.sinks.iceberg.configured import configured_warehouse

            given = configured_warehouse(self.catalog, table=str(name))
        object.__setattr__(self, "warehouse", warehouse_at(given))
        if self.catalog is None and is_address(self._warehouse):
            expected = "a folder; a catalog for tables in an object store is one that pyiceberg's configuration names"
            raise InvalidArgument(parameter="IcebergSink(warehouse)", value=self._warehouse, expected=expected)
        object.__setattr__(self, "key", named_columns("IcebergSink", "key", self.key))
        others = {"key": self.key, "order": self.order, "deleted": self.deleted}
        check_envelope("IcebergSink", self.envelope, self.key, others)
        for option in ("partition_by", "sort_by", "file_size"):
            listed = getattr(self, option)
            if option == "sort_by" and self.applies and listed is not None:
                raise LaidOutByKey(sink="IcebergSink", parameter=option)
            if isinstance(listed, Sequence) and not isinstance(listed, str):
                object.__setattr__(self, option, tuple(listed))
        self._files  # noqa: B018 - raises for what makes no sense

    @property
    def applies(self) -> bool:
        """Whether it takes rows with an operation: an upsert does."""
        return self.envelope == "upsert"

    @property
    def _layout(self) -> Keyed | None:
        """How rows become changes; None where they are appended."""
        return Keyed.of(self.key, self.order, self.deleted) if self.applies and self.key is not None else None

    @property
    def _files(self) -> FileLayout:
        """How rows lie in files."""
        return FileLayout.of("IcebergSink", self.partition_by, self.sort_by, self.file_size, hidden=True)

    @property
    def _warehouse(self) -> str:
        return str(self.warehouse)

    @property
    def _folder(self) -> str:
        return folder_of(self._warehouse, IcebergName.parse(self.table))

    @property
    def keeps(self) -> KeptByKey | None:
        """How a table by key fills in what changes leave out; None where it does not."""
        from tidegauge.sinks.keyed.parting import kept_by

        return kept_by(self._layout, self._files)

    @property
    def identity(self) -> str:
        """The folder of the table, without symbolic links; or its address."""
        folder = self._folder
        return f"iceberg:{folder if is_address(folder) else os.path.realpath(folder)}"

    @property
    def shared(self) -> bool:
        """False: the table belongs to one output."""
        return False

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON. What lets us into a catalog is not in it."""
        said: dict[str, Any] = {"kind": "iceberg", "table": self.table, "warehouse": self._warehouse}
        said |= {} if self.catalog is None else {"catalog": self.catalog}
        if self.applies:
            named = {name: getattr(self, name) for name in ("key", "order", "deleted")}
            said |= {"envelope": "upsert"}
            said |= {name: list(v) if isinstance(v, tuple) else v for name, v in named.items() if v is not None}
        return {**said, **self._files.describe()}

    def check(self, schema: pa.Schema) -> None:
        """Raise `UnsupportedColumn`, `InvalidColumnName` or `EpochColumnMissing` when rows could not be written.

        Raise `IcebergColumnReserved` for names that readers of Iceberg have a use of their own for.

        Raise `KeyedColumnUnfit` when they could not be changes of a table by key, `PartitionColumnUnfit` and
        `SortColumnUnfit` when they could not lie in files as wanted.
        """
        columns = rows_schema(schema)
        if (layout := self._layout) is not None:
            layout.check(columns)
            columns = layout.columns(columns)
        check_names(columns)
        check_paths(columns)
        self._files.check(columns, key=() if layout is None else layout.key)

    def incarnation(self, flow: str, output: str) -> str | None:
        """Return the incarnation that the table's properties name, None where there is none."""
        from tidegauge.sinks.iceberg.standing import IcebergStanding

        place = self._place(f"{flow}:{output}")
        table = place.load()
        place.close()
        found = IcebergStanding(table.metadata.properties) if table is not None else IcebergStanding()
        return found.incarnation if found.owner == (flow, output) else None

    def open(self, output: OutputId) -> IcebergTable | IcebergByKey:
        """Return the present table.

        Raises `TableOfAnotherIncarnation`, `ForeignTable` for a table that this output did not write,
        `IcebergTableElsewhere`, `IcebergTableChanged`, `IcebergMissing`, and what a catalog raises.
        """
        if (layout := self._layout) is not None:
            from tidegauge.sinks.iceberg.bykey import IcebergByKey

            return IcebergByKey(self._place(str(output)), output, layout, self._files)
        from tidegauge.sinks.iceberg.table import IcebergTable  # pyiceberg: tasks only stage

        return IcebergTable(self._place(str(output)), output, self._files)

    def check_removable(self, output: OutputId) -> None:
        """Raise `TableNotRemovable`, or as `open`, unless all in the folder is this output's.

        Of a table without a commit those are the files staged for it, and its metadata: others write files of such
        names, too.
        """
        table = self.open(output)
        known = _FILE
        if not table.upper:
            mine = rf"part-{job_mark(output.incarnation)}[^/]*\.parquet"
            known = re.compile(rf"(data|_staged/[^/]+)/{mine}|metadata/.+\.(avro|json)|_tidegauge/.+")
        table.end()
        check_folder(self._folder, lambda path: known.fullmatch(path) is not None)

    def remove(self, output: OutputId) -> None:
        """Take the table out of its catalog, and remove its folder."""
        self.check_removable(output)
        place = self._place(str(output))
        place.drop()
        place.close()
        remove_folder(self._folder, output)

    def marker(self, output: OutputId) -> PublishedTag:
        """Return what moves the tag `published` of the table."""
        from tidegauge.sinks.iceberg.published import PublishedTag

        return PublishedTag(self._place(str(output)), output)

    def maintain(self, output: OutputId) -> IcebergUpkeep:
        """Return the present table, to be kept in shape. Raises as `open`."""
        from tidegauge.sinks.iceberg.packing import IcebergUpkeep

        return IcebergUpkeep(self._place(str(output)), output, self._files, self._layout)

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> IcebergStager | RunStager:
        """Return a writer for one task of one job. `job` is 32 hex digits, `task` counts from 0."""
        if self.applies:
            return self.stage_from(0, schema, job=job, task=task)
        from tidegauge.sinks.iceberg.numbers import known_numbers
        from tidegauge.sinks.iceberg.staging import IcebergStager  # what writes Parquet is for those who do

        ids = known_numbers(self._folder, fresh_ids(widened(rows_schema(schema))))
        return IcebergStager(staging(self._folder), schema, job=job, task=task, ids=ids, lying=self._files)

    def stage_from(self, least: int, schema: pa.Schema, *, job: str, task: int) -> RunStager:
        """Return a writer of changes by key. No row of the table gets an epoch before `least` from them."""
        from tidegauge.sinks.keyed.runs import RunStager

        if (layout := self._layout) is None:
            raise ValueError("rows that are appended are no changes")
        about: dict[str, Any] = {"table": str(self.table), "job": job, "task": task, "least": least}
        return RunStager(staging(self._folder), layout, schema, **about, lying=self._files)

    def _place(self, output: str) -> CatalogPlace:
        from tidegauge.sinks.iceberg.catalog import CatalogPlace

        return CatalogPlace(IcebergName.parse(self.table), self._warehouse, self.catalog, output)
