"""A Kafka source reads exactly what is bound, where its user said, as its formats say."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.sources.kafka.writing import NOW, all_rows, bind, numbers, read, rows, write

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import InvalidArgument, ReservedColumn
from tidegauge.errors.kafka import KeyAndValueClash
from tidegauge.errors.secrets import SecretInClear
from tidegauge.errors.sources import EndTakenBack
from tidegauge.errors.store import SchemaChanged
from tidegauge.kafka.clients import SHELF
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import BadRecord, KafkaSource, Source
from tidegauge.sources.kafka.acknowledging import forward
from tidegauge.testing import Endpoint
from tidegauge.testing.endpoint import quiet

N = tg.Json("n long")
HERE = "localhost:9092"


def values(source: KafkaSource) -> list[int]:
    return [row["n"] for row in all_rows(source)]


def test_it_is_a_picklable_source_that_loads_no_client(tmp_path: Path) -> None:
    source = KafkaSource(HERE, topic="orders", format=N)
    assert isinstance(source, Source)
    assert pickle.loads(pickle.dumps(source)) == source
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, tidegauge\nassert not [m for m in sys.modules if 'confluent' in m or 'fastavro' in m]\n"
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=60)


def test_start_is_resolved_once_and_recorded(kafka_broker: Endpoint, make_topic: Callable[..., str]) -> None:
    begun = datetime.now(UTC)
    minute = timedelta(minutes=1)
    for start, found in [
        ("earliest", [0, 1, 2, 3]),
        ("latest", []),
        ({0: 3}, [3]),
        ({0: 99}, []),
        (begun - timedelta(hours=1), [2, 3]),
        (minute * 90, [2, 3]),
        (begun + minute, []),
    ]:
        topic = make_topic()
        for n, ago in enumerate((3, 2, 0, 0)):
            write(kafka_broker, topic, numbers([n]), timestamp=int((begun - timedelta(hours=ago)).timestamp() * 1000))
        source = KafkaSource(kafka_broker.servers, topic=topic, format=N, start=start)  # type: ignore[arg-type]
        probe = source.probe(Bound(), now=begun)
        bound, slices = bind(Bound(), probe, source)
        assert [row["n"] for row in rows(source, slices, bound)] == found
        kept = bound.details
        write(kafka_broker, topic, numbers([4]))
        again = source.probe(bound, now=begun + timedelta(days=1))
        assert not again.details
        bound, slices = bind(bound, again, source)
        assert bound.details == kept
        assert [row["n"] for row in rows(source, slices, bound)] == ([4] if start != {0: 99} else [])


def test_an_end_that_was_seen_and_went_back_is_said(kafka_broker: Endpoint, topic: str) -> None:
    write(kafka_broker, topic, numbers(range(3)))
    source = KafkaSource(kafka_broker.servers, topic=topic, format=N, max_records_per_epoch=1)
    probe = source.probe(Bound(), now=NOW)
    bound, _ = bind(Bound(), probe, source)
    assert source.probe(replace(bound, last=probe), now=NOW).taken_back == {}
    partition = f"{topic}-0"
    shown = replace(probe, end=Frontier({partition: 5}))  # as if two records had been there, which the cluster lost
    with pytest.raises(EndTakenBack) as caught:
        source.probe(replace(bound, last=shown), now=NOW)
    assert (caught.value.evidence["seen"], caught.value.evidence["end"]) == (5, 3)
    going_on = replace(source, on_data_loss="gap").probe(replace(bound, last=shown), now=NOW)
    assert going_on.taken_back == {partition: (3, 5)}
    assert going_on.upper[partition] == 2


def test_offsets_of_partitions_that_are_not_there_are_refused(kafka_broker: Endpoint, topic: str) -> None:
    source = KafkaSource(kafka_broker.servers, topic=topic, format=N, start={"other-0": 3})
    with pytest.raises(InvalidArgument, match="other-0"):
        source.probe(Bound(), now=NOW)


def test_a_backlog_becomes_epochs_and_a_large_slice_several_splits(
    kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    write(kafka_broker, topic, numbers(range(100)))
    write(kafka_broker, topic, numbers(range(100, 105)), partition=1)
    source = KafkaSource(kafka_broker.servers, topic=topic, format=N, max_records_per_epoch=40, split_records=10)
    probe = source.probe(Bound(), now=NOW)
    assert (probe.upper, probe.more) == (Frontier({f"{topic}-0": 35, f"{topic}-1": 5}), True)
    bound, slices = bind(Bound(), probe, source)
    assert [len(split.ranges) for split in source.plan(slices, bound)] == [1, 1, 1, 1, 1]  # type: ignore[attr-defined]
    assert sorted(values(source)) == list(range(105))


def test_many_small_partitions_are_read_together_and_a_consumer_is_kept(
    kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=20)
    for partition in range(20):
        write(kafka_broker, topic, numbers(range(partition)), partition=partition)
    source = KafkaSource(kafka_broker.servers, topic=topic, format=N, metadata=True)
    bound, slices = bind(Bound(), source.probe(Bound(), now=NOW), source)
    [split] = source.plan(slices, bound)
    assert len(split.ranges) == 19  # type: ignore[attr-defined]
    for _attempt in range(2):
        found = read(source, split, fails)
        places = sorted((int(row["_partition"].rpartition("-")[2]), row["_offset"], row["n"]) for row in found)
        assert places == [(partition, n, n) for partition in range(20) for n in range(partition)]
    write(kafka_broker, topic, numbers([77]), partition=3)
    _, slices = bind(bound, source.probe(bound, now=NOW), source)
    assert [row["n"] for row in rows(source, slices, bound)] == [77]


def fails(record: BadRecord) -> None:
    raise AssertionError(record)


def test_a_read_that_was_given_up_leaves_no_consumer_behind(kafka_broker: Endpoint, topic: str) -> None:
    write(kafka_broker, topic, [*numbers(range(3)), b"bad"])
    source = KafkaSource(kafka_broker.servers, topic=topic, format=N).placed("given", "up")
    bound, slices = bind(Bound(), source.probe(Bound(), now=NOW), source)
    [split] = source.plan(slices, bound)

    def kept() -> int:
        return sum(source.group in key for key, _ in SHELF._idle if isinstance(key, tuple))

    with pytest.raises(AssertionError):
        read(source, split, fails)
    assert kept() == 0
    bad: list[BadRecord] = []
    assert len(read(source, split, bad.append)) == 3
    assert [(record.position, record.raw) for record in bad] == [(3, b"bad")]
    assert kept() == 1


def test_messages_are_read_without_work_for_the_garbage_collector(kafka_broker: Endpoint, topic: str) -> None:
    write(kafka_broker, topic, numbers(range(20_000)))
    source: Source = KafkaSource(kafka_broker.servers, topic=topic, format=tg.Raw())
    bound, slices = bind(Bound(), source.probe(Bound(), now=NOW), source)
    [split] = source.plan(slices, bound)
    collections: list[int] = []

    def collected(phase: str, _info: dict[str, int]) -> None:
        # Another thread of the process may collect as it likes.
        if phase == "start" and threading.get_ident() == here:
            collections[-1] += 1

    here = threading.get_ident()
    gc.callbacks.append(collected)
    try:
        for _again in range(2):  # the first time modules are loaded
            collections.append(0)
            assert sum(batch.num_rows for batch in source.read(split, fails)) == 20_000
    finally:
        gc.callbacks.remove(collected)
    assert collections[-1] < 10


def test_keys_have_a_format_of_their_own_and_a_bad_one_makes_a_bad_record(kafka_broker: Endpoint, topic: str) -> None:
    write(kafka_broker, topic, numbers([1]), key=b'{"k": 10}')
    write(kafka_broker, topic, numbers([2]), key=b"bad")
    write(kafka_broker, topic, [b"bad"], key=b'{"k": 30}')
    write(kafka_broker, topic, numbers([4]), key=b'{"k": 40}')
    write(kafka_broker, topic, [None], key=b'{"k": 50}')
    source = KafkaSource(kafka_broker.servers, topic=topic, format=N, key=tg.Json("k long"), metadata=True)
    bound, slices = bind(Bound(), source.probe(Bound(), now=NOW), source)
    bad: list[BadRecord] = []
    [split] = source.plan(slices, bound)
    found = read(source, split, bad.append)
    assert [(row["k"], row["n"], row["_offset"]) for row in found] == [(10, 1, 0), (40, 4, 3), (50, None, 4)]
    assert [(record.position, record.raw, record.key) for record in bad] == [
        (1, b'{"n": 2}', b"bad"),
        (2, b"bad", b'{"k": 30}'),
    ]
    assert bad[0].message.startswith("key: ")
    assert bad[0].timestamp is not None


def test_columns_of_keys_or_of_values_are_inferred_and_stay_whose_they_are(
    kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, [b'{"n": 1, "word": "x"}'], key=None)
    write(kafka_broker, topic, [b'{"n": 2, "word": "y"}'], key=b'{"k": 10}')
    declared, words = tg.Json("k long"), tg.Json("n long, word string")
    found = []
    for key, value in ((tg.Json(), words), (declared, tg.Json()), (declared, words)):
        source = KafkaSource(kafka_broker.servers, topic=topic, format=value, key=key, metadata=True)
        bound, slices = bind(Bound(), source.probe(Bound(), now=NOW), source)
        found.append([(row["k"], row["n"], row["word"], row["_key"]) for row in rows(source, slices, bound)])
    assert found == [[(None, 1, "x", None), (10, 2, "y", b'{"k": 10}')]] * 3

    clash = KafkaSource(kafka_broker.servers, topic=topic, format=tg.Json(), key=tg.Json("Word string, k long"))
    with pytest.raises(KeyAndValueClash, match=f"of the messages of {topic} both have columns named 'word'"):
        clash.probe(Bound(), now=NOW)
    with pytest.raises(KeyAndValueClash, match="'n'"):
        KafkaSource(HERE, topic=topic, format=N, key=tg.Json("N long"))

    wider, bare = tg.Json("k long, j long"), {"metadata": False}
    for edit in ({"key": wider}, {"format": wider, "key": tg.Json()}, bare):
        edited = replace(source, **{"key": declared, "format": tg.Json(), **edit})  # type: ignore[arg-type]
        with pytest.raises(SchemaChanged):
            edited.probe(bound, now=NOW)
        with pytest.raises(SchemaChanged):
            edited.plan(slices, bound)


def test_offsets_are_committed_forwards_only_and_never_decide_anything(kafka_broker: Endpoint, topic: str) -> None:
    write(kafka_broker, topic, numbers(range(9)))
    source = KafkaSource(kafka_broker.servers, topic=topic, format=N).placed("flow", topic)
    place = f"{topic}-0"

    def committed() -> int:
        consumer = Consumer(quiet(kafka_broker.servers, **{"group.id": source.group or ""}))
        try:
            return int(consumer.committed([TopicPartition(topic, 0)], 30)[0].offset)
        finally:
            consumer.close()

    source.acknowledge(Frontier({place: 5}))
    assert committed() == 5
    source.acknowledge(Frontier({place: 2}))
    assert committed() == 5
    source.acknowledge(Frontier({place: 6}))
    assert committed() == 6
    assert values(source) == list(range(9))
    assert forward({"a": 3, "b": 1}, {"a": 3}) == {"b": 1}


def test_the_group_is_named_after_flow_and_source_unless_the_user_names_it() -> None:
    flow = tg.Dataflow("shop", store="sqlite:///unused.db")
    flow.source("orders", KafkaSource(HERE, topic="orders", format=N))
    flow.source("clicks", KafkaSource(HERE, topic="clicks", format=N, group="mine"))
    groups = {name: source.describe()["group"] for name, source in flow.sources.items()}
    assert groups == {"orders": "tidegauge.shop.orders", "clicks": "mine"}


@pytest.mark.parametrize(
    ("arguments", "parameter"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": []}, "topic"),
        ({"topic": ["a", "a"]}, "topic"),
        ({"topic": "a b"}, "topic"),
        ({"topic": 5}, "topic"),
        ({"format": "json"}, "format"),
        ({"format": tg.Parquet()}, "format"),
        ({"key": "json"}, "key"),
        ({"key": tg.Json(), "format": tg.Json()}, "key"),
        ({"start": "somewhere"}, "start"),
        ({"start": NOW.replace(tzinfo=None)}, "start"),
        ({"start": timedelta(hours=-1)}, "start"),
        ({"start": {"t-0": -1}}, "start"),
        ({"start": {"t-0": True}}, "start"),
        ({"start": {}}, "start"),
        ({"max_records_per_epoch": 0}, "max_records_per_epoch"),
        ({"split_records": 1.5}, "split_records"),
        ({"on_data_loss": "ignore"}, "on_data_loss"),
        ({"group": ""}, "group"),
        ({"settings": "none"}, "settings"),
        ({"settings": {"a b": 1}}, "settings"),
    ],
)
def test_bad_arguments_are_told_at_once(arguments: dict[str, object], parameter: str) -> None:
    with pytest.raises(InvalidArgument, match=parameter):
        KafkaSource(HERE, **{"topic": "orders", "format": N, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["", "(", "x" * 2000])
def test_a_pattern_is_a_regular_expression(pattern: str) -> None:
    with pytest.raises(TidegaugeError, match="pattern"):
        tg.Topics(pattern=pattern)


def test_names_that_are_ours_and_secrets_in_the_clear_are_refused() -> None:
    with pytest.raises(ReservedColumn, match="_key"):
        KafkaSource(HERE, topic="t", format=tg.Json("_key string"), metadata=True)
    with pytest.raises(SecretInClear):
        KafkaSource(HERE, topic="t", format=N, settings={"sasl.password": "flood"})


def test_a_message_without_an_operation_is_a_bad_record(kafka_broker: Endpoint, topic: str) -> None:
    texts = [b'{"n": 1, "_op": "insert"}', b'{"n": 2, "_op": "c"}', b"bad", None, b'{"n": 3, "_op": "delete"}']
    write(kafka_broker, topic, texts)
    source = KafkaSource(kafka_broker.servers, topic=topic, format=tg.Json("n long, _op string"))
    bound, slices = bind(Bound(), source.probe(Bound(), now=NOW), source)
    [split] = source.plan(slices, bound)
    bad: list[BadRecord] = []
    assert read(source, split, bad.append) == [{"n": 1, "_op": "insert"}, {"n": 3, "_op": "delete"}]
    assert [(record.position, record.raw, record.code) for record in bad] == [
        (1, texts[1], "TG-0520"),
        (2, b"bad", "TG-0323"),
        (3, b"", "TG-0520"),
    ]
    assert bad[0].message == "column _op: 'c' is none of insert, update, before and delete"
