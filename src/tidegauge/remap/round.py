"""One tick of the flow: who asked for it, and which sources have answered to it.

Invariants. A round ends when every source that was asked has answered, or at its deadline; a source that did not
answer keeps its frontier and the others go on. An answer costs the same, however many sources there are. A tick
answers all requests made before it begins, and the next one those made while it is under way, because their sources
may have been asked already. So everything that was upstream at the time of a request is in the epoch of the answer,
or in one before.

>>> tick = Round(number=1, deadline=10.0, awaited={"orders", "clicks"})
>>> tick.answered("orders")
>>> tick.over(now=3.0), tick.over(now=10.0)
(False, True)
>>> tick.answered("clicks")
>>> tick.over(now=3.0)
True
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.running import CannotTick
from tidegauge.remap.binding import Bound, Observation

__all__ = ["Answer", "Asking", "Failure", "Requests", "Round"]


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks sources to probe, and tells them the durable bindings of each."""

    number: int
    bounds: Mapping[str, Bound]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a source answered to a tick: an observation, or the error that kept it from making one.

    With an observation, the error is why the source gets no further at present. attempt: how many errors there were
    in a row.
    """

    source: str
    tick: int
    observed: Observation | None = None
    error: TidegaugeError | None = None
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """An error at an epoch: of a source (`output` is None), or of one output of it only.

    Where it is definite, nothing of the epoch or later is given to the outputs that it concerns.
    """

    source: str
    output: str | None
    epoch: int
    error: TidegaugeError


@dataclass(slots=True)
class Round:
    """One tick and who has not answered to it yet; the set is the round's own."""

    number: int
    deadline: float
    awaited: set[str]

    def answered(self, source: str) -> None:
        """Wait for this source no more."""
        self.awaited.discard(source)

    def over(self, *, now: float) -> bool:
        """Whether there is nobody left to wait for."""
        return not self.awaited or now >= self.deadline


class Requests:
    """The ticks that other threads ask a flow for. Closed at first; a run opens them, and closes them when it ends.

    Invariant: every future that `ask` returns is answered, with an error at the latest when the run ends. There is no
    lock: `ask` appends and then looks at a flag, `close` does the two in the other order, and so no request is left
    behind.

    >>> requests = Requests("shop")
    >>> requests.open(wake=lambda: None)
    >>> early = requests.ask(); _ = requests.begin(); late = requests.ask()
    >>> requests.answer(42)
    >>> early.result(), late.done()
    (42, False)
    >>> requests.close()
    >>> print(late.exception().summary)
    the flow 'shop' cannot be ticked: its run has ended
    """

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._wake: Callable[[], object] | None = None
        self._thread = 0
        self._waiting: deque[Future[int | None]] = deque()
        self._under_way: list[Future[int | None]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return (Requests, (self._flow,))  # a copy in another process knows of no run

    @property
    def own_thread(self) -> bool:
        """Whether this thread is the one that makes the ticks, which would wait for itself."""
        return self._wake is not None and self._thread == threading.get_ident()

    def ask(self) -> Future[int | None]:
        """Ask for a tick, from any thread. The future gives its epoch, or None when there was nothing new.

        It raises `CannotTick` when there is no run or it ends before, `TickHeld` when a required source is missing.
        """
        future: Future[int | None] = Future()
        self._waiting.append(future)
        wake = self._wake
        if wake is None:
            self._refuse(self._taken(), CannotTick(flow=self._flow, why="it does not run"))
        else:
            wake()
        return future

    def open(self, wake: Callable[[], object]) -> None:
        """Begin to take requests, which this thread is going to answer. wake: called when there is one."""
        self._thread = threading.get_ident()
        self._wake = wake

    def begin(self) -> bool:
        """A tick begins: whether anybody asked for it."""
        self._under_way += self._taken()
        return bool(self._under_way)

    def answer(self, epoch: int | None) -> None:
        """The tick is over and bound this epoch, or nothing."""
        for future in self._under_way:
            future.set_result(epoch)
        self._under_way.clear()

    def refuse(self, error: Exception) -> None:
        """The tick is over and could bind nothing."""
        self._refuse(self._under_way, error)
        self._under_way.clear()

    def close(self) -> None:
        """Refuse all waiting requests, and all later ones."""
        self._wake = None
        ended = CannotTick(flow=self._flow, why="its run has ended")
        self.refuse(ended)
        self._refuse(self._taken(), ended)

    def _taken(self) -> list[Future[int | None]]:
        taken = []
        while self._waiting:
            try:
                taken.append(self._waiting.popleft())
            except IndexError:  # another thread was quicker
                break
        return taken

    @staticmethod
    def _refuse(futures: Iterable[Future[int | None]], error: Exception) -> None:
        for future in futures:
            future.set_exception(error)
