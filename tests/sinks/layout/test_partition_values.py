"""Partition values as text and as folders: they come back as they were, and no value leads anywhere else."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.sinks.layout.values import NULL, constants, folder, folders, parsed, problem_of, text_of, unfolded

HOSTILE = [
    "/",
    "=",
    "%",
    "..",
    "../..",
    "a/b=c%20",
    "%2F",
    "*?[]{}",
    "\\",
    "\0",
    "\n",
    " ",
    "~",
    "ü",
    "日本",
    "\U0001f600",
    NULL,
    "a+b",
    "null",
    "'\"",
]
TEXTS = st.sampled_from(HOSTILE) | st.text(min_size=1)


@deep(300)
@given(name=TEXTS, text=TEXTS | st.none())
@example(name="a=b", text="c=d")
def test_a_folder_says_its_column_and_value(name: str, text: str | None) -> None:
    if text == NULL:
        assert problem_of(name, text, pa.string())
        return
    assert unfolded(folder(name, text)) == (name, text)


@deep(300)
@given(values=st.lists(st.tuples(TEXTS, TEXTS | st.none()), min_size=1, max_size=3))
def test_folders_stay_in_the_table_and_are_plain_names(values: list[tuple[str, str | None]]) -> None:
    found = folders(tuple(values))
    parts = PurePosixPath(found).parts
    assert len(parts) == len(values)
    assert ".." not in parts
    assert all(re.fullmatch(r"[A-Za-z0-9_.%-]+=[A-Za-z0-9_.%-]+", part) for part in parts)
    with_letters = PurePosixPath(folders(tuple(values), letters=True)).parts
    assert list(map(unfolded, with_letters)) == list(map(unfolded, parts))
    assert all(part.isprintable() and not set(part) & set("/\\*?[]{}'\" :#") for part in with_letters)


KINDS: list[tuple[Any, Any]] = [
    (pa.string(), TEXTS),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates()),
    (pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4)),
]


@deep(200)
@given(data=st.data())
def test_a_value_comes_back_from_its_text(data: Any) -> None:
    kind, values = data.draw(st.sampled_from(KINDS))
    one, other = (pa.scalar(data.draw(values | st.none()), kind) for _ in range(2))
    assert parsed(text_of(one), kind) == one or (not one.is_valid and not parsed(text_of(one), kind).is_valid)
    assert (text_of(one) == text_of(other)) == (one.as_py() == other.as_py())


def test_texts_are_as_deltas_protocol_has_them() -> None:
    values = [
        (True, pa.bool_()),
        (date(2026, 1, 2), pa.date32()),
        (Decimal("-1.50"), pa.decimal128(5, 2)),
        (7, pa.int32()),
    ]
    assert [text_of(pa.scalar(value, kind)) for value, kind in values] == ["true", "2026-01-02", "-1.50", "7"]
    columns = pa.schema([("day", pa.date32()), ("n", pa.int16())])
    assert constants((("day", "2026-01-02"), ("n", None)), columns)["day"].as_py() == date(2026, 1, 2)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", pa.string()),
        (NULL, pa.string()),
        ("ü" * 42, pa.string()),
        ("x" * 300, pa.string()),
        ("10000-01-01", pa.date32()),
    ],
)
def test_values_that_readers_would_take_for_others_are_named(text: str, kind: Any) -> None:
    assert problem_of("country", text, kind)
