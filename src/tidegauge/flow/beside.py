"""What goes on beside a run: its lease is renewed, and signals end it.

The first signal lets the run finish its current work, the second one interrupts it.

Invariants. The lease is renewed for as long as the block lasts, and no longer. The handlers are as before when it has
ended. A signal that the process was started to ignore stays ignored, as SIGHUP is under nohup; in another thread than
the main one nothing is handled.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol

from tidegauge.errors.base import Transient
from tidegauge.remap.store import Lease

__all__ = ["FAREWELL", "interruptible", "renewing"]

_TO_END: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

FAREWELL: Final = 1.0
"""Seconds for which a renewal under way is waited for in the end. One of a store that is away may take longer, and
does no harm then: a lease that was given back is not renewed."""


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


@contextmanager
def renewing(
    lease: Lease, *, every: float, missed: Callable[[Transient], None] = lambda _error: None
) -> Iterator[list[Exception]]:
    """Renew the lease at intervals, beside the caller. An error that makes that impossible is added to the list.

    missed: is told in that thread why it could not be renewed this time.
    """
    lost: list[Exception] = []
    over = threading.Event()

    def renew() -> None:
        while not over.wait(every):
            try:
                lease.renew()
            except Transient as error:
                missed(error)  # the next renewal will tell more
            except Exception as error:  # noqa: BLE001 - raised by the runner's own thread
                lost.append(error)
                return

    thread = threading.Thread(target=renew, name="tidegauge-lease", daemon=True)
    thread.start()
    try:
        yield lost
    finally:
        over.set()
        thread.join(FAREWELL)
