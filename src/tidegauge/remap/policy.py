"""When to bind upstream's data to the next epoch: at intervals, at sizes, or on request.

A *look* asks the sources how far they are. A *tick* is a look whose answers are bound, if anything moved. `Pace` says
when to look and which looks are ticks by the clock; `enough` says which others are, by what they found.

    Every(seconds)                     every look is a tick
    Every(records or bytes)            looks every `look` seconds, ticks when that much waits
    Every(seconds, records or bytes)   the same, and a tick when the seconds are over
    Manual()                           no look unless asked for

Invariant: nothing that waits is forgotten. It stays upstream, unbound, until the next tick takes it; the end of a
source is a tick, and so is every look of a run that ends when it has caught up (`in_batch`).

>>> pace = Pace.of(Every(60, records=1000, look=2))
>>> for second in (0, 1, 2, 59, 60):
...     pace, due = pace.step(second * SECOND)
...     print(second, due.name, pace.wait(second * SECOND) // SECOND)
0 TICK 2
1 NOTHING 1
2 LOOK 2
59 LOOK 1
60 TICK 2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from tidegauge.errors.flow import InvalidArgument
from tidegauge.remap.binding import Observation
from tidegauge.remap.frontier import Frontier

__all__ = ["LOOK", "SECOND", "Due", "Every", "Manual", "Pace", "Policy", "Ticker", "as_policy", "enough", "in_batch"]

LOOK: Final = 0.5
"""Seconds between two looks where the policy does not say."""

SECOND: Final = 1_000_000
"""A pace counts microseconds."""


@dataclass(frozen=True, slots=True)
class Ticker:
    """Ticks at the multiples of `interval`, in any whole unit of time, whatever the wall clock does meanwhile.

    last: the time of the last tick, None before the first.

    Definition. Let `i` be the interval and `floor(t)` the greatest multiple of `i` that is not beyond `t`. The first
    tick is due at once. After a tick at `now`, with `last = floor(now)`, the target is `floor(last + i)`, and a tick
    is due at every instant outside of `[last, target)`. Multiples that were slept through are skipped, not made up
    for. Only a clock that was put back is before `last`: it ticks at once, and goes on from there. An interval that
    is changed counts from the next target on: `last` stays a multiple of the old one.

    Invariant: `last < target <= last + i`. So whatever the clock did before, once it runs forward the next tick is
    due within one interval; and while it runs forward, the times of the ticks grow.

    >>> ticker = Ticker(1000)
    >>> for now in (1125, 1999, 2000, 3999, 500):
    ...     ticker, at = ticker.step(now)
    ...     print(now, at, ticker.wait(now))
    1125 1000 875
    1999 None 1
    2000 2000 1000
    3999 3000 1
    500 0 500
    """

    interval: int
    last: int | None = None

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise InvalidArgument(parameter="interval", value=self.interval, expected="at least one unit of time")

    def wait(self, now: int) -> int:
        """Return how long it is until the next tick, at most one interval; 0 when it is due."""
        if self.last is None or now < self.last:
            return 0
        return max(0, self._floor(self.last + self.interval) - now)

    def step(self, now: int) -> tuple[Ticker, int | None]:
        """Return the ticker afterwards, and the time of the tick if one is due: a multiple of the interval."""
        if self.wait(now):
            return self, None
        at = self._floor(now)
        return replace(self, last=at), at

    def _floor(self, time: int) -> int:
        return time - time % self.interval


@dataclass(frozen=True, slots=True)
class Every:
    """Mint an epoch at intervals, or as soon as enough waits in all sources together, or both: whichever comes first.

    Args:
        seconds: the interval. Ticks fall on its multiples on the UTC clock, so `Every(3600)` ticks on the hour.
        records: mint when this many records wait, counting the sources whose positions do not count bytes.
        bytes: mint when this many bytes wait, counting the sources whose positions count bytes.
        look: with `records` or `bytes`, the seconds between two looks at the sources. None stands for 0.5, or
            `seconds` if that is less.

    Raises `InvalidArgument`.
    """

    seconds: float | None = None
    _: KW_ONLY
    records: int | None = None
    bytes: int | None = None
    look: float | None = None

    def __post_init__(self) -> None:
        for name in ("seconds", "look"):
            value = getattr(self, name)
            if value is not None and not _is_span(value):
                raise InvalidArgument(parameter=name, value=value, expected="a positive number of seconds")
        for name in ("records", "bytes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise InvalidArgument(parameter=name, value=value, expected=f"a whole number of {name}, at least 1")
        if self.seconds is None and not self.sized:
            raise InvalidArgument(parameter="seconds", value=None, expected="seconds, records or bytes")
        if self.look is not None and not self.sized:
            raise InvalidArgument(parameter="look", value=self.look, expected="it together with records or bytes")

    @property
    def sized(self) -> bool:
        """Whether it matters how much waits."""
        return self.records is not None or self.bytes is not None

    @property
    def between(self) -> float:
        """The seconds between two looks."""
        spans = [self.look or LOOK] if self.sized else []
        return min(spans if self.seconds is None else [*spans, self.seconds])

    def measures(self, unit: str) -> bool:
        """Whether a source whose positions count `unit` is bound at some time, however little else happens."""
        return self.seconds is not None or (self.bytes if unit == "bytes" else self.records) is not None


@dataclass(frozen=True, slots=True)
class Manual:
    """Mint an epoch when `flow.tick()` is called, and at no other time. Nobody asks the sources in between."""


Policy: TypeAlias = Every | Manual


def _is_span(value: object) -> bool:
    """Whether this is a number of seconds, from a microsecond to some thirty years."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 1e-6 <= value <= 1e9


