"""The cut that the marks of several tables go to."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.sinks.marking import TableState, common


@st.composite
def tables(draw: st.DrawFn) -> list[TableState]:
    """The states of a table whose commits gather any numbers of epochs, some of them without rows."""
    uppers = sorted(draw(st.sets(st.integers(1, 12), min_size=1)))
    firsts = [draw(st.integers(lower, upper)) for lower, upper in pairwise(uppers)]
    states = [TableState(str(at), *ends) for at, ends in enumerate(zip(uppers, [*firsts, None], strict=True))]
    return states[draw(st.integers(0, len(states) - 1)) :][::-1]


@given(st.lists(tables(), min_size=1, max_size=4), st.integers(1, 15))
def test_it_is_the_newest_published_upper_that_all_tables_have_a_state_of(
    some: list[list[TableState]], published: int
) -> None:
    wanted = [e for e in range(published + 1) if all(any(one.shows(e) for one in states) for states in some)]
    assert common(some, published) == max(wanted, default=None)
