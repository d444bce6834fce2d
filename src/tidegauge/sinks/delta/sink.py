"""A Delta table as an output: tasks write Parquet beside the table's log, the driver commits with delta-rs.

Invariant: a file in the table's folder that its log does not name is invisible to every reader of Delta; so staging
is safe to repeat and to abandon, and the commit is the one entry in the log.

>>> import tempfile
>>> from tidegauge.sinks.protocol import OutputId
>>> schema = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
>>> with tempfile.TemporaryDirectory() as folder:
...     sink = DeltaSink(folder)
...     table = sink.open(OutputId("shop", "users", "0" * 32))
...     stager = sink.stage(schema, job="1" * 32, task=0)
...     stager.write(pa.record_batch({"user": ["ada"], "_epoch": [0]}))
...     table.commit(0, 2, schema, stager.close(), write="2" * 32)
...     table.upper, [(file.rows, file.first_epoch) for file in table.files()]
(2, [(1, 0)])
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.layout import LaidOutByKey
from tidegauge.errors.sinks import LocalTimesInMap
from tidegauge.leftout import KeptByKey
from tidegauge.objects.address import is_address
from tidegauge.sinks.cataloguing import check_name
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.envelope import Envelope, check_envelope, named_columns
from tidegauge.sinks.keyed.layout import Keyed
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.transforms import PartitionBy
from tidegauge.sinks.location import at, gone, location, staging
from tidegauge.sinks.protocol import OutputId, job_mark
from tidegauge.sinks.removal import check_folder, remove_folder

if TYPE_CHECKING:
    from tidegauge.sinks.delta.bykey import DeltaByKey
    from tidegauge.sinks.delta.log import DeltaLog
    from tidegauge.sinks.delta.mend import DeltaMending
    from tidegauge.sinks.delta.packing import DeltaUpkeep
    from tidegauge.sinks.keyed.runs import RunStager
    from tidegauge.sinks.layout.stager import LaidOutStager
    from tidegauge.sinks.staging import ParquetStager

__all__ = ["DeltaSink"]

_FILE: Final = re.compile(
    r"(_delta_log|_tidegauge|_change_data|_staged|_vectors)/.+"
    r"|([^/=]+=[^/]*/)*(part-[^/]+\.parquet|deletion_vector_[^/]+\.bin|\.[^/]+\.crc)"
)
"""The paths that files of a table have, those of other writers to it among them; in partitions' folders too."""


