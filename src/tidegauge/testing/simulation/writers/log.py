"""The writers of a log: records in bursts, transactions, more partitions, compaction, retention.

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

from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream import SimulatedLog
from tidegauge.testing.simulation.writers.values import check_columns, made

__all__ = ["LogUpstream"]

_MOST: Final = 4


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
        self._seed: Final = seed
        self._compacted: Final[dict[str, set[int]]] = {}
        self._columns: Final = self._source.data
        check_columns(name, self._columns)

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Let nobody answer, or somebody again."""
        self.log.away = away

    def source(self, meet: Callable[[str], None]) -> SimulatedLog:
        """Return the source, as one driver has it."""
        return replace(self._source, meet=meet)

    def learn(self, partition: str, details: Mapping[str, Any]) -> None:
        """A partition is named after its topic, which says all."""

    def there(self) -> dict[str, int]:
        """Return the next position of each partition that has something: all that has to arrive."""
        return {place: end for place in self._places if (end := self.log.stable(place)) > 0}

    def end(self, partition: str) -> int:
        """Return the next position of a partition: nothing beyond it can be bound."""
        return self.log.stable(partition)

    def start(self, partition: str) -> int:
        """Return the first position that retention has left."""
        return self.log.start(partition)

    def told(self) -> Mapping[str, int]:
        """Return the positions that were acknowledged."""
        return self._source.told()

    def rows(self, partition: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the committed rows of a range, also those that retention took."""
        found = self._source.committed_rows(partition, lower, upper)
        return [] if found is None else [found]

    def _offsets(self, place: str) -> set[int]:
        held = self.log.held(place, 0, self.log.end(place))
        return {offset for chunk, first, last in held for offset in chunk.offsets[first:last]}

    def blurred(self, partition: str, lower: int, upper: int) -> bool:
        """Whether compaction took records of a range, which only earlier commits may have."""
        return any(lower <= offset < upper for offset in self._compacted.get(partition, ()))

    @property
    def _places(self) -> list[str]:
        return [f"{topic}-{number}" for topic, count in self.log.topics.items() for number in range(count)]

    def act(self, act: Act) -> None:
        """Do what a writer does. number: how much of it, and by that to which partition."""
        random = Random(f"{self._seed} {act.at} {act.what}")  # noqa: S311 - nothing is secret here
        place = random.choice(self._places)
        match act.what:
            case "append":
                self.log.append(place, self._made(place, act.number), keys=self._keys(random, act.number))
            case "transact":
                number = self.log.begin()
                for _ in range(random.randrange(1, 3)):
                    place = random.choice(self._places)
                    self.log.append(place, self._made(place, act.number), within=number)
                (self.log.commit if random.random() < 0.6 else self.log.abort)(number)
            case "compact":
                before = self._offsets(place)
                self.log.compact(place)
                self._compacted.setdefault(place, set()).update(before - self._offsets(place))
            case "grow":
                topic = place.rpartition("-")[0]
                self.log.grow(topic, min(_MOST, self.log.topics[topic] + 1))
            case "retention":
                self.overtaken = True
                self.log.trim(place, random.randrange(0, self.log.stable(place) + 1))
            case _:
                raise ValueError(act.what)

    def _made(self, place: str, count: int) -> pa.RecordBatch:
        """Return the rows of the next offsets of a partition."""
        first, shard = self.log.end(place), int(place.rpartition("-")[2])
        return made(self._columns, seed=self._seed, shard=shard, lower=first, upper=first + count)

    @staticmethod
    def _keys(random: Random, count: int) -> list[bytes]:
        return [random.choice((b"a", b"b", b"c", b"d", b"e")) for _ in range(count)]
