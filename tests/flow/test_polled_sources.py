"""Flows over sources that are polled: every row once, whenever a driver dies, and nothing fetched twice."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.flow.attended import live, numbers
from tests.flow.by_hand import World
from tests.s3 import Lake
from tests.sources.polls.polling import Pages

import tidegauge as tg
from tidegauge.cli import standing
from tidegauge.errors.polls import PollFailed, PollGone
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.objects.path import ObjectPath
from tidegauge.sources.polls import poller


@dataclass
class Polled(World):
    """A world with an upstream that is polled each second."""

    upstream: Pages = field(default_factory=Pages)
    given: dict[str, Any] = field(default_factory=dict)


def flow_of(world: World, *outputs: str, tick: Any = 0.3) -> tg.Dataflow:
    assert isinstance(world, Polled)
    flow = tg.Dataflow("shop", store=world.store, tick=tick)
    given = {"columns": "n long", "staging": world.root / "polls", "every": 1.0, **world.given}
    orders = flow.source("orders", tg.PollingSource(world.upstream, **given))
    for name in ("orders", *outputs):
        flow.sink(name, orders, tg.DeltaSink(str(world.root / "lake" / name)))
    return flow


@pytest.fixture
def world(tmp_path: Path) -> Polled:
    return Polled(tmp_path, flow_of)


@pytest.fixture(autouse=True)
def looks_wait_for_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a look sees the end of a poll that it has begun."""
    monkeypatch.setattr(poller, "WAIT", 60)


def test_o5_o6_a_driver_that_dies_anywhere_fetches_nothing_that_is_staged_again(tmp_path: Path) -> None:
    died, at = True, 0
    struck: set[str] = set()
    while died:
        world = Polled(tmp_path / str(at), flow_of, upstream=Pages(size=2, rows=list(range(5))))
        world.root.mkdir()
        world.crash_at = at
        died = live(world, 5)
        struck |= {world.points[-1]} if died else set()
        if died:
            staged = len(list((world.root / "polls").rglob("*.json")))
            asked = len(world.upstream.calls)
            assert not live(world, 5)
            again = world.upstream.calls[asked:]
            assert all((cursor or 0) >= min(5, 2 * staged) for cursor in again), (world.points, again)
        assert numbers(world) == [0, 1, 2, 3, 4]
        at += 1
    assert {"before stage poll", "after stage poll", "before append bindings", "after publish"} <= struck


def test_an_unchanged_poll_makes_no_epoch_and_writes_nothing_to_the_store(world: Polled) -> None:
    world.upstream.rows = [1, 2]
    run = world.start()
    run.catch_up()
    before, calls = len(world.points), len(world.upstream.calls)
    for _ in range(20):
        run.step(1.0)
    assert len(world.upstream.calls) >= calls + 18
    assert world.points[before:] == []
    assert world.loaded().flow.upper == 1
    run.abandon()


def test_a_state_alone_makes_an_epoch_without_a_commit(world: Polled) -> None:
    heights = iter([*"abbb"])
    world.upstream.wrong = lambda: tg.Fetched([], next(heights, "b"))
    run = world.start()
    for _ in range(6):
        run.step(1.0)
    assert world.loaded().flow.upper == 2
    assert "before commit output" not in world.points
    assert world.upstream.calls[:3] == [None, "a", "b"]
    run.abandon()


def test_o3_o13_each_of_two_sources_keeps_its_state_while_the_other_one_goes_on(tmp_path: Path) -> None:
    other = Pages(rows=[7, 8])

    def make(world: World) -> tg.Dataflow:
        flow = flow_of(world)
        second = tg.PollingSource(other, columns="n long", staging=world.root / "polls", every=1.0)
        flow.sink("second", flow.source("second", second), tg.DeltaSink(str(world.root / "lake" / "second")))
        return flow

    world = Polled(tmp_path, make)
    for n in range(1, 4):
        world.upstream.rows = list(range(n))
        run = world.start()
        run.step(1.0)
        run.catch_up()
        run.abandon()
        world.clock.seconds += 60
        states = {name: source.state for name, source in world.loaded().sources.items()}
        assert {name: state and state.value for name, state in states.items()} == {"orders": n, "second": 2}
    assert (numbers(world), numbers(world, "second")) == ([0, 1, 2], [7, 8])
    assert set(other.calls[1:]) == {2}


def test_a_stalled_function_is_on_the_board_and_in_status_and_others_go_on(tmp_path: Path) -> None:
    def make(world: World) -> tg.Dataflow:
        flow = flow_of(world)
        more = flow.source("rows", tg.GeneratorSource(columns="k long", rate=2.0))
        flow.sink("rows", more, tg.DeltaSink(str(world.root / "lake" / "rows")))
        return flow

    def wrong() -> Any:
        raise ValueError("upstream said no")

    world = Polled(tmp_path, make)
    world.upstream.wrong = wrong
    run = world.start()
    for _ in range(30):
        run.step(0.5)
    assert isinstance(run.runner.board.sources["orders"].error, PollFailed)
    report = tg.status(make(world), env=world.env())
    found = {source.name: source for source in report.sources}
    assert (found["orders"].state, found["rows"].state) == ("stalled", "running")
    assert found["orders"].error is not None
    assert "upstream said no" in found["orders"].error.summary
    assert standing.status_json(report)["sources"]
    rows = tg.read_arrow(make(world), "rows").num_rows
    assert rows > 10
    world.upstream.wrong, world.upstream.rows = None, [7]
    for _ in range(200):
        run.step(1.0)
    assert numbers(world) == [7]
    run.abandon()


