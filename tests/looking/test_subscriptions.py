"""T68: following an output, from any epoch, with what happens to its table meanwhile."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.flow.badinput import beside, finish, lines, write
from tests.flow.by_hand import World
from tests.remap.store.asked import first_epochs, statements

import tidegauge as tg
from tidegauge.env import Env
from tidegauge.errors.command import NotPublished, OutputHasFailed
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.readers import (
    ChangesUnknown,
    CheckpointAhead,
    CheckpointOfAnother,
    KeyNotGiven,
    SubscribedFromNowhere,
)
from tidegauge.errors.sinks import EpochReplaced
from tidegauge.errors.store import EpochBelowSince
from tidegauge.looking.subscription import ChangeFeed, Subscriber

BY_ID: dict[str, Any] = {"envelope": "upsert", "key": "id", "order": "at", "deleted": "gone"}
LOCAL = tg.LocalEngine(threads=0)


class Shop:
    """A flow over one file that grows, epoch by epoch, with a table of each kind."""

    def __init__(self, root: Path, *, kinds: str = "all newest parted") -> None:
        self.root, self.kinds, self.at = root, kinds.split(), 0

    @property
    def flow(self) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{self.root}/shop.db", tick=0.02)
        columns = "id long, name string, gone boolean, at long"
        users = flow.source("users", tg.FileSource(f"{self.root}/users.jsonl", format=tg.Json(columns)))
        lake = f"{self.root}/lake"
        sinks: dict[str, Any] = {
            "all": tg.DeltaSink(f"{lake}/all"),
            "newest": tg.DeltaSink(f"{lake}/newest", **BY_ID),
            "parted": tg.ParquetSink(f"{lake}/parted", partition_by="name"),
            "beside": tg.ParquetSink(f"{lake}/beside"),
        }
        for kind in self.kinds:
            flow.sink(kind, users, sinks[kind])
        return flow

    def run(self, *rows: tuple[int, str | None]) -> None:
        """Add rows as an epoch of their own; one without a name takes its key away."""
        with (self.root / "users.jsonl").open("a") as file:
            for key, name in rows:
                self.at += 1
                file.write(json.dumps({"id": key, "name": name, "gone": name is None, "at": self.at}) + "\n")
        self.flow.run("caught-up", engine=LOCAL)


def table(rows: pa.Table) -> Counter[str]:
    """The rows without their epochs."""
    return Counter(json.dumps({k: v for k, v in row.items() if k != "_epoch"}) for row in rows.to_pylist())


def added_up(subscription: Subscriber, *, into: Counter[str] | None = None) -> Counter[str]:
    """What a subscriber's rows add up to; every epoch comes whole and in order, and no row twice in it."""
    total, seen, newest = Counter(into or {}), set[str](), -1
    for batch in subscription:
        for row in batch.to_pylist():
            assert row["_epoch"] >= newest
            newest = row["_epoch"]
            if row.pop("_progressed", False):
                continue
            diff = row.pop("_diff")
            said = json.dumps(row)
            assert diff != 0
            assert said not in seen
            seen.add(said)
            row.pop("_epoch")
            total[json.dumps(row)] += diff
    assert min(total.values(), default=0) >= 0
    return +total


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.run((1, "ada"), (2, "bob"), (2, "bob"))
    shop.run((1, "ada!"), (3, "eve"))
    shop.run((2, None), (3, "eve"))
    return shop


@pytest.mark.parametrize("output", ["all", "newest", "parted"])
def test_t68_a_snapshot_and_what_comes_after_it_are_the_table(shop: Shop, output: str) -> None:
    for as_of in range(3):
        for up_to in range(as_of + 1, 4):
            found = added_up(shop.flow.subscribe(output, as_of=as_of, up_to=up_to))
            assert found == table(tg.read_arrow(shop.flow, output, as_of=up_to - 1))
            before = table(tg.read_arrow(shop.flow, output, as_of=as_of))
            later = shop.flow.subscribe(output, as_of=as_of, up_to=up_to, snapshot=False)
            assert added_up(later, into=before) == found


