"""Stamping batches with their epoch, and moving a frontier to the epochs that it completes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.errors.flow import ReservedColumn
from tidegauge.reclock import EPOCH, frontier_to_epoch, stamp
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.table import RemapTable
from tidegauge.testing.strategies import RemapHistory, frontiers, remap_histories


def test_t04_a_frontier_is_reclocked_to_the_first_epoch_that_it_does_not_complete() -> None:
    table = RemapTable("s")
    table.append(1000, Frontier({"1": 10}))
    table.append(2000, Frontier({"1": 10, "2": 10}))
    one, both = Frontier({"1": 10}), Frontier({"1": 10, "2": 10})
    assert frontier_to_epoch(table, ORIGIN) == 1000
    assert frontier_to_epoch(table, Frontier({"1": 9})) == 1000
    assert frontier_to_epoch(table, one) == 2000
    assert frontier_to_epoch(table, both) == 2001
    table.advance(3001)
    assert frontier_to_epoch(table, both) == 3001


def test_t10_the_walk_of_a_frontier_while_bindings_arrive() -> None:
    table, walk = RemapTable("s", upper=1), [ORIGIN]
    found = [frontier_to_epoch(table, ORIGIN)]
    table.append(1000, Frontier({"1": 10}))
    table.append(2000, Frontier({"1": 10, "2": 10}))
    walk = [ORIGIN, Frontier({"1": 9}), Frontier({"1": 10}), Frontier({"1": 10, "2": 10})]
    found += [frontier_to_epoch(table, at) for at in walk]
    table.advance(3001)
    found.append(frontier_to_epoch(table, walk[-1]))
    assert found == [1, 1000, 1000, 2000, 2001, 3001]


def test_t16_a_seal_is_complete_only_when_the_source_is() -> None:
    table = RemapTable("s")
    table.append(0, Frontier({"p": 5}))
    table.append(1, Frontier({"p": 5}, sealed=True))
    assert frontier_to_epoch(table, Frontier({"p": 5})) == 1
    assert frontier_to_epoch(table, Frontier({"p": 5}, sealed=True)) == 2


@settings(deadline=None)
@given(remap_histories(min_size=0, max_size=6), frontiers())
def test_a_frontier_completes_exactly_the_epochs_that_are_bound_before_it(
    history: RemapHistory, frontier: Frontier
) -> None:
    table = history.table()
    waiting = [e for e in range(table.upper) if not table.frontier_at(e).less_equal(frontier)]
    assert frontier_to_epoch(table, frontier) == min(waiting, default=table.upper)


@settings(deadline=None)
@given(st.integers(0, 50), st.integers(0, 2**63 - 1))
def test_a_stamp_is_one_constant_column_after_the_others(rows: int, epoch: int) -> None:
    batch = pa.record_batch({"id": pa.array(range(rows), pa.int32())})
    stamped = stamp(batch, epoch)
    assert stamped.schema == pa.schema([pa.field("id", pa.int32()), EPOCH])
    assert stamped.column("_epoch").to_pylist() == [epoch] * rows
    assert stamped.column("id").equals(batch.column("id"))


def test_the_other_columns_are_shared_not_copied() -> None:
    batch = pa.record_batch({"id": list(range(1000))})
    addresses = [buffer.address for buffer in stamp(batch, 3).column("id").buffers() if buffer is not None]
    assert addresses == [buffer.address for buffer in batch.column("id").buffers() if buffer is not None]


def test_a_batch_that_has_an_epoch_is_not_stamped_again() -> None:
    with pytest.raises(ReservedColumn):
        stamp(stamp(pa.record_batch({"id": [1]}), 3), 3)
