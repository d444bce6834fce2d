"""Streams of several sources as one: epochs that agree, late outputs, acknowledgements, other upstreams, mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.flow.badinput import begin, finish, write
from tests.flow.by_hand import World
from tests.flow.test_kafka_flows import run
from tests.sources.kafka.writing import forget, numbers, recreate
from tests.sources.kafka.writing import write as send

import tidegauge as tg
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.flow import ForeignStream, InvalidArgument
from tidegauge.errors.following import SharedBeside
from tidegauge.errors.running import LossNotAccepted, NothingToResume, UpstreamRecreated
from tidegauge.errors.sources import RecordsLost
from tidegauge.errors.unions import CannotUnite, InputMissing, InputRecreated
from tidegauge.job import portion
from tidegauge.testing import Endpoint
from tidegauge.testing.endpoint import quiet

Flow = Callable[[World], tg.Dataflow]


def inputs_of(world: World, flow: tg.Dataflow) -> tuple[tg.RowStream, tg.RowStream]:
    web = tg.FileSource(str(world.root / "web" / "*"), format=tg.Json("n long, agent string"), metadata=True)
    tills = tg.FileSource(str(world.root / "tills" / "*"), format=tg.Json("n long, till int"))
    return flow.source("web", web), flow.source("tills", tills)


def flow_of(*outputs: str, united: bool = True) -> Flow:
    """Two sources and their union, each with an output; `outputs` are more of the union."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        inputs = inputs_of(world, flow)
        for name, stream in zip(("web", "tills"), inputs, strict=True):
            flow.sink(name, stream, tg.ParquetSink(str(world.root / "lake" / name)))
        if united:
            both = flow.source("both", tg.union(*inputs))
            for name in ("both", *outputs):
                flow.sink(name, both, tg.DeltaSink(str(world.root / "lake" / name)))
            flow.sink("bad", both.errors, tg.ParquetSink(str(world.root / "lake" / "bad")))
        return flow

    return make


def add(world: World, source: str, file: str, *of: int) -> None:
    write(world.root / source / file, "".join(f'{{"n": {n}}}\n' for n in of))


def rows_of(world: World, name: str) -> Counter[tuple[int, int]]:
    """How often each number is in each epoch of a table."""
    found = tg.read_arrow(world.make(world), name).to_pylist()
    return Counter((row["_epoch"], row["n"]) for row in found)


def lived(world: World) -> None:
    """Three epochs: of both sources, of one, of the other."""
    run = begin(world)
    for web, tills in (((1, 2), (10, 11)), ((3,), ()), ((), (12,))):
        add(world, "web", "a", *web)
        add(world, "tills", "b", *tills)
        run.catch_up()
    run.abandon()


def test_at_every_epoch_a_union_has_the_rows_that_its_inputs_have_together(tmp_path: Path) -> None:
    world = World(tmp_path, flow_of())
    lived(world)
    assert rows_of(world, "both") == rows_of(world, "web") + rows_of(world, "tills")
    found = tg.read_arrow(world.make(world), "both")
    assert found.column_names == ["n", "agent", "till", "_partition", "_offset", "_source", "_epoch"]
    assert {row["_source"] for row in found.to_pylist() if row["n"] >= 10} == {"tills"}


def test_a_late_output_of_a_union_has_its_past_in_parts_as_the_live_one_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, flow_of())
    lived(world)
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", portion.LATE_PART * 8)  # a record
    finish(world, flow_of("late"))
    assert rows_of(world, "late") == rows_of(world, "both") != Counter()


def test_a_bad_record_of_an_input_is_collected_under_the_unions_name_for_its_partition(tmp_path: Path) -> None:
    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        both = flow.source("both", tg.union(*inputs_of(world, flow)))
        flow.sink("both", both, tg.DeltaSink(str(world.root / "lake" / "both")))
        flow.sink("bad", both.errors, tg.ParquetSink(str(world.root / "lake" / "bad")))
        return flow

    world = World(tmp_path, make)
    add(world, "web", "a", 1)
    add(world, "tills", "b", 2)
    write(tmp_path / "tills" / "b", "nonsense\n")
    finish(world)
    [bad] = tg.read_arrow(make(world), "bad").to_pylist()
    assert (bad["source"], bad["raw"], bad["partition"].split("/")[0]) == ("both", b"nonsense", "tills")
    place = tg.locate(make(world), "both", bad["partition"], bad["position"])
    assert (place.epoch, [table.output for table in place.tables]) == (0, ["both", "bad"])
    [row] = [row for row in tg.read_arrow(make(world), "both").to_pylist() if row["_source"] == "web"]
    found = tg.origin(make(world), "both", row).place
    assert found is not None
    assert (found.path, found.position) == (str(tmp_path / "web" / "a"), 0)