def test_t68_as_of_is_inclusive_and_up_to_is_not(shop: Shop) -> None:
    flow = shop.flow
    epochs = [n for batch in flow.subscribe("all", as_of=1, up_to=3) for n in batch["_epoch"].to_pylist()]
    assert sorted(set(epochs)) == [1, 2]
    after = [n for b in flow.subscribe("all", as_of=1, up_to=3, snapshot=False) for n in b["_epoch"].to_pylist()]
    assert set(after) == {2}


def test_t68_from_an_epoch_up_to_itself_there_are_no_rows(shop: Shop) -> None:
    assert list(shop.flow.subscribe("all", as_of=1, up_to=1)) == []
    [said] = shop.flow.subscribe("all", as_of=1, up_to=1, progress=True)
    assert (said["_epoch"].to_pylist(), said["_progressed"].to_pylist()) == ([1], [True])
    with pytest.raises(SubscribedFromNowhere):
        shop.flow.subscribe("all", as_of=1, up_to=0)


def test_t68_the_first_that_comes_is_the_progress_and_the_last_is_up_to(shop: Shop) -> None:
    batches = list(shop.flow.subscribe("newest", as_of=0, up_to=3, progress=True))
    said = [row["_epoch"] for batch in batches for row in batch.to_pylist() if row["_progressed"]]
    assert (said[0], said[-1]) == (0, 3)
    assert batches[0]["_progressed"].to_pylist() == [True]
    assert pa.Table.from_batches(batches).num_rows > len(said)  # they have the same columns
    reached = 0
    for batch in batches:
        for row in batch.to_pylist():
            assert row["_epoch"] >= reached
            reached = row["_epoch"] if row["_progressed"] else reached


@pytest.mark.parametrize("output", ["all", "newest"])
def test_who_stops_goes_on_after_the_last_progress(shop: Shop, output: str) -> None:
    total, progress = Counter[str](), 0
    for batch in shop.flow.subscribe(output, as_of=0, progress=True):
        for row in batch.to_pylist():
            if row["_progressed"]:
                progress = row["_epoch"]
            else:
                total[json.dumps({k: v for k, v in row.items() if not k.startswith("_")})] += row["_diff"]
        if progress == 1:
            break
    again = shop.flow.subscribe(output, as_of=progress - 1, snapshot=False, up_to=3)
    assert added_up(again, into=total) == table(tg.read_arrow(shop.flow, output, as_of=2))


@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
def test_an_envelope_says_what_became_of_each_key(shop: Shop, envelope: Any) -> None:
    rows: dict[int, Any] = {}
    for batch in shop.flow.subscribe("newest", as_of=0, up_to=3, envelope=envelope, key="id"):
        for row in batch.to_pylist():
            value = row["_after"] if envelope == "debezium" else row
            if envelope == "debezium":
                assert (row["_before"] or {}).get("name") == rows.get(row["id"])
            if row["_state"] == "delete":
                del rows[row["id"]]
            else:
                rows[row["id"]] = value["name"]
    assert rows == {1: "ada!", 3: "eve"}


def test_t68_one_reader_serves_a_hundred_subscribers(shop: Shop) -> None:
    flow = shop.flow
    with ThreadPoolExecutor(20) as pool:
        subscriptions = [flow.subscribe("newest", as_of=0, up_to=3) for _ in range(100)]
        found = list(pool.map(added_up, subscriptions))
    assert all(one == table(tg.read_arrow(flow, "newest")) for one in found)
    assert {one.feed for one in subscriptions} == {subscriptions[0].feed}
    assert subscriptions[0].feed.reads == 2  # the snapshot, and what came after it


def test_t68_an_epoch_costs_the_same_however_many_came_before_it(shop: Shop) -> None:
    following = shop.flow.subscribe("all", as_of=0, progress=True)
    assert reached(following, 3)
    for epoch in range(3, 6):
        shop.run((epoch, "ada"))
        with statements() as said:
            assert reached(following, epoch + 1)
        assert first_epochs(said) == [epoch]  # seen to be there, and read, by one look


def reached(following: Subscriber, upper: int) -> bool:
    """Go on until nothing below an epoch is coming any more."""
    said = (row["_epoch"] for batch in following for row in batch.to_pylist() if row["_progressed"])
    return upper in said


