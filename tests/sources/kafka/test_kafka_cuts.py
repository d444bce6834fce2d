"""Ranges that are cut where there are holes: a consumer that is kept goes on from where it is."""

from __future__ import annotations

from tests.sources.kafka.writing import NOW, bind, numbers, rows, transact, write
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.remap.binding import Bound, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import KafkaSource
from tidegauge.testing import Endpoint


def test_splits_of_a_hole_at_the_end_are_read_one_after_the_other(kafka_broker: Endpoint, topic: str) -> None:
    """The first of them takes the consumer to the partition's end, of which the broker tells it once."""
    it = KafkaSource(kafka_broker.servers, topic=topic, format=tg.Json("n long"), split_records=2, name="it")
    write(kafka_broker, topic, numbers(range(3)))
    transact(kafka_broker, topic, numbers(range(5)), commit=False)
    eventually(lambda: it.probe(Bound(), now=NOW).upper == Frontier({f"{topic}-0": 9}))  # with the marker
    bound, slices = bind(Bound(), it.probe(Bound(), now=NOW), it)
    assert len(it.plan(slices, bound)) == 5
    assert [row["n"] for row in rows(it, slices, bound)] == [0, 1, 2]
    write(kafka_broker, topic, numbers([3]))
    bound, slices = bind(bound, it.probe(bound, now=NOW), it)
    assert [row["n"] for row in rows(it, slices, bound)] == [3]


def test_offsets_before_the_start_count_for_nothing_where_a_range_is_cut() -> None:
    """A topic that retention has begun anew many times has its first record far from 0."""
    it = KafkaSource("nowhere:9092", topic="t", format=tg.Json("n long"))
    bound = Bound(details={"t-0": {"start": 1_000_000}})
    first, later = Slice("s", 0, "t-0", 0, 1_000_040), Slice("s", 1, "t-0", 1_000_040, 1_000_050)
    assert (it.size(first, bound), it.cut(first, 10, bound)) == (40, 1_000_010)
    assert (it.size(later, bound), it.cut(later, 4, bound)) == (10, 1_000_044)
    assert it.size(Slice("s", 0, "t-0", 0, 7), bound) == 0, "a slice before it has nothing"
