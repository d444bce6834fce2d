"""Parts of a stream: the rows whose key hashes to a part (`Partition`), and those with a value (`SplitBy`).

Law: **of plain rows, each is in exactly one part**: of `parts` parts, or of the values and the rest. A null is in the
part that its hash says, or in the rest.

Rows with operations are filtered as `tidegauge.operations` has it: so a part is the table that they make, as far as
its rows are in the part, and each row of that table is in exactly one part. An `update` goes to the part of its row,
and to each other one as a `delete`, since that is where the row may have been; a `delete` goes to all. It takes no
before-image.

>>> rows = pa.record_batch({"id": [1, 2, 3], "country": ["DE", None, "SE"]})
>>> Routed(SplitBy("country", ("DE", "FR"), None))(rows).column("id").to_pylist()
[2, 3]
>>> halves = [Routed(Partition(2, ("id",), part))(rows).column("id").to_pylist() for part in (0, 1)]
>>> sorted(halves[0] + halves[1])
[1, 2, 3]
>>> moved = pa.record_batch({"id": [1, 2], "country": ["DE", "FR"], "_op": ["update", "delete"]})
>>> Routed(SplitBy("country", ("DE", "FR"), "FR"))(moved).column("_op").to_pylist()
['delete', 'delete']
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.flow import UnknownColumn
from tidegauge.errors.steps import ValueNotInColumn
from tidegauge.job.keys import check_key, parts_of
from tidegauge.job.plan import Partition, SplitBy
from tidegauge.lazy import library
from tidegauge.operations import OP, carries, filtered

__all__ = ["Routed", "check_routing"]

pc: Final[Any] = library("pyarrow.compute")


@dataclass(frozen=True, slots=True)
class Routed:
    """The step as an Arrow function."""

    step: Partition | SplitBy

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of the part."""
        mine = self._mine(batch)
        if not carries(batch.schema):
            return batch.filter(mine)
        at = batch.schema.get_field_index(OP)
        words = filtered(batch.column(at), mine)
        return batch.set_column(at, batch.schema.field(at), words).filter(words.is_valid())

    def _mine(self, batch: pa.RecordBatch) -> Any:
        step = self.step
        if isinstance(step, Partition):
            return pa.array(parts_of(batch, step.key, step.parts) == step.part)
        column = batch.column(step.column)
        if pt.is_dictionary(column.type):
            column = column.dictionary_decode()
        if step.value is not None:
            return _has(column, step.value)
        others = _has(column, step.values[0])
        for value in step.values[1:]:
            others = pc.or_(others, _has(column, value))
        return pc.invert(others)


def check_routing(step: Partition | SplitBy, schema: pa.Schema, *, where: str) -> None:
    """Raise unless rows of these columns can be parted by a step.

    Raises `UnknownColumn`, `KeyCannotTell`, and `ValueNotInColumn`.
    """
    if isinstance(step, Partition):
        check_key(step.key, schema, where=where)
        return
    if step.column not in schema.names:
        raise UnknownColumn(column=step.column, where=where, known=schema.names)
    kind = schema.field(step.column).type
    kind = kind.value_type if pt.is_dictionary(kind) else kind
    for value in step.values:
        if not _fits(value, kind):
            raise ValueNotInColumn(where=where, value=value, column=step.column, type=str(kind))


def _fits(value: Any, kind: Any) -> bool:
    """Whether a column of a type can have a value."""
    if pt.is_nested(kind) or isinstance(value, bool) != pt.is_boolean(kind):
        return False
    try:
        return bool(pa.scalar(value, kind).as_py() == value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False


def _has(column: Any, value: Any) -> Any:
    """Return for each row whether it has a value; a null has none."""
    return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), fill_value=False)
