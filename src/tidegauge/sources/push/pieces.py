"""Pieces: the received records of each epoch and stream, until every output of the stream holds the epoch.

Records have come out of `reclock_stream` with their epochs. Small pieces wait in memory and travel in the split
itself. When more than `MEMORY` bytes wait, the oldest are written to files in a staging folder. When `MOST` bytes
wait altogether, nothing more is received (`full`): an output that is away can fill neither memory nor disk. An epoch
is received whole, however large: so nothing is full as long as no complete epoch waits.

Invariants. An epoch is planned only when it is complete: the frontier of the records has passed it. A piece is
forgotten only when every output of its stream has the epoch, or has ended. All of it can be lost: upstream has been
told of nothing that is only here.

The stage operator, the pieces' own, and the reader tell it things in the worker's thread. `plan` is called beside the
worker, by jobs, and `relieve` by the reader's calls: the lock is for these.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidegauge.dataflow import OperatorBuilder, OperatorContext, OperatorInput, OperatorOutput, Stream
from tidegauge.errors.base import Definite
from tidegauge.errors.push import PieceUnreadable, StagingFull
from tidegauge.remap.binding import Bound, Slice
from tidegauge.sources.protocol import Split
from tidegauge.sources.push.protocol import DecodedBeside
from tidegauge.sources.push.source import PushedSource, PushedSplit, StreamRows, columns_within

__all__ = ["MEMORY", "MOST", "PIECE", "Pieces", "pieces"]

MEMORY: Final = 64 << 20
"""Bytes that may wait in memory."""
MOST: Final = 4 << 30
"""Bytes that may wait altogether."""
PIECE: Final = 8 << 20
"""Bytes from which on a piece is closed, and the next begun: its own, and those of files that decoding it reads."""


class _Piece:
    """Records of one stream and epoch in Arrow's stream format: being written, in memory, or in a file."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.data: pa.Buffer | None = None
        self.path: str | None = None
        self.size: int = 0
        self.beside: int = 0
        self._sink = pa.BufferOutputStream()
        self._writer: Any = pa.ipc.new_stream(self._sink, schema)

    def takes(self, schema: pa.Schema) -> bool:
        small = self.size + self.beside < PIECE
        return self.data is None and self.path is None and small and self.schema.equals(schema)

    def add(self, batch: pa.RecordBatch, beside: int) -> None:
        self._writer.write_batch(batch)  # it copies: no batch that was received is kept alive by a part of it
        self.size = self._sink.tell()
        self.beside += beside

    def close(self) -> None:
        if self.data is None and self.path is None:
            self._writer.close()
            data = self._sink.getvalue()
            self.data, self.size = data, data.size


