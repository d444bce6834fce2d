"""What a format is: where records end in bytes, and how bytes become rows.

Two kinds. A *line format* (JSON lines, CSV) can be read from any record boundary, so a growing file is read from
where it was. A *whole format* (Parquet) can only be read once the file is complete. Compression makes any format
whole: such a file is bound as a whole, once; any other by complete records.

Invariant: for a line format, the rows of `[a, c)` are those of `[a, b)` followed by those of `[b, c)`, for every
record boundary `b` between. So it does not matter how a range is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeAlias, cast

import pyarrow as pa

__all__ = ["Decoded", "Format", "LineFormat", "OnBad", "WholeFormat", "as_line", "as_whole", "is_whole"]

OnBad: TypeAlias = Callable[[int, bytes, str], None]
"""Called with a bad record's position, its raw bytes and the problem. It may raise."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows, and the position of each: the byte at which its record begins (int64, as long as the batch).

    raw: returns the bytes of a row's record, b"" where it has none of its own. Asked before the next batch is.
    """

    rows: pa.RecordBatch
    positions: pa.Array
    raw: Callable[[int], bytes] = lambda _row: b""


class Format(Protocol):
    """A picklable value that describes how records are written."""

    @property
    def schema(self) -> pa.Schema | None:
        """The declared columns, or None when they are inferred from the first data."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        ...


class LineFormat(Format, Protocol):
    """A format that can be read from any record boundary. Positions count bytes of the (uncompressed) file."""

    def infer(self, head: bytes) -> pa.Schema | None:
        """Return the columns of a file that begins with these bytes (cut anywhere), or None without a full record."""
        ...

    def header(self, stream: BinaryIO) -> bytes:
        """Return the header record at the beginning of a seekable file, b"" where the format has none."""
        ...

    def last_boundary(self, stream: BinaryIO, lower: int, upper: int) -> int:
        """Return the last record boundary in `[lower, upper]`; `lower` is one. Memory is bounded by a block."""
        ...

    def cuts(self, stream: BinaryIO, lower: int, upper: int, size: int) -> list[int]:
        """Return record boundaries strictly inside `(lower, upper)`, about `size` bytes apart; both ends are ones."""
        ...

    def decode(
        self, stream: BinaryIO, *, lower: int, upper: int | None, header: bytes, schema: pa.Schema, on_bad: OnBad
    ) -> Iterator[Decoded]:
        """Yield the rows of `[lower, upper)`; the stream stands at `lower`. `upper` None reads to the end.

        Only columns of `schema` are returned, in its order; a missing one is null. When `lower` is 0 the stream
        begins with the header, which is no row. A last record without an end counts when `upper` is None.
        Raises `EOFError` when the stream ends before `upper`. Needs no seek.
        """
        ...


class WholeFormat(Format, Protocol):
    """A format that is read once, whole, from a seekable file. Its rows can be divided into numbered groups."""

    def infer_whole(self, stream: BinaryIO) -> pa.Schema:
        """Return the columns of the file."""
        ...

    def complete(self, stream: BinaryIO) -> bool:
        """Whether the file ends as a complete one does."""
        ...

    def groups(self, stream: BinaryIO) -> list[int]:
        """Return the size in bytes of each group of rows, in order."""
        ...

    def decode_groups(self, stream: BinaryIO, *, first: int, last: int, schema: pa.Schema) -> Iterator[Decoded]:
        """Yield the rows of the groups `[first, last)`. Positions are row numbers of the file."""
        ...


_COMMON = ("describe",)
_LINE = (*_COMMON, "infer", "header", "last_boundary", "cuts", "decode")
_WHOLE = (*_COMMON, "infer_whole", "complete", "groups", "decode_groups")


def _has(value: object, names: tuple[str, ...]) -> bool:
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)


def as_line(value: Format) -> LineFormat | None:
    """Return the format as a line format, or None when it is none."""
    return cast("LineFormat", value) if _has(value, _LINE) else None


def as_whole(value: Format) -> WholeFormat | None:
    """Return the format as a whole format, or None when it is none."""
    return cast("WholeFormat", value) if _has(value, _WHOLE) else None


def is_whole(value: Format, path: str) -> bool:
    """Whether the file of this name is bound as a whole."""
    return as_line(value) is None or path.endswith(".gz")
