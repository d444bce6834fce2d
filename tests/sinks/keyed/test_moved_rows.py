"""Rows whose keys change, with values that the change leaves out: the table is the one that a dictionary would be."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.leftout import MovedUnknown
from tidegauge.leftout import COMING, LEAVING, LEFT, Mark
from tidegauge.sinks.keyed.folding import folded, merged
from tidegauge.sinks.keyed.layout import AT, GONE, MARKS, Ordering
from tidegauge.sinks.keyed.moved import carried
from tidegauge.sinks.keyed.runs import RunFile
from tidegauge.sinks.protocol import StagedFile

ORDERING = Ordering(("k",), "n")
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("doc", pa.string()), ("_epoch", pa.int64()), *MARKS])
STEP = st.tuples(
    st.sampled_from(["put", "put", "delete", "move", "move"]),
    st.integers(0, 2),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([False, False, True]),
)
Held = dict[int, tuple[int, str | None]]


def changes_of(steps: Sequence[tuple[str, int, int, bool, bool]]) -> tuple[list[dict[str, Any]], list[Held]]:
    """The changes that a database tells of some steps, and what it has after each epoch."""
    held: Held = {}
    found, states, epoch = list[dict[str, Any]](), list[Held](), 0

    def tell(key: int, order: int, doc: str | None, mark: Mark | None, *, gone: bool = False) -> None:
        said = mark and mark.encode()
        found.append({"k": key, "n": order, "doc": doc, "_epoch": epoch, AT: epoch, GONE: gone, LEFT: said})

    for number, (what, key, other, leaves, ends) in enumerate(steps):
        order, doc = 2 * number, held.get(key, (0, None))[1]
        leaves = leaves and doc is not None
        if what == "put":
            mark = Mark(("doc",)) if leaves else None
            new = doc if leaves else f"v{number}" if number % 5 else None
            tell(key, order, None if leaves else new, mark)
            held[key] = order, new
        elif what == "delete" and key in held:
            tell(key, order, None, None, gone=True)
            del held[key]
        elif what == "move" and key in held and other not in held:
            tell(key, order, None, Mark(("doc",), moves=LEAVING) if leaves else None, gone=True)
            tell(other, order + 1, None if leaves else "moved", Mark(("doc",), moves=COMING) if leaves else None)
            del held[key]
            held[other] = order + 1, doc if leaves else "moved"
        if ends:
            epoch += 1
            states.append(dict(held))
    return found, [*states, dict(held)]


def answer(folder: str, parts: Sequence[Sequence[Mapping[str, Any]]], table: Held, *, one: bool) -> Held:
    """What becomes of a table with changes that are staged in parts. one: by one task, in their order."""
    files = list[StagedFile]()
    for number, part in enumerate(some for some in parts if some):
        name = f"part-{number}.parquet" if one else f"part{number}-0.parquet"
        path = f"{folder}/{name}"
        with open(path, "wb") as out:
            RunFile(out, folded(pa.Table.from_pylist([*part], SCHEMA), ORDERING), ("k",)).finish()
        files.append(StagedFile(name, len(part), Path(path).stat().st_size, 0, 0))

    def rows_of(keys: pa.Table, _names: Sequence[str]) -> dict[int, dict[str, Any]]:
        asked = enumerate(keys.column("k").to_pylist())
        return {place: {"doc": table[key][1]} for place, key in asked if key in table}

    if files:
        files = carried(folder, files, ORDERING, rows_of, job="0" * 32, table="t") or files
    runs = [pq.read_table(f"{folder}/{file.path}") for file in files]
    rows = [
        {"k": key, "n": n, "doc": doc, "_epoch": 0, AT: -2, GONE: False, LEFT: None}
        for key, (n, doc) in table.items()
    ]
    found = merged(pa.concat_tables([pa.Table.from_pylist(rows, SCHEMA), *runs]), ORDERING, table="t")
    return {row["k"]: (row["n"], row["doc"]) for row in found.to_pylist()}


@deep(100)
@given(steps=st.lists(STEP, max_size=14), data=st.data())
def test_a_row_that_moves_takes_along_what_its_change_leaves_out(steps: list[Any], data: st.DataObject) -> None:
    changes, states = changes_of(steps)
    cut = data.draw(st.integers(0, len(states) - 1))
    table = states[cut - 1] if cut else {}
    mine = [one for one in changes if one[AT] >= cut]
    ends = sorted(data.draw(st.lists(st.integers(0, len(mine)), max_size=3)))
    parts = [mine[low:high] for low, high in zip([0, *ends], [*ends, len(mine)], strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        assert answer(folder, parts, table, one=True) == states[-1]


@deep(100)
@given(steps=st.lists(STEP, max_size=14), data=st.data())
def test_in_tasks_of_any_changes_it_does_so_or_says_that_it_cannot(steps: list[Any], data: st.DataObject) -> None:
    changes, states = changes_of(steps)
    parts = [list[dict[str, Any]]() for _ in range(3)]
    for one in changes:
        data.draw(st.sampled_from(parts)).append(one)
    with tempfile.TemporaryDirectory() as folder:
        try:
            assert answer(folder, parts, {}, one=False) == states[-1]
        except MovedUnknown:
            assert len([part for part in parts if part]) > 1


@pytest.mark.parametrize("steps", [("00", "01", "00"), ("00", "01", "12"), ("00", "00", "01", "00", "12", "01")])
def test_in_one_epoch_a_row_moves_twice_and_its_key_gets_another(steps: Sequence[str]) -> None:
    found = [("put" if one[0] == one[1] else "move", int(one[0]), int(one[1]), True, False) for one in steps]
    for at in range(len(found)):
        for first in (("put", 0, 0, False, False), ("put", 0, 0, False, True)):
            changes, states = changes_of([("put", 0, 0, False, True), first, *found])
            mine = [one for one in changes if one[AT] > 0]
            with tempfile.TemporaryDirectory() as folder:
                assert answer(folder, [mine[:at], mine[at:]], states[0], one=True) == states[-1]


def test_a_value_that_another_task_may_have_dropped_is_not_known() -> None:
    changes, _ = changes_of(
        [("put", 0, 0, False, False)] * 2 + [("move", 0, 1, True, False), ("put", 0, 0, False, False)]
    )
    first, second, leaving, coming, third = changes
    with tempfile.TemporaryDirectory() as folder, pytest.raises(MovedUnknown, match="key 0"):
        answer(folder, [[first, second, third], [leaving, coming]], {0: (0, "older")}, one=False)
    with tempfile.TemporaryDirectory() as folder:
        assert answer(folder, [[first, second], [leaving, coming, third]], {}, one=False)[1] == (5, "v1")