def test_a_union_that_joins_a_running_flow_begins_with_all_that_is_bound_as_one_epoch(tmp_path: Path) -> None:
    world = World(tmp_path, flow_of(united=False))
    lived(world)
    finish(world, flow_of())
    add(world, "web", "a", 4)
    finish(world, flow_of())
    found = rows_of(world, "both")
    assert sum(found.values()) == len(found) == 7
    assert {epoch for epoch, n in found if n != 4} == {3}
    assert rows_of(world, "web")[4, 4] == found[4, 4] == 1


def test_a_union_of_sources_that_have_all_ended_has_their_rows(tmp_path: Path) -> None:
    def make(world: World, *, united: bool = True) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        streams = [flow.source(name, tg.GeneratorSource(rows=3, columns="n long")) for name in ("a", "b")]
        flow.sink("a", streams[0], tg.ParquetSink(str(world.root / "lake" / "a")))
        if united:
            flow.sink(
                "both", flow.source("both", tg.union(*streams)), tg.ParquetSink(str(world.root / "lake" / "both"))
            )
        return flow

    world = World(tmp_path, lambda world: make(world, united=False))
    assert world.make(world).run("caught-up", engine="local").why == "sealed"
    assert make(world).run("caught-up", engine="local").why == "sealed"
    assert sorted(tg.read_arrow(make(world), "both").column("_source").to_pylist()) == ["a"] * 3 + ["b"] * 3


def test_waiting_for_a_position_of_an_input_waits_for_the_tables_of_its_unions(tmp_path: Path) -> None:
    world = World(tmp_path, flow_of())
    lived(world)
    size = (tmp_path / "web" / "a").stat().st_size
    [partition] = world.loaded().sources["web"].details
    tg.pause(world.make(world), "both")
    flow = world.make(world)
    add(world, "web", "a", 9)
    finish(world)
    assert flow.wait_for({"web": {partition: size}}, timeout=5) == 1
    with pytest.raises(TimeoutError, match="'both' is paused"):
        flow.wait_for({"web": {partition: size + 9}}, timeout=0.01)
    tg.unpause(flow, "both")
    finish(world)
    assert flow.wait_for({"web": {partition: size + 9}}, timeout=5) == 3


@pytest.mark.parametrize("outputs", [("both",), ("web", "both")])
def test_t33_an_input_is_acknowledged_no_further_than_the_tables_of_its_unions_hold(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str], outputs: tuple[str, ...]
) -> None:
    topics = {"web": make_topic(), "tills": make_topic()}
    flow = topics_flow(tmp_path, kafka_broker, topics, *outputs)
    for topic in topics.values():
        send(kafka_broker, topic, numbers(range(3)))
    run(flow)
    assert [committed(kafka_broker, name, topic) for name, topic in topics.items()] == [3, 3]
    tg.pause(flow, "both")
    send(kafka_broker, topics["web"], numbers(range(3, 5)))
    run(flow)
    assert [committed(kafka_broker, name, topic) for name, topic in topics.items()] == [3, 3]
    tg.unpause(flow, "both")
    run(flow)
    assert [committed(kafka_broker, name, topic) for name, topic in topics.items()] == [5, 3]
    assert Counter(tg.read_arrow(flow, "both").column("n").to_pylist()) == Counter([*range(3), *range(5)])


