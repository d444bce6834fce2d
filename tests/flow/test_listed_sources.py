"""Flows over listings: every file once, whenever a driver dies; bad and lost files are told."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.flow.attended import live, numbers
from tests.flow.by_hand import Crash, World
from tests.sources.listings.listing import put

import tidegauge as tg
from tidegauge.errors.listings import ListedFileGone
from tidegauge.sources.listings import lister
from tidegauge.sources.polls import poller


@dataclass
class Listed(World):
    """A world with a folder that is listed each second."""

    given: dict[str, Any] = field(default_factory=dict)


def flow_of(world: World, *outputs: str, tick: Any = 0.3) -> tg.Dataflow:
    assert isinstance(world, Listed)
    flow = tg.Dataflow("shop", store=world.store, tick=tick)
    given = {"format": tg.Json("n long"), "staging": world.root / "listings", "every": 1.0, **world.given}
    orders = flow.source("orders", tg.ListingSource(str(world.root / "in/*"), **given))
    for name in ("orders", *outputs):
        flow.sink(name, orders, tg.DeltaSink(str(world.root / "lake" / name)))
    flow.sink("bad", orders.errors, tg.DeltaSink(str(world.root / "lake/bad")))
    return flow


@pytest.fixture
def world(tmp_path: Path) -> Listed:
    return Listed(tmp_path, flow_of)


@pytest.fixture(autouse=True)
def looks_wait_for_listings(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a look sees the end of a listing that it has begun."""
    monkeypatch.setattr(poller, "WAIT", 60)


def test_f6_a_driver_that_dies_anywhere_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lister, "FILES", 2)
    died, at = True, 0
    struck: set[str] = set()
    while died:
        world = Listed(tmp_path / str(at), flow_of)
        for n in range(3):
            put(world.root / f"in/{n}.jsonl", n)
        packed = world.root / "in/3.jsonl.gz"
        packed.write_bytes(gzip.compress(put(packed, 3, 4).read_bytes()))
        os.utime(packed, (0, 0))
        world.crash_at = at
        died = live(world, 5)
        struck |= {world.points[-1]} if died else set()
        if died:
            put(world.root / "in/1-later.jsonl", 5)
            assert not live(world, 6)
        assert numbers(world) == [0, 1, 2, 3, 4, 5][: 6 if died else 5]
        at += 1
    assert {"before stage poll", "after stage poll", "before append bindings", "after publish"} <= struck


def test_an_unchanged_listing_makes_no_epoch_and_writes_nothing_to_the_store(world: Listed) -> None:
    put(world.root / "in/a.jsonl", 1)
    run = world.start()
    run.catch_up()
    before = len(world.points)
    for _ in range(20):
        run.step(1.0)
    assert world.points[before:] == []
    assert world.loaded().flow.upper == 1
    run.abandon()


def lose(world: Listed) -> None:
    """Have three files bound, of which one is then deleted."""
    for n in range(3):
        put(world.root / f"in/{n}.jsonl", n)
    world.strike = "after append bindings"
    with pytest.raises(Crash):
        world.start().catch_up()
    world.clock.seconds += 60
    (world.root / "in/1.jsonl").unlink()


def test_f4_a_file_that_is_gone_stops_the_source_and_skipping_it_lets_the_others_be_read(world: Listed) -> None:
    lose(world)
    run = world.start()
    for _ in range(20):
        run.step(1.0)
    run.abandon()
    [source] = tg.status(world.make(world), env=world.env()).sources
    assert (source.state, numbers(world)) == ("failed", [])
    assert source.error is not None
    assert "1.jsonl is gone: it is file 1" in source.error.summary
    assert "skip FLOW orders polls 1 2" in source.error.next_step
    world.clock.seconds += 60
    tg.skip(world.make(world), "orders", "polls", 1, 2, env=world.env())
    world.clock.seconds += 60
    run = world.start()
    run.catch_up()
    run.abandon()
    assert numbers(world) == [0, 2]
    assert [(gap.lower, gap.upper) for gap in world.loaded().gaps] == [(1, 2)]


def test_f4_a_file_that_is_gone_is_a_row_of_gaps_by_choice(world: Listed) -> None:
    world.given["on_data_loss"] = "gap"
    lose(world)
    run = world.start()
    run.catch_up()
    run.abandon()
    assert numbers(world) == [0, 2]
    assert [(gap.lower, gap.upper, gap.code) for gap in world.loaded().gaps] == [(1, 2, ListedFileGone.code)]


def test_a_bad_file_is_in_the_errors_with_its_name_and_late_outputs_have_the_same(world: Listed) -> None:
    put(world.root / "in/a.jsonl", 1)
    put(world.root / "in/b.jsonl.gz", text="no gzip")
    put(world.root / "in/c.jsonl", 3)
    run = world.start()
    run.catch_up()
    run.abandon()
    assert numbers(world) == [1, 3]
    [bad] = tg.read_arrow(world.make(world), "bad").to_pylist()
    assert (bad["source"], bad["partition"], bad["position"]) == ("orders", "polls", 1)
    assert "b.jsonl.gz" in bad["message"]
    world.make = lambda world: flow_of(world, "late")
    put(world.root / "in/d.jsonl", 4)
    run = world.start()
    for _ in range(60):
        run.step(1.0)
    run.abandon()
    assert numbers(world) == numbers(world, "late") == [1, 3, 4]