class Pieces:
    """The pieces of one source. memory, most: bounds in bytes."""

    def __init__(self, flow: str, name: str, source: PushedSource, *, memory: int = MEMORY, most: int = MOST) -> None:
        self.name: Final = name
        self.source: Final = source
        self.upper = 0
        """The first epoch that is not complete."""
        self.failed: Definite | None = None
        """Why nothing more will come."""
        self.total = 0
        self.in_memory = 0
        self._beside: Final = source.source.beside if isinstance(source.source, DecodedBeside) else None
        self._staging: Final = None if source.staging is None else Path(source.staging) / flow / name
        self._memory: Final = memory
        self._most: Final = most
        self._lock: Final = threading.Lock()
        self._kept: dict[int, dict[str, list[_Piece]]] = {}
        self._lacking: Mapping[str, int] = {}
        self._folder: Path | None = None
        self._wakes: list[Callable[[], object]] = []
        self._closed = False

    def attach(self, wake: Callable[[], object]) -> None:
        """Call `wake`, too, when epochs are complete, when there is room again, and when nothing more will come."""
        self._wakes.append(wake)

    @property
    def full(self) -> bool:
        """Whether the bound is reached: nothing more is received until outputs have taken some pieces."""
        return self.total >= self._most and any(epoch < self.upper for epoch in self._kept)

    def needed(self, lacking: Mapping[str, int]) -> None:
        """Take in the first epoch that an output of each channel lacks; forget what all of them have."""
        if lacking == self._lacking:
            return
        was_full = self.full
        with self._lock:
            self._lacking = lacking
            for epoch in list(self._kept):
                streams = self._kept[epoch]
                for stream in [stream for stream in streams if not self._wanted(epoch, stream)]:
                    for piece in streams.pop(stream):
                        self._forget(piece)
                if not streams:
                    del self._kept[epoch]
        if was_full and not self.full:
            self._wake()

    def keep(self, epoch: int, rows: StreamRows) -> None:
        """Keep records of an epoch until they are needed no more; not at all where no output lacks them."""
        with self._lock:
            if not self._wanted(epoch, rows.stream):
                return
            found = self._kept.setdefault(epoch, {}).setdefault(rows.stream, [])
            if not found or not found[-1].takes(rows.batch.schema):
                found.append(_Piece(rows.batch.schema))
            before = found[-1].size
            found[-1].add(rows.batch, 0 if self._beside is None else self._beside(rows.batch))
            self.in_memory += found[-1].size - before
            self.total += found[-1].size - before

    def complete(self, upper: int) -> None:
        """Take in that everything of the epochs before `upper` has come."""
        if upper > self.upper:
            self.upper = upper
            self._wake()

    def fail(self, error: Definite) -> None:
        """Take in that nothing more will come. Epochs that are not complete then fail where they are planned."""
        self.failed = error
        self._wake()

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Return the pieces of the epochs of these slices. Raises why the source failed where one is not complete."""
        ranges: dict[int, list[tuple[str, int, int]]] = {}
        for piece in slices:
            ranges.setdefault(piece.epoch, []).append((piece.partition, piece.lower, piece.upper))
        with self._lock:
            if max(ranges) >= self.upper:
                raise self.failed or PieceUnreadable(path=f"epoch {max(ranges)}", detail="it has not come whole")
            streams = {stream for epoch in ranges for stream in self._kept.get(epoch, {})}
            columns = {stream: columns_within(bound.schema, stream) for stream in streams}
            return [
                self._split(epoch, tuple(ranges[epoch]), stream, piece, columns[stream])
                for epoch in sorted(ranges)
                for stream, found in self._kept.get(epoch, {}).items()
                for piece in found
            ]

    def relieve(self) -> None:
        """Write the oldest pieces to files until memory is within its bound. Raises `StagingFull`."""
        while self.in_memory > self._memory and not self._closed:
            with self._lock:
                waiting = ((e, p) for e in sorted(self._kept) for f in self._kept[e].values() for p in f)
                epoch, oldest = next(((e, p) for e, p in waiting if p.path is None), (-1, None))
                if oldest is None:
                    return
                self._close(oldest)
            path = self._write(epoch, oldest)
            with self._lock:
                if oldest.data is None or self._closed:  # forgotten meanwhile
                    Path(path).unlink(missing_ok=True)
                    with suppress(OSError):  # it is the folder of a run that goes on
                        Path(path).parent.rmdir()
                else:
                    oldest.path, oldest.data = path, None
                    self.in_memory -= oldest.size

    def close(self) -> None:
        """Remove the files."""
        with self._lock:
            self._closed = True
            folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _wanted(self, epoch: int, stream: str) -> bool:
        """Whether an output lacks an epoch of a stream; bad records are of all streams."""
        channels = (stream or "rows", "errors")
        return any(channel in self._lacking and epoch >= self._lacking[channel] for channel in channels)

    def _split(
        self,
        epoch: int,
        ranges: tuple[tuple[str, int, int], ...],
        stream: str,
        piece: _Piece,
        columns: pa.Schema | None,
    ) -> PushedSplit:
        self._close(piece)
        partition, lower, upper = ranges[0]
        return PushedSplit(
            epoch=epoch,
            partition=partition,
            lower=lower,
            upper=upper,
            weight=piece.size + piece.beside,
            stream=stream,
            ranges=ranges,
            data=piece.data,
            path=piece.path,
            columns=columns,
        )

    def _close(self, piece: _Piece) -> None:
        before = piece.size
        piece.close()
        self.in_memory += piece.size - before
        self.total += piece.size - before

    def _forget(self, piece: _Piece) -> None:
        self.total -= piece.size
        if piece.path is None:
            self.in_memory -= piece.size
        else:
            with suppress(OSError):
                Path(piece.path).unlink()
        piece.data = None

    def _write(self, epoch: int, piece: _Piece) -> str:
        data, folder = piece.data, str(self._staging or tempfile.gettempdir())
        try:
            if self._folder is None:
                self._folder = self._made()
            path = str(self._folder / f"{epoch}-{uuid.uuid4().hex}.arrows")
            with pa.OSFile(path, "wb") as file:
                file.write(b"" if data is None else data)
        except OSError as error:
            raise StagingFull(source=self.name, size=self.total, path=folder, detail=str(error)) from error
        return path

    def _made(self) -> Path:
        """Make the folder of this run. What earlier runs left is removed: one driver at a time has the flow."""
        if self._staging is None:
            return Path(tempfile.mkdtemp(prefix="tidegauge-push-"))
        shutil.rmtree(self._staging, ignore_errors=True)
        made = self._staging / uuid.uuid4().hex
        made.mkdir(parents=True)
        return made

    def _wake(self) -> None:
        for wake in self._wakes:
            wake()


def pieces(rows: Stream[StreamRows], kept: Pieces) -> None:
    """Build the operator that keeps what comes out of `reclock_stream`."""
    builder = OperatorBuilder(rows.scope, f"pieces {kept.name}")
    builder.input(rows)

    def build(_context: OperatorContext) -> Callable[[list[OperatorInput], list[OperatorOutput]], None]:
        def step(inputs: list[OperatorInput], _outputs: list[OperatorOutput]) -> None:
            for capability, batch in inputs[0].drain():
                kept.keep(capability.time, batch)
            # After the records: the frontier may have passed the epochs of those that came with it.
            kept.complete(min(inputs[0].frontier.elements(), default=sys.maxsize))

        return step

    builder.build(build)
