"""Histories of a table as rows with an operation, and the model that they are held against: a dict by key."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

COLUMNS = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("user", pa.string()), ("_op", pa.string())])

Row = dict[str, Any]


def history(seed: int, *, size: int, keys: int = 7) -> list[Row]:
    """Return about `size` operations on a table, as a database gives them: each is possible where it stands."""
    rng = random.Random(seed)
    table: dict[int, Row] = {}
    rows: list[Row] = []
    while len(rows) < size:
        key = rng.randrange(keys)
        row = {"id": key, "n": rng.choice([None, 0, 1, 2, 3, 4, 5]), "user": rng.choice("abc")}
        if key not in table:
            rows.append(row | {"_op": "insert"})
            table[key] = row
            continue
        if rng.random() < 0.5:
            rows.append(table[key] | {"_op": "before"})
        if rng.random() < 0.6:
            rows.append(row | {"_op": "update"})
            table[key] = row
        else:  # a log may know no more of it than its key
            rows.append(
                (table[key] if rng.random() < 0.5 else {"id": key, "n": None, "user": None}) | {"_op": "delete"}
            )
            del table[key]
    return rows


HISTORIES = st.builds(history, st.integers(0, 1 << 32), size=st.integers(0, 60), keys=st.integers(1, 7))


def view(rows: Sequence[Row]) -> dict[int, Row]:
    """Return the table that operations make."""
    table: dict[int, Row] = {}
    for row in rows:
        plain = {name: value for name, value in row.items() if name not in {"_op", "_epoch"}}
        if row["_op"] in {"insert", "update"}:
            table[row["id"]] = plain
        elif row["_op"] == "delete":
            table.pop(row["id"], None)
        else:
            assert row["_op"] == "before"
    return table


def kept(rows: Sequence[Row], condition: Callable[[Row], bool | None]) -> list[Row]:
    """Return operations after a filter, row by row, as the reference says it."""
    found = []
    for row in rows:
        true = row["_op"] == "delete" or condition(row) is True
        if true:
            found.append(row)
        elif row["_op"] == "update":
            found.append(row | {"_op": "delete"})
    return found


def table_of(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=COLUMNS)
