"""A flow on Spark, from a topic through SQL into a table and a topic that agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.sinks.kafka.conftest import consumed
from tests.sources.kafka.writing import transact, write

import tidegauge as tg
from tidegauge.testing import Endpoint
from tidegauge.testing.endpoint import quiet

pytestmark = pytest.mark.spark


def orders(ids: range) -> list[bytes]:
    """Orders of ada and bob by turns; the amount is that of the number."""
    return [json.dumps({"id": n, "user": ("ada", "bob")[n % 2], "amount": n / 4}).encode() for n in ids]


def test_what_sql_keeps_of_a_topic_is_in_a_table_and_a_topic_once_and_its_offsets_are_committed(
    classic: Any, kafka_broker: Endpoint, make_topic: Callable[..., str], topic_name: str, tmp_path: Path
) -> None:
    topic, servers, into = make_topic(partitions=2), kafka_broker.servers, f"{topic_name}-large"
    flow = tg.Dataflow("sparkling", store=f"sqlite:///{tmp_path}/flow.db", tick=0.05)
    source = tg.KafkaSource(
        servers, topic=topic, format=tg.Json("id long, user string, amount double"), max_records_per_epoch=30
    )
    large = flow.source("orders", source).filter("amount >= 5").select("id", "upper(user) AS user", "amount * 2 AS x")
    flow.sink("table", large, tg.DeltaSink(str(tmp_path / "large")))
    flow.sink("topic", large, tg.KafkaSink(servers, topic=into, key="user", partitions=3))
    write(kafka_broker, topic, orders(range(40)))
    transact(kafka_broker, topic, orders(range(900, 909)), partition=1, commit=False)
    transact(kafka_broker, topic, orders(range(40, 60)), partition=1)
    flow.run("caught-up", spark=classic)
    rows = tg.read_arrow(flow, "table").sort_by("id").to_pylist()
    epochs = [row.pop("_epoch") for row in rows]
    assert rows == [{"id": n, "user": ("ADA", "BOB")[n % 2], "x": n / 2} for n in range(20, 60)]
    messages = sorted(consumed(servers, into), key=lambda message: message.row["id"])
    assert [message.row for message in messages] == rows
    assert [message.key for message in messages] == [row["user"].encode() for row in rows]
    assert [message.epoch for message in messages] == epochs
    assert len(set(epochs)) > 1
    group = Consumer(quiet(servers, **{"group.id": "tidegauge.sparkling.orders"}))
    places = group.committed([TopicPartition(topic, number) for number in range(2)], 30)
    group.close()
    assert [place.offset for place in places] == [40, 31]  # of partition 1 two markers are read over, too
