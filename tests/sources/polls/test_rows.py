"""Dicts as rows of declared columns: a value that is no value of its column is refused, and no row makes one up."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from tidegauge.errors.polls import PollUnfit
from tidegauge.sources.polls.rows import as_rows


@pytest.mark.parametrize("value", [True, 1, 1.5, ["a"], {"a": 1}, date(2026, 1, 1)])
@pytest.mark.parametrize("of", [pa.string(), pa.binary()])
def test_a_column_of_texts_or_bytes_takes_no_other_value(of: Any, value: Any) -> None:
    with pytest.raises(PollUnfit, match="column s"):
        as_rows("it", [{"s": "a"}, {"s": value}], pa.schema([("s", of)]), plain=True)


@pytest.mark.parametrize("plain", [True, False])
def test_a_value_that_is_missing_is_null(*, plain: bool) -> None:
    rows = as_rows("it", [{"n": 1}, {"m": 2}, {}], pa.schema([("n", pa.int64())]), plain=plain)
    assert rows.to_pylist() == [{"n": 1}, {"n": None}, {"n": None}]


def test_a_dict_that_makes_up_what_it_lacks_is_not_asked_to() -> None:
    rows = [defaultdict(lambda: 7, {"m": 1}), defaultdict(lambda: 7, {"n": 2})]
    assert as_rows("it", rows, pa.schema([("n", pa.int64())])).to_pylist() == [{"n": None}, {"n": 2}]
