"""What is left of slices of which ranges are lost: the records of no gap, each once, in their order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.job.durable import without
from tidegauge.remap.binding import Slice

PLACES = [(epoch, partition) for epoch in (0, 1) for partition in ("p0", "p1")]


@st.composite
def ranges(draw: st.DrawFn, *, apart: bool) -> list[Slice]:
    """Ranges of a source; `apart`: of each epoch and partition at most one."""
    places = st.lists(st.sampled_from(PLACES), max_size=6, unique=apart)
    found = []
    for epoch, partition in draw(places):
        lower = draw(st.integers(0, 9))
        found.append(Slice("orders", epoch, partition, lower, draw(st.integers(lower + 1, 12))))
    return found


def records(slices: list[Slice]) -> list[tuple[int, str, int]]:
    return [(s.epoch, s.partition, position) for s in slices for position in range(s.lower, s.upper)]


@given(slices=ranges(apart=True), lost=ranges(apart=False))
def test_what_is_left_is_what_no_gap_has_however_gaps_overlap(slices: list[Slice], lost: list[Slice]) -> None:
    gone = {*records(lost)}
    left = without(slices, lost)
    assert records(left) == [record for record in records(slices) if record not in gone]
    assert all(piece.lower < piece.upper for piece in left)
