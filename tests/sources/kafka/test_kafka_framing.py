"""Messages that Spark has read are cut by the ranges of splits, whatever comes in whatever batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.kafka.writing import ANY_TIME, NOW, bind, numbers, write

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.kafka import MessageTimeUnfit, SettingNotShared
from tidegauge.remap.binding import Bound
from tidegauge.sources import KafkaSource
from tidegauge.sources.kafka.framing import pinned, received
from tidegauge.sources.kafka.planning import KafkaSplit, Range
from tidegauge.testing import Endpoint
from tidegauge.testing.endpoint import quiet

PARTITIONS = ("a-0", "a-1", "b-c-0")
Message = tuple[str, int]


@st.composite
def planned(draw: st.DrawFn) -> list[KafkaSplit]:
    """Splits of some epochs; between the ranges of a partition there may be holes."""
    splits = []
    for partition in draw(st.sets(st.sampled_from(PARTITIONS), min_size=1)):
        cuts = sorted(draw(st.sets(st.integers(0, 30), min_size=2, max_size=6)))
        pieces = [Range(partition, lower, upper) for lower, upper in pairwise(cuts)]
        kept = [(epoch, one) for epoch, one in enumerate(pieces) if epoch == 0 or draw(st.booleans())]
        splits += [KafkaSplit(epoch=epoch, ranges=(one,), schema=pa.schema([])) for epoch, one in kept]
    return draw(st.permutations(splits))


def batch(messages: list[Message]) -> pa.RecordBatch:
    columns = {
        "topic": [partition.rpartition("-")[0] for partition, _ in messages],
        "partition": [int(partition.rpartition("-")[2]) for partition, _ in messages],
        "offset": [offset for _, offset in messages],
    }
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
    return pa.RecordBatch.from_pydict(columns, schema)


@given(planned(), st.data())
def test_a_message_is_in_the_piece_of_the_range_that_has_it_once_and_in_order(
    splits: list[KafkaSplit], data: st.DataObject
) -> None:
    mine = {one.partition for split in splits for one in split.ranges}
    messages = [(p, o) for p in sorted(mine) for o in sorted(data.draw(st.sets(st.integers(0, 35))))]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(messages)))) | {0, len(messages)})
    pieces = list(received([batch(messages[i:j]) for i, j in pairwise(cuts)], splits))
    got = [(piece.epoch, piece.partition, o) for piece in pieces for o in piece.messages["offset"].to_pylist()]
    wanted = [
        (split.epoch, partition, offset)
        for partition, offset in messages
        for split in splits
        for one in split.ranges
        if one.partition == partition and one.lower <= offset < one.upper
    ]
    assert got == wanted
    assert all(piece.lower <= o < piece.upper for piece in pieces for o in piece.messages["offset"].to_pylist())


@given(planned())
def test_what_is_read_is_pinned_to_the_span_of_each_partition(splits: list[KafkaSplit]) -> None:
    told = {name: json.loads(value) for name, value in pinned(splits).items()}
    for topic, mine in told["assign"].items():
        for number in mine:
            ranges = [one for split in splits for one in split.ranges if one.partition == f"{topic}-{number}"]
            assert told["startingOffsets"][topic][str(number)] == min(one.lower for one in ranges)
            assert told["endingOffsets"][topic][str(number)] == max(one.upper for one in ranges)
    assert told["failOnDataLoss"] is True


def test_the_local_engine_has_no_spark_and_reads_the_same_rows_by_itself(
    tmp_path: Path, kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, numbers(range(3)))
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db", tick=0.02)
    source = tg.KafkaSource(kafka_broker.servers, topic=topic, format=tg.Json("n long"), reader="spark")
    flow.sink("orders", flow.source("orders", source), tg.ParquetSink(f"{tmp_path}/orders"))
    assert flow.run("caught-up", engine=tg.LocalEngine(threads=0)).published == 1
    assert tg.read_arrow(flow, "orders").column("n").to_pylist() == [0, 1, 2]


def test_a_time_that_sparks_connector_cannot_read_is_found_within_an_open_transaction(
    kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(config=ANY_TIME)
    producer = Producer(quiet(kafka_broker.servers, **{"transactional.id": topic}))
    producer.init_transactions(30)
    producer.begin_transaction()
    for value, time in zip(numbers(range(3)), (1, 1, 2**63 // 1000 + 1), strict=True):
        producer.produce(topic, value, partition=0, timestamp=time)
    assert producer.flush(30) == 0
    level = {"isolation.level": "read_uncommitted"}
    it = KafkaSource(kafka_broker.servers, topic=topic, format=tg.Json("n long"), reader="spark", settings=level)
    bound, slices = bind(Bound(), it.probe(Bound(), now=NOW), it)
    found = it.missing([split for split in it.plan(slices, bound) if isinstance(split, KafkaSplit)])
    producer.abort_transaction(30)
    assert found is not None
    assert isinstance(found[1], MessageTimeUnfit)
    assert found[1].evidence["offset"] == 2


def test_a_reader_or_a_setting_that_cannot_be_is_refused_when_the_source_is_made() -> None:
    with pytest.raises(InvalidArgument, match="'python' or 'spark'"):
        tg.KafkaSource("here:9092", topic="t", format=tg.Raw(), reader="java")  # type: ignore[arg-type]
    with pytest.raises(SettingNotShared, match=r"'socket\.timeout\.ms'"):
        tg.KafkaSource("here:9092", topic="t", format=tg.Raw(), settings={"socket.timeout.ms": 9}, reader="spark")
