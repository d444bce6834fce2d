"""The trace of a simulated world: a line an event, with the virtual time, who it was, and what.

Invariant: equal plans have equal traces, in any process.

>>> trace = EventTrace()
>>> trace.note(0.5, "A", "before publish")
>>> print(trace.text())
time      who       what
    0.500 A         before publish
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final

__all__ = ["LEGEND", "EventTrace", "logged"]

LEGEND: Final = """\
time  virtual seconds      A, B, ...  drivers in the order of their start      A.7  what the driver A began seventh
      beside its worker    A.lease  the renewal of its lease                   world  others: writers, brokers, clocks
      operator  who resumes sources, compacts, or skips, by a command that has a letter, too; or takes an output out,
                puts it off, limits late ones, drops or adds one, or has its table made again
      reader, R0, R1, ...  who holds an epoch; what it does, and those who release what it left
      restorer  who puts back an older store, and recovers it by a command that has a letter, too
before/after X  a durable effect of the flow           store X  a transaction of the store
worker step, work done   the end of a step of the worker, or of something beside it; here only if something went wrong
NAME: X         a call of the source or sink NAME      !! X     something went wrong here, as the plan has it
log: X          what the driver logged
hold N, let go           a reader comes for N seconds; what nobody holds is compacted
put off NAME N, limit N  an output is paused for N seconds; late outputs read N rows a second
drop NAME N              somebody drops an output; its table goes, too, if N is even; anew NAME N: under a driver
add NAME N               the driver is to take an output in, which it did without for N seconds
remake NAME N            a table is made again: 1 by the same code, 2 by other, 5 while nobody runs the flow, 10 by
                         other and then yet another, 40 by other, and that is taken back; -1 is the rate auto
clock N, drift N         the wall clocks of the drivers jump by N seconds; run at N percent of the right rate
"""


class EventTrace:
    """The events so far."""

    def __init__(self) -> None:
        self.events: Final[list[tuple[float, str, str]]] = []

    def note(self, at: float, who: str, what: str) -> None:
        """Add an event."""
        self.events.append((at, who, what))

    def digest(self) -> str:
        """Return 16 hex digits that tell one trace from another."""
        return blake2b(repr(self.events).encode(), digest_size=8).hexdigest()

    def text(self, *, last: int | None = None) -> str:
        """Return the trace for people; last: only this number of events before its end."""
        shown = self.events if last is None else self.events[-last:]
        lines = [f"{at:9.3f} {who:<9} {what}" for at, who, what in shown]
        left = len(self.events) - len(shown)
        return "\n".join(["time      who       what", *([f"... {left} events before"] if left else []), *lines])


class _Logged(logging.Handler):
    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(f"log: {record.getMessage()}")


@contextmanager
def logged(note: Callable[[str], None]) -> Iterator[None]:
    """Have what Tidegauge logs meanwhile noted and not printed: the clocks that it warns of are a world's own."""
    logger, handler = logging.getLogger("tidegauge"), _Logged(note)
    before, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before
