r"""A range of a stream becomes blocks of whole records, and a block becomes records, each with its place.

Invariant: the records of `[a, c)` are those of `[a, b)` followed by those of `[b, c)` for every boundary `b`, and
whether a record is good depends on its own bytes alone, never on where a block ended. Memory is bounded by
`BLOCK_BYTES`, plus `MAX_RECORD_BYTES` while a record is longer than a block.

>>> import io
>>> [block] = blocks(io.BytesIO(b"one\n\ntwo"), Boundaries(quote=None), lower=0, upper=None)
>>> [records] = records_of(block)
>>> records.positions().tolist(), [records.raw(i) for i in range(len(records))]
([0, 4, 5], [b'one', b'', b'two'])
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegauge.errors.sources import WrongEncoding
from tidegauge.sources.formats.boundaries import Boundaries, Ints, read_exactly
from tidegauge.sources.formats.protocol import Decoded, OnBad

__all__ = [
    "BLOCK_BYTES",
    "BOM",
    "MAX_RECORD_BYTES",
    "RAW_BYTES",
    "Block",
    "Lines",
    "Mask",
    "Records",
    "blocks",
    "check_encoding",
    "records_of",
    "records_of_messages",
]

Mask: TypeAlias = npt.NDArray[np.bool_]

BLOCK_BYTES: Final = 8 << 20
BLOCK_RECORDS: Final = 1 << 17
MAX_RECORD_BYTES: Final = 64 << 20
"""A longer record is a bad one; it is skipped and never held in memory."""
RAW_BYTES: Final = 1 << 20
"""How much of a bad record is kept."""
BOM: Final = codecs.BOM_UTF8
_OTHER_MARKS: Final[Mapping[bytes, str]] = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""The longer ones first, for one begins with another."""

