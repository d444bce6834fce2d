"""Which outputs are paused at present: the operators of a worker ask here before they begin anything for one.

A paused output is staged no more, its staged rows are not committed, and publishing does not wait for it. A job or a
commit that is under way is finished.

Invariant: of the worker's thread alone. Each operator that is attached is woken after each change, and sees it then.

>>> pausing = Pausing(["late"])
>>> pausing.attach(lambda: print(sorted(pausing.outputs)))
>>> pausing.become(["late"])
>>> pausing.become([])
[]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["Pausing"]


class Pausing:
    """The outputs that are paused."""

    def __init__(self, outputs: Iterable[str] = ()) -> None:
        self.outputs = frozenset(outputs)
        self._wakes: Final[list[Callable[[], None]]] = []

    def attach(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when other outputs are paused than before."""
        self._wakes.append(wake)

    def become(self, outputs: Iterable[str]) -> None:
        """Pause these outputs from now on, and no others."""
        if (now := frozenset(outputs)) != self.outputs:
            self.outputs = now
            for wake in self._wakes:
                wake()
