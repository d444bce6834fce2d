"""The lease of a run is renewed beside it, for as long as the run goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidegauge.errors.base import Transient
from tidegauge.remap.store import Lease

__all__ = ["renewing"]

_FAREWELL = 1.0
"""Seconds for which a renewal under way is waited for in the end. One of a store that is away may take longer, and
does no harm then: a lease that was given back is not renewed."""


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
        thread.join(_FAREWELL)
