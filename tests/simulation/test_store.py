"""A flow over tables of a simulated MariaDB or MySQL: at each epoch they are those of one place of its log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.lived import lived_through
from tests.simulation.store import make_flow, of_mysql, of_mysql8
from tests.simulation.test_shop import ACTS, ENDS, in_order, leave_a_table_out

import tidegauge as tg
from tidegauge.errors.mysqlsource import BinlogPurged, BinlogRowsUntold, BinlogTableChanged, BinlogTableTruncated
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.simulation import SimulationFailed
from tidegauge.sources.mysql.gathering import EventGathering
from tidegauge.testing import simulate
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, planned
from tidegauge.testing.simulation.tables.lake import applied
from tidegauge.testing.simulation.upstream import PUSH_POINTS
from tidegauge.testing.simulation.upstream.database.binlog_sender import BINLOG_POINTS
from tidegauge.testing.simulation.world import World

KINDS: dict[str, Callable[[], tg.Dataflow]] = {"mariadb": make_flow, "mysql": of_mysql, "mysql8": of_mysql8}
FURTHEST = ("mariadb", "mysql")
"""Each has what the third one shares with one of them."""


@cache
def ground(kind: str) -> Ground:
    return Ground.of(KINDS[kind])


def lived(kind: str, *faults: Fault, more: tuple[Act, ...] = (), seed: int = 1) -> World:
    acts = (*ACTS, Act(0.9, "grow", "db", 2), *more)
    return lived_through(ground(kind), acts, faults, ends=ENDS, seed=seed)


def same_as_the_server(world: World) -> int:
    """See that tables by key are those of the server, at each epoch at its place. Return how many have rows."""
    upstream, several = world.upstreams["db"], 0
    database = upstream.server.followed
    for epoch in range(world.ledger.upper):
        place = world.ledger.until("db", epoch + 1).get(upstream.server.place)
        if place is None:
            continue
        for name, key in (("orders", "id"), ("items", "name")):
            if name in world.ledger.failed_outputs():
                continue
            columns = database.tables[name].columns.names
            held = applied(world.lake.rows(name, as_of=epoch), [key]).values()
            there = database.rows_at(name, place)
            assert in_order(held, columns) == in_order(there, columns), (name, epoch)
            several += len(there) > 0
    return several


SEEDS = [4, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(30, 60))]


@pytest.mark.parametrize("kind", FURTHEST)
@pytest.mark.parametrize("seed", SEEDS)
def test_worlds_of_all_kinds_of_faults_hold(kind: str, seed: int) -> None:
    assert (
        simulate(KINDS[kind], seeds=[seed], epochs=10).lives > 0
    )  # not all have rows: a log may end with the flow's


@pytest.mark.parametrize(
    ("kind", "kinds"),
    [("mariadb", ("cut", "away")), ("mysql", ("crash", "error", "lost")), ("mysql8", ("cut", "crash"))],
)
def test_t53_tables_are_the_server_s_of_one_place_at_each_epoch(kind: str, kinds: Any) -> None:
    several = 0
    for seed in range(2):
        world = World(ground(kind), planned(seed, ground(kind).facts, kinds=kinds, epochs=10))
        world.run()
        several += same_as_the_server(world)
    assert several > 10


def steps(kind: str) -> Iterator[Fault]:
    """Yield a death at each thing that a source asks of its server, in a life in which nobody dies."""
    met = Counter[str]()
    for at, _who, place in lived(kind).trace.events:
        source, _, call = place.rpartition(": ")
        if source == "db" and call in (*PUSH_POINTS, *BINLOG_POINTS):
            met[place] += 1
            if at < ENDS and (call not in ("receive", "received") or met[place] < 12):
                yield Fault("crash", place, met[place])


@pytest.mark.parametrize("kind", FURTHEST)
@pytest.mark.parametrize("some", [3, pytest.param(0, marks=pytest.mark.long, id="all")])
def test_a_death_at_any_step_loses_no_row_and_doubles_none(kind: str, some: int) -> None:
    every = [*steps(kind)]
    assert {fault.place.rpartition(": ")[2] for fault in every} == {*PUSH_POINTS, *BINLOG_POINTS}
    for fault in every[5 :: len(every) // some] if some else every:
        world = lived(kind, fault)
        assert world.strikes.struck, fault
        assert same_as_the_server(world) > 0


def test_transactions_go_through_files_in_some_worlds() -> None:
    kinds = set()
    for seed in range(6):
        world = lived("mariadb", seed=seed)
        assert same_as_the_server(world) > 0
        kinds.add(Path(world.upstreams["db"].folder.path, "spill").is_dir())
    assert kinds == {True, False}


@pytest.mark.parametrize("kind", FURTHEST)
def test_a_log_that_lacks_what_the_flow_needs_is_told_and_nothing_is_passed_over(kind: str) -> None:
    """It is purged, begun anew, or put back from a copy; or a table is emptied, dropped or changed, or a row goes by
    its key alone."""
    codes = set[str | None]()
    for seed, how in ((1, 0), (2, 0), (3, 0), (9, 0), (10, 0), (18, 0), (1, 40)):
        world = lived(kind, more=(Act(2.4, "retention", "db", how), Act(2.45, "append", "db", 3)), seed=seed)
        same_as_the_server(world)
        codes |= {*world.ledger.failed().values()}
        over = world.ledger.ask("SELECT failure FROM outputs WHERE failed_at IS NOT NULL")
        codes |= {json.loads(failure)["code"] for (failure,) in over}
    assert codes >= {
        one.code
        for one in (BinlogPurged, UpstreamRecreated, BinlogTableTruncated, BinlogTableChanged, BinlogRowsUntold)
    }


def test_a_transaction_that_is_given_without_one_of_its_tables_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_a_table_out(EventGathering, monkeypatch)
    with pytest.raises(SimulationFailed, match="an epoch has the rows that its bindings say"):
        simulate(make_flow, seeds=range(5), faults=(), epochs=5)
