"""Arrow rows of any columns that a flow can carry from a source to a table.

The types are those that a schema in DDL names: they pass through Spark, Parquet and Delta unchanged.

Invariant: a schema of `schemas` is `stored` and `carried` with its own types, and `rows` hold what they say: no null
where a column has none, no key twice in a map.

>>> from hypothesis import find, settings
>>> steady = settings(derandomize=True)  # the same examples each time
>>> find(rows("id long not null, amount decimal(4,2)"), lambda batch: batch.num_rows, settings=steady).to_pylist()
[{'id': 0, 'amount': None}]
"""

from __future__ import annotations

from datetime import UTC
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt
from hypothesis import strategies as st

from tidegauge.errors.testing import NoStrategyKnown
from tidegauge.sources.ddl import as_schema
from tidegauge.testing.strategies.arguments import sizes, strategies

__all__ = ["column_names", "column_types", "rows", "schemas", "values"]

_PLAIN: Final = [
    pa.int64(), pa.string(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.float32(), pa.float64(), pa.binary(),
    pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"),
]  # fmt: skip
_EXACT: Final = Context(prec=40)
_TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def column_names() -> st.SearchStrategy[str]:
    """Names of columns, short, of letters and digits of any script; none that Tidegauge writes itself."""
    letters = st.characters(categories=["Lu", "Ll", "Lo", "Nd"])
    return st.sampled_from(["a", "b", "Id", "event_time"]) | st.text(letters, min_size=1, max_size=6)


def column_types(*, nested: bool = True) -> st.SearchStrategy[pa.DataType]:
    """Types of columns: all plain ones, decimals of every precision, and lists, maps and structs of them.

    nested: whether there are lists, maps and structs.
    """
    decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
    plain = st.sampled_from(_PLAIN) | decimals
    if not nested:
        return plain
    return st.recursive(
        plain,
        lambda inner: (
            inner.map(pa.list_)
            | st.builds(pa.map_, plain, inner)
            | _fields(inner, st.just(True), max_size=3).map(pa.struct)  # noqa: FBT003 - what it draws
        ),
        max_leaves=4,
    )


def schemas(
    *, types: st.SearchStrategy[pa.DataType] | None = None, min_size: int = 1, max_size: int = 4
) -> st.SearchStrategy[pa.Schema]:
    """Schemas, some with columns that are never null. types: those of the columns, by default `column_types()`."""
    sizes("schemas", min_size, max_size, least=1)
    types = column_types() if types is None else types
    strategies("schemas", types=types)
    return _fields(types, st.sampled_from([True, False]), min_size=min_size, max_size=max_size).map(pa.schema)


def rows(
    schema: pa.Schema | str | None = None, *, min_size: int = 0, max_size: int = 8
) -> st.SearchStrategy[pa.RecordBatch]:
    """Batches of rows: nulls, the largest and the smallest values, Unicode, NaN, days from the year 1 to 9999.

    schema: an Arrow schema or a text in DDL, by default any of `schemas()`. min_size, max_size: how many rows. Raises
    `NoStrategyKnown` for a type that no flow carries, and `InvalidSchema` for a text that is no DDL.
    """
    sizes("rows", min_size, max_size)
    columns = as_schema(schema)
    if columns is None:
        return schemas().flatmap(lambda any_schema: rows(any_schema, min_size=min_size, max_size=max_size))
    return _batches(columns, st.lists(st.tuples(*map(_cells, columns)), min_size=min_size, max_size=max_size))


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a column type as Python objects, none of them None. Raises `NoStrategyKnown`."""
    if pt.is_signed_integer(kind):
        most = 2 ** (kind.bit_width - 1) - 1
        return st.integers(0, 9) | st.sampled_from([most, -most - 1, -1]) | st.integers(-most - 1, most)
    if pt.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        most = 10**kind.precision - 1
        unscaled = st.integers(0, min(9, most)) | st.sampled_from([most, -most]) | st.integers(-most, most)
        return unscaled.map(lambda n: Decimal(n).scaleb(-kind.scale, _EXACT))
    for matches, of_kind in _VALUES:
        if matches(kind):
            return of_kind
    if pt.is_timestamp(kind) and kind.unit == "us":
        return st.datetimes() if kind.tz is None else st.datetimes(timezones=st.just(UTC))
    if pt.is_struct(kind) and kind.num_fields:
        return st.fixed_dictionaries({field.name: _cells(field) for field in kind})
    if pt.is_map(kind) and not pt.is_nested(kind.key_type):
        keys = values(kind.key_type).filter(_is_itself)
        return st.dictionaries(keys, _cells(kind.item_field), max_size=3).map(lambda found: list(found.items()))
    if pt.is_list(kind):
        return st.lists(_cells(kind.value_field), max_size=3)
    instead = "choose one that a schema in DDL has a name for; docs/reference/sources.md lists them"
    raise NoStrategyKnown(strategy="values", thing=f"the column type {kind}", instead=instead)


_VALUES: Final[list[tuple[Any, st.SearchStrategy[Any]]]] = [
    (pt.is_boolean, st.booleans()),
    (pt.is_string, _TEXT),
    (pt.is_binary, st.binary(max_size=8)),
    (pt.is_float32, st.floats(width=32)),
    (pt.is_float64, st.floats()),
    (pt.is_date32, st.dates()),
]


def _fields(
    types: st.SearchStrategy[pa.DataType], nullable: st.SearchStrategy[bool], *, min_size: int = 1, max_size: int
) -> st.SearchStrategy[list[pa.Field]]:
    """Fields whose names differ in more than upper and lower case. Nested ones can always be null in a table."""
    fields = st.builds(pa.field, column_names(), types, nullable=nullable)
    return st.lists(fields, min_size=min_size, max_size=max_size, unique_by=lambda field: field.name.lower())


def _cells(field: pa.Field) -> st.SearchStrategy[Any]:
    return st.none() | values(field.type) if field.nullable else values(field.type)


def _is_itself(value: Any) -> bool:
    """Whether a value is equal to itself, as a key has to be: NaN is not."""
    return bool(value == value)


@st.composite
def _batches(draw: st.DrawFn, schema: pa.Schema, cells: st.SearchStrategy[list[tuple[Any, ...]]]) -> pa.RecordBatch:
    found = draw(cells)
    columns = zip(*found, strict=True) if found else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
