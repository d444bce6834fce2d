"""A flow over tables of a simulated database: at each epoch they are the database's own, at one place of its log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.postgres import free_port
from tests.simulation.lived import lived_through
from tests.simulation.shop import by_key, make_flow

import tidegauge as tg
from tidegauge.errors.postgressource import SlotAdvanced, SlotLost
from tidegauge.errors.simulable import DatabaseNotKnown
from tidegauge.errors.simulation import SimulationFailed
from tidegauge.remap.fromtime.lsn import WAL
from tidegauge.sources.postgres import chunks
from tidegauge.sources.postgres.gathering import Gathering
from tidegauge.testing import simulate
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, planned
from tidegauge.testing.simulation.tables.lake import applied
from tidegauge.testing.simulation.upstream import PUSH_POINTS
from tidegauge.testing.simulation.upstream.database.sender import DATABASE_POINTS
from tidegauge.testing.simulation.upstream.database.texts import messages
from tidegauge.testing.simulation.world import World

ENDS = 4.0
ACTS = (
    Act(0.1, "transact", "db", 3),
    Act(0.4, "append", "db", 4),
    Act(0.8, "transact", "db", 3),
    *(Act(1.2 + n / 2, "append", "db", 4) for n in range(5)),
)


@cache
def ground() -> Ground:
    return Ground.of(make_flow)


def lived(*faults: Fault, more: tuple[Act, ...] = (), seed: int = 1) -> World:
    return lived_through(ground(), (*ACTS, *more), faults, ends=ENDS, seed=seed)


def same_as_the_database(world: World) -> int:
    """See that tables by key are those of the database, at each epoch at its place. Return how many have rows."""
    database, several = world.upstreams["db"].server.followed, 0
    for epoch in range(world.ledger.upper):
        place = world.ledger.until("db", epoch + 1).get(WAL)
        if place is None:
            continue
        for name, key in (("orders", "id"), ("items", "name")):
            columns = database.tables[name].columns.names
            held = applied(world.lake.rows(name, as_of=epoch), [key]).values()
            there = database.rows_at(name, place)
            assert in_order(held, columns) == in_order(there, columns), (name, epoch)
            several += len(there) > 0
    return several


def in_order(rows: Any, columns: list[str]) -> list[list[Any]]:
    return sorted(([row.get(column) for column in columns] for row in rows), key=lambda row: str(row[0]))


@pytest.mark.parametrize("seed", [4, 6, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(30, 60))])
def test_worlds_of_all_kinds_of_faults_hold(seed: int) -> None:
    assert simulate(make_flow, seeds=[seed], epochs=10).rows > 0


@pytest.mark.parametrize("kinds", [("cut", "late", "away"), ("crash", "pause", "error", "lost")])
def test_t53_tables_are_the_database_of_one_place_at_each_epoch(kinds: Any) -> None:
    several = 0
    for seed in range(2):
        world = World(ground(), planned(seed, ground().facts, kinds=kinds, epochs=10))
        world.run()
        several += same_as_the_database(world)
    assert several > 10


def steps() -> Iterator[Fault]:
    """Yield a death at each thing that a source asks of its server, in a life in which nobody dies."""
    met = Counter[str]()
    for at, _who, place in lived().trace.events:
        source, _, call = place.rpartition(": ")
        if source == "db" and call in (*PUSH_POINTS, *DATABASE_POINTS):
            met[place] += 1
            if at < ENDS and (call not in ("receive", "received", "report", "reported") or met[place] < 12):
                yield Fault("crash", place, met[place])


@pytest.mark.parametrize("some", [8, pytest.param(0, marks=pytest.mark.long, id="all")])
def test_a_death_at_any_step_loses_no_row_and_doubles_none(some: int) -> None:
    every = [*steps()]
    assert {fault.place.rpartition(": ")[2] for fault in every} == {*PUSH_POINTS, *DATABASE_POINTS}
    for fault in every[5 :: len(every) // some] if some else every:
        world = lived(fault)
        assert world.strikes.struck, fault
        assert same_as_the_database(world) > 0


def test_a_death_while_the_first_rows_are_read_makes_the_slot_anew() -> None:
    world = lived(Fault("crash", "db: copy rows", 2))
    assert len(world.opened) == 2
    assert world.trace.text().count("db: make slot") == 2
    assert same_as_the_database(world) > 0


WHILE_READ = tuple(Act(0.15 + n / 20, "append", "db", 4) for n in range(12))
CUT_OFF = Fault("crash", "db: rows are copied", 3)


def test_first_rows_that_were_cut_off_go_on_and_those_that_changed_meanwhile_are_read_again() -> None:
    world = lived(CUT_OFF, more=WHILE_READ)
    upstream = world.upstreams["db"]
    [since, *_, at] = sorted({place for _, place in upstream.log.numbers})
    assert all(upstream.log.database.touched(table, since, at) for table in ("orders", "items"))
    assert world.trace.text().count("db: copy rows") < 8  # four ranges, twice
    assert same_as_the_database(world) > 0


def test_rows_that_changed_while_first_rows_were_cut_off_and_come_twice_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunks, "untouched", lambda rows, _keys: pa.repeat(pa.scalar(value=True), rows.num_rows))
    with pytest.raises(SimulationFailed, match="an epoch has the rows that its bindings say"):
        lived(CUT_OFF, more=WHILE_READ)


def test_transactions_go_through_files_in_some_worlds_and_leave_texts_out_in_others() -> None:
    kinds = set()
    for seed in range(6):
        world = lived(Fault("crash", "db: received", 6), seed=seed)
        upstream = world.upstreams["db"]
        assert same_as_the_database(world) > 0
        filed = Path(upstream.folder.path, "spill").is_dir()
        log, tables = upstream.log.database.log, upstream.log.database.tables
        sizes = [
            sum(len(message) for one in log for message in messages(one, 0, tables, set(), sparing=sparing))
            for sparing in (True, False)
        ]
        kinds.add((filed, upstream.log.sparing and sizes[0] < sizes[1]))
    assert kinds >= {(True, False), (False, True)}


def test_a_flow_whose_columns_nobody_knows_says_how_to_have_them(tmp_path: Path) -> None:
    def unknown() -> tg.Dataflow:
        flow = tg.Dataflow("shop", store="sqlite:///shop.db")
        nowhere = f"postgresql://nobody@localhost:{free_port()}/shop"
        source = tg.PostgresSource(nowhere, publication="shop", tables=["orders"], folder=str(tmp_path))
        flow.sink("orders", flow.source("db", source).table("orders"), by_key("orders", "id"))
        return flow

    with pytest.raises(DatabaseNotKnown, match=r"TG-0546.*localhost") as raised:
        simulate(unknown, seeds=[1])
    assert "declare the flow once" in raised.value.next_step


def test_a_slot_that_is_gone_is_told_and_nothing_is_passed_over() -> None:
    codes = set()
    for seed in range(6):
        world = lived(more=(Act(2.4, "retention", "db"), Act(2.45, "append", "db", 3)), seed=seed)
        codes.add(world.ledger.failed().get("db"))
        same_as_the_database(world)
    assert codes >= {SlotLost.code, SlotAdvanced.code}


def test_a_server_that_forgets_what_it_was_told_sends_it_again_and_nobody_gets_it_twice() -> None:
    for seed in range(4):
        world = lived(more=(Act(2.4, "away", "db", 1),), seed=seed)
        assert world.ledger.failed() == {}
        assert same_as_the_database(world) > 0


def leave_a_table_out(gathering: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what is gathered of several tables lose those of all but one."""
    taken = gathering.taken

    def some(self: Any) -> Any:
        found = taken(self)
        return {stream: chunks for stream, chunks in found.items() if stream == "orders" or len(found) == 1}

    monkeypatch.setattr(gathering, "taken", some)


def test_a_transaction_that_is_given_without_one_of_its_tables_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_a_table_out(Gathering, monkeypatch)
    with pytest.raises(SimulationFailed, match="an epoch has the rows that its bindings say"):
        simulate(make_flow, seeds=range(5), faults=(), epochs=5)


def test_a_table_that_came_before_its_source_began_anew_with_it_is_followed_by_the_next_driver() -> None:
    """Nothing of the source is bound when the driver that had begun anew ends: the next one was refused (TG-0967)."""
    ground = Ground.of(make_flow)
    World(ground, planned(36, ground.facts)).run()
