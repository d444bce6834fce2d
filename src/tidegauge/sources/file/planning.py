"""Cutting slices into splits, at record boundaries.

A file is opened once, and checked once, for all slices of it: with all that they have, which is what the last of
them asks for. Where files are is for `SlicedFiles` to know.

Invariant: the splits of a slice follow each other without gap or overlap, from its lower to its upper end. For a
whole format the ends between them only say how the bytes are shared out; tasks read the groups of rows.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa

from tidegauge.errors.objects import ObjectOverwritten
from tidegauge.errors.sources import FileGone, FileRewritten, ShortRead
from tidegauge.remap.binding import Bound, Slice
from tidegauge.sources.file.found import refuse_away
from tidegauge.sources.file.identity import FileFacts, Seen, open_known
from tidegauge.sources.file.listing import listed, root
from tidegauge.sources.file.memory import OpenFiles
from tidegauge.sources.file.moving import moved, same
from tidegauge.sources.file.reading import FileSplit, naming
from tidegauge.sources.file.returning import originals
from tidegauge.sources.file.watching import entries
from tidegauge.sources.formats.protocol import Format, LineFormat, WholeFormat, as_line, as_whole
from tidegauge.sources.formats.records import MAX_RECORD_BYTES
from tidegauge.sources.protocol import Split

__all__ = ["LOST", "BoundFiles", "SlicedFiles", "cut", "gone", "planned", "record_at", "shares"]

LOST: Final = (FileGone, FileRewritten, ObjectOverwritten)
"""What says that bound bytes are not there any more."""

_WINDOW: Final = 1 << 16
"""How many bytes at first are searched for the end of a long record."""


def shares(weights: Sequence[int], size: int) -> list[tuple[int, int]]:
    """Put consecutive groups together until they weigh `size`; return their index ranges. No groups are one range.

    >>> shares([4, 4, 4, 9, 1], size=8), shares([], size=8)
    ([(0, 2), (2, 4), (4, 5)], [(0, 0)])
    """
    cuts, weight = [0], 0
    for i, group in enumerate(weights):
        if weight >= size:
            cuts.append(i)
            weight = 0
        weight += group
    return list(pairwise([*cuts, len(weights)]))


class SlicedFiles(Protocol):
    """The files of bound slices."""

    @property
    def bound(self) -> Bound:
        """The bindings."""
        ...

    def open(self, piece: Slice) -> tuple[FileFacts, BinaryIO]:
        """Open the file of a slice, wherever it is now. Raises an error of `LOST` where it is not there any more."""
        ...

    def each(self, function: Callable[[Any], Any], items: Iterable[Any], /) -> Iterable[Any]:
        """Return what a function that opens files returns of each item, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class BoundFiles:
    """Where the files of a source are: by the bindings, by its pattern, and by the files held open."""

    bound: Bound
    pattern: str
    held: OpenFiles

    def open(self, piece: Slice) -> tuple[FileFacts, BinaryIO]:
        """Open the file of a slice, wherever it is now. Raises as `Source.plan` of files does."""
        known = FileFacts.of(self.bound.details[piece.partition])
        # The fingerprint covers what is bound by now; a file read whole must be as it was to its last byte.
        try:
            path, stream = open_known(
                known,
                lower=piece.lower,
                upper=piece.upper,
                elsewhere=lambda: self._elsewhere(piece.partition, known),
                disk=self.held.disk,
            )
        except (FileGone, FileRewritten):
            if (found := self._come_back(known, self.bound.frontier[piece.partition], piece.upper)) is None:
                refuse_away([self.bound.details[piece.partition]], self.held.disk, here=self._known)
                raise
            return found
        return replace(known, path=path), stream

    def each(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """Return what a function returns of each item."""
        return map(function, items)

    def _elsewhere(self, key: str, known: FileFacts) -> Iterator[str]:
        here = listed(self.pattern, disk=self.held.disk).files
        yield from (path for path, status in here if status.st_ino == known.ino)
        if (held := self.held.path(key)) is not None:
            yield held

    def _known(self, folder: str) -> bool:
        """Whether a bound file is in a folder, as it was."""
        for key, detail in self.bound.details.items():
            if str(Path(str(detail["path"])).parent) == folder:
                try:
                    upper = self.bound.frontier[key]
                    _path, stream = open_known(FileFacts.of(detail), lower=0, upper=upper, disk=self.held.disk)
                except (FileGone, FileRewritten):
                    continue
                stream.close()
                return True
        return False

    def _come_back(self, known: FileFacts, position: int, upper: int) -> tuple[FileFacts, BinaryIO] | None:
        """Open the file that a known one is by now, if it has the first `upper` bytes: a copy, one in the place that
        the pattern has moved to, or what a log was compressed to."""
        disk = self.held.disk
        here = entries(str(Path(known.path).parent), disk=disk)
        paths = {entry.path for entry in here} | {path for path, _ in listed(self.pattern, disk=self.held.disk).files}
        folder = root(self.pattern)
        for path in sorted(path for path in paths if _related(path, known, folder)):
            try:
                stream = disk.open(path)
            except FileNotFoundError:
                continue
            facts = same(stream, Seen.of(path, stream.fileno(), disk=disk), known, position, disk=disk)
            if facts is not None and facts.size >= upper:
                return facts, stream
            stream.close()
        return None


def _related(path: str, known: FileFacts, folder: str) -> bool:
    """Whether a file of this path may be a known one by now. folder: the one with which the pattern begins."""
    if path == known.path or moved(known.path, path, folder):
        return True
    if known.whole:
        return False
    return not originals(Path(path).name).isdisjoint({Path(known.first).name, Path(known.path).name})


def planned(
    slices: Sequence[Slice], files: SlicedFiles, *, schema: pa.Schema, format: Format, size: int
) -> list[Split]:
    """Return the splits of the slices, in their order, each about `size` bytes."""
    cuts: dict[Slice, list[FileSplit]] = {}
    whole, line = as_whole(format), as_line(format)

    def of_one_file(pieces: list[Slice]) -> list[list[FileSplit]]:
        file, stream = files.open(_around(pieces))
        with stream, naming(file.path):
            return [
                list(_cut(stream, piece, file, schema=schema, whole=whole, line=line, size=size)) for piece in pieces
            ]

    by_file = list(_by_file(slices))
    for pieces, found in zip(by_file, files.each(of_one_file, by_file), strict=True):
        cuts.update(zip(pieces, found, strict=True))
    return [split for piece in slices for split in cuts[piece]]


def _by_file(slices: Sequence[Slice]) -> Iterable[list[Slice]]:
    """Return the slices of each file, in their order."""
    found: defaultdict[str, list[Slice]] = defaultdict(list)
    for piece in slices:
        found[piece.partition].append(piece)
    return found.values()


def _around(pieces: Sequence[Slice]) -> Slice:
    """Return one slice of a file that reaches as far as some."""
    return replace(pieces[0], upper=max(piece.upper for piece in pieces))


def gone(slices: Sequence[Slice], files: SlicedFiles) -> list[Slice]:
    """Return the slices whose bytes are not there any more. Raises `OSError`."""

    def of_one_file(pieces: list[Slice]) -> list[Slice]:
        if _there(_around(pieces), files):
            return []
        return pieces if len(pieces) == 1 else [piece for piece in pieces if not _there(piece, files)]

    lost = {piece for pieces in files.each(of_one_file, list(_by_file(slices))) for piece in pieces}
    return [piece for piece in slices if piece in lost]


def _there(piece: Slice, files: SlicedFiles) -> bool:
    """Whether the bytes of a slice are there; then those of every slice that ends before it are, too."""
    try:
        _file, stream = files.open(piece)
    except LOST:
        return False
    stream.close()
    return True


def record_at(piece: Slice, position: int, files: SlicedFiles, format: Format) -> tuple[int, int] | None:
    """Return the ends of the record that a position is inside of; see `Divided`. A whole file is one record here."""
    line = as_line(format)
    if line is None or int(files.bound.details[piece.partition]["whole"]):
        return piece.lower, piece.upper
    try:
        _file, stream = files.open(piece)
    except LOST:
        return None
    with stream:
        lower = line.last_boundary(stream, piece.lower, position)
        if lower == position:
            return None
        upper = min(piece.upper, lower + MAX_RECORD_BYTES)
        return lower, next(iter(line.cuts(stream, lower, upper, position - lower)), piece.upper)


def cut(piece: Slice, size: int, files: SlicedFiles, format: Format) -> int | None:
    """Return the last record boundary within the first `size` bytes of a slice, or else the first one after them.

    None where the slice has none, where its file is read whole, and where that is gone or damaged: `planned` says so.
    """
    line = as_line(format)
    if line is None or int(files.bound.details[piece.partition]["whole"]):
        return None
    try:
        file, stream = files.open(piece)
    except LOST:
        return None
    with stream:
        if file.packed:  # each part would decompress all that is before it
            return None
        try:
            return _boundary(stream, line, piece, piece.lower + size)
        except EOFError:
            return None


def _boundary(stream: BinaryIO, line: LineFormat, piece: Slice, position: int) -> int | None:
    before = line.last_boundary(stream, piece.lower, position)
    if piece.lower < before:
        return before
    window = _WINDOW
    while position < piece.upper:  # a record that is longer than that
        upper = min(piece.upper, position + window)
        if found := line.cuts(stream, piece.lower, upper, position - piece.lower):
            return found[0]
        position, window = upper, 2 * window
    return None


def _cut(
    stream: BinaryIO,
    piece: Slice,
    file: FileFacts,
    *,
    schema: pa.Schema,
    whole: WholeFormat | None,
    line: LineFormat | None,
    size: int,
) -> Iterator[FileSplit]:
    def split(lower: int, upper: int, weight: int, groups: tuple[int, int] | None = None) -> FileSplit:
        return FileSplit(
            epoch=piece.epoch,
            partition=piece.partition,
            lower=lower,
            upper=upper,
            weight=weight,
            size=piece.upper,
            file=file,
            schema=schema,
            groups=groups,
        )

    if whole is not None:
        weights = whole.groups(stream)
        total = max(1, sum(weights))
        lower, done = piece.lower, 0
        for first, last in shares(weights, size):
            weight = sum(weights[first:last])
            done += weight
            end = last == len(weights)
            upper = piece.upper if end else max(lower + 1, piece.lower + piece.size * done // total)
            yield split(lower, upper, weight, (first, last))
            lower = upper
    elif line is None or file.whole or piece.size <= size:
        yield split(piece.lower, piece.upper, piece.size)
    else:
        try:
            cuts = line.cuts(stream, piece.lower, piece.upper, size)
        except EOFError as error:
            now = stream.seek(0, os.SEEK_END)
            raise ShortRead(path=file.path, lower=piece.lower, upper=piece.upper, size=now) from error
        for lower, upper in pairwise([piece.lower, *cuts, piece.upper]):
            yield split(lower, upper, upper - lower)
