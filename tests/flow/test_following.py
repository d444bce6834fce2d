"""What becomes of a follower when its owner is away, goes back, is another one, or has lost something."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from tests.flow.by_hand import Clock, World
from tests.flow.shared import Pair, contents, numbers
from tests.flow.upstream import Topic

import tidegauge as tg
from tidegauge.errors.following import (
    FollowedDiffers,
    OwnerCompacted,
    OwnerLacksSource,
    OwnerNotThere,
    OwnerRecreated,
    OwnerWentBack,
)
from tidegauge.errors.outputs import OutputBelowIncarnation
from tidegauge.errors.running import NothingToResume


def once(world: World) -> None:
    """A life that catches up."""
    run = world.start()
    run.catch_up()
    run.abandon()


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_an_owner_that_never_ran_is_said_to_be_missing(pair: Pair) -> None:
    with pytest.raises(OwnerNotThere, match="follows flow 'shop', which has not run in the store"):
        pair.b.start()


def test_a_source_that_the_owner_never_had_is_said_to_be_missing(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/flow.db"
    old, new, late = (tg.Dataflow(name, store=store) for name in ("shop", "shop", "late"))
    old.sink("x", old.source("x", tg.GeneratorSource(5, columns="n long")), tg.ParquetSink(f"{tmp_path}/x"))
    old.run("caught-up", engine="local")
    late.sink(
        "y",
        late.source("y", tg.shared(new.source("y", tg.GeneratorSource(5, columns="n long")))),
        tg.ParquetSink(f"{tmp_path}/y"),
    )
    with pytest.raises(OwnerLacksSource, match="shares source 'y' of flow 'shop', which has run without it"):
        late.run("caught-up", engine="local")


def test_a_follower_reads_what_is_bound_although_the_owner_does_not_run(pair: Pair) -> None:
    pair.add("x", 20)
    once(pair.a)
    once(pair.b)
    pair.agree()
    [x, _y] = tg.status(pair.flows()[1]).sources
    assert (x.state, x.note) == ("idle", "shared with flow 'shop', which does not run")


def test_an_epoch_is_followed_before_the_owner_publishes_it(pair: Pair) -> None:
    """A binding never changes; a table of the owner's that is slow keeps nobody waiting."""
    pair.add("x")
    run = pair.a.start()
    pair.a.faults.extend([True] * 6)  # its disk is full
    run.step()
    run.step()
    assert pair.a.loaded().flow.upper == 1
    assert pair.a.loaded().flow.published == 0
    once(pair.b)
    assert numbers(pair.flows()[1], "x") == [0]
    run.abandon()


def test_an_epoch_in_which_no_shared_source_moved_is_an_epoch_here_too(tmp_path: Path) -> None:
    def more(flow: tg.Dataflow, _streams: dict[str, tg.RowStream]) -> None:
        if flow.name == "shop":
            own = flow.source("own", tg.FileSource(f"{tmp_path}/own/*", format=tg.Json("n long"), settle=0))
            flow.sink("own", own, tg.ParquetSink(f"{tmp_path}/lake/own"))

    pair = Pair(tmp_path, more=more)
    (tmp_path / "own").mkdir()
    pair.add("x")
    once(pair.a)
    for n in range(3):
        (tmp_path / "own" / f"{n}.jsonl").write_text(f'{{"n": {n}}}\n')
        once(pair.a)
    pair.add("y")
    once(pair.a)
    once(pair.b)
    shop, billing = pair.flows()
    for flow in (shop, billing):
        assert [row["_epoch"] for row in tg.read_arrow(flow, "y").to_pylist()] == [4]
    assert [one.minted_at for one, _ in tg.epochs(shop)] == [one.minted_at for one, _ in tg.epochs(billing)]


def test_the_same_instant_is_the_same_epoch(pair: Pair) -> None:
    pair.add("x")
    once(pair.a)
    between = pair.a.clock.now()
    pair.a.clock.seconds += 60
    pair.add("x")
    once(pair.a)
    pair.a.clock.seconds += 600  # the follower is late
    once(pair.b)
    shop, billing = pair.flows()
    assert contents_at(shop, between) == contents_at(billing, between) == [0]


def contents_at(flow: tg.Dataflow, when: object) -> list[int]:
    return sorted(tg.read_arrow(flow, "x", as_of=when).column("n").to_pylist())  # type: ignore[arg-type]


def test_the_owner_compacts_no_further_than_a_follower_has_come(pair: Pair) -> None:
    pair.add("x")
    once(pair.a)
    once(pair.b)
    for _ in range(4):
        pair.add("x")
        once(pair.a)
    shop, _ = pair.flows()
    kept = tg.compact(shop, before=4)
    assert (kept.since, kept.kept) == (0, "'flow billing' holds epoch 0")
    once(pair.b)
    assert tg.compact(shop, before=3).since == 3
    once(pair.b)
    pair.agree()


