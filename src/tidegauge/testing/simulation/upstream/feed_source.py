"""`SimulatedFeed`: a feed in memory as a source that pushes, which a flow reads over one connection.

What a subscription gives is a function of where it begins and of the log, wherever its receipts are cut. `meet` is
called before a call does anything, and when it is done and has not answered yet (`PUSH_POINTS`); `wait` lets time
pass until there is news.

>>> feed = FeedLog()
>>> feed.append("feed-0", pa.record_batch({"id": [7, 8]}))
>>> source = SimulatedFeed(feed, streams={"": pa.schema([("id", pa.int64())])}, meet=(met := []).append)
>>> line = source.connect(Frontier({"feed-0": 1}), Bound())
>>> received = line.receive(10, 0.2)
>>> [batch["id"].to_pylist() for _, batch in received.batches], received.frontier, met[:2]
([[8]], Frontier({'feed-0': 2}), ['connect', 'connected'])
>>> line.receive(10, 0.2) is None
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

import pyarrow as pa

from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.ddl import to_ddl
from tidegauge.sources.metadata import PLACE
from tidegauge.sources.push.protocol import Received
from tidegauge.testing.simulation.upstream.feed import FeedLog
from tidegauge.testing.simulation.upstream.simulated import unmet

__all__ = ["PUSH_POINTS", "SimulatedFeed", "data_columns"]

PUSH_POINTS: Final = ("connect", "connected", "receive", "received", "acknowledge", "acknowledged")
"""What `meet` is called with: for each call its name, then the name of when it is done and has not answered."""


def data_columns(stream: pa.Schema) -> pa.Schema:
    """Return the columns of a stream that its rows have, without those that say where they came from."""
    return pa.schema([column for column in stream if column.name not in PLACE.names])


def _no_wait(_news: Callable[[], bool], _seconds: float) -> None:
    """Return at once: outside of a world time brings nothing."""


def _all(count: int) -> int:
    return count


@dataclass(frozen=True)
class SimulatedFeed:
    """The records of a feed in memory. Two are equal if they are configured alike, whatever feed they read.

    Args:
        feed: the upstream.
        streams: the columns of each stream, as `PushSource` has them.
        unit: what one position counts, for people.
        cut: of how many positions of a partition a receipt is, given how many there are.
        meet: called before and after each call, with its name.
        wait: returns when there is news, or after a number of seconds.
    """

    feed: FeedLog = field(compare=False, repr=False)
    _: KW_ONLY
    streams: Mapping[str, pa.Schema]
    unit: str = "records"
    cut: Callable[[int], int] = field(default=_all, compare=False, repr=False)
    meet: Callable[[str], None] = field(default=unmet, compare=False, repr=False)
    wait: Callable[[Callable[[], bool], float], None] = field(default=_no_wait, compare=False, repr=False)

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {"kind": "simulated feed", "streams": {name: to_ddl(found) for name, found in self.streams.items()}}

    def connect(self, start: Frontier, bound: Bound) -> SimulatedSubscription:  # noqa: ARG002 - the seam's shape
        """Return a connection that gives every record from `start` on. Raises `StartForgotten` and `OSError`."""
        return SimulatedSubscription(self, start)


class SimulatedSubscription:
    """One connection to a feed. identity: of its log."""

    def __init__(self, source: SimulatedFeed, start: Frontier) -> None:
        self._source: Final = source
        self._feed: Final = source.feed
        source.meet("connect")
        self._line: Final = source.feed.connected(start)
        self.identity: Final = source.feed.identity
        self._at = start
        self._told: Frontier | None = None
        """The end that was told on this connection."""
        source.meet("connected")

    def receive(self, limit: int, seconds: float) -> Received | None:
        """Return records up to a frontier, as the cuts have it. Raises `ConnectionResetError`."""
        source, feed = self._source, self._feed
        source.meet("receive")
        if not self._news():
            seen = feed.changes
            source.wait(lambda: feed.changes != seen, seconds)
        if feed.broken(self._line, self._at):
            raise ConnectionResetError("the connection was cut")
        if not self._news():
            return None
        end = feed.end if feed.tells else None
        ranges = self._ranges(limit, quiet=end != self._told)
        batches = [batch for place, (lower, upper) in ranges.items() for batch in self._batches(place, lower, upper)]
        reached = self._at.join(Frontier({place: upper for place, (_, upper) in ranges.items()}))
        source.meet("received")
        self._at, self._told = reached, end
        return Received(tuple(batches), reached, end)

    def _news(self) -> bool:
        """Whether there is something to say."""
        feed = self._feed
        return not feed.shown.less_equal(self._at) or (feed.tells and feed.end != self._told)

    def _ranges(self, limit: int, *, quiet: bool) -> dict[str, tuple[int, int]]:
        """Return what a receipt has of each partition. quiet: whether that may be nothing, for the end is news."""
        there = self._feed.shown.since(self._at)
        found: dict[str, tuple[int, int]] = {}
        for place, (lower, upper) in there.items():
            if count := min(limit, self._source.cut(upper - lower)):
                found[place] = lower, lower + count
                limit -= count
        if not found and not quiet:
            place, (lower, _) = next(iter(there.items()))
            found[place] = lower, lower + 1
        return found

    def _batches(self, place: str, lower: int, upper: int) -> list[tuple[str, pa.RecordBatch]]:
        found: list[tuple[str, pa.RecordBatch]] = []
        for stream, rows, offsets in self._feed.given(place, lower, upper):
            where = [pa.array([place] * len(offsets), pa.string()), pa.array(offsets, pa.int64())]
            columns = pa.schema([*data_columns(self._source.streams[stream]), *PLACE])
            found.append((stream, pa.RecordBatch.from_arrays([*rows.columns, *where], schema=columns)))
        return found

    def acknowledge(self, frontier: Frontier) -> None:
        """Tell the feed that everything before a frontier is durable. Raises `ConnectionResetError`."""
        self._source.meet("acknowledge")
        self._feed.hear(self._line, frontier)
        self._source.meet("acknowledged")

    def close(self) -> None:
        """Do nothing: acknowledgements are on their way."""
