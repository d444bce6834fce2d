"""Topics as outputs on a real broker: every epoch once, whatever happens to the driver, the broker and the topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from tests.sinks.kafka.conftest import OUTPUT, SCHEMA, Bench, write_id

import tidegauge.sinks.kafka.output as output_module
import tidegauge.sinks.kafka.topics as topics_module
import tidegauge.sinks.kafka.writer as writer_module
from tidegauge.env import Env
from tidegauge.errors.base import Definite, TidegaugeError, Transient
from tidegauge.errors.kafka import BrokerUnreachable
from tidegauge.errors.kafkasink import (
    DamagedProgress,
    LastUndecided,
    MessageRefused,
    OutputMessageTooLarge,
    OutputTopicRecreated,
    PartitionUnknown,
    ProgressRegressed,
    ProgressTopicUnfit,
    ProgressUnreadable,
    StagedMessagesMissing,
    TopicMissing,
    TransactionsRefused,
    TransactionTimeoutRefused,
    WriterFenced,
)
from tidegauge.errors.sinks import OutputIsNoTable, TableUpperMismatch
from tidegauge.kafka import Settings
from tidegauge.kafka.clients import kafka
from tidegauge.sinks.kafka.progress import ProgressRecord, key_of
from tidegauge.sinks.kafka.topics import scan
from tidegauge.testing import Endpoint

Maker = Callable[..., Bench]

library: Any = kafka("confluent_kafka.admin")


def own_progress(bench: Bench) -> Bench:
    return bench.given(progress_topic=f"{bench.topic}.progress")


def produce(servers: str, topic: str, *records: tuple[str | None, bytes | None], **config: Any) -> None:
    """Produce records as another program would."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, **config})
    for key, value in records:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(10) == 0


