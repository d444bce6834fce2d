"""Of the rows of one key in one epoch, the one with the greatest order is kept."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.kafkasink import LastUndecided
from tidegauge.sinks.kafka.messages import lasts

keys = st.sampled_from([b"a", b"b", b"c", b""])


@given(st.lists(st.tuples(keys, st.none() | st.integers(-3, 3)), max_size=12))
def test_one_row_of_each_key_is_kept_and_none_is_greater(rows: list[tuple[bytes, int | None]]) -> None:
    table = pa.table(
        {
            "key": pa.array([k for k, _ in rows], pa.large_binary()),
            "order": pa.array([o for _, o in rows], pa.int64()),
        }
    )
    mask = lasts(table, ordered=True, topic="t", epoch=0)
    kept = rows if mask is None else [row for row, last in zip(rows, mask.to_pylist(), strict=True) if last]
    assert sorted(k for k, _ in kept) == sorted({k for k, _ in rows})
    for key, order in kept:
        of_key = [-4 if o is None else o for k, o in rows if k == key]
        assert (-4 if order is None else order) == max(of_key)


@given(st.lists(keys, max_size=6))
def test_without_an_order_two_rows_of_one_key_are_refused(found: list[bytes]) -> None:
    table = pa.table({"key": pa.array(found, pa.large_binary())})
    if len(set(found)) == len(found):
        assert lasts(table, ordered=False, topic="t", epoch=3) is None
        return
    with pytest.raises(LastUndecided) as caught:
        lasts(table, ordered=False, topic="t", epoch=3)
    assert caught.value.evidence["key"] in {repr(key) for key in found if found.count(key) > 1}
    assert caught.value.evidence["epoch"] == 3


def test_a_long_key_is_not_quoted_in_full() -> None:
    table = pa.table({"key": pa.array([b"k" * 1000] * 2, pa.large_binary())})
    with pytest.raises(LastUndecided) as caught:
        lasts(table, ordered=False, topic="t", epoch=0)
    assert len(str(caught.value)) < 800  # the key alone has a thousand
