"""What a flow with shared sources can declare, and what it is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.flow.shared import contents, even, numbers
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.following import CannotShare, NotAFollower, OwnerDiffers, SharedBeside
from tidegauge.errors.sources import FileRewritten
from tidegauge.remap.store import Store
from tidegauge.testing import simulate


class Place:
    """A folder with two flows that can be declared again and again, and the records of one source."""

    def __init__(self, root: Path) -> None:
        self.root, self.store, self.count = root, f"sqlite:///{root}/flow.db", 0
        (root / "in").mkdir()

    def source(self, **more: Any) -> tg.FileSource:
        settings = {"format": tg.Json("n long, text string"), "settle": 0, "max_bytes_per_epoch": 100, **more}
        return tg.FileSource(f"{self.root}/in/*.jsonl", **settings)

    def owner(self, source: Any = None, name: str = "shop", table: bool = True) -> tuple[tg.Dataflow, tg.RowStream]:
        flow = tg.Dataflow(name, store=self.store, tick=0.02)
        stream = flow.source("orders", source or self.source())
        if table:
            flow.sink("all", stream, self.sink(flow, "all"))
        return flow, stream

    def follower(self, shared: Any, name: str = "billing") -> tuple[tg.Dataflow, tg.RowStream]:
        flow = tg.Dataflow(name, store=self.store, tick=0.02)
        return flow, flow.source("theirs", shared)

    def sink(self, flow: tg.Dataflow, name: str) -> tg.ParquetSink:
        return tg.ParquetSink(f"{self.root}/lake/{flow.name}/{name}")

    def add(self, count: int = 10, text: str = "t") -> None:
        with (self.root / "in" / "1.jsonl").open("a") as out:
            for n in range(self.count, self.count + count):
                out.write(json.dumps({"n": n, "text": text}) + "\n")
        self.count += count


def run(*flows: tg.Dataflow) -> None:
    for flow in flows:
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_flow_or_a_stream_names_the_source(place: Place) -> None:
    shop, orders = place.owner()
    assert tg.shared(shop, "orders") == tg.shared(orders)
    refused: list[Callable[[], object]] = [
        lambda: tg.shared(orders.filter("n > 1")),
        lambda: tg.shared(orders.errors),
        lambda: tg.shared(orders, "orders"),
        lambda: tg.shared(shop),
        lambda: tg.shared("shop"),  # type: ignore[arg-type]
    ]
    for wrong in refused:
        with pytest.raises(InvalidArgument):
            wrong()
    with pytest.raises(UnknownName, match="no source named 'ordres'"):
        tg.shared(shop, "ordres")


def test_a_source_that_pushes_cannot_be_shared(place: Place) -> None:
    shop = tg.Dataflow("shop", store=place.store)
    pushed = shop.source("pushed", tg.SocketSource("127.0.0.1", 1, columns="n long"))
    with pytest.raises(CannotShare, match="it pushes its records, so they come once"):
        tg.shared(pushed)


def test_only_sources_of_one_owner_are_beside_each_other(place: Place) -> None:
    _, orders = place.owner()
    _, others = place.owner(name="other")
    flow, _ = place.follower(tg.shared(orders))
    with pytest.raises(SharedBeside, match="it is one of flow 'other', and those are of flow 'shop'"):
        flow.source("more", tg.shared(others))
    with pytest.raises(SharedBeside, match="those are shared with flow 'shop', it is not"):
        flow.source("own", place.source())
    own = tg.Dataflow("mixed", store=place.store)
    own.source("own", place.source())
    with pytest.raises(SharedBeside, match="it is shared, and those are not"):
        own.source("theirs", tg.shared(orders))


def test_a_source_is_shared_within_one_store_and_with_another_flow(place: Place, monkeypatch: Any) -> None:
    shop, orders = place.owner()
    with pytest.raises(CannotShare, match="flow 'billing' has another store"):
        tg.Dataflow("billing", store=f"{place.store}2").source("theirs", tg.shared(orders))
    with pytest.raises(CannotShare, match="to be shared with its own flow"):
        shop.source("again", tg.shared(orders))
    monkeypatch.chdir(place.root)  # another spelling of the same file
    tg.Dataflow("billing", store="sqlite:///flow.db").source("theirs", tg.shared(orders))


def test_what_mints_epochs_is_the_owners_to_say(place: Place) -> None:
    _, orders = place.owner()
    flow = tg.Dataflow("billing", store=place.store)
    with pytest.raises(InvalidArgument, match="required cannot be True"):
        flow.source("theirs", tg.shared(orders), required=True)
    with pytest.raises(InvalidArgument, match="staging cannot be"):
        flow.source("theirs", tg.shared(orders), staging="somewhere")


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"format": tg.Csv("n long, text string")}, "format is"),
        ({"metadata": True}, "metadata is"),
        ({"max_bytes_per_epoch": 7}, "max_bytes_per_epoch is 7 here and 100 there"),
    ],
)
def test_a_follower_with_other_options_than_its_owner_ran_with_is_refused(
    place: Place, more: dict[str, Any], what: str
) -> None:
    place.add()
    shop, _ = place.owner()
    run(shop)
    _, changed = place.owner(place.source(**more))
    billing, theirs = place.follower(tg.shared(changed))
    billing.sink("all", theirs, place.sink(billing, "all"))
    with pytest.raises(OwnerDiffers, match=what):
        run(billing)


def test_an_owner_that_is_started_with_other_options_stops_its_follower(place: Place) -> None:
    place.add()
    shop, orders = place.owner()
    billing, theirs = place.follower(tg.shared(orders))
    billing.sink("all", theirs, place.sink(billing, "all"))
    run(shop)
    running = billing.start(engine="local")
    place.add()
    run(place.owner(place.source(max_bytes_per_epoch=50))[0])
    with pytest.raises(OwnerDiffers, match="max_bytes_per_epoch is 100 here and 50 there"):
        running.wait()


def test_columns_are_inferred_once_for_both(place: Place) -> None:
    (place.root / "in" / "1.jsonl").write_text('{"n": 1, "price": 2.5}\n')
    shop, orders = place.owner(place.source(format=tg.Json()))
    billing, theirs = place.follower(tg.shared(orders))
    billing.sink("all", theirs, place.sink(billing, "all"))
    run(shop, billing)
    assert contents(shop, "all") == contents(billing, "all")


def test_a_follower_can_be_started_before_its_owner_has_bound_anything(place: Place) -> None:
    shop, orders = place.owner(place.source(format=tg.Json()))
    billing, theirs = place.follower(tg.shared(orders))
    billing.sink("all", theirs, place.sink(billing, "all"))
    run(shop)
    with billing.start(engine="local"):
        (place.root / "in" / "1.jsonl").write_text('{"n": 1, "price": 2.5}\n')
        run(shop)
        tg.wait_until(billing, "all", "live", timeout=30)
        eventually(lambda: tg.status(billing).published == 1)
    assert contents(shop, "all") == contents(billing, "all")


def test_a_sealed_source_ends_its_followers_too(place: Place) -> None:
    shop, orders = place.owner(tg.GeneratorSource(1000, columns="n long"))
    billing, theirs = place.follower(tg.shared(orders))
    billing.sink("even", theirs.map_batches(even), place.sink(billing, "even"))
    shop.run(engine="local")
    assert billing.run(engine="local").why == "sealed"
    assert 0 < tg.read_arrow(billing, "even").num_rows < 1000
    assert [one.state for one in tg.status(billing).sources] == ["sealed"]


@pytest.mark.parametrize("declare", ["late", "start", "positions", "collapse", "from", "errors"])
def test_an_output_of_a_follower_is_what_it_would_be_in_the_owner(place: Place, declare: str) -> None:
    """The same options, declared at the same instant, give the same rows with the same epochs."""

    def more(flow: tg.Dataflow, stream: tg.RowStream) -> None:
        sink = place.sink(flow, "more")
        if declare == "late":
            flow.sink("more", stream.map_batches(even), sink)
        elif declare == "start":
            flow.sink("more", stream, sink, start=3)
        elif declare == "positions":
            flow.sink("more", stream, sink, start={key: 200})
        elif declare == "collapse":
            flow.sink("more", stream, sink, timestamps="collapse")
        elif declare == "from":
            flow.sink("more", stream, sink, start=tg.From("all"))
        else:
            flow.sink("more", stream.errors, sink)

    def flows(*, whole: bool) -> tuple[tg.Dataflow, tg.Dataflow]:
        shop, orders = place.owner()
        billing, theirs = place.follower(tg.shared(orders))
        billing.sink("all", theirs, place.sink(billing, "all"))
        if declare == "errors" or whole:
            more(shop, orders)
            more(billing, theirs)
        return shop, billing

    place.add(20)
    if declare == "errors":
        (place.root / "in" / "2.jsonl").write_text("nonsense\n")
    shop, billing = flows(whole=False)
    run(shop, billing)
    key = str(tg.bindings(shop)["partition"][0])
    place.add(20)
    shop, billing = flows(whole=True)
    run(shop, billing)
    place.add(5)
    run(shop, billing)
    for output in ("all", "more"):
        mine, theirs = (contents(flow, output) for flow in (billing, shop))
        if declare == "errors" and output == "more":
            mine, theirs = (
                [tuple(pair for pair in row if pair[0] != "source") for row in rows] for rows in (mine, theirs)
            )
        assert mine == theirs, output
    assert tg.read_arrow(billing, "more").num_rows
    assert tg.verify(billing).problems == ()


def test_a_record_that_does_not_parse_stops_a_follower_where_it_stops_its_owner(place: Place) -> None:
    place.add(3)
    (place.root / "in" / "2.jsonl").write_text("nonsense\n")
    shop, orders = place.owner()
    billing, theirs = place.follower(tg.shared(orders))
    billing.sink("all", theirs, place.sink(billing, "all"))
    found = []
    for flow in (shop, billing):
        with pytest.raises(tg.TidegaugeError) as raised:
            run(flow)
        found.append((raised.value.code, tg.status(flow).sources[0].state, tg.status(flow).published))
    assert found[0] == found[1]


def test_a_row_of_a_follower_leads_to_its_record_and_back(place: Place) -> None:
    place.add(12)
    shop, orders = place.owner(place.source(metadata=True))
    billing, theirs = place.follower(tg.shared(orders))
    billing.sink("all", theirs, place.sink(billing, "all"))
    run(shop, billing)
    row = tg.read_arrow(billing, "all").to_pylist()[7]
    both = (shop, "orders"), (billing, "theirs")
    for flow, source in both:
        assert tg.locate(flow, source, row["_partition"], row["_offset"]).epoch == row["_epoch"]
    pieces = [[(one.partition, one.lower, one.upper) for one in tg.explain(flow, 1).slices] for flow, _ in both]
    assert pieces[0] == pieces[1] != []
    assert tg.origin(billing, "all", row).epoch == row["_epoch"]
    scanned = [tg.scan_arrow(flow, source).read_all().to_pylist() for flow, source in both]
    assert scanned[0] == scanned[1]
    assert len(scanned[0]) == 12


def test_a_follower_can_be_followed(place: Place) -> None:
    """The owner then keeps for the last one what that lacks."""
    place.add(12)
    shop, orders = place.owner()
    billing, theirs = place.follower(tg.shared(orders))
    billing.sink("all", theirs, place.sink(billing, "all"))
    audit, last = place.follower(tg.shared(theirs), name="audit")
    audit.sink("all", last, place.sink(audit, "all"))
    run(shop, billing, audit)
    place.add(40)
    run(shop, billing)
    held = {one.owner: one.epoch for one in tg.status(shop).holds}
    assert held == {"flow billing": tg.status(audit).published - 1}
    assert tg.compact(shop, before=3).since == tg.status(audit).published - 1
    run(audit, billing, audit)
    assert contents(shop, "all") == contents(billing, "all") == contents(audit, "all")
    assert {one.epoch for one in tg.status(shop).holds} == {tg.status(audit).published - 1}


def test_a_flow_that_bound_its_sources_itself_cannot_follow(place: Place) -> None:
    place.add()
    shop, orders = place.owner()
    alone = tg.Dataflow("billing", store=place.store)
    alone.sink("all", alone.source("theirs", place.source()), place.sink(alone, "all"))
    run(shop, alone)
    billing, theirs = place.follower(tg.shared(orders))
    billing.sink("all", theirs, place.sink(billing, "all"))
    with pytest.raises(NotAFollower, match="it has bound 'theirs' by itself until now"):
        run(billing)


def test_a_follower_cannot_take_in_another_source_later(place: Place) -> None:
    """Its epochs so far would lack what the owner's have of it."""
    place.add()
    shop, orders = place.owner()
    more = shop.source("more", tg.GeneratorSource(5, columns="n long"))
    shop.sink("more", more, place.sink(shop, "more"))
    billing, theirs = place.follower(tg.shared(orders))
    billing.sink("all", theirs, place.sink(billing, "all"))
    run(shop, billing)
    billing.sink("more", billing.source("more", tg.shared(more)), place.sink(billing, "more"))
    with pytest.raises(NotAFollower, match="followed it without that source until now"):
        run(billing)


