"""How fast late outputs are read: a limit of rows a second, over all of a flow's late jobs together.

`Pacing` keeps a `Limiter` for the stage operator, and says how much one job may read: a second's worth.

Law: in any stretch of T seconds there begin to be read at most `rate * T` rows, and one job's besides. Where a job is
a second's worth, these are `rate * (T + 1)`. Invariant: under a rate one late job is under way at a time, however
many tasks its engine makes of it; so the limit is that of the flow, and not of each task.

>>> Pacing(lambda: 0.0, 100).most("orders", "records")
100
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, TypeVar

from tidegauge.limiter import Limiter

__all__ = ["Pacing"]

_Group = TypeVar("_Group", bound=Hashable)
_Need = TypeVar("_Need")


class Pacing:
    """The pace of late jobs. Of the worker's thread alone.

    rate: None for no limit, and 0, which pauses the outputs (`flow.deciding`), does not count as one. within: the
    seconds after a job within which the next one may begin, whatever the rate; None for as long as it takes.
    """

    def __init__(
        self, monotonic: Callable[[], float], rate: int | None = None, *, within: float | None = None
    ) -> None:
        self._monotonic: Final = monotonic
        self._within = within
        self._ended_at = float("-inf")
        self._limiter: Limiter | None = Limiter(rate) if rate else None
        self._under_way: tuple[Hashable, str, float] | None = None
        self._sizes: Final[dict[str, float]] = {}
        """How many positions a row of a source takes."""
        self._read: Final[dict[str, tuple[int, int]]] = {}
        """How many positions of a source were read, and how many rows."""
        self._turns: Final[dict[Hashable, float]] = {}
        self._wakes: Final[list[Callable[[], None]]] = []

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self._limiter is not None

    def attach(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when the rate is another one."""
        self._wakes.append(wake)

    def become(self, rate: int | None, *, within: float | None = None) -> None:
        """Go at this rate from now on."""
        before, self._within = self._limiter, within
        if not rate:
            self._limiter = None
        elif before is None:
            self._limiter = Limiter(rate)
        elif rate != before.rate:
            self._limiter = before.changed(rate, now=self._monotonic())
        if self._limiter != before:
            for wake in self._wakes:
                wake()

    def wait(self) -> float | None:
        """Return the seconds until a late job may begin; None until the one that is under way has ended."""
        if self._limiter is None:
            return 0.0
        if self._under_way is not None:
            return None
        now = self._monotonic()
        wait = self._limiter.wait(now)
        return wait if self._within is None else min(wait, max(0.0, self._ended_at + self._within - now))

    def most(self, source: str, unit: str) -> int | None:
        """Return how many positions of a source are a second's worth, None for any number.

        How many bytes a row takes is measured, by the last job and by all of them: the less counts. Before the first
        one it is a single byte, which no row is smaller than.
        """
        if self._limiter is None:
            return None
        size = self._sizes.get(source, 1.0) if unit == "bytes" else 1.0
        return max(1, int(self._limiter.rate * size))

    def begin(self, group: Hashable, source: str) -> None:
        """A late job begins, which reads a source."""
        if self._limiter is not None:
            self._under_way = group, source, self._monotonic()
            self._turns[group] = self._monotonic()

    def end(self, group: Hashable, rows: int, *, size: int = 0) -> None:
        """A job has ended, which has read this many rows, in `size` positions."""
        if self._under_way is None or self._under_way[0] != group:
            return
        (_group, source, began), self._under_way = self._under_way, None
        self._ended_at = self._monotonic()
        if rows:
            before, all_rows = self._read.get(source, (0, 0))
            sizes, all_rows = self._read[source] = before + size, all_rows + rows
            self._sizes[source] = min(size / rows, sizes / all_rows)
        if self._limiter is not None:
            self._limiter, _wait = self._limiter.step(began, rows)

    def in_turn(self, wanted: Mapping[_Group, _Need]) -> dict[_Group, _Need]:
        """Return needs in the order of their turns: a group that has waited longest comes first."""
        return dict(sorted(wanted.items(), key=lambda item: self._turns.get(item[0], float("-inf"))))
