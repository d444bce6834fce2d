"""Rows that several branches of a job read, kept meanwhile so that the sources are read once.

Invariant: within the block each branch sees the same rows, even if what made them would not make them again; after it
nothing of them is left.

Spark keeps them itself (`persisted`). Of a server whose `persist` does nothing, such as Sail, a flow keeps them in
Arrow files of a temporary folder (`spilled`); that server has to be on this machine.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ConnectServer", "Keep", "persisted", "spilled"]

Keep: TypeAlias = Callable[[Any], AbstractContextManager[Any]]
"""Returns a frame with the rows of another one, for as long as a block lasts."""

_PATH: Final = "path"


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Let Spark keep the rows of a frame, from when they are first asked for."""
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


@contextmanager
def spilled(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep the rows of a frame in files of this machine."""
    folder = tempfile.mkdtemp(prefix="tidegauge-kept-")
    try:
        paths = frame.mapInArrow(_spilling(folder), f"{_PATH} string").toArrow().column(0).to_pylist()
        numbers = frame.sparkSession.range(0, len(paths), 1, max(1, len(paths)))
        yield numbers.mapInArrow(_reading(paths), frame.schema)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _spilling(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the hop that writes what it is given into one file, and tells which."""

    def hop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        path = os.path.join(folder, f"{uuid.uuid4().hex}.arrow")
        writer: Any = None
        try:
            for batch in batches:
                if writer is None:
                    writer = pa.ipc.new_file(path, batch.schema)
                writer.write_batch(batch)
        finally:
            if writer is not None:
                writer.close()
        if writer is not None:
            yield pa.RecordBatch.from_pydict({_PATH: [path]})

    return hop


def _reading(paths: list[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the hop that gives, for each number that it is given, the rows of that file."""

    def hop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with pa.ipc.open_file(paths[number]) as file:
                    yield from map(file.get_batch, range(file.num_record_batches))

    return hop


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """A session's server: Spark, or another one that answers for it.

    spark: whether it is Spark, which can read some sources by itself. keep: how rows are kept on it. slots: how many
    tasks it runs at once, None to ask it.
    """

    spark: bool = True
    keep: Keep = persisted
    slots: int | None = None
