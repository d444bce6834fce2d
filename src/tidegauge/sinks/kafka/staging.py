"""Staged messages: tasks make messages of rows, and leave them in the order of epochs for the driver, who sends them.

    <staging>/<topic>/_staged/<job>/part-<job>-<task>-<number>.arrow

Invariant: that of `sinks.ordered`, of messages in place of rows.

>>> import tempfile
>>> from tidegauge.sinks.location import LocalFiles
>>> from tidegauge.sinks.kafka.messages import MessageLayout
>>> from tidegauge.sinks.ordered import merged
>>> columns = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
>>> with tempfile.TemporaryDirectory() as folder:
...     stager = MessageStager(LocalFiles(folder), MessageLayout("users"), columns, job="0" * 32, task=7)
...     stager.write(pa.record_batch({"user": ["ada", "bob"], "_epoch": [4, 3]}))
...     [file] = stager.close()
...     [(epoch, batch["value"].to_pylist()) for epoch, batch in merged(folder, [file])]
[(3, [b'{"user":"bob"}']), (4, [b'{"user":"ada"}'])]
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidegauge.sinks.attempt import fitting
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.kafka.messages import MessageLayout
from tidegauge.sinks.location import StagingFiles
from tidegauge.sinks.ordered import GROUP_ROWS, OrderedStager, pieces
from tidegauge.sinks.protocol import StagedFile

__all__ = ["MessageStager"]

_PIECE_BYTES: Final = 16 << 20
"""How many bytes of rows are made into messages at once."""


class MessageStager:
    """A `Stager` into the jobs' folders of a place. `schema` is the rows', `_epoch` included."""

    def __init__(self, place: StagingFiles, layout: MessageLayout, schema: pa.Schema, *, job: str, task: int) -> None:
        self._layout: Final = layout
        self._columns: Final = rows_schema(schema)
        self._messages: Final = OrderedStager(place, layout.schema(self._columns), job=job, task=task)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises `BatchDoesNotFit`, `MisplacedRows`, `KeyMissing`, `NotInJson`."""
        if self._messages.closed:
            raise ValueError("the stager is closed")
        for piece in pieces(fitting(batch, self._columns), GROUP_ROWS, _PIECE_BYTES):
            self._messages.add(self._layout.encode(piece))

    def close(self) -> list[StagedFile]:
        """Finish, make the files durable, and return them; none when no row was written."""
        return self._messages.close()

    def abort(self) -> None:
        """Remove the written files."""
        self._messages.abort()
