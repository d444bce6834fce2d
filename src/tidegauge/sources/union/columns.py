"""The columns of a union: those of its inputs by name, and `_source`, which says where a row is from.

    a column of some inputs alone             is null in the rows of the others
    columns of one name and different types   cannot be united: which type would be right, nobody knows
    `_op`, the operation of a row             is in all inputs or in none

Invariant: the columns follow from the inputs' alone, data first, then what sources tell of a record, then `_source`.

>>> web = pa.schema([("id", pa.int64()), ("agent", pa.string()), ("_offset", pa.int64())])
>>> united({"web": web, "shop": pa.schema([("id", pa.int64()), ("till", pa.int32())])}).names
['id', 'agent', 'till', '_offset', '_source']
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from tidegauge.errors.unions import CannotUnite
from tidegauge.evolution import filled
from tidegauge.operations import OP, carries

__all__ = ["SOURCE", "aligned", "united"]

SOURCE: Final = "_source"
"""The column with the name of the input that a row is of."""

_EPOCH: Final = "_epoch"


def united(inputs: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the columns of a union of inputs with these. Raises `CannotUnite`."""
    found: dict[str, tuple[str, pa.Field[pa.DataType]]] = {}
    operating = {name for name, schema in inputs.items() if carries(schema)}
    if operating and (without := inputs.keys() - operating):
        raise CannotUnite(
            why=f"rows of {_named(operating)} have operations in {OP!r}, and those of {_named(without)} have none",
            remedy="unite sources that have an envelope apart from those that have none",
        )
    for name, schema in inputs.items():
        for column in schema:
            if column.name.lower() == SOURCE:
                raise CannotUnite(
                    why=f"source {name!r} has a column {column.name!r}, in which a union names the source of a row",
                    remedy="give the column another name where the source declares it",
                )
            other, known = found.setdefault(column.name.lower(), (name, pa.field(column.name, column.type)))
            if known.name != column.name or not known.type.equals(column.type):
                raise CannotUnite(
                    why=f"{known.name!r} is {known.type} in source {other!r}, and {column.name!r} is {column.type} "
                    f"in source {name!r}",
                    remedy="declare the column alike in both sources, or under two names",
                )
    data = [column for _, column in found.values() if not column.name.startswith("_") or column.name == OP]
    told = [column for _, column in found.values() if column.name.startswith("_") and column.name != OP]
    return pa.schema([*data, *told, pa.field(SOURCE, pa.string())])


def aligned(batch: pa.RecordBatch, columns: pa.Schema, *, name: str) -> pa.RecordBatch:
    """Return rows of an input with the union's columns, and with `_epoch` behind them where they have it.

    >>> columns = united({"web": pa.schema([("id", pa.int64())]), "shop": pa.schema([("till", pa.int32())])})
    >>> aligned(pa.record_batch({"id": [7]}), columns, name="web").to_pylist()
    [{'id': 7, 'till': None, '_source': 'web'}]
    """
    told = batch.append_column(SOURCE, pa.repeat(pa.scalar(name, pa.string()), batch.num_rows))
    parts = [field for field in batch.schema if field.name == _EPOCH]  # of splits that its input has joined
    return filled(told, pa.schema([*columns, *parts]))


def _named(names: set[str]) -> str:
    return ", ".join(map(repr, sorted(names)))
