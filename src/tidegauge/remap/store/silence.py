"""A connection to PostgreSQL that does not wait for ever: a server that says nothing for too long is gone.

Invariant: a caller that waits for an answer gets one, or an error, however the network fails. The kernel finds out
about a line that is cut; it does not about something in between that accepts every byte and passes nothing on.

psycopg is imported here, so this module is imported when the first connection is made.

>>> def answering(pieces):
...     for _ in range(pieces):
...         yield "readable"
...     return "the answer"
>>> waiting = heard(answering(2), patience=60.0, give_up=lambda: None)
>>> next(waiting), waiting.send(True)
('readable', 'readable')
>>> try:
...     waiting.send(True)
... except StopIteration as over:
...     over.value
'the answer'
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, Final

import psycopg

__all__ = ["PATIENCE", "Listener", "heard"]

PATIENCE: Final = 30.0
"""Seconds of silence after which a server is given up. A lock is waited for less long; a lease lasts no longer."""


def heard(
    waiting: Generator[Any, Any, Any],
    *,
    patience: float,
    give_up: Callable[[], None],
    busy: Callable[[], bool] = lambda: False,
) -> Generator[Any, Any, Any]:
    """Pass on what a connection waits for. When nothing came for `patience` seconds, give up and raise
    `OperationalError`. busy: asked then whether the server has a reason, so that it is waited for as long again."""
    last = time.monotonic()
    try:
        wanted = next(waiting)
        while True:
            ready = yield wanted
            if ready:
                last = time.monotonic()
            elif time.monotonic() - last > patience:
                if busy():
                    last = time.monotonic()
                    continue
                ready = yield wanted  # its word may have come meanwhile
                if not ready:
                    give_up()
                    raise psycopg.OperationalError(f"the server has said nothing for {patience:g} seconds")
            wanted = waiting.send(ready)
    except StopIteration as over:
        return over.value


class Listener(psycopg.Connection[Any]):
    """A connection that closes itself when the server falls silent. psycopg has no other seam for it."""

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **settings: Any) -> Any:
        """Wait as psycopg does, but no longer than `PATIENCE` seconds for the next word."""
        return super().wait(heard(gen, patience=PATIENCE, give_up=self.close), *args, **settings)
