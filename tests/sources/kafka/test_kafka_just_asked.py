"""What a look has just seen is planned without another question; what changes after it is found by whoever reads."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.sources.kafka.writing import NOW, bind, forget, numbers, read, recreate, write

import tidegauge as tg
from tidegauge.errors.base import Transient
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.sources import RangeOvertaken, RecordsLost
from tidegauge.job.perform import GOOD_FOR, recent
from tidegauge.kafka.settings import Settings
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.sources import KafkaSource
from tidegauge.testing import Endpoint

N = tg.Json("n long")
NOBODY = "127.0.0.1:1"


def source(broker: Endpoint, topic: str, **more: object) -> KafkaSource:
    return KafkaSource(broker.servers, topic=topic, format=N, **more).placed("flow", "it")  # type: ignore[arg-type]


def looked(it: KafkaSource) -> tuple[Bound, list[Slice]]:
    """What a first look binds, which has just been."""
    probe = it.probe(Bound(), now=NOW)
    bound, slices = bind(Bound(), probe, it)
    return replace(bound, last=probe), slices


def test_a_plan_asks_nobody_for_what_the_look_before_it_has_seen(kafka_broker: Endpoint, topic: str) -> None:
    write(kafka_broker, topic, numbers(range(3)))
    bound, slices = looked(source(kafka_broker, topic))
    for it in (source(replace(kafka_broker, servers=NOBODY), topic, on_data_loss=how) for how in ("stop", "gap")):
        [split] = it.plan(slices, bound)
        assert (split.lower, split.upper, it.lost(slices, bound)) == (0, 3, [])


def test_what_it_has_not_seen_or_saw_gone_is_asked_for(kafka_broker: Endpoint, topic: str) -> None:
    write(kafka_broker, topic, numbers(range(3)))
    it = source(kafka_broker, topic)
    bound, slices = looked(it)
    write(kafka_broker, topic, numbers(range(3)))
    forget(kafka_broker, topic, 1)
    late = it.probe(replace(bound, last=None), now=NOW)
    with pytest.raises(RecordsLost, match="from 0 to before 1"):
        it.plan(slices, replace(bound, last=late))
    nobody = source(replace(kafka_broker, servers=NOBODY), topic)
    with pytest.raises(Transient):
        nobody.plan([Slice("it", 1, f"{topic}-0", 3, 6)], bound)


@pytest.mark.parametrize("loss", ["stop", "gap"])
def test_what_retention_takes_between_a_look_and_the_reading_is_found_by_the_reader(
    loss: str, kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, numbers(range(9)))
    it = source(kafka_broker, topic, on_data_loss=loss)
    bound, slices = looked(it)
    forget(kafka_broker, topic, 4)
    [split] = it.plan(slices, bound)
    with pytest.raises(RecordsLost if loss == "stop" else RangeOvertaken):
        read(it, split, lambda _bad: None)


def test_a_topic_that_was_made_anew_since_and_is_shorter_is_found_by_the_reader(
    kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, numbers(range(9)))
    it = source(kafka_broker, topic)
    bound, slices = looked(it)
    slices = [replace(slices[0], lower=5)]
    recreate(kafka_broker, topic)
    write(kafka_broker, topic, numbers(range(3)))
    [split] = it.plan(slices, bound)
    with pytest.raises(UpstreamRecreated):
        read(it, split, lambda _bad: None)


@pytest.mark.parametrize("seconds", [-1, 0, 0.9, 1, 5])
def test_an_answer_is_good_for_a_second_also_where_the_clock_is_set_back(seconds: float) -> None:
    at = datetime(2026, 11, 22, tzinfo=UTC)
    bound = Bound(last=Observation(at=at, upper=Bound().frontier, end=Bound().frontier))
    kept = recent(bound, now=at + timedelta(seconds=seconds)).last is not None
    assert kept == (0 <= seconds < GOOD_FOR.total_seconds())


def test_what_a_source_was_given_is_looked_at_once_and_no_part_of_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    it = KafkaSource(NOBODY, topic=["a", "b"], format=N, settings={"client.id": "x"}, start=timedelta(hours=1))
    same = KafkaSource(NOBODY, topic=["a", "b"], format=N, settings={"client.id": "x"}, start=timedelta(hours=1))
    monkeypatch.setattr(Settings, "of", None)  # nothing of it is parsed from here on
    assert it.connection is it.connection
    for twin in (pickle.loads(pickle.dumps(it)), copy.deepcopy(it)):
        assert (twin, repr(twin), twin.describe()) == (it, repr(it), it.describe())
        assert (twin.connection, twin.topics, twin.begin) == (same.connection, same.topics, same.begin)
    monkeypatch.undo()
    other = replace(it, servers="127.0.0.1:2", settings={}, topic="c", start="latest")
    assert (other.connection, other.topics.names, other.begin.word) == (Settings.of("127.0.0.1:2"), ("c",), "latest")
    assert it == same != other
