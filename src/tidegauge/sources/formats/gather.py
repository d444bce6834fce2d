"""Reading many records at once, and finding the ones that cannot be read when that fails.

A *reading* turns the records `[i, j)` into rows, all together or, by raising `Refused`, not at all. `gather` tries
each reading on all records; when all refuse, the last one reads in pieces that grow while it accepts and shrink to
the culprit when it does not. `sliced` and `as_text` do the same for the pieces of one text, without a step for each.

Invariant: if what the earlier readings accept is accepted by the last one with the same rows, and that one accepts a
range iff it accepts every record in it, then whether a record is a row depends on that record alone. How the range is
cut into pieces is then a matter of speed only, and so is the hint that a refusal may carry.

>>> def take(i, j):
...     if any(n in (5, 6) for n in range(i, j)):
...         raise Refused("no")
...     print("took", i, j)
>>> in_pieces(8, take, lambda i, refusal: print("refused", i))
took 0 4
took 4 5
refused 5
refused 6
took 7 8
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.records import Mask, Records

__all__ = ["PADDING", "Gathered", "Reading", "Refused", "as_text", "gather", "in_pieces", "sliced"]

GROWTH: Final = 4


class Refused(Exception):
    """Some of these records cannot be read. The message is right when there is one.

    `culprit` is the first of them, counted from 0, as far as the reader can tell.
    """

    def __init__(self, problem: str, culprit: int | None = None) -> None:
        super().__init__(problem)
        self.culprit = culprit


@dataclass(frozen=True, slots=True)
class Gathered:
    """The rows of those records that are good; `kept` marks which; `problems` lists which are bad, and why."""

    rows: pa.RecordBatch
    kept: Mask
    problems: list[tuple[Ints, str]] = field(default_factory=list)


Reading: TypeAlias = Callable[[int, int], Gathered]
"""Reads the records `[i, j)` of those that are sound. Raises `Refused`."""


def in_pieces(count: int, take: Callable[[int, int], None], refuse: Callable[[int, Refused], None]) -> None:
    """Call `take(i, j)` for ranges in ascending order, and `refuse(i, ...)` for every single one that it refuses.

    A piece after a refused record is as long as the last one that was accepted, a piece after an accepted one
    `GROWTH` times longer; a refused piece is cut off before its culprit, or halved where none is named.
    """
    i, width, suspect = 0, max(count, 1), -1
    accepted = 1
    while i < count:
        j = min(count, i + (1 if i == suspect else width))
        try:
            take(i, j)
        except Refused as refusal:
            if j - i > 1:
                width = (j - i) // 2
                if refusal.culprit is not None and refusal.culprit < j - i:
                    suspect = i + refusal.culprit
                    width = max(1, refusal.culprit)
                continue
            refuse(i, refusal)
            width, accepted = accepted, 1
        else:
            accepted = j - i
            width = max(width, accepted) * GROWTH
        i = j


def gather(
    records: Records, sound: Ints, readings: Sequence[Reading], schema: pa.Schema
) -> tuple[pa.RecordBatch, Ints]:
    """Return the rows of the sound records that can be read, and which records these are; mark the others."""
    batches: list[pa.RecordBatch] = []
    good: list[Ints] = []

    def take(i: int, j: int, reading: Reading = readings[-1]) -> None:
        outcome = reading(i, j)
        for which, problem in outcome.problems:
            records.mark(sound[i:j][which], problem)
        batches.append(outcome.rows)
        good.append(sound[i:j][outcome.kept])

    def refuse(i: int, refusal: Refused) -> None:
        records.mark(sound[i : i + 1], str(refusal))

    for reading in readings[:-1] if len(sound) else ():
        try:
            take(0, len(sound), reading)
        except Refused:
            continue
        break
    else:
        in_pieces(len(sound), take, refuse)
    if not batches:
        return pa.RecordBatch.from_pylist([], schema), sound[:0]
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches), np.concatenate(good)


PADDING: Final = b"\0" * 16
_INLINE: Final = 12


def sliced(data: bytes, starts: Ints, lengths: Ints) -> Any:
    """Return pieces of `data`, which is less than 2 GiB, as an array of bytes.

    Piece `i` is `data[starts[i] : starts[i] + lengths[i]]`. `data` ends with `PADDING`, which is in no piece. An
    Arrow view is sixteen bytes: the length, and then either up to twelve bytes, or the first four, the number of a
    buffer and the offset in it. So nothing of a long piece is touched here, and Arrow copies it once.

    >>> sliced(b"tide gauge" + PADDING, np.array([0, 5]), np.array([4, 5])).to_pylist()
    [b'tide', b'gauge']
    """
    views = np.zeros((len(starts), 4), "<i4")
    views[:, 0] = lengths
    head = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), _INLINE)[starts]
    head[np.arange(_INLINE) >= lengths[:, None]] = 0
    views[:, 1:] = head.view("<i4")
    long = np.flatnonzero(lengths > _INLINE)
    views[long, 2] = 0
    views[long, 3] = starts[long]
    buffers = [None, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers).cast(pa.binary())


def as_text(array: Any) -> tuple[Any, Mask]:
    r"""Return bytes as strings, and which of them are no UTF-8; those are null.

    >>> array, bad = as_text(pa.array([b"tide", b"\xff"]))
    >>> array.to_pylist(), bad.tolist()
    (['tide', None], [False, True])
    """
    bad = np.zeros(len(array), np.bool_)
    found: list[Any] = []

    def take(i: int, j: int) -> None:
        try:
            found.append(array.slice(i, j - i).cast(pa.string()))
        except pa.ArrowInvalid as error:
            raise Refused("") from error

    def refuse(i: int, _refusal: Refused) -> None:
        bad[i] = True
        found.append(pa.nulls(1, pa.string()))

    in_pieces(len(array), take, refuse)
    return found[0] if len(found) == 1 else pa.concat_arrays([pa.array([], pa.string()), *found]), bad
