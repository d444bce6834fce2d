"""Planning: which ranges, how many epochs a job takes, where to resume."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.store import EpochNotMinted
from tidegauge.reclock import held, resumption, span, walk
from tidegauge.remap.binding import Slice
from tidegauge.remap.frontier import ORIGIN
from tidegauge.remap.table import RemapTable
from tidegauge.testing.strategies import RemapHistory, remap_histories

histories = remap_histories(partitions=st.sampled_from(["p0", "p1"]), steps=st.integers(1, 9), max_size=12)


@settings(deadline=None)
@given(histories, st.integers(1, 40))
def test_the_spans_of_a_backlog_cover_every_epoch_once(history: RemapHistory, limit: int) -> None:
    table = history.table()
    lower, upper, planned = 0, history.upper, []
    while lower < upper:
        until = span(table.slices(lower, upper), upper, limit=limit)
        assert lower < until <= upper
        taken = table.slices(lower, until)
        assert len({s.epoch for s in taken}) <= 1 or sum(s.size for s in taken) <= limit
        assert until == upper or sum(s.size for s in table.slices(lower, until + 1)) > limit
        planned += taken
        lower = until
    assert planned == table.slices(0, upper)


def test_an_epoch_beyond_the_limit_is_taken_whole_and_alone() -> None:
    table = RemapTable.load("s", [(0, "p0", 1), (1, "p0", 501), (1, "p1", 500), (2, "p0", 502)], upper=3)
    assert [span(table.slices(lower, 3), 3, limit=10) for lower in range(3)] == [1, 2, 3]


def test_planning_a_span_looks_no_further_than_it_has_to() -> None:
    endless = (Slice("s", epoch, "p0", 4 * epoch, 4 * epoch + 4) for epoch in itertools.count())
    assert span(endless, 1 << 40, limit=10) == 2


def test_a_limit_that_takes_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        span([], 1, limit=0)


@settings(deadline=None)
@given(histories, st.data())
def test_an_output_holds_the_epochs_in_which_its_source_holds_nothing(
    history: RemapHistory, data: st.DataObject
) -> None:
    table = history.table()
    upper = data.draw(st.integers(0, table.upper))
    first = held(table, upper)
    assert upper <= first <= table.upper
    assert table.slices(upper, first) == []
    assert first == table.upper or table.slices(first, first + 1)


@settings(deadline=None)
@given(histories, st.data())
def test_walking_over_epochs_yields_their_slices(history: RemapHistory, data: st.DataObject) -> None:
    table = history.table()
    upper = data.draw(st.integers(0, table.upper))
    lower = data.draw(st.integers(0, upper))
    assert list(walk(table, lower, upper)) == table.slices(lower, upper)


def test_walking_past_what_is_bound_is_an_error() -> None:
    busy = RemapTable.load("busy", [(0, "p0", 1), (1, "p0", 2)], upper=2)
    assert list(walk(RemapTable("idle", upper=2), 0, 2)) == []
    with pytest.raises(EpochNotMinted):
        list(walk(busy, 0, 3))


def test_the_first_slices_of_a_long_history_cost_few_more_than_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    table = RemapTable.load("s", ((epoch, "p0", epoch + 1) for epoch in range(10_000)), upper=10_000)
    made, slices = [], RemapTable.slices

    def counted(table: RemapTable, lower: int, upper: int) -> list[Slice]:
        found = slices(table, lower, upper)
        made.append(len(found))
        return found

    monkeypatch.setattr(RemapTable, "slices", counted)
    assert span(walk(table, 3000, 10_000), 10_000, limit=100) == 3100
    assert sum(made) <= 200


@settings(deadline=None)
@given(histories, st.data())
def test_t33_what_is_acknowledged_never_passes_what_any_output_holds(
    history: RemapHistory, data: st.DataObject
) -> None:
    table = history.table()
    uppers = data.draw(st.dictionaries(st.sampled_from("abc"), st.integers(0, history.upper), min_size=1))
    acknowledged = resumption({"s": table}, uppers)["s"]
    for upper in uppers.values():
        held = table.frontier_at(upper - 1) if upper else ORIGIN
        assert acknowledged.less_equal(held)
    assert acknowledged == table.inverse(min(uppers.values()))


def test_t25_without_outputs_there_is_nothing_to_acknowledge() -> None:
    assert resumption({"s": RemapTable.load("s", [(0, "p0", 1)], upper=1)}, {}) == {}
