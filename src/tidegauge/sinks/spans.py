"""The staged rows of a span of epochs, and which spans are committed together: pure decisions.

A table whose commits take longer than jobs do would have one commit for each of many small spans before it. Those
that wait while a commit is under way are one commit, as large as a commit may be.

Invariant: spans are committed in their order, each whole, and nothing between them is left out that is not vacuous: a
merged span goes from the lower of its first to the upper of its last and has all their files.

>>> none = pa.schema([])
>>> waiting = [StagedSpan(0, 1, "a", none, rows=1), StagedSpan(1, 5), StagedSpan(5, 6, "b", none, rows=2)]
>>> count, whole = merged(waiting)
>>> count, whole.lower, whole.upper, whole.rows, whole.job
(3, 0, 6, 3, 'b')
>>> merged(waiting, at_most=1) == (1, waiting[0])
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidegauge.sinks.protocol import StagedFile

__all__ = ["BYTES", "FILES", "ROWS", "StagedSpan", "merged"]

FILES: Final = 1_000
BYTES: Final = 1 << 28
ROWS: Final = 1_000_000
"""How much of the waiting rows is committed together. A topic's commit is a transaction, which has to end in time: a
million rows take some seconds. A single span may be larger: it is never split."""


@dataclass(frozen=True, slots=True)
class StagedSpan:
    """The staged rows of one output for the epochs `[lower, upper)`. Without a `schema` the span is vacuous."""

    lower: int
    upper: int
    job: str = ""
    schema: pa.Schema | None = None
    files: tuple[StagedFile, ...] = ()
    rows: int = 0

    @property
    def bytes(self) -> int:
        """How many bytes were staged."""
        return sum(file.bytes for file in self.files)


def merged(waiting: Sequence[StagedSpan], *, at_most: int | None = None) -> tuple[int, StagedSpan]:
    """Return how many of the first of what waits are committed together, and what they are as one.

    The first one is not vacuous. The last one is not either: vacuous epochs at the end need no commit. at_most: the
    largest number of spans.
    """
    first = waiting[0]
    files, size, rows = len(first.files), first.bytes, first.rows
    count = 1
    for at, span in enumerate(waiting[1:at_most], start=2):
        if span.schema is None:
            continue
        files, size, rows = files + len(span.files), size + span.bytes, rows + span.rows
        if span.schema != first.schema or files > FILES or size > BYTES or rows > ROWS:
            break
        count = at
    if count == 1:
        return 1, first
    last, parts = waiting[count - 1], waiting[:count]
    return count, StagedSpan(
        first.lower,
        last.upper,
        last.job,
        first.schema,
        tuple(file for part in parts for file in part.files),
        sum(part.rows for part in parts),
    )