def test_status_asks_nobody(world: Polled) -> None:
    world.upstream.rows = [1]
    run = world.start()
    run.catch_up()
    run.abandon()
    calls = list(world.upstream.calls)
    [source] = tg.status(world.make(world)).sources
    assert (source.state, source.bound, source.end) == ("idle", 1, 1)
    assert "polls every 1 seconds" in source.note
    assert world.upstream.calls == calls


def test_b5_late_outputs_scans_and_rebuilt_tables_read_what_is_staged(world: Polled) -> None:
    world.upstream.rows = [1, 2, 3, 4]
    run = world.start()
    run.catch_up()
    run.abandon()
    world.upstream.rows = []  # upstream has forgotten all of it
    world.make = lambda one: flow_of(one, "late")
    run = world.start()
    run.catch_up()
    run.abandon()
    assert numbers(world, "late") == [1, 2, 3, 4]
    found = tg.scan_arrow(world.make(world), "orders", as_of=0).read_all()
    assert sorted(found["n"].to_pylist()) == [1, 2, 3, 4]
    tg.rebuild(world.make(world), "late")
    run = world.start()
    run.catch_up()
    run.abandon()
    assert numbers(world, "late") == [1, 2, 3, 4]


@pytest.mark.parametrize("tick", [tg.Every(records=1000), tg.Every(3600, records=1000)])
def test_a_policy_of_sizes_does_not_keep_a_poll_waiting(tmp_path: Path, tick: Any) -> None:
    world = Polled(tmp_path, lambda one: flow_of(one, tick=tick), upstream=Pages(rows=[1]))
    run = world.start()
    for _ in range(10):
        run.step(1.0)
    assert numbers(world) == [1]
    run.abandon()


def goes_on_anew(world: Polled) -> None:
    """Resume with a new incarnation: what upstream gives from then on comes behind the rows 1 and 2."""
    tg.resume(world.make(world), "orders", new_incarnation=True, env=world.env())
    world.upstream.rows = [3]
    run = world.start()
    run.catch_up()
    run.abandon()
    assert numbers(world) == [1, 2, 3]


def test_a_staging_folder_that_is_lost_fails_the_source_until_a_new_incarnation(world: Polled) -> None:
    world.upstream.rows = [1, 2]
    run = world.start()
    run.catch_up()
    run.abandon()
    log = world.root / "polls" / "shop" / "orders" / "0"
    for path in log.iterdir():
        path.unlink()
    run = world.start()
    for _ in range(5):
        run.step(1.0)
    run.abandon()
    [source] = tg.status(world.make(world)).sources
    assert source.state == "failed"
    assert isinstance(source.error, UpstreamRecreated)
    goes_on_anew(world)
    assert (world.root / "polls" / "shop" / "orders" / "1").is_dir()


def test_a_rule_that_removes_the_log_in_a_bucket_fails_the_source_until_a_new_incarnation(
    lake: Lake, world: Polled
) -> None:
    world.given["staging"] = lake.at("polls")
    world.upstream.rows = [1, 2]
    run = world.start()
    run.catch_up()
    run.abandon()
    assert numbers(world) == [1, 2]
    ObjectPath.of(lake.at("polls")).clear()
    run = world.start()
    for _ in range(5):
        run.step(1.0)
    run.abandon()
    [source] = tg.status(world.make(world)).sources
    assert (source.state, type(source.error)) == ("failed", PollGone)
    goes_on_anew(world)
    assert all(name.startswith("shop/orders/1/") for name in ObjectPath.of(lake.at("polls")).below())


@pytest.mark.long
def test_o5_o6_a_driver_that_dies_anywhere_fetches_nothing_that_is_staged_in_a_bucket(
    lake: Lake, tmp_path: Path
) -> None:
    died, at = True, 0
    while died:
        world = Polled(tmp_path / str(at), flow_of, upstream=Pages(size=2, rows=list(range(5))))
        world.given["staging"] = lake.at(f"polls{at}")
        world.root.mkdir()
        world.crash_at = at
        died = live(world, 5)
        if died:
            staged = len([name for name in ObjectPath.of(lake.at(f"polls{at}")).below() if name.endswith(".json")])
            asked = len(world.upstream.calls)
            assert not live(world, 5)
            again = world.upstream.calls[asked:]
            assert all((cursor or 0) >= min(5, 2 * staged) for cursor in again), (world.points, again)
        assert numbers(world) == [0, 1, 2, 3, 4]
        at += 1


