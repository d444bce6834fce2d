"""`FeedLog`: the log of a service that pushes, in memory. A simulation writes it, and `SimulatedFeed` reads it.

It is a topic of a `PartitionedLog`, and each record is of one stream. Unlike a topic it forgets records that are
acknowledged, as a replication slot or a queue does. Acknowledgements travel on the connection. While that is slow,
they stay on their way, come in any order, and are lost with the connection.

Nothing here moves by itself: no clock, no chance, no thread.

Invariant: a record has its place for good, and everything before a place that was acknowledged is forgotten.

>>> feed = FeedLog()
>>> feed.append("feed-0", pa.record_batch({"id": [1, 2, 3]}))
>>> line = feed.connected(Frontier())
>>> feed.hear(line, Frontier({"feed-0": 2}))
>>> feed.connected(Frontier({"feed-0": 1}))
Traceback (most recent call last):
tidegauge.errors.push.StartForgotten: TG-0352: source 'feed': upstream's oldest record of partition 'feed-0' is 2, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from tidegauge.errors.push import StartForgotten
from tidegauge.remap.frontier import Frontier
from tidegauge.testing.simulation.upstream.log import PartitionedLog

__all__ = ["TOPIC", "FeedLog"]

TOPIC: Final = "feed"
"""The topic of a feed: its partitions are `feed-0`, `feed-1` and so on."""


class FeedLog:
    """A log of streams. log: its records. tells: whether it says how far it goes. changes: how often it had news.

    slow: whether acknowledgements stay on their way. acknowledged: how far they have come.
    """

    def __init__(self, *, partitions: int = 2, tells: bool = True) -> None:
        self.log: Final = PartitionedLog({TOPIC: partitions})
        self.tells = tells
        self.changes = 0
        self.slow = False
        self.acknowledged = Frontier()
        self._cuts = 0
        self._underway: list[Frontier] = []

    # What its writers do, and the network.

    def append(self, place: str, rows: pa.RecordBatch, *, stream: str = "", within: int | None = None) -> None:
        """Append a record of a stream for each row. within: the transaction that they belong to."""
        self.changes += 1
        self.log.append(place, rows, keys=[stream.encode()] * rows.num_rows, within=within)

    def begin(self) -> int:
        """Open a transaction, which holds back all records behind its first one."""
        return self.log.begin()

    def finish(self, transaction: int, *, commit: bool) -> None:
        """End a transaction. Its records are given now, or never."""
        self.changes += 1
        (self.log.commit if commit else self.log.abort)(transaction)

    def grow(self, partitions: int) -> None:
        """Have more partitions, up to this number."""
        self.log.grow(TOPIC, partitions)

    def lose(self, place: str, to: int) -> None:
        """Lose the records before a position, whether anybody has them or not."""
        self.changes += 1
        self.log.trim(place, to)

    def restore(self, end: Frontier) -> None:
        """Become the log that went to `end`, under the same identity, as restored from an older backup."""
        for place in self.places:
            self.log.cut(place, end[place])
        self.acknowledged = self.acknowledged.meet(end)
        self.cut()

    def replace(self) -> None:
        """Become another log, which is empty."""
        self.log.recreate(TOPIC, len(self.places))
        self.acknowledged = Frontier()
        self.cut()

    def leave(self) -> None:
        """Answer nobody, until `come_back`."""
        self.log.away = True
        self.cut()

    def come_back(self) -> None:
        """Answer again, and hear the acknowledgements on their way."""
        self.log.away = False
        self.deliver()

    def cut(self) -> None:
        """Cut all connections. Acknowledgements on their way are lost."""
        self.changes += 1
        self._cuts += 1
        self._underway.clear()

    def deliver(self, *, newest_first: bool = False) -> None:
        """Hear all acknowledgements on their way, and those from now on at once."""
        self.slow = False
        told, self._underway = self._underway, []
        for frontier in reversed(told) if newest_first else told:
            self.acknowledged = self.acknowledged.join(frontier)
            for place, position in frontier.items():
                self.log.trim(place, position)

    # What its connections ask, each with the number that it got.

    @property
    def places(self) -> list[str]:
        """The partitions."""
        return [f"{TOPIC}-{number}" for number in range(self.log.topics[TOPIC])]

    @property
    def end(self) -> Frontier:
        """How far the log goes, records of open transactions included."""
        return Frontier({place: self.log.end(place) for place in self.places})

    @property
    def shown(self) -> Frontier:
        """How far the log is given: to the first record of an open transaction."""
        return Frontier({place: self.log.stable(place) for place in self.places})

    @property
    def identity(self) -> str:
        """What the log is called, and no other one."""
        return self.log.described([TOPIC])[TOPIC].id

    def connected(self, start: Frontier) -> int:
        """Return the number of a new connection. Raises `ConnectionRefusedError` and `StartForgotten`."""
        if self.log.away:
            raise ConnectionRefusedError("nobody answers at present")
        for place in self.places:
            if (oldest := self.log.start(place)) > start[place]:
                raise StartForgotten(source=TOPIC, partition=place, oldest=oldest, start=start[place])
        return self._cuts

    def broken(self, line: int, at: Frontier) -> bool:
        """Whether a connection that is at a frontier can give no more."""
        return line != self._cuts or any(self.log.start(place) > at[place] for place in self.places)

    def given(self, place: str, lower: int, upper: int) -> Iterator[tuple[str, pa.RecordBatch, list[int]]]:
        """Yield the committed records of a range in their order: their stream, rows, and positions."""
        for chunk, first, last in self.log.held(place, lower, upper):
            if chunk.rows is not None and chunk.keys is not None:
                stream = (chunk.keys[first] or b"").decode()
                yield stream, chunk.rows.slice(first, last - first), list(chunk.offsets[first:last])

    def hear(self, line: int, frontier: Frontier) -> None:
        """Hear on a connection that everything before a frontier is durable. Raises `ConnectionResetError`."""
        if line != self._cuts:
            raise ConnectionResetError("the connection was cut")
        self._underway.append(frontier)
        if not self.slow:
            self.deliver()
