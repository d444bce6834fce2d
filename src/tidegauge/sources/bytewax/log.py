"""The log between a bytewax dataflow, which writes it, and a flow, which reads it: one for each partition of a sink.

    part-0/log.json                     the step of the dataflow, and the attempt of it that writes now
    part-0/000000000007/part-….parquet  the rows of piece 7
    part-0/_sealed/000000000007.json    its manifest, at the end of a bytewax epoch
    part-0/000000000007.json            the same manifest, published: now it is a batch of a `BatchSource`

A sealed piece may come to nothing: bytewax resumes at an epoch that its recovery store has whole, and the dataflow
makes the rows of later ones again, in other epochs perhaps. The resume state of the partition is the end of its log.
A piece is published once bytewax resumes after it, and only then may a flow bind it.

Invariant: a published piece is never taken back. They are one chain, by the digests of their manifests, up to an end
that bytewax's recovery store has. A dataflow that would resume before that end is refused.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as root:
...     writer = begin(Path(root, "part-0"), "shop.out", None)
...     writer.write(pa.table({"n": [1, 2]}))
...     first = writer.seal()
...     writer.write(pa.table({"n": [3]}))
...     _ = writer.seal()  # and it dies
...     writer = begin(Path(root, "part-0"), "shop.out", first.text)
...     first.pieces, writer.end == first, read_manifest(Path(root, "part-0"), 0).rows, sealed_in(writer.folder)
(1, True, 2, [])
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from tidegauge.disk import make_folder, put_new, synchronise, write_durably
from tidegauge.errors.bytewax import LogBehind, LogTaken, RecoveryBehind
from tidegauge.sources.batches.manifest import (
    BatchFile,
    BatchManifest,
    batches_in,
    files_of,
    manifest_path,
    read_manifest,
)
from tidegauge.sources.batches.writing import STAGED, stage

__all__ = ["LogEnd", "LogNote", "LogWriter", "begin", "note_in", "publish", "published_in", "sealed_in"]

_NOTE: Final = "log.json"
_SEALED: Final = "_sealed"
_PREFIX: Final = "tidegauge:1"
_GROUP: Final = 65_536
"""Rows that are written to a file before the epoch is over."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log, which is the resume state of its partition: its id, how many pieces, the last one's digest.

    >>> LogEnd.of(LogEnd("7d1f", 3, "c0de").text), LogEnd.of("another's")
    (LogEnd(log='7d1f', pieces=3, digest='c0de'), None)
    """

    log: str
    pieces: int = 0
    digest: str = ""

    @property
    def text(self) -> str:
        """Return it as bytewax keeps it."""
        return f"{_PREFIX}:{self.log}:{self.pieces}:{self.digest}"

    @staticmethod
    def of(state: object) -> LogEnd | None:
        """Return the end that a resume state tells; None where it tells none."""
        if not isinstance(state, str) or not state.startswith(f"{_PREFIX}:"):
            return None
        match state.removeprefix(f"{_PREFIX}:").split(":"):
            case [log, pieces, digest] if pieces.isdecimal():
                return LogEnd(log, int(pieces), digest)
        return None


@dataclass(frozen=True, slots=True)
class LogNote:
    """The writer of a log: the step of the dataflow, and the attempt of it that lives."""

    step: str
    attempt: str


@dataclass(slots=True)
class LogWriter:
    """A partition that is written. end: of the sealed pieces."""

    folder: Path
    note: LogNote
    end: LogEnd
    _held: list[pa.Table] = field(default_factory=list)
    _files: list[BatchFile] = field(default_factory=list)

    def write(self, rows: pa.Table) -> None:
        """Add rows to the piece that is not sealed yet. Raises `OSError`."""
        self._held.append(rows)
        if sum(table.num_rows for table in self._held) >= _GROUP:
            self._flush()

    def seal(self) -> LogEnd:
        """Make a piece of the rows that were written, durably; none where none were. Raises `LogTaken`, `OSError`."""
        self._flush()
        if not self._files:
            return self.end
        number = self.end.pieces
        manifest = BatchManifest(self.end.log, 0, number, self.end.digest, tuple(self._files))
        alone = note_in(self.folder) == self.note and not manifest_path(self.folder, number).exists()
        sealed = manifest_path(self.folder / _SEALED, number)
        if not alone or not put_new(sealed, manifest.encode(), beside=f".{uuid.uuid4().hex}"):
            raise LogTaken(place=str(self.folder), step=self.note.step)
        self.end, self._files = LogEnd(self.end.log, number + 1, manifest.digest), []
        return self.end

    def _flush(self) -> None:
        held, self._held = self._held, []
        file = stage(self.folder, (batch for table in held for batch in table.to_batches()))
        if file is None:
            return
        own = files_of(self.folder, self.end.pieces)
        make_folder(own)
        (self.folder / STAGED / file.name).rename(own / file.name)
        synchronise(own)
        self._files.append(file)


def begin(folder: Path, step: str, state: str | None) -> LogWriter:
    """Return the writer of a partition that resumes from a state. Pieces after it are let go: their rows come again.

    Raises `RecoveryBehind` where any of these is published, `LogBehind` where the log does not reach the state.
    """
    end = LogEnd.of(state)
    if state is not None and end is None:
        raise LogBehind(place=str(folder), problem="the resume state is that of another sink")
    make_folder(folder / _SEALED)
    note = LogNote(step, uuid.uuid4().hex)
    if end is None:
        if held := published_in(folder):
            raise RecoveryBehind(place=str(folder), held=held, kept=0)
        end = LogEnd(uuid.uuid4().hex)
    else:
        publish(folder, end)
    beside = folder / f".{note.attempt}"
    write_durably(beside, json.dumps({"format": 1, "step": step, "attempt": note.attempt}).encode())
    beside.replace(folder / _NOTE)  # from here on whoever has written before is refused
    synchronise(folder)
    _let_go(folder, end)
    return LogWriter(folder, note, end)


def publish(folder: Path, end: LogEnd, *, known: int | None = None) -> None:
    """Publish all up to an end after which bytewax resumes, once.

    known: how many pieces were published when the end was asked for; those that are now where it is None.

    Raises `RecoveryBehind`, `LogBehind`, `BatchDamaged`.
    """
    held = published_in(folder)
    known = held if known is None else known
    if end.pieces < known:
        raise RecoveryBehind(place=str(folder), held=known, kept=end.pieces)
    if end.pieces < held:
        return  # the dataflow has resumed since, after more of them
    last = read_manifest(folder, held - 1) if held else None
    due = [_piece(folder, number, end) for number in range(held, end.pieces)]
    for manifest in due:
        if manifest.query_id != end.log or manifest.before != ("" if last is None else last.digest):
            raise _unlike(folder, end, manifest.batch)
        last = manifest
    if end.digest != ("" if last is None else last.digest):
        raise _unlike(folder, end, end.pieces - 1)
    for manifest in due:
        sealed = manifest_path(folder / _SEALED, manifest.batch)
        with suppress(FileExistsError):
            try:
                os.link(sealed, manifest_path(folder, manifest.batch))
            except FileNotFoundError:
                if read_manifest(folder, manifest.batch) != manifest:  # another has published it, and this very one
                    raise _unlike(folder, end, manifest.batch) from None
    if due:
        synchronise(folder)
    for manifest in due:
        manifest_path(folder / _SEALED, manifest.batch).unlink(missing_ok=True)


def note_in(folder: Path) -> LogNote | None:
    """Return the writer of a log; None where none was begun. Raises `OSError`."""
    try:
        said = json.loads((folder / _NOTE).read_bytes())
    except FileNotFoundError:
        return None
    return LogNote(str(said["step"]), str(said["attempt"]))


def published_in(folder: Path) -> int:
    """Return how many pieces were published, those that were removed since included."""
    return max(batches_in(folder), default=-1) + 1


def sealed_in(folder: Path) -> list[int]:
    """Return the pieces that are sealed and not published."""
    return [number for number in batches_in(folder / _SEALED) if not manifest_path(folder, number).exists()]


def _piece(folder: Path, number: int, end: LogEnd) -> BatchManifest:
    for place in (folder / _SEALED, folder):
        with suppress(FileNotFoundError):
            return read_manifest(place, number)
    raise LogBehind(
        place=str(folder),
        problem=f"bytewax has {end.pieces} pieces of it as written, and piece {number} is not there",
    )


def _unlike(folder: Path, end: LogEnd, number: int) -> LogBehind:
    problem = f"bytewax has {end.pieces} pieces of it as written, and piece {number} there is another one"
    return LogBehind(place=str(folder), problem=problem)


def _let_go(folder: Path, end: LogEnd) -> None:
    """Remove all pieces after an end, and rows of none."""
    for number in sorted(batches_in(folder / _SEALED), reverse=True):
        manifest_path(folder / _SEALED, number).unlink(missing_ok=True)
    if (held := published_in(folder)) > end.pieces:  # a flow went by another recovery store meanwhile
        raise RecoveryBehind(place=str(folder), held=held, kept=end.pieces)
    for name in os.listdir(folder):
        if name == STAGED or (name.isdecimal() and int(name) >= end.pieces):
            shutil.rmtree(folder / name, ignore_errors=True)
