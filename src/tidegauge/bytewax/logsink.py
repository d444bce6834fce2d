"""`LogSink`: a sink of a bytewax dataflow into a flow, each row once.

    op.output("out", clicks, LogSink("log", columns="user string, n long", parts=4))

Its items are pairs of a key and a row, as those of any `FixedPartitionedSink`. A flow reads them with a
`tg.BytewaxLogSource` of the same folder, which also needs the folder of bytewax's recovery store. How both agree is
told in `tidegauge.sources.bytewax.log`.

Invariant: the state of a partition is the end of its log, and all up to it is durable.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as root:
...     part = LogSink(root, columns="n long").build_part("shop.out", "part-0", None)
...     part.write_batch([{"n": 1}, {"n": 2}])
...     part.snapshot().split(":")[3]
'1'
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from bytewax.outputs import FixedPartitionedSink, StatefulSinkPartition

from tidegauge.errors.bytewax import ItemUnfit, LogItemUnfit
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.polls import NotFetched, PollUnfit
from tidegauge.sources.batches.manifest import root_at
from tidegauge.sources.bytewax.log import LogWriter, begin
from tidegauge.sources.bytewax.rows import rows_of
from tidegauge.sources.ddl import as_schema
from tidegauge.sources.metadata import with_metadata

__all__ = ["LogSink"]


class LogSink(FixedPartitionedSink[Any, str]):
    """Writes the rows of a dataflow to a log, for a flow.

    Args:
        path: a folder of its own for this step of the dataflow, on a file system that all workers see.
        columns: of the rows: a DDL string or an Arrow schema.
        parts: how many partitions, which the workers share. More may come later; never fewer.

    A row is a dict, or an Arrow table or record batch of several. Raises `InvalidArgument`, `InvalidSchema`,
    `ReservedColumn`, `BatchesElsewhere`; and in the dataflow, which ends by it, the errors TG-0987 to TG-0991.
    """

    def __init__(self, path: str | os.PathLike[str], *, columns: str | pa.Schema, parts: int = 1) -> None:
        if isinstance(parts, bool) or not isinstance(parts, int) or not 1 <= parts <= 1000:
            raise InvalidArgument(parameter="parts", value=parts, expected="a whole number from 1 to 1000")
        schema = as_schema(columns)
        if schema is None:
            raise InvalidArgument(parameter="columns", value=None, expected="a DDL string or an Arrow schema")
        self._folder: Final = Path(root_at(path, where="LogSink(path)"))
        self._columns: Final = with_metadata(schema, metadata=False, where="the items")
        self._parts: Final = parts

    def list_parts(self) -> list[str]:
        """Return the names of the partitions, which are those of the source."""
        return [f"part-{number}" for number in range(self._parts)]

    def build_part(self, step_id: str, for_part: str, resume_state: str | None) -> _LogPart:
        """Return what goes on writing after a state. Raises `RecoveryBehind`, `LogBehind`."""
        return _LogPart(begin(self._folder / for_part, step_id, resume_state), self._columns)


class _LogPart(StatefulSinkPartition[Any, str]):
    """A partition."""

    def __init__(self, writer: LogWriter, columns: pa.Schema) -> None:
        self._writer: Final = writer
        self._columns: Final = columns

    def write_batch(self, values: list[Any]) -> None:
        """Write items. Raises `LogItemUnfit`."""
        folder = self._writer.folder
        try:
            rows = rows_of(self._writer.note.step, folder.name, values, self._columns, None)
        except (ItemUnfit, PollUnfit, NotFetched) as error:
            raise LogItemUnfit(step=self._writer.note.step, place=str(folder), problem=error.summary) from error
        self._writer.write(rows)

    def snapshot(self) -> str:
        """Seal the rows since the last time, and return the end of the log. Raises `LogTaken`."""
        return self._writer.seal().text
