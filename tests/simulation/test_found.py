"""What simulation has found, each as the shortest life that showed it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.simulation import pushed, reference, rotated, unseen
from tests.simulation.reference import make_flow
from tests.simulation.test_simulate import make_files

from tidegauge.errors.simulation import SimulationFailed
from tidegauge.errors.store import LeaseLost
from tidegauge.remap.store.connect import Database
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, Plan, planned
from tidegauge.testing.simulation.store import Memory, SimulatedStore
from tidegauge.testing.simulation.tables.lake import LakeCommit, LakeFile, LakeTable
from tidegauge.testing.simulation.world import World


def _first(plans: Iterable[Plan], so: Callable[[World], bool]) -> World:
    """Return the first world that comes to a situation. Seeds decide who is next, and how long others wait."""
    for plan in plans:
        world = World(Ground.of(make_flow), plan)
        world.run()
        if so(world):
            return world
    raise AssertionError("none of these worlds comes to the situation that this test is about")


def test_a_staged_file_that_cannot_be_removed_now_does_not_end_the_run() -> None:
    acts = [Act(0.2, "append", "orders", 5), Act(0.3, "append", "orders", 3), Act(0.4, "append", "orders", 4)]
    faults = [Fault("error", "orders: written", 2), Fault("error", "orders: discard", 1)]
    faults += [Fault("error", "large: discard", 1)]
    world = World(Ground.of(make_flow), Plan(1, 3.0, tuple(acts), tuple(faults), calm=True))
    world.run()
    assert [life.name for life in world.lives] == ["A"]
    assert world.trace.text().count("!! error") == 2


def test_files_that_are_bound_and_whose_mount_is_away_are_waited_for() -> None:
    acts = [Act(0.7, "append", "lines", 3), Act(1.9, "append", "lines", 2), Act(3.05, "away", "lines", 40)]
    faults = [Fault("crash", "before stage", 2), Fault("crash", "before stage", 3)]
    world = World(Ground.of(make_files), Plan(1, 50.0, tuple(acts), tuple(faults), calm=True))
    world.run()
    assert world.lake.rows("lines").num_rows == 5


def test_a_run_stops_although_an_output_is_away_that_lacks_nothing_published() -> None:
    acts = [Act(0.97, "append", "orders", 3), Act(2.29, "stop", "", 5)]
    faults = [Fault("pause", "orders: answer", 1, 31.0), Fault("slow", "before append bindings", 1, 1.0)]
    faults += [Fault("error", "large: sweep", 2), Fault("error", "orders: open", 1)]
    world = World(Ground.of(make_flow), Plan(2053, 3.3, tuple(acts), tuple(faults), calm=True))
    world.run()
    assert world.lives[0].error is None


def test_what_upstream_was_told_is_told_again_where_the_connection_was_cut_behind_it() -> None:
    acts = [Act(0.1, "late", "feed", 40), Act(0.3, "append", "feed", 3), Act(4.0, "cut", "feed")]
    world = World(Ground.of(pushed.make_flow), Plan(1, 6.0, tuple(acts), (), calm=True))
    world.run()
    assert sum(world.upstreams["feed"].told().values()) == 3


def test_what_was_published_right_before_a_crash_is_acknowledged_although_nothing_new_comes() -> None:
    acts = [Act(0.5, "append", "orders", 3), Act(0.5, "append", "clicks", 3)]
    for nth in range(1, 4):
        plan = Plan(1, 2.0, tuple(acts), (Fault("crash", "after publish", nth),), calm=True)
        world = World(Ground.of(make_flow), plan)
        world.run()
        assert len(world.lives) > 1 or world.trace.text().count("!! crash") == 0


def test_a_run_that_is_told_to_stop_before_it_begins_publishes_what_all_tables_hold() -> None:
    acts = [Act(0.5, "append", "orders", 3), Act(40.0, "stop")]
    faults = (Fault("crash", "before publish", 2), Fault("slow", "clicks: sweep", 2, 20.0))
    world = World(Ground.of(make_flow), Plan(1, 50.0, tuple(acts), faults, calm=True))
    world.run()
    [stopped] = [life for life in world.opened if life.late]
    assert stopped.gone == stopped.began + 20.0, (
        "clicks has nothing of the epoch, so nothing is left to be done for it"
    )


def test_a_driver_that_ends_takes_the_database_from_nobody_who_is_in_a_transaction() -> None:
    memory = Memory()
    ends = Database(memory.url, backend=lambda _address: SimulatedStore(memory, lambda _call: None))
    store = SimulatedStore(memory, lambda _call: ends.close())
    goes_on = Database(memory.url, backend=lambda _address: store)
    goes_on.write(lambda connection: store.deliver(connection, [("CREATE TABLE t (n INTEGER)", [()])]))


def test_a_topic_that_is_made_anew_while_it_is_read_is_not_taken_for_the_one_before() -> None:
    acts = [Act(0.5, "append", "orders", 2), Act(2.0, "recreate", "orders", 1)]
    acts += [Act(2.1 + number / 10, "append", "orders", 5) for number in range(8)]
    world = World(
        Ground.of(make_flow), Plan(1, 4.0, tuple(acts), (Fault("slow", "orders: read", 1, 5.0),), calm=True)
    )
    world.run()
    assert world.ledger.incarnation("orders") == 1
    lost = world.memory.connection.execute("SELECT sum(upper - lower) FROM losses").fetchone()
    assert lost == (2,), "what was read of it could be of either topic"
    assert world.lake.rows("orders").num_rows == 40


def test_a_topic_that_was_made_anew_is_not_told_what_the_one_before_was_to_be_told() -> None:
    acts = [Act(0.5, "append", "clicks", 2), Act(1.2, "recreate", "clicks", 1), Act(4.0, "append", "clicks", 1)]
    faults = (Fault("slow", "after publish", 1, 0.5), Fault("slow", "after publish", 2, 0.5))
    world = World(Ground.of(make_flow), Plan(1, 5.0, tuple(acts), faults, calm=True))
    world.run()
    assert world.upstreams["clicks"].told() == {"clicks#2-0": 1}


@pytest.mark.parametrize("lost", [(1, 2), (1, 3), (2, 4), tuple(range(1, 6))])
def test_commits_whose_answers_are_lost_are_known_as_our_own_however_often(lost: tuple[int, ...]) -> None:
    acts = [Act(0.3 + tick, "append", source, 3) for tick in range(5) for source in ("orders", "clicks")]
    faults = [Fault("lost", "large: answer", nth) for nth in lost]
    world = World(Ground.of(make_flow), Plan(1, 6.0, tuple(acts), tuple(faults), calm=True))
    world.run()
    assert world.trace.text().count("!! lost") == len(lost)
    assert len(world.lives) == 1
    opened = [what for _at, _who, what in world.trace.events if what == "large: open"]
    assert len(opened) == 1, "the run does not begin anew"


def test_offsets_whose_late_commit_takes_a_group_back_are_committed_again_although_nothing_new_comes() -> None:
    acts = [Act(0.1, "late", "orders", 5), *(Act(0.5 + tick, "append", "orders", 3) for tick in range(4))]
    world = World(Ground.of(make_flow), Plan(1, 6.0, tuple(acts), (), calm=True))
    world.run()
    assert sum(world.upstreams["orders"].told().values()) == 12


def test_a_driver_that_wakes_up_in_the_middle_of_a_commit_of_offsets_takes_the_group_back_for_a_while_only() -> None:
    acts = [Act(0.5, "append", "orders", 3), *(Act(1.5 + tick / 2, "append", "orders", 3) for tick in range(9))]
    faults = (Fault("pause", "orders: commit offsets", 2, 60.0),)
    world = World(Ground.of(make_flow), Plan(1, 70.0, tuple(acts), faults, calm=True))
    world.run()
    assert len(world.lives) > 1
    assert sum(world.upstreams["orders"].told().values()) == 30


def test_a_run_stops_although_the_output_of_a_failed_source_still_lacks_what_was_bound_before() -> None:
    acts = [Act(0.172, "append", "orders", 3), Act(0.452, "append", "clicks", 2)]
    acts += [Act(1.177, "recreate", "orders", 2), Act(2.23, "stop", "", 5)]
    faults = (Fault("error", "orders: lost", 2), Fault("error", "clicks: sweep", 1))
    world = World(Ground.of(make_flow), Plan(359, 8.0, tuple(acts), faults))
    world.run()
    assert world.lives[0].over, "told to stop, it did"


def test_a_backup_keeps_what_no_table_holds_also_of_a_topic_that_was_made_anew_since() -> None:
    acts = [Act(0.94, "append", "clicks", 1), Act(5.59, "recreate", "clicks", 1), Act(18.27, "restore", "", 10)]
    faults = (Fault("slow", "before register", 2, 40.0), Fault("slow", "worker step", 16, 5.0))
    world = World(Ground.of(make_flow), Plan(10000539, 30.0, tuple(acts), faults))
    world.run()
    assert "put back" in world.trace.text()
    assert world.ledger.incarnation("clicks") == 1


def test_a_store_from_before_a_compaction_does_not_tell_apart_what_a_late_table_has_as_one_epoch() -> None:
    acts = [Act(0.0, "outputs", "orders", 5), Act(0.579, "append", "orders", 1), Act(1.87, "append", "clicks", 1)]
    acts += [Act(3.941, "let go", "", 5), Act(4.329, "restore", "", 10)]
    faults = [Fault("slow", "orders: closed", 2, 0.1), Fault("error", "clicks: open", 1)]
    faults += [Fault("torn", "orders: closed", 1)]
    plan = Plan(1005180, 30.0, tuple(acts), tuple(faults), calm=True, unit=20)
    world = World(Ground.of(make_flow), plan)
    world.run()
    assert "put back" in world.trace.text()
    assert world.ledger.since == 2


def test_a_driver_that_wakes_up_when_its_staged_files_were_swept_ends_for_the_lease_that_it_lost() -> None:
    acts = [Act(0.5, "append", "orders", 3), Act(2.0, "away", "orders", 90)]
    world = World(Ground.of(make_flow), Plan(1, 100.0, tuple(acts), (Fault("pause", "large: commit", 1, 70.0),)))
    world.run()
    assert isinstance(world.lives[0].error, LeaseLost)


def test_a_backup_that_knows_no_epoch_lacks_the_first_one_too() -> None:
    acts = (Act(3.0, "append", "lines", 2), Act(3.1, "restore", "", 5))
    faults = (Fault("crash", "lines: written", 1), Fault("slow", "lines: sweep", 1, 5.0))
    world = World(Ground.of(make_files), Plan(1, 12.0, acts, faults))
    world.run()
    assert world.lake.rows("lines").num_rows == 2


def test_a_loss_that_is_accepted_after_its_epoch_was_compacted_is_one_of_that_epoch() -> None:
    """Nobody resumes the source while its topic is gone, and meanwhile its epochs are compacted."""
    acts = [Act(3.0, "append", "orders", 3), Act(4.5, "recreate", "orders", 30), Act(5.0, "restore", "", 1)]
    acts += [Act(7.0, "append", "clicks", 5), *(Act(at, "let go", "", 5) for at in (12.0, 19.0, 26.0))]
    faults = (Fault("crash", "before stage", 1),)
    world = _first(
        (Plan(seed, 40.0, tuple(acts), faults, calm=True) for seed in range(1, 12)), _is_lost_to_a_later_one
    )
    assert world.lake.rows("clicks").num_rows == 10


def _is_lost_to_a_later_one(world: World) -> bool:
    """Whether what is lost was bound to an epoch that counts as one with a later one, and is noted at that."""
    found = world.memory.ask("SELECT l.epoch, f.since FROM losses l, flows f")
    return bool(found) and all(
        gap == since and any(any(world.ledger.ranges("orders", epoch, whole=True)) for epoch in range(since))
        for gap, since in found
    )


def test_offsets_that_a_driver_commits_after_its_end_while_the_last_one_stops_stay_where_they_came_to() -> None:
    """They arrive in the very instant at which a world that still waits for them lets its last driver stop."""
    acts = [Act(at, "append", source, 3) for at in (0.5, 1.5) for source in ("orders", "clicks")]
    acts += [Act(8.8, "recreate", "orders", 10), Act(9.5, "append", "clicks", 3), Act(29.0, "append", "clicks", 3)]

    def plan(seed: int, seconds: float) -> Plan:
        return Plan(seed, 30.0, tuple(acts), (Fault("slow", "clicks: commit offsets", 2, seconds),))

    def in_time(seed: int) -> Plan:
        world = World(Ground.of(make_flow), plan(seed, 100.0))
        world.run()
        [began] = [at for at, _who, what in world.trace.events if what.startswith("!! slow")]
        [*_, ends] = [at for at, _who, what in world.trace.events if what == "before release lease"]
        return plan(seed, ends - began)

    def is_told_by_the_first(world: World) -> bool:
        [*_, last] = [who for _at, who, what in world.trace.events if what == "clicks: acknowledged"]
        return last.startswith("A.") and world.lingering == {"A"}

    _first(map(in_time, range(12)), is_told_by_the_first)


def test_a_driver_whose_store_went_back_before_its_first_commit_does_not_commit_what_the_store_cannot_tell() -> None:
    acts = (Act(0.3, "append", "orders", 3), Act(0.5, "rewind", "", 1))
    for seed in range(4):  # of which some have the lease in the backup
        world = World(
            Ground.of(make_flow), Plan(seed, 9.0, acts, (Fault("slow", "before stage", 1, 1.0),), calm=True)
        )
        world.run()
        assert world.lake.rows("orders").num_rows == 3


def test_a_failure_that_a_backup_brings_back_and_a_table_has_got_past_is_none() -> None:
    acts = [Act(4.746, "append", "lines", 2), Act(6.345, "append", "lines", 1), Act(6.457, "hold", "", 1)]
    acts += [Act(7.633, "spoil", "lines", 40), Act(7.739, "let go", "", 1), Act(13.247, "spoil", "lines", 1)]
    acts += [Act(22.87, "restore", "", 5)]
    World(Ground.of(rotated.make_flow), Plan(84051, 28.133, tuple(acts), ())).run()


def test_a_record_that_was_skipped_and_compacted_since_is_lost_to_its_own_epoch_alone() -> None:
    acts = [Act(0.231, "append", "lines", 5), Act(5.66, "spoil", "lines", 2), Act(25.971, "append", "lines", 4)]
    acts.append(Act(28.365, "let go", "", 5))
    world = World(Ground.of(unseen.make_flow), Plan(9, 30.0, tuple(acts), (Fault("error", "lines: lost", 2),)))
    world.run()
    assert world.ledger.since > 3
    assert world.lake.rows("lines").num_rows == 9


def test_a_torn_file_that_is_saved_anew_before_anything_of_it_was_bound_is_one_partition() -> None:
    acts = (Act(0.0, "transact", "lines", 1), Act(2.5, "save", "lines", 1))
    for seed in range(3):
        world = World(Ground.of(make_files), Plan(seed, 5.0, acts, (), calm=True))
        world.run()
        assert world.lake.rows("lines").num_rows == 2


def test_a_failure_whose_records_were_skipped_is_over_when_the_tables_tell_that_to_a_recovered_store() -> None:
    acts = [Act(0.38, "append", "clicks", 3), Act(1.452, "spoil", "orders", 10), Act(5.6, "spoil", "clicks", 1)]
    acts += [Act(10.363, "rewind", "", 10), Act(11.302, "rival", "", 5), Act(13.095, "away", "clicks", 40)]
    acts += [Act(16.702, "spoil", "orders", 5)]
    World(Ground.of(make_flow), Plan(31, 30.0, tuple(acts), ())).run()


def test_a_late_output_that_begins_with_a_recreated_topic_lacks_nothing_of_the_old_one() -> None:
    """The new topic is empty, so its table never gets a commit that would say where it begins."""
    acts = [Act(0.0, "outputs", "orders", 40), Act(2.0, "append", "orders", 4), Act(6.0, "recreate", "orders", 2)]
    world = World(Ground.of(make_flow), Plan(1, 20.0, tuple(acts), (), calm=True))
    world.run()
    assert world.ledger.incarnation("orders") == 1
    assert world.lake.upper("orders") == 0


def _refilled_while_the_store_goes_back(seed: int) -> World:
    """The store goes back to before a topic was recreated, while `large` gets its past: that of the new one."""
    acts = [Act(0.0, "outputs", "large", 8), Act(0.5, "append", "orders", 4), Act(3.5, "rewind", "", 7)]
    acts += [Act(4.0, "recreate", "orders", 1), *(Act(6.5 + tick, "append", "orders", 4) for tick in range(3))]
    faults = (Fault("slow", "large: commit", 1, 5.0),)
    return World(Ground.of(make_flow), Plan(seed, 20.0, tuple(acts), faults, calm=True))


@pytest.mark.parametrize("seed", [2, 4])
def test_a_late_table_begins_with_the_topic_that_its_driver_knew_although_the_store_knows_another_by_then(
    seed: int,
) -> None:
    world = _refilled_while_the_store_goes_back(seed)
    world.run()
    told = [what for _at, _who, what in world.trace.events if what in ("put back", "large: committed")]
    assert told[:2] == ["put back", "large: committed"]
    assert world.ledger.began("orders") == world.checks.late.first("large") == 1
    assert 0 in world.lake.rows("orders")["_epoch"].to_pylist()


@pytest.mark.parametrize("seed", [2, 4])
def test_a_late_table_that_lacks_rows_of_the_topic_that_its_driver_knew_breaks_a_law(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = LakeTable.append

    def append(table: LakeTable, commit: LakeCommit, columns: pa.Schema) -> None:
        for file in commit.put if commit.output.output == "large" and not table.commits else ():
            staged = table.staged[file.path]
            assert staged is not None
            later = tuple(batch.filter(pc.greater(batch["_epoch"], file.first_epoch)) for batch in staged.batches)
            table.staged[file.path] = LakeFile(file, later)
        whole(table, commit, columns)

    monkeypatch.setattr(LakeTable, "append", append)
    with pytest.raises(SimulationFailed, match="an epoch has the rows that its bindings say"):
        _refilled_while_the_store_goes_back(seed).run()


def test_a_late_table_lacks_the_old_topic_again_if_the_store_goes_back_to_that() -> None:
    """Its source had failed in the backup, and recovery takes that for over: `orders` holds the epoch of it."""
    ground = Ground.of(make_flow)
    world = World(ground, planned(400088, ground.facts, kinds=reference.FAULTS))
    world.run()
    assert "put back" in world.trace.text()


def test_a_driver_whose_store_goes_back_to_before_a_new_output_while_it_begins_ends_for_the_lease_that_it_lost() -> (
    None
):
    acts = (Act(0.0, "outputs", "large", 4), Act(3.0, "rewind", "", 4))
    faults = (Fault("slow", "after register", 2, 5.0),)  # whose driver begins between 4 and 7
    _first(
        (Plan(seed, 20.0, acts, faults, calm=True) for seed in range(12)),
        lambda world: isinstance(world.lives[1].error, LeaseLost),
    )


def test_a_past_that_ends_where_its_source_fails_is_committed_when_the_store_knows_that_it_failed() -> None:
    acts = [Act(0.789, "stop", "", 5), Act(2.421, "append", "orders", 5), Act(2.947, "append", "orders", 4)]
    acts += [Act(3.21, "spoil", "orders", 5), Act(3.562, "append", "clicks", 1), Act(3.683, "transact", "clicks", 4)]
    acts += [Act(3.802, "append", "clicks", 2), Act(5.408, "rewind", "", 1), Act(10.118, "append", "orders", 4)]
    acts += [Act(10.156, "rewind", "", 5), Act(12.523, "transact", "orders", 2), Act(12.78, "rewind", "", 5)]
    acts += [Act(17.449, "outputs", "large", 2), Act(17.827, "append", "clicks", 4), Act(17.857, "rewind", "", 2)]
    acts += [Act(17.894, "rival", "", 5), Act(18.095, "spoil", "orders", 40), Act(18.683, "append", "clicks", 4)]
    acts.append(Act(21.597, "append", "orders", 3))
    faults = (Fault("crash", "orders: planned", 1), Fault("slow", "orders: open", 1, 1.0))
    World(Ground.of(make_flow), Plan(2113, 30.0, tuple(acts), faults, unit=20)).run()


def test_an_output_whose_source_goes_on_is_waited_for_once_the_driver_has_heard_of_its_commit() -> None:
    """The commit falls into a transaction that publishes; the driver hears of it only after the next one."""
    ground = Ground.of(make_flow)
    world = World(ground, planned(6035, ground.facts, kinds=reference.FAULTS))
    world.run()
    assert {str(life.error)[:7] for life in world.lives if life.error is not None} >= {"TG-0502"}


def test_tables_part_where_drivers_go_on_without_one_of_them_on_a_store_that_went_back() -> None:
    """Of `orders` one driver has only `large`. The next has all but that, and the store of before its rows."""
    acts = [Act(0.0, "outputs", "orders", 6), Act(0.0, "outputs", "large", 90), Act(3.0, "rewind", "", 6)]
    acts += [Act(at, "append", "orders", 3) for at in (3.5, 4.5, 5.5, 9.5, 12.5)]
    faults = (Fault("slow", "before acquire lease", 2, 5.0),)  # between 6 and 9, when the store goes back
    world = _first(
        (Plan(seed, 60.0, tuple(acts), faults, calm=True) for seed in range(12, 60)),
        lambda world: world.parted and 1 < world.ledger.published <= world.lake.upper("large"),
    )
    assert "large" in world.checks.late.names


def test_a_bad_record_of_an_epoch_that_is_bound_anew_is_not_in_a_table_that_holds_what_was_bound_before() -> None:
    acts = [Act(0.174, "rewind", "", 2), Act(0.562, "append", "clicks", 3), Act(0.801, "append", "orders", 5)]
    acts += [Act(1.106, "spoil", "orders", 40), Act(1.996, "hold", "", 2), Act(2.256, "let go", "", 1)]
    acts.append(Act(4.483, "outputs", "large", 1))
    faults = (Fault("crash", "after commit output", 1),)
    world = World(Ground.of(make_flow), Plan(7831, 30.0, tuple(acts), faults, unit=20))
    world.run()
    assert "large" in world.checks.late.names
