"""`tg.write_batches`: what a Structured Streaming query gives to `foreachBatch`, so that a flow has its batches.

    orders.writeStream.foreachBatch(tg.write_batches("/lake/batches", query="orders")).start()

Spark runs a batch again where it died before it had noted the end of it, with the same id. So the id is the key: a
published batch stays, and if it comes again it is counted, and nothing else. That a checkpoint is another
one nobody can see by the ids, which begin at 0 again. It is seen by the id of the query, which is in the checkpoint.

Invariant: it is called in the process that runs the query, of the driver or of the Connect server, and each call
publishes its batch or raises.

>>> write_batches("/lake/batches", query="orders")
BatchWriter(folder='/lake/batches/orders')
>>> only("orders", [("7d1f", "orders"), ("c0de", None)]), only("orders", [("c0de", None)])
('7d1f', 'c0de')
>>> only("orders", [("7d1f", None), ("c0de", None)]) is None
True
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.batches import QueryNotTold
from tidegauge.sources.batches.manifest import BatchFile, check_name, is_new, newest_in, root_at
from tidegauge.sources.batches.writing import check_again, publish, stage

__all__ = ["BatchWriter", "only", "query_folder", "write_batches"]

_FILES: Final = pa.schema([("name", pa.string()), ("size", pa.int64()), ("rows", pa.int64())])
_DDL: Final = "name string, size long, rows long"
_QUERY_ID: Final = "sql.streaming.queryId"
"""The local property that has the id while Spark runs a query."""


def write_batches(path: str | os.PathLike[str], *, query: str) -> BatchWriter:
    """Return the function for `foreachBatch` that writes a query's batches for a `BatchSource` of this path.

    query: a name that no other query has there, and no other checkpoint. On Connect it is that of `queryName`, too,
    where the session runs several queries. Raises `InvalidArgument`, `BatchesElsewhere`.
    """
    return BatchWriter(str(query_folder(path, query)))


def query_folder(path: str | os.PathLike[str], query: object) -> Path:
    """Return the folder of a query. Raises `InvalidArgument`, `BatchesElsewhere`."""
    return Path(root_at(path, where="write_batches(path)"), check_name(query))


@dataclass(frozen=True, slots=True)
class BatchWriter:
    """Writes the batches of a query. Raises the errors TG-0680 to TG-0686 into the query, which then fails."""

    folder: str

    def __call__(self, frame: Any, batch: int) -> None:
        """Write a batch, or find that it was written."""
        folder, number = Path(self.folder), int(batch)
        query_id = _query_id(frame.sparkSession, folder)
        newest = newest_in(folder)
        if newest is not None and not is_new(newest, query_id, number, place=self.folder):
            check_again(newest, frame.count(), place=self.folder)  # also for its state, which comes of the rows
            return
        publish(folder, query_id, number, _staged(frame, folder))


def _staged(frame: Any, folder: Path) -> Sequence[BatchFile]:
    """Have the tasks of a frame write its rows."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        file = stage(folder, batches)
        if file is not None:
            yield pa.RecordBatch.from_pylist([{"name": file.name, "size": file.size, "rows": file.rows}], _FILES)

    return [BatchFile(row["name"], row["size"], row["rows"]) for row in frame.mapInArrow(write, _DDL).collect()]


def _query_id(session: Any, folder: Path) -> str:
    """Return the id of the Spark query whose batch is being written, which is in its checkpoint."""
    if not type(session).__module__.startswith("pyspark.sql.connect"):
        found = session.sparkContext.getLocalProperty(_QUERY_ID)
        if found:
            return str(found)
    active = [(str(query.id), query.name) for query in session.streams.active]
    if (told := only(folder.name, active)) is None:
        names = ", ".join(sorted(repr(name) for _, name in active)) or "none"
        raise QueryNotTold(
            place=str(folder),
            detail=f"the session runs {len(active)} queries, named {names}",
            advice=f"give the query the name that its folder has: .queryName({folder.name!r})",
        )
    return told


def only(name: str, active: Sequence[tuple[str, str | None]]) -> str | None:
    """Return the id of the query of this name, or of the only one there is; None where nobody can tell."""
    named = [found for found, known in active if known == name]
    ids = named or [found for found, known in active if known is None and len(active) == 1]
    return ids[0] if len(ids) == 1 else None
