"""A clock for flows that stands still until it is moved by hand.

Invariant: two looks at it say the same unless somebody moved it in between. A wait in a run takes real time; but
anything due at a time, such as a source that is tried again, is due as soon as the clock is moved there.

>>> clock = HandClock()
>>> before = clock.now
>>> clock.advance(90)
>>> clock.now - before, clock.env.now() == clock.now
(datetime.timedelta(seconds=90), True)
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument

__all__ = ["HandClock"]


@dataclass
class HandClock:
    """A clock moved by hand. env: the `Env` that tells its time, for `Dataflow.run(env=...)`.

    now: the time that it tells, with its zone.
    """

    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    env: Env = field(init=False)

    def __post_init__(self) -> None:
        start = self.now
        self.env = Env(now=lambda: self.now, monotonic=lambda: time.monotonic() + (self.now - start).total_seconds())

    def advance(self, seconds: float) -> None:
        """Move the clock on. Raises `InvalidArgument` for a step back."""
        if not seconds >= 0:
            raise InvalidArgument(parameter="seconds", value=seconds, expected="a number from 0: time goes on")
        self.now += timedelta(seconds=seconds)
