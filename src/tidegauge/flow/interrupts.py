"""Signals that end a run: the first one lets it finish its current work, the second one interrupts it.

Invariant: the handlers are as before when the block has ended. A signal that the process was started to ignore stays
ignored, as SIGHUP is under nohup; in another thread than the main one nothing is handled.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol

__all__ = ["interruptible"]

_TO_END: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stopping(Protocol):
    """Anything that a signal stops."""

    stopping: bool

    def stop(self) -> None:
        """Begin nothing more."""
        ...


@contextmanager
def interruptible(run: Stopping) -> Iterator[None]:
    """Make the first signal to end stop the run after its current work; a second one interrupts at once."""

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        if run.stopping:
            raise KeyboardInterrupt
        run.stop()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Mapping[int, Any] = {
        number: signal.signal(number, interrupted)
        for number in _TO_END
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
