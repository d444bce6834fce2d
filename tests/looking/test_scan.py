"""Scanning a source: the same records and epochs as in its tables, straight from upstream."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flow.badinput import begin, lines, source, write
from tests.flow.by_hand import World
from tests.flow.upstream import Topic
from tests.sources.kafka.writing import transact
from tests.sources.kafka.writing import write as produce

import tidegauge as tg
from tidegauge.errors.base import Definite
from tidegauge.errors.command import EpochNotBound, FlowNeverRan, NotScannable
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.store import EpochBelowSince
from tidegauge.testing import Endpoint


def plain(world: World) -> tg.Dataflow:
    """One source into a table, as it comes."""
    flow = tg.Dataflow("shop", store=world.store)
    flow.sink("all", source(world, flow, "orders"), tg.ParquetSink(str(world.root / "lake" / "all")))
    return flow


def lived(world: World, *epochs: list[int]) -> tg.Dataflow:
    """Let numbers come, those of each list in an epoch of their own."""
    run = begin(world)
    for numbers in epochs:
        write(world.root / "orders" / "1.jsonl", lines(*numbers))
        run.catch_up()
    run.abandon()
    return world.make(world)


def numbers(found: pa.RecordBatchReader | pa.Table) -> list[tuple[int, int]]:
    """The numbers with their epochs."""
    rows = found.read_all() if isinstance(found, pa.RecordBatchReader) else found
    return sorted(zip(rows["_epoch"].to_pylist(), rows["n"].to_pylist(), strict=True))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, plain)


def test_b1_a_scan_as_of_an_epoch_has_its_records_and_leaves_nothing(world: World) -> None:
    flow = lived(world, [0, 1], [2, 3, 4], [5, 6])
    stored = (world.root / "flow.db").read_bytes()
    assert numbers(tg.scan_arrow(flow, "orders", as_of=1)) == [(0, 0), (0, 1), (1, 2), (1, 3), (1, 4)]
    assert numbers(tg.scan_arrow(flow, "orders")) == numbers(tg.read_arrow(flow, "all"))
    assert (world.root / "flow.db").read_bytes() == stored


@settings(max_examples=20)
@given(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4), min_size=1, max_size=5),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_b1_b2_a_scan_of_epochs_is_what_the_table_holds_of_them(batches: list[list[int]], a: int, b: int) -> None:
    with TemporaryDirectory() as folder:
        flow = lived(World(Path(folder), plain), *batches)
        first, stop = sorted((a % (len(batches) + 1), b % (len(batches) + 1)))
        held = tg.read_arrow(flow, "all")
        epochs = held["_epoch"].to_pylist()
        there = held.filter(pa.array([first <= epoch < stop for epoch in epochs]))
        found = tg.scan_arrow(flow, "orders", between=(first, stop)).read_all()
        assert found.schema.equals(held.schema)
        key = [("_partition", "ascending"), ("_offset", "ascending")]
        assert found.sort_by(key).equals(there.sort_by(key))
        if stop:
            at = tg.scan_arrow(flow, "orders", as_of=stop - 1)
            assert numbers(at) == numbers(tg.read_arrow(flow, "all", as_of=stop - 1))


def test_b2_a_scan_between_times_ends_before_the_second(world: World) -> None:
    flow = lived(world, [0, 1], [2], [3, 4], [5])
    minted = [record.minted_at for record, _ in tg.epochs(flow)]
    assert numbers(tg.scan_arrow(flow, "orders", between=(minted[1], minted[3]))) == [(1, 2), (2, 3), (2, 4)]
    assert numbers(tg.scan_arrow(flow, "orders", as_of=minted[1])) == [(0, 0), (0, 1), (1, 2)]
    before = minted[0] - timedelta(seconds=1)
    assert numbers(tg.scan_arrow(flow, "orders", between=(before, str(minted[0])))) == []


def test_b3_a_scan_that_ends_in_control_records_ends(tmp_path: Path, kafka_broker: Endpoint, topic: str) -> None:
    def values(*n: int) -> list[bytes]:
        return [json.dumps({"n": one}).encode() for one in n]

    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db", tick=0.01)
    messages = tg.KafkaSource(kafka_broker.servers, topic=topic, format=tg.Json("n long"))
    flow.sink("all", flow.source("orders", messages), tg.ParquetSink(str(tmp_path / "all")))
    produce(kafka_broker, topic, values(1, 2))
    transact(kafka_broker, topic, values(3), commit=True)
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    transact(kafka_broker, topic, values(4), commit=False)
    transact(kafka_broker, topic, values(5), commit=True)
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    found = [n for _, n in numbers(tg.scan_arrow(flow, "orders"))]
    assert found == [1, 2, 3, 5]
    assert numbers(tg.scan_arrow(flow, "orders")) == numbers(tg.read_arrow(flow, "all"))


@pytest.mark.parametrize("between", [(1, 1), (2, 1)])
def test_b4_a_scan_of_no_epochs_has_no_rows(world: World, between: tuple[int, int]) -> None:
    flow = lived(world, [0], [1])
    found = tg.scan_arrow(flow, "orders", between=between).read_all()
    assert (found.num_rows, found.schema.names[-1]) == (0, "_epoch")


def test_b5_what_a_source_pushes_is_not_sent_again(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db", tick=0.01)
    pushed = tg.SocketSource("127.0.0.1", 1, columns="n long")
    rows = flow.source("numbers", tg.GeneratorSource(2, columns="n long"))
    flow.sink("all", rows, tg.ParquetSink(str(tmp_path / "all")))
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    other = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db")
    other.sink("fed", other.source("feed", pushed), tg.ParquetSink(str(tmp_path / "fed")))
    with pytest.raises(NotScannable, match="each of them once"):
        tg.scan_arrow(other, "feed")


def test_a_scan_reads_what_is_bound_and_not_yet_published_if_asked_for_now(world: World) -> None:
    flow = lived(world, [0])
    write(world.root / "orders" / "1.jsonl", lines(1))
    world.strike = "before stage"
    run = begin(world)
    with pytest.raises(BaseException, match="before stage"):
        run.catch_up()
    assert numbers(tg.scan_arrow(flow, "orders")) == [(0, 0)]
    assert numbers(tg.scan_arrow(flow, "orders", as_of="now")) == [(0, 0), (1, 1)]
    assert numbers(tg.scan_arrow(flow, "orders", as_of=1)) == [(0, 0), (1, 1)]


def test_records_that_upstream_no_longer_has_are_an_error_and_never_left_out(world: World) -> None:
    flow = lived(world, [0], [1])
    shutil.move(world.root / "orders" / "1.jsonl", world.root / "away")
    write(world.root / "orders" / "2.jsonl", lines(7))
    with pytest.raises(Definite, match=r"1\.jsonl"):
        tg.scan_arrow(flow, "orders").read_all()


def test_epochs_that_were_compacted_are_scanned_as_one_or_not_at_all(world: World) -> None:
    flow = lived(world, [0], [1], [2], [3])
    tg.compact(flow, before=2)
    assert numbers(tg.scan_arrow(flow, "orders", as_of=2)) == [(2, 0), (2, 1), (2, 2)]
    assert numbers(tg.scan_arrow(flow, "orders", between=(3, 4))) == [(3, 3)]
    for chosen in ({"as_of": 1}, {"between": (1, 4)}, {"between": (2, 3)}):
        with pytest.raises(EpochBelowSince):
            tg.scan_arrow(flow, "orders", **chosen)


def test_the_epochs_of_a_recreated_upstream_are_told_from_those_that_can_be_scanned(tmp_path: Path) -> None:
    topic = Topic(tmp_path / "topic")
    topic.create("first")
    topic.write("p0", 1, 2)
    flow = tg.Dataflow("again", store=f"sqlite:///{tmp_path}/flow.db", tick=0.01)
    flow.sink("all", flow.source("numbers", topic), tg.ParquetSink(f"{tmp_path}/all"))
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    topic.create("second")
    topic.write("p0", 7, 8)
    with pytest.raises(UpstreamRecreated):
        tg.scan_arrow(flow, "numbers").read_all()
    with pytest.raises(UpstreamRecreated):
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    tg.resume(flow, "numbers", new_incarnation=True)
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    with pytest.raises(NotScannable, match="epochs 0 to 0: their upstream was recreated"):
        tg.scan_arrow(flow, "numbers")
    assert numbers(tg.scan_arrow(flow, "numbers", between=(1, 2))) == [(1, 7), (1, 8)]


@pytest.mark.parametrize("collecting", [True, False])
def test_a_bad_record_is_left_to_those_who_collect_it_or_is_an_error(tmp_path: Path, collecting: bool) -> None:
    def make(world: World, collected: bool = True) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("all", orders, tg.ParquetSink(str(world.root / "lake" / "all")))
        if collected:
            flow.sink("bad", orders.errors, tg.ParquetSink(str(world.root / "lake" / "bad")))
        return flow

    world = World(tmp_path, make)
    write(tmp_path / "orders" / "1.jsonl", lines(1) + "no JSON\n" + lines(2))
    run = begin(world)
    run.catch_up()
    run.abandon()
    found = tg.scan_arrow(make(world, collecting), "orders")
    if collecting:
        assert numbers(found) == [(0, 1), (0, 2)]
    else:
        with pytest.raises(RecordUnparsable):
            found.read_all()


@pytest.mark.parametrize(
    ("chosen", "error"),
    [
        ({"as_of": 2}, EpochNotBound),
        ({"between": (0, 3)}, EpochNotBound),
        ({"as_of": -1}, InvalidArgument),
        ({"as_of": True}, InvalidArgument),
        ({"as_of": "yesterday"}, InvalidArgument),
        ({"as_of": 1.5}, InvalidArgument),
        ({"between": (0,)}, InvalidArgument),
        ({"between": 3}, InvalidArgument),
        ({"between": (0, None)}, InvalidArgument),
        ({"between": (0, 1), "as_of": 1}, InvalidArgument),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_read(
    world: World, chosen: dict[str, Any], error: type[Exception]
) -> None:
    flow = lived(world, [0], [1])
    shutil.rmtree(world.root / "orders")
    with pytest.raises(error):
        tg.scan_arrow(flow, "orders", **chosen)


def test_a_flow_that_never_ran_has_nothing_to_scan(world: World) -> None:
    with pytest.raises(FlowNeverRan):
        tg.scan_arrow(plain(world), "orders")
