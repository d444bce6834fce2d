"""The backlog: the staged rows of each output that wait for their commit, and which are committed together.

Commits run beside the worker, and staging goes on meanwhile. A table whose commits take longer than jobs do would
have one commit for each of many small spans before it; so those that wait while a commit is under way become one,
as large as a commit may be (`merged`, a pure decision). And all that upstream holds would lie staged on the disk,
and a stop would take as long as to commit it; so the stage asks here first (`Backlog`). An output that is full is
left out of the next jobs. What it lacks by then is staged as one span.

Invariants. Spans are committed in their order, each whole, and nothing between them is left out that is not
vacuous: a merged span goes from the lower of its first to the upper of its last and has all their files. What waits
of an output is less than `BYTES`, fewer than `PIECES`, and none but the first waits longer than `SECONDS`, when one
more job is begun for it.

>>> none = pa.schema([])
>>> waiting = [StagedSpan(0, 1, "a", none, rows=1), StagedSpan(1, 5), StagedSpan(5, 6, "b", none, rows=2)]
>>> count, whole = merged(waiting)
>>> count, whole.lower, whole.upper, whole.rows, whole.job
(3, 0, 6, 3, 'b')
>>> merged(waiting, at_most=1) == (1, waiting[0])
True

>>> clock = [0.0]
>>> backlog = Backlog(lambda: clock[0])
>>> backlog.add("topic", BYTES)
>>> backlog.full
frozenset({'topic'})
>>> backlog.attach(lambda: print("there is room"))
>>> backlog.remove("topic", BYTES)
there is room
>>> backlog.add("topic", 1); backlog.add("topic", 1); backlog.full
frozenset()
>>> clock[0] = SECONDS; backlog.full
frozenset({'topic'})
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from tidegauge.sinks.protocol import StagedFile

__all__ = ["BYTES", "PIECES", "SECONDS", "Backlog", "StagedSpan", "merged"]

COMMIT_FILES: Final = 1_000
COMMIT_BYTES: Final = 1 << 28
COMMIT_ROWS: Final = 1_000_000
"""How much of the waiting rows is committed together. A topic's commit is a transaction, which has to end in time: a
million rows take some seconds. A single span may be larger: it is never split."""


@dataclass(frozen=True, slots=True)
class StagedSpan:
    """The staged rows of one output for the epochs `[lower, upper)`. Without a `schema` the span is vacuous.

    bytes: how many were staged.
    """

    lower: int
    upper: int
    job: str = ""
    schema: pa.Schema | None = None
    files: tuple[StagedFile, ...] = ()
    rows: int = 0
    bytes: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bytes", sum(file.bytes for file in self.files))


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
        if span.schema != first.schema or files > COMMIT_FILES or size > COMMIT_BYTES or rows > COMMIT_ROWS:
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


BYTES: Final = 1 << 30
PIECES: Final = 32
SECONDS: Final = 30.0


@dataclass(slots=True)
class _Waiting:
    """What waits of one output. since: when each piece came, in order; the first may be under way."""

    bytes: int = 0
    since: deque[float] = field(default_factory=deque)

    def full(self, now: float) -> bool:
        """Whether nothing more is to be staged."""
        late = len(self.since) > 1 and now - self.since[1] >= SECONDS
        return self.bytes >= BYTES or len(self.since) >= PIECES or late


class Backlog:
    """The staged rows that are not committed, of the outputs of one worker. Of its thread alone.

    monotonic: seconds that never go back.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic: Final = monotonic
        self._waiting: Final[dict[str, _Waiting]] = {}
        self._wakes: Final[list[Callable[[], None]]] = []

    @property
    def full(self) -> frozenset[str]:
        """The outputs for which nothing more is to be staged at present."""
        now = self._monotonic()
        return frozenset(name for name, waiting in self._waiting.items() if waiting.full(now))

    def attach(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when an output is no longer full."""
        self._wakes.append(wake)

    def add(self, output: str, size: int) -> None:
        """Note that a piece of this size waits for its commit."""
        waiting = self._waiting.setdefault(output, _Waiting())
        waiting.bytes += size
        waiting.since.append(self._monotonic())

    def remove(self, output: str, size: int) -> None:
        """Note that the first piece, of this size, waits no longer: it is committed, or given up."""
        waiting, now = self._waiting[output], self._monotonic()
        was_full = waiting.full(now)
        waiting.bytes -= size
        waiting.since.popleft()
        if was_full and not waiting.full(now):
            for wake in self._wakes:
                wake()