def test_an_owner_that_runs_hears_of_a_new_follower_before_it_acknowledges_again(pair: Pair) -> None:
    pair.add()
    owner = pair.a.start()
    owner.catch_up()
    follower = pair.b.start()  # it begins to hold
    follower.catch_up()
    follower.abandon()
    for _ in range(3):
        pair.add()
        owner.catch_up()  # `Pair.witness` looks at each acknowledgement
    owner.abandon()
    assert pair.a.loaded().flow.published == 4
    pair.settle()
    pair.agree()


def test_a_follower_that_is_gone_for_good_is_released_like_any_other(pair: Pair) -> None:
    pair.add("x")
    once(pair.a)
    once(pair.b)
    for _ in range(4):
        pair.add("x")
        once(pair.a)
    shop, _ = pair.flows()
    tg.release(shop, "flow billing")
    assert tg.compact(shop, before=3).since == 3
    with pytest.raises(OwnerCompacted, match="epochs before 3, and flow 'billing' has followed it up to epoch 0"):
        pair.b.start()


def test_a_follower_of_a_compacted_owner_begins_with_what_is_left(pair: Pair) -> None:
    for _ in range(6):
        pair.add("x")
        pair.add("y")
        once(pair.a)
    shop, billing = pair.flows()
    tg.compact(shop, before=4)
    once(pair.b)
    assert pair.b.loaded().flow.since == 4
    assert [(row["n"], row["_epoch"]) for row in tg.read_arrow(billing, "x").sort_by("n").to_pylist()] == [
        *((n, 4) for n in (0, 2, 4, 6, 8)),
        (10, 5),
    ]
    pair.add("x", 3)
    once(pair.a)
    once(pair.b)
    assert contents(billing, "x", 6)[-3:] == contents(shop, "x", 6)[-3:]
    assert tg.verify(billing).problems == ()


def test_what_was_bound_once_and_otherwise_later_is_refused_with_the_numbers(pair: Pair) -> None:
    pair.add("x", 2)
    once(pair.a)
    pair.add("x", 2)
    once(pair.a)
    once(pair.b)
    # Somebody puts back the owner's rows alone, and it binds other records for epoch 1.
    take_back(pair, "shop", 1)
    for file in (pair.root / "lake" / "shop").iterdir():
        shutil.rmtree(file)
    pair.add("x", 3)
    once(pair.a)
    before = pair.b.loaded().flow.upper
    with pytest.raises(FollowedDiffers, match=r"epoch 1 of flow 'shop' is not what .* has followed: 'my_x'"):
        pair.b.start()
    assert pair.b.loaded().flow.upper == before


def test_an_owner_that_went_back_is_refused(pair: Pair) -> None:
    for _ in range(3):
        pair.add("x", 2)
        once(pair.a)
    once(pair.b)
    take_back(pair, "shop", 1)
    with pytest.raises(OwnerWentBack, match="flow 'shop' has bound 1 epochs, and flow 'billing' has followed 3"):
        pair.b.start()


def test_a_recreated_owner_is_named_and_refused(pair: Pair) -> None:
    pair.add("x", 2)
    once(pair.a)
    once(pair.b)
    store = sqlite3.connect(pair.root / "flow.db")
    with store:
        store.execute("UPDATE flows SET incarnation = ? WHERE name = 'shop'", (32 * "e",))
    store.close()
    with pytest.raises(OwnerRecreated, match="and the one in the store is eeeeeeee"):
        pair.b.start()


def take_back(pair: Pair, flow: str, upper: int) -> None:
    """Remove the epochs of a flow from the store, as a restored copy of its rows would."""
    pair.tampered = True
    store = sqlite3.connect(pair.root / "flow.db")
    mine = f"(SELECT s.id FROM sources s JOIN flows f ON f.id = s.flow_id WHERE f.name = '{flow}')"
    with store:
        store.execute(f"DELETE FROM changes WHERE source_id IN {mine} AND epoch >= {upper}")
        store.execute(
            f"DELETE FROM timeline WHERE epoch >= {upper} AND flow_id = (SELECT id FROM flows WHERE name = '{flow}')"
        )
        store.execute(f"UPDATE flows SET upper = {upper}, published = min(published, {upper}) WHERE name = '{flow}'")
        store.execute(f"UPDATE outputs SET held = NULL WHERE flow_id = (SELECT id FROM flows WHERE name = '{flow}')")
    store.close()


def test_both_come_back_from_their_tables_when_the_store_is_lost(pair: Pair) -> None:
    for _ in range(3):
        pair.add("x", 2)
        once(pair.a)
        once(pair.b)
    for file in pair.root.glob("flow.db*"):
        file.unlink()
    shop, billing = pair.flows()
    tg.recover(shop)
    tg.recover(billing)
    pair.add("x", 2)
    once(pair.a)
    once(pair.b)
    pair.agree()
    assert numbers(pair.flows()[1], "x") == list(range(pair.written))


