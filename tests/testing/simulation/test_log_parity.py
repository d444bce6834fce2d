"""A simulated log is held beside a real broker: the same life of both, action by action and call by call.

Each life draws how a source reads and what happens to its topics. After each call both sides must have said the same:
the same observation, the same splits and rows, the same class of error. Ids of topics are equal on one side when they
are on the other.

Not drawn here: compaction, which a broker does when it likes, and which has a test of its own; partitions without a
leader, which are not simulated; and offsets that a group committed of a topic that is gone, which a broker removes
later. Transactions are ended before a topic is deleted or gets partitions, since a producer has to be told. A topic
with holes is not restored from an older copy, since nobody can write its holes anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.depth import examples
from tests.sources.kafka.writing import all_rows
from tests.testing.simulation.parity import Pair
from tests.testing.simulation.real_log import ZERO, RealLog, message
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.kafka import KafkaFailed, TopicUnknown
from tidegauge.kafka.cluster import split
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.sources import KafkaSource
from tidegauge.testing import Endpoint
from tidegauge.testing.simulation.upstream import PartitionedLog, SimulatedLog

NOW: Final = datetime(2026, 11, 21, tzinfo=UTC)
N: Final = pa.schema([("n", pa.int64())])
STEPS: Final = 25
SAID: Final = ("partition", "asked", "there", "end", "seen", "topics", "others", "pattern")
"""What an error says that is the same on both sides: no ids, and no address."""
UNTOLD: Final = (TopicUnknown, KafkaFailed)
"""Of a topic that was deleted while it was read a broker says one or the other. It is planned again after both."""


def said(error: TidegaugeError) -> Any:
    kind = UNTOLD if isinstance(error, UNTOLD) else type(error)
    return kind, {} if kind is UNTOLD else {name: error.evidence.get(name) for name in SAID}


class LogLife:
    """One life of both sides: what happens upstream."""

    def __init__(self, broker: Endpoint, kept: list[Producer], draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.name = f"parity-{uuid.uuid4().hex[:8]}"
        letters = "ab"[: draw(st.sampled_from([1, 1, 1, 2]))]
        topics = {f"{self.name}-{letter}": draw(st.integers(1, 2)) for letter in letters}
        self.log = PartitionedLog(topics)
        self.real = RealLog(broker, topics, kept)
        self.plain = draw(st.integers(0, 2)) == 0
        """Whether no transaction is opened, so that topics can be restored."""
        self.open: list[int] = []
        self.gone: set[str] = set()
        self.made = False
        """Whether a topic was deleted, or made anew."""
        self.number = 0
        self.ids: dict[str, str] = {}
        committed = self.plain or draw(st.integers(0, 3)) > 0
        level = {} if committed else {"isolation.level": "read_uncommitted"}
        options: dict[str, Any] = {
            "topic": sorted(topics),
            "start": draw(st.sampled_from(["earliest", "latest", NOW - timedelta(seconds=5), timedelta(seconds=2)])),
            "max_records_per_epoch": draw(st.sampled_from([3, 10, 1000])),
            "split_records": draw(st.sampled_from([1, 3, 1000])),
            "on_data_loss": draw(st.sampled_from(["stop", "gap"])),
            "metadata": True,
            "group": self.name,
        }
        self.pair = Pair(
            KafkaSource(broker.servers, format=tg.Json("n long"), settings=level, **options),
            SimulatedLog(self.log, columns=N, committed=committed, **options),
            draw,
            said=said,
            alike=self.same_ids,
        )

    def same_ids(self, real: Observation, simulated: Observation) -> None:
        for place, detail in real.details.items():
            theirs, ours = str(detail["topic_id"]), str(simulated.details[place]["topic_id"])
            assert self.ids.setdefault(theirs, ours) == ours
            assert detail["start"] == simulated.details[place]["start"]
        assert len({*self.ids.values()}) == len(self.ids)

    def place(self) -> str:
        places = [f"{topic}-{n}" for topic, count in self.log.topics.items() for n in range(count)]
        return str(self.draw(st.sampled_from(places)))

    def topic(self) -> str:
        return str(self.draw(st.sampled_from(sorted(self.log.topics))))

    def append(self) -> None:
        place, within = self.place(), self.draw(st.sampled_from([None, *self.open, *self.open]))
        at = NOW - timedelta(seconds=self.draw(st.integers(0, 9)))
        if self.draw(st.integers(0, 5)) == 5:
            raw = b"surely not a number"
            self.log.append_bad(place, raw, at=at, within=within)
            self.real.append(place, [raw], keys=[None], at=at, within=within)
            return
        numbers = range(self.number, self.number + self.draw(st.integers(1, 4)))
        self.number = numbers.stop
        keys = [self.draw(st.sampled_from([None, b"a", b"b"])) for _ in numbers]
        rows = pa.record_batch([pa.array(numbers, pa.int64())], schema=N)
        self.log.append(place, rows, keys=keys, at=at, within=within)
        self.real.append(place, [*map(message, numbers)], keys=keys, at=at, within=within)

    def begin(self) -> None:
        self.open.append(self.log.begin())
        self.real.begin(self.open[-1])

    def finish(self) -> None:
        self.end(self.draw(st.sampled_from(self.open)), commit=self.draw(st.booleans()))

    def end(self, transaction: int, *, commit: bool) -> None:
        self.open.remove(transaction)
        (self.log.commit if commit else self.log.abort)(transaction, at=datetime.now(UTC))
        self.real.finish(transaction, commit=commit)

    def end_all(self) -> None:
        for transaction in [*self.open]:
            self.end(transaction, commit=False)

    def trim(self) -> None:
        place = self.place()
        start, end = self.log.start(place), self.log.end(place)
        to = self.draw(st.sampled_from([end, max(start, end - 1)]) | st.integers(start, end))
        self.log.trim(place, to)
        self.real.trim(place, to)
        self.forget_consumers()

    def grow(self) -> None:
        self.end_all()
        topic = self.topic()
        self.log.grow(topic, self.log.topics[topic] + 1)
        self.real.grow(topic, self.log.topics[topic])

    def delete(self) -> None:
        self.end_all()
        topic = self.topic()
        self.log.delete(topic)
        self.real.delete(topic)
        self.gone.add(topic)
        self.made = True
        self.forget_consumers()

    def create(self) -> None:
        self.end_all()
        topic = self.draw(st.sampled_from(sorted(self.gone)))
        self.gone.remove(topic)
        self.log.create(topic, count := self.draw(st.integers(1, 2)))
        self.real.create(topic, count)
        self.forget_consumers()

    def cut(self) -> None:
        """Restore a topic from a copy in which the last records of a partition are not there."""
        place = self.place()
        topic = split(place)[0]
        self.log.cut(place, self.draw(st.integers(self.log.start(place), self.log.end(place))))
        self.real.delete(topic)
        self.real.create(topic, self.log.topics[topic])
        for number in range(self.log.topics[topic]):
            self.restore(f"{topic}-{number}")
        self.made = True
        self.ids.clear()
        first, second = (
            replace(bound, details={p: {**detail, "topic_id": ""} for p, detail in bound.details.items()})
            for bound in self.pair.bounds
        )
        self.pair.bounds = (first, second)
        self.forget_consumers()

    def restore(self, place: str) -> None:
        """Write all records of a partition again."""
        start, end = self.log.start(place), self.log.end(place)
        if start:
            self.real.append(place, [b"gone"] * start, keys=[None] * start, at=NOW)
            self.real.trim(place, start)
        for chunk, first, last in self.log.held(place, start, end):
            values = [chunk.raw] if chunk.rows is None else [*map(message, chunk.rows["n"].to_pylist())]
            keys, at = [*(chunk.keys or ())], ZERO + timedelta(milliseconds=chunk.time)
            self.real.append(place, values[first:last], keys=keys[first:last], at=at)

    def forget_consumers(self) -> None:
        """Read with consumers that have fetched nothing ahead of what happened just now."""
        self.pair.real = replace(self.pair.real, group=f"{self.name}-{uuid.uuid4().hex[:4]}")

    def probe(self) -> None:
        self.pair.probe(NOW, binds=self.draw(st.integers(0, 3)) > 0)

    def read(self) -> None:
        bound = self.pair.slices
        self.read_all(bound if self.draw(st.booleans()) else bound[:1])

    def read_all(self, wanted: list[tuple[Slice, Slice]]) -> None:
        self.pair.read(wanted, ranges=lambda split: split.ranges)

    def settle(self) -> None:
        """Read all that there is in the end."""
        self.end_all()
        while self.pair.probe(NOW, binds=True):
            self.read_all(self.pair.slices)
        self.read_all(self.pair.slices)

    def confirm(self) -> None:
        self.pair.both(lambda source, bound, _side: source.confirm(bound))

    def acknowledge(self) -> None:
        frontier, mine = self.pair.bounds[0].frontier, replace(self.pair.real, group=self.name)

        def told() -> bool:
            """Whether the group's coordinator, which is new, was there."""
            with suppress(KafkaFailed):
                mine.acknowledge(frontier)
                return True
            return False

        if not self.made:
            eventually(told)
            self.pair.simulated.acknowledge(frontier)
            assert mine.unacknowledged(frontier) == self.pair.simulated.unacknowledged(frontier) == ""
            if self.draw(st.booleans()) and (older := {p: at // 2 for p, at in frontier.items() if at}):
                for log in (self.real, self.log):  # of one who comes late
                    log.commit_offsets(self.name, older)
                lacks = self.pair.simulated.unacknowledged(frontier)
                assert lacks
                assert mine.unacknowledged(frontier).startswith(lacks)

    def live(self) -> None:
        """Let something happen, or ask something, of what is possible now."""
        steps: list[Callable[[], None]] = [*[self.probe] * 8, self.confirm, self.acknowledge]
        steps += [self.pair.restart]
        steps += [self.read] * (8 if self.pair.slices else 0)
        if self.log.topics:
            steps += [*[self.append] * 10, *[self.trim] * 4, self.grow, self.delete]
            steps += [self.cut] * 2 if self.plain else []
        if not self.plain:
            steps += [self.begin] * (6 if len(self.open) < 2 else 0) + [self.finish] * (3 * len(self.open))
        steps += [self.create] * (3 * len(self.gone))
        self.draw(st.sampled_from(steps))()


@pytest.fixture(scope="module")
def kept() -> list[Producer]:
    """Transactional producers that have done their work in one life, for the next."""
    return []


@settings(max_examples=examples(16), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_a_simulated_log_says_what_a_broker_says(
    kafka_broker: Endpoint, kept: list[Producer], data: st.DataObject
) -> None:
    life = LogLife(kafka_broker, kept, data.draw)
    try:
        life.append()
        for _ in range(STEPS):
            life.live()
        life.settle()
    finally:
        life.real.close()


@pytest.mark.long
def test_a_compacted_topic_is_read_alike(kafka_broker: Endpoint, make_topic: Callable[..., str]) -> None:
    quick = {"min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "200", "segment.ms": "100"}
    topic = make_topic(config={"cleanup.policy": "compact", **quick})
    log, real = PartitionedLog({topic: 1}), RealLog(kafka_broker, {}, [])
    options: dict[str, Any] = {"topic": topic, "metadata": True}
    kafka = KafkaSource(kafka_broker.servers, format=tg.Json("n long"), **options)
    simulated = SimulatedLog(log, columns=N, **options)
    place, keys = f"{topic}-0", [b"a", b"b", b"a", b"b", b"a"]

    def append(numbers: range, keys: list[bytes | None]) -> None:
        at = datetime.now(UTC)  # by which segments are rolled
        log.append(place, pa.record_batch([pa.array(numbers, pa.int64())], schema=N), keys=keys, at=at)
        real.append(place, [*map(message, numbers)], keys=keys, at=at)

    append(range(5), [*keys])

    def compacted() -> bool:
        append(range(90, 91), [uuid.uuid4().bytes])  # rolls the segment: what it holds can be compacted from then on
        return [row["n"] for row in all_rows(kafka)][:3] == [3, 4, 90]

    eventually(compacted, within=60)
    log.compact(place)
    bound = Bound()
    assert all_rows(kafka, bound=bound) == all_rows(simulated, bound=bound)  # type: ignore[arg-type]
