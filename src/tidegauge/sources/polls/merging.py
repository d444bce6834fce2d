"""How a poll becomes rows: all of it, or its difference from the polls before, by key.

    append          each row is a row
    ledger(key)     a row whose key is not staged yet is a row; the others are known
    snapshot(key)   all rows that there are now: `_op` says what became of each key since the poll before
    upsert(key)     each row is the row of its key from now on: an `update`

A ledger and a snapshot are compared with the log itself: it is read once, by the first poll of a run, and its
keys, or the rows of now, are then kept in memory.

Invariant. For a snapshot, the view of all rows ever given (`operations`) is the last snapshot. For a ledger, no key
comes twice.

>>> merging = Merging("snapshot", ("id",), pa.schema([("id", pa.int64()), ("n", pa.int64())]))
>>> memory = merging.memory(())
>>> def rows(*pairs): return pa.table({"id": [i for i, _ in pairs], "n": [n for _, n in pairs]})
>>> memory.merged("it", rows((1, 5), (2, 6))).to_pylist()[0]
{'id': 1, 'n': 5, '_op': 'insert'}
>>> [(row["id"], row["n"], row["_op"]) for row in memory.merged("it", rows((2, 7), (3, 1))).to_pylist()]
[(1, 5, 'delete'), (2, 6, 'before'), (2, 7, 'update'), (3, 1, 'insert')]
>>> memory.merged("it", rows((2, 7), (3, 1))).num_rows
0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument, ReservedColumn
from tidegauge.errors.polls import KeysUnfit
from tidegauge.operations import BEFORE, DELETE, INSERT, OP, UPDATE

__all__ = ["MergeMemory", "Merges", "Merging", "merging_of"]

Merges: TypeAlias = Literal["append", "ledger", "snapshot", "upsert"]

_Key: TypeAlias = tuple[Any, ...]
_Row: TypeAlias = Mapping[str, Any]


class MergeMemory(Protocol):
    """What a merge knows of all polls before."""

    def merged(self, source: str, fetched: pa.Table, /) -> pa.Table:
        """Return the rows that a poll brings, and know them from now on. Raises `KeysUnfit`."""
        ...


@dataclass(frozen=True, slots=True)
class Merging:
    """A merge strategy. columns: those that are fetched."""

    how: Merges
    key: tuple[str, ...]
    columns: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        if self.how in ("append", "ledger"):
            return self.columns
        return self.columns.append(pa.field(OP, pa.string()))

    @property
    def tells_apart(self) -> bool:
        """Whether rows that come again are known as such, without a state."""
        return self.how in ("ledger", "snapshot")

    def memory(self, staged: Iterable[pa.RecordBatch]) -> MergeMemory:
        """Return the memory of a log whose rows are these, in their order; they are read where they matter."""
        match self.how:
            case "append":
                return _Append()
            case "upsert":
                return _Upsert(self)
            case "ledger":
                return _Ledger(self, {key for batch in staged for key in self.keys(batch)})
            case "snapshot":
                return _Snapshot(self, _view(self, staged))

    def keys(self, rows: Any) -> list[_Key]:
        """Return the key of each row."""
        return list(zip(*(rows.column(name).to_pylist() for name in self.key), strict=True))

    def sound(self, source: str, rows: pa.Table, *, once: bool) -> list[_Key]:
        """Return the keys of rows. Raises `KeysUnfit` for one that is null, or comes twice where it may not."""
        keys, seen = self.keys(rows), set[_Key]()
        for at, key in enumerate(keys):
            if None in key:
                raise KeysUnfit(source=source, key=list(self.key), problem=f"row {at} has null in it")
            if once and key in seen:
                raise KeysUnfit(
                    source=source, key=list(self.key), problem=f"row {at} has {key!r:.80}, which came before"
                )
            seen.add(key)
        return keys


def merging_of(how: Any, key: str | Sequence[str], columns: pa.Schema) -> Merging:
    """Return a strategy as a user gave it. Raises `InvalidArgument`, `ReservedColumn`."""
    if how not in get_args(Merges):
        raise InvalidArgument(parameter="merge", value=how, expected="'append', 'ledger', 'snapshot' or 'upsert'")
    names = (key,) if isinstance(key, str) and key else tuple(key)
    if how == "append":
        if names:
            raise InvalidArgument(parameter="key", value=key, expected="no key with merge='append'")
        return Merging(how, (), columns)
    if not names or not all(isinstance(name, str) and name in columns.names for name in names):
        expected = f"columns of {columns.names} with merge={how!r}"
        raise InvalidArgument(parameter="key", value=key, expected=expected)
    for name in names:
        if pa.types.is_nested(columns.field(name).type) or pa.types.is_floating(columns.field(name).type):
            expected = "columns of plain types, and no floating point"
            raise InvalidArgument(parameter="key", value=name, expected=expected)
    if OP in columns.names:
        raise ReservedColumn(where=f"merge={how!r}", column=OP)
    return Merging(how, names, columns)


class _Append:
    def merged(self, _source: str, fetched: pa.Table) -> pa.Table:
        return fetched


@dataclass(frozen=True, slots=True)
class _Upsert:
    merging: Merging

    def merged(self, source: str, fetched: pa.Table) -> pa.Table:
        self.merging.sound(source, fetched, once=False)
        return _operating(fetched, [UPDATE] * fetched.num_rows)


@dataclass(frozen=True, slots=True)
class _Ledger:
    merging: Merging
    known: set[_Key]

    def merged(self, source: str, fetched: pa.Table) -> pa.Table:
        keys = self.merging.sound(source, fetched, once=False)
        new = list[bool]()
        for key in keys:
            new.append(key not in self.known)
            self.known.add(key)
        return fetched.filter(pa.array(new, pa.bool_()))


@dataclass(slots=True)
class _Snapshot:
    merging: Merging
    rows: dict[_Key, _Row]

    def merged(self, source: str, fetched: pa.Table) -> pa.Table:
        keys = self.merging.sound(source, fetched, once=True)
        now: dict[_Key, _Row] = dict(zip(keys, fetched.to_pylist(), strict=True))
        told: list[_Row] = [{**row, OP: DELETE} for key, row in self.rows.items() if key not in now]
        for key, row in now.items():
            before = self.rows.get(key)
            if before is None:
                told.append({**row, OP: INSERT})
            elif not _same(before, row):
                told += [{**before, OP: BEFORE}, {**row, OP: UPDATE}]
        self.rows = now
        return pa.Table.from_pylist(told, self.merging.schema)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are one: a NaN is the one of before.

    >>> _same({"a": [float("nan"), 1]}, {"a": [float("nan"), 1]}), _same(0.0, -0.0)
    (True, False)
    """
    if isinstance(one, float) and isinstance(other, float):
        return one.hex() == other.hex()
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _view(merging: Merging, staged: Iterable[pa.RecordBatch]) -> dict[_Key, _Row]:
    """Return the rows that all operations leave."""
    rows: dict[_Key, _Row] = {}
    for batch in staged:
        for key, row in zip(merging.keys(batch), batch.to_pylist(), strict=True):
            match row.pop(OP):
                case "delete":
                    rows.pop(key, None)
                case "insert" | "update":
                    rows[key] = row
    return rows


def _operating(rows: pa.Table, operations: Sequence[str]) -> pa.Table:
    return rows.append_column(pa.field(OP, pa.string()), pa.array(operations, pa.string()))
