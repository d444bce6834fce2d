"""`PartitionedLog`: topics as a cluster keeps them, in memory. A simulation writes it, and `SimulatedLog` reads it.

Offsets are Kafka's. The end of a transaction takes an offset of its own in each partition that it wrote to, aborted
records are not shown, compaction takes records out of the middle, and retention takes them from the beginning. So
offsets have holes. A reader of committed records sees a partition to its last stable offset: to the first record of
a transaction that is open.

A group's offsets are as the last commit that came has them. One can stay on its way while newer ones pass it: then
they go back. And an answer may have an older last stable offset than before, as of a leader that has just begun.

Nothing here moves by itself: no clock, no chance, no thread. What a writer asks for beyond the end is taken to the
end, so that an action still makes sense when a shorter life leaves out those before it.

Invariant: an offset has one record for as long as its topic lives, but for what `cut` takes back.

>>> log = PartitionedLog({"orders": 2})
>>> log.append("orders-0", pa.record_batch({"id": [1, 2]}))
0
>>> payment = log.begin()
>>> log.append("orders-0", pa.record_batch({"id": [3]}), within=payment)
2
>>> log.stable("orders-0"), log.end("orders-0")
(2, 3)
>>> log.abort(payment)
>>> log.stable("orders-0"), log.end("orders-0"), log.rows("orders-0", 0, 4)["id"].to_pylist()
(4, 4, [1, 2])
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NoReturn

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.kafka import BrokerUnreachable, TopicUnknown
from tidegauge.errors.sources import UnreadableRecord
from tidegauge.kafka.cluster import Topic, partition, split
from tidegauge.operations import OP, carries, unknown
from tidegauge.testing.simulation.upstream.partition import UNTIMED, LogChunk, LogPartition

__all__ = ["SERVERS", "PartitionedLog"]

SERVERS: Final = "memory"
"""What stands in errors where the address of a broker does."""
_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI: Final = timedelta(milliseconds=1)


class PartitionedLog:
    """Topics with their partitions, by name: `orders-0`. away: whether nobody answers at present.

    groups: the offsets that are committed for each group, by partition. slow: whether the next commit of offsets
    stays on its way, and so does its answer.

    Raises `InvalidArgument` for a topic, a partition or a transaction that is not there.
    """

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.away = False
        self.slow = False
        self.groups: dict[str, dict[str, int]] = {}
        self._topics: dict[str, list[LogPartition]] = {}
        self._ids: dict[str, str] = {}
        self._lives: dict[str, list[LogPartition]] = {}
        self._made = 0
        self._transactions = 0
        self._open: set[int] = set()
        self._aborted: set[int] = set()
        self._underway: list[tuple[str, dict[str, int]]] = []
        self._stale: dict[str, int] = {}
        for topic, partitions in topics.items():
            self.create(topic, partitions)

    # What its writers do.

    def create(self, topic: str, partitions: int = 1) -> None:
        """Make a topic with an identity that none had before."""
        if topic in self._topics or partitions < 1:
            raise InvalidArgument(parameter="topic", value=topic, expected="a topic that is not there, of partitions")
        self._made += 1
        self._ids[topic] = f"{topic}#{self._made}"
        self._topics[topic] = self._lives[self._ids[topic]] = [LogPartition() for _ in range(partitions)]

    def delete(self, topic: str) -> None:
        """Remove a topic with all that is in it, and what groups have committed of it. Who checks still finds it."""
        for number in range(len(self._named(topic))):
            for committed in self.groups.values():
                committed.pop(partition(topic, number), None)
        del self._topics[topic], self._ids[topic]

    def recreate(self, topic: str, partitions: int = 1) -> None:
        """Delete a topic and make another one of its name."""
        self.delete(topic)
        self.create(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, up to this number."""
        mine = self._named(topic)
        mine.extend(LogPartition() for _ in range(partitions - len(mine)))

    def append(
        self,
        place: str,
        rows: pa.RecordBatch,
        *,
        keys: Sequence[bytes | None] | None = None,
        at: datetime | None = None,
        within: int | None = None,
    ) -> int:
        """Append a record for each row to a partition, and return the offset of the first.

        keys: one for each. at: the time of all of them. within: the transaction that they belong to.
        """
        if keys is not None and len(keys) != rows.num_rows:
            raise InvalidArgument(parameter="keys", value=len(keys), expected=f"one for each of {rows.num_rows} rows")
        if carries(rows.schema) and unknown(rows[OP]) is not None:
            raise InvalidArgument(parameter=OP, value=rows[OP].to_pylist(), expected="operations; or `append_bad`")
        return self._append(place, rows.num_rows, rows=rows, keys=keys, at=at, within=within)

    def append_bad(
        self,
        place: str,
        raw: bytes,
        *,
        why: tuple[str, str] = (UnreadableRecord.code, "its bytes are no record"),
        key: bytes | None = None,
        at: datetime | None = None,
        within: int | None = None,
    ) -> int:
        """Append a record that cannot be decoded, and return its offset. why: the code and the problem."""
        return self._append(place, 1, raw=raw, why=why, keys=[key], at=at, within=within)

    def _append(self, place: str, count: int, *, at: datetime | None, within: int | None, **more: Any) -> int:
        mine = self._at(place)
        if within is not None:
            self._check_open(within)
        first = mine.end
        mine.add(
            LogChunk(
                range(first, first + count), time=_milliseconds(at), transaction=within, **{"rows": None, **more}
            )
        )
        return first

    def begin(self) -> int:
        """Open a transaction."""
        self._transactions += 1
        self._open.add(self._transactions)
        return self._transactions

    def commit(self, transaction: int, *, at: datetime | None = None) -> None:
        """Show the records of a transaction. at: the time of its end."""
        self._check_open(transaction)
        self._end(transaction, at)

    def abort(self, transaction: int, *, at: datetime | None = None) -> None:
        """End a transaction. Its records stay where they are, and are not shown."""
        self._check_open(transaction)
        self._aborted.add(transaction)
        self._end(transaction, at)

    def _end(self, transaction: int, at: datetime | None) -> None:
        """Write the marker of the transaction's end into each partition that it wrote to."""
        self._open.remove(transaction)
        for mine in (one for topic in self._topics.values() for one in topic):
            mine.finish(transaction, time=_milliseconds(at))

    def trim(self, place: str, to: int) -> None:
        """Let retention take the records before an offset, at most all. It takes open transactions, too."""
        self._at(place).trim(to)

    def compact(self, place: str) -> None:
        """Keep the newest record of each key, and those without one. Past the last stable offset nothing changes."""
        self._at(place).compact(self._aborted)

    def cut(self, place: str, to: int) -> None:
        """Take back the records from an offset on, as a cluster does that is restored from an older copy."""
        self._at(place).cut(to)

    def deliver(self, *, newest_first: bool = False) -> None:
        """Hear the commits of offsets on their way, and those from now on at once.

        One for a topic that is gone since is not heard: it could name another one.
        """
        self.slow = False
        underway, self._underway = self._underway, []
        for group, offsets in reversed(underway) if newest_first else underway:
            named = {self.plain(lasting): (lasting, offset) for lasting, offset in offsets.items()}
            there = {place: one for place, one in named.items() if self.has(place)}
            still = {place: offset for place, (known, offset) in there.items() if self.lasting(place) == known}
            self.groups.setdefault(group, {}).update(still)

    def forget(self) -> None:
        """Lose the commits of offsets on their way, and hear those from now on at once."""
        self.slow = False
        self._underway.clear()

    def fall_behind(self, place: str, to: int) -> None:
        """Tell a last stable offset that is no later than this one, until `keep_up`."""
        self._stale[self.lasting(place)] = to

    def keep_up(self) -> None:
        """Show the last stable offsets."""
        self._stale.clear()

    # What it tells.

    @property
    def topics(self) -> Mapping[str, int]:
        """The topics that there are, each with its number of partitions."""
        return {topic: len(partitions) for topic, partitions in self._topics.items()}

    def has(self, place: str) -> bool:
        """Whether there is a partition of this name."""
        topic, number = split(place)
        return number < len(self._topics.get(topic, ()))

    def lasting(self, place: str) -> str:
        """Return a partition's name for who checks: by its topic's id, so that it is its own also when that is gone.

        What asks for a partition takes it in place of the other: `orders#1-0` for `orders-0`.
        """
        topic, number = split(place)
        return partition(self._ids[topic], number)

    @staticmethod
    def plain(place: str) -> str:
        """Return the name that a partition has, or had, in the cluster."""
        topic, number = split(place)
        return partition(topic.partition("#")[0], number)

    def start(self, place: str) -> int:
        """Return the first offset that retention has left."""
        return self._at(place).start

    def stable(self, place: str) -> int:
        """Return the last stable offset: no open transaction has a record before it."""
        return self._at(place).stable

    def end(self, place: str) -> int:
        """Return the offset that comes next."""
        return self._at(place).end

    def held(
        self, place: str, lower: int, upper: int, *, committed: bool = True
    ) -> Iterator[tuple[LogChunk, int, int]]:
        """Yield the chunks with records in a range, each with which of its records these are."""
        for chunk, first, last in self._at(place).held(lower, upper):
            of = chunk.transaction
            if of is None or not committed or not (of in self._aborted or of in self._open):
                yield chunk, first, last

    def rows(self, place: str, lower: int, upper: int) -> pa.Table:
        """Return the committed rows of a range, for who checks: those that retention took, too."""
        held = self.held(place, lower, upper)
        found = [chunk.rows.slice(i, j - i) for chunk, i, j in held if chunk.rows is not None]
        return pa.Table.from_batches(found) if found else pa.table({})

    # What a `Cluster` answers, as `sources.kafka.asking` has it.

    def names(self) -> list[str]:
        """Return the names of all topics."""
        self.answer("list the topics")
        return sorted(self._topics)

    def described(self, topics: Collection[str]) -> dict[str, Topic]:
        """Return the topics of these names that exist."""
        self.answer("describe topics")
        return {
            name: Topic(self._ids[name], len(self._topics[name])) for name in sorted(topics) if name in self._topics
        }

    def offsets(
        self, places: Iterable[tuple[str, int]], at: Literal["earliest", "latest"] | int, *, committed: bool = True
    ) -> dict[str, int]:
        """Return where partitions begin, end, or have their first record of a time or later."""
        self.answer("tell offsets")
        found: dict[str, int] = {}
        unknown: list[str] = []
        for topic, number in places:
            if number >= len(self._topics.get(topic, ())):
                unknown.append(topic)
                continue
            mine = self._topics[topic][number]
            if at == "earliest":
                found[partition(topic, number)] = mine.start
            elif at == "latest":
                found[partition(topic, number)] = self._shown(topic, number) if committed else mine.end
            elif (first := mine.since(int(at))) is not None and (not committed or first < self._shown(topic, number)):
                found[partition(topic, number)] = first
        if unknown and not (found and isinstance(at, str)):
            raise TopicUnknown(servers=SERVERS, topics=sorted({*unknown}))
        return found

    def _shown(self, topic: str, number: int) -> int:
        """Return the last stable offset, or an older one, as an answer has it."""
        mine = self._topics[topic][number]
        return min(mine.stable, max(mine.start, self._stale.get(partition(self._ids[topic], number), mine.stable)))

    def commit_offsets(self, group: str, offsets: Mapping[str, int]) -> None:
        """Commit offsets for a group, whatever it has: who does not want it to go back looks first.

        Raises `BrokerUnreachable` where the request stays on its way.
        """
        self.answer("commit offsets")
        there = {place: offset for place, offset in offsets.items() if self.has(place)}
        if self.slow and there:
            self.slow = False
            self._underway.append((group, {self.lasting(place): offset for place, offset in there.items()}))
            raise BrokerUnreachable(servers=SERVERS, detail="no answer came: offsets may be committed, or will be")
        self.groups.setdefault(group, {}).update(there)

    def wait(self) -> None:
        """Return at once: a moment brings nothing new here."""

    def answer(self, doing: str) -> None:
        """Raise `BrokerUnreachable` while nobody answers."""
        if self.away:
            raise BrokerUnreachable(servers=SERVERS, detail=f"nobody answers at present: cannot {doing}")

    def _named(self, topic: str) -> list[LogPartition]:
        found = self._topics.get(topic)
        return self._unknown(topic) if found is None else found

    def _at(self, place: str) -> LogPartition:
        topic, number = split(place)
        try:
            return (self._topics.get(topic) or self._lives[topic])[number]
        except (KeyError, IndexError):
            return self._unknown(place)

    def _unknown(self, name: str) -> NoReturn:
        there = [partition(topic, number) for topic, mine in self._topics.items() for number in range(len(mine))]
        raise InvalidArgument(parameter="partition", value=name, expected=f"one of {there}")

    def _check_open(self, transaction: int) -> None:
        if transaction not in self._open:
            expected = f"a transaction that is open, one of {sorted(self._open)}"
            raise InvalidArgument(parameter="transaction", value=transaction, expected=expected)


def _milliseconds(at: datetime | None) -> int:
    return UNTIMED if at is None else (at - _ZERO) // _MILLI
