"""The backlog: the staged rows of each output that wait for their commit, and which are committed together.

Commits run beside the worker, and staging goes on meanwhile. A table whose commits take longer than jobs do would
have one commit for each of many small spans before it; so those that wait while a commit is under way become one,
as large as a commit may be (`merged`, a pure decision). And all that upstream holds would lie staged on the disk,
and a stop would take as long as to commit it; so the stage asks here first (`Backlog`). An output that is full is
left out of the next jobs. What it lacks by then is staged as one span.

An output with a `Cadence` gathers: its spans are not committed before enough of them wait, or the first has waited
long enough. While nothing more will come, or the run is about to stop, nobody gathers.

Invariants. Spans are committed in their order, each whole, and nothing between them is left out that is not
vacuous: a merged span goes from the lower of its first to the upper of its last and has all their files. What waits
of an output is less than `BYTES`, fewer than `PIECES`, and none but the first waits longer than `SECONDS`, when one
more job is begun for it. One that gathers may have `MOST` pieces, and `SECONDS` begin when it is to be committed.

>>> none = pa.schema([])
>>> waiting = [StagedSpan(0, 1, "a", none, rows=1), StagedSpan(1, 5), StagedSpan(5, 6, "b", none, rows=2)]
>>> count, whole = merged(waiting)
>>> count, whole.lower, whole.upper, whole.rows, whole.job
(3, 0, 6, 3, 'b')
>>> merged(waiting, at_most=1) == (1, waiting[0])
True

>>> clock = [0.0]
>>> backlog = Backlog(lambda: clock[0], {"gathers": Cadence(5.0)})
>>> large = StagedSpan(0, 1, "a", none, (StagedFile("a", 1, BYTES, 0, 0),))
>>> backlog.add("topic", large)
>>> backlog.full
frozenset({'topic'})
>>> backlog.attach(lambda: print("there is room, or gathering is over"))
>>> backlog.remove("topic")
there is room, or gathering is over
>>> for span in waiting: backlog.add("topic", span); backlog.add("gathers", span)
>>> backlog.full, backlog.rest("topic"), backlog.rest("gathers")
(frozenset(), 0.0, 5.0)
>>> clock[0] = SECONDS; backlog.full, backlog.rest("gathers")
(frozenset({'topic'}), 0.0)
>>> clock[0] = 4.0; backlog.gather_no_more(); backlog.rest("gathers")
there is room, or gathering is over
0.0
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from tidegauge.sinks.cadence import MOST, Cadence
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


_AT_ONCE: Final[Mapping[str, Cadence]] = MappingProxyType({})


@dataclass(slots=True)
class _Waiting:
    """What waits of one output, with when each piece came, in order; the first may be under way."""

    cadence: Cadence | None
    bytes: int = 0
    pieces: deque[tuple[StagedSpan, float]] = field(default_factory=deque)

    def full(self, now: float) -> bool:
        """Whether nothing more is to be staged."""
        most, longest = (PIECES, SECONDS) if self.cadence is None else (MOST, self.cadence.seconds + SECONDS)
        late = len(self.pieces) > 1 and now - self.pieces[1][1] >= longest
        return self.bytes >= BYTES or len(self.pieces) >= most or late

    def rest(self, now: float) -> float:
        """Return for how many seconds more it gathers."""
        if self.cadence is None or not self.pieces or len(self.pieces) >= MOST:
            return 0.0
        (first, since), (last, _) = self.pieces[0], self.pieces[-1]
        return self.cadence.rest(bytes=self.bytes, epochs=last.upper - first.lower, age=now - since)


class Backlog:
    """The staged rows that are not committed, of the outputs of one worker. Of its thread alone.

    monotonic: seconds that never go back. cadences: those of the outputs that gather.
    """

    def __init__(self, monotonic: Callable[[], float], cadences: Mapping[str, Cadence] = _AT_ONCE) -> None:
        self._monotonic: Final = monotonic
        self._cadences = dict(cadences)
        self._waiting: Final[dict[str, _Waiting]] = {}
        self._wakes: Final[list[Callable[[], None]]] = []

    @property
    def full(self) -> frozenset[str]:
        """The outputs for which nothing more is to be staged at present."""
        now = self._monotonic()
        return frozenset(name for name, waiting in self._waiting.items() if waiting.full(now))

    def rest(self, output: str) -> float:
        """Return in how many seconds what waits of an output is to be committed: 0.0 for now."""
        return self._waiting[output].rest(self._monotonic())

    def gather_no_more(self) -> None:
        """Have all that waits committed, and what comes as soon as it can be."""
        if self._cadences:
            self._cadences.clear()
            for waiting in self._waiting.values():
                waiting.cadence = None
            self._wake()

    def attach(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when an output is no longer full, and when none gathers any more."""
        self._wakes.append(wake)

    def add(self, output: str, span: StagedSpan) -> None:
        """Note that a piece waits for its commit."""
        if output not in self._waiting:
            self._waiting[output] = _Waiting(self._cadences.get(output))
        waiting = self._waiting[output]
        waiting.bytes += span.bytes
        waiting.pieces.append((span, self._monotonic()))

    def remove(self, output: str) -> None:
        """Note that the first piece waits no longer: it is committed, or given up."""
        waiting, now = self._waiting[output], self._monotonic()
        was_full = waiting.full(now)
        span, _since = waiting.pieces.popleft()
        waiting.bytes -= span.bytes
        if was_full and not waiting.full(now):
            self._wake()

    def _wake(self) -> None:
        for wake in self._wakes:
            wake()
