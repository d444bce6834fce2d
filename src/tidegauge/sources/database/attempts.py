"""Attempts to read the first rows of tables that were added: what came of the last one, and when the next one is due.

Invariant: what keeps added tables from being read is logged once, is tried again after growing delays, and raises
nothing: the other tables go on.

>>> from tidegauge.sources.database.clock import HERE
>>> attempts = RowsAttempts("the database shop", HERE)
>>> attempts.due, attempts.failure
(True, None)
>>> attempts.failed(["shop.users"], OSError("no space left"))
>>> attempts.due, attempts.failure.code
(False, 'TG-0552')
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.running import SourceUnreachable
from tidegauge.sources.database.clock import ServerClock
from tidegauge.sources.sweep import backoff

__all__ = ["RowsAttempts"]

_log: Final = logging.getLogger(__name__)


class RowsAttempts:
    """The attempts of one connection. source: for people."""

    def __init__(self, source: str, clock: ServerClock) -> None:
        self.failure: TidegaugeError | None = None
        """What the last attempt came to, while it is to be made again."""
        self._source: Final = source
        self._clock: Final = clock
        self._failed, self._due_at = 0, float("-inf")
        self._told: Final[dict[str, str]] = {}
        """The errors that were logged last, by the names of tables."""

    @property
    def due(self) -> bool:
        """Whether it is time for the next one."""
        return self._clock.monotonic() >= self._due_at

    def tell(self, tables: Collection[str], error: Exception) -> None:
        """Log why tables have to wait, once."""
        named = ", ".join(tables)
        if self._told.get(named) != str(error):
            self._told[named] = str(error)
            waiting = f"the table {named} has" if len(tables) == 1 else f"the tables {named} have"
            _log.warning("%s: %s to wait: %s", self._source, waiting, error)

    def failed(self, tables: Collection[str], error: Exception) -> None:
        """Take in what kept tables from being read."""
        self.tell(tables, error)
        wrapped = {"source": self._source, "error": type(error).__name__, "detail": str(error)}
        self.failure = error if isinstance(error, TidegaugeError) else SourceUnreachable(**wrapped)
        self._failed += 1
        self._due_at = self._clock.monotonic() + backoff(self._failed)

    def succeeded(self) -> None:
        """Take in that tables were read."""
        self._failed, self.failure = 0, None
