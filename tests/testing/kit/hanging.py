"""Calls that hang, and checks whose deadline comes as soon as one does: no earlier, however slow the machine is."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.waiting import eventually

from tidegauge.testing.kit import trial

__all__ = ["HOME", "hang", "hung"]

HOME = os.getpid()
"""The process that loaded this module, and not one that was forked from it."""
_HANGS, _LEFT = threading.Event(), threading.Event()


def hang() -> None:
    """Hang until the end of the test. In a driver in a process of its own, its time is over at once."""
    _HANGS.set()
    if os.getpid() != HOME:
        [watch] = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
        threading.Thread(target=watch.function, daemon=True).start()
    _LEFT.wait()


class _Over(threading.Event):
    """The end of a law, which a check waits for until its deadline."""

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        eventually(lambda: self.is_set() or _HANGS.is_set(), within=120)
        return self.is_set()


@contextmanager
def hung() -> Iterator[None]:
    """Checks whose deadline is so. What hangs in them comes to its end with them."""
    _HANGS.clear()
    _LEFT.clear()
    made: Any = trial._Trial
    overs = list[_Over]()

    def trying(*given: Any) -> Any:
        overs.append(_Over())
        return made(*given, over=overs[-1])

    try:
        with mock.patch.object(trial, "_Trial", trying):
            yield
    finally:
        _LEFT.set()
        eventually(lambda: all(over.is_set() for over in overs))
