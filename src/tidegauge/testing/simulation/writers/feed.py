"""The writers of a feed: records in bursts, transactions that stay open, more partitions; and its network.

Receipts end anywhere, as the seed has it. Connections are cut, and what upstream is told comes late or never.

>>> from tidegauge.sources.push.source import pushed
>>> source = SimulatedFeed(FeedLog(), streams={"": pa.schema([("id", pa.int64())])})
>>> upstream = FeedUpstream("orders", pushed(source, None), source, seed=1)
>>> upstream.act(Act(0.5, "append", "orders", 3))
>>> sum(upstream.there().values())
3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final, Protocol

import pyarrow as pa

from tidegauge.sources.push.source import PushedSource
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream.feed import FeedLog
from tidegauge.testing.simulation.upstream.feed_source import SimulatedFeed, data_columns
from tidegauge.testing.simulation.writers.lasting import LastingPlaces
from tidegauge.testing.simulation.writers.values import check_columns, in_its_column, made

__all__ = ["FeedUpstream", "WorldMeeting"]

_MOST: Final = 4
_WHOLE: Final = 0.6
"""How often a receipt has all that there is of a partition."""
_TELLS: Final = 0.7
"""How often an upstream says how far it goes."""
_LOST: Final = 0.3
"""How often what an upstream was told late is lost with the connection."""


class WorldMeeting(Protocol):
    """How a driver meets the world, and waits in it."""

    def __call__(self, call: str, /) -> None:
        """Come to a place."""
        ...

    def gone(self) -> bool:
        """Whether the driver is, so that its connections end."""
        ...

    def wait(self, ready: Callable[[], bool], seconds: float) -> None:
        """Return when something is so, or after a number of seconds."""
        ...

    def spawn(self, work: Callable[[], Any]) -> Any:
        """Run a function beside the worker."""
        ...


class FeedUpstream(LastingPlaces):
    """A feed that writers write to, and a flow follows in place of a source of its user's that pushes."""

    def __init__(self, name: str, user: PushedSource, source: SimulatedFeed, *, seed: int) -> None:
        self.acknowledges = True
        self.overtaken = False
        self.feed: Final[FeedLog] = source.feed
        self.schema: Final = user.schema
        """The columns that the flow gets: of several streams a column for each, with its own columns."""
        self._user: Final = user
        self._seed: Final = seed
        self._cuts: Final = Random(f"{seed} {name} cuts")  # noqa: S311 - nothing is secret here
        self.feed.tells = self._cuts.random() < _TELLS
        self._source: Final = replace(source, cut=self._cut)
        self._columns: Final = {stream: data_columns(columns) for stream, columns in source.streams.items()}
        for columns in self._columns.values():
            check_columns(name, columns)
        self._open: int | None = None

    def _cut(self, count: int) -> int:
        """Return of how many positions a receipt is: of all that there are, or of some."""
        return count if self._cuts.random() < _WHOLE else self._cuts.randrange(count + 1)

    def source(self, meet: WorldMeeting) -> PushedSource:
        """Return the source, as one driver has it."""
        return replace(self._user, source=replace(self._source, meet=meet, wait=meet.wait))

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Let nobody answer, which cuts all connections, or somebody again."""
        if away:
            self.feed.leave()
        else:
            self.feed.come_back()

    def there(self) -> dict[str, int]:
        """Return the next position of each partition that has something: all that has to arrive."""
        return dict(self.feed.shown.items())

    def end(self, place: str) -> int:
        """Return the next position of a place: nothing beyond it can be bound."""
        return self.feed.shown[place]

    def start(self, place: str) -> int:  # noqa: ARG002 - whoever finds records missing must not go on
        """Return 0."""
        return 0

    def told(self) -> Mapping[str, int]:
        """Return the positions that were acknowledged."""
        return dict(self.feed.acknowledged.items())

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the rows of a range, also those that are forgotten; of several streams each in its column."""
        found: list[pa.RecordBatch] = []
        for stream, rows, offsets in self.feed.given(place, lower, upper):
            names = pa.array([place] * len(offsets), pa.string())
            added = {"_partition": names, "_offset": pa.array(offsets, pa.int64())}
            columns = self._source.streams[stream]
            there = [added[name] if name in added else rows[name] for name in columns.names]
            batch = pa.RecordBatch.from_arrays(there, schema=columns)
            found.append(batch if stream == "" else in_its_column(batch, stream, self.schema))
        return found

    def act(self, act: Act) -> None:
        """Do what a writer does, or the network. number: how much of it, and by that to which partition."""
        random = Random(f"{self._seed} {act.at} {act.what}")  # noqa: S311 - nothing is secret here
        feed, place, stream = self.feed, random.choice(self.feed.places), random.choice([*self._columns])
        match act.what:
            case "append":
                self._append(place, stream, act.number)
            case "transact" if self._open is not None:
                feed.finish(self._open, commit=random.random() < 0.6)
                self._open = None
            case "transact":
                self._open = feed.begin()
                self._append(place, stream, act.number, within=self._open)
            case "grow":
                feed.grow(min(_MOST, len(feed.places) + 1))
            case "retention":
                self.overtaken = True
                feed.lose(place, random.randrange(feed.shown[place] + 1))
            case "cut":
                feed.cut()
            case "late":
                feed.slow = True
            case "arrive" if random.random() < _LOST:
                feed.cut()
                feed.deliver()
            case "arrive":
                feed.deliver(newest_first=random.random() < 0.5)  # as of several connections

    def _append(self, place: str, stream: str, count: int, *, within: int | None = None) -> None:
        first, shard = self.feed.log.end(place), int(place.rpartition("-")[2])
        rows = made(self._columns[stream], seed=self._seed, shard=shard, lower=first, upper=first + count)
        self.feed.append(place, rows, stream=stream, within=within)
