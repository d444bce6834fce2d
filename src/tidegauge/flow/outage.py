"""A store that has no room left, or whose disk or server is away, while a flow runs: it waits, and then goes on.

Without its store a flow can neither bind nor publish. So what runs into that ends the worker of the run and not the
run: the commits under way are seen through, and the flow is rendered anew once the store takes writes. It is tried
after growing delays, without end, by what says most: the store is recognised, and the lease is renewed.

A file that was moved on a disk which is there is no outage of anything: somebody did that, and may be about to put
another one in its place. It is waited for until the lease would have run out (`EXPIRY`), and then it is gone.

Invariants. Meanwhile nothing is bound, published or staged. The lease comes first: where another driver has taken it,
`LeaseLost` ends the run; where nobody has, it is ours, however old it is. A store that is another one by then ends it
with `StoreReplaced`. A store that has room for a lease may have none for an epoch: so the delays grow on, and the
outage lasts, until something was bound or published, or nobody ran into it for `QUIET` seconds.

>>> full = StoreFull(url="sqlite:///shop.db", detail="database or disk is full")
>>> env = Env(monotonic=iter([0.0, 0.1, 0.3, 0.3, 0.4]).__next__)
>>> outage = Outage(lambda: print("it is ours"), env=env, spawn=_done)
>>> outage.begin(full, at=(7, 6))
>>> outage.back(), outage.back()
it is ours
(False, True)
>>> outage.lasts(at=(7, 6)), outage.lasts(at=(8, 6))
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime
from typing import Any, Final

from tidegauge.env import Env, Spawn
from tidegauge.errors.base import Transient
from tidegauge.errors.store import StoreAway, StoreFull, StoreReplaced, StoreUnreachable
from tidegauge.flow.away import Away
from tidegauge.remap.store import EXPIRY

__all__ = ["QUIET", "WAITED_FOR", "Outage"]

WAITED_FOR: Final = (StoreFull, StoreAway, StoreUnreachable)
"""The errors of a store that may come back."""

QUIET: Final = 60.0
"""Seconds, twice the longest delay, after which a store that nobody ran into again is well."""


class Outage:
    """Whether the store of a run is away, since when and why. recognise: sees that it and the lease are ours."""

    def __init__(self, recognise: Callable[[], None], *, env: Env, spawn: Spawn) -> None:
        self.waiting = False
        """Whether the run waits for the store; else it goes on, and it will be seen how far it comes."""
        self.away: Away | None = None
        self.since: datetime | None = None
        self._recognise: Final = recognise
        self._env: Final = env
        self._spawn: Final = spawn
        self._attempt: Future[None] | None = None
        self._reached = (0, 0)
        self._back_at = 0.0
        self._moved_at: float | None = None

    def begin(self, error: Exception, *, at: tuple[int, int]) -> None:
        """Note that somebody ran into it. at: how far the flow is bound and published."""
        now = self._env.monotonic()
        self.since = self.since or self._env.now()
        self.away = Away.first(error, now=now) if self.away is None else self.away.again(error, now=now)
        self.waiting, self._reached = True, at
        moved = isinstance(error, StoreAway) and error.evidence["moved"]
        self._moved_at = None if not moved else now if self._moved_at is None else self._moved_at

    def back(self) -> bool:
        """Try again when it is time, beside the caller; say whether the store takes writes.

        Raises `LeaseLost`, and `StoreReplaced`.
        """
        if self._attempt is None and (self.away is None or self.away.due(self._env.monotonic())):
            self._attempt = self._spawn(self._recognise)
        if self._attempt is not None and self._attempt.done():
            attempt, self._attempt = self._attempt, None
            try:
                attempt.result()
            except Transient as error:
                self.begin(error, at=self._reached)
                if self._moved_at is not None and self._env.monotonic() >= self._moved_at + EXPIRY:
                    raise StoreReplaced(**error.evidence) from None
            else:
                self.waiting, self._back_at, self._moved_at = False, self._env.monotonic(), None
        return not self.waiting

    def lasts(self, *, at: tuple[int, int]) -> bool:
        """Say whether the store is away, or was when the flow was last as far as it is now."""
        if self.away is None or self.waiting:
            return self.waiting
        if at == self._reached and self._env.monotonic() < self._back_at + QUIET:
            return True
        self.away, self.since = None, None
        return False


def _done(work: Callable[[], Any]) -> Future[Any]:
    """Do the work here and now."""
    future: Future[Any] = Future()
    future.set_result(work())
    return future