@dataclass(frozen=True, slots=True)
class DeltaSink:
    """Write an output to a Delta table, which the first commit creates.

    The table belongs to one output. Others may read it with anything that reads Delta, OPTIMIZE and VACUUM it, and
    delete rows of it.

    Args:
        path: a folder, or a `file://` URI, that the tasks see too; or an address in an object store: `s3://`,
            `gs://`, `abfss://`.
        envelope: `"append"`, to add each row; or `"upsert"`, to keep the last row of each key, and none for a true
            `deleted` column or the operation `delete`.
        key: for upserts, the key column, or columns.
        order: for upserts, the column whose greatest value marks the last row of a key in an epoch.
        deleted: for upserts, a column of booleans; true takes the row of the key away. The table does not have it.
        partition_by: the columns that the table is parted by, or transforms of columns: `tg.day("at")`, `tg.month`,
            `tg.hour`, `tg.bucket(16, "id")`.
        sort_by: to append, the columns that the rows of a file are sorted by.
        file_size: about how large a file becomes, as stored: "128MB", or a number of bytes.
        deletion_vectors: for upserts, whether a change marks the old row deleted in the file that has it, rather than
            writing that file anew. Readers of the table need to know Delta's feature `deletionVectors` then. A table
            that has it switched on already is written so whatever this says.
        table: a name such as `"shop.orders"`, which the table gets in the catalog of the Spark session that the flow
            runs on. Where the table is remains a matter of the path.

    Raises `InvalidArgument`, `UnsupportedLocation` for other schemes, `CredentialsInAddress`, and `LaidOutByKey`.
    """

    path: str
    _: KW_ONLY
    envelope: Envelope = "append"
    key: str | Sequence[str] | None = None
    order: str | None = None
    deleted: str | None = None
    partition_by: PartitionBy | Sequence[PartitionBy] | None = None
    sort_by: str | Sequence[str] | None = None
    file_size: str | int | None = None
    deletion_vectors: bool = False
    table: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", location(self.path, sink="DeltaSink"))
        object.__setattr__(self, "key", named_columns("DeltaSink", "key", self.key))
        vectors = self.deletion_vectors or None
        others = {"key": self.key, "order": self.order, "deleted": self.deleted, "deletion_vectors": vectors}
        check_envelope("DeltaSink", self.envelope, self.key, others)
        for name in ("partition_by", "sort_by", "file_size"):
            given = getattr(self, name)
            if name == "sort_by" and self.applies and given is not None:
                raise LaidOutByKey(sink="DeltaSink", parameter=name)
            if isinstance(given, Sequence) and not isinstance(given, str):
                object.__setattr__(self, name, tuple(given))
        self._files  # noqa: B018 - raises for what makes no sense
        if self.table is not None:
            check_name("DeltaSink", self.table, self.path)

    @property
    def applies(self) -> bool:
        """Whether it takes rows with an operation: an upsert does."""
        return self.envelope == "upsert"

    @property
    def _files(self) -> FileLayout:
        """How rows lie in files."""
        return FileLayout.of("DeltaSink", self.partition_by, self.sort_by, self.file_size)

    @property
    def _layout(self) -> Keyed | None:
        """How rows become changes; None where they are appended."""
        return Keyed.of(self.key, self.order, self.deleted) if self.applies and self.key is not None else None

    @property
    def keeps(self) -> KeptByKey | None:
        """How a table by key fills in what changes leave out; None where it does not."""
        from tidegauge.sinks.keyed.parting import kept_by

        return kept_by(self._layout, self._files)

    @property
    def identity(self) -> str:
        """The folder, without symbolic links; or the address."""
        return self.path if is_address(self.path) else os.path.realpath(self.path)

    @property
    def place(self) -> str:
        """The folder, or the address, as other programs are told it."""
        return self.path

    @property
    def shared(self) -> bool:
        """False: the table belongs to one output."""
        return False

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        named = {name: getattr(self, name) for name in ("key", "order", "deleted")} if self.applies else {}
        said = {name: list(v) if isinstance(v, tuple) else v for name, v in named.items() if v is not None}
        said |= {} if self.table is None else {"table": self.table}
        said |= {"deletion_vectors": True} if self.deletion_vectors else {}
        said |= self._files.describe()
        return {"kind": "delta", "path": self.path, **({"envelope": "upsert"} if self.applies else {}), **said}

    def check(self, schema: pa.Schema) -> None:
        """Raise `UnsupportedColumn`, `InvalidColumnName` or `EpochColumnMissing` when rows could not be written.

        Raise `KeyedColumnUnfit` when they could not be changes of a table by key, `PartitionColumnUnfit` and
        `SortColumnUnfit` when they could not lie in files as wanted, and `LocalTimesInMap` when a table of these
        columns cannot be created, and there is none yet.
        """
        columns = rows_schema(schema)
        if (layout := self._layout) is not None:
            layout.check(columns)
            columns = layout.columns(columns)
        self._files.check(columns, key=() if layout is None else layout.key)
        try:
            _check_creatable(columns)
        except LocalTimesInMap:
            if gone(at(self.path) / "_delta_log"):
                raise

    def incarnation(self, flow: str, output: str) -> str | None:
        """Return the incarnation that the table's transactions name, None where there is none."""
        from tidegauge.sinks.delta.history import incarnation_in

        return incarnation_in(self.path, f"{flow}:{output}")

    def open(self, output: OutputId) -> DeltaLog | DeltaByKey:
        """Return the present table.

        Raises `TableOfAnotherIncarnation`, and `ForeignTable` for a table that this output did not write.
        """
        # delta-rs: tasks only stage, and do without its 16 MB
        if (layout := self._layout) is not None:
            from tidegauge.sinks.delta.bykey import DeltaByKey

            return DeltaByKey(self.path, output, layout, self._files, vectors=self.deletion_vectors)
        from tidegauge.sinks.delta.log import DeltaLog

        return DeltaLog(self.path, output, layout=self._files)

    def check_removable(self, output: OutputId) -> None:
        """Raise `TableNotRemovable`, or as `open`, unless all in the folder is this output's.

        Of a table without a commit those are the files staged for it: others write files of such names, too.
        """
        known = (
            _FILE
            if self.open(output).upper
            else re.compile(rf"(_staged/[^/]+/|([^/=]+=[^/]*/)*)part-{job_mark(output.incarnation)}[^/]*\.parquet")
        )
        check_folder(self.path, lambda path: known.fullmatch(path) is not None)

    def remove(self, output: OutputId) -> None:
        """Remove the folder."""
        self.check_removable(output)
        remove_folder(self.path, output)

    def mend(self, output: OutputId) -> DeltaMending:
        """Return the present table, whatever others have done to it, to be mended; one that was appended to."""
        from tidegauge.sinks.delta.mend import DeltaMending

        return DeltaMending(self.path, output, self._files)

    def maintain(self, output: OutputId) -> DeltaUpkeep:
        """Return the present table, to be kept in shape."""
        from tidegauge.sinks.delta.packing import DeltaUpkeep

        return DeltaUpkeep(self.path, output, self._layout, self._files)

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> ParquetStager | LaidOutStager | RunStager:
        """Return a writer for one task of one job. `job` is 32 hex digits, `task` counts from 0."""
        if self.applies:
            return self.stage_from(0, schema, job=job, task=task)
        place, layout = staging(self.path), self._files
        if layout.partition or layout.sort:
            from tidegauge.sinks.layout.stager import LaidOutStager  # what writes Parquet is for those who do

            return LaidOutStager(place, "", layout, schema, job=job, task=task, statistics=True)
        from tidegauge.sinks.staging import ParquetStager

        return ParquetStager(place, "", schema, job=job, task=task, statistics=True, file_bytes=layout.file_bytes)

    def stage_from(self, least: int, schema: pa.Schema, *, job: str, task: int) -> RunStager:
        """Return a writer of changes by key. No row of the table gets an epoch before `least` from them."""
        from tidegauge.sinks.keyed.runs import RunStager

        if (layout := self._layout) is None:
            raise ValueError("rows that are appended are no changes")
        place, lying = staging(self.path), self._files
        return RunStager(place, layout, schema, table=self.path, job=job, task=task, least=least, lying=lying)


def _check_creatable(columns: pa.Schema) -> None:
    """Raise `LocalTimesInMap` where delta-rs would see none of the local times: it does not look into maps."""
    found = {field.name: set(_local_times(field.type)) for field in columns}
    hidden = [name for name, places in found.items() if places == {True}]
    if hidden and not any(False in places for places in found.values()):
        raise LocalTimesInMap(column=hidden[0], type=str(columns.field(hidden[0]).type))


def _local_times(kind: Any, *, in_map: bool = False) -> Iterator[bool]:
    """Yield of each local time within a type whether it is in a map."""
    if pt.is_timestamp(kind) and kind.tz is None:
        yield in_map
    for number in range(kind.num_fields if pt.is_nested(kind) else 0):
        yield from _local_times(kind.field(number).type, in_map=in_map or pt.is_map(kind))
