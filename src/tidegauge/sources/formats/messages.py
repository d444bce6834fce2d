"""Messages: values that have their own ends, as a broker keeps them, become rows together.

Definition: each value of a batch is a row, a bad record or, where it is None, a row of nulls. Invariant: which of
them a value is, and its row, depend on that value alone; never on its neighbours or on how values are batched. So the
rows of `a + b` are those of `a` followed by those of `b`.

Values are decoded in chunks, each chunk as one text or one buffer; what a bad record costs is a second look at its
own chunk. The rows of all chunks are one batch again.

>>> def halves(chunk):
...     wrong = {i: ("TG-0323", "odd") for i, value in enumerate(chunk) if len(value) % 2}
...     kept = [i for i in range(len(chunk)) if i not in wrong]
...     rows = pa.RecordBatch.from_pydict({"half": [len(chunk[i]) // 2 for i in kept]}, schema)
...     return Part(rows, np.array(kept, np.int64), wrong)
>>> schema = pa.schema([("half", pa.int64())])
>>> found = in_chunks([b"four", None, b"odd", b""], schema, print, halves)
2 TG-0323 odd
>>> found.rows.to_pylist(), found.indices.to_pylist()
([{'half': 2}, {'half': None}, {'half': 0}], [0, 1, 3])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa

from tidegauge.errors.sources import UnreadableRecord
from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.protocol import Format
from tidegauge.sources.formats.records import MAX_RECORD_BYTES

__all__ = ["MessageFormat", "MessageRows", "OnBadMessage", "Part", "Problems", "in_chunks", "present", "together"]

CHUNK_BYTES: Final = 4 << 20
CHUNK_MESSAGES: Final = 1 << 14

OnBadMessage: TypeAlias = Callable[[int, str, str], None]
"""Called with a bad value's index, the code of the error and the problem, in ascending order. It may raise."""

Problems: TypeAlias = dict[int, tuple[str, str]]
"""The code and the message of each bad value, by its index."""


@dataclass(frozen=True, slots=True)
class MessageRows:
    """The rows of the good values, in order; `indices` (int64) says which value each is, None when it is all."""

    rows: pa.RecordBatch
    indices: pa.Array | None


@runtime_checkable
class MessageFormat(Format, Protocol):
    """A format that decodes messages: values that have their own ends. The values of one call are less than 2 GiB."""

    def infer_messages(self, values: Sequence[bytes | None]) -> pa.Schema | None:
        """Return the columns of these values, without the bad ones, or None when none tells.

        Raises `Transient` when a service that knows the columns cannot be reached, and another `TidegaugeError` when
        what the values tell is no table.
        """
        ...

    def decode_messages(
        self, values: Sequence[bytes | None], *, schema: pa.Schema, on_bad: OnBadMessage
    ) -> MessageRows:
        """Return the rows of `values`: only columns of `schema`, in its order; a missing one is null.

        A value None is a row of nulls, or, where a column is NOT NULL, bad. Raises `Transient` when a service that is
        needed cannot be reached: no value is bad for that.
        """
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """What became of a chunk: the rows, which values they are (None when they are all), and the others."""

    rows: pa.RecordBatch
    kept: Ints | None = None
    wrong: Problems = field(default_factory=dict)


def present(values: Sequence[bytes | None]) -> tuple[Sequence[bytes], Ints | None]:
    """Return the values that are not None and, unless that is all of them, their indices."""
    if None not in values:
        return values, None  # type: ignore[return-value]
    there = [value for value in values if value is not None]
    return there, np.array([i for i, value in enumerate(values) if value is not None], np.int64)


def in_chunks(
    values: Sequence[bytes | None],
    schema: pa.Schema,
    on_bad: OnBadMessage,
    decode: Callable[[Sequence[bytes]], Part],
    *,
    limit: int = MAX_RECORD_BYTES,
) -> MessageRows:
    """Decode values by chunks, with those apart that are None or longer than `limit` bytes; report the bad ones."""
    there, places = present(values)
    wrong: Problems = {}
    batches: list[pa.RecordBatch] = []
    good: list[Ints] = []
    for begin, chunk in _chunks(there, wrong, limit):
        part = decode(chunk)
        batches.append(part.rows)
        good.append(begin + (np.arange(len(chunk)) if part.kept is None else part.kept))
        wrong |= {begin + i: problem for i, problem in part.wrong.items()}
    rows = pa.concat_batches(batches) if len(batches) > 1 else batches[0] if batches else _none_of(schema)
    kept = np.concatenate([np.empty(0, np.int64), *good])
    if places is not None:
        wrong = {int(places[i]): problem for i, problem in wrong.items()}
        rows, kept = _with_nulls(rows, places[kept], values, wrong)
    for i in sorted(wrong):
        on_bad(i, *wrong[i])
    return MessageRows(rows, None if len(kept) == len(values) else pa.array(kept))


def together(count: int, parts: Sequence[tuple[Ints, Part]], wrong: Problems, schema: pa.Schema) -> Part:
    """Return the parts of a chunk of `count` values as one, each given with which values it is of."""
    kept = [which if part.kept is None else which[part.kept] for which, part in parts]
    wrong = {**wrong, **{int(which[i]): part.wrong[i] for which, part in parts for i in part.wrong}}
    if len(parts) <= 1:
        rows, order = (parts[0][1].rows, kept[0]) if parts else (_none_of(schema), np.empty(0, np.int64))
        return Part(rows, None if len(order) == count else order, wrong)
    mixed = np.concatenate(kept)
    rows = pa.concat_batches([part.rows for _, part in parts]).take(pa.array(np.argsort(mixed)))
    return Part(rows, np.sort(mixed), wrong)


def _chunks(values: Sequence[bytes], wrong: Problems, limit: int) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yield runs of values, each with the index of its first; values that are too long are in none."""
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    too_long = np.flatnonzero(sizes > limit)
    wrong |= {int(i): (UnreadableRecord.code, f"longer than {limit} bytes") for i in too_long}
    ends = np.cumsum(sizes)
    for begin, stop in zip([0, *(too_long + 1)], [*too_long, len(values)], strict=True):
        i = int(begin)
        while i < stop:
            full = int(np.searchsorted(ends, (ends[i - 1] if i else 0) + CHUNK_BYTES, side="right"))
            j = min(int(stop), i + CHUNK_MESSAGES, max(i + 1, full))
            yield i, values if j - i == len(values) else values[i:j]
            i = j


def _with_nulls(
    rows: pa.RecordBatch, kept: Ints, values: Sequence[bytes | None], wrong: Problems
) -> tuple[pa.RecordBatch, Ints]:
    """Put a row of nulls where a value is None, or a problem where there can be no such row."""
    none = np.array([i for i, value in enumerate(values) if value is None], np.int64)
    required = [column.name for column in rows.schema if not column.nullable]
    if required:
        problem = (UnreadableRecord.code, f"column {required[0]}: null, and NOT NULL (there is no value)")
        wrong |= {int(i): problem for i in none}
        return rows, kept
    order = np.argsort(np.concatenate([kept, none]), kind="stable")
    return rows.take(pa.array(order, mask=order >= len(kept))), np.sort(np.concatenate([kept, none]))


def _none_of(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)