def topics_flow(
    root: Path, broker: Endpoint, topics: dict[str, str], *outputs: str, gap: bool = False
) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/flow.db", tick=0.02)
    lost: Any = {"on_data_loss": "gap"} if gap else {}
    streams = {
        name: flow.source(name, tg.KafkaSource(broker.servers, topic=topic, format=tg.Json("n long"), **lost))
        for name, topic in topics.items()
    }
    streams["both"] = flow.source("both", tg.union(*streams.values()))
    for name in outputs:
        flow.sink(name, streams[name], tg.DeltaSink(f"{root}/{name}"))
    return flow


def committed(broker: Endpoint, source: str, topic: str) -> int:
    """What the group of a source has committed."""
    consumer = Consumer(quiet(broker.servers, **{"group.id": f"tidegauge.shop.{source}"}))
    try:
        [place] = consumer.committed([TopicPartition(topic, 0)], 30)
    finally:
        consumer.close()
    return int(place.offset)


def test_a_union_goes_on_with_an_input_that_was_begun_anew(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topics = {"web": make_topic(), "tills": make_topic()}
    flow = topics_flow(tmp_path, kafka_broker, topics, "web", "both")
    for topic in topics.values():
        send(kafka_broker, topic, numbers(range(3)))
    run(flow)
    recreate(kafka_broker, topics["web"])
    send(kafka_broker, topics["web"], numbers([50]))
    send(kafka_broker, topics["tills"], numbers([3]))
    with pytest.raises(UpstreamRecreated):
        run(flow)
    tg.resume(flow, "web", new_incarnation=True)
    run(flow)
    found = tg.read_arrow(flow, "both").to_pylist()
    assert Counter((row["_source"], row["n"]) for row in found) == Counter(
        [*(("web", n) for n in (0, 1, 2, 50)), *(("tills", n) for n in range(4))]
    )


def test_what_a_union_lacks_of_an_upstream_that_is_gone_is_lost_once_somebody_says_so(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topics = {"web": make_topic(), "tills": make_topic()}
    flow = topics_flow(tmp_path, kafka_broker, topics, "web", "both")
    for topic in topics.values():
        send(kafka_broker, topic, numbers(range(3)))
    run(flow)
    tg.pause(flow, "both")
    send(kafka_broker, topics["web"], numbers([3, 4]))
    run(flow)
    recreate(kafka_broker, topics["web"])
    send(kafka_broker, topics["web"], numbers([50]))
    tg.unpause(flow, "both")
    with pytest.raises((UpstreamRecreated, InputRecreated)):
        run(flow)
    with pytest.raises(NothingToResume, match="'web' has failed with TG-0554, and is to be resumed first"):
        tg.resume(flow, "both", new_incarnation=True)
    tg.resume(flow, "web", new_incarnation=True)
    with pytest.raises(InputRecreated, match="input 'web' of a union is another upstream"):
        run(flow)
    with pytest.raises(LossNotAccepted, match="2 records"):
        tg.resume(flow, "both", new_incarnation=True)
    done = tg.resume(flow, "both", new_incarnation=True, accept_loss=True)
    assert [(gap.partition.split("/")[0], gap.lower, gap.upper) for gap in done.gaps] == [("web", 3, 5)]
    run(flow)
    found = tg.read_arrow(flow, "both").to_pylist()
    assert sorted(row["n"] for row in found if row["_source"] == "web") == [0, 1, 2, 50]
    assert sorted(tg.read_arrow(flow, "web").column("n").to_pylist()) == [0, 1, 2, 3, 4, 50]
    assert {one.name: one.lost for one in tg.status(flow).sources} == {"web": 0, "tills": 0, "both": 2}


def test_a_loss_that_an_input_goes_on_without_is_a_gap_of_the_union(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topics = {"web": make_topic(), "tills": make_topic()}
    flow = topics_flow(tmp_path, kafka_broker, topics, "web", "both", gap=True)
    run(flow)
    tg.pause(flow, "both")
    send(kafka_broker, topics["web"], numbers(range(3)))
    run(flow)
    forget(kafka_broker, topics["web"], 2)
    tg.unpause(flow, "both")
    run(flow)
    assert tg.read_arrow(flow, "both").column("n").to_pylist() == [2]
    assert {one.name: one.lost for one in tg.status(flow).sources} == {"web": 0, "tills": 0, "both": 2}
    assert {gap.code for gap in World(tmp_path, lambda _: flow).loaded().gaps} == {RecordsLost.code}


def test_a_union_that_had_failed_is_behind_and_its_input_is_told_by_what_its_table_holds(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topics = {"web": make_topic(), "tills": make_topic()}

    def make() -> tg.Dataflow:
        flow = topics_flow(tmp_path, kafka_broker, topics, "both")
        flow.sink("bad", tg.RowStream(flow, "web", "errors"), tg.ParquetSink(f"{tmp_path}/bad"))
        return flow

    send(kafka_broker, topics["web"], numbers([0, 1]))
    run(make())
    send(kafka_broker, topics["web"], [b"nonsense"])
    send(kafka_broker, topics["web"], numbers([3]))
    with pytest.raises(RecordUnparsable):
        run(make())  # the union collects no bad record
    send(kafka_broker, topics["web"], numbers([4]))
    with pytest.raises(RecordUnparsable):
        run(make())
    assert tg.read_arrow(make(), "bad").num_rows == 1
    partition = f"web/{topics['web']}-0"
    tg.skip(make(), "both", partition, 2, 3)
    tg.pause(make(), "both")
    run(make())
    assert committed(kafka_broker, "web", topics["web"]) == 2
    with pytest.raises(TimeoutError, match="'both' is paused"):
        make().wait_for({"web": {f"{topics['web']}-0": 5}}, timeout=0.01)
    tg.unpause(make(), "both")
    run(make())
    assert committed(kafka_broker, "web", topics["web"]) == 5
    assert tg.read_arrow(make(), "both").column("n").to_pylist() == [0, 1, 3, 4]
    assert make().wait_for({"web": {f"{topics['web']}-0": 5}}, timeout=5) == tg.status(make()).published - 1


@pytest.mark.parametrize("lost", ["all of it", "the last epochs"])
def test_a_store_that_is_recovered_from_tables_has_the_inputs_where_their_union_is(tmp_path: Path, lost: str) -> None:
    world = World(tmp_path, flow_of())
    add(world, "web", "a", 1)
    add(world, "tills", "b", 10)
    finish(world)
    backup = (tmp_path / "flow.db").read_bytes()
    add(world, "web", "a", 2)
    finish(world)
    for file in tmp_path.glob("flow.db*"):
        file.unlink()
    if lost == "the last epochs":
        (tmp_path / "flow.db").write_bytes(backup)
    tg.recover(world.make(world))
    add(world, "tills", "b", 11)
    finish(world)
    both = Counter({(0, 1): 1, (0, 10): 1, (1, 2): 1, (2, 11): 1})
    assert rows_of(world, "both") == both == rows_of(world, "web") + rows_of(world, "tills")


def test_an_input_that_is_taken_out_too_early_is_missed_and_may_be_put_back(tmp_path: Path) -> None:
    def swapped(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        web, tills = inputs_of(world, flow)
        more = flow.source("more", tg.FileSource(str(world.root / "more" / "*"), format=tg.Json("n long, till int")))
        flow.sink("web", web, tg.ParquetSink(str(world.root / "lake" / "web")))
        flow.sink("tills", tills, tg.ParquetSink(str(world.root / "lake" / "tills")))
        both = flow.source("both", tg.union(web, more))
        flow.sink("both", both, tg.DeltaSink(str(world.root / "lake" / "both")))
        flow.sink("bad", both.errors, tg.ParquetSink(str(world.root / "lake" / "bad")))
        return flow

    world = World(tmp_path, flow_of())
    lived(world)
    tg.pause(world.make(world), "both")
    add(world, "tills", "b", 13)
    finish(world)
    world.make = swapped
    tg.unpause(swapped(world), "both")
    with pytest.raises(InputMissing, match=r"lacks records of its input 'tills', .* it has 'web', 'more'"):
        swapped(world).run("caught-up", engine="local")
    world.make = flow_of()
    finish(world)
    assert rows_of(world, "both") == rows_of(world, "web") + rows_of(world, "tills")
    add(world, "more", "c", 20)
    finish(world, swapped)
    assert sum(n == 20 for _, n in rows_of(world, "both")) == 1


def test_a_flow_that_shares_a_union_has_its_epochs_and_rows(tmp_path: Path) -> None:
    world = World(tmp_path, flow_of())
    lived(world)
    owner = world.make(world)
    billing = tg.Dataflow("billing", store=world.store)
    shared = billing.source("sold", tg.shared(owner, "both"))
    billing.sink("sold", shared, tg.DeltaSink(str(tmp_path / "lake" / "sold")))
    billing.run("caught-up", engine="local")
    found = Counter((row["_epoch"], row["n"]) for row in tg.read_arrow(billing, "sold").to_pylist())
    assert found == rows_of(world, "both")
    assert {one.name for one in tg.status(billing).sources} == {"sold"}


def made() -> tuple[tg.Dataflow, tg.RowStream, tg.RowStream]:
    flow = tg.Dataflow("shop", store="sqlite:///shop.db")
    a, b = (flow.source(name, tg.GeneratorSource(columns=f"n long, {name} int")) for name in ("a", "b"))
    return flow, a, b


def with_source(columns: Any) -> Callable[[tg.Dataflow, tg.RowStream, tg.RowStream], tg.RowStream]:
    def unite(flow: tg.Dataflow, a: tg.RowStream, _b: tg.RowStream) -> tg.RowStream:
        other = flow.source("c", tg.FileSource("in/*", format=tg.Json(columns)))
        return flow.source("u", tg.union(a, other))

    return unite


@pytest.mark.parametrize(
    ("unite", "error", "like"),
    [
        (lambda f, a, b: tg.union(), InvalidArgument, "two streams"),
        (lambda f, a, b: tg.union(a), InvalidArgument, "two streams"),
        (lambda f, a, b: tg.union(a, cast("Any", "b")), InvalidArgument, "two streams"),
        (lambda f, a, b: tg.union(a, b.filter("n > 1")), CannotUnite, "the stream of 'b' has been through filter"),
        (lambda f, a, b: tg.union(a, b.errors), CannotUnite, "b.errors is one of several streams"),
        (lambda f, a, b: f.source("u", tg.union(a, a)), CannotUnite, "source 'a' is in it twice"),
        (lambda f, a, b: f.source("u", tg.union(a, made()[1])), ForeignStream, "a"),
        (lambda f, a, b: f.source("u", tg.union(a, b), required=True), InvalidArgument, "neither required"),
        (with_source("n string"), CannotUnite, "'n' is int64 in source 'a', and 'n' is string in source 'c'"),
        (with_source("N long"), CannotUnite, "'n' is int64 in source 'a', and 'N' is int64 in source 'c'"),
        (with_source("n long, _source int"), CannotUnite, "source 'c' has a column '_source'"),
        (with_source("n long, _op string"), CannotUnite, "rows of 'c' have operations in '_op', and those of 'a'"),
        (with_source(None), CannotUnite, "source 'c' infers its columns"),
    ],
)
def test_what_cannot_be_united_is_refused_where_it_is_said(
    unite: Callable[[tg.Dataflow, tg.RowStream, tg.RowStream], object], error: type[Exception], like: str
) -> None:
    with pytest.raises(error, match=like):
        unite(*made())


def test_sources_that_push_and_flows_that_follow_cannot_be_united() -> None:
    flow, a, _b = made()
    pushed = flow.source("pushed", tg.SocketSource("localhost", 1, columns="n long"))
    with pytest.raises(CannotUnite, match="source 'pushed' pushes its records"):
        flow.source("u", tg.union(a, pushed))
    follower = tg.Dataflow("billing", store=flow.store)
    mine = follower.source("a", tg.shared(a))
    with pytest.raises(SharedBeside):
        follower.source("u", tg.union(mine, mine))


def test_a_union_of_a_union_has_the_sources_of_both() -> None:
    flow, a, b = made()
    c = flow.source("c", tg.GeneratorSource(columns="n long"))
    both = flow.source("both", tg.union(a, b))
    assert flow.source("all", tg.union(both, c)).source == "all"
    source: Any = flow.sources["all"]
    assert source.made_of == ("a", "b", "c")
    assert source.schema.names == ["n", "a", "b", "_source"]
