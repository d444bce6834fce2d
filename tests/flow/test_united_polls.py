"""Unions of sources that are polled: the rows of all, under the same epochs, and nothing asked for twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.flow.attended import live
from tests.flow.by_hand import World
from tests.sources.polls.polling import Pages

import tidegauge as tg
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.sources import RecordsLost
from tidegauge.sources.polls import poller


@dataclass
class Both(World):
    """A world with a function that is polled, a folder that is listed, and a union of both."""

    upstream: Pages = field(default_factory=Pages)
    outputs: tuple[str, ...] = ("orders",)


def flow_of(world: World) -> tg.Dataflow:
    assert isinstance(world, Both)
    flow = tg.Dataflow("shop", store=world.store, tick=0.3)
    staging = world.root / "staged"
    polled = flow.source("web", tg.PollingSource(world.upstream, columns="n long", staging=staging, every=1.0))
    path = str(world.root / "in" / "*.jsonl")
    given = {"format": tg.Json("n long, till int"), "staging": staging, "every": 1.0, "settle": 0}
    listed = flow.source("tills", tg.ListingSource(path, **given))  # type: ignore[arg-type]
    for name, stream in (("web", polled), ("tills", listed)):
        flow.sink(name, stream, tg.DeltaSink(str(world.root / "lake" / name)))
    both = flow.source("both", tg.union(polled, listed))
    for name in world.outputs:
        flow.sink(name, both, tg.DeltaSink(str(world.root / "lake" / name)))
    return flow


@pytest.fixture
def world(tmp_path: Path) -> Both:
    return Both(tmp_path, flow_of)


@pytest.fixture(autouse=True)
def looks_wait_for_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a look sees the end of a poll that it has begun."""
    monkeypatch.setattr(poller, "WAIT", 60)


def put(world: World, name: str, *numbers: int) -> None:
    folder = world.root / "in"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.jsonl").write_text("".join(f'{{"n": {n}, "till": 1}}\n' for n in numbers))


def rows_in(world: World, name: str) -> Counter[tuple[int, int]]:
    found = tg.read_arrow(world.make(world), name).to_pylist()
    return Counter((row["_epoch"], row["n"]) for row in found)


def gone_on(world: Both) -> None:
    run = world.start()
    run.catch_up()
    run.abandon()


def test_a_union_has_the_rows_that_polls_and_listings_have_together_at_every_epoch(world: Both) -> None:
    world.upstream.rows = [1, 2, 3, 4, 5]
    put(world, "a", 10, 11)
    gone_on(world)
    world.upstream.rows += [6]
    gone_on(world)
    put(world, "b", 12)
    gone_on(world)
    assert rows_in(world, "orders") == rows_in(world, "web") + rows_in(world, "tills")
    assert sorted(n for _, n in rows_in(world, "orders")) == [*range(1, 7), 10, 11, 12]
    asked = list(world.upstream.calls)
    world.outputs = ("orders", "late")
    tg.status(world.make(world))
    assert world.upstream.calls == asked, "looking asks nobody"
    gone_on(world)
    assert sorted(n for _, n in rows_in(world, "late")) == [*range(1, 7), 10, 11, 12]
    assert set(world.upstream.calls[len(asked) :]) == {6}


def test_an_unchanged_upstream_makes_no_epoch_of_a_union(world: Both) -> None:
    world.upstream.rows = [1]
    gone_on(world)
    before = tg.status(world.make(world)).upper
    for _ in range(3):
        gone_on(world)
    assert tg.status(world.make(world)).upper == before


@pytest.mark.long
def test_a_driver_that_dies_anywhere_leaves_each_row_of_a_union_once(tmp_path: Path) -> None:
    died, at = True, 0
    while died:
        world = Both(tmp_path / str(at), flow_of, upstream=Pages(size=2, rows=list(range(3))))
        world.root.mkdir()
        put(world, "a", 10)
        world.crash_at = at
        died = live(world, 4)
        if died:
            assert not live(world, 4)
        assert sorted(n for _, n in rows_in(world, "orders")) == [0, 1, 2, 10], world.points
        assert rows_in(world, "orders") == rows_in(world, "web") + rows_in(world, "tills")
        at += 1


def test_a_log_that_is_lost_fails_the_input_and_the_union_goes_on_with_its_next_life(world: Both) -> None:
    world.upstream.rows = [1, 2]
    gone_on(world)
    for path in (world.root / "staged" / "shop" / "web" / "0").iterdir():
        path.unlink()
    run = world.start()
    for _ in range(5):
        run.step(1.0)
    run.abandon()
    [web] = [one for one in tg.status(world.make(world)).sources if one.name == "web"]
    assert isinstance(web.error, UpstreamRecreated)
    tg.resume(world.make(world), "web", new_incarnation=True, env=world.env())
    world.upstream.rows = [3]
    gone_on(world)
    assert sorted(n for _, n in rows_in(world, "orders")) == [1, 2, 3]
    world.outputs = ("orders", "late")
    run = world.start()
    for _ in range(5):
        run.step(1.0)
    run.abandon()
    failed = {one.name: one.error for one in tg.status(world.make(world)).outputs if one.error}
    assert list(failed) == ["late"]
    assert isinstance(failed["late"], RecordsLost)
