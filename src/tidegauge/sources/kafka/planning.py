"""Cutting slices into splits, after a look whether the broker still has them.

A large slice is cut into several splits, and many small ones go together into one. Before that the broker is asked,
once for all partitions, whether they still begin where they are to be read, and whether the topics are the bound
ones. So a loss is known before a task starts. It is not asked if a look of just now has seen the slices whole, as is
the case for every epoch that waits for nothing. The task that reads finds whatever retention takes after that look,
or after a question here.

Why a broker does not have a range is one pure decision, `outrun`, for all who meet it. A range `[lower, upper)` was
bound, so there were records up to `upper` once. Now the partition has `[low, end)`:

    end < upper                    bound records at the end are gone: it is another partition (of a new topic),
                                   or the cluster lost records. Whose records `[low, end)` are is not known
    upper <= end and lower < low   it is the partition that was bound, and the beginning is gone: a loss
    otherwise                      the broker has all of it

The end is asked for first: it tells whose records these are, and the beginning only how many of them are left. So a
partition that both begins later and ends earlier is not the one that was bound. If that were called a loss, a source
that goes on without lost records would take `[low, end)` for records that were bound. The probe asks in this order,
too.

Invariant: the ranges of a slice follow each other without gap or overlap, from where the source's records begin in it
to its end. A slice that lies before the source's start has none. A split is of one epoch (law 2).

>>> slices = [Slice("s", 0, "t-0", 0, 5), Slice("s", 0, "t-1", 3, 4), Slice("s", 0, "t-2", 0, 20)]
>>> [[(r.partition, r.lower, r.upper) for r in p.ranges] for p in planned(slices, schema=pa.schema([]), size=10)]
[[('t-2', 0, 10)], [('t-2', 10, 20)], [('t-0', 0, 5), ('t-1', 3, 4)]]
>>> from tidegauge.sources.kafka.inquiry import Start, Topics
>>> what = Inquiry(name="orders", servers="here:9092", topics=Topics(names=("t",)), start=Start(word="earliest"),
...               limit=1, committed=True, stop=True)
>>> [getattr(outrun(what, "t-0", 5, 9, low=low, end=end), "code", None) for low, end in ((5, 9), (6, 9), (6, 8))]
[None, 'TG-0812', 'TG-0554']
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from tidegauge.errors.kafka import TopicDeleted, TopicRecreated
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.sources import RangeOvertaken, RecordsLost
from tidegauge.kafka import cluster
from tidegauge.remap.binding import Bound, Slice
from tidegauge.sources.kafka.asking import Cluster
from tidegauge.sources.kafka.inquiry import Inquiry
from tidegauge.sources.kafka.probing import TopicListing, changed, confirmed, meant

__all__ = ["OUTRUN", "KafkaSplit", "Outrun", "Range", "begun", "outrun", "overtaken", "planned", "seen"]

RECORD_BYTES: Final = 128
"""About what a message weighs, for sharing work out."""
SMALL: Final = 10_000
"""Offsets of a slice that is read together with others of its epoch."""
MANY: Final = 500
"""Partitions that are read together."""

Outrun = RecordsLost | RangeOvertaken | UpstreamRecreated | TopicRecreated
OUTRUN: Final = (RecordsLost, RangeOvertaken, UpstreamRecreated, TopicRecreated)


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `[lower, upper)` of a partition."""

    partition: str
    lower: int
    upper: int

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.upper - self.lower


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaSplit:
    """Ranges of offsets, each of a partition of its own: one, or many small ones, which cost one request together."""

    epoch: int
    ranges: tuple[Range, ...]
    schema: pa.Schema

    @property
    def partition(self) -> str:
        """The first partition, and how many there are with it."""
        first, *others = self.ranges
        return first.partition + (f" and {len(others)} more" if others else "")

    @property
    def lower(self) -> int:
        """Where the first range begins."""
        return self.ranges[0].lower

    @property
    def upper(self) -> int:
        """Where the last range ends."""
        return self.ranges[-1].upper

    @property
    def weight(self) -> int:
        """About how many bytes it has."""
        return sum(piece.size for piece in self.ranges) * RECORD_BYTES


def begun(slices: Sequence[Slice], bound: Bound) -> list[Slice]:
    """Return the slices without what lies before the source's start."""
    cut = [replace(s, lower=max(s.lower, int(bound.details[s.partition]["start"]))) for s in slices]
    return [piece for piece in cut if piece.lower < piece.upper]


