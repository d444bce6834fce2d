"""What is kept of changes: parts of them may be folded first, in any order, and the answer is the same."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.kafkasink import LastUndecided
from tidegauge.errors.leftout import LeftOutNull, LeftOutUnknown
from tidegauge.leftout import LEFT, Mark
from tidegauge.sinks.keyed.folding import folded, merged
from tidegauge.sinks.keyed.layout import AT, GONE, Ordering

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("p", pa.string()),
        ("v", pa.int64()),
        (AT, pa.int64()),
        (GONE, pa.bool_()),
        (LEFT, pa.string()),
    ]
)
ORDERINGS = {
    "none": Ordering(("k",)),
    "order": Ordering(("k",), "n"),
    "places": Ordering(("k",), "n", "p"),
}
CHANGE = st.fixed_dictionaries(
    {
        "k": st.sampled_from("ab"),
        "n": st.none() | st.integers(0, 3),
        "p": st.sampled_from(["x", "x", "x", "y", None]),
        "v": st.integers(0, 99),
        AT: st.integers(0, 2),
        GONE: st.booleans(),
    }
)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def answer(rows: pa.Table, ordering: Ordering) -> Any:
    """Return the rows that are left, or the least epoch that cannot be decided."""
    try:
        return merged(rows, ordering, table="t").drop_columns([LEFT]).to_pylist()
    except LastUndecided as error:
        return error.evidence["epoch"]
    except (LeftOutNull, LeftOutUnknown):
        return "unknown"


def by_hand(rows: list[dict[str, Any]], ordering: Ordering) -> Any:
    """The definition, key by key and epoch by epoch."""
    undecided, left = set[int](), dict[str, dict[str, Any]]()
    for at in sorted({row[AT] for row in rows}):
        for key in sorted({row["k"] for row in rows if row[AT] == at}):
            group = [row for row in rows if (row["k"], row[AT]) == (key, at)]
            if ordering.order is None:
                unclear = len(group) > 1
            else:
                ranks = sorted(-1 if row["n"] is None else row["n"] for row in group)
                unclear = len(ranks) > 1 and ranks[-1] == ranks[-2]
                group.sort(key=lambda row: -1 if row["n"] is None else row["n"])
            if ordering.place is not None and len(group) > 1:
                unclear = unclear or len({row["p"] for row in group}) > 1 or group[0]["p"] is None
            if unclear:
                undecided.add(at)
            left[key] = group[-1]
    if undecided:
        return min(undecided)
    return [left[key] for key in sorted(left) if not left[key][GONE]]


@pytest.mark.parametrize("ordering", ORDERINGS.values(), ids=ORDERINGS)
@deep(400)
@given(rows=st.lists(CHANGE, max_size=7), chance=st.randoms(use_true_random=False))
def test_folding_parts_of_the_changes_first_changes_no_answer(
    ordering: Ordering, rows: list[dict[str, Any]], chance: random.Random
) -> None:
    wanted = by_hand(rows, ordering)
    assert answer(table_of(rows), ordering) == wanted
    assert answer(in_parts(rows, ordering, chance), ordering) == wanted


def in_parts(rows: list[dict[str, Any]], ordering: Ordering, chance: random.Random) -> pa.Table:
    """Changes that were folded part by part, in some order."""
    shuffled: list[dict[str, Any]] = chance.sample(rows, len(rows))
    parts = [table_of([]), *map(table_of, ([row] for row in shuffled))]
    while len(parts) > 1:
        one, other = (parts.pop(chance.randrange(len(parts))) for _ in range(2))
        parts.append(folded(pa.concat_tables([one, other]), ordering))
    return parts[0]


PARTIAL = st.fixed_dictionaries(
    {
        "k": st.sampled_from("ab"),
        "n": st.integers(0, 7),
        "p": st.none() | st.integers(0, 9).map(str),
        "v": st.integers(0, 9),
        AT: st.integers(-1, 2),
        GONE: st.sampled_from([False, False, False, True]),
        LEFT: st.sampled_from([(), (), ("v",), ("p",), ("v", "p")]),
    }
)


def filled_by_hand(rows: list[dict[str, Any]]) -> Any:
    """Each change after the other, on a dictionary."""
    held: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row[AT], row["n"])):
        before = held.get(row["k"], {})
        known = {name: "unknown" if before.get(name) is None else before[name] for name in ("v", "p")}
        values = {name: known[name] if name in row[LEFT] else row[name] for name in ("v", "p")}
        held[row["k"]] = {} if row[GONE] else {**row, **values}
    found = [{name: row[name] for name in SCHEMA.names if name != LEFT} for _, row in sorted(held.items()) if row]
    return "unknown" if any("unknown" in row.values() for row in found) else found


@deep(800)
@given(
    rows=st.lists(PARTIAL, max_size=10, unique_by=lambda row: (row["k"], row[AT], row["n"])),
    chance=st.randoms(use_true_random=False),
)
def test_what_a_change_leaves_out_is_as_the_change_before_has_it(
    rows: list[dict[str, Any]], chance: random.Random
) -> None:
    rows = [row | {LEFT: ()} if row[GONE] or row[AT] < 0 else row for row in rows]
    rows = [row for row in rows if row[AT] >= 0 or row["n"] == 0]  # of the table there is one row at most
    given = [row | dict.fromkeys(row[LEFT]) | {LEFT: Mark(row[LEFT]).encode() if row[LEFT] else None} for row in rows]
    wanted = filled_by_hand(rows)
    assert answer(table_of(given), ORDERINGS["order"]) == wanted
    assert answer(in_parts(given, ORDERINGS["order"], chance), ORDERINGS["order"]) == wanted


def test_a_row_of_the_table_is_before_all_changes_and_no_change_itself() -> None:
    rows: list[dict[str, Any]] = [
        {"k": "a", "n": 9, "p": "x", "v": 0, AT: -1, GONE: False},
        {"k": "a", "n": 1, "p": "y", "v": 1, AT: 0, GONE: False},
        {"k": "b", "n": None, "p": None, "v": 2, AT: -1, GONE: False},
    ]
    assert [row["v"] for row in answer(table_of(rows), ORDERINGS["places"])] == [1, 2]


def test_a_run_holds_one_change_of_a_hot_key() -> None:
    rows = [{"k": "a", "n": n, "p": "x", "v": n, AT: 0, GONE: False} for n in range(1000)]
    assert folded(table_of(rows), ORDERINGS["order"]).column("v").to_pylist() == [999]
