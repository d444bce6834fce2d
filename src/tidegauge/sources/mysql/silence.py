"""A server that sends nothing: whether there is nothing, it has closed its log, or it has begun another one.

    signs of life, and nothing else, for a while      look how far its log goes
    it goes less far than what it has sent            another log: connect again, which tells of the loss
    it goes further, and two signs of life later      the same: after RESET MASTER a MySQL sends nothing of its new
    still nothing else has come                       log, and keeps the session

Invariant: whatever comes but signs of life begins all of it anew, so a large transaction under way is no silence.

>>> now, ends = [0.0], [Frontier({"3": 6})]
>>> silence = LogSilence("db", lambda: now[0], lambda: ends[0])
>>> now[0] = 11.0
>>> silence.listen(Frontier({"3": 5}))
>>> silence.heard(27, {"3": 5})
>>> silence.heard(27, {"3": 5})
Traceback (most recent call last):
...
tidegauge.errors.mysqlsource.BinlogServerAway: TG-0332: db cannot be read at present: its log goes on to 3:6, ...
>>> silence.heard(30, {"3": 8})
>>> now[0] = 22.0
>>> silence.listen(Frontier({"3": 8}))
Traceback (most recent call last):
...
tidegauge.errors.mysqlsource.BinlogServerAway: TG-0332: db cannot be read at present: its log ends at 3:6, ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from tidegauge.errors.base import Transient
from tidegauge.errors.mysqlsource import BinlogServerAway
from tidegauge.remap.frontier import Frontier

__all__ = ["LOOKS", "LogSilence"]

LOOKS: Final = 10.0
"""Seconds after which a server that sends nothing is looked at."""
_SIGN: Final = 27
"""The type of a sign of life (HEARTBEAT)."""


class LogSilence:
    """The events that have come of the stream. source: for people. end: how far the log goes; what
    it raises is passed on, if that is for good."""

    def __init__(self, source: str, clock: Callable[[], float], end: Callable[[], Frontier]) -> None:
        self._source: Final = source
        self._clock: Final = clock
        self._end: Final = end
        self._since = clock()
        self._owed: Frontier | None = None
        self._signs = 0

    def heard(self, kind: int, reached: Mapping[str, int]) -> None:
        """Take in the last event that has come. Raises `BinlogServerAway`."""
        if kind != _SIGN:
            self._since, self._owed, self._signs = self._clock(), None, 0
            return
        self._signs += 1
        if self._owed is not None and self._signs > 1 and not self._owed.less_equal(Frontier(reached)):
            raise self._other(f"goes on to {_shown(self._owed)}, and it sends nothing after {_shown(reached)}")

    def listen(self, reached: Frontier) -> None:
        """Look at the server, where nothing has come for a while. Raises `BinlogServerAway`, `BinlogClosed`."""
        owes = self._owed is not None and not self._owed.less_equal(reached)
        if owes or self._clock() - self._since < LOOKS:
            return
        self._since, self._signs, self._owed = self._clock(), 0, None
        with suppress(Transient):  # the stream itself tells of a server that is away
            self._owed = self._end()
        if self._owed is not None and not reached.less_equal(self._owed):
            raise self._other(f"ends at {_shown(self._owed)}, and it has sent {_shown(reached)}")

    def _other(self, detail: str) -> BinlogServerAway:
        return BinlogServerAway(source=self._source, detail=f"its log {detail}")


def _shown(reached: Mapping[str, int]) -> str:
    return " and ".join(f"{one}:{next_}" for one, next_ in sorted(reached.items()))
