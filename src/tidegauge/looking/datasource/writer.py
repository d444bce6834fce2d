"""`writeStream.format("tidegauge")`: a query's batches for a `BatchSource`, by Spark's own writer of streams.

    stream.writeStream.format("tidegauge").option("path", "/lake/batches").queryName("orders")

Tasks stage files, `commit` publishes them under the id of the batch (`sources.batches.writing`). Spark makes the
writer in a Python process for each of these steps. It hands over no id of the query: that is read in the checkpoint.

Invariant: a batch is published by `commit` alone, once; the staged files of one that is given up are removed.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as checkpoint:
...     _ = Path(checkpoint, "metadata").write_text('{"id":"7d1f"}')
...     id_in(checkpoint, "/lake/batches/orders")
'7d1f'
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from tidegauge.errors.batches import BatchesElsewhere, NotAppended, QueryNotTold
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.readers import OptionMissing, UnknownOption
from tidegauge.sources.batches.manifest import BatchFile, root_at
from tidegauge.sources.batches.streaming import query_folder
from tidegauge.sources.batches.writing import discard, publish, stage

__all__ = ["StagedBatch", "StreamWriter", "id_in"]

_KNOWN: Final = {name.lower(): name for name in ("path", "query", "queryName", "checkpointLocation")}
_ADVICE: Final = 'add .option("checkpointLocation", ...), a folder on a file system; or use tg.write_batches'


@dataclass(frozen=True)
class StagedBatch(WriterCommitMessage):
    """What a task has written. None: no rows."""

    file: BatchFile | None


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of one query."""

    def __init__(self, options: Mapping[str, str], *, complete: bool) -> None:
        given = {name.lower(): text for name, text in options.items()}
        for name in given:
            if name not in _KNOWN:
                raise UnknownOption(option=name, known=list(_KNOWN.values()))
        if not given.get("path"):
            raise OptionMissing(option="path")
        if (query := given.get("query") or given.get("queryname")) is None:
            raise OptionMissing(option="query")
        self._folder = query_folder(given["path"], query)
        self._checkpoint = given.get("checkpointlocation", "")
        if complete:
            raise NotAppended(place=str(self._folder))
        if not self._checkpoint:
            detail = "the query has no option 'checkpointLocation'"
            raise QueryNotTold(place=str(self._folder), detail=detail, advice=_ADVICE)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBatch:
        """Stage the rows of a task."""
        return StagedBatch(stage(self._folder, iterator))

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the batch, or find that it was published."""
        publish(self._folder, id_in(self._checkpoint, str(self._folder)), batchId, _files(messages))

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        """Remove the staged files."""
        discard(self._folder, _files(messages))


def _files(messages: Sequence[Any]) -> list[BatchFile]:
    return [message.file for message in messages if message is not None and message.file is not None]


def id_in(checkpoint: str, place: str) -> str:
    """Return the id of the query that a checkpoint is of. Raises `QueryNotTold`."""
    try:
        found: Any = json.loads(Path(root_at(checkpoint, where="checkpointLocation"), "metadata").read_text())
        return str(found["id"])
    except BatchesElsewhere:
        detail = "its checkpoint is not on a file system"
    except (OSError, ValueError, KeyError, InvalidArgument) as error:
        detail = f"its checkpoint cannot be read: {error}"
    raise QueryNotTold(place=place, detail=detail, advice=_ADVICE) from None
