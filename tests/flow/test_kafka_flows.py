"""Flows that read a real broker: the cases of acknowledgement, of loss, of new incarnations, and of a broker away."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.sources.kafka.writing import ANY_TIME, delete, forget, numbers, recreate, transact, write, write_header
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.env import at_once
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.kafka import BrokerUnreachable, TopicDeleted
from tidegauge.errors.outputs import CannotReplace
from tidegauge.errors.running import NothingToResume, UpstreamRecreated
from tidegauge.errors.sinks import OutputIsNoTable
from tidegauge.errors.sources import RecordsLost
from tidegauge.flow.runner import Runner
from tidegauge.flow.running import threads
from tidegauge.job import portion
from tidegauge.remap.store import Store
from tidegauge.testing import Endpoint, KafkaBroker
from tidegauge.testing.endpoint import quiet

N = tg.Json("n long")
NOW_MS = int(time.time() * 1000)  # what is older than a week is gone at once
Step = Callable[[pa.RecordBatch], pa.RecordBatch]


def flow_of(
    root: Path, broker: Endpoint | KafkaBroker, topic: str, *outputs: str, step: Step | None = None, **more: object
) -> tg.Dataflow:
    """A flow of one topic into tables; `step` is of the last one."""
    made = tg.Dataflow("shop", store=f"sqlite:///{root}/flow.db", tick=0.02)
    orders = made.source("orders", tg.KafkaSource(broker.servers, topic=topic, format=N, **more))  # type: ignore[arg-type]
    for name in outputs or ("orders",):
        stream = orders.map_batches(step) if step is not None and name == outputs[-1] else orders
        made.sink(name, stream, tg.ParquetSink(f"{root}/{name}"))
    return made


def run(flow: tg.Dataflow) -> int:
    return flow.run("caught-up", engine=tg.LocalEngine(threads=0)).published


def found(flow: tg.Dataflow, output: str = "orders") -> list[int]:
    return sorted(tg.read_arrow(flow, output).column("n").to_pylist())


def staged(flow: tg.Dataflow, output: str) -> int:
    """How many records of an output's past are staged, and shown to nobody."""
    [report] = [one for one in tg.status(flow).outputs if one.name == output]
    store = Store.open(flow.store, env=tg.Env())
    backfill = store.load(flow.name).backfills[output]
    store.close()
    assert report.rows == 0
    return sum(unit.rows for unit in backfill.units)


def committed(broker: Endpoint, flow: tg.Dataflow, topic: str) -> int:
    """What the source's group has committed of the first partition, -1001 when it has not."""
    group = f"tidegauge.{flow.name}.orders"
    consumer = Consumer(quiet(broker.servers, **{"group.id": group}))
    try:
        [place] = consumer.committed([TopicPartition(topic, 0)], 30)
    finally:
        consumer.close()
    return int(place.offset)