def test_a_backup_of_store_and_tables_gets_the_polls_that_came_after_it_from_the_log(world: Polled) -> None:
    world.upstream.rows = [1]
    run = world.start()
    run.catch_up()
    run.abandon()
    backup = world.root / "backup"
    shutil.copytree(world.root, backup, ignore=shutil.ignore_patterns("polls"))
    world.upstream.rows.append(2)
    run = world.start()
    run.catch_up()
    run.abandon()
    shutil.rmtree(world.root / "lake")
    shutil.copytree(backup, world.root, dirs_exist_ok=True)
    assert numbers(world) == [1]
    world.upstream.rows = []  # which upstream has forgotten
    run = world.start()
    run.catch_up()
    run.abandon()
    assert numbers(world) == [1, 2]


def test_another_flow_shares_the_polls_and_asks_nobody(world: Polled) -> None:
    world.upstream.rows = [1, 2, 3, 4]
    run = world.start()
    run.catch_up()
    run.abandon()
    other = tg.Dataflow("billing", store=world.store)
    shared = other.source("orders", tg.shared(world.make(world), "orders"))
    other.sink("billed", shared, tg.DeltaSink(str(world.root / "lake" / "billed")))
    calls = len(world.upstream.calls)
    other.run("caught-up", engine="local", env=world.env())
    assert sorted(tg.read_arrow(other, "billed")["n"].to_pylist()) == [1, 2, 3, 4]
    assert len(world.upstream.calls) == calls


def test_a_run_ends_when_it_has_caught_up_also_with_a_slow_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller, "WAIT", 0.05)
    gate = threading.Event()
    timer = threading.Timer(0.6, gate.set)

    def fetch(state: Any) -> tg.Fetched:
        gate.wait(30)
        return tg.Fetched([{"n": 1}] if state is None else [], 1)

    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db")
    orders = flow.source("orders", tg.PollingSource(fetch, columns="n long", staging=tmp_path / "polls"))
    flow.sink("orders", orders, tg.DeltaSink(str(tmp_path / "orders")))
    timer.start()
    flow.run("caught-up", engine="local")
    assert tg.read_arrow(flow, "orders")["n"].to_pylist() == [1]


def test_keys_of_a_snapshot_become_a_table_by_key(tmp_path: Path) -> None:
    rows = {1: "a", 2: "b"}

    def make() -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db")
        source = tg.PollingSource(
            lambda _: tg.Fetched([{"n": n, "s": s} for n, s in rows.items()]),
            columns="n long, s string",
            staging=tmp_path / "polls",
            merge="snapshot",
            key="n",
        )
        sink = tg.DeltaSink(str(tmp_path / "users"), envelope="upsert", key="n")
        flow.sink("users", flow.source("users", source), sink)
        return flow

    make().run("caught-up", engine="local")
    del rows[1]
    rows |= {2: "B", 3: "c"}
    make().run("caught-up", engine="local")
    found = tg.read_arrow(make(), "users")
    assert sorted(zip(found["n"].to_pylist(), found["s"].to_pylist(), strict=True)) == [(2, "B"), (3, "c")]


@pytest.mark.long
@pytest.mark.spark
def test_tasks_of_spark_read_the_log_and_get_nothing_of_the_function(tmp_path: Path) -> None:
    lock = threading.Lock()  # which cannot be pickled

    def fetch(state: int | None) -> tg.Fetched:
        with lock:
            at = state or 0
            return tg.Fetched([{"n": n} for n in range(at, min(at + 5, 20))], min(at + 5, 20), more=at + 5 < 20)

    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db")
    orders = flow.source("orders", tg.PollingSource(fetch, columns="n long", staging=tmp_path / "polls"))
    flow.sink("orders", orders.filter("n % 2 = 0"), tg.DeltaSink(str(tmp_path / "orders")))
    flow.run("caught-up")
    assert sorted(tg.read_arrow(flow, "orders")["n"].to_pylist()) == list(range(0, 20, 2))


def test_a_store_that_is_recovered_from_the_tables_has_the_state_and_fetches_nothing_again(world: Polled) -> None:
    world.upstream.rows = [1, 2, 3, 4]
    run = world.start()
    run.catch_up()
    run.abandon()
    for path in world.root.glob("flow.db*"):
        path.unlink()
    tg.recover(world.make(world), env=world.env())
    calls = len(world.upstream.calls)
    world.upstream.rows.append(5)
    world.clock.seconds += 60
    run = world.start()
    run.catch_up()
    run.abandon()
    assert world.upstream.calls[calls] == 4
    assert numbers(world) == [1, 2, 3, 4, 5]


def test_history_that_is_compacted_leaves_the_state_and_the_polls(world: Polled) -> None:
    run = world.start()
    for n in range(5):
        world.upstream.rows.append(n)
        for _ in range(8):
            run.step()
    run.abandon()
    upper = world.loaded().flow.upper
    assert upper >= 4
    tg.compact(world.make(world), before=upper - 1, env=world.env())
    calls = len(world.upstream.calls)
    world.make = lambda one: flow_of(one, "late")
    run = world.start()
    run.catch_up()
    run.abandon()
    assert set(world.upstream.calls[calls:]) == {5}
    assert numbers(world, "late") == numbers(world) == [0, 1, 2, 3, 4]