def test_t68_a_hundred_that_wait_look_no_more_often_than_one(shop: Shop) -> None:
    time, pauses = 0.0, list[float]()
    feed = ChangeFeed(shop.flow.spec, "all", env=Env(monotonic=lambda: time))
    with statements() as said:
        for _ in range(6):
            pauses += {feed.standing()[1] for _ in range(100)}
            time += pauses[-1]
    assert pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.2, 0.2])
    assert len([text for text, _ in said if text.startswith("SELECT store_layout.version")]) == 6


def test_it_waits_for_what_is_published_later_and_ends_when_it_is_closed(shop: Shop) -> None:
    flow = shop.flow
    with ThreadPoolExecutor(2) as pool, flow.subscribe("all", as_of=3, up_to=5) as first:
        with flow.subscribe("all") as second:
            begun = next(second)
            ahead, more = pool.submit(added_up, first), pool.submit(list, second)
            shop.run((7, "gil"))
            shop.run((8, "hal"))
            assert ahead.result(60) == table(tg.read_arrow(flow, "all", as_of=4))
        rows = [row for batch in (begun, *more.result(60)) for row in batch.to_pylist()]
    assert sum(row["_diff"] for row in rows) in (7, 8, 9)  # as far as it came before it was closed


@pytest.fixture
def put_back(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], object]:
    """Keep a copy of all there is of three epochs, and return what puts it back."""
    copy = tmp_path_factory.mktemp("backup") / "shop"
    shutil.copytree(shop.root, copy)

    def back() -> None:
        shutil.rmtree(shop.root)
        shutil.copytree(copy, shop.root)

    return back


@pytest.mark.parametrize("begins", [{"as_of": 0}, {"as_of": 3, "snapshot": False}], ids=["rows", "progress"])
def test_who_has_rows_of_a_history_that_was_put_back_gets_none_of_the_next_one(
    shop: Shop, put_back: Callable[[], object], begins: dict[str, Any]
) -> None:
    shop.run((4, "gil"))
    shop.run((5, "hal"))
    with shop.flow.subscribe("all", progress=True, **begins) as following:
        assert reached(following, 5)
        put_back()
        shop.run((6, "ivy"))
        shop.run((7, "jim"))
        shop.run((8, "kim"))  # behind what it has
        with pytest.raises(CheckpointOfAnother, match="another history"):
            reached(following, 6)


def test_who_waits_is_told_of_a_store_that_knows_less_than_it_has(shop: Shop, put_back: Callable[[], object]) -> None:
    shop.run((4, "gil"))
    flow = shop.flow
    with flow.subscribe("all", as_of=3, progress=True) as following:
        assert reached(following, 4)
        put_back()
        with pytest.raises(CheckpointAhead, match="below 3"):
            next(following)
    shop.run((5, "hanna"))  # what somebody had of the epoch before is not kept for others
    assert added_up(flow.subscribe("all", as_of=3, up_to=4)) == table(tg.read_arrow(flow, "all"))


