"""A folder of Parquet files as an output: each commit is one rename of one folder.

    <path>/_staged/<job>/part-....parquet             staged: readers skip names that begin with "_"
    <path>/from_epoch=000000000042/_manifest.json     a commit of [42, upper), with `upper` in the manifest
    <path>/from_epoch=000000000042/part-....parquet   its rows; a commit without rows has a manifest alone
    <path>/from_epoch=000000000042/_links.jsonl       the flow's history of these epochs, where it is long

A table whose rows were replaced has commits of several editions (`parquet.edition`).

Invariant: a staged file is in a folder that no reader of the table looks into, until a commit takes it out of there
(`parquet.chain`); so staging is safe to repeat and to abandon.

In an object store (`parquet.bucket`) a commit is its manifest, which is put where none is.

Readers that know nothing of Tidegauge (Spark, pyarrow.dataset, pandas) see the committed rows alone, whole commits
at a time, because they skip names that begin with "_". They see a partition column `from_epoch` besides.

>>> import tempfile
>>> schema = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
>>> with tempfile.TemporaryDirectory() as folder:
...     sink = ParquetSink(folder)
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
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.errors.objects import MendedOnDisksAlone
from tidegauge.objects.address import is_address
from tidegauge.sinks.attempt import STAGED
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.transforms import PartitionBy
from tidegauge.sinks.location import location, staging
from tidegauge.sinks.parquet.edition import newest
from tidegauge.sinks.parquet.ground import CommitSlot, ground_of
from tidegauge.sinks.parquet.manifest import LINKS, MANIFEST, REMOVED, ROWS, Manifest, is_commit
from tidegauge.sinks.protocol import OutputId
from tidegauge.sinks.removal import check_folder, remove_folder
from tidegauge.sinks.staging import ParquetStager

if TYPE_CHECKING:
    from tidegauge.sinks.layout.stager import LaidOutStager
    from tidegauge.sinks.parquet.chain import ParquetChain
    from tidegauge.sinks.parquet.mend import ParquetMending

__all__ = ["ParquetSink"]

_FILE: Final = re.compile(
    rf"((from_epoch=\d+|{STAGED}/[^/]+)(/{ROWS})?|{REMOVED}(/[^/]+)*)/"
    rf"(([^/=]+=[^/]*/)*part-[^/]+\.parquet|{MANIFEST}|{LINKS})"
    rf"|{STAGED}/_proof-[0-9a-f]+"
)
"""The paths that the files of a table have."""


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """Write an output to a folder of Parquet files, which belongs to that output.

    Args:
        path: a folder, or a `file://` URI, that the tasks see too; or an address in an object store: `s3://`,
            `gs://`, `abfss://`.
        partition_by: the columns that the rows of a commit are parted by, or transforms of columns: `tg.day("at")`,
            `tg.month`, `tg.hour`, `tg.bucket(16, "id")`.
        sort_by: the columns that the rows of a file are sorted by.
        file_size: about how large a file becomes, as stored: "128MB", or a number of bytes.

    Raises `InvalidArgument`, `UnsupportedLocation` for other schemes, and `CredentialsInAddress`.
    """

    path: str
    _: KW_ONLY
    partition_by: PartitionBy | Sequence[PartitionBy] | None = None
    sort_by: str | Sequence[str] | None = None
    file_size: str | int | None = None

    def __post_init__(self) -> None:
        for name in ("partition_by", "sort_by"):
            if isinstance(given := getattr(self, name), Sequence) and not isinstance(given, str):
                object.__setattr__(self, name, tuple(given))
        self._files  # noqa: B018 - raises for what makes no sense
        object.__setattr__(self, "path", location(self.path, sink="ParquetSink"))

    @property
    def _files(self) -> FileLayout:
        """How rows lie in files."""
        return FileLayout.of("ParquetSink", self.partition_by, self.sort_by, self.file_size)

    @property
    def identity(self) -> str:
        """The folder, without symbolic links; or the address."""
        return self.path if is_address(self.path) else os.path.realpath(self.path)

    @property
    def shared(self) -> bool:
        """False: the table belongs to one output."""
        return False

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {"kind": "parquet", "path": self.path, **self._files.describe()}

    def check(self, schema: pa.Schema) -> None:
        """Raise `UnsupportedColumn`, `InvalidColumnName` or `EpochColumnMissing` when rows could not be written.

        Raise `PartitionColumnUnfit` and `SortColumnUnfit` when they could not lie in files as wanted.
        """
        self._files.check(rows_schema(schema))

    def incarnation(self, flow: str, output: str) -> str | None:
        """Return the incarnation that the first commit has, None where there is none. Raises `DamagedManifest`."""
        found = self._first()
        return None if found is None or (found.flow, found.output) != (flow, output) else found.incarnation

    def _first(self) -> OutputId | None:
        """Return whose the first commit is, None where there is none."""
        ground = ground_of(self.path)
        slot = CommitSlot(0, newest(filter(is_commit, ground.names())))
        text = ground.text(slot)
        return None if text is None else Manifest.decode(text, path=f"{self.path}/{slot.name}/{MANIFEST}").output

    def open(self, output: OutputId) -> ParquetChain:
        """Return the present table.

        Raises `TableOfAnotherIncarnation`, `ForeignTable` for a folder that this output did not write, `BrokenChain`
        when a commit is missing, `FilesChangedByOthers` when files are or do not belong to one, `DamagedManifest`.
        """
        from tidegauge.sinks.parquet.chain import ParquetChain  # tasks only stage

        return ParquetChain(self.path, output, self._files)

    def check_removable(self, output: OutputId) -> None:
        """Raise `TableNotRemovable`, or as `open`, unless all in the folder is this output's.

        Of a table in a store its first commit tells that, which goes last: the rest of one may be removed.
        """
        if not is_address(self.path) or self._first() != output:
            self.open(output)
        check_folder(self.path, lambda path: _FILE.fullmatch(path) is not None)

    def remove(self, output: OutputId) -> None:
        """Remove the folder."""
        self.check_removable(output)
        remove_folder(self.path, output)

    def mend(self, output: OutputId) -> ParquetMending:
        """Return the present table, whatever others have done to it, to be mended. Raises `MendedOnDisksAlone`."""
        if is_address(self.path):
            raise MendedOnDisksAlone(table=self.path)
        from tidegauge.sinks.parquet.mend import ParquetMending

        return ParquetMending(self.path, output, self._files)

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> ParquetStager | LaidOutStager:
        """Return a writer for one task of one job. `job` is 32 hex digits, `task` counts from 0."""
        place, prefix, layout = staging(self.path), f"{STAGED}/{job}", self._files
        if layout.partition or layout.sort:
            from tidegauge.sinks.layout.stager import LaidOutStager

            return LaidOutStager(place, prefix, layout, schema, job=job, task=task)
        return ParquetStager(place, prefix, schema, job=job, task=task, file_bytes=layout.file_bytes)
