"""What it means that the broker does not have a range: one answer, for the driver and for both readers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.kafka.writing import NOW, bind, forget, numbers, read, recreate, write

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.kafka import TopicRecreated
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.sources import RangeOvertaken, RecordsLost
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import KafkaSource
from tidegauge.sources.kafka.planning import outrun
from tidegauge.sources.kafka.probing import regressed
from tidegauge.testing import Endpoint

N = tg.Json("n long")


def source(*topics: str, servers: str = "here:9092", **more: object) -> KafkaSource:
    return KafkaSource(servers, topic=topics, format=N, **more).placed("flow", "it")  # type: ignore[arg-type]


@given(st.integers(0, 9), st.integers(1, 9), st.integers(0, 20), st.integers(0, 20), st.booleans())
def test_a_range_is_there_or_of_another_topic_or_lost_and_only_its_end_tells_the_latter_two_apart(
    lower: int,
    size: int,
    low: int,
    more: int,
    stop: bool,
) -> None:
    upper, end = lower + size, low + more
    what = source("t", on_data_loss="stop" if stop else "gap")._inquiry
    found = outrun(what, "t-0", lower, upper, low=low, end=end)
    there = range(low, end)
    assert (found is None) == all(offset in there for offset in range(lower, upper))
    bound = Bound(frontier=Frontier({"t-0": upper}))
    assert isinstance(found, UpstreamRecreated) == bool(regressed(bound, {"t-0": end}))  # as the probe finds it
    if found is not None and end >= upper:
        assert isinstance(found, RecordsLost if stop else RangeOvertaken)
        assert (found.evidence["asked"], found.evidence["there"]) == (lower, low)


@pytest.mark.parametrize("topics", [("t", "u"), (tg.Topics(pattern="t|u"),)])
def test_of_several_topics_none_is_offered_a_new_incarnation_that_would_repeat_the_others(
    topics: tuple[str, ...],
) -> None:
    what = source(*topics) if len(topics) > 1 else replace(source("t"), topic=topics[0])
    found = outrun(what._inquiry, "t-0", 0, 9, low=3, end=8)
    assert isinstance(found, TopicRecreated)
    assert "'t' are not those that are bound" in found.summary
    assert "u" in str(found.evidence["others"])


def test_t42_t43_the_driver_and_both_readers_say_the_same_of_a_range_that_is_gone(
    kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, numbers(range(50)))
    stopping = source(topic, servers=kafka_broker.servers)
    going = replace(stopping, on_data_loss="gap")
    bound, slices = bind(Bound(), stopping.probe(Bound(), now=NOW), stopping)
    splits: list[Any] = stopping.plan(slices, bound)

    def said(it: KafkaSource) -> set[type[TidegaugeError]]:
        found = {type(error) for _epoch, error in filter(None, [it.missing(splits)])}  # after Spark's reader failed
        for ask in (lambda: it.plan(slices, bound), lambda: read(it, splits[0], lambda _bad: None)):
            with pytest.raises(TidegaugeError) as raised:
                ask()
            found.add(raised.type)
        return found

    forget(kafka_broker, topic, 20)
    assert said(stopping) == {RecordsLost}
    assert said(going) == {RangeOvertaken}
    recreate(kafka_broker, topic)
    write(kafka_broker, topic, numbers(range(40)))
    forget(kafka_broker, topic, 10)  # it begins later and ends earlier: nobody may go on with what is left
    bound = replace(bound, details={f"{topic}-0": {"topic_id": "", "start": 0}})  # a broker without ids
    for it in (stopping, going):
        it = replace(it, group=f"{topic}-anew")  # a consumer that does not remember the other topic
        assert said(it) == {UpstreamRecreated}
        with pytest.raises(UpstreamRecreated):
            it.probe(bound, now=NOW)
    with pytest.raises(UpstreamRecreated):
        it.lost(slices, bound)
