"""Planning: which ranges, how many epochs a job takes, where to resume."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.store import EpochNotMinted
from tidegauge.reclock import coalesce, plan_span, resumption, span
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.table import RemapTable

sizes = st.lists(st.integers(0, 20), max_size=20)
steps = st.lists(st.dictionaries(st.sampled_from(["p0", "p1"]), st.integers(1, 9)), min_size=1, max_size=12)


def table_of(moves: list[dict[str, int]], source: str = "s") -> RemapTable:
    table, at = RemapTable(source), ORIGIN
    for epoch, move in enumerate(moves):
        at = Frontier({p: at[p] + move.get(p, 0) for p in {*at, *move}})
        table.append(epoch, at)
    return table


@settings(deadline=None)
@given(sizes, st.integers(1, 60))
def test_a_job_takes_as_many_epochs_as_fit_and_at_least_one(of: list[int], limit: int) -> None:
    taken = coalesce(of, limit)
    assert taken >= min(1, len(of))
    assert taken <= 1 or sum(of[:taken]) <= limit
    assert taken == len(of) or sum(of[: taken + 1]) > limit


def test_coalescing_looks_no_further_than_it_has_to() -> None:
    endless = iter(lambda: 4, None)
    assert coalesce(endless, 10) == 2


def test_a_limit_that_takes_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        coalesce([1], 0)


@settings(deadline=None)
@given(steps, st.integers(1, 40))
def test_the_spans_of_a_backlog_cover_every_epoch_once(moves: list[dict[str, int]], limit: int) -> None:
    tables = {"a": table_of(moves, "a"), "b": table_of(moves[::-1], "b")}
    lower, upper, spans = 0, len(moves), []
    while lower < upper:
        until = span(tables, lower, upper, limit=limit)
        assert lower < until <= upper
        spans.append((lower, until))
        for table in tables.values():
            assert until == lower + 1 or sum(s.size for s in table.slices(lower, until)) <= limit
        lower = until
    planned = [s for lo, hi in spans for s in plan_span(tables, lo, hi).get("a", [])]
    assert planned == tables["a"].slices(0, upper)


def test_the_limit_holds_for_each_source_on_its_own() -> None:
    tables = {"bytes": table_of([{"p0": 100}] * 5), "records": table_of([{"p0": 1}] * 5)}
    assert span(tables, 0, 5, limit=300) == 3
    assert span({"records": tables["records"]}, 0, 5, limit=300) == 5


def test_a_long_backlog_of_small_epochs_is_one_span() -> None:
    table = table_of([{"p0": 1}])
    for epoch in range(1, 3000):
        table.append(epoch, Frontier({"p0": epoch + 1}))
    assert span({"s": table}, 0, 3000, limit=10_000) == 3000
    assert span({"s": table}, 0, 3000, limit=2_500) == 2500


def test_a_source_without_slices_is_left_out_of_the_plan() -> None:
    idle = RemapTable("idle", upper=2)
    busy = table_of([{"p0": 1}, {"p0": 1}], "busy")
    assert list(plan_span({"idle": idle, "busy": busy}, 0, 2)) == ["busy"]
    with pytest.raises(EpochNotMinted):
        plan_span({"idle": idle, "busy": busy}, 0, 3)


@settings(deadline=None)
@given(steps, st.data())
def test_t33_what_is_acknowledged_never_passes_what_any_output_holds(
    moves: list[dict[str, int]], data: st.DataObject
) -> None:
    table = table_of(moves)
    uppers = data.draw(st.dictionaries(st.sampled_from("abc"), st.integers(0, len(moves)), min_size=1))
    acknowledged = resumption({"s": table}, uppers)["s"]
    for upper in uppers.values():
        held = table.frontier_at(upper - 1) if upper else ORIGIN
        assert acknowledged.less_equal(held)
    assert acknowledged == table.inverse(min(uppers.values()))


def test_t25_without_outputs_there_is_nothing_to_acknowledge() -> None:
    assert resumption({"s": table_of([{"p0": 1}])}, {}) == {}