def as_policy(tick: float | Policy) -> Policy:
    """Return the policy that a flow's `tick` stands for: a number is that of seconds. Raises `InvalidArgument`."""
    if isinstance(tick, Every | Manual):
        return tick
    if not _is_span(tick):
        raise InvalidArgument(
            parameter="tick", value=tick, expected="a positive number of seconds, tg.Every(...) or tg.Manual()"
        )
    return Every(tick)


def in_batch(policy: Policy) -> Every:
    """Return the policy of a run that ends when it has caught up: every look is a tick, and there are looks.

    >>> in_batch(Every(records=1000, look=2)), in_batch(Manual()).seconds
    (Every(seconds=2, records=None, bytes=None, look=None), 0.5)
    """
    if isinstance(policy, Manual):
        return Every(LOOK)
    return Every(policy.between if policy.sized else min(LOOK, policy.between))


def enough(
    policy: Policy,
    bound: Mapping[str, Frontier],
    observations: Mapping[str, Observation],
    *,
    units: Mapping[str, str],
) -> bool:
    """Whether what a look found makes it a tick, before its time: what waits is enough, or is the end of a source.

    units: what the positions of each source count. What waits is all that upstream holds, also beyond what one epoch
    takes, where the source can bring any of it now. A source that has more and cannot say how much has enough.
    """
    if not isinstance(policy, Every):
        return False
    records = size = 0
    for source, observed in observations.items():
        before = bound[source]
        if observed.upper == before or not observed.upper.follows(before):
            continue
        if observed.upper.sealed or (observed.more and observed.upper == observed.end):
            return True
        waiting = observed.end.distance(before)
        if units[source] == "bytes":
            size += waiting
        else:
            records += waiting
    return (policy.records is not None and records >= policy.records) or (
        policy.bytes is not None and size >= policy.bytes
    )


class Due(Enum):
    """What it is time for."""

    NOTHING = 0
    LOOK = 1
    TICK = 2


@dataclass(frozen=True, slots=True)
class Pace:
    """Where a flow stands between its ticks. Times are microseconds since 1970.

    looks, ticks: when it is time for them by the clock, None where that does not count.
    """

    looks: Ticker | None = None
    ticks: Ticker | None = None

    @classmethod
    def of(cls, policy: Policy) -> Pace:
        """Return the pace of a flow that begins: its first look is at once, unless it is only made on demand."""
        if isinstance(policy, Manual):
            return cls()
        return cls(
            looks=Ticker(_micros(policy.between)) if policy.sized else None,
            ticks=None if policy.seconds is None else Ticker(_micros(policy.seconds)),
        )

    def step(self, now: int) -> tuple[Pace, Due]:
        """Return the pace afterwards, and what it is time for."""
        looks, look = (None, None) if self.looks is None else self.looks.step(now)
        ticks, tick = (None, None) if self.ticks is None else self.ticks.step(now)
        due = Due.TICK if tick is not None else Due.LOOK if look is not None else Due.NOTHING
        return Pace(looks, ticks), due

    def wait(self, now: int) -> int | None:
        """Return how long it is until there is something to do, None when that is for others to say."""
        waits = [ticker.wait(now) for ticker in (self.looks, self.ticks) if ticker is not None]
        return min(waits, default=None)


def _micros(seconds: float) -> int:
    return max(1, round(seconds * SECOND))
