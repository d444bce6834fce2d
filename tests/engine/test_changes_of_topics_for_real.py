"""Topics of changes on a real broker: the tables by key are the dictionary, on the local engine and on Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.engine.test_spark_reads_kafka import COMPACTED, STAMP
from tests.enveloped import KEY, PARTITIONS, VALUE, Happening, Meaning, Pair
from tests.flow.test_changes_of_topics import by_key, check, flow_of, partition_of, replayed
from tests.sinks.kafka.conftest import consumed
from tests.sources.kafka.writing import recreate
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.engine import LocalEngine, SparkEngine
from tidegauge.errors.changes import TableTruncated, ValueUnavailable
from tidegauge.errors.running import UpstreamRecreated
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


def topic_of(broker: Endpoint, topic: str) -> tg.KafkaSink:
    """A topic of upserts as a sink."""
    value = ["id", "name", "n"]
    return tg.KafkaSink(
        broker.servers, topic=topic, key="id", value=value, envelope="upsert", order="_offset", partitions=2
    )


def kept(broker: Endpoint, topic: str) -> dict[int, tuple[str, int]]:
    """Return what somebody has who keeps the last message of each key."""
    last = {message.key: message.row for message in consumed(broker.servers, topic)}
    return {row["id"]: (row["name"], row["n"]) for row in last.values() if row is not None}


@pytest.mark.long
@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
@pytest.mark.parametrize("seed", range(3))
def test_t60_tables_and_topics_by_key_of_a_topic_are_the_dictionary(
    kafka_broker: Endpoint, make_topic: Callable[..., str], tmp_path: Path, envelope: Any, seed: int
) -> None:
    chance, meaning, topic = random.Random(seed), Meaning(), make_topic(partitions=PARTITIONS)
    source = source_of(kafka_broker, topic, envelope)
    for number in range(4):
        epoch = happenings(chance, 150 if number < 3 else 20)
        send(kafka_broker, topic, epoch, envelope)
        for one in epoch:
            meaning.take(one)
        tables = ["users", "late"][: 1 + (number == 3)]
        also = {f"{table}-again": topic_of(kafka_broker, f"{topic}-{table}") for table in tables}
        flow = flow_of(tmp_path, source, late=number == 3, also=also)
        flow.run("caught-up", engine=LocalEngine(threads=2))
        check(flow, meaning, *tables)
        assert all(kept(kafka_broker, f"{topic}-{table}") == meaning.rows for table in tables)


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


def debezium(id: int, op: str, after: Any = None, before: Any = None, *, wrapped: bool = False) -> Pair:
    """Return a message as Debezium writes it, with its schema where the converter is told so."""

    def said(content: Any) -> bytes:
        schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}], "optional": False, "name": "Key"}
        return json.dumps({"schema": schema, "payload": content} if wrapped else content).encode()

    source = {"connector": "postgresql", "snapshot": "false", "table": "users", "lsn": 24023128, "xmin": None}
    change = {"before": before, "after": after, "op": op, "source": source, "ts_ms": 1700000000000}
    return said({"id": id}), said(change)


def row(id: int, n: int) -> dict[str, Any]:
    return {"id": id, "name": f"user {n}", "n": n}


def write(broker: Endpoint, topic: str, *messages: Pair) -> None:
    producer = Producer(quiet(broker.servers))
    for key, value in messages:
        producer.produce(topic, value, key=key, partition=0)
    assert producer.flush(30) == 0


def users_of(flow: tg.Dataflow, table: str = "users") -> dict[int, int]:
    return {one["id"]: one["n"] for one in tg.read_arrow(flow, table).to_pylist()}


@pytest.mark.long
def test_what_debezium_sends_on_its_way_from_a_snapshot_to_a_new_topic(
    kafka_broker: Endpoint, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    source = source_of(kafka_broker, topic, "debezium")

    def run(*tables: str) -> tg.Dataflow:
        flow = flow_of(tmp_path, source, late="late" in tables)
        flow.run("caught-up", engine=LocalEngine(threads=1))
        return flow

    snapshot = [debezium(n, "r", row(n, n), wrapped=n % 2 == 0) for n in range(1, 5)]
    write(kafka_broker, topic, *snapshot)
    assert users_of(run()) == {1: 1, 2: 2, 3: 3, 4: 4}
    write(
        kafka_broker,
        topic,
        debezium(1, "u", row(1, 10)),  # REPLICA IDENTITY DEFAULT: nothing is known of the row before
        debezium(2, "d", None, {"id": 2, "name": None, "n": None}),
        (debezium(2, "d")[0], None),
        debezium(3, "d", None, row(3, 3)),  # the key 3 becomes 30
        (debezium(3, "d")[0], None),
        debezium(30, "c", row(30, 3)),
    )
    assert users_of(run()) == {1: 10, 4: 4, 30: 3}
    again = [debezium(n, "r", row(n, m)) for n, m in users_of(run()).items()]
    write(kafka_broker, topic, *again, debezium(2, "d", None, row(2, 2)))  # taken again, and sent again
    assert users_of(run()) == {1: 10, 4: 4, 30: 3}
    unsent = {"id": 4, "name": "__debezium_unavailable_value", "n": 40}
    write(kafka_broker, topic, debezium(4, "u", unsent), debezium(1, "u", row(1, 11)))
    with pytest.raises(ValueUnavailable, match="column after/name") as lacks:
        run()
    assert users_of(flow_of(tmp_path, source)) == {1: 10, 4: 4, 30: 3}
    at = lacks.value.evidence["position"]
    assert tg.skip(flow_of(tmp_path, source), "users", f"{topic}-0", at, at + 1).lifted
    assert users_of(run()) == {1: 11, 4: 4, 30: 3}
    write(kafka_broker, topic, (None, debezium(0, "t")[1]), debezium(5, "c", row(5, 5)))
    with pytest.raises(TableTruncated) as gone:
        run()
    at = gone.value.evidence["position"]
    assert tg.skip(flow_of(tmp_path, source), "users", f"{topic}-0", at, at + 1).lifted
    assert users_of(run("late"), "late") == {1: 11, 4: 4, 30: 3, 5: 5}

    recreate(kafka_broker, topic)
    write(kafka_broker, topic, debezium(4, "r", row(4, 41)), debezium(6, "r", row(6, 6)))
    with pytest.raises(UpstreamRecreated):
        run("late")
    tg.resume(flow_of(tmp_path, source), "users", new_incarnation=True)
    flow = run("late")
    assert users_of(flow) == users_of(flow, "late") == {1: 11, 4: 41, 5: 5, 6: 6, 30: 3}, "nobody said that 1 is gone"


@pytest.mark.long
@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
def test_a_compacted_topic_makes_the_table_that_the_whole_one_made(
    kafka_broker: Endpoint, make_topic: Callable[..., str], tmp_path: Path, envelope: Any
) -> None:
    chance, meaning, topic = random.Random(5), Meaning(), make_topic(config=COMPACTED)
    source, sent = source_of(kafka_broker, topic, envelope), 0

    def run(*, late: bool) -> tg.Dataflow:
        flow = flow_of(tmp_path, source, late=late)
        flow.run("caught-up", engine=LocalEngine(threads=2))
        return flow

    for second in range(6):  # each is a segment of its own; all but the last are compacted
        producer = Producer(quiet(kafka_broker.servers))
        for found in happenings(chance, 30):
            one = replace(found, id=found.id % 7, what=found.what if found.placed else "put")
            meaning.take(one)
            for key, value in one.messages(envelope):
                producer.produce(topic, value, key=key, partition=0, timestamp=STAMP + 1000 * second)
                sent += 1
        assert producer.flush(30) == 0
        if second == 3:
            run(late=False)
    eventually(lambda: len(consumed(kafka_broker.servers, topic)) < sent // 2, within=60)
    check(run(late=True), meaning, "users", "late")


@pytest.mark.long
def test_all_changes_of_a_topic_are_kept_and_make_the_dictionary(
    kafka_broker: Endpoint, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    chance, meaning, topic = random.Random(3), Meaning(), make_topic(partitions=PARTITIONS)
    source = source_of(kafka_broker, topic, "cdc")
    for number in range(3):
        epoch = happenings(chance, 120)
        send(kafka_broker, topic, epoch, "cdc")
        for one in epoch:
            if one.what != "bad value":
                meaning.take(one)
        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=0.05)
        users = flow.source("users", source)
        flow.sink("bad", users.errors, tg.ParquetSink(str(tmp_path / "bad")))
        tables = ["changes", "late"][: 1 + (number == 2)]
        for table in tables:
            flow.sink(table, users, tg.DeltaSink(str(tmp_path / table)))
            to = tg.KafkaSink(kafka_broker.servers, topic=f"{topic}-{table}", key="id", partitions=1)
            flow.sink(f"{table}-again", users.select("id", "name", "n", "op", "_partition", "_offset"), to)
        flow.run("caught-up", engine=LocalEngine(threads=2))
        for table in tables:
            assert replayed(tg.read_arrow(flow, table).to_pylist()) == meaning.rows
            sent = [message.row for message in consumed(kafka_broker.servers, f"{topic}-{table}")]
            assert replayed(sent) == meaning.rows
            assert len(sent) == tg.read_arrow(flow, table).num_rows


@pytest.mark.long
def test_columns_of_upserts_are_inferred_from_those_that_have_a_value(
    kafka_broker: Endpoint, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    source = tg.KafkaSource(
        kafka_broker.servers, topic=topic, key=tg.Text(), format=tg.Json(), envelope="upsert", metadata=True
    )

    def run() -> dict[str, int]:
        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=0.05)
        users = flow.source("users", source).select("value AS user", "n", "_partition", "_offset")
        to = tg.DeltaSink(str(tmp_path / "users"), envelope="upsert", key="user", order="_offset")
        flow.sink("users", users, to)
        flow.run("caught-up", engine=LocalEngine(threads=1))
        return {one["user"]: one["n"] for one in tg.read_arrow(flow, "users").to_pylist()}

    write(kafka_broker, topic, (b"ada", None), (b"bob", b'{"n": 1}'), (b"ada", b'{"n": 2}'), (b"bob", None))
    assert run() == {"ada": 2}
    write(kafka_broker, topic, (b"bob", b'{"n": 3}'), (b"ada", None))
    assert run() == {"bob": 3}