def test_a_flow_that_has_not_run_is_waited_for(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    with ThreadPoolExecutor(1) as pool, shop.flow.subscribe("all", up_to=1) as following:
        found = pool.submit(added_up, following)
        shop.run((1, "ada"))
        assert found.result(60) == Counter([json.dumps({"id": 1, "name": "ada", "gone": False, "at": 1})])


def test_it_ends_with_its_source(tmp_path: Path) -> None:
    flow = tg.Dataflow("ids", store=f"sqlite:///{tmp_path}/ids.db")
    ids = flow.source("ids", tg.GeneratorSource(5, columns="id long", max_records_per_epoch=2))
    flow.sink("ids", ids, tg.ParquetSink(f"{tmp_path}/ids"))
    flow.run("caught-up", engine=LOCAL)
    assert sum(batch.num_rows for batch in flow.subscribe("ids", as_of=0)) == 5


def test_an_output_that_has_failed_gives_what_it_has_and_says_why(tmp_path: Path) -> None:
    def picky(batch: Any) -> Any:
        if 2 in batch["n"].to_pylist():
            raise ValueError("two")
        return batch

    world = World(tmp_path, beside(picky))
    write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    write(tmp_path / "a" / "1.jsonl", lines(2))
    finish(world)
    following = world.make(world).subscribe("picky", as_of=0)
    assert [row["n"] for row in next(following).to_pylist()] == [1]
    with pytest.raises(OutputHasFailed, match="two"):
        next(following)


def test_what_cannot_be_followed_is_refused(shop: Shop) -> None:
    flow = shop.flow
    with pytest.raises(UnknownName):
        flow.subscribe("none")
    wrong: list[dict[str, Any]] = [{"up_to": -1}, {"up_to": "3"}, {"up_to": True}, {"envelope": "cdc"}, {"key": "id"}]
    for options in (*wrong, {"as_of": -1}):
        with pytest.raises(InvalidArgument):
            flow.subscribe("all", **options)
    with pytest.raises(KeyNotGiven):
        flow.subscribe("all", envelope="upsert")
    with pytest.raises(KeyNotGiven, match="'nom'"):
        next(flow.subscribe("all", envelope="upsert", key="nom"))
    with pytest.raises(NotPublished):
        next(flow.subscribe("all", as_of="2001-01-01"))
    with pytest.raises(SubscribedFromNowhere):
        next(flow.subscribe("all", up_to=1))
    tg.compact(flow, before=2)
    with pytest.raises(EpochBelowSince):
        next(flow.subscribe("all", as_of=0))


def test_epochs_that_share_a_commit_of_a_table_by_key_come_as_one(tmp_path: Path) -> None:
    flow = tg.Dataflow("gathered", store=f"sqlite:///{tmp_path}/gathered.db", tick=tg.Manual())
    names = flow.source("names", tg.FileSource(f"{tmp_path}/names.jsonl", format=tg.Json("id long, at long")))
    flow.sink(
        "newest", names, tg.DeltaSink(f"{tmp_path}/newest", envelope="upsert", key="id", order="at"), commit_every=3
    )
    with flow.start(engine=LOCAL):
        for at in range(6):
            with (tmp_path / "names.jsonl").open("a") as file:
                file.write(json.dumps({"id": at % 2, "at": at}) + "\n")
            flow.tick()
            if at % 3 == 2:
                flow.wait_for("now", timeout=60)
    whole = pa.Table.from_batches(flow.subscribe("newest", as_of=2, up_to=6)).to_pylist()
    assert sorted((row["_epoch"], row["_diff"], row["at"]) for row in whole) == [
        (2, 1, 1), (2, 1, 2), (5, -1, 1), (5, -1, 2), (5, 1, 4), (5, 1, 5)
    ]  # fmt: skip
    with pytest.raises(EpochReplaced):
        next(flow.subscribe("newest", as_of=1))
    with pytest.raises(ChangesUnknown):
        list(flow.subscribe("newest", as_of=2, up_to=5))


CHANGES = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["a", "b", None])), min_size=1, max_size=3)


@deep(24)
@given(
    epochs=st.lists(st.tuples(CHANGES, st.booleans()), min_size=1, max_size=5),
    kind=st.sampled_from(["all", "newest", "parted"]),
    begin=st.integers(0, 4),
    snapshot=st.booleans(),
    data=st.data(),
)
def test_t68_whatever_changes_and_is_maintained_what_comes_adds_up_to_the_table(
    tmp_path_factory: pytest.TempPathFactory,
    epochs: list[tuple[list[tuple[int, str | None]], bool]],
    kind: str,
    begin: int,
    snapshot: bool,
    data: st.DataObject,
) -> None:
    shop = Shop(tmp_path_factory.mktemp("shop"), kinds=kind)
    as_of = min(begin, len(epochs) - 1)
    total = Counter[str]()
    following: Subscriber | None = None
    for epoch, (rows, maintain) in enumerate(epochs):
        shop.run(*rows)
        if maintain:
            tg.maintain(shop.flow)
        if epoch >= as_of and (following is None or data.draw(st.booleans(), label="begin anew")):
            up_to = epoch + 1
            again = shop.flow.subscribe(kind, as_of=as_of, up_to=up_to, snapshot=snapshot and following is None)
            if following is None and not snapshot:
                total = table(tg.read_arrow(shop.flow, kind, as_of=as_of))
            total, following, as_of = added_up(again, into=total), again, epoch
            assert total == table(tg.read_arrow(shop.flow, kind, as_of=epoch))
