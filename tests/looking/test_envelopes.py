"""T67: what the changes of an epoch did to the row of each key, against a table of all cases and a plain model."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.looking.changes import codes, consolidated
from tidegauge.looking.envelopes import befores_and_afters, upserts

SCHEMA = pa.schema([("_epoch", pa.int64()), ("_diff", pa.int64()), ("k", pa.string()), ("v", pa.int64())])


def changes(*rows: tuple[int, int, str | None, int | None]) -> pa.Table:
    return consolidated(pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA))


CASES: list[tuple[list[tuple[int, int]], list[tuple[str, int | None]], Counter[str]]] = [
    ([(1, 1)], [("upsert", 1)], Counter(["insert"])),
    ([(-1, 1), (1, 2)], [("upsert", 2)], Counter(["upsert"])),
    ([(-1, 1)], [("delete", None)], Counter(["delete"])),
    ([(-1, 1), (1, 2), (1, 3)], [("upsert", 2), ("upsert", 3)], Counter(["upsert", "insert"])),
    ([(-1, 1), (-1, 2), (1, 3)], [("upsert", 3)], Counter(["upsert", "delete"])),
    ([(-1, 1), (-1, 2)], [("delete", None)], Counter(["delete", "delete"])),
    ([(2, 1)], [("upsert", 1), ("upsert", 1)], Counter(["insert", "insert"])),
]


@pytest.mark.parametrize(("diffs", "upserted", "states"), CASES)
def test_t67_each_case_of_a_key_in_an_epoch(
    diffs: list[tuple[int, int]], upserted: list[tuple[str, int | None]], states: Counter[str]
) -> None:
    table = changes(*[(5, diff, "k", value) for diff, value in diffs])
    found = upserts(table, ["k"]).to_pylist()
    assert sorted((row["_state"], row["v"]) for row in found) == sorted(upserted)
    pairs = befores_and_afters(table, ["k"]).to_pylist()
    assert Counter(row["_state"] for row in pairs) == states
    before = Counter(row["_before"]["v"] for row in pairs if row["_before"])
    after = Counter(row["_after"]["v"] for row in pairs if row["_after"])
    assert before == Counter({value: -diff for diff, value in diffs if diff < 0})
    assert after == Counter({value: diff for diff, value in diffs if diff > 0})


KEYS = st.sampled_from(["a", "b", None])
VALUES = st.sampled_from([0, 1, None])
ROWS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([-2, -1, 1, 2]), KEYS, VALUES), max_size=12)


@given(ROWS)
def test_t67_any_changes_are_as_a_plain_model_has_them(rows: list[tuple[int, int, str | None, int | None]]) -> None:
    table = changes(*rows)
    sums: Counter[tuple[int, str | None, int | None]] = Counter()
    for epoch, diff, key, value in rows:
        sums[epoch, key, value] += diff
    assert Counter({(row["_epoch"], row["k"], row["v"]): row["_diff"] for row in table.to_pylist()}) == Counter(
        {row: count for row, count in sums.items() if count}
    )
    gone, come = Counter[Any](), Counter[Any]()
    for (epoch, key, value), count in sums.items():
        (come if count > 0 else gone)[epoch, key, value] += abs(count)
    expected = Counter[Any]()
    for (epoch, key, value), count in come.items():
        expected[epoch, "upsert", key, value] += count
    for epoch, key in {(epoch, key) for epoch, key, _ in gone} - {(epoch, key) for epoch, key, _ in come if come}:
        if any(count for (e, k, _), count in gone.items() if (e, k) == (epoch, key)):
            expected[epoch, "delete", key, None] += 1
    found = upserts(table, ["k"]).to_pylist()
    assert Counter((row["_epoch"], row["_state"], row["k"], row["v"]) for row in found) == +expected
    assert [row["_epoch"] for row in found] == sorted(row["_epoch"] for row in found)

    pairs = befores_and_afters(table, ["k"]).to_pylist()
    assert [row["_epoch"] for row in pairs] == sorted(row["_epoch"] for row in pairs)
    for side, counted in (("_before", gone), ("_after", come)):
        there = [row for row in pairs if row[side] is not None]
        assert Counter((row["_epoch"], row["k"], row[side]["v"]) for row in there) == +counted
    for row in pairs:
        sides = row["_before"] is not None, row["_after"] is not None
        assert row["_state"] == {(False, True): "insert", (True, True): "upsert", (True, False): "delete"}[sides]
    by_key = Counter((row["_epoch"], row["k"], row["_state"]) for row in pairs)
    assert not [one for one in by_key if one[2] == "insert" and by_key[one[0], one[1], "delete"]]  # they are paired


VALUES_OF_ANY_TYPE = [
    (pa.float64(), [0.0, float("nan"), None, 1.5]),
    (pa.string(), ["", "a", None]),
    (pa.list_(pa.int64()), [[], [1], None]),
    (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": None}, None]),
    (pa.binary(), [b"", b"a", None]),
    (pa.bool_(), [True, False, None]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES_OF_ANY_TYPE)
def test_values_of_any_type_are_told_apart(kind: Any, values: list[Any]) -> None:
    column = pa.array(values + values, kind)
    found, count = codes(pa.table({"a": column}), ["a"])
    assert count == len(values)
    assert found[: len(values)].tolist() == found[len(values) :].tolist()
    assert len(set(found.tolist())) == len(values)


def test_of_no_changes_there_are_none() -> None:
    assert upserts(changes(), ["k"]).num_rows == befores_and_afters(changes(), ["k"]).num_rows == 0
