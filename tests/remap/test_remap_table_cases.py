"""The named cases of the remap table, with the values that the reference gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.store import (
    DamagedStore,
    EpochBelowSince,
    EpochNotMinted,
    FrontierRegressed,
    NotYetBound,
)
from tidegauge.remap.binding import Slice
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.table import LARGEST, RemapTable


def table_of(bindings: dict[int, dict[str, int]], *, upper: int | None = None) -> RemapTable:
    table = RemapTable("s")
    for epoch, positions in bindings.items():
        table.append(epoch, Frontier(positions))
    table.advance(upper or table.upper)
    return table


def test_t02_records_before_the_frontier_are_in_and_the_one_at_it_is_not() -> None:
    table = table_of({1000: {"p0": 4}})
    assert [table.epoch_of("p0", n) for n in (1, 1, 3)] == [1000, 1000, 1000]
    with pytest.raises(NotYetBound) as caught:
        table.epoch_of("p0", 4)
    assert caught.value.evidence == {"source": "s", "partition": "p0", "position": 4, "upper": 1001}


def test_t03_partitions_do_not_carry_each_other_in() -> None:
    table = table_of({1000: {"p0": 50}, 2000: {"p0": 50, "p1": 50}, 3000: {"p0": 100, "p1": 50}})
    assert (table.epoch_of("p0", 49), table.epoch_of("p0", 50), table.epoch_of("p1", 0)) == (1000, 3000, 2000)
    with pytest.raises(NotYetBound):
        table.epoch_of("p1", 50)


def test_t05_after_compaction_older_records_belong_to_since() -> None:
    table = table_of({1000: {"p0": 3}, 2000: {"p0": 5}}).compacted(1500)
    assert [table.epoch_of("p0", n) for n in (1, 2, 3, 4)] == [1500, 1500, 2000, 2000]


@pytest.mark.parametrize(
    ("since", "epoch", "expected"),
    [
        (0, 3001, {"p0": 7}),
        (0, 3000, {"p0": 5}),
        (0, 2500, {"p0": 5}),
        (0, 2001, {"p0": 5}),
        (0, 2000, {"p0": 3}),
        (0, 1, {}),
        (0, 0, {}),
        (1000, 2000, {"p0": 3}),
        (1000, 1000, {}),
        (2000, 2001, {"p0": 5}),
        (2001, 2001, {}),
        (2001, 3001, {"p0": 7}),
    ],
)
def test_t06_the_inverse_is_what_was_in_strictly_before(since: int, epoch: int, expected: dict[str, int]) -> None:
    table = table_of({1000: {"p0": 3}, 2000: {"p0": 5}, 3000: {"p0": 7}}).compacted(since)
    assert table.inverse(epoch) == Frontier(expected)


def test_t06_the_inverse_past_the_upper_is_not_known() -> None:
    with pytest.raises(EpochNotMinted):
        table_of({0: {"p0": 3}}).inverse(2)


def test_t12_the_first_binding_places_what_is_before_it_at_epoch_0_and_nothing_else() -> None:
    table = table_of({0: {"p0": 7}})
    assert table.epoch_of("p0", 6) == 0
    with pytest.raises(NotYetBound):
        table.epoch_of("p0", 8)
    assert table.upper == 1


def test_t13_a_frontier_that_goes_back_is_refused_and_changes_nothing() -> None:
    table = table_of({0: {"p0": 5, "p1": 1}})
    for behind in (Frontier({"p0": 4, "p1": 9}), Frontier({"p0": 9}), Frontier({"p0": 4, "p1": 1}, sealed=True)):
        with pytest.raises(FrontierRegressed):
            table.append(1, behind)
    assert (table.upper, table.frontier, len(table)) == (1, Frontier({"p0": 5, "p1": 1}), 2)


def test_t14_an_epoch_that_is_bound_is_not_bound_again() -> None:
    table = table_of({0: {"p0": 5}, 5: {"p0": 6}})
    with pytest.raises(InvalidArgument):
        table.append(4, Frontier({"p0": 7}))
    assert table.epoch_of("p0", 5) == 5


def test_t15_a_source_that_kept_its_frontier_adds_no_change() -> None:
    table = table_of({0: {"p0": 5}}, upper=10)
    assert (len(table), table.upper, table.frontier_at(9), table.slices(1, 10)) == (1, 10, Frontier({"p0": 5}), [])


def test_t16_a_seal_includes_everything_and_nothing_follows_it() -> None:
    table = table_of({0: {"p0": 5}})
    table.append(3, Frontier({"p0": 6}, sealed=True))
    assert (table.epoch_of("p0", 4), table.epoch_of("p0", 5)) == (0, 3)
    assert (table.epoch_of("p0", 10**9), table.epoch_of("other", 0)) == (3, 3)
    assert not table.frontier_at(2).sealed
    assert table.frontier_at(3) == Frontier({"p0": 6}, sealed=True)
    assert table.slices(3, 4) == [Slice("s", 3, "p0", 5, 6)]
    with pytest.raises(FrontierRegressed):
        table.append(4, Frontier({"p0": 7}))
    with pytest.raises(FrontierRegressed):
        table.append(4, Frontier({"p0": 7}, sealed=True))


def test_t16_a_source_can_be_sealed_without_having_moved() -> None:
    table = table_of({0: {"p0": 5}})
    table.append(1, table.frontier.seal())
    assert (table.sealed_at, len(table), table.slices(1, 2)) == (1, 1, [])


def test_t18_slices_are_sorted_by_epoch_then_partition() -> None:
    table = table_of({0: {"p1": 2, "p0": 5}, 1000: {"p0": 9, "p1": 2}, 2000: {"p2": 3, "p0": 9, "p1": 4}})
    assert [(s.epoch, s.partition, s.lower, s.upper) for s in table.slices(0, 2001)] == [
        (0, "p0", 0, 5),
        (0, "p1", 0, 2),
        (1000, "p0", 5, 9),
        (2000, "p1", 2, 4),
        (2000, "p2", 0, 3),
    ]


def test_t18_loaded_rows_need_not_be_sorted_within_an_epoch() -> None:
    table = RemapTable.load("s", [(0, "p1", 2), (0, "p0", 5)], upper=1)
    assert [s.partition for s in table.slices(0, 1)] == ["p0", "p1"]


def test_a_source_that_joined_late_is_at_its_origin_before() -> None:
    table = RemapTable("s", upper=57)
    table.append(57, Frontier({"p0": 5}))
    assert (table.frontier_at(0), table.frontier_at(56), table.inverse(57)) == (ORIGIN, ORIGIN, ORIGIN)
    assert table.epoch_of("p0", 0) == 57


def test_below_since_frontiers_and_slices_are_errors_not_guesses() -> None:
    table = table_of({1000: {"p0": 3}, 2000: {"p0": 5}}).compacted(1500)
    with pytest.raises(EpochBelowSince):
        table.frontier_at(1499)
    with pytest.raises(EpochBelowSince):
        table.slices(1499, 2001)
    assert table.slices(1500, 2001) == [Slice("s", 1500, "p0", 0, 3), Slice("s", 2000, "p0", 3, 5)]


def test_since_cannot_reach_the_upper_or_go_back() -> None:
    table = table_of({0: {"p0": 3}, 5: {"p0": 4}})
    with pytest.raises(InvalidArgument):
        table.compacted(6)
    with pytest.raises(InvalidArgument):
        table.compacted(3).compacted(2)


@pytest.mark.parametrize(
    ("rows", "upper"),
    [
        ([(1, "p0", 3), (0, "p0", 5)], 2),
        ([(0, "p0", 3), (1, "p0", 3)], 2),
        ([(0, "p0", 3), (1, "p0", 2)], 2),
        ([(1, "p0", 3), (1, "p0", 4)], 2),
        ([(0, "p0", -1)], 1),
        ([(2, "p0", 3)], 2),
        ([(0, "p0", 3.5)], 1),
        ([(0, "p0", 2**63)], 1),
    ],
)
def test_stored_rows_that_contradict_each_other_are_reported(rows: list[tuple[int, str, int]], upper: int) -> None:
    with pytest.raises(DamagedStore):
        RemapTable.load("s", rows, upper=upper)


def test_arguments_that_mean_nothing_are_refused() -> None:
    table = table_of({0: {"p0": 3}})
    for refused in (
        lambda: table.epoch_of("p0", -1),
        lambda: table.append(1, Frontier({"p0": LARGEST + 1})),
        lambda: table.slices(1, 0),
        lambda: table.advance(0),
        lambda: RemapTable("s", since=2, upper=1),
    ):
        with pytest.raises(InvalidArgument):
            refused()
    table.append(1, Frontier({"p0": LARGEST}))
    assert table.epoch_of("p0", LARGEST - 1) == 1


def test_epochs_and_positions_are_integers_of_any_width_and_are_never_rounded() -> None:
    table = table_of({0: {"p0": 3}, 1: {"p0": LARGEST}})
    asked: list[Callable[[Any], object]] = [
        lambda n: table.epoch_of("p0", n),
        table.frontier_at,
        table.inverse,
        lambda n: table.slices(n, 2),
        lambda n: table.slices(0, n),
        table.compacted,
        lambda n: table.view().advance(n + n),
        lambda n: table.view().append(n + n, table.frontier),
        lambda n: table.view().extend(n + n, {"p1": 1}),
        lambda n: table.view().extend(2, {"p1": int(n) if isinstance(n, np.integer) else n}),
        lambda n: RemapTable("s", since=n, upper=1),
        lambda n: RemapTable("s", upper=n),
    ]
    for ask in asked:
        ask(1)
        ask(np.int32(1))
        for wrong in (1.0, "1", None):
            with pytest.raises((InvalidArgument, TypeError) if wrong is None else InvalidArgument):
                ask(wrong)
    for no_partition in (0, None, b"p0", ["p0"]):
        with pytest.raises(InvalidArgument):
            table.epoch_of(no_partition, 1)  # type: ignore[arg-type]
    assert (table.upper, len(table)) == (2, 2)