def seen(slices: Sequence[Slice], bound: Bound) -> bool:
    """Whether the last look, where that is still good, has seen all of the slices: then its topics are those bound.

    >>> from datetime import UTC, datetime
    >>> from tidegauge.remap.binding import Observation
    >>> from tidegauge.remap.frontier import Frontier
    >>> end = Frontier({"t-0": 9})
    >>> last = Observation(at=datetime(2026, 11, 22, tzinfo=UTC), upper=end, end=end, lower=Frontier({"t-0": 5}))
    >>> there, gone = Slice("s", 0, "t-0", 5, 9), Slice("s", 0, "t-0", 4, 9)
    >>> seen([there], Bound(last=last)), seen([gone], Bound(last=last)), seen([there], Bound())
    (True, False, False)
    """
    last = bound.last
    return last is not None and all(
        last.lower[piece.partition] <= piece.lower and piece.upper <= last.end[piece.partition] for piece in slices
    )


def overtaken(asked: Cluster, what: Inquiry, slices: Sequence[Slice], bound: Bound) -> list[tuple[Slice, Outrun]]:
    """Return the parts of slices that the broker has no longer, each with the error that says so.

    Raises `UpstreamRecreated`, `TopicRecreated`, `TopicDeleted`, and what `tidegauge.kafka` raises.
    """
    places = {piece.partition: cluster.split(piece.partition) for piece in slices}
    wanted = {topic for topic, _ in places.values()}
    wanted |= meant(bound, what.topics)
    there = asked.described(wanted)
    there |= confirmed(asked, wanted - there.keys())
    if gone := sorted({topic for topic, _ in places.values()} - there.keys()):
        raise TopicDeleted(source=what.name, topics=gone, servers=what.servers)
    ids = {name: topic.id for name, topic in there.items()}
    if error := changed(asked, what, bound, TopicListing(ids, {}, {})):
        raise error
    lows = asked.offsets(places.values(), "earliest")
    behind = [piece for piece in slices if lows.get(piece.partition, 0) > piece.lower]
    if not behind:
        return []
    ends = asked.offsets([places[piece.partition] for piece in behind], "latest", committed=False)
    if error := changed(asked, what, bound, TopicListing(ids, {}, ends)):
        raise error
    found: list[tuple[Slice, Outrun]] = []
    for piece in behind:
        low, end = lows[piece.partition], ends.get(piece.partition, piece.upper)
        if (why := outrun(what, piece.partition, piece.lower, piece.upper, low=low, end=end)) is not None:
            found.append((replace(piece, upper=min(piece.upper, low)), why))
    return found


def planned(slices: Sequence[Slice], *, schema: pa.Schema, size: int) -> Iterator[KafkaSplit]:
    """Yield the splits of slices. A large slice is cut evenly into splits of at most `size` offsets.

    Small ones of an epoch are put together, up to `SMALL` offsets or one that goes beyond. Two of one partition are
    not, where records between them are left out: a consumer is at one place of a partition.
    """
    small = min(SMALL, size)
    together: dict[int, list[Range]] = {}
    for piece in slices:
        offsets = piece.upper - piece.lower
        if offsets <= small:
            mine = together.setdefault(piece.epoch, [])
            if any(one.partition == piece.partition for one in mine):
                yield KafkaSplit(epoch=piece.epoch, ranges=tuple(together.pop(piece.epoch)), schema=schema)
                mine = together.setdefault(piece.epoch, [])
            mine.append(Range(piece.partition, piece.lower, piece.upper))
            if sum(one.size for one in mine) >= small or len(mine) >= MANY:
                yield KafkaSplit(epoch=piece.epoch, ranges=tuple(together.pop(piece.epoch)), schema=schema)
            continue
        count = -(-offsets // size)
        cuts = [piece.lower + offsets * i // count for i in range(count + 1)]
        for lower, upper in pairwise(cuts):
            yield KafkaSplit(epoch=piece.epoch, ranges=(Range(piece.partition, lower, upper),), schema=schema)
    for epoch, ranges in together.items():
        yield KafkaSplit(epoch=epoch, ranges=tuple(ranges), schema=schema)


def outrun(what: Inquiry, partition: str, lower: int, upper: int, *, low: int, end: int) -> Outrun | None:
    """Return why `[lower, upper)` of a partition that has `[low, end)` cannot be read, or None: it can.

    A loss is definite if it stops the source; otherwise the range is planned again, without the lost records.
    """
    if end < upper:
        return _another(what, partition, upper, end)
    if low <= lower:
        return None
    if what.stop:
        return RecordsLost(source=what.name, partition=partition, asked=lower, there=low, end=end)
    return RangeOvertaken(partition=partition, asked=lower, there=low)


def _another(what: Inquiry, partition: str, upper: int, end: int) -> UpstreamRecreated | TopicRecreated:
    """Return the error of a partition that is not the one that was bound.

    A new incarnation is of the whole source: it is offered only where there is no other topic that it would repeat.
    """
    topic, topics = cluster.split(partition)[0], what.topics
    if topics.names == (topic,):
        known, found = (f"{partition} with records to {position}" for position in (upper, end))
        return UpstreamRecreated(source=what.name, known=known, found=found)
    others = [name for name in topics.names if name != topic] or [f"the others of {topics}"]
    return TopicRecreated(source=what.name, topics=[topic], others=others)
