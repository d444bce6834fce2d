"""What a run has begun beside its worker, until it ends: commits, say, or words to upstream.

Invariant: nobody is interrupted in it. A run that ends waits for its commits, unless somebody interrupts it there.

>>> from concurrent.futures import ThreadPoolExecutor
>>> with ThreadPoolExecutor() as threads:
...     commits = UnderWay(threads.submit)
...     commits.begin(lambda: 5).result(), commits.wait(), commits.over
(5, True, True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, Final

from tidegauge.env import Spawn

__all__ = ["UnderWay"]


class UnderWay:
    """Some work of one kind. spawn: runs something beside the caller."""

    def __init__(self, spawn: Spawn) -> None:
        self._spawn: Final = spawn
        self._known: Final[list[Future[Any]]] = []

    def begin(self, work: Callable[[], Any]) -> Future[Any]:
        """Run something beside the worker, and know of it until it ends."""
        future = self._spawn(work)
        self._known[:] = [*(one for one in self._known if not one.done()), future]
        return future

    @property
    def over(self) -> bool:
        """Whether nothing is under way."""
        return all(one.done() for one in self._known)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until nothing is under way, at most for some seconds; say whether that is so. None: for as long as it
        takes."""
        return not wait(self._known, timeout=seconds).not_done

    @contextmanager
    def seen_through(self) -> Iterator[None]:
        """Wait for it at the end of a block; not when somebody has interrupted that (see `persist`)."""
        try:
            yield
        except Exception:
            self.wait()
            raise
        self.wait()
