"""The writers of a log: records in bursts, transactions that stay open, more partitions; retention, its network.

Retention may take records exactly up to the acknowledged position, or one more. A commit of offsets may come late,
and the broker may say an older end of the committed records than before.

>>> from tidegauge.testing.simulation.upstream import PartitionedLog
>>> log = SimulatedLog(PartitionedLog({"orders": 2}), columns="id long")
>>> upstream = LogUpstream("orders", log, seed=1)
>>> upstream.act(Act(0.5, "append", "orders", 3))
>>> sum(upstream.there().values())
3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

import pyarrow as pa

from tidegauge.kafka.cluster import partition as partition_of
from tidegauge.kafka.cluster import split
from tidegauge.sources.protocol import BadRecord
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream import SimulatedLog
from tidegauge.testing.simulation.writers.values import check_columns, made

__all__ = ["LogUpstream"]

_MOST: Final = 4
_ALL: Final = 0.8
"""How often all topics of a source are deleted, where it has several."""
_AT_ONCE: Final = 0.4
"""How often a transaction ends when it has begun. Others stay open until the next one is due."""
_WITHIN: Final = 0.5
"""How often a bad record is part of the transaction that is open."""
_LOST: Final = 0.3
"""How often a late commit of offsets never comes."""
_BEYOND: Final = {1: 0, 2: 1}
"""How far retention goes beyond the acknowledged position, by how much of it there is to be; else anywhere."""


class LogUpstream:
    """A topic that writers write to, and a flow reads in place of a source of its user's."""

    def __init__(self, name: str, source: SimulatedLog, *, seed: int) -> None:
        self._source: Final = source
        self.name: Final = name
        self.schema: Final = self._source.schema
        """The columns that the flow gets, metadata columns included."""
        self.log: Final = self._source.log
        self.acknowledges = True
        self.overtaken = False
        """Whether retention may have taken records that were not read."""
        self.made_anew = 0
        self.spoilt = False
        self._seed: Final = seed
        self._compacted: Final[dict[str, set[int]]] = {}
        self._gone: Final[dict[str, int]] = {}
        """The topics that were deleted, each with how many partitions the next one has."""
        self._columns: Final = self._source.data
        check_columns(name, self._columns)
        self._open: int | None = None

    @property
    def whole(self) -> bool:
        """Whether every topic is there."""
        return not self._gone

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Let nobody answer, or somebody again, who then hears of all that is late."""
        self.log.away = away
        if not away:
            self.log.deliver()
            self.log.keep_up()

    def source(self, meet: Callable[[str], None]) -> SimulatedLog:
        """Return the source, as one driver has it."""
        return replace(self._source, meet=meet)

    def learn(self, partition: str, details: Mapping[str, Any]) -> str:
        """Return the place: a partition of the topic that was there when it was bound."""
        return partition_of(str(details["topic_id"]), split(partition)[1])

    def forget(self, place: str) -> None:
        """Nothing: a partition has its name for good."""

    def there(self) -> dict[str, int]:
        """Return the next position of each place that has something: all that has to arrive."""
        return {self.log.lasting(name): end for name in self._names if (end := self.end(name)) > 0}

    def end(self, place: str) -> int:
        """Return the next position of a place: nothing beyond it can be bound."""
        return self.log.stable(place) if self._source.committed else self.log.end(place)

    def start(self, place: str) -> int:
        """Return the first position that retention has left."""
        return self.log.start(place)

    def told(self) -> Mapping[str, int]:
        """Return the positions that were acknowledged."""
        return {self.log.lasting(name): position for name, position in self._source.told().items()}

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the committed rows of a range, also those that retention took, or that went with their topic."""
        found = self._source.committed_rows(place, lower, upper)
        return [] if found is None else [found]

    def bad(self, place: str, lower: int, upper: int) -> list[BadRecord]:
        """Return the committed records of a range that cannot be decoded."""
        return self._source.committed_bad(place, lower, upper)

    def _offsets(self, place: str) -> set[int]:
        held = self.log.held(place, 0, self.log.end(place))
        return {offset for chunk, first, last in held for offset in chunk.offsets[first:last]}

    def blurred(self, place: str, lower: int, upper: int) -> bool:
        """Whether compaction took records of a range, which only earlier commits may have."""
        return any(lower <= offset < upper for offset in self._compacted.get(place, ()))

    @property
    def _names(self) -> list[str]:
        return [f"{topic}-{number}" for topic, count in self.log.topics.items() for number in range(count)]

    def act(self, act: Act) -> None:
        """Do what a writer does. number: how much of it, and by that to which partition."""
        random = Random(f"{self._seed} {act.at} {act.what}")  # noqa: S311 - nothing is secret here
        if act.what == "create":
            self._create()
        if not self._names:
            return
        name = random.choice(self._names)
        match act.what:
            case "append":
                self.log.append(name, self._made(name, act.number), keys=self._keys(random, act.number))
            case "transact" if self._open is not None:
                self._finish(random)
            case "transact":
                self._open = self.log.begin()
                for _ in range(random.randrange(1, 3)):
                    name = random.choice(self._names)
                    self.log.append(name, self._made(name, act.number), within=self._open)
                if random.random() < _AT_ONCE:
                    self._finish(random)
            case "compact":
                before = self._offsets(name)
                self.log.compact(name)
                self._compacted.setdefault(self.log.lasting(name), set()).update(before - self._offsets(name))
            case "grow":
                topic = split(name)[0]
                self.log.grow(topic, min(_MOST, self.log.topics[topic] + 1))
            case "spoil":
                self.spoilt = True
                within = self._open if random.random() < _WITHIN else None
                self.log.append_bad(name, f"spoilt {act.number}".encode(), within=within)
            case "retention":
                self.overtaken = True
                self.log.trim(name, self._expired(name, act.number, random))
            case "late":
                self.log.slow = True
            case "arrive" if random.random() < _LOST:
                self.log.forget()
            case "arrive":
                self.log.deliver(newest_first=random.random() < 0.5)  # as of several connections
            case "stale":
                self.log.fall_behind(name, random.randrange(0, self.log.stable(name) + 1))
            case "fresh":
                self.log.keep_up()
            case "delete":
                self._delete(random)
            case "create":
                pass
            case _:
                raise ValueError(act.what)

    def _finish(self, random: Random) -> None:
        """End the open transaction."""
        if self._open is not None:
            (self.log.commit if random.random() < 0.6 else self.log.abort)(self._open)
            self._open = None

    def _expired(self, name: str, number: int, random: Random) -> int:
        """Return before which offset retention takes records: that of the acknowledged ones, the next, or any."""
        if number in _BEYOND:
            return min(self._source.told().get(name, 0) + _BEYOND[number], self.log.stable(name))
        return random.randrange(0, self.log.stable(name) + 1)

    def _delete(self, random: Random) -> None:
        """Delete all topics, or one of several."""
        self.overtaken = True
        topics = [*self.log.topics]
        for topic in topics if random.random() < _ALL else [random.choice(topics)]:
            self.log.delete(topic)
            self._gone[topic] = random.randrange(1, _MOST + 1)

    def _create(self) -> None:
        """Make topics that were deleted again, with other records."""
        for topic, partitions in self._gone.items():
            self.log.create(topic, partitions)
        self.made_anew += bool(self._gone)
        self._gone.clear()

    def _made(self, name: str, count: int) -> pa.RecordBatch:
        """Return the rows of the next offsets of a partition, which are others in each topic of its name."""
        topic, number = split(self.log.lasting(name))
        first, shard = self.log.end(name), number + _MOST * (int(topic.rpartition("#")[2]) - 1)
        return made(self._columns, seed=self._seed, shard=shard, lower=first, upper=first + count)

    @staticmethod
    def _keys(random: Random, count: int) -> list[bytes]:
        return [random.choice((b"a", b"b", b"c", b"d", b"e")) for _ in range(count)]
