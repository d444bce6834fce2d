"""What stands in for a source in a simulation has its columns and the options that a flow can tell."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import tidegauge as tg
from tidegauge.errors.simulable import ClockNotSimulated, ColumnsNotDeclared, NoCounterpart
from tidegauge.remap.binding import Bound, Slice
from tidegauge.remap.fromtime import LSN, FromTime
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import GeneratorSource, KafkaSource, Source
from tidegauge.sources.abilities import Clocked, GoingOn, Placed
from tidegauge.sources.push.protocol import Subscription
from tidegauge.sources.push.source import PushedSource, pushed
from tidegauge.testing.simulation.upstream import (
    POINTS,
    FeedLog,
    Folder,
    MetSource,
    PartitionedLog,
    PolledService,
    SimulatedFeed,
    SimulatedLog,
    counterpart,
)

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def ignore(_name: str) -> None:
    """Let a call pass."""


@pytest.mark.parametrize("metadata", [False, True])
def test_a_topic_is_stood_in_for_by_a_log_with_the_same_columns_and_options(metadata: bool) -> None:
    source = KafkaSource(
        "kafka:9092",
        topic=["orders", "returns"],
        format=tg.Json("id long, user string"),
        key=tg.Json("k long"),
        start="latest",
        metadata=metadata,
        max_records_per_epoch=7,
        split_records=3,
        on_data_loss="gap",
        settings={"isolation.level": "read_uncommitted"},
    )
    found = counterpart(source, name="orders", partitions=3).met(print)
    assert isinstance(found, SimulatedLog)
    assert found.schema == source.schema
    assert found.log.topics == {"orders": 3, "returns": 3}
    kept = ("topic", "start", "metadata", "max_records_per_epoch", "split_records", "on_data_loss")
    assert {name: found.describe()[name] for name in kept} == {name: source.describe()[name] for name in kept}
    assert not found.committed
    assert found.placed("shop", "orders").group == source.placed("shop", "orders").group


def test_topics_by_a_pattern_are_stood_in_for_by_one() -> None:
    source = KafkaSource("kafka:9092", topic=tg.Topics(pattern="orders\\..*"), format=tg.Json("id long"))
    found = counterpart(source, name="orders").met(ignore)
    assert dict(found.probe(Bound(), now=NOW).upper) == {}


def test_columns_that_would_be_inferred_are_asked_for() -> None:
    with pytest.raises(ColumnsNotDeclared, match="'orders'"):
        counterpart(KafkaSource("kafka:9092", topic="orders", format=tg.Json()), name="orders")


def test_a_generator_stands_for_itself_and_goes_by_the_time_it_is_given_alone() -> None:
    source = GeneratorSource(columns="id long", rate=1.0, rows=5, shards=2)
    met: list[str] = []
    found = counterpart(source, name="numbers").met(met.append)
    bound = Bound()
    for now in (NOW, NOW - timedelta(days=9999), NOW + timedelta(seconds=2)):
        assert found.probe(bound, now=now) == pickle.loads(pickle.dumps(source)).probe(bound, now=now)
    split: Any
    [split] = found.plan([Slice("numbers", 0, "shard-0", 0, 2)], Bound())
    assert [batch.num_rows for batch in found.read(split, print)] == [2]
    found.acknowledge(bound.frontier)
    of_topics = ("confirm", "confirmed", "commit offsets")
    assert met == ["probe", "probed"] * 3 + [point for point in POINTS[4:] if point not in of_topics]


def test_a_source_of_ones_own_says_what_stands_in_for_it_or_is_refused() -> None:
    @dataclass(frozen=True)
    class Ledger:
        """A source of a user's own, as far as it matters here."""

        columns: str = "id long"

    class SimulableLedger(Ledger):
        def simulated(self) -> Source:
            return SimulatedLog(PartitionedLog({"ledger": 1}), columns=self.columns)

    met: list[str] = []
    found = counterpart(SimulableLedger(), name="ledger").met(met.append)  # type: ignore[arg-type]
    assert found.probe(Bound(), now=NOW).schema == found.schema
    assert met == ["probe", "probed"]
    with pytest.raises(NoCounterpart, match="a Ledger") as refused:
        counterpart(Ledger(), name="ledger")  # type: ignore[arg-type]
    assert "simulated(self)" in refused.value.next_step


def test_rows_of_any_values_stand_in_for_changes_that_are_kept_and_for_no_others() -> None:
    how: dict[str, Any] = {
        "topic": "t",
        "format": tg.Json("name string"),
        "key": tg.Json("id long"),
        "metadata": True,
    }
    kept = counterpart(KafkaSource("broker:9092", envelope="cdc", **how), name="users").met(print)
    assert kept.schema is not None
    assert kept.schema.names[:4] == ["id", "name", "op", "_partition"]
    for envelope in ("upsert", "debezium"):
        with pytest.raises(NoCounterpart, match=f"a KafkaSource with envelope='{envelope}'"):
            counterpart(KafkaSource("broker:9092", envelope=envelope, **how), name="users")


