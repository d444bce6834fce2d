"""Topics of changes on a real broker: the tables by key are the dictionary, on the local engine and on Spark."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.enveloped import KEY, PARTITIONS, VALUE, Happening, Meaning
from tests.flow.test_changes_of_topics import by_key, check, flow_of, partition_of

import tidegauge as tg
from tidegauge.engine import LocalEngine, SparkEngine
from tidegauge.testing import Endpoint
from tidegauge.testing.endpoint import quiet

WHATS = ("put", "put", "put", "gone", "bad value", "bad key", "withdrawn")


def happenings(chance: random.Random, count: int) -> list[Happening]:
    return [
        Happening(
            chance.choice(WHATS),
            chance.randrange(40),
            chance.randrange(10),
            wrapped=chance.random() < 0.5,
            op=chance.choice("cru"),
            told=chance.random() < 0.5,
        )
        for _ in range(count)
    ]


def send(broker: Endpoint, topic: str, epoch: Sequence[Happening], envelope: Any) -> None:
    producer = Producer(quiet(broker.servers, **{"linger.ms": "1"}))
    for one in epoch:
        for key, value in one.messages(envelope):
            producer.produce(topic, value, key=key, partition=partition_of(one))
    assert producer.flush(30) == 0


def source_of(broker: Endpoint, topic: str, envelope: Any) -> tg.KafkaSource:
    return tg.KafkaSource(
        broker.servers,
        topic=topic,
        key=KEY,
        format=VALUE,
        envelope=envelope,
        metadata=True,
        max_records_per_epoch=60,
        split_records=25,
    )


@pytest.mark.long
@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
@pytest.mark.parametrize("seed", range(3))
def test_t60_tables_by_key_of_a_topic_are_the_dictionary(
    kafka_broker: Endpoint, make_topic: Callable[..., str], tmp_path: Path, envelope: Any, seed: int
) -> None:
    chance, meaning, topic = random.Random(seed), Meaning(), make_topic(partitions=PARTITIONS)
    source = source_of(kafka_broker, topic, envelope)
    for _ in range(3):
        epoch = happenings(chance, 150)
        send(kafka_broker, topic, epoch, envelope)
        for one in epoch:
            meaning.take(one)
        flow = flow_of(tmp_path, source)
        flow.run("caught-up", engine=LocalEngine(threads=2))
        check(flow, meaning, "users")
    flow = flow_of(tmp_path, source, late=True)
    flow.run("caught-up", engine=LocalEngine(threads=2))
    check(flow, meaning, "users", "late")


@pytest.mark.long
@pytest.mark.spark
def test_t60_on_spark_they_are_it_too_and_sql_makes_a_table_of_the_errors(
    spark: SparkEngine, kafka_broker: Endpoint, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    chance, meaning, topic = random.Random(7), Meaning(), make_topic(partitions=PARTITIONS)
    source = source_of(kafka_broker, topic, "debezium")
    for _ in range(2):
        epoch = happenings(chance, 120)
        send(kafka_broker, topic, epoch, "debezium")
        for one in epoch:
            meaning.take(one)
        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=0.05)
        users = flow.source("users", source)
        broken = users.changelog("op").select("id", "_error", "_error IS NULL AS right", "_offset")
        flow.sink("users", users, by_key(tmp_path, "users"))
        flow.sink("broken", broken, by_key(tmp_path, "broken", deleted="right"))
        flow.sink("small", users.filter("n < 5"), by_key(tmp_path, "small"))
        flow.sink("bad", users.errors, tg.ParquetSink(str(tmp_path / "bad")))
        flow.run("caught-up", engine=spark)
        check(flow, meaning, "users")
        small = {row["id"]: row["n"] for row in tg.read_arrow(flow, "small").to_pylist()}
        assert small == {key: n for key, (_, n) in meaning.rows.items() if n < 5}
