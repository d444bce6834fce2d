"""The partitions of a table of Iceberg: its own transforms, in its own specification, so every reader prunes by them.

    staged    the values of a file's rows as text: an ordinal of a transform, or the value of the column
    entry     the same as a record of the manifest's, which has numbers, texts and booleans

A table's partitions fit a layout if they have the same transforms of the same columns, in the same order, whatever
they are called: `PARTITIONED BY (bucket(16, id))` of Spark has another name for it than a sink.

Invariant: `texts_in(record_of(values, layout, columns), ...) == values`.

>>> from tidegauge.sinks.layout.transforms import day
>>> layout = FileLayout.of("IcebergSink", ["country", day("at")], None, None, hidden=True)
>>> columns = pa.schema([("country", pa.string()), ("at", pa.timestamp("us", "UTC"))])
>>> list(record_of((("country", "DE"), ("at_day", "20777")), layout, columns))
['DE', 20777]
>>> spec_of(layout, {"country": 1, "at": 2}, number=0)
PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name='country'), \
PartitionField(source_id=2, field_id=1001, transform=DayTransform(), name='at_day'), spec_id=0)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.layout import PartitionedOtherwise
from tidegauge.sinks.iceberg.columns import columns_of
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.values import PartitionValues, parsed
from tidegauge.sinks.protocol import OutputId

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as PyIcebergTable
    from pyiceberg.table.update import TableUpdate
    from pyiceberg.typedef import Record

__all__ = ["brought", "check_parted", "partitions_in", "record_of", "spec_of", "spec_text", "texts_in"]

_FIRST: Final = 1000
"""The number of the first partition field of a table, by the specification."""
_START: Final = date(1970, 1, 1)


def spec_of(layout: FileLayout, ids: Mapping[str, int], *, number: int, first: int = _FIRST) -> PartitionSpec:
    """Return the specification of a layout. ids: the numbers of the columns. first: that of its first field."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import parse_transform

    return PartitionSpec(
        *(
            PartitionField(ids[one.column], first + at, parse_transform(_transform(one.kind, one.buckets)), one.name)
            for at, one in enumerate(layout.partition)
        ),
        spec_id=number,
    )


def check_parted(table: PyIcebergTable, output: OutputId, layout: FileLayout) -> None:
    """Raise `PartitionedOtherwise` unless a table is parted as the layout has it."""
    schema, spec = table.schema(), table.spec()
    if _fields(spec, schema) != _wanted(layout):
        name, held = ".".join(table.name()), spec_text(table, spec.spec_id)
        raise PartitionedOtherwise(table=name, output=str(output), held=held, wanted=layout.said)


def brought(
    table: PyIcebergTable, schema: Schema, layout: FileLayout
) -> tuple[PartitionSpec, tuple[TableUpdate, ...]]:
    """Return the specification that parts a table as a layout has it, and what makes it the table's.

    schema: the table's, with that change.
    """
    from pyiceberg.table.update import AddPartitionSpecUpdate, SetDefaultSpecUpdate

    ids = {one.column: schema.find_field(one.column).field_id for one in layout.partition}
    if _fields(table.spec(), schema) == _wanted(layout):
        return table.spec(), ()
    specs = table.specs()
    last = table.metadata.last_partition_id
    spec = spec_of(layout, ids, number=1 + max(specs), first=1 + max(_FIRST - 1, last or 0))
    found = next((one for one in specs.values() if _fields(one, schema) == _wanted(layout)), None)
    if found is not None:
        return found, (SetDefaultSpecUpdate.model_validate({"spec-id": found.spec_id}),)
    return spec, (AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate.model_validate({"spec-id": -1}))


def record_of(values: PartitionValues, layout: FileLayout, columns: pa.Schema) -> Record:
    """Return the values of a staged file as a manifest has them."""
    from pyiceberg.typedef import Record

    return Record(
        *(
            _value(text, columns.field(one.column).type if one.kind == "column" else pa.int32())
            for (_, text), one in zip(values, layout.partition, strict=True)
        )
    )


def texts_in(record: Any, layout: FileLayout, columns: pa.Schema) -> PartitionValues:
    """Return the values of an entry as those of a staged file. Its table is parted as the layout has it."""
    return tuple(
        (one.name, _text(record[at], columns.field(one.column).type if one.kind == "column" else pa.int32()))
        for at, one in enumerate(layout.partition)
    )


def partitions_in(table: PyIcebergTable, layout: FileLayout) -> Callable[[DataFile], PartitionValues | None]:
    """Return what tells the partition of a table's file, None of one that is not parted as the layout has it."""
    if not layout.partition:
        return lambda _entry: ()
    schema = table.schema()
    columns, wanted = columns_of(schema), _wanted(layout)
    fit = {number for number, spec in table.specs().items() if _fields(spec, schema) == wanted}
    return lambda entry: texts_in(entry.partition, layout, columns) if entry.spec_id in fit else None


def spec_text(table: PyIcebergTable, number: int) -> str:
    """Return what a specification of a table parts it by, for people."""
    fields = _fields(table.specs()[number], table.schema())
    return ", ".join(f"{kind}({column})" for column, kind in fields) or "nothing"


def _value(text: str | None, kind: Any) -> Any:
    found = parsed(text, kind)
    return (found.cast(pa.int32()) if pt.is_date(kind) else found).as_py()


def _text(value: Any, kind: Any) -> str | None:
    if value is None:
        return None
    if pt.is_date(kind):
        return (_START + timedelta(days=value)).isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _transform(kind: str, buckets: int) -> str:
    return {"column": "identity", "bucket": f"bucket[{buckets}]"}.get(kind, kind)


def _wanted(layout: FileLayout) -> list[tuple[str, str]]:
    return [(one.column, _transform(one.kind, one.buckets)) for one in layout.partition]


def _fields(spec: PartitionSpec, schema: Schema) -> list[tuple[str, str]]:
    """Return the columns and transforms of a specification."""
    return [
        (schema.find_column_name(one.source_id) or f"column {one.source_id}", str(one.transform))
        for one in spec.fields
    ]
