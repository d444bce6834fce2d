"""Law: an understood expression has on each row Spark's value and type, or raises where Spark raises."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.engine.plain.typed import check, each, rows, spark_rows, texts_of

from tidegauge.engine.plain import chain
from tidegauge.job.plan import Select

SCHEMA = rows(0).schema


@pytest.mark.spark
@settings(max_examples=1, phases=[Phase.generate], deadline=None, derandomize=True)
@given(seed=st.integers(0, 1 << 30))
def test_what_is_understood_has_sparks_values_types_and_errors(classic: Any, seed: int) -> None:
    assert check(classic, texts_of(seed, 30), rows(seed), raising=2) > 10


@pytest.mark.long
@pytest.mark.spark
@settings(max_examples=2, phases=[Phase.generate], deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_many_more_have_them_too(classic: Any, seed: int) -> None:
    check(classic, texts_of(seed, 150), rows(seed), raising=15)


@pytest.mark.spark
@settings(max_examples=1, phases=[Phase.generate], deadline=None, derandomize=True)
@given(seed=st.integers(0, 1 << 30))
def test_so_has_every_function_and_operator_by_itself(classic: Any, seed: int) -> None:
    texts = each(seed)
    assert check(classic, texts, rows(seed), raising=0) > len(texts) * 3 / 4


@pytest.mark.long
@pytest.mark.spark
def test_every_character_has_sparks_case(classic: Any) -> None:
    characters = pa.array([chr(code) for code in range(1, 0x110000) if not 0xD800 <= code <= 0xDFFF])
    batch = pa.record_batch({"one": characters})
    picks = ("upper(one) AS u", "lower(one) AS l", "length(one) AS n", "trim(one) AS t", "one LIKE '_' AS k")
    made = chain([Select(picks)], [["u", "l", "n", "t", "k"]], batch.schema)
    assert made is not None
    assert made(batch).to_pylist() == spark_rows(classic, batch).selectExpr(*picks).toArrow().to_pylist()


@pytest.mark.spark
def test_a_last_sigma_is_sparks(classic: Any) -> None:
    before, after = (
        ["", "a", ".", "a.", "Σ", "a'", "a\u0301", "1", "a\u00ad", "😀"],
        ["", "b", ".", ".b", "\u0301", "1"],
    )
    batch = pa.record_batch({"one": [f"{first}Σ{last}" for first in before for last in after]})
    made = chain([Select(("lower(one) AS l",))], [["l"]], batch.schema)
    assert made is not None
    assert (
        made(batch)["l"].to_pylist()
        == spark_rows(classic, batch).selectExpr("lower(one) AS l").toArrow()["l"].to_pylist()
    )
