"""Where the partitions of a bytewax source run in a simulated world: each is an actor of its driver.

A lock and its news are for actors here: one that comes to the lock may find that others go first, and one that waits
goes on when there is news, or when its virtual time is over.

Invariant: of the actors in one `ActorNews`, one is inside.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, TypeVar

from tidegauge.env import Env
from tidegauge.sources.bytewax.apart import PullThreads
from tidegauge.testing.simulation.upstream.attending import ActorMeeting

__all__ = ["ActorNews", "in_actors"]

T = TypeVar("T")
_LEAST: Final = 1e-6
"""Seconds of the shortest wait: less would be none to a clock that is far on."""


class ActorNews:
    """A lock, and news for actors that wait for any; see `News`. clock: seconds that never go back."""

    def __init__(self, meet: ActorMeeting, clock: Callable[[], float]) -> None:
        self._meet: Final = meet
        self._clock: Final = clock
        self._taken = False
        self._told = 0

    def __enter__(self) -> bool:
        self._meet.wait(lambda: True, 0.0)
        while self._taken:
            self._meet.wait(lambda: not self._taken, None)
        self._taken = True
        return True

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None, /
    ) -> None:
        self._taken = False

    def wait(self, timeout: float | None = None) -> bool:
        """Let others in, and come back with news, or when the time is over; whether with news."""
        told, self._taken = self._told, False
        self._meet.wait(lambda: self._told != told, None if timeout is None else max(timeout, _LEAST))
        heard = self._told != told
        self.__enter__()
        return heard

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Wait until something is so at some news, or until the time is over; return its last answer."""
        end = None if timeout is None else self._clock() + timeout
        while not (so := predicate()) and (end is None or self._clock() < end):
            self.wait(None if end is None else end - self._clock())
        return so

    def notify_all(self) -> None:
        """Have all who wait look."""
        self._told += 1


def in_actors(meet: ActorMeeting, env: Env) -> PullThreads:
    """Return the place where a driver's partitions run. env: its world."""
    return PullThreads(meet.begin, lambda: ActorNews(meet, env.monotonic), env.monotonic, env.now)
