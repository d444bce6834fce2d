"""Ticks that other threads ask for, and the answers that they wait for.

Each request gets a future. A tick answers all requests made before it begins; the next one answers requests made
while it is under way, because their sources may have been asked already. So everything that was upstream at the time
of a request is in the epoch of the answer, or in one before.

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
>>> print(late.exception())
TG-0555: the flow 'shop' cannot be ticked: its run has ended
  likely cause: a tick is made by a run of the same Dataflow object in another thread
  what to do:   start flow.run() in its own thread, and call flow.tick() while it runs
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from tidegauge.errors.running import CannotTick

__all__ = ["Requests"]


class Requests:
    """The ticks of a flow that are asked for. Closed at first; a run opens them, and closes them when it ends."""

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