def test_a_flow_that_follows_no_more_goes_on_by_itself_and_holds_nothing(place: Place) -> None:
    place.add()
    shop, orders = place.owner()
    billing, theirs = place.follower(tg.shared(orders))
    billing.sink("all", theirs, place.sink(billing, "all"))
    run(shop, billing)
    alone = tg.Dataflow("billing", store=place.store)
    alone.sink("all", alone.source("theirs", place.source()), place.sink(alone, "all"))
    place.add()
    run(alone)
    assert numbers(alone, "all") == list(range(place.count))
    assert tg.status(shop).holds == ()


def test_a_tick_of_a_follower_follows_at_once(place: Place) -> None:
    place.add(1)
    shop, orders = place.owner()
    run(shop)
    billing = tg.Dataflow("billing", store=place.store, tick=tg.Manual())
    billing.sink("all", billing.source("theirs", tg.shared(orders)), place.sink(billing, "all"))
    with billing.start(engine="local"):
        assert billing.tick() is None
        place.add(1)
        run(shop)
        assert billing.tick() == 1


def test_a_failed_source_of_the_owner_is_said_of_the_follower(place: Place) -> None:
    place.add(10)
    shop, orders = place.owner()
    billing, theirs = place.follower(tg.shared(orders))
    billing.sink("all", theirs, place.sink(billing, "all"))
    run(shop, billing)
    (place.root / "in" / "1.jsonl").write_text("x" * 2000)  # it has been rewritten
    with pytest.raises(FileRewritten):
        run(shop)
    [found] = tg.status(billing).sources
    assert found.state == "idle"
    assert "it has failed there: " in found.note
    run(billing)


def test_the_owner_may_be_older_than_digests(place: Place) -> None:
    """Epochs of which no digest was kept can be told by what wrote them."""
    place.add(30)
    shop, orders = place.owner()
    billing, theirs = place.follower(tg.shared(orders))
    billing.sink("all", theirs, place.sink(billing, "all"))
    run(shop)
    store = Store.open(place.store, env=tg.Env())
    with store._database.writing() as connection:
        connection.exec_driver_sql("UPDATE timeline SET digest = NULL WHERE epoch < 2")
    store.close()
    run(billing)
    assert tg.read_arrow(billing, "all").num_rows == 30
    assert tg.status(billing).since == 2


@pytest.mark.long
def test_a_follower_is_simulated_like_any_flow(place: Place) -> None:
    def make() -> tg.Dataflow:
        _, orders = place.owner()
        billing, theirs = place.follower(tg.shared(orders))
        billing.sink("even", theirs.map_batches(even), place.sink(billing, "even"))
        return billing

    simulate(make, seeds=range(4))