def test_a_topic_becomes_two_tables_that_agree(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    write(kafka_broker, topic, numbers(range(10)))
    transact(kafka_broker, topic, numbers(range(10, 15)), partition=1)
    transact(kafka_broker, topic, numbers(range(90, 95)), partition=1, commit=False)
    flow = flow_of(tmp_path, kafka_broker, topic, "orders")
    orders = tg.RowStream(flow, "orders")
    flow.sink("delta", orders, tg.DeltaSink(f"{tmp_path}/delta"))
    run(flow)
    write(kafka_broker, topic, numbers([15]))
    run(flow)
    assert found(flow) == found(flow, "delta") == list(range(16))
    run(flow)
    assert tg.read_arrow(flow, "orders").num_rows == 16


def test_rows_say_where_they_come_from_and_bad_records_are_kept_whole(
    tmp_path: Path, kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, numbers([1]), key=b"k", timestamp=NOW_MS, headers=[("h", b"v"), ("e", None)])
    write(kafka_broker, topic, [b"no json"], key=b"bad", timestamp=NOW_MS + 1)
    write(kafka_broker, topic, [None, *numbers([2])])
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db", tick=0.02)
    orders = flow.source("orders", tg.KafkaSource(kafka_broker.servers, topic=topic, format=N, metadata=True))
    flow.sink("orders", orders, tg.ParquetSink(f"{tmp_path}/orders"))
    with pytest.raises(RecordUnparsable, match="position 1"):
        run(flow)
    tg.resume(flow, "orders")
    flow.sink("errors", orders.errors, tg.ParquetSink(f"{tmp_path}/errors"))
    run(flow)
    first, tombstone, last = tg.read_arrow(flow, "orders").sort_by("_offset").to_pylist()
    assert (first["n"], first["_partition"], first["_offset"], first["_key"]) == (1, f"{topic}-0", 0, b"k")
    assert first["_timestamp"].timestamp() == pytest.approx(NOW_MS / 1000)
    assert first["_headers"] == [{"key": "h", "value": b"v"}, {"key": "e", "value": None}]
    assert (tombstone["n"], tombstone["_offset"], last["n"], last["_key"]) == (None, 2, 2, None)
    [bad] = tg.read_arrow(flow, "errors").to_pylist()
    assert (bad["source"], bad["partition"], bad["position"]) == ("orders", f"{topic}-0", 1)
    assert (bad["raw"], bad["key"], bad["_epoch"]) == (b"no json", b"bad", 0)
    assert bad["timestamp"].timestamp() == pytest.approx((NOW_MS + 1) / 1000)


def test_a_message_that_kafka_knows_nonsense_of_is_a_bad_record_where_that_is_asked_for(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(config=ANY_TIME)
    last = 253_402_300_799_999
    times = [1, 2, last, -1, -5, last + 1, NOW_MS * 1_000_000, -(2**63), 2**63 - 1]
    for n, milliseconds in enumerate(times):
        write(kafka_broker, topic, numbers([n]), timestamp=milliseconds)
    write_header(kafka_broker, topic, b'{"n": 9}', b"\xff\xfe")
    write(kafka_broker, topic, numbers([10]), timestamp=NOW_MS, headers=[("\u00e6", b"1")])
    plain = flow_of(tmp_path / "plain", kafka_broker, topic)
    run(plain)
    assert found(plain) == list(range(11))
    flow = flow_of(tmp_path, kafka_broker, topic, metadata=True)
    with pytest.raises(RecordUnparsable, match=r"position 4 .* -5 ms"):
        run(flow)
    tg.resume(flow, "orders")
    flow.sink("errors", tg.RowStream(flow, "orders").errors, tg.ParquetSink(f"{tmp_path}/errors"))
    run(flow)
    rows = tg.read_arrow(flow, "orders").sort_by("n").to_pylist()
    assert [row["n"] for row in rows] == [0, 1, 2, 3, 10]
    instants = [row["_timestamp"] and row["_timestamp"].timestamp() for row in rows]
    assert instants[:2] + instants[3:] == pytest.approx([0.001, 0.002, None, NOW_MS / 1000])
    assert rows[2]["_timestamp"].isoformat() == "9999-12-31T23:59:59.999000+00:00"
    bad = tg.read_arrow(flow, "errors").sort_by("position").to_pylist()
    assert [(row["position"], row["raw"], row["code"]) for row in bad] == [
        *((n, b'{"n": %d}' % n, "TG-0820") for n in range(4, 9)),
        (9, b'{"n": 9}', "TG-0821"),
    ]
    assert [row["timestamp"] is None for row in bad] == [True] * 5 + [False]
    assert r"\xff\xfe" in bad[-1]["message"]


def test_latest_begins_at_the_end_once_also_when_nothing_was_there(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    for before in (3, 0):
        topic = make_topic()
        root = tmp_path / str(before)
        root.mkdir()
        write(kafka_broker, topic, numbers(range(before)))
        flow = flow_of(root, kafka_broker, topic, start="latest")
        run(flow)
        assert tg.status(flow).outputs[0].upper == 1
        write(kafka_broker, topic, numbers([7, 8]))  # while nobody runs
        run(flow)
        assert found(flow) == [7, 8]


def test_t33_what_is_committed_never_passes_what_every_output_has(
    tmp_path: Path, kafka_broker: Endpoint, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portion, "JOB_LIMITS", {"records": 1})  # epoch by epoch
    refused = {4}

    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        if refused & {*batch.column("n").to_pylist()}:
            raise ValueError("4")
        return batch

    def flow() -> tg.Dataflow:
        return flow_of(tmp_path, kafka_broker, topic, "all", "some", step=refuse)

    write(kafka_broker, topic, numbers(range(3)))
    run(flow())
    assert committed(kafka_broker, flow(), topic) == 3
    write(kafka_broker, topic, numbers([3, 4]))
    with pytest.raises(tg.TidegaugeError):
        run(flow())
    assert committed(kafka_broker, flow(), topic) == 3  # `all` has them, `some` lacks them
    refused.clear()
    write(kafka_broker, topic, numbers([5]))
    run(flow())
    assert committed(kafka_broker, flow(), topic) == 6
    refused.add(4)
    write(kafka_broker, topic, numbers([6]))
    late = flow_of(tmp_path, kafka_broker, topic, "all", "some", "late", step=refuse)
    tg.from_here(late, "some")
    with pytest.raises(tg.TidegaugeError):
        run(late)
    assert (staged(late, "late"), found(late, "all")) == (4, [0, 1, 2, 3, 4, 5, 6])  # 3 is of the epoch that 4 is of
    assert committed(kafka_broker, late, topic) == 6  # it does not go back for an output that lags
    refused.clear()
    write(kafka_broker, topic, numbers([7]))
    run(late)
    assert found(late, "late") == [0, 1, 2, 3, 4, 5, 6, 7]
    assert committed(kafka_broker, late, topic) == 8


def test_t33_with_an_output_that_never_commits_nothing_is_acknowledged(
    tmp_path: Path, kafka_broker: Endpoint, topic: str
) -> None:
    def refuse(_batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("never")

    write(kafka_broker, topic, numbers(range(3)))
    schema = pa.schema([("n", pa.int64())])
    flow = flow_of(tmp_path, kafka_broker, topic, "all")
    flow.sink(
        "never", tg.RowStream(flow, "orders").map_batches(refuse, schema=schema), tg.ParquetSink(f"{tmp_path}/never")
    )
    with pytest.raises(tg.TidegaugeError):
        run(flow)
    assert committed(kafka_broker, flow, topic) == -1001


def test_an_output_that_catches_up_moves_what_is_committed_though_nothing_more_is_published(
    tmp_path: Path, kafka_broker: Endpoint, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portion, "JOB_LIMITS", {"records": 1})
    refused = {1}

    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        if refused & {*batch.column("n").to_pylist()}:
            raise ValueError("1")
        return batch

    for n in range(3):
        write(kafka_broker, topic, numbers([n]))
        run(flow_of(tmp_path, kafka_broker, topic, "all"))
    write(kafka_broker, topic, numbers([3]))
    late = flow_of(tmp_path, kafka_broker, topic, "all", "late", step=refuse)
    with pytest.raises(tg.TidegaugeError):
        run(late)
    assert (staged(late, "late"), committed(kafka_broker, late, topic)) == (1, 3)
    refused.clear()
    run(late)
    assert (found(late, "late"), committed(kafka_broker, late, topic)) == ([0, 1, 2, 3], 4)


def test_the_group_is_one_that_kafkas_own_tool_shows(tmp_path: Path, kafka_broker: Endpoint, topic: str) -> None:
    flow = tg.Dataflow("lagging", store=f"sqlite:///{tmp_path}/flow.db", tick=0.02)  # no other test has this group
    orders = flow.source("orders", tg.KafkaSource(kafka_broker.servers, topic=topic, format=N))
    flow.sink("orders", orders, tg.ParquetSink(f"{tmp_path}/orders"))
    write(kafka_broker, topic, numbers(range(3)))
    run(flow)
    write(kafka_broker, topic, numbers(range(2)))
    shown = kafka_broker.run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", kafka_broker.servers, "--describe", "--group", "tidegauge.lagging.orders"),
    )
    lines = [line.split()[:6] for line in shown.splitlines() if topic in line]
    assert lines == [["tidegauge.lagging.orders", topic, "0", "3", "5", "2"]], shown  # committed, end, lag


def test_a_group_whose_offsets_may_not_be_committed_is_seen_in_the_status(
    tmp_path: Path, kafka_broker: Endpoint, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(kafka_broker, topic, numbers(range(4)))
    for operation in ("read", "describe"):
        kafka_broker.allow("mallory", operation, topic)
    login = kafka_broker.sasl("mallory")
    monkeypatch.setenv("HER_PASSWORD", login.pop("sasl.password"))
    del login["bootstrap.servers"]
    door = replace(kafka_broker, servers=kafka_broker.sasl_servers)
    settings = {**login, "sasl.password": "env:HER_PASSWORD"}
    flow = flow_of(tmp_path, door, topic, settings=settings, group=f"of-{topic}")

    def noted() -> str:
        [source] = tg.status(flow).sources
        assert source.state == "idle"
        return source.note

    run(flow)
    assert found(flow) == list(range(4)), "nobody waits for it"
    assert noted().startswith("TG-0808, the Kafka broker")
    kafka_broker.allow("mallory", "describe", f"of-{topic}", kind="group")
    assert f"the group of-{topic} has not committed what is published of 1 of 1 partitions" in noted()
    kafka_broker.allow("mallory", "read", f"of-{topic}", kind="group")
    write(kafka_broker, topic, numbers([4]))
    run(flow)
    assert noted() == ""


def test_t44_a_deleted_topic_fails_the_source_for_good_and_one_made_anew_begins_a_new_incarnation(
    tmp_path: Path, kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, numbers(range(3)))
    flow = flow_of(tmp_path, kafka_broker, topic, "first", "second")
    run(flow)
    delete(kafka_broker, topic)

    def fails(error: type[tg.TidegaugeError], like: str) -> None:
        with pytest.raises(error, match=like):
            run(flow_of(tmp_path, kafka_broker, topic, "first", "second"))
        told = tg.status(flow)
        assert [(one.state, type(one.error)) for one in told.sources] == [("failed", error)]
        assert [(one.state, one.upper) for one in told.outputs] == [("failed", 1)] * 2
        assert found(flow, "first") == found(flow, "second") == [0, 1, 2]  # what there was stays readable

    fails(TopicDeleted, f"the topic '{topic}' of source 'orders' was deleted")
    kafka_broker.create_topic(topic)
    write(kafka_broker, topic, numbers(range(10, 14)))
    fails(TopicDeleted, "was deleted")  # it is for a person to say that there is one again
    with pytest.raises(NothingToResume, match="TG-0811"):
        tg.resume(flow, "orders", new_incarnation=True)
    tg.resume(flow, "orders")
    fails(UpstreamRecreated, "source 'orders'")  # there is one, and it is another one
    assert tg.resume(flow, "orders", new_incarnation=True).gaps == ()
    run(flow)
    assert found(flow, "first") == found(flow, "second") == [0, 1, 2, 10, 11, 12, 13]


def test_t43_t48_a_recreated_topic_fails_the_source_for_good_until_a_new_incarnation(
    tmp_path: Path, kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, numbers(range(3)))
    flow = flow_of(tmp_path, kafka_broker, topic, start="latest")
    run(flow)
    write(kafka_broker, topic, numbers([3]))
    run(flow)
    recreate(kafka_broker, topic)
    write(kafka_broker, topic, numbers([10, 11]))
    for _restart in range(2):
        with pytest.raises(UpstreamRecreated, match="source 'orders'"):
            run(flow_of(tmp_path, kafka_broker, topic, start="latest"))
        assert [one.state for one in tg.status(flow).sources] == ["failed"]
    resumed = tg.resume(flow, "orders", new_incarnation=True)
    assert (resumed.incarnation, resumed.gaps) == (1, ())
    run(flow)
    assert found(flow) == [3, 10, 11]  # the new topic from its beginning, whatever `start` says
    write(kafka_broker, topic, numbers([12]))
    run(flow)
    assert found(flow) == [3, 10, 11, 12]
    assert committed(kafka_broker, flow, topic) == 3


def test_t47_a_loss_fails_the_source_for_good_and_gap_goes_on_with_a_row_of_gaps(
    tmp_path: Path, kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, numbers(range(5)))
    flow = flow_of(tmp_path, kafka_broker, topic)
    run(flow)
    write(kafka_broker, topic, numbers(range(5, 10)))
    forget(kafka_broker, topic, 8)
    for _restart in range(2):
        with pytest.raises(RecordsLost, match=f"records of {topic}-0 from 5 to before 8"):
            run(flow)
        assert [one.state for one in tg.status(flow).sources] == ["failed"]
    assert found(flow) == [0, 1, 2, 3, 4]
    going = flow_of(tmp_path, kafka_broker, topic, on_data_loss="gap")
    with pytest.raises(RecordsLost):
        run(going)  # it is for a person to say that the failure is dealt with
    tg.resume(going, "orders")
    run(going)
    assert found(going) == [0, 1, 2, 3, 4, 8, 9]
    assert gaps(tmp_path) == [("orders", 1, f"{topic}-0", 5, 8, "TG-0812")]
    write(kafka_broker, topic, numbers([10]))
    run(going)
    assert found(going)[-1] == 10


def gaps(root: Path) -> list[tuple[object, ...]]:
    """The view that people look at."""
    with sqlite3.connect(f"{root}/flow.db") as connection:
        columns = 'source, epoch, "partition", lower, upper, code'
        rows = connection.execute(f"SELECT {columns} FROM gaps ORDER BY epoch, lower")
        return [tuple(row) for row in rows]


def test_records_that_are_lost_after_they_were_bound_are_a_gap_of_the_outputs_that_lack_them(
    tmp_path: Path, kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, numbers(range(6)))
    run(flow_of(tmp_path, kafka_broker, topic, "all", on_data_loss="gap", max_records_per_epoch=3))
    forget(kafka_broker, topic, 4)
    both = flow_of(tmp_path, kafka_broker, topic, "all", "late", on_data_loss="gap")
    run(both)
    assert (found(both, "all"), found(both, "late")) == ([0, 1, 2, 3, 4, 5], [4, 5])
    place = f"{topic}-0"
    assert gaps(tmp_path) == [("orders", 0, place, 0, 3, "TG-0812"), ("orders", 1, place, 3, 4, "TG-0812")]


@pytest.mark.parametrize("deed", ["forget", "delete", "recreate"])
def test_what_comes_between_a_look_and_the_reading_is_lost_by_no_flow_without_a_word(
    deed: str, tmp_path: Path, kafka_broker: Endpoint, topic: str
) -> None:
    write(kafka_broker, topic, numbers(range(9)))
    changes = {"forget": lambda: forget(kafka_broker, topic, 4), "delete": lambda: delete(kafka_broker, topic)}
    change = iter([changes.get(deed, lambda: recreate(kafka_broker, topic))])

    def point(name: str) -> None:
        if name == "after append bindings":
            next(change, tuple)()

    flow, env = flow_of(tmp_path, kafka_broker, topic, on_data_loss="gap"), tg.Env(point=point)
    if deed == "forget":
        flow.run("caught-up", engine=tg.LocalEngine(threads=0), env=env)
        assert (found(flow), gaps(tmp_path)) == ([4, 5, 6, 7, 8], [("orders", 0, f"{topic}-0", 0, 4, "TG-0812")])
        return
    with pytest.raises(TopicDeleted if deed == "delete" else UpstreamRecreated):
        flow.run("caught-up", engine=tg.LocalEngine(threads=0), env=env)
    assert found(flow) == []


def test_a_new_table_has_what_retention_took_long_ago_from_the_table_of_another_output(
    tmp_path: Path, kafka_broker: Endpoint, topic: str
) -> None:
    make = flow_of(tmp_path, kafka_broker, topic)
    for batch in ([1, 2, 3], [4, 5], [6]):
        write(kafka_broker, topic, numbers(batch))
        run(make)
    forget(kafka_broker, topic, 6)
    plain = flow_of(tmp_path, kafka_broker, topic, "orders", "plain")
    with pytest.raises(RecordsLost):
        run(plain)
    tg.drop(plain, "plain")
    late = flow_of(tmp_path, kafka_broker, topic)
    late.sink("late", tg.RowStream(late, "orders"), tg.ParquetSink(f"{tmp_path}/late"), start=tg.From("orders"))
    write(kafka_broker, topic, numbers([7]))
    run(late)
    both = [sorted(tg.read_arrow(late, name).to_pydict().items()) for name in ("orders", "late")]
    assert both[0] == both[1]
    assert found(late, "late") == [1, 2, 3, 4, 5, 6, 7]


def test_a_topic_is_no_table_to_get_a_past_from_or_to_replace(
    tmp_path: Path, kafka_broker: Endpoint, topic: str
) -> None:
    def make(*late: str) -> tg.Dataflow:
        flow = flow_of(tmp_path, kafka_broker, topic)
        orders = tg.RowStream(flow, "orders")
        flow.sink("copy", orders, tg.KafkaSink(kafka_broker.servers, topic=f"{topic}-copy", partitions=1))
        for name in late:
            flow.sink(name, orders, tg.ParquetSink(f"{tmp_path}/{name}"), start=tg.From("copy"))
        return flow

    write(kafka_broker, topic, numbers([1, 2]))
    run(make())
    with pytest.raises(OutputIsNoTable):
        run(make("late"))
    with pytest.raises(CannotReplace, match="KafkaSink cannot take out what it was given"):
        tg.replace(make(), "copy")
    assert found(make()) == [1, 2]


def test_t49_outputs_at_different_places_of_one_topic_get_each_record_once(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    for n in range(4):
        write(kafka_broker, topic, numbers([n]), partition=n % 2)
        run(flow_of(tmp_path, kafka_broker, topic, "first"))
    write(kafka_broker, topic, numbers([4]))
    both = flow_of(tmp_path, kafka_broker, topic, "first", "second")
    run(both)
    assert found(both, "first") == found(both, "second") == [0, 1, 2, 3, 4]


@pytest.mark.long
def test_a_broker_that_is_killed_stalls_the_source_which_recovers_by_itself(
    tmp_path: Path, own_broker: KafkaBroker
) -> None:
    topic = own_broker.create_topic("away")
    write(own_broker.endpoint, topic, numbers(range(3)))
    flow = flow_of(tmp_path, own_broker, topic)
    runner = Runner(flow.spec, tg.LocalEngine(threads=0), env=tg.Env(), spawn=at_once)
    try:

        def published(count: int) -> bool:
            runner.step(park=0.02)
            return runner.board.published >= count

        def stalled() -> bool:
            runner.step(park=0.02)
            return runner.board.sources["orders"].state == "stalled"

        eventually(lambda: published(1))
        own_broker.kill()
        eventually(stalled)
        error = runner.board.sources["orders"].error
        assert isinstance(error, BrokerUnreachable)
        own_broker.start()
        write(own_broker.endpoint, topic, numbers(range(3, 6)))
        eventually(lambda: published(2), within=60)
        assert runner.board.sources["orders"].state == "running"
    finally:
        if not own_broker.running:
            own_broker.start()
        runner.close()
    assert found(flow) == [0, 1, 2, 3, 4, 5]


@pytest.mark.long
def test_a_job_waits_for_a_broker_that_is_away_as_long_as_it_takes_and_no_other_source_waits_for_it(
    tmp_path: Path, own_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = own_broker.create_topic("gone")
    write(own_broker.endpoint, topic, numbers(range(3)))
    flow = flow_of(tmp_path, own_broker, topic)
    clicks = flow.source("clicks", tg.FileSource(f"{tmp_path}/*.jsonl", format=N))
    flow.sink("clicks", clicks, tg.ParquetSink(f"{tmp_path}/clicks"))
    monkeypatch.setattr("tidegauge.flow.stage.ATTEMPTS", 2)
    plan, asked, clicked = tg.KafkaSource.plan, list[int](), list[int]()

    def away(self: tg.KafkaSource, *arguments: object) -> object:
        asked.append(1)
        if len(asked) == 1:
            own_broker.kill()
        return plan(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(tg.KafkaSource, "plan", away)
    pool = threads(flow.spec)
    runner = Runner(flow.spec, tg.LocalEngine(threads=1), env=tg.Env(), spawn=pool.submit)
    board = runner.board
    try:

        def others_went_on() -> bool:
            with (tmp_path / "clicks.jsonl").open("ab") as file:
                file.writelines(line + b"\n" for line in numbers([len(clicked)]))
            clicked.append(len(clicked))
            runner.step(park=0.02)
            return len(asked) > 2 and board.outputs["clicks"].upper > board.outputs["orders"].upper + 3

        eventually(others_went_on, within=60)
        assert (board.sources["orders"].state, board.outputs["orders"].state) == ("stalled", "stalled")
        assert isinstance(board.sources["orders"].error, BrokerUnreachable)
        assert (board.sources["clicks"].state, board.outputs["orders"].upper) == ("running", 0)
        own_broker.start()
        bound = board.upper

        def published() -> bool:
            runner.step(park=0.02)
            return board.published >= bound and board.sources["orders"].state == "running"

        eventually(published, within=60)
    finally:
        if not own_broker.running:
            own_broker.start()
        pool.shutdown()
        runner.close()
    assert (found(flow), found(flow, "clicks")) == ([0, 1, 2], clicked)
