"""A folder of Parquet files as an output: each commit is one rename of one folder.

    <path>/_staged/<job>/part-....parquet             staged: readers skip names that begin with "_"
    <path>/from_epoch=000000000042/_manifest.json     a commit of [42, upper), with `upper` in the manifest
    <path>/from_epoch=000000000042/part-....parquet   its rows; a commit without rows has a manifest alone
    <path>/from_epoch=000000000042/_links.jsonl       the flow's history of these epochs, where it is long

A table whose rows were replaced has commits of several editions (`parquet.edition`).

Invariant: a staged file is in a folder that no reader of the table looks into, until a commit takes it out of there
(`parquet.chain`); so staging is safe to repeat and to abandon.

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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.sinks.attempt import STAGED
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.location import LocalFiles, local_folder
from tidegauge.sinks.parquet.edition import newest, visible
from tidegauge.sinks.parquet.manifest import LINKS, MANIFEST, REMOVED, ROWS, Manifest, folder_name, is_commit
from tidegauge.sinks.protocol import OutputId
from tidegauge.sinks.removal import check_folder, remove_folder
from tidegauge.sinks.staging import ParquetStager

if TYPE_CHECKING:
    from tidegauge.sinks.parquet.chain import ParquetChain
    from tidegauge.sinks.parquet.mend import ParquetMending

__all__ = ["ParquetSink"]

_FILE: Final = re.compile(
    rf"((from_epoch=\d+|{STAGED}/[^/]+)(/{ROWS})?|{REMOVED}(/[^/]+)*)/(part-[^/]+\.parquet|{MANIFEST}|{LINKS})"
)
"""The paths that the files of a table have."""


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """Write an output to a folder of Parquet files, which belongs to that output.

    Args:
        path: a folder, or a `file://` URI, that the tasks see too.

    Raises `UnsupportedLocation` for remote schemes.
    """

    path: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", local_folder(self.path, sink="ParquetSink"))

    @property
    def identity(self) -> str:
        """The folder, without symbolic links."""
        return os.path.realpath(self.path)

    @property
    def shared(self) -> bool:
        """False: the table belongs to one output."""
        return False

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {"kind": "parquet", "path": self.path}

    def check(self, schema: pa.Schema) -> None:
        """Raise `UnsupportedColumn`, `InvalidColumnName` or `EpochColumnMissing` when rows could not be written."""
        rows_schema(schema)

    def incarnation(self, flow: str, output: str) -> str | None:
        """Return the incarnation that the first commit has, None where there is none. Raises `DamagedManifest`."""
        base = newest(filter(is_commit, visible(Path(self.path))))
        path = Path(self.path, folder_name(0, base), MANIFEST)
        try:
            found = Manifest.decode(path.read_bytes(), path=str(path)).output
        except FileNotFoundError:
            return None
        return found.incarnation if (found.flow, found.output) == (flow, output) else None

    def open(self, output: OutputId) -> ParquetChain:
        """Return the present table.

        Raises `TableOfAnotherIncarnation`, `ForeignTable` for a folder that this output did not write, `BrokenChain`
        when a commit is missing, `FilesChangedByOthers` when files are or do not belong to one, `DamagedManifest`.
        """
        from tidegauge.sinks.parquet.chain import ParquetChain  # tasks only stage

        return ParquetChain(self.path, output)

    def check_removable(self, output: OutputId) -> None:
        """Raise `TableNotRemovable`, or as `open`, unless all in the folder is this output's."""
        self.open(output)
        check_folder(self.path, lambda path: _FILE.fullmatch(path) is not None)

    def remove(self, output: OutputId) -> None:
        """Remove the folder."""
        self.check_removable(output)
        remove_folder(self.path, output)

    def mend(self, output: OutputId) -> ParquetMending:
        """Return the present table, whatever others have done to it, to be mended."""
        from tidegauge.sinks.parquet.mend import ParquetMending

        return ParquetMending(self.path, output)

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> ParquetStager:
        """Return a writer for one task of one job. `job` is 32 hex digits, `task` counts from 0."""
        return ParquetStager(LocalFiles(self.path), f"{STAGED}/{job}", schema, job=job, task=task)