def test_a_recovered_follower_that_knows_more_than_its_owner_is_refused(pair: Pair) -> None:
    pair.add("x", 2)
    once(pair.a)
    keep = pair.root / "keep"
    shutil.copytree(pair.root / "lake" / "shop", keep)
    pair.add("x", 2)
    once(pair.a)
    once(pair.b)
    for file in pair.root.glob("flow.db*"):
        file.unlink()
    shutil.rmtree(pair.root / "lake" / "shop")
    shutil.copytree(keep, pair.root / "lake" / "shop")
    shop, billing = pair.flows()
    tg.recover(shop)
    tg.recover(billing)
    with pytest.raises(OwnerWentBack):
        pair.b.start()


def test_a_hold_comes_back_with_a_recovered_follower(pair: Pair) -> None:
    """The owner would tell upstream to forget what the follower lacks."""
    pair.add("x", 2)
    once(pair.a)
    once(pair.b)
    for file in pair.root.glob("flow.db*"):
        file.unlink()
    for flow in pair.flows():
        tg.recover(flow)
    [held] = tg.status(pair.flows()[0]).holds
    assert (held.owner, held.epoch) == ("flow billing", 0)


@dataclass
class Topics:
    """An owner of one topic, and its follower, in one world."""

    root: Path
    outputs: tuple[str, ...] = ("t",)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.topic = Topic(self.root / "topic")
        self.topic.create("first")
        self.a = World(self.root, lambda _world: self.flows()[0], clock=self.clock)
        self.b = World(self.root, lambda _world: self.flows()[1], clock=self.clock, _unique=count(1 << 20))

    def flows(self) -> tuple[tg.Dataflow, tg.Dataflow]:
        shop, billing = (tg.Dataflow(name, store=self.a.store) for name in ("shop", "billing"))
        stream = shop.source("t", self.topic)
        shop.sink("t", stream, tg.ParquetSink(f"{self.root}/shop"))
        theirs = billing.source("t", tg.shared(stream))
        for name in self.outputs:
            billing.sink(name, theirs, tg.ParquetSink(f"{self.root}/billing-{name}"))
        return shop, billing

    def recreate(self) -> None:
        """Make the topic anew, have the owner fail by it, and go on with the new one."""
        self.topic.create("second")
        self.topic.write("p", 100, 101)
        run = self.a.start()
        run.step()
        run.step()
        assert run.runner.board.sources["t"].state == "failed"
        run.abandon()
        tg.resume(self.flows()[0], "t", new_incarnation=True, accept_loss=True, env=self.a.env())


def test_a_recreated_upstream_that_the_owner_goes_on_with_is_followed(tmp_path: Path) -> None:
    world = Topics(tmp_path)
    world.topic.write("p", 1, 2, 3)
    once(world.a)
    once(world.b)
    running = world.b.start()  # it sees it while it runs
    world.recreate()
    once(world.a)
    running.catch_up()
    running.abandon()
    world.topic.write("p", 102)
    once(world.a)
    once(world.b)
    shop, billing = world.flows()
    assert contents(shop, "t") == contents(billing, "t")
    assert numbers(billing, "t") == [1, 2, 3, 100, 101, 102]
    assert [source.incarnation for source in tg.status(billing).sources] == [1]


def test_a_follower_that_lacks_records_of_a_recreated_upstream_says_so(tmp_path: Path) -> None:
    world = Topics(tmp_path)
    world.topic.write("p", 1)
    once(world.a)
    once(world.b)
    world.topic.write("p", 2)
    once(world.a)
    world.recreate()
    once(world.a)
    with pytest.raises(OutputBelowIncarnation, match="output 't' lacks 1 positions of source 't'"):
        once(world.b)
    _, billing = world.flows()
    tg.resume(billing, "t", new_incarnation=True, accept_loss=True, env=world.b.env())
    once(world.b)
    assert numbers(billing, "t") == [1, 100, 101]


def test_a_new_incarnation_is_begun_by_the_owner_alone(tmp_path: Path) -> None:
    world = Topics(tmp_path)
    world.topic.write("p", 1, 2)
    run = world.a.start()
    run.catch_up()
    world.topic.create("second")
    run.abandon()
    follower = world.b.start()
    follower.step()
    follower.step()
    assert follower.runner.board.sources["t"].state == "failed"
    follower.abandon()
    with pytest.raises(NothingToResume, match="its epochs are those of flow 'shop', where it is resumed"):
        tg.resume(world.flows()[1], "t", new_incarnation=True, accept_loss=True, env=world.b.env())


def test_what_the_owner_skips_is_skipped_here(tmp_path: Path) -> None:
    world = Topics(tmp_path, outputs=())
    world.topic.write("p", 1, 2, 3)
    once(world.a)
    shop, _ = world.flows()
    tg.skip(shop, "t", "p", 1, 2, env=world.a.env())
    world.outputs = ("t",)
    once(world.b)
    assert numbers(world.flows()[1], "t") == [1, 3]
    assert [source.lost for source in tg.status(world.flows()[1]).sources] == [1]
