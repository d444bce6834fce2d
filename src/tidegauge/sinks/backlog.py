"""The backlog: how much is staged of each output and waits for its commit.

Commits run beside the worker, and staging goes on meanwhile. A sink that takes longer to commit than tasks take to
stage would have all that upstream holds lie staged on the disk; so who stages looks here first.

Invariant: what waits of an output is less than `LIMIT` bytes before one more job is begun for it.

>>> backlog = Backlog()
>>> backlog.add("topic", LIMIT)
>>> backlog.full
frozenset({'topic'})
>>> backlog.attach(lambda: print("there is room"))
>>> backlog.remove("topic", 1)
there is room
>>> backlog.full
frozenset()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

__all__ = ["LIMIT", "Backlog"]

LIMIT: Final = 1 << 30


class Backlog:
    """What is staged and not committed, of the outputs of one worker. Of its thread alone."""

    def __init__(self) -> None:
        self._bytes: Final = Counter[str]()
        self._wakes: Final[list[Callable[[], None]]] = []

    @property
    def full(self) -> frozenset[str]:
        """The outputs for which nothing more is to be staged at present."""
        return frozenset(name for name, size in self._bytes.items() if size >= LIMIT)

    def attach(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when an output is no longer full."""
        self._wakes.append(wake)

    def add(self, output: str, size: int) -> None:
        """Note that so many bytes wait for their commit."""
        self._bytes[output] += size

    def remove(self, output: str, size: int) -> None:
        """Note that so many bytes wait no longer: they are committed, or given up."""
        before = self._bytes[output]
        self._bytes[output] -= size
        if self._bytes[output] < LIMIT <= before:
            for wake in self._wakes:
                wake()
