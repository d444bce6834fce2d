"""The numbered cases that a Kafka source has to pass by itself, on a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from itertools import product
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from tests.sources.kafka.writing import (
    NOW,
    all_rows,
    bind,
    delete,
    forget,
    grow,
    low,
    numbers,
    read,
    recreate,
    rows,
    transact,
    write,
)
from tests.testing.simulation.real_log import RealLog
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.base import Transient
from tidegauge.errors.kafka import TopicDeleted, TopicRecreated
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.sources import RecordsLost
from tidegauge.kafka import clients
from tidegauge.kafka.cluster import AskedCluster
from tidegauge.remap.binding import Bound, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import KafkaSource
from tidegauge.sources.kafka.planning import Range
from tidegauge.sources.kafka.probing import TopicListing, admitted
from tidegauge.sources.kafka.reading import PATIENCE, Bulk, _RangeReader
from tidegauge.testing import Endpoint
from tidegauge.testing.simulation.upstream import PartitionedLog, SimulatedLog

N = tg.Json("n long")


def source(broker: Endpoint, topic: str, **more: object) -> KafkaSource:
    return KafkaSource(broker.servers, topic=topic, format=N, **more).placed("flow", "it")  # type: ignore[arg-type]


def test_t41_a_new_partition_enters_whole_at_one_epoch_whatever_start_and_limit_say(
    kafka_broker: Endpoint, topic: str
) -> None:
    it = source(kafka_broker, topic, start="latest", max_records_per_epoch=3)
    bound, _ = bind(Bound(), it.probe(Bound(), now=NOW), it)
    grow(kafka_broker, topic, 2)
    write(kafka_broker, topic, numbers(range(5)), partition=1)
    write(kafka_broker, topic, numbers(range(10, 14)))
    eventually(lambda: f"{topic}-1" in it.probe(bound, now=NOW).end)
    probe = it.probe(bound, now=NOW)
    assert probe.upper == Frontier({f"{topic}-1": 5})  # all of it, and the limit leaves nothing for the other
    assert probe.more
    bound, slices = bind(bound, probe, it)
    assert [row["n"] for row in rows(it, slices, bound)] == [0, 1, 2, 3, 4]
    assert it.probe(bound, now=NOW).upper == Frontier({f"{topic}-0": 3, f"{topic}-1": 5})


def test_t42_an_emptied_topic_is_ready_at_its_end(kafka_broker: Endpoint, topic: str) -> None:
    write(kafka_broker, topic, numbers(range(100)))
    forget(kafka_broker, topic, 100)
    it = source(kafka_broker, topic)
    probe = it.probe(Bound(), now=NOW)
    assert probe.upper == probe.end == Frontier({f"{topic}-0": 100})
    assert not probe.more
    assert all_rows(it) == []


def test_t42_records_that_were_bound_or_due_and_are_gone_are_a_definite_loss(
    kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, numbers(range(50)))
    it = source(kafka_broker, topic)
    bound, slices = bind(Bound(), it.probe(Bound(), now=NOW), it)
    write(kafka_broker, topic, numbers(range(50)))
    forget(kafka_broker, topic, 100)
    with pytest.raises(RecordsLost, match=f"records of {topic}-0 from 50 to before 100 are lost"):
        it.probe(bound, now=NOW)
    with pytest.raises(RecordsLost, match=f"records of {topic}-0 from 0 to before 100 are lost"):
        it.plan(slices, bound)


def test_t42_a_task_that_retention_overtakes_says_what_is_lost(kafka_broker: Endpoint, topic: str) -> None:
    write(kafka_broker, topic, numbers(range(50)))
    it = source(kafka_broker, topic)
    bound, slices = bind(Bound(), it.probe(Bound(), now=NOW), it)
    [split] = it.plan(slices, bound)
    forget(kafka_broker, topic, 20)
    with pytest.raises(RecordsLost, match=f"records of {topic}-0 from 0 to before 20 are lost"):
        read(it, split, lambda _record: None)


def test_t43_a_recreated_topic_is_found_by_its_id_also_when_it_is_longer(kafka_broker: Endpoint, topic: str) -> None:
    write(kafka_broker, topic, numbers(range(3)))
    it = source(kafka_broker, topic)
    bound, slices = bind(Bound(), it.probe(Bound(), now=NOW), it)
    it.confirm(bound)
    recreate(kafka_broker, topic)
    write(kafka_broker, topic, numbers(range(9)))
    with pytest.raises(UpstreamRecreated, match="with the id"):
        it.confirm(bound)
    with pytest.raises(UpstreamRecreated, match="with the id"):
        it.probe(bound, now=NOW)
    with pytest.raises(UpstreamRecreated, match="with the id"):
        it.plan(slices, bound)


def test_t43_without_ids_a_topic_that_ends_before_what_is_bound_is_found(kafka_broker: Endpoint, topic: str) -> None:
    write(kafka_broker, topic, numbers(range(40)))
    it = source(kafka_broker, topic)
    bound = Bound(
        frontier=Frontier({f"{topic}-0": 100}), details={f"{topic}-0": {"topic_id": "", "start": 0}}, schema=N.schema
    )
    with pytest.raises(UpstreamRecreated, match=f"{topic}-0 with records to 40"):
        it.probe(bound, now=NOW)


def test_t43_of_several_topics_one_that_was_recreated_cannot_begin_anew_alone(
    kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    one, other = make_topic(), make_topic()
    for topic in (one, other):
        write(kafka_broker, topic, numbers(range(3)))
    it = source(kafka_broker, [one, other])  # type: ignore[arg-type]
    bound, _ = bind(Bound(), it.probe(Bound(), now=NOW), it)
    recreate(kafka_broker, one)
    with pytest.raises(TopicRecreated, match=one):
        it.probe(bound, now=NOW)
    write(kafka_broker, other, numbers([3]))
    left = source(kafka_broker, other)  # without it the other one goes on
    bound, slices = bind(bound, left.probe(bound, now=NOW), left)
    assert [row["n"] for row in rows(left, slices, bound)] == [3]


def test_t44_a_deleted_topic_is_definite_and_one_that_a_listing_lacks_is_not(
    kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, numbers(range(3)))
    it = source(kafka_broker, topic)
    bound, slices = bind(Bound(), it.probe(Bound(), now=NOW), it)
    kept = admitted(bound, TopicListing({}, {}, {}), {}, whole=(), limit=10)
    assert (kept.upper, kept.more) == (bound.frontier, False)
    delete(kafka_broker, topic)
    with pytest.raises(TopicDeleted, match=topic):
        it.confirm(bound)
    with pytest.raises(TopicDeleted, match=topic):
        it.probe(bound, now=NOW)
    with pytest.raises(TopicDeleted, match=topic):
        it.plan(slices, bound)


def test_t45_ranges_with_holes_and_ranges_that_end_in_them_complete_at_once(
    kafka_broker: Endpoint, topic: str
) -> None:
    transact(kafka_broker, topic, numbers(range(3)))  # 0-2, marker 3
    transact(kafka_broker, topic, numbers(range(10, 15)), commit=False)  # 4-8 aborted, marker 9
    it = source(kafka_broker, topic)
    begun = time.monotonic()
    probe = it.probe(Bound(), now=NOW)
    assert probe.upper == Frontier({f"{topic}-0": 10})
    bound, slices = bind(Bound(), probe, it)
    assert [row["n"] for row in rows(it, slices, bound)] == [0, 1, 2]
    only_holes = [Slice("it", 0, f"{topic}-0", 4, 7)]
    assert rows(it, only_holes, bound) == []
    write(kafka_broker, topic, numbers([7]))
    assert rows(it, only_holes, bound) == []
    assert time.monotonic() - begun < PATIENCE  # for which a reader waits for what does not come


def test_t45_an_open_transaction_holds_the_end_back(kafka_broker: Endpoint, topic: str) -> None:
    from confluent_kafka import Producer

    write(kafka_broker, topic, numbers(range(2)))
    producer = Producer({"bootstrap.servers": kafka_broker.servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b'{"n": 2}', partition=0)
    producer.flush(30)
    committed, every = (
        source(kafka_broker, topic),
        source(kafka_broker, topic, settings={"isolation.level": "read_uncommitted"}),
    )
    assert committed.probe(Bound(), now=NOW).upper == Frontier({f"{topic}-0": 2})
    probe = every.probe(Bound(), now=NOW)
    assert probe.upper == Frontier({f"{topic}-0": 3})
    bound, slices = bind(Bound(), probe, every)
    assert [row["n"] for row in rows(every, slices, bound)] == [0, 1, 2]
    assert committed.probe(bound, now=NOW).upper == bound.frontier  # behind what is bound, and no regression
    producer.commit_transaction(30)
    eventually(lambda: committed.probe(bound, now=NOW).upper == Frontier({f"{topic}-0": 4}))  # its marker is written


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("trimmed", [0, 6], ids=["whole", "trimmed in the midst of the transaction"])
def test_t45_a_time_to_start_at_is_found_within_an_open_transaction(
    kafka_broker: Endpoint, topic_name: str, level: str, trimmed: int
) -> None:
    place, second = f"{topic_name}-0", timedelta(seconds=1)
    options: dict[str, Any] = {"start": NOW - 5 * second, "settings": {"isolation.level": level}}
    committed = level == "read_committed"
    log, real = PartitionedLog({topic_name: 1}), RealLog(kafka_broker, {topic_name: 1}, [])
    options |= {"topic": topic_name, "metadata": True}
    kafka = KafkaSource(kafka_broker.servers, format=N, **options)
    options.pop("settings")
    simulated = SimulatedLog(log, columns="n long", committed=committed, **options)

    def append(ns: range, ago: int, within: int | None = None) -> None:
        at, keys = NOW - ago * second, [None] * len(ns)
        log.append(place, pa.record_batch({"n": pa.array(ns, pa.int64())}), at=at, within=within)
        real.append(place, numbers(ns), keys=keys, at=at, within=within)

    append(range(3), 9)
    real.begin(opened := log.begin())
    append(range(3, 5), 8, opened)  # before the time, and open
    append(range(5, 7), 1, opened)  # the first of the time or later
    append(range(7, 9), 7, opened)
    if trimmed:
        log.trim(place, trimmed)
        real.trim(place, trimmed)
    first = max(5, trimmed)
    moments: list[Any] = [
        "earliest",
        "latest",
        *(int((NOW - ago * second).timestamp() * 1000) for ago in (9, 8, 5, 0)),
    ]
    with clients.admin(kafka.connection) as client:
        asked = AskedCluster(client, kafka_broker.servers)
        for moment, below in product(moments, (True, False)):
            at = [it.offsets([(topic_name, 0)], moment, committed=below) for it in (asked, log)]
            assert at[0] == at[1], (moment, below)
    both: list[Any] = [kafka, simulated]
    probes = [it.probe(Bound(), now=NOW) for it in both]
    starts = [probe.details[place]["start"] for probe in probes]
    assert starts == [first, first]
    assert probes[0].upper == probes[1].upper == Frontier({place: max(3, trimmed - 1) if committed else 9})
    log.commit(opened, at=NOW)
    real.finish(opened, commit=True)
    for it, probe in zip(both, probes, strict=True):
        bound, slices = bind(Bound(), probe, it)
        found = rows(it, slices, bound) + all_rows(it, bound=bound)
        assert [row["n"] for row in found] == [*range(first, 9)]


def test_a_partition_that_nobody_tells_a_time_of_is_not_one_without_a_record_so_late(
    kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, numbers([0]))
    log = PartitionedLog({topic: 1})
    log.append(f"{topic}-0", pa.record_batch({"n": [0]}), at=NOW)
    with clients.admin(source(kafka_broker, topic).connection) as client:
        for asked in (AskedCluster(client, kafka_broker.servers), log):
            places = [(topic, 0), (topic, 1)]
            assert asked.offsets(places, "latest") == {f"{topic}-0": 1}
            for moment, there in ((0, {f"{topic}-0": 0}), (2**62, {})):
                assert asked.offsets(places[:1], moment) == there
                with pytest.raises(Transient):
                    asked.offsets(places, moment)


def test_t45_a_compacted_topic_gives_what_is_left_of_it(
    kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "200",
    }
    topic = make_topic(config=config)
    for n in range(5):
        write(kafka_broker, topic, numbers([n]), key=b"the only key")
    it = source(kafka_broker, topic)

    def compacted() -> bool:
        write(kafka_broker, topic, numbers([99]), key=b"another key")  # rolls the segment
        found = [row["n"] for row in all_rows(it)]
        return found.count(4) == 1 and 0 not in found

    eventually(compacted, within=60)


class Consumer:
    """A consumer that gives out what it is told to."""

    def __init__(self, *gulps: list[object]) -> None:
        self.gulps = list(gulps)

    def consume(self, _count: int, _timeout: float) -> list[object]:
        return self.gulps.pop(0)


class Message:
    """A message of partition `t-0`."""

    def __init__(self, offset: int) -> None:
        self.at = offset

    def offset(self) -> int:
        return self.at

    def error(self) -> None:
        return None

    def value(self) -> bytes:
        return b"%d" % self.at

    def key(self) -> None:
        return None

    def __len__(self) -> int:
        return len(self.value())

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (1, 0)


def test_t46_records_that_come_again_are_dropped() -> None:
    of = [[Message(n) for n in found] for found in ([0, 1, 2, 3, 4, 5], [3, 4, 5, 6], [5, 4, 7, 7, 8, 12])]
    client = clients.Client(Consumer(*of), print)  # type: ignore[arg-type]
    it = KafkaSource("nowhere:1", topic="t", format=N)
    reader = _RangeReader(client, it.connection, [Range("t-0", 0, 10)], it._inquiry, headers=False)
    found: list[Bulk] = list(reader.read())
    assert [offset for bulk in found for offset in bulk.offsets] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert [value for bulk in found for value in bulk.values] == [b"%d" % n for n in range(9)]
    assert not reader.exact  # what follows the range was taken too, so the consumer does not go on from there


def test_t45_a_partitions_end_that_comes_with_its_last_records_is_behind_them() -> None:
    def said(partition: int, offset: int, *, end: bool = False) -> confluent_kafka.Message:
        error = confluent_kafka.KafkaError(confluent_kafka.KafkaError._PARTITION_EOF) if end else None
        return confluent_kafka.Message(topic="t", partition=partition, offset=offset, value=b"{}", error=error)

    of = [[said(0, 0), said(0, 1), said(0, 3, end=True), said(1, 0)], [said(1, 1)]]  # at 2 of t-0 is a hole
    client = clients.Client(Consumer(*of), print)  # type: ignore[arg-type]
    it = KafkaSource("nowhere:1", topic="t", format=N)
    reader = _RangeReader(client, it.connection, [Range("t-0", 0, 3), Range("t-1", 0, 2)], it._inquiry, headers=False)
    assert [bulk.runs for bulk in reader.read()] == [[("t-0", 2), ("t-1", 1), ("t-1", 1)]]
    assert reader.exact


def test_a_new_partition_of_which_records_are_gone_is_a_loss(kafka_broker: Endpoint, topic: str) -> None:
    it = source(kafka_broker, topic)
    bound, _ = bind(Bound(), it.probe(Bound(), now=NOW), it)
    grow(kafka_broker, topic, 2)
    write(kafka_broker, topic, numbers(range(5)), partition=1)
    forget(kafka_broker, topic, 3, partition=1)
    assert low(kafka_broker, topic, 1) == 3
    with pytest.raises(RecordsLost, match=f"records of {topic}-1 from 0 to before 3 are lost"):
        it.probe(bound, now=NOW)
