"""Ranges that are cut where there are holes: a consumer that is kept goes on from where it is."""

from __future__ import annotations

import pytest
from tests.sources.kafka.writing import NOW, bind, numbers, rows, transact, write
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import KafkaSource
from tidegauge.testing import Endpoint


def test_splits_of_a_hole_at_the_end_are_read_one_after_the_other(
    kafka_broker: Endpoint, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of them takes the consumer to the partition's end, of which the broker tells it once."""
    monkeypatch.setattr("tidegauge.sources.kafka.reading.PATIENCE", 5.0)
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