_CR, _LF = 13, 10


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records from `position` on; `ends` are the offsets past each one, its line ending included.

    `oversized`: `data` is only the beginning of a single record, which is longer than the limit.
    """

    position: int
    data: bytes
    ends: Ints
    oversized: bool = False


@dataclass(slots=True)
class _Range:
    """The bytes `[at, upper)` of a stream that stands at `at`."""

    stream: BinaryIO
    at: int
    upper: int | None
    done: bool = False

    def read(self, size: int) -> bytes:
        wanted = size if self.upper is None else min(size, self.upper - self.at)
        chunk = b"" if self.done else read_exactly(self.stream, wanted)
        self.at += len(chunk)
        if not self.done and len(chunk) < wanted and self.upper is not None:
            raise EOFError(f"the stream ends at byte {self.at}, before {self.upper}")
        self.done = self.done or len(chunk) < wanted or self.at == self.upper
        return chunk


def blocks(
    stream: BinaryIO,
    boundaries: Boundaries,
    *,
    lower: int,
    upper: int | None,
    size: int = BLOCK_BYTES,
    limit: int = MAX_RECORD_BYTES,
) -> Iterator[Block]:
    """Yield the blocks of `[lower, upper)` of a stream that stands at `lower`, a record boundary.

    The rest at the end of the range is a record, with or without a line ending. Raises `EOFError` when the stream
    ends before `upper`.
    """
    source = _Range(stream, lower, upper)
    position, data = lower, b""
    while True:
        data += source.read(size)
        ends = boundaries.ends(data)
        whole = int(ends[-1]) if len(ends) else 0
        if source.done and whole < len(data):
            whole = len(data)
            ends = np.append(ends, whole)
        if whole:
            yield Block(position, data, ends)
        position, data = position + whole, data[whole:]
        if source.done and not data:
            return
        # One more than the limit may still be a carriage return before its newline.
        if len(data) > limit + 1:
            yield Block(position, data[:RAW_BYTES], np.array([min(len(data), RAW_BYTES)]), oversized=True)
            data = _after_record(source, boundaries, data, size)
            position = source.at - len(data)


def _after_record(source: _Range, boundaries: Boundaries, data: bytes, size: int) -> bytes:
    """Read on to the end of the record that begins with `data`; return the bytes read beyond it."""
    inside = False
    while not source.done:
        inside = boundaries.inside_after(data, inside=inside)
        data = source.read(size)
        ends = boundaries.ends(data, inside=inside)
        if len(ends):
            return data[int(ends[0]) :]
    return b""


@dataclass(frozen=True, slots=True)
class Lines:
    """Record `i` is `data[begins[i]:stops[i]]`; between two there is nothing but a line ending and empty records."""

    data: memoryview
    begins: Ints
    stops: Ints

    @staticmethod
    def joined(lines: list[bytes]) -> Lines:
        """Return lines as one text."""
        sizes = np.array([len(line) for line in lines], np.int64)
        stops = np.cumsum(sizes + 1) - 1
        return Lines(memoryview(b"\n".join([*lines, b""])), stops - sizes, stops)

    def between(self, i: int, j: int) -> memoryview:
        """Return the text of the records `[i, j)`, with the end of the last line.

        Without one, Arrow reads an empty last field as quoted when another field of the record is.
        """
        begin, stop = self.begins[i], self.stops[j - 1]
        for end in (b"\n", b"\r\n"):
            if bytes(self.data[stop : stop + len(end)]) == end:
                return self.data[begin : stop + len(end)]
        return memoryview(bytes(self.data[begin:stop]) + b"\n")


@dataclass(slots=True)
class Records:
    """Some records of a block. Record `i` is `data[begins[i]:stops[i]]`, without its line ending.

    `wrong` gives the fault of each bad record; `cut` is how many of its bytes are reported.
    """

    position: int
    data: bytes
    begins: Ints
    stops: Ints
    wrong: dict[int, str] = field(default_factory=dict)
    cut: int = RAW_BYTES

    def __len__(self) -> int:
        return len(self.begins)

    def raw(self, i: int) -> bytes:
        """Return the bytes of record `i`."""
        return self.data[self.begins[i] : self.stops[i]]

    def positions(self) -> Ints:
        """Return where each record begins in the stream."""
        return self.begins + self.position

    def mark(self, which: Mask | Ints, problem: str) -> None:
        """Note a problem of the records in a mask or a list of indices; the first problem of a record stays."""
        indices = np.flatnonzero(which) if which.dtype == np.bool_ else which
        for i in indices.tolist():
            self.wrong.setdefault(i, problem)

    def mark_invalid_utf8(self) -> None:
        """Note which records are not UTF-8."""
        if not len(self) or self.data.isascii() or _is_utf8(memoryview(self.data)[self.begins[0] : self.stops[-1]]):
            return
        for i in range(len(self)):
            if not _is_utf8(self.raw(i)):
                self.wrong.setdefault(i, "not valid UTF-8")

    def without(self, dropped: Mask) -> Records:
        """Return the records that are not dropped."""
        if not dropped.any():
            return self
        place = np.cumsum(~dropped) - 1
        wrong = {int(place[i]): problem for i, problem in self.wrong.items() if not dropped[i]}
        return Records(self.position, self.data, self.begins[~dropped], self.stops[~dropped], wrong, self.cut)

    def sound(self) -> Ints:
        """Return the indices of the records that are not wrong."""
        kept = np.ones(len(self), np.bool_)
        kept[list(self.wrong)] = False
        return np.flatnonzero(kept)

    def after_first(self) -> Records:
        """Return the records without the first one."""
        wrong = {i - 1: problem for i, problem in self.wrong.items() if i}
        return Records(self.position, self.data, self.begins[1:], self.stops[1:], wrong, self.cut)

    def lines(self, which: Ints) -> Lines:
        """Return these records as one text, without a copy when they are all."""
        if len(which) == len(self):
            return Lines(memoryview(self.data), self.begins, self.stops)
        return Lines.joined([self.raw(i) for i in which.tolist()])

    def decoded(self, rows: pa.RecordBatch, kept: Ints) -> Decoded:
        """Return the rows of the records `kept`, with where each stands."""
        return Decoded(rows, pa.array(self.positions()[kept]), lambda row: self.raw(int(kept[row]))[: self.cut])

    def report(self, on_bad: OnBad) -> None:
        """Tell of every bad record, in order."""
        for i, problem in sorted(self.wrong.items()):
            on_bad(self.position + int(self.begins[i]), self.raw(i)[: self.cut], problem)


def records_of(block: Block, *, limit: int = MAX_RECORD_BYTES, size: int = BLOCK_RECORDS) -> Iterator[Records]:
    """Yield the records of a block, at most `size` at a time, with those marked that are longer than `limit`.

    A byte order mark at the beginning of the stream belongs to no record; anywhere else it is data. Raises
    `WrongEncoding` for one of another encoding.
    """
    if block.position == 0:
        check_encoding(block.data)
    begins = np.concatenate((np.zeros(1, np.int64), block.ends[:-1]))
    stops = block.ends.copy()
    characters = np.frombuffer(block.data, np.uint8)
    if not block.oversized:
        stops -= characters[stops - 1] == _LF
        stops -= (stops > begins) & (characters[stops - 1] == _CR)
    if block.position == 0 and block.data.startswith(BOM):
        begins[0] = len(BOM)
        stops[0] = max(stops[0], len(BOM))
    for i in range(0, len(begins), size):
        # Of a record that is too long, the same bytes are reported wherever blocks end.
        cut = min(limit, RAW_BYTES)
        records = Records(block.position, block.data, begins[i : i + size], stops[i : i + size], cut=cut)
        too_long = records.stops - records.begins > limit
        if block.oversized or too_long.any():
            records.mark(too_long | block.oversized, f"longer than {limit} bytes")
        yield records


def check_encoding(head: bytes) -> None:
    """Raise `WrongEncoding` when a file that begins so says that it is not in UTF-8."""
    for mark, encoding in _OTHER_MARKS.items():
        if head.startswith(mark):
            raise WrongEncoding(encoding=encoding, mark=mark.hex(" "))


def records_of_messages(values: Sequence[bytes]) -> Records:
    """Return values as records of one text, each without a line ending at its end and a byte order mark before it."""
    data = b"\n".join([*values, b""])
    if BOM in data:
        values = [value.removeprefix(BOM) for value in values]
        data = b"\n".join([*values, b""])
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    stops = np.cumsum(sizes + 1) - 1
    begins = stops - sizes
    characters = np.frombuffer(data, np.uint8)
    stops -= (stops > begins) & (characters[stops - 1] == _LF)
    stops -= (stops > begins) & (characters[stops - 1] == _CR)
    return Records(0, data, begins, stops)


def _is_utf8(text: bytes | memoryview) -> bool:
    try:
        str(text, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
