"""What a task stages for a table in PostgreSQL: the Parquet files of other sinks, with values that the server takes.

Invariant: a row that is staged can be written. One that cannot fails the output at its epoch, in the task.

>>> import tempfile
>>> from tidegauge.sinks.location import LocalFiles
>>> from tidegauge.sinks.staging import ParquetStager
>>> schema = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
>>> with tempfile.TemporaryDirectory() as folder:
...     inner = ParquetStager(LocalFiles(folder), "_staged/job", schema, job="0" * 32, task=7)
...     CheckedStager(inner, schema).write(pa.record_batch({"user": ["a" + chr(0)], "_epoch": [3]}))
Traceback (most recent call last):
tidegauge.errors.postgressink.ServerValueUnfit: TG-0472: epoch 3 has a value in the column 'user' that PostgreSQL ...
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidegauge.leftout import LEFT, taken
from tidegauge.sinks.attempt import fitting
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.postgres.text import check_values
from tidegauge.sinks.protocol import StagedFile, Stager

__all__ = ["CheckedStager"]


@dataclass(frozen=True, slots=True)
class CheckedStager:
    """A `Stager` that refuses values which the server could not hold."""

    inner: Stager
    schema: pa.Schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises `ServerValueUnfit`, and as the other stager does."""
        whole, marks = taken(batch)
        rows = fitting(whole, rows_schema(self.schema))
        check_values(rows)
        self.inner.write(rows if marks is None else rows.append_column(LEFT, marks))

    def close(self) -> list[StagedFile]:
        """Finish, and return the files."""
        return self.inner.close()

    def abort(self) -> None:
        """Remove the files written so far."""
        self.inner.abort()
