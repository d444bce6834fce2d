"""What a board shows of each source, of each output, and of the store: state, progress, and the error, if any.

Invariant: states are those of the design, the same words everywhere. Sources: starting, running, stalled, failed,
sealed; idle while nobody drives the flow. Outputs: planned (before their first run), backfilling, catching_up, live,
paused, stalled, failed.

Lag in seconds is the age of the newest look at upstream whose findings are all published: "the tables show everything
that was upstream `lag` seconds ago".

>>> from datetime import UTC, timedelta
>>> now = datetime(2026, 11, 20, 17, tzinfo=UTC)
>>> looked = now - timedelta(seconds=3)
>>> orders = SourceStatus("orders", "records", end=Frontier({"orders-0": 7}), published=Frontier({"orders-0": 5}))
>>> orders.lag, orders.lag_seconds(now)
(2, None)
>>> orders.fresh_at = looked
>>> orders.lag_seconds(now)
3.0
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from tidegauge.backfill.progress import Filled
from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.frontier import ORIGIN, Frontier

__all__ = ["OutputCondition", "OutputStatus", "SourceCondition", "SourceStatus", "StoreStatus"]

SourceCondition = Literal["starting", "running", "idle", "stalled", "failed", "sealed"]
OutputCondition = Literal["planned", "backfilling", "catching_up", "live", "paused", "stalled", "failed"]


@dataclass(slots=True)
class SourceStatus:
    """The present state of a source. Positions are totals over its partitions, in `unit`.

    goal: everything that upstream held at the first look since the start, None before it. unread: why its bound data
    cannot be read at present, None if it can.
    """

    name: str
    unit: str
    state: SourceCondition = "starting"
    bound: Frontier = ORIGIN
    published: Frontier = ORIGIN
    end: Frontier = ORIGIN
    goal: Frontier | None = None
    note: str = ""
    error: TidegaugeError | None = None
    unread: TidegaugeError | None = None
    failed_at: int | None = None
    since: datetime | None = None
    attempt: int = 0
    records: int = 0
    fresh_at: datetime | None = None
    looks: deque[tuple[datetime, Frontier]] = field(default_factory=deque)

    @property
    def position(self) -> int:
        """How far the source is published, in total."""
        return sum(self.published.values())

    @property
    def lag(self) -> int:
        """How many positions upstream holds that are not published."""
        return self.end.distance(self.published)

    @property
    def arrived(self) -> bool:
        """Whether all that upstream held at the first look is bound."""
        return self.goal is not None and self.goal.less_equal(self.bound)

    def lag_seconds(self, now: datetime) -> float | None:
        """Return the age of the newest look whose findings are all published, None before there is one."""
        if self.state == "sealed" and self.lag == 0:
            return 0.0
        return None if self.fresh_at is None else max(0.0, (now - self.fresh_at).total_seconds())


@dataclass(slots=True)
class OutputStatus:
    """The present state of an output. lag: how many bound epochs it lacks. rows, bytes: this run's commits.

    filled: how far the past is of one that shows nothing yet. replacing: whether that is to take the place of rows
    which its table holds. paused: why it is paused. since: from when on it is
    stalled. rate: rows a second over the last commits.
    """

    name: str
    source: str
    state: OutputCondition = "catching_up"
    upper: int = 0
    lag: int = 0
    rows: int = 0
    bytes: int = 0
    filled: Filled | None = None
    replacing: bool = False
    paused: tuple[str, ...] = ()
    error: Exception | None = None
    since: datetime | None = None
    attempt: int = 0
    commits: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=20))

    def rate(self, now: float) -> float:
        """Return rows a second over the last commits, at most the last half minute."""
        recent = [(at, rows) for at, rows in self.commits if now - at <= 30.0]
        return sum(rows for _at, rows in recent) / max(1.0, now - recent[0][0]) if recent else 0.0


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The present state of the store. error: why it cannot be written at present, None if it can.

    since: from when on, and attempt: how often it was tried in a row.
    """

    error: Exception | None = None
    since: datetime | None = None
    attempt: int = 0
