"""Each kind of fault strikes where a plan says, and a world recovers from it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation import spoilt
from tests.simulation.lived import lived_through
from tests.simulation.reference import make_flow

from tidegauge.errors.history import StoreBehindTable
from tidegauge.errors.simulation import SimulationFailed
from tidegauge.errors.sinks import StagedFileMissing
from tidegauge.errors.store import FlowAlreadyRunning, LeaseLost, UpperMismatch
from tidegauge.flow import opening
from tidegauge.flow.stage import _Stage
from tidegauge.remap.store import EXPIRY
from tidegauge.testing.simulation import restoring
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import BETWEEN, Act, Fault, Plan, planned
from tidegauge.testing.simulation.store import Memory
from tidegauge.testing.simulation.world import World

APPENDS = tuple(Act(0.3 + tick, "append", source, 3) for tick in range(4) for source in ("orders", "clicks"))


def lived(*faults: Fault, acts: tuple[Act, ...] = (), seed: int = 1, unit: int = 0) -> World:
    """A calm world with a few appends in each source."""
    return lived_through(Ground.of(make_flow), (*APPENDS, *acts), faults, ends=5.0, seed=seed, unit=unit)


@pytest.mark.parametrize("place", BETWEEN)
def test_a_driver_dies_between_two_things_that_it_does(place: str) -> None:
    world = lived(Fault("crash", place, 7))
    assert [life.name for life in world.lives if life.dead] == ["A"]
    events = notes(world)
    [struck] = [number for number, (_who, what) in enumerate(events) if what == "!! crash"]
    who, where = events[struck - 1]
    assert where == place
    assert (who == "A") == (place == "worker step"), "the worker itself, or something beside it"


def test_a_staged_file_that_is_cut_short_is_in_no_commit_and_the_next_run_stages_it_again() -> None:
    world = lived(Fault("torn", "orders: closed", 2))
    first, *_ = world.lives
    assert type(first.error) is StagedFileMissing
    assert len(world.lives) == 2
    assert world.lake.rows("orders").num_rows == 12
    assert not world.lake.tables["orders"].staged


def test_a_store_that_is_put_back_gets_from_the_tables_what_they_hold() -> None:
    world = lived(Fault("crash", "orders: sweep", 2), acts=(Act(1.5, "restore", "", 2),))
    assert [what for who, what in notes(world) if who == "restorer"] == ["put back"]
    assert [life.name for life in world.lives if life.dead] == ["B"], "the command died, and was given again"
    assert world.lake.rows("orders").num_rows == 12


def test_a_store_that_is_put_back_and_lacks_what_tables_hold_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "recover", lambda _flow, *, env: env)
    with pytest.raises(SimulationFailed, match="a recovered store has what the tables were written with"):
        lived(acts=(Act(1.5, "restore", "", 2),))


def test_a_store_that_goes_back_under_a_driver_ends_it_and_nothing_is_lost_or_doubled() -> None:
    worlds = [lived(acts=(Act(2.5, "rewind", "", 1),), seed=seed) for seed in range(6)]
    for world in worlds:
        assert [what for who, what in notes(world) if who == "restorer"] == ["put back"]
        assert world.lake.rows("orders").num_rows == 12
    ends = {type(life.error) for world in worlds for life in world.lives}
    assert ends >= {UpperMismatch, LeaseLost, StoreBehindTable}, "with the lease in the backup, without, and the next"


def test_a_driver_that_does_not_compare_the_store_with_its_tables_breaks_a_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = Ground.of(make_flow)
    monkeypatch.setattr(opening, "check", lambda *_what, **_more: None)
    with pytest.raises(SimulationFailed):
        World(ground, planned(3, ground.facts, kinds=("rewind",))).run()


def test_a_store_that_goes_back_while_the_table_that_is_ahead_is_away_parts_what_is_not_published() -> None:
    acts = [Act(0.3 + tick / 2, "append", source, 3) for tick in range(20) for source in ("orders", "clicks")]
    faults = [Fault("error", "orders: open", nth) for nth in range(2, 12)]
    faults += [Fault("error", f"{name}: commit", nth) for nth in range(3, 10) for name in ("large", "clicks")]
    acts = sorted([*acts, Act(3.5, "rewind", "", 2)], key=lambda act: act.at)
    world = World(Ground.of(make_flow), Plan(1, 20.0, tuple(acts), tuple(faults), calm=True))
    world.run()
    assert world.parted
    assert world.lake.upper("orders") > world.ledger.published


def test_an_error_of_another_store_breaks_a_law_where_nobody_has_put_one_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check(*_what: object, **_more: object) -> None:
        raise StoreBehindTable(flow="shop", output="orders", store=1, table=2, parted=1, other="repair it")

    monkeypatch.setattr(opening, "check", check)
    with pytest.raises(SimulationFailed, match="a driver ends only for what comes from outside"):
        lived()


def test_a_backup_that_would_wait_for_a_transaction_in_real_time_is_refused() -> None:
    memory = Memory()
    memory.connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(AssertionError):
        memory.backup()


def notes(world: World) -> list[tuple[str, str]]:
    """Who did what."""
    return [(who, what) for _at, who, what in world.trace.events]


def test_faults_between_two_steps_are_spread_over_a_life() -> None:
    ground = Ground.of(make_flow)
    plans = [planned(seed, ground.facts, kinds=("crash",)) for seed in range(200)]
    counts = [fault.nth for plan in plans for fault in plan.faults if fault.place == "worker step"]
    assert min(counts) < 20
    assert max(counts) > 200


def missed(world: World) -> int:
    """How many records the flow says that it goes on without."""
    return int(world.memory.connection.execute("SELECT coalesce(sum(upper - lower), 0) FROM losses").fetchone()[0])


@pytest.mark.parametrize("beyond", [0, 1])
def test_retention_that_comes_exactly_to_what_is_bound_is_no_loss_and_one_record_more_is_a_loss_of_one(
    beyond: int,
) -> None:
    acts = [Act(0.3 + tick / 5, "append", "orders", 3) for tick in range(8)]
    acts += [Act(4.1 + tick / 100, "append", "orders", 3) for tick in range(8)]  # seen by the look at 5.0
    acts.append(Act(4.3, "retention", "orders", 1 + beyond))
    world = World(Ground.of(make_flow), Plan(1, 6.0, tuple(acts), (), calm=True))
    world.run()
    assert not world.ledger.failed()
    assert (missed(world), world.lake.rows("orders").num_rows) == (beyond, 48 - beyond)


def test_an_end_that_goes_back_for_a_while_is_no_loss() -> None:
    world = lived(acts=tuple(Act(2.2 + tick / 3, "stale", "clicks", 1) for tick in range(6)))
    assert not world.ledger.failed()
    assert (missed(world), world.lake.rows("clicks").num_rows) == (0, 24)


@pytest.mark.parametrize("percent", [90, 150])
def test_a_clock_that_drifts_decides_when_epochs_are_minted(percent: int) -> None:
    often = tuple(Act(0.5 + number / 5, "append", "orders", 1) for number in range(40))
    world = World(Ground.of(make_flow), Plan(1, 9.0, (Act(0.1, "drift", "", percent), *often), (), calm=True))
    world.run()
    minted = [at for at, _who, what in world.trace.events if what == "after append bindings" and 1.0 < at < 8.0]
    between = (minted[-1] - minted[0]) / (len(minted) - 1)
    assert between == pytest.approx(100 / percent, rel=0.05)


@pytest.mark.parametrize(("percent", "ended"), [(90, LeaseLost), (150, FlowAlreadyRunning)])
def test_a_driver_whose_clock_has_drifted_is_taken_over_from_too_early_or_not_at_all(
    percent: int, ended: type[Exception]
) -> None:
    """The first is half a minute behind by then, as if it had not renewed its lease; or it is far ahead."""
    acts = [Act(0.1, "drift", "", percent), Act(0.3, "append", "orders", 3)]
    acts += [Act(340.0, "rival"), Act(341.0, "append", "orders", 2)]
    world = World(Ground.of(make_flow), Plan(1, 345.0, tuple(acts), (), calm=True))
    world.run()
    assert [type(life.error) for life in world.lives if life.error is not None] == [ended]
    assert world.lake.rows("orders").num_rows == 5


def test_a_driver_with_a_fast_clock_that_dies_keeps_the_flow_waiting_until_its_lease_has_run_out() -> None:
    acts = [Act(0.1, "drift", "", 150), Act(0.3, "append", "orders", 3), Act(60.0, "append", "orders", 2)]
    world = World(
        Ground.of(make_flow), Plan(1, 70.0, tuple(acts), (Fault("crash", "before append bindings", 3),), calm=True)
    )
    world.run()
    last, died = world.lives[-1], world.lives[0]
    assert died.dead
    assert last.began - (died.gone or 0.0) > EXPIRY + 15.0
    assert {type(life.error) for life in world.lives[1:-1]} == {FlowAlreadyRunning}
    assert world.lake.rows("orders").num_rows == 5


def test_a_driver_that_stops_while_the_store_is_full_leaves_its_lease_to_run_out() -> None:
    plan = Plan(1, 23.0, (Act(2.2, "full", "", 40), Act(21.3, "stop", "", 1)), (), calm=True)
    world = World(Ground.of(make_flow), plan)
    world.run()
    assert len(world.lives) > 1, "another one takes over, and stops in order"


def spoiled(source: str) -> World:
    """A calm world in which a bad record comes between good ones."""
    acts = [Act(0.3, "append", source, 3), Act(2.2, "append", source, 2), Act(2.3, "spoil", source, 7)]
    acts += [Act(4.2, "append", source, 4)]
    world = World(Ground.of(spoilt.make_flow), Plan(1, 6.0, tuple(acts), (), calm=True))
    world.run()
    return world


@pytest.mark.parametrize("source", ["orders", "lines"])
def test_a_bad_record_is_collected_in_its_epoch(source: str) -> None:
    world = spoiled(source)
    assert len(world.lives) == 1
    [bad] = world.lake.rows(f"bad_{source}").to_pylist()
    assert (bad["raw"], bad["_epoch"] > 0) == (b"spoilt 7", True)
    assert world.lake.rows(source).num_rows == 9


@pytest.mark.parametrize("source", ["clicks", "visits"])
def test_a_bad_record_fails_its_source_until_somebody_skips_it(source: str) -> None:
    world = spoiled(source)
    assert len(world.lives) == 3, "a driver, the command, and another driver"
    assert len(world.checks.skipped) == 1
    assert missed(world) in (1, len(b"spoilt 7\n"))
    assert world.lake.rows(source).num_rows == 9


def binding_what_is_gone(*acts: Act) -> World:
    """A driver is about to bind records of a topic when another takes its place: nothing is left to bind but them."""
    acts = (Act(0.3, "append", "clicks", 5), *acts, Act(10.0, "recreate", "clicks", 40))
    slow = Fault("slow", "before append bindings", 1, 40.0)
    return World(Ground.of(make_flow), Plan(2, 20.0, acts, (slow,), calm=True))


@pytest.mark.parametrize("acts", [(), (Act(5.0, "restore", "", 1),)])
def test_a_world_does_not_end_while_a_driver_binds_what_is_gone(acts: tuple[Act, ...]) -> None:
    world = binding_what_is_gone(*acts)
    world.run()
    *_, last = world.opened
    assert last.began > 40.0, "one that was told to stop while it bound stages no more; another has gone on"
    assert world.ledger.published == world.ledger.upper > 0


def test_an_epoch_that_is_over_and_held_breaks_a_law_also_after_one_that_came_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def settle(self: _Stage) -> None:
        if self.failure_capability not in kept:
            kept.append(self.failure_capability)
            self.failure_capability = self.failure_capability.clone()
        given(self)

    kept: list[Any] = []
    given = _Stage.settle
    monkeypatch.setattr(_Stage, "settle", settle)
    with pytest.raises(SimulationFailed, match=r"no operator holds an epoch that is over\n.*1: shop/stage"):
        binding_what_is_gone(Act(5.0, "restore", "", 1)).run()


def epochs(world: World, name: str) -> list[int]:
    """The epochs of the rows of a table."""
    return list(world.lake.rows(name)["_epoch"].to_pylist())


@pytest.mark.parametrize(
    "place", ["after begin backfill", "after record unit", "large: commit", "before end backfill"]
)
def test_a_table_that_comes_late_gets_its_past_at_once_and_exactly(place: str) -> None:
    world = lived(Fault("crash", place, 1), acts=(Act(0.0, "outputs", "large", 4),), unit=3)
    assert [life.dead for life in world.lives].count(True) == 1
    units = [what for _who, what in notes(world) if what == "after record unit"]
    assert len(units) == 3, "one for each append by then, and none twice"
    first, *_ = world.lake.tables["large"].commits
    assert (first.lower, len({*epochs(world, "orders")} & {*range(first.upper)})) == (0, 3)
    assert {*epochs(world, "large")} == {*epochs(world, "orders")}


def test_worlds_with_late_outputs_give_them_their_past_in_units_that_most_seeds_make_small() -> None:
    facts = Ground.of(make_flow).facts
    late = [plan for seed in range(40) if (plan := planned(seed, facts, kinds=("outputs",))).acts]
    units = {plan.unit for plan in late if any(act.what == "outputs" for act in plan.acts)}
    assert {0, 2, 5} <= units
    assert {plan.unit for plan in late if all(act.what != "outputs" for act in plan.acts)} == {0}


def test_an_output_that_was_taken_out_goes_on_from_where_it_was() -> None:
    world = lived(acts=(Act(1.5, "outputs", "large", 3),))
    assert [len(life.without) for life in world.lives] == [0, 1, 0]
    assert not any("backfill" in what for _who, what in notes(world))
    assert world.lake.tables["large"].upper == world.lake.tables["orders"].upper


def test_a_flow_without_outputs_for_a_source_is_not_run() -> None:
    world = lived(acts=tuple(Act(0.0, "outputs", name, 4) for name in ("large", "orders")))
    assert {len(life.without) for life in world.lives} == {0, 1}
