"""The laws of the remap table, each against the definition: T(e) holds the records that are not beyond R(e)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.store import EpochBelowSince, EpochNotMinted, NotYetBound
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.table import RemapTable
from tidegauge.testing.strategies import RemapHistory, remap_histories

MOST = 12


def records() -> st.SearchStrategy[tuple[str, int]]:
    return st.tuples(st.sampled_from(["p0", "p1", "p2", "p3", "never"]), st.integers(0, MOST))


@given(remap_histories(), records())
def test_pa_a_record_enters_at_the_first_epoch_that_is_beyond_it_and_stays(
    history: RemapHistory, record: tuple[str, int]
) -> None:
    table = history.table()
    members = [history.has(e, *record) for e in range(table.upper)]
    assert members == sorted(members)
    if not any(members):
        with pytest.raises(NotYetBound):
            table.epoch_of(*record)
    else:
        assert table.epoch_of(*record) == members.index(True)


@given(remap_histories(), st.data())
def test_pc_compaction_commutes_with_reclocking_for_every_since(history: RemapHistory, data: st.DataObject) -> None:
    table = history.table()
    since = data.draw(st.integers(0, table.upper - 1))
    compacted = table.compacted(since)
    for partition in ("p0", "p1", "p2", "p3"):
        for position in range(MOST):
            epoch = history.epoch_of(partition, position)
            if epoch is not None:
                assert compacted.epoch_of(partition, position) == max(epoch, since)
    for epoch in range(since, table.upper):
        assert compacted.frontier_at(epoch) == table.frontier_at(epoch)
    for epoch in range(since + 1, table.upper + 1):
        assert compacted.inverse(epoch) == table.inverse(epoch)
        assert compacted.slices(epoch, table.upper) == table.slices(epoch, table.upper)
    assert len(compacted) <= len(table)


@given(remap_histories(), records(), st.data())
def test_pd_a_record_enters_at_or_after_an_epoch_iff_it_is_beyond_the_inverse(
    history: RemapHistory, record: tuple[str, int], data: st.DataObject
) -> None:
    table = history.table()
    epoch = data.draw(st.integers(0, table.upper))
    before = table.inverse(epoch)
    enters = history.epoch_of(*record)
    beyond = not before.sealed and record[1] >= before[record[0]]
    assert beyond == (enters is None or enters >= epoch)


@given(remap_histories(), st.data())
def test_pe_slices_hold_exactly_the_records_of_their_epochs(history: RemapHistory, data: st.DataObject) -> None:
    table = history.table()
    lower = data.draw(st.integers(0, table.upper))
    upper = data.draw(st.integers(lower, table.upper))
    found = table.slices(lower, upper)
    by_range = [(s.epoch, s.partition, n) for s in found for n in range(s.lower, s.upper)]
    end = table.frontier
    by_record = [
        (epoch, partition, n)
        for partition in end
        for n in range(end[partition])
        if (epoch := history.epoch_of(partition, n)) is not None and lower <= epoch < upper
    ]
    assert sorted(by_range) == sorted(by_record)
    assert [(s.epoch, s.partition) for s in found] == sorted({(s.epoch, s.partition) for s in found})


@given(remap_histories(), st.data())
def test_pf_what_was_read_before_a_cut_and_what_is_read_after_it_make_the_whole(
    history: RemapHistory, data: st.DataObject
) -> None:
    table = history.table()
    cut = data.draw(st.integers(0, table.upper))
    resumed = table.inverse(cut)
    before = [(s.partition, n) for s in table.slices(0, cut) for n in range(s.lower, s.upper)]
    after = [(p, n) for p in table.frontier for n in range(resumed[p], table.frontier[p])]
    whole = [(p, n) for p in table.frontier for n in range(table.frontier[p])]
    assert sorted(before + after) == sorted(whole)


@given(remap_histories(), st.integers(0, 9))
def test_loading_the_changes_gives_the_table_that_appending_built(history: RemapHistory, idle: int) -> None:
    table = history.table()
    table.advance(table.upper + idle)
    loaded = RemapTable.load("s", table.changes(), upper=table.upper, sealed_at=table.sealed_at)
    assert list(loaded.changes()) == list(table.changes())
    assert (loaded.frontier, loaded.upper, loaded.sealed_at) == (table.frontier, table.upper, table.sealed_at)
    assert [loaded.frontier_at(e) for e in range(table.upper)] == [table.frontier_at(e) for e in range(table.upper)]


@given(remap_histories(), st.integers(-3, -1), st.integers(1, 3))
def test_epochs_that_are_not_there_are_errors(history: RemapHistory, below: int, past: int) -> None:
    table = history.table()
    with pytest.raises(EpochBelowSince):
        table.frontier_at(below)
    with pytest.raises(EpochBelowSince):
        table.slices(below, table.upper)
    for ask in (table.frontier_at, table.inverse, lambda e: table.slices(0, e)):
        with pytest.raises(EpochNotMinted):
            ask(table.upper + past)


@given(remap_histories(), st.data())
def test_the_first_epoch_that_holds_something_is_that_of_the_first_slice(
    history: RemapHistory, data: st.DataObject
) -> None:
    """Also in a view, whose table has gone on since, and in a table that was compacted."""
    table = history.table()
    since = data.draw(st.integers(0, table.upper - 1))
    compacted, view = table.compacted(since), table.view()
    if not table.frontier.sealed:
        table.append(table.upper, table.frontier.join(Frontier({"p0": MOST + 1})))
    for one, first in ((view, 0), (table, 0), (compacted, since)):
        epoch = data.draw(st.integers(first, one.upper))
        found = one.slices(epoch, one.upper)
        assert one.moved_from(epoch) == (found[0].epoch if found else None)
        for beyond in (first - 1, one.upper + 1):
            with pytest.raises((EpochBelowSince, EpochNotMinted)):
                one.moved_from(beyond)