@contextmanager
def open_transaction(servers: str, topic: str) -> Iterator[Producer]:
    """Have a transaction open in a topic that has nothing to do with us."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"other-{topic}", "linger.ms": 0})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"{}", "other:output:topic", partition=0)
    assert producer.flush(10) == 0
    yield producer
    producer.abort_transaction(10)


# -- messages


def test_messages_have_their_key_value_headers_time_and_epoch(make_bench: Maker) -> None:
    bench = make_bench(key="id", value=["id", "user"], headers="h", partition="p", timestamp="at", partitions=3)
    at = datetime.now(UTC).replace(microsecond=0)  # a broker deletes at once what is older than a week
    columns = {
        "id": [1, 2],
        "user": ["ada", None],
        "h": pa.array([[("a", b"1"), ("tidegauge-epoch", b"99")], None], pa.map_(pa.string(), pa.binary())),
        "p": [2, 0],
        "at": pa.array([at, None], pa.timestamp("us", tz="UTC")),
        "_epoch": [0, 1],
    }
    rows = pa.record_batch(columns)
    table = bench.open()
    table.commit(0, 2, rows.schema, bench.stage_rows(rows), write=write_id())
    second, first = bench.messages()
    assert (first.partition, first.key, first.row) == (2, b"1", {"id": 1, "user": "ada"})
    assert first.headers == [("a", b"1"), ("tidegauge-epoch", b"0")]
    assert first.timestamp == int(at.timestamp() * 1000)
    assert (second.partition, second.key, second.row) == (0, b"2", {"id": 2, "user": None})
    assert second.headers == [("tidegauge-epoch", b"1")]


def test_keys_go_to_the_partitions_that_java_clients_would_choose(make_bench: Maker) -> None:
    bench = make_bench(key="user", partitions=3)
    names = ["ada", "bob", "cyd", "dan", "eve"]
    rows = pa.record_batch({"user": names, "amount": [0.0] * 5, "_epoch": [0] * 5}, schema=SCHEMA)
    bench.open().commit(0, 1, SCHEMA, bench.stage_rows(rows), write=write_id())
    assert {(m.key or b"").decode(): m.partition for m in bench.messages()} == {
        name: (murmur2(name.encode()) & 0x7FFFFFFF) % 3 for name in names
    }


def murmur2(data: bytes) -> int:
    """Return the hash of `org.apache.kafka.common.utils.Utils.murmur2`."""
    word, length = 0xFFFFFFFF, len(data)
    m, h = 0x5BD1E995, 0x9747B28C ^ length
    for at in range(0, length - length % 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & word
        h = (h * m & word) ^ ((k ^ k >> 24) * m & word)
    rest = data[length - length % 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & word
    h = (h ^ h >> 13) * m & word
    return h ^ h >> 15


def test_the_epochs_of_a_partition_come_in_order_from_whatever_tasks(bench: Bench) -> None:
    table = bench.open()
    files = [file for task in (2, 0, 1) for file in bench.stage([5, 0, 3, 1], f"task {task}", task=task)]
    table.commit(0, 6, SCHEMA, files, write=write_id())
    assert [message.epoch for message in bench.messages()] == [0] * 3 + [1] * 3 + [3] * 3 + [5] * 3


def test_more_messages_than_the_queue_holds_are_sent(make_bench: Maker) -> None:
    bench = make_bench(settings={"queue.buffering.max.messages": 50})
    bench.open().commit(0, 1, SCHEMA, bench.stage([0] * 2000), write=write_id())
    assert len(bench.rows()) == 2000


def test_a_topic_is_one_output_of_so_many_messages_and_no_table(bench: Bench) -> None:
    table = bench.open()
    bench.commit(table, 0, 2)
    bench.commit(table, 2, 3)
    for opened in (table, bench.open()):
        [file] = opened.files()
        assert (file.rows, file.first_epoch, file.last_epoch) == (3, 0, 2)
        assert file.bytes == sum(len(message.value or b"") for message in bench.messages())
        with pytest.raises(OutputIsNoTable):
            opened.uris([file])


# -- T62 to T66: what is committed, and by whom


def test_t62_an_output_whose_upper_moved_without_rows_is_given_them_once_when_it_begins_again(bench: Bench) -> None:
    first = bench.open()
    bench.commit(first, 0, 5, empty=True)
    with pytest.raises(TableUpperMismatch):
        bench.commit(bench.open(), 0, 5, "snapshot")  # nothing is dropped for it, and nothing doubled
    bench.commit(bench.open(), 5, 6, "snapshot")
    assert bench.rows() == [("snapshot", 5)]


def test_t63_what_was_sent_and_not_committed_is_seen_by_nobody_and_sent_again(bench: Bench) -> None:
    bench = own_progress(bench)
    bench.commit(bench.open(), 0, 1)

    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        assert len(bench.messages(level="read_uncommitted")) == 2
        raise Killed

    files = bench.stage([1], "again")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_module.TransactionalProducer, "abandon", lambda _: None)  # no time for that
        with patched_commit(patch, killed), pytest.raises(Killed):
            bench.open().commit(1, 2, SCHEMA, files, write=write_id())
    assert bench.rows(stable=True) == [("ada", 0)]
    after = bench.open()
    assert after.upper == 1
    after.sweep(lambda: None)
    bench.commit(after, 1, 2, "again")
    assert bench.rows() == [("ada", 0), ("again", 1)]


@contextmanager
def patched_commit(patch: pytest.MonkeyPatch, instead: Callable[..., None]) -> Iterator[None]:
    """Let something else happen where a transaction is committed: `instead(commit, seconds)`."""
    real = writer_module.TransactionalProducer._made

    class Handle:
        def __init__(self, handle: Any) -> None:
            self._handle = handle

        def __getattr__(self, name: str) -> Any:
            return getattr(self._handle, name)

        def __len__(self) -> int:
            return len(self._handle)

        def commit_transaction(self, *seconds: Any) -> None:
            instead(self._handle.commit_transaction, *seconds)

    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(writer_module.TransactionalProducer, "_made", lambda writer: Handle(real(writer)))
        yield


@pytest.mark.parametrize("arrived", [True, False], ids=["committed", "not committed"])
def test_a_commit_whose_answer_was_lost_is_recognised_or_done_again(arrived: bool, bench: Bench) -> None:
    table = bench.open()
    files, write = bench.stage([0]), write_id()
    staged = Path(bench.path, files[0].path)

    def unheard(commit: Any, seconds: float) -> None:
        if arrived:
            commit(seconds)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", False, False, False))

    with pytest.MonkeyPatch.context() as patch, patched_commit(patch, unheard), pytest.raises(Transient):
        table.commit(0, 1, SCHEMA, files, write=write)
    assert staged.exists()  # not committed, for all that is known
    assert table.upper == 0
    table.commit(0, 1, SCHEMA, files, write=write)
    assert table.upper == 1
    assert bench.rows() == [("ada", 0)]
    assert not staged.exists()


def test_t64_a_newer_driver_shuts_out_the_older_one_for_good(bench: Bench) -> None:
    older, newer = bench.open(), bench.open()
    older.sweep(lambda: None)
    bench.commit(older, 0, 1)
    newer.sweep(lambda: None)
    assert newer.upper == 1  # it looked again, with the older one shut out
    for _ in range(2):
        with pytest.raises(WriterFenced):
            bench.commit(older, 1, 2, "zombie")
    bench.commit(newer, 1, 2, "newer")
    assert bench.rows() == [("ada", 0), ("newer", 1)]


def test_t64_a_driver_that_only_looks_shuts_out_nobody(bench: Bench) -> None:
    table = bench.open()
    bench.commit(table, 0, 1)
    assert bench.open().upper == 1
    bench.commit(table, 1, 2)
    assert bench.rows() == [("ada", 0), ("ada", 1)]


def test_outputs_of_other_flows_may_write_to_one_topic(bench: Bench) -> None:
    tables = [bench.open(replace(OUTPUT, flow=flow)) for flow in ("shop", "bank")]
    for table in tables:
        bench.commit(table, 0, 1)
    for table in tables:
        bench.commit(table, 1, 2)
    assert bench.rows() == [("ada", 0), ("ada", 0), ("ada", 1), ("ada", 1)]


def test_t65_progress_that_goes_back_is_an_error(bench: Bench) -> None:
    bench = own_progress(bench)
    table = bench.open()
    bench.commit(table, 0, 5)
    record = replace(table._progress, upper=3)
    produce(bench.servers, bench.sink.progress_topic, (key_of(OUTPUT, bench.topic), record.encode()))
    with pytest.raises(ProgressRegressed) as caught:
        bench.open()
    assert (caught.value.evidence["upper"], caught.value.evidence["known"]) == (3, 5)


def test_t65_a_scan_that_does_not_come_to_the_end_is_an_error_and_not_a_fresh_start(bench: Bench) -> None:
    bench = own_progress(bench)
    table = bench.open()
    bench.commit(table, 0, 1)
    with open_transaction(bench.servers, bench.sink.progress_topic):
        bench.commit(table, 1, 2)  # hidden behind the other's transaction
        assert bench.open().upper == 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(output_module, "scan", lambda *a, **k: scan(*a, **(k | {"patience": 0.3})))
            with pytest.raises(ProgressUnreadable):
                bench.open().sweep(lambda: None)
    after = bench.open()
    after.sweep(lambda: None)
    assert after.upper == 2


def test_t66_an_emptied_progress_topic_is_at_its_end_at_once(bench: Bench, kafka_broker: Endpoint) -> None:
    bench = own_progress(bench)
    kafka_broker.create_topic(bench.topic)
    progress = kafka_broker.create_topic(bench.sink.progress_topic, config={"cleanup.policy": "compact,delete"})
    produce(bench.servers, progress, *[("other", b"{}")] * 7)
    admin = kafka_broker.admin()
    [done] = admin.delete_records([TopicPartition(progress, 0, 7)]).values()
    assert done.result().low_watermark == 7
    policy = library.ConfigEntry("cleanup.policy", "compact", incremental_operation=library.AlterConfigOpType.SET)
    resource = library.ConfigResource(library.ConfigResource.Type.TOPIC, progress, incremental_configs=[policy])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result()
    settings = Settings.of(bench.servers)
    assert scan(settings, progress, "any", true_end=True, env=Env(), patience=60) is None
    table = bench.open()
    bench.commit(table, 0, 1)
    assert bench.rows() == [("ada", 0)]


def test_t66_a_progress_topic_that_ends_in_what_is_no_record_is_read_to_its_end(bench: Bench) -> None:
    bench = own_progress(bench)
    bench.commit(bench.open(), 0, 1)
    with open_transaction(bench.servers, bench.sink.progress_topic):
        pass  # leaves an aborted record and a marker
    after = bench.open()
    after.sweep(lambda: None)
    assert after.upper == 1


def test_the_last_record_is_found_among_many_of_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import tidegauge.sinks.kafka.progress as progress_module

    monkeypatch.setattr(progress_module, "LEAST", 5)
    bench = own_progress(bench)
    bench.commit(bench.open(), 0, 3)
    produce(bench.servers, bench.sink.progress_topic, *[(f"other{n}", b"not ours to read") for n in range(200)])
    table = bench.open()
    assert table.upper == 3
    bench.commit(table, 3, 4)
    assert bench.open().upper == 4


@pytest.mark.parametrize("value", [b"{}", b"\xff\xfe"])
def test_a_progress_record_that_cannot_be_read_is_an_error(value: bytes, bench: Bench) -> None:
    bench = own_progress(bench)
    bench.commit(bench.open(), 0, 1)
    produce(bench.servers, bench.sink.progress_topic, (key_of(OUTPUT, bench.topic), value))
    with pytest.raises(DamagedProgress):
        bench.open()


@pytest.mark.parametrize(
    ("partitions", "policy", "said"), [(2, "compact", "2 partitions"), (1, "delete", "'delete'")]
)
def test_a_topic_that_would_forget_progress_is_refused(
    partitions: int, policy: str, said: str, bench: Bench, kafka_broker: Endpoint
) -> None:
    bench = own_progress(bench)
    kafka_broker.create_topic(bench.sink.progress_topic, partitions=partitions, config={"cleanup.policy": policy})
    with pytest.raises(ProgressTopicUnfit, match=said):
        bench.open().sweep(lambda: None)


# -- topics


def test_a_topic_that_is_not_there_is_an_error_unless_it_may_be_made(bench: Bench, kafka_broker: Endpoint) -> None:
    with pytest.raises(TopicMissing):
        bench.given(partitions=None).open()
    bench.given(partitions=3).open()
    assert bench.topic not in kafka_broker.admin().list_topics(timeout=10).topics  # looking makes nothing
    bench.commit(bench.given(partitions=3).open(), 0, 1)
    assert len(kafka_broker.admin().list_topics(bench.topic, timeout=10).topics[bench.topic].partitions) == 3
    assert bench.given(partitions=None).open().upper == 1


@pytest.mark.parametrize("restarted", [False, True], ids=["while it is written to", "between two runs"])
def test_a_topic_that_was_made_anew_holds_nothing(restarted: bool, bench: Bench, kafka_broker: Endpoint) -> None:
    table = bench.open()
    bench.commit(table, 0, 3)
    admin = kafka_broker.admin()
    [deleted] = admin.delete_topics([bench.topic]).values()
    deleted.result()
    kafka_broker.create_topic(bench.topic)
    if not restarted:
        for _ in range(2):
            with pytest.raises((OutputTopicRecreated, TableUpperMismatch)):
                bench.commit(table, 3, 4, "lost")
    assert bench.rows() == []
    table = bench.open()
    assert table.upper == 0
    bench.commit(table, 0, 4, "anew")
    assert bench.rows() == [("anew", epoch) for epoch in range(4)]


# -- T67: upserts


def upserts(**columns: Any) -> pa.RecordBatch:
    schema = pa.schema(
        [("id", pa.int64()), ("user", pa.string()), ("gone", pa.bool_()), ("at", pa.int64()), ("_epoch", pa.int64())]
    )
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def test_t67_of_each_key_the_last_row_of_each_epoch_is_sent_and_a_deletion_is_a_tombstone(make_bench: Maker) -> None:
    bench = make_bench(key="id", value=["user"], envelope="upsert", deleted="gone", order="at")
    one = upserts(id=[1, 2, 1, 1], user=["a", "b", "c", "d"], gone=[False] * 4, at=[1, 2, 9, 3], _epoch=[0, 0, 0, 1])
    two = upserts(id=[1, 2], user=["e", "x"], gone=[False, True], at=[5, 1], _epoch=[0, 1])
    files = bench.stage_rows(one, task=0) + bench.stage_rows(two, task=1)
    bench.open().commit(0, 2, one.schema, files, write=write_id())
    found = [(message.epoch, message.key, message.row) for message in bench.messages()]
    assert sorted(found[:2], key=str) == [(0, b"1", {"user": "c"}), (0, b"2", {"user": "b"})]
    assert sorted(found[2:], key=str) == [(1, b"1", {"user": "d"}), (1, b"2", None)]
    assert len(found) == 4


def test_t67_rows_of_one_key_without_an_order_are_refused_and_nothing_is_sent(make_bench: Maker) -> None:
    bench = make_bench(key="id", envelope="upsert")
    rows = upserts(id=[1, 1], user=["a", "b"], gone=[False] * 2, at=[1, 2], _epoch=[4, 4])
    table = bench.open()
    with pytest.raises(LastUndecided) as caught:
        table.commit(0, 5, rows.schema, bench.stage_rows(rows), write=write_id())
    assert caught.value.evidence["epoch"] == 4
    apart = upserts(id=[1, 1], user=["a", "b"], gone=[False] * 2, at=[1, 2], _epoch=[3, 4])
    table.commit(0, 5, apart.schema, bench.stage_rows(apart), write=write_id())
    assert [message.row["user"] for message in bench.messages()] == ["a", "b"]


def test_a_topic_made_for_upserts_is_compacted(make_bench: Maker, kafka_broker: Endpoint) -> None:
    bench = make_bench(key="user", envelope="upsert")
    bench.commit(bench.open(), 0, 1)
    resource = library.ConfigResource(library.ConfigResource.Type.TOPIC, bench.topic)
    admin = kafka_broker.admin()
    [config] = admin.describe_configs([resource]).values()
    assert config.result()["cleanup.policy"].value == "compact"


# -- what the broker refuses


def test_a_message_that_is_too_large_is_definite_and_says_its_epoch(
    make_bench: Maker, kafka_broker: Endpoint
) -> None:
    bench = make_bench(value="user", settings={"message.max.bytes": 5000})
    kafka_broker.create_topic(bench.topic, config={"max.message.bytes": "2000"})
    for size in (9000, 3000):  # more than the client takes; more than the broker takes, incompressible
        body = "".join(chr(33 + (n * n * 7919 + n * 31 + (n >> 3) * 17) % 90) for n in range(size))
        rows = pa.record_batch({"user": ["small", body], "amount": [0.0] * 2, "_epoch": [0, 3]}, schema=SCHEMA)
        table = bench.given(settings={"message.max.bytes": 5000, "compression.type": "none"}).open()
        with pytest.raises(OutputMessageTooLarge) as caught:
            table.commit(0, 4, SCHEMA, bench.stage_rows(rows), write=write_id())
        assert isinstance(caught.value, Definite)
        assert (caught.value.evidence["epoch"], caught.value.evidence["bytes"]) == (3, size)
        assert bench.messages() == []
    bench.commit(table, 0, 4)
    assert len(bench.messages()) == 4


@pytest.mark.parametrize("number", [7, -1])
def test_a_partition_that_is_not_there_is_definite(number: int, make_bench: Maker) -> None:
    bench = make_bench(partition="p", partitions=2)
    rows = pa.record_batch({"p": [0, number], "_epoch": [0, 1]})
    with pytest.raises(PartitionUnknown) as caught:
        bench.open().commit(0, 2, rows.schema, bench.stage_rows(rows), write=write_id())
    assert caught.value.evidence["epoch"] == 1
    assert bench.messages() == []


def test_a_message_without_a_key_for_a_compacted_topic_is_definite(bench: Bench, kafka_broker: Endpoint) -> None:
    kafka_broker.create_topic(bench.topic, config={"cleanup.policy": "compact"})
    with pytest.raises(MessageRefused):
        bench.commit(bench.open(), 0, 1)


def test_a_transaction_timeout_that_the_broker_does_not_allow_is_said(make_bench: Maker) -> None:
    bench = make_bench(settings={"transaction.timeout.ms": 2_000_000_000})
    with pytest.raises(TransactionTimeoutRefused):
        bench.commit(bench.open(), 0, 1)


def test_a_user_without_transactions_is_told_what_to_allow_and_may_write_at_least_once(
    make_bench: Maker, kafka_broker: Endpoint, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {name: str(value) for name, value in kafka_broker.sasl("mallory").items()}
    monkeypatch.setenv("MALLORY", config.pop("sasl.password"))
    servers = config.pop("bootstrap.servers")
    progress = kafka_broker.create_topic(f"{topic}.progress", config={"cleanup.policy": "compact"})
    allowed = [
        library.AclBinding(
            library.ResourceType.TOPIC,
            topic,
            library.ResourcePatternType.PREFIXED,
            "User:mallory",
            "*",
            operation,
            library.AclPermissionType.ALLOW,
        )
        for operation in (library.AclOperation.READ, library.AclOperation.WRITE, library.AclOperation.DESCRIBE)
    ]
    admin = kafka_broker.admin()
    for granted in admin.create_acls(allowed).values():
        granted.result()
    bench = make_bench(
        topic=topic, partitions=None, progress_topic=progress, settings=config | {"sasl.password": "env:MALLORY"}
    )
    bench = bench.given(servers=servers)
    with pytest.raises(TransactionsRefused) as caught:
        bench.commit(bench.open(), 0, 1)
    assert caught.value.evidence["id"] == f"shop:orders:{topic}"
    bench = bench.given(exactly_once=False)
    table = bench.open()
    bench.commit(table, 0, 1)
    bench.commit(table, 1, 2)
    assert bench.open().upper == 2
    assert bench.rows() == [("ada", 0), ("ada", 1)]


def test_at_least_once_says_no_progress_before_everything_is_acknowledged(
    make_bench: Maker, kafka_broker: Endpoint
) -> None:
    bench = make_bench(exactly_once=False, settings={"compression.type": "none"})
    kafka_broker.create_topic(bench.topic, config={"max.message.bytes": "2000"})
    table = bench.open()
    bench.commit(table, 0, 1)
    rows = pa.record_batch({"user": ["x" * 3000], "amount": [0.0], "_epoch": [1]}, schema=SCHEMA)
    with pytest.raises(OutputMessageTooLarge):
        table.commit(1, 2, SCHEMA, bench.stage_rows(rows), write=write_id())
    assert bench.open().upper == 1


def test_at_least_once_compares_the_progress_with_every_commit(make_bench: Maker) -> None:
    bench = make_bench(exactly_once=False)
    table, other = bench.open(), bench.open()
    bench.commit(table, 0, 2)
    with pytest.raises(TableUpperMismatch):
        bench.commit(other, 0, 2, "twice")
    bench.commit(other, 2, 3)
    with pytest.raises(TableUpperMismatch):
        bench.commit(table, 2, 3)
    assert bench.open().upper == 3
    assert len(bench.rows()) == 3


def test_a_broker_that_is_away_is_transient(make_bench: Maker) -> None:
    bench = make_bench().given(servers="127.0.0.1:9")
    with pytest.raises(BrokerUnreachable) as caught:
        bench.open()
    assert isinstance(caught.value, Transient)


# -- what is staged


def test_what_was_committed_is_no_longer_staged(bench: Bench) -> None:
    bench.commit(bench.open(), 0, 1)
    assert list(Path(bench.path, "_staged").iterdir()) == []


def test_staged_messages_that_are_not_there_are_told_with_the_folder(bench: Bench) -> None:
    table = bench.open()
    [gone], [cut] = bench.stage([0]), bench.stage([0])
    Path(bench.path, gone.path).unlink()
    Path(bench.path, cut.path).write_bytes(b"ARROW1")
    for file in (gone, cut):
        with pytest.raises(StagedMessagesMissing, match="staging="):
            table.commit(0, 1, SCHEMA, [file], write=write_id())
    assert bench.open().upper == 0


def test_a_sweep_removes_what_earlier_drivers_of_the_flow_left_and_nothing_else(bench: Bench) -> None:
    bench.stage([0])
    foreign = bench.sink.stage(SCHEMA, job="f" * 32, task=0)
    foreign.write(pa.record_batch({"user": ["x"], "amount": [0.0], "_epoch": [0]}, schema=SCHEMA))
    [kept] = foreign.close()
    asked: list[int] = []
    bench.open().sweep(lambda: asked.append(1))
    assert [str(path.relative_to(bench.path)) for path in Path(bench.path).rglob("*.arrow")] == [kept.path]
    assert asked


def test_a_sweep_without_the_lease_shuts_out_nobody(bench: Bench) -> None:
    table = bench.open()
    bench.commit(table, 0, 1)

    def lost() -> None:
        raise TidegaugeError(message="the lease is lost")

    with pytest.raises(TidegaugeError, match="lease"):
        bench.open().sweep(lost)
    bench.commit(table, 1, 2)


def test_the_progress_record_is_documented_json(bench: Bench) -> None:
    bench = own_progress(bench)
    write = write_id()
    bench.open().commit(0, 3, SCHEMA, bench.stage([1, 2]), write=write)
    [record] = replace(
        bench, sink=replace(bench.sink, topic=bench.sink.progress_topic, progress_topic="p")
    ).messages()
    assert record.key == f"shop:orders:{bench.topic}".encode()
    said = json.loads(record.value or b"")
    assert said.pop("topic_id")
    assert said == {
        "version": 1,
        "flow": "shop",
        "output": "orders",
        "incarnation": "a" * 32,
        "upper": 3,
        "write": write,
        "messages": 2,
        "size": 2 * len(b'{"user":"ada","amount":1.5}'),
    }
    assert ProgressRecord.decode(record.value or b"", topic="p", offset=0).upper == 3
    assert topics_module.SCAN_PATIENCE > 10
