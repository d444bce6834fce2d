"""Threads: of a function that takes a while, and of one that is called again and again until it is told to end.

Invariant: an exception in such a thread is not lost: it is raised where somebody asks for the thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Beside", "Repeated"]


class Beside:
    """A function in a thread."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether it has ended. Raises what ended it."""
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def join(self) -> None:
        """Wait for its end, whatever that is."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error


class Repeated:
    """A function that is called again and again, so many seconds apart."""

    def __init__(self, name: str, work: Callable[[], None], *, every: float) -> None:
        self._told = threading.Event()
        self._work, self._every = work, every
        self._beside = Beside(name, self._run)

    def check(self) -> None:
        """Raise what ended it."""
        _ = self._beside.over

    def leave(self) -> None:
        """End it, whatever it met."""
        self._told.set()
        self._beside.join()

    def finish(self) -> None:
        """End it. Raises what it met."""
        self.leave()
        self.check()

    def _run(self) -> None:
        while not self._told.wait(self._every):
            self._work()
