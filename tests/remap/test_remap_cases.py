"""Cases of the remap table that are not of one question alone, with the values that the reference gives."""

from __future__ import annotations

import pytest

from tidegauge.dataflow import Antichain
from tidegauge.errors.store import NotYetBound
from tidegauge.remap.frontier import GAUGE, ORIGIN, Frontier
from tidegauge.remap.table import RemapTable


def test_t01_when_the_source_is_sealed_from_the_beginning_everything_is_in_epoch_0() -> None:
    table = RemapTable("s")
    with pytest.raises(NotYetBound):
        table.epoch_of("a", 0)
    table.append(0, ORIGIN.seal())
    assert (table.epoch_of("a", 0), table.epoch_of("never seen", 10**12)) == (0, 0)
    assert (table.slices(0, 1), table.inverse(1), table.inverse(0)) == ([], ORIGIN.seal(), ORIGIN)


def test_t17_a_snapshot_is_in_epoch_0_with_what_rewinds_it_and_each_change_in_the_epoch_that_binds_it() -> None:
    table = RemapTable("wal")
    for epoch, lsn in enumerate([1, 111, 116, 131]):
        table.append(epoch, Frontier({"wal": lsn}))
    changes = [("a", 0, +1), ("b", 0, +1), ("a", 110, -1), ("c", 115, +1), ("d", 130, +1)]
    views = [set[str]() for _ in range(table.upper)]
    for row, lsn, change in changes:
        for view in views[table.epoch_of("wal", lsn) :]:
            view.add(row) if change > 0 else view.remove(row)
    assert views == [{"a", "b"}, {"b"}, {"b", "c"}, {"b", "c", "d"}]


def test_t21_readings_of_different_partitions_do_not_compare_and_one_behind_both_swallows_them() -> None:
    one, other, both = Frontier({"p0": 5}), Frontier({"p1": 5}), Frontier({"p0": 5, "p1": 5})
    assert not one.less_equal(other)
    assert not other.less_equal(one)
    assert Antichain([one, other], GAUGE).insert(both) == Antichain([one, other], GAUGE)
    assert list(Antichain([one, other], GAUGE).insert(ORIGIN)) == [ORIGIN]
    lets_come = Antichain([one, other], GAUGE)
    times = [Frontier({"p0": 6}), both, Frontier({"p0": 4, "p1": 4}), ORIGIN]
    assert [lets_come.less_equal(time) for time in times] == [True, True, False, False]
