"""The backlog: the staged rows of each output that wait for their commit.

Commits run beside the worker, and staging goes on meanwhile. A sink that takes longer to commit than tasks take to
stage would have all that upstream holds lie staged on the disk, in as many pieces as there were jobs, and to stop
would take as long as to commit them; so who stages looks here first. An output that is full is left out of the next
jobs. What it lacks by then is staged as one span.

Invariant: what waits of an output is less than `BYTES`, fewer than `PIECES`, and none but the first waits longer than
`SECONDS`, when one more job is begun for it.

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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["BYTES", "PIECES", "SECONDS", "Backlog"]

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
