"""What the commits of a span carry is asked of the store once, however many outputs commit it.

Invariant: the answer for a span does not change while a flow runs, as bindings do not. So concurrent callers wait for
the first one.

>>> asked = []
>>> tell = OncePerSpan(lambda lower, upper, *, whole: asked.append((lower, upper, whole)) or History((), "d"))
>>> [tell(0, 3, whole=False).before for _ in range(50)] == 50 * ["d"], asked
(True, [(0, 3, False)])
"""

from __future__ import annotations

import threading
from typing import Final

from tidegauge.remap.history import History
from tidegauge.sinks.persist import HistoryTeller

__all__ = ["OncePerSpan"]

KEPT: Final = 8
"""The spans whose answers are kept: outputs that follow each other closely commit the same few."""


class OncePerSpan:
    """Tells the history of a span, and remembers what it told last."""

    def __init__(self, ask: HistoryTeller) -> None:
        self._ask: Final = ask
        self._told: Final[dict[tuple[int, int, bool], History]] = {}
        self._lock: Final = threading.Lock()

    def __call__(self, lower: int, upper: int, *, whole: bool) -> History:
        """Return the history of the epochs `[lower, upper)`; see `Store.history`."""
        with self._lock:
            key = (lower, upper, whole)
            if key not in self._told:
                found = self._ask(lower, upper, whole=whole)
                while len(self._told) >= KEPT:
                    del self._told[next(iter(self._told))]
                self._told[key] = found
            return self._told[key]
