"""Texts of a column are those that lie at their places, wherever these are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.sources.database.values import gathered

CELLS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.booleans()), max_size=12)
"""Of each cell where it begins, how long it is and whether it has a value."""


@given(cells=CELLS, ordered=st.booleans())
def test_texts_are_those_at_their_places(cells: list[tuple[int, int, bool]], ordered: bool) -> None:
    data = bytes(range(50))
    if ordered:
        edges = sorted(edge for start, size, _ in cells for edge in (start, start + size))
        cells = [(edges[2 * at], edges[2 * at + 1] - edges[2 * at], valid) for at, (*_, valid) in enumerate(cells)]
    cells = [(start if valid else start + 20, size, valid) for start, size, valid in cells]  # may be behind the end
    starts, sizes = (np.array([cell[at] for cell in cells], np.int64) for at in (0, 1))
    valid = np.array([cell[2] for cell in cells], np.bool_)
    found = gathered(np.frombuffer(data, np.uint8), starts, sizes, valid)
    found.validate(full=True)
    assert found.type == pa.binary()
    assert found.to_pylist() == [data[start : start + size] if there else None for start, size, there in cells]