def test_a_source_that_meets_the_world_keeps_the_protocols_of_the_one_it_wraps() -> None:
    met: list[str] = []
    inner = SimulatedLog(PartitionedLog({"orders": 1}), columns="id long", on_data_loss="gap")
    found = MetSource(inner, met.append)
    assert isinstance(found, Source)
    assert isinstance(found, GoingOn)
    assert isinstance(found, Placed)
    assert not isinstance(found, Clocked)
    assert not isinstance(MetSource(GeneratorSource(columns="id long"), met.append), GoingOn)
    placed: Any = found.placed("shop", "orders")
    assert copy.copy(placed) == placed
    assert placed == replace(found, inner=inner.placed("shop", "orders"))
    assert (list(placed.lost([], Bound())), met) == ([], ["lost", "told lost"])


def test_files_are_stood_in_for_by_a_folder_that_outlives_drivers() -> None:
    source = tg.FileSource("/landing/*.jsonl", format=tg.Json("id long"), metadata=True, on_data_loss="gap")
    found = counterpart(source, name="clicks")
    assert isinstance(found.upstream, Folder)
    found.upstream.append("/landing/a.jsonl", b'{"id": 1}\n', at=NOW)
    met: list[str] = []
    first, second = found.met(ignore), found.met(met.append)
    for reader in (first, second):
        assert sum(reader.probe(Bound(), now=NOW).upper.values()) == 10
        assert reader.describe() == source.describe()
    assert met == ["probe", "probed"]


def test_objects_are_stood_in_for_by_files_in_memory() -> None:
    source = tg.FileSource("s3://lake/landing/*.jsonl", format=tg.Json("id long"))
    found = counterpart(source, name="clicks")
    assert isinstance(found.upstream, Folder)
    found.upstream.append("/s3/lake/landing/a.jsonl", b'{"id": 1}\n', at=NOW)
    assert sum(found.met(ignore).probe(Bound(), now=NOW).upper.values()) == 10


@dataclass(frozen=True)
class Tap:
    """A source of a user's own that pushes."""

    unit = "records"

    @property
    def streams(self) -> dict[str, pa.Schema]:
        return {"": pa.schema([("id", pa.int64()), ("_offset", pa.int64())])}

    def describe(self) -> dict[str, Any]:
        return {"kind": "tap"}

    def connect(self, start: Frontier, bound: Bound) -> Subscription:
        raise AssertionError("nobody connects to it")


@pytest.mark.parametrize("user", [Tap(), tg.SocketSource("nowhere", 9000, columns={"a": "id long", "b": "n int"})])
def test_a_source_that_pushes_is_stood_in_for_by_a_feed_with_its_streams(user: Any) -> None:
    found = counterpart(pushed(user, "/staging"), name="feed", partitions=3)
    met: list[str] = []
    driver = found.met(met.append)
    assert isinstance(found.upstream, FeedLog)
    assert isinstance(driver, PushedSource)
    assert (driver.source.streams, driver.unit, driver.staging) == (user.streams, user.unit, "/staging")
    assert driver.source.connect(Frontier(), Bound()).identity
    assert met == ["connect", "connected"]
    assert found.upstream.places == ["feed-0", "feed-1", "feed-2"]


def test_a_source_that_pushes_may_say_itself_what_stands_in_for_it() -> None:
    feed = FeedLog()

    class Simulable(Tap):
        def simulated(self) -> Any:
            return SimulatedFeed(feed, streams=self.streams)

    class Mistaken(Tap):
        def simulated(self) -> Any:
            return SimulatedLog(PartitionedLog({"t": 1}), columns="id long")

    assert counterpart(pushed(Simulable(), None), name="feed").upstream is feed
    with pytest.raises(NoCounterpart, match="a Mistaken") as refused:
        counterpart(pushed(Mistaken(), None), name="feed")
    assert "SimulatedFeed(FeedLog()" in refused.value.next_step


def test_a_source_that_pushes_and_goes_by_another_clock_is_refused() -> None:
    class Slot(Tap):
        from_time: FromTime = LSN

    with pytest.raises(ClockNotSimulated, match="of the kind 'lsn'"):
        counterpart(pushed(Slot(), None), name="slot")


@pytest.mark.parametrize("merge", ["append", "ledger", "snapshot", "upsert"])
def test_polls_are_stood_in_for_by_a_service_that_is_asked_with_the_same_strategy(merge: Any) -> None:
    key = () if merge == "append" else "id"
    polled = tg.PollingSource(lambda _: 1 / 0, columns="id long", staging="/nowhere", merge=merge, key=key)  # type: ignore[arg-type, return-value]
    over_http = tg.HttpSource("http://nowhere", format=tg.Json("id long"), staging="/nowhere", merge=merge, key=key)
    for source in (polled, over_http):
        found = counterpart(source, name="orders")
        assert isinstance(found.upstream, PolledService)
        stands_in: Any = found.met(print)
        assert (stands_in.schema, stands_in.inner.merge, stands_in.inner.key) == (
            source.schema,
            source.merge,
            source.key,
        )
        found.upstream.add({"id": 7})
        assert stands_in.inner.function(None).rows.to_pylist() == [{"id": 7}]
