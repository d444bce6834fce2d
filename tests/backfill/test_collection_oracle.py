"""The strategies of others for a table that changes while it is read come to the rows that its log by epoch gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.backfill.collection import (
    Change,
    Scan,
    Tables,
    after,
    arrangement,
    as_one,
    in_one,
    snapshot,
    view,
)

SHARDS = 3


@st.composite
def histories(draw: st.DrawFn) -> tuple[Tables, list[list[Change]]]:
    """Return a table, and the changes of some epochs: rows that come, go, and get another value or key."""
    keys = st.integers(0, 29)  # a key is of the shard of its remainder
    tables: Tables = {shard: {} for shard in range(SHARDS)}
    for key in draw(st.sets(keys)):
        tables = after(tables, [Change(key % SHARDS, None, (key, 0))])
    start, epochs = tables, list[list[Change]]()
    for _ in range(draw(st.integers(0, 8))):
        changes: list[Change] = []
        for _ in range(draw(st.integers(0, 4))):
            shard = draw(st.integers(0, SHARDS - 1))
            here = tables[shard]
            before = draw(st.none() | st.sampled_from(sorted(here.items()))) if here else None
            free = [key for key in range(shard, 30, SHARDS) if key not in here or (before and key == before[0])]
            new = draw(st.none() | st.tuples(st.sampled_from(free), st.integers(1, 9))) if free else None
            changes.append(Change(shard, before, new))
            tables = after(tables, changes[-1:])
        epochs.append(changes)
    return start, epochs


@given(histories(), st.integers(1, 40))
def test_a1_any_strategy_gives_what_any_other_gives(history: tuple[Tables, list[list[Change]]], budget: int) -> None:
    tables, later = history
    expected = tables
    for changes in later:
        expected = after(expected, changes)
    rows = {(key, value): 1 for table in expected.values() for key, value in table.items()}
    assert view(snapshot(tables, later)) == rows
    assert view(arrangement(tables, later, budget=budget)) == rows
    assert view(arrangement(as_one(tables), in_one(later), budget=budget)) == rows


@given(histories(), st.integers(1, 40))
def test_a6_an_epoch_after_every_row_starves_no_scan(history: tuple[Tables, list[list[Change]]], budget: int) -> None:
    tables, _later = history
    scan = Scan.of(tables)
    for _ in range(sum(map(len, tables.values())) + 1):
        scan, _rows = scan.on(tables, budget)
    assert scan.done == tables.keys()


def test_a2_a_scan_goes_on_where_it_was() -> None:
    tables: Tables = {shard: dict.fromkeys(range(20), 0) for shard in range(4)}
    scan = Scan({0: 9, 1: 3, 2: None, 3: 4}, frozenset({1}))
    rows = arrangement(tables, [], budget=7, scan=scan)
    assert [row[0] for _sign, row in rows] == [*range(10, 20), *range(20), *range(5, 20)]


def test_a4_changes_of_keys_that_the_scan_has_yet_to_reach_are_left_to_it() -> None:
    scan = Scan({0: 5, 1: None, 2: None}, frozenset({1}))
    changes = [Change(shard, None, (key, 1)) for shard, key in ((0, 3), (0, 7), (1, 9), (2, 1))]
    assert [row[0] for _sign, row in scan.marked(changes)] == [3, 9]


@pytest.mark.parametrize(("at", "expected"), [(5, [(-1, (4, 0))]), (6, [(-1, (4, 0)), (1, (6, 0))]), (3, [])])
def test_a5_a_row_that_moves_is_judged_by_both_of_its_keys(at: int, expected: list[object]) -> None:
    assert Scan({0: at}).marked([Change(0, (4, 0), (6, 0))]) == expected
