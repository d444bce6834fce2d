"""The pace of first rows: a limit of rows a second, over all connections that read them together.

Law: in any stretch of T seconds at most `rate * T` rows are read, besides one step of each connection and the rows
that came with it. A reader that waits takes nothing from its connection, so the server soon stops to send, and to
read.

>>> pace = RowsPace(1000, lambda: 0.0)
>>> pace.step, pace.read(100), pace.read(100)
(100, 0.1, 0.2)
>>> RowsPace(None).read(100)
0.0
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from tidegauge.limiter import Limiter

__all__ = ["RowsPace"]

_STEP: Final = 512
"""Rows after which a reader asks how long to wait, and whether to stop."""
_SHARE: Final = 10


class RowsPace:
    """The pace of several threads. rate: rows a second, None for any number."""

    def __init__(self, rate: int | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.step: Final = _STEP if rate is None else min(_STEP, max(1, rate // _SHARE))
        """Rows after which to ask: a tenth of a second's worth at most."""
        self._limiter = None if rate is None else Limiter(rate)
        self._monotonic: Final = monotonic
        self._lock: Final = threading.Lock()

    def read(self, rows: int) -> float:
        """Take in that rows were read; return how many seconds to wait before the next ones."""
        if self._limiter is None:
            return 0.0
        with self._lock:
            self._limiter, wait = self._limiter.step(self._monotonic(), rows)
        return wait
