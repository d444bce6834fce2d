"""Debezium's records: an operation, with the row before it and the row after it.

In JSON a record stands bare, or in `payload` beside its `schema`: Kafka Connect has an option for that, and one topic
may have both. The columns of the rows are declared. In Avro and Protobuf the schema is that of the record, so it has
them: `rows_in`.

Some records cannot be carried out by key. PostgreSQL does not log a large value that an UPDATE leaves unchanged
(TOAST), and Debezium puts a placeholder there. To take it for the value, or to take the row away, would lose the
value that the table has. A TRUNCATE takes all rows away, and names none. Both are *refused*, not collected as bad
records: the table would be wrong from then on, without a sign.

Invariant: whether a record is good, bad or refused, and what it says, depends on it alone.

>>> from tidegauge.sources.formats.json import Json
>>> row, format = pa.schema([("id", pa.int64()), ("note", pa.string())]), Json("id long, note string")
>>> texts = [b'{"op": "c", "after": {"id": 1}}', b'{"payload": {"op": "d"}}', b'{"op": "m"}', b'{"op": "t"}']
>>> found = records_of(format, texts, row, print)
>>> found.words.tolist(), found.wrong[2], found.refused
(['c', 'd'], "its op is 'm', none of c, r, u and d", {3: (<class 'tidegauge.errors.changes.TableTruncated'>, {})})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from tidegauge.errors.base import Definite
from tidegauge.errors.changes import NoChangeRecords, TableTruncated, ValueUnavailable
from tidegauge.lazy import library
from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.json import Json
from tidegauge.sources.formats.messages import MessageFormat, OnBadMessage

__all__ = [
    "PAYLOAD",
    "DecodedChanges",
    "Refusals",
    "in_payload",
    "records_of",
    "rows_in",
    "taken_out",
    "truncations",
    "unavailable",
]

pc: Final[Any] = library("pyarrow.compute")

PAYLOAD: Final = "payload"
_PUTS: Final = ("c", "r", "u")
_TRUNCATE: Final = "t"
_PLACEHOLDER: Final = "__debezium_unavailable_value"
_SHOWN: Final = 40

Refusal: TypeAlias = tuple[type[Definite], dict[str, str]]
"""An error, and its facts beside the place."""

Refusals: TypeAlias = Mapping[int, Refusal]
"""The messages that end the reading."""


@dataclass(frozen=True, slots=True)
class DecodedChanges:
    """Decoded values. places: which value each is, ascending. words: their operations, as Debezium abbreviates them.

    images: the columns of the rows before all of them, and then of the rows after them, `shift` places on. told:
    whether there is a row before. wrong: why values are no such records. refused: those that must not be passed over.
    """

    places: Ints
    words: Any
    images: Sequence[Any]
    shift: int
    told: Any
    wrong: Mapping[int, str] = field(default_factory=dict)
    refused: Refusals = field(default_factory=dict)


def rows_in(record: pa.Schema, *, without: Sequence[str]) -> pa.Schema:
    """Return the columns of rows, given those of records, but for the key's. Raises `NoChangeRecords`.

    without: the columns of the key, which rows have from there.

    >>> row = pa.struct([("id", pa.int64()), ("name", pa.string())])
    >>> rows_in(pa.schema([("before", row), ("after", row), ("op", pa.string())]), without=["id"]).names
    ['name']
    >>> rows_in(pa.schema([("name", pa.string())]), without=[])
    Traceback (most recent call last):
    tidegauge.errors.changes.NoChangeRecords: TG-0465: ... there is no struct 'after' among them: name
    ...
    """
    after = record.field("after").type if record.names.count("after") == 1 else None
    if after is None or not pa.types.is_struct(after):
        raise NoChangeRecords(detail=f"there is no struct 'after' among them: {', '.join(record.names)}")
    if record.names.count("op") != 1 or not pa.types.is_string(record.field("op").type):
        raise NoChangeRecords(detail=f"there is no text 'op' among them: {', '.join(record.names)}")
    taken = {name.lower() for name in without}
    return pa.schema([one for one in after if one.name.lower() not in taken])


def _wire(columns: Sequence[Any], format: MessageFormat) -> pa.Schema:
    """Return the columns as which parts of records are decoded."""
    return in_payload(columns) if isinstance(format, Json) else pa.schema(columns)


def _parts(rows: pa.RecordBatch, format: MessageFormat) -> list[Any]:
    """Return the columns of `_wire`."""
    return taken_out(rows) if isinstance(format, Json) else list(rows.columns)


def records_of(
    format: MessageFormat, values: Sequence[bytes | None], columns: pa.Schema, on_bad: OnBadMessage
) -> DecodedChanges:
    """Return the records among values; those that the format does not understand go to `on_bad`."""
    row = pa.struct([one.with_nullable(True) for one in columns])  # noqa: FBT003
    wire = _wire([pa.field("before", row), pa.field("after", row), pa.field("op", pa.string())], format)
    part = format.decode_messages(values, schema=wire, on_bad=on_bad)
    places = np.arange(len(values)) if part.indices is None else part.indices.to_numpy()
    before, after, op = _parts(part.rows, format)
    words = np.array(op.to_pylist(), object)
    puts, afters = np.isin(words, _PUTS), after.flatten()
    truncated = np.flatnonzero(words == _TRUNCATE).tolist()
    refused: dict[int, Refusal] = {int(places[at]): (TableTruncated, {}) for at in truncated}
    for at, column in unavailable(columns.names, afters).items():
        if puts[at]:
            refused[int(places[at])] = (ValueUnavailable, {"column": f"after/{column}"})
    wrong: dict[int, str] = {}
    for at in np.flatnonzero(~puts & (words != "d")).tolist():
        wrong[at] = f"its op is {repr(words[at])[:_SHOWN]}, none of c, r, u and d"
    for at in np.flatnonzero(puts & after.is_null().to_numpy(zero_copy_only=False)).tolist():
        wrong[at] = f"its op is {words[at]!r}, and it has no row after it"
    for one, array in zip(columns, afters, strict=True):
        if not one.nullable:
            for at in np.flatnonzero(puts & array.is_null().to_numpy(zero_copy_only=False)).tolist():
                wrong.setdefault(at, f"column after/{one.name}: null, and NOT NULL")
    bad = np.fromiter(wrong, np.int64, len(wrong))
    fine = np.setdiff1d(np.arange(len(places)), bad)
    both = pa.array(np.concatenate([fine, fine + len(places)]))
    images = [pa.concat_arrays([old, new]).take(both) for old, new in zip(before.flatten(), afters, strict=True)]
    told = before.is_valid().to_numpy(zero_copy_only=False)[fine]
    texts = {int(places[at]): why for at, why in wrong.items()}
    return DecodedChanges(places[fine], words[fine], images, len(fine), told, texts, refused)


def truncations(format: MessageFormat, values: Sequence[bytes | None]) -> list[int]:
    """Return which values say that all rows are gone. Such a message has no key."""
    wire = _wire([pa.field("op", pa.string())], format)
    part = format.decode_messages(values, schema=wire, on_bad=lambda *_: None)
    [op] = _parts(part.rows, format)
    hit = np.flatnonzero(pc.fill_null(pc.equal(op, _TRUNCATE), fill_value=False).to_numpy(zero_copy_only=False))
    places: list[int] = (hit if part.indices is None else part.indices.to_numpy()[hit]).tolist()
    return places


def unavailable(names: Sequence[str], columns: Sequence[Any]) -> dict[int, str]:
    """Return the rows that have Debezium's placeholder in some column, and the first such column of each.

    >>> unavailable(["note", "tags"], [pa.array(["a", None]), pa.array([None, ["__debezium_unavailable_value"]])])
    {1: 'tags'}
    """
    found: dict[int, str] = {}
    for name, column in zip(names, columns, strict=True):
        for at in np.flatnonzero(_placeholders(column)).tolist():
            found.setdefault(at, name)
    return found


def _placeholders(column: Any) -> Any:
    """Return for each value whether it is the placeholder: a text, bytes, or an array of such."""
    kind = column.type
    if pa.types.is_list(kind):
        inside = pc.list_parent_indices(column).to_numpy()[_placeholders(column.flatten())]
        return np.isin(np.arange(len(column)), inside)
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return np.zeros(len(column), np.bool_)
    same = pc.equal(column, pa.scalar(_PLACEHOLDER.encode() if pa.types.is_binary(kind) else _PLACEHOLDER, kind))
    return pc.fill_null(same, fill_value=False).to_numpy(zero_copy_only=False)


def in_payload(columns: Sequence[Any]) -> pa.Schema:
    """Return the columns of what stands bare, or in `payload` beside a `schema`."""
    open_ones = [one.with_nullable(True) for one in columns]  # noqa: FBT003
    return pa.schema([*open_ones, pa.field(PAYLOAD, pa.struct(open_ones))])


def taken_out(rows: pa.RecordBatch) -> list[Any]:
    """Return the columns of `in_payload`, each from where it stands."""
    bare: list[Any] = list(rows.columns)
    payload = bare.pop()
    inside = payload.is_valid().to_numpy(zero_copy_only=False)
    if not inside.any():
        return bare
    places = pa.array(np.arange(rows.num_rows) + np.where(inside, rows.num_rows, 0))
    return [pa.concat_arrays(pair).take(places) for pair in zip(bare, payload.flatten(), strict=True)]
