"""The plans of backfills and their units, in a store of either kind: each is made once, and they end together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.remap.store.raw import dump, sql

from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.store import CorruptStore, SinceHeld
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.rebuilding import Way
from tidegauge.remap.store import (
    Backfill,
    BackfillUnit,
    Lease,
    LeaseHolder,
    OutputSpec,
    Rebuilt,
    SourceSpec,
    Store,
    backfills,
)

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("_epoch", pa.int64())])
LATE = OutputSpec("orders", {"kind": "parquet", "path": "/lake/late"}, "/lake/late")


def unit(lower: int, upper: int) -> BackfillUnit:
    file = {
        "path": f"_staged/part-{lower}.parquet",
        "rows": 3,
        "bytes": 90,
        "first_epoch": lower,
        "last_epoch": lower,
    }
    return BackfillUnit(lower, upper, 32 * "e", COLUMNS, (file,), 3)


@pytest.fixture
def lease(store: Store, env: Env) -> Lease:
    """A flow with four epochs, all of them published."""
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    store.register(lease, sources={"orders": SourceSpec({})}, outputs={"late": LATE})
    for epoch in range(4):
        proposals = {"orders": Proposal(frontier=Frontier({"p0": epoch + 1}))}
        store.append(lease, expected=epoch, at=env.now(), proposals=proposals)
    store.publish(lease, expected=0, upper=4, at=env.now())
    return lease


def backfill(store: Store) -> Backfill | None:
    return store.load("shop").backfills.get("late")


def test_a_plan_keeps_its_cutover_whatever_is_bound_later(store: Store, lease: Lease, env: Env) -> None:
    made = store.begin_backfill(lease, "late", start=0, steps="s")
    assert (made.plan.start, made.plan.cutover, made.plan.mode, made.units) == (0, 3, "faithful", ())
    store.append(lease, expected=4, at=env.now(), proposals={"orders": Proposal(frontier=Frontier({"p0": 9}))})
    assert store.begin_backfill(lease, "late", start=0, steps="s") == made == backfill(store)


def test_units_are_kept_in_order_and_a_repetition_changes_nothing(store: Store, lease: Lease, url: str) -> None:
    store.begin_backfill(lease, "late", start=0, steps="s")
    store.add_unit(lease, "late", unit(0, 2))
    store.add_unit(lease, "late", unit(3, 4))
    before = dump(url)
    store.add_unit(lease, "late", unit(3, 4))
    assert dump(url) == before
    found = backfill(store)
    assert found is not None
    assert (found.units, found.reached) == ((unit(0, 2), unit(3, 4)), 4)
    assert store.begin_backfill(lease, "late", start=0, steps="s") == found


@pytest.mark.parametrize("span", [(0, 1), (1, 3), (3, 5), (3, 3)])
def test_a_unit_that_is_not_next_is_refused(store: Store, lease: Lease, span: tuple[int, int]) -> None:
    store.begin_backfill(lease, "late", start=0, steps="s")
    store.add_unit(lease, "late", unit(0, 2))
    with pytest.raises(InvalidArgument):
        store.add_unit(lease, "late", unit(*span))


def part(epoch: int, partition: str, position: int) -> BackfillUnit:
    """What is staged of an epoch up to a position of a partition."""
    return replace(unit(epoch, epoch), partition=partition, position=position)


def test_units_inside_an_epoch_are_kept_in_order_whatever_the_names_of_its_partitions(
    store: Store, lease: Lease, url: str
) -> None:
    store.begin_backfill(lease, "late", start=0, steps="s")
    made = [unit(0, 1), part(2, "P", 3), part(2, "p", 1), part(2, "p", 2), part(2, "ä", 1), unit(2, 3), unit(3, 4)]
    for one in made:
        store.add_unit(lease, "late", one)
        before = dump(url)
        store.add_unit(lease, "late", one)
        assert dump(url) == before, "a repetition changes nothing"
        found = backfill(store)
        assert found is not None
        assert found.units[-1] == one
        assert found.reached == one.upper
    found = backfill(store)
    assert found is not None
    assert found.units == tuple(made)


@pytest.mark.parametrize(
    "next_one",
    [
        part(2, "p", 2),  # that far it is
        part(2, "o", 9),
        unit(3, 4),  # the rest of the epoch is missing
        part(3, "p", 1),
        unit(2, 4),  # the rest of it and another one
        part(2, "", 0),
        replace(unit(2, 3), partition="q", position=1),  # the rest of it and a part of another one
    ],
)
def test_what_does_not_follow_a_part_of_an_epoch_is_refused(
    store: Store, lease: Lease, next_one: BackfillUnit
) -> None:
    store.begin_backfill(lease, "late", start=0, steps="s")
    store.add_unit(lease, "late", part(2, "p", 2))
    with pytest.raises(InvalidArgument):
        store.add_unit(lease, "late", replace(next_one, job="f" * 32))
    store.add_unit(lease, "late", unit(2, 3))


@pytest.mark.parametrize("next_one", [part(4, "p", 1), replace(unit(0, 2), partition="p", position=1)])
def test_a_part_of_an_epoch_beyond_the_plan_or_with_others_is_refused(
    store: Store, lease: Lease, next_one: BackfillUnit
) -> None:
    store.begin_backfill(lease, "late", start=0, steps="s")
    with pytest.raises(InvalidArgument):
        store.add_unit(lease, "late", next_one)


def test_without_a_plan_there_is_no_unit(store: Store, lease: Lease) -> None:
    with pytest.raises(InvalidArgument):
        store.add_unit(lease, "late", unit(0, 2))


def test_a_plan_begins_within_the_bound_epochs(store: Store, lease: Lease) -> None:
    with pytest.raises(InvalidArgument):
        store.begin_backfill(lease, "late", start=4, steps="s")


def test_other_steps_are_planned_anew(store: Store, lease: Lease, env: Env) -> None:
    store.begin_backfill(lease, "late", start=0, steps="s")
    store.add_unit(lease, "late", unit(0, 2))
    store.append(lease, expected=4, at=env.now(), proposals={"orders": Proposal(frontier=Frontier({"p0": 9}))})
    again = store.begin_backfill(lease, "late", start=0, steps="t")
    assert (again.plan.steps, again.plan.cutover, again.units) == ("t", 4, ())
    assert backfill(store) == again


def test_history_is_held_until_the_backfill_ends(store: Store, lease: Lease) -> None:
    store.begin_backfill(lease, "late", start=0, steps="s")
    assert [(held.owner, held.epoch) for held in store.holds("shop")] == [("backfill of late", 0)]
    with pytest.raises(SinceHeld):
        store.advance_since(lease, 2)
    store.add_unit(lease, "late", unit(0, 2))
    store.end_backfill(lease, "late")
    store.end_backfill(lease, "late")
    assert (backfill(store), store.holds("shop")) == (None, [])
    store.advance_since(lease, 2)


def test_a_plan_whose_start_was_folded_is_made_anew(store: Store, lease: Lease) -> None:
    store.begin_backfill(lease, "late", start=0, steps="s")
    store.add_unit(lease, "late", unit(0, 2))
    store.release("shop", "backfill of late")
    store.advance_since(lease, 2)
    again = store.begin_backfill(lease, "late", start=2, steps="s")
    assert (again.plan.start, again.units) == (2, ())
    assert [held.epoch for held in store.holds("shop")] == [2]


def test_ending_one_backfill_leaves_another(store: Store, lease: Lease) -> None:
    store.begin_backfill(lease, "late", start=0, steps="s")
    other = store.begin_backfill(lease, "later", start=1, steps="s")
    store.end_backfill(lease, "late")
    assert dict(store.load("shop").backfills) == {"later": other}
    assert [held.owner for held in store.holds("shop")] == ["backfill of later"]


def test_an_output_that_moves_to_another_table_loses_its_plan(store: Store, lease: Lease) -> None:
    store.begin_backfill(lease, "late", start=0, steps="s")
    store.add_unit(lease, "late", unit(0, 2))
    store.register(lease, sources={}, outputs={"late": LATE})
    assert backfill(store) is not None
    store.register(lease, sources={}, outputs={"late": OutputSpec("orders", {"kind": "parquet"}, "/lake/elsewhere")})
    assert (backfill(store), store.holds("shop")) == (None, [])


def test_a_store_that_is_restored_from_its_tables_has_no_plan(store: Store, lease: Lease) -> None:
    store.begin_backfill(lease, "late", start=0, steps="s")
    store.add_unit(lease, "late", unit(0, 2))
    rebuilt = Rebuilt(way=Way(4, ()), incarnation=lease.incarnation, upper=4, published=4, held={}, gaps={})
    store.restore(lease, rebuilt)
    assert (backfill(store), store.holds("shop")) == (None, [])


@pytest.mark.parametrize(
    "damage",
    ["UPDATE units SET files = '[]'", "UPDATE units SET columns = '{'", "UPDATE backfills SET mode = 'other'"],
)
def test_a_damaged_plan_is_said(store: Store, lease: Lease, url: str, damage: str) -> None:
    store.begin_backfill(lease, "late", start=0, steps="s")
    store.add_unit(lease, "late", unit(0, 2))
    sql(url, damage)
    with pytest.raises(CorruptStore):
        store.load("shop")


def test_a_unit_costs_the_same_however_many_there_are(store: Store, lease: Lease, env: Env) -> None:
    for epoch in range(4, 40):
        proposals = {"orders": Proposal(frontier=Frontier({"p0": epoch + 1}))}
        store.append(lease, expected=epoch, at=env.now(), proposals=proposals)
    store.begin_backfill(lease, "late", start=0, steps="s")
    read: list[int] = []
    original = backfills._unit

    def noted(row: Any) -> BackfillUnit:
        read.append(row.lower)
        return original(row)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backfills, "_unit", noted)
        for epoch in range(40):
            store.add_unit(lease, "late", unit(epoch, epoch + 1))
    assert read == list(range(39)), "the one before it"
