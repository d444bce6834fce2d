"""An attendant of a source in a simulated world: it meets the world at each look, and polls in an actor beside it.

Invariant: it waits in virtual time alone, and starts no thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

from tidegauge.env import Env, at_once
from tidegauge.remap.binding import Bound, Observation
from tidegauge.sources.abilities import Attendant
from tidegauge.sources.bytewax.source import BytewaxSource
from tidegauge.sources.listings.source import ListingSource
from tidegauge.sources.polls.http import HttpSource
from tidegauge.sources.polls.poller import Beside
from tidegauge.sources.polls.source import PollingSource

__all__ = ["ATTENDED_POINTS", "BYTEWAX_POINTS", "ActorMeeting", "MetAttendant", "attended_in", "is_polled"]

ATTENDED_POINTS: Final = ("poll", "polled", "fetch", "fetched")
"""What `meet` is called with around each poll, and around each question of it, besides what all sources call it with.

A listing is one question, so it has no points of its own.
"""
BYTEWAX_POINTS: Final = ("poll", "polled", "list", "build", "fetch", "fetched", "snapshot")
"""What `meet` is called with around each poll of a bytewax source, and in the methods of its connector."""


@runtime_checkable
class ActorMeeting(Protocol):
    """How a driver meets the world, where it waits in it and has actors."""

    def __call__(self, call: str, /) -> None:
        """Come to a place."""
        ...

    def wait(self, ready: Callable[[], bool], seconds: float | None) -> None:
        """Return when something is so, or after a number of seconds, if one is given."""
        ...

    def spawn(self, work: Callable[[], Any]) -> Future[Any]:
        """Run a function beside the worker."""
        ...

    def gone(self) -> bool:
        """Whether the driver is."""
        ...

    def begin(self, name: str, work: Callable[[], None]) -> None:
        """Run a function of a name beside the worker, which nobody hears of."""
        ...


class _Awaited(Future[None]):
    """A poll under way, for which a look waits in virtual time."""

    def __init__(self, meet: ActorMeeting) -> None:
        super().__init__()
        self._meet = meet

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done() and timeout:
            self._meet.wait(self.done, timeout)
        return super().exception(0)


@dataclass(frozen=True, slots=True)
class MetAttendant:
    """An attendant that behaves as the one it wraps, and meets the world before and after each look."""

    inner: Attendant
    meet: Callable[[str], None]

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Look with the inner attendant."""
        self.meet("probe")
        observed = self.inner.probe(bound, now=now)
        self.meet("probed")
        return observed

    def close(self) -> None:
        """Let the inner attendant begin nothing more."""
        self.inner.close()


def is_polled(source: object) -> bool:
    """Whether a source is asked by its running flow alone, and something in memory stands in for its upstream."""
    return isinstance(source, PollingSource | HttpSource | ListingSource | BytewaxSource)


def attended_in(
    meet: Callable[[str], None], attended: Callable[..., Attendant], env: Env, more: Mapping[str, Any]
) -> MetAttendant:
    """Return what attends a source. attended: the source's own method, which is given more, by name.

    Outside of a world a poll runs at once.
    """
    return MetAttendant(attended(env, beside=_beside(meet), **more), meet)


def _beside(meet: Callable[[str], None]) -> Beside:
    if not isinstance(meet, ActorMeeting):
        return at_once

    def begin(job: Callable[[], None]) -> Future[None]:
        awaited = _Awaited(meet)

        def over(done: Future[Any]) -> None:
            if (error := done.exception()) is None:
                awaited.set_result(None)
            else:
                awaited.set_exception(error)

        def poll() -> None:
            meet("poll")
            job()
            meet("polled")

        meet.spawn(poll).add_done_callback(over)
        return awaited

    return begin
