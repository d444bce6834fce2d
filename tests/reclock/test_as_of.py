"""Reading on over compacted history: as of which epoch a flow is read again, and what each output is given."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.reclock import as_of, begins, held
from tidegauge.testing.strategies import RemapHistory, remap_histories


@pytest.mark.parametrize(
    ("since", "bound", "uppers", "expected"),
    [
        (10, 100, [0, 151, 201], 100),  # a new output beside old ones
        (10, 100, [101, 151], 100),
        (10, 100, [151, 201], 150),
        (10, 0, [0, 151], 10),
        (10, 0, [151, 201], 150),
        (200, 100, [0], 200),
        (None, 100, [0], None),
        (10, 100, [None, None], None),  # all have ended
    ],
)
def test_t22_as_of_is_what_the_least_output_needs_and_no_less_than_is_left(
    since: int | None, bound: int, uppers: list[int | None], expected: int | None
) -> None:
    assert as_of(uppers, since=since, bound=bound) == expected


def test_t22_an_output_that_has_ended_does_not_count() -> None:
    assert as_of([None, 151], since=10) == 150
    assert as_of([1], since=0) == as_of([0], since=0) == 0


def test_t25_without_outputs_there_is_nothing_to_read() -> None:
    assert as_of([], since=10) is None


@settings(deadline=None)
@given(remap_histories(), st.data())
def test_an_output_is_given_what_it_lacks_and_nothing_twice_also_when_the_history_was_compacted(
    history: RemapHistory, data: st.DataObject
) -> None:
    table = history.table()
    since = data.draw(st.integers(0, table.upper - 1))
    upper = data.draw(st.integers(0, table.upper))
    moved = [s.epoch for s in table.slices(0, since + 1)]
    first = begins(upper, since=since, folded=max(moved, default=None) if since else None)
    lacks = table.slices(upper, table.upper)
    compacted = table.compacted(since)
    if upper == 0:
        assert first == since
        assert sum(s.size for s in compacted.slices(first, table.upper)) == sum(s.size for s in lacks)
    elif first is None:
        assert upper <= since
        assert lacks[0].epoch <= since
    else:
        assert held(compacted, first) == held(table, upper)
        assert compacted.slices(first, table.upper) == lacks
    assert first is None or (as_of([upper], since=since) or 0) <= first
