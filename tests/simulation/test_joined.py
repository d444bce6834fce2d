"""Tables that are declared while a flow runs join the others, whoever dies; then they are the database's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from tests.simulation import joined, joined_mysql
from tests.simulation.joined import KEYS
from tests.simulation.test_shop import in_order

import tidegauge as tg
from tidegauge.errors.simulation import SimulationFailed
from tidegauge.sources.mysql.aside import ChunksAside
from tidegauge.sources.postgres.gathering import Gathering
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, Plan, planned
from tidegauge.testing.simulation.tables.lake import applied
from tidegauge.testing.simulation.world import World
from tidegauge.testing.simulation.writers.database import TableBeginning

ENDS = 7.0
ACTS = (
    *(Act(0.05 + n / 4, "append", "db", 4) for n in range(26)),
    Act(1.0, "gain", "db", 1),
    Act(0.9, "transact", "db", 3),
    Act(3.7, "transact", "db", 3),
    Act(4.4, "gain", "db", 1),
)
MAKES: dict[str, Callable[[], tg.Dataflow]] = {
    "postgres": joined.make_flow,
    "mariadb": joined_mysql.make_flow,
    "mysql": joined_mysql.of_mysql,
    "mysql8": joined_mysql.of_mysql8,
}
FURTHEST = ("postgres", "mariadb", "mysql")
"""Each has what the last one shares with one of them."""
FAULTS = {kind: joined.FAULTS if kind == "postgres" else joined_mysql.FAULTS for kind in FURTHEST}


@cache
def ground(kind: str) -> Ground:
    return Ground.of(MAKES[kind])


def lived(kind: str, *faults: Fault, also: tuple[Act, ...] = ()) -> World:
    acts = sorted((*ACTS, *also), key=lambda act: act.at)
    world = World(ground(kind), Plan(1, ENDS, tuple(acts), faults, calm=True))
    world.run()
    return world


def beginning(world: World, table: str) -> TableBeginning:
    """Where a table began."""
    upstream = world.upstreams["db"]
    found = upstream.server.begins(upstream.log.database.tables[table])
    assert isinstance(found, TableBeginning)
    return found


def same_as_the_database(world: World) -> Counter[str]:
    """See that each table is that of the database, at each epoch from the one at which it joined, and empty before.

    Return of how many epochs each had rows.
    """
    upstream, several = world.upstreams["db"], Counter[str]()
    database = upstream.log.database
    for epoch in range(world.ledger.upper):
        places = world.ledger.until("db", epoch + 1)
        for name, key in KEYS.items():
            rows = world.lake.rows(name, as_of=epoch).sort_by("_sequence")
            added = [one.column.name for one in database.added if one.stream == name]
            columns = database.tables[name].columns.names + [one for one in added if one in rows.schema.names]
            held = applied(rows, [key]).values()
            partition, position = beginning(world, name).given
            is_there = places.get(partition, 0) > position
            there = database.rows_at(name, places[upstream.server.place]) if is_there else []
            assert in_order(held, columns) == in_order(there, columns), (name, epoch)
            several += Counter([name] if there else [])
    return several


@pytest.mark.parametrize("kind", FURTHEST)
def test_tables_join_with_their_first_rows_and_what_changed_meanwhile(kind: str) -> None:
    slow = Fault("slow", "db: fetch rows", 2, 0.6)  # a PostgreSQL waits for the transaction that is open
    world = lived(kind) if kind == "postgres" else lived(kind, slow)
    assert beginning(world, "orders").upto < beginning(world, "items").upto < beginning(world, "users").upto
    assert same_as_the_database(world).keys() == KEYS.keys()
    begun = [beginning(world, table) for table in ("items", "users")]
    meanwhile = [world.upstreams["db"].log.database.between(one.since, one.upto) for one in begun]
    assert any(meanwhile), "nothing committed while the first rows were read"


def test_a_commit_that_waits_for_a_replica_is_not_lost_to_a_table_that_joins() -> None:
    """It is sent before a transaction sees it, and the first rows are read by one that does."""
    world = lived("mariadb", also=(Act(0.9, "late", "db", 3), Act(4.2, "late", "db", 2)))
    assert same_as_the_database(world).keys() == KEYS.keys()


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_columns_that_come_to_a_mysql_are_left_out_and_no_table_ends(kind: str) -> None:
    """They come also while first rows are read. At MariaDB some come in the midst of the others."""
    world = lived(kind, also=tuple(Act(0.5 + n * 0.7, "alter", "db", 1) for n in range(8)))
    added = world.upstreams["db"].log.database.added
    assert {one.stream for one in added} == KEYS.keys()
    assert any(one.early for one in added) == (kind == "mariadb")
    assert world.ledger.failed_outputs() == set()
    assert same_as_the_database(world).keys() == KEYS.keys()


@pytest.mark.parametrize("kind", FURTHEST)
@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 130))])
def test_worlds_of_all_kinds_of_faults_hold(kind: str, seed: int) -> None:
    world = World(ground(kind), planned(seed, ground(kind).facts, kinds=FAULTS[kind], epochs=10))
    world.run()


@pytest.mark.parametrize(
    ("kind", "kinds"),
    [
        ("postgres", ("gain", "cut", "away")),
        ("postgres", ("gain", "crash", "error", "lost")),
        ("mysql8", ("gain", "cut", "away", "crash", "error", "lost")),
    ],
)
def test_t53_tables_that_join_are_those_of_the_database_at_each_epoch(kind: str, kinds: Any) -> None:
    acts = [act for act in ACTS if act.what == "gain"]
    plan = planned(1, ground(kind).facts, kinds=kinds, epochs=5)
    world = World(ground(kind), plan.with_acts(sorted((*plan.acts, *acts), key=lambda act: act.at)))
    world.run()
    assert same_as_the_database(world).keys() == KEYS.keys()


def steps(kind: str) -> Iterator[Fault]:
    """Yield a death at each thing that a driver does with its server once a table is to join."""
    met = Counter[str]()
    for at, _who, place in lived(kind).trace.events:
        met[place] += 1
        if 1.0 < at < ENDS - 1 and place.startswith("db: ") and met[place] < 40:
            yield Fault("crash", place, met[place])


READS = {
    "postgres": {"make slot", "copy rows", "rows are copied"},
    "mariadb": {"open rows", "fetch rows", "rows are fetched"},
}


@pytest.mark.parametrize("kind", READS)
@pytest.mark.parametrize("some", [2, pytest.param(0, marks=pytest.mark.long, id="all")])
def test_a_death_at_any_step_loses_no_row_and_doubles_none(kind: str, some: int) -> None:
    every = [*steps(kind)]
    assert {fault.place.rpartition(": ")[2] for fault in every} >= READS[kind]
    for fault in every[5 :: len(every) // some] if some else every:
        world = lived(kind, fault)
        assert world.strikes.struck, fault
        assert same_as_the_database(world)["users"] > 0


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_changes_that_come_while_first_rows_are_read_and_are_lost_are_seen(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gathering, "set_aside", lambda self: self.aside.clear() or {})
    monkeypatch.setattr(ChunksAside, "takes", lambda self, stream, chunks: stream in self._chunks)
    with pytest.raises(SimulationFailed, match="an epoch has the rows that its bindings say"):
        lived(kind)


def test_tables_that_a_flow_lacks_by_which_its_store_is_recovered_are_behind_what_that_publishes() -> None:
    """A driver dies behind its first commit, the store goes back, and the only table there is has the epoch still."""
    plan = planned(20036, ground("postgres").facts, kinds=FAULTS["postgres"])
    world = World(ground("postgres"), plan.with_acts([act for act in plan.acts if act.what != "retention"]))
    world.run()
    assert "put back" in world.trace.text()
    assert {world.lake.upper(name) for name in ("orders", "items", "changes")} == {world.ledger.published}
    assert world.ledger.published > 1


@pytest.mark.parametrize(("kind", "standbys"), [("postgres", ("db",)), ("mariadb", ()), ("mysql", ())])
def test_a_standby_takes_over_from_a_postgresql_alone(kind: str, standbys: tuple[str, ...]) -> None:
    """What a MariaDB lost and no epoch has yet is not resumed: the source has failed for good (seed 5016)."""
    assert ground(kind).facts.replicated == standbys
    assert ground(kind).facts.altered == ("db",)
