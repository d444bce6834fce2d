"""What a task stages for a table of Iceberg: Parquet files in the table's folder `data`, which nothing names yet.

Their columns have the numbers of a new table (`fields`), and what a file holds is told with it: the numbers, and the
statistics, as the text of a Delta log has them (`statistics`). The commit compares the ones, and packs the others.

Invariant: as that of `ParquetStager`; and `said` returns the numbers that the file itself has.

>>> import tempfile
>>> from tidegauge.sinks.location import LocalFiles
>>> schema = pa.schema([("n", pa.int8()), ("_epoch", pa.int64())])
>>> with tempfile.TemporaryDirectory() as folder:
...     stager = IcebergStager(LocalFiles(folder), schema, job="0" * 32, task=7)
...     stager.write(pa.record_batch({"n": [5], "_epoch": [3]}, schema))
...     [file] = stager.close()
>>> file.path, said(file)[0]
('data/part-00000000000000000000000000000000-00007-000.parquet', {'n': 1, '_epoch': 2})
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from tidegauge.sinks.attempt import fitting
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.iceberg.fields import fresh_ids, numbered, widened
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.noting import MOST
from tidegauge.sinks.layout.stager import LaidOutStager
from tidegauge.sinks.layout.values import PartitionValues
from tidegauge.sinks.location import StagingFiles, staging
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.staging import ParquetStager

__all__ = ["DATA", "HIDDEN", "IcebergLeaf", "IcebergStager", "said"]

DATA: Final = "data"
"""The folder of a table's data files, for all who write Iceberg."""
HIDDEN: Final = FileLayout(hidden=True)
"""How rows lie in a table without partitions."""


class IcebergStager:
    """A `Stager`.

    ids: the numbers of the columns, those of a new table if there are none. lying: how rows lie in files. most: as
    for `LaidOutStager`.
    """

    def __init__(
        self,
        place: StagingFiles,
        schema: pa.Schema,
        *,
        job: str,
        task: int,
        ids: Mapping[str, int] | None = None,
        lying: FileLayout = HIDDEN,
        most: int | None = MOST,
    ) -> None:
        self._given: Final = rows_schema(schema)
        self._columns: Final = widened(self._given)
        self._ids: Final = dict(fresh_ids(self._columns) if ids is None else ids)
        declared = numbered(self._columns, self._ids)
        about: dict[str, Any] = {"job": job, "task": task, "statistics": True, "declared": declared}
        self._inner: Final = (
            LaidOutStager(place, DATA, lying, self._columns, **about, most=most)
            if lying.partition or lying.sort
            else ParquetStager(place, DATA, self._columns, **about, file_bytes=lying.file_bytes)
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; as `ParquetStager`, or `LaidOutStager`."""
        rows = fitting(batch, self._given)
        self._inner.write(rows if self._columns is self._given else rows.cast(self._columns))

    def close(self) -> list[StagedFile]:
        """Finish, and return the files."""
        return [
            replace(file, statistics=json.dumps({"fields": self._ids, "statistics": file.statistics}))
            for file in self._inner.close()
        ]

    def abort(self) -> None:
        """Remove the files written so far."""
        self._inner.abort()


@dataclass(frozen=True, slots=True)
class IcebergLeaf:
    """A `LeafWriter`. ids: the numbers of the table's columns, None where there is no table yet."""

    ids: Mapping[str, int] | None

    def __call__(
        self,
        folder: str,
        columns: pa.Schema,
        *,
        partition: PartitionValues,  # noqa: ARG002 - a task has files of one alone, so their names differ
        job: str,
        task: int,
    ) -> IcebergStager:
        """Begin a file in the table's folder `data`, whatever its partition."""
        return IcebergStager(staging(folder), columns, job=job, task=task, ids=self.ids)


def said(file: StagedFile) -> tuple[dict[str, int], str]:
    """Return the numbers of a staged file's columns, and its statistics."""
    told = json.loads(file.statistics)
    return {str(path): int(number) for path, number in told["fields"].items()}, str(told["statistics"])
