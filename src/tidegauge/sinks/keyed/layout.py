"""From rows to changes of a table by key: which column is the key, what comes last, and what takes a row away.

    rows      as the output's steps give them, perhaps with `_op`, perhaps with a column `deleted`
    changes   the columns of the table, and of each change the epoch it is of, whether it takes its key's row away,
              and which columns it leaves out (`tidegauge.leftout`)
    table     one row for each key: that of its last change, with the epoch of that change as `_epoch`

Invariant: a change depends on its row alone, and each row makes one. Only a row with the operation `before` makes
none.

>>> layout = Keyed(("id",))
>>> rows = pa.record_batch({"id": [7, 8], "n": [1, 2], "_op": ["delete", "before"], "_epoch": [3, 3]})
>>> layout.columns(rows.schema).names
['id', 'n', '_epoch']
>>> layout.changes(rows, table="t").to_pylist()
[{'id': 7, 'n': 1, '_epoch': 3, 'at=': 3, 'gone=': True, 'left=': None}]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.kafkasink import KeyMissing
from tidegauge.errors.sinks import KeyedColumnUnfit
from tidegauge.lazy import library
from tidegauge.leftout import LEAVING, LEFT, moving
from tidegauge.operations import BEFORE, DELETE, OP, carries
from tidegauge.sinks.columns import EPOCH

__all__ = ["AT", "GONE", "MARKS", "Keyed", "Ordering"]

pc: Final = library("pyarrow.compute")

AT: Final = "at="
"""The epoch that a change is of; its row's `_epoch` may be a later one, where the past of an output has one epoch."""
GONE: Final = "gone="
"""Whether a change takes the row of its key away. No column of rows has such a name."""

MARKS: Final = (pa.field(AT, pa.int64()), pa.field(GONE, pa.bool_()), pa.field(LEFT, pa.string()))
"""The columns that changes have beside those of the table."""

_OFFSET: Final = "_offset"
_PARTITION: Final = "_partition"


@dataclass(frozen=True, slots=True)
class Ordering:
    """What tells changes apart, and which of those of one key and epoch is the last.

    place: the column of the partition that a change came from, where `order` counts within partitions.
    """

    key: tuple[str, ...]
    order: str | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Keyed:
    """How rows become changes of a table. Columns by their names; see `DeltaSink`."""

    key: tuple[str, ...]
    order: str | None = None
    deleted: str | None = None

    @staticmethod
    def of(key: str | Sequence[str], order: str | None, deleted: str | None) -> Keyed:
        """Return what a sink's arguments say."""
        return Keyed((key,) if isinstance(key, str) else tuple(key), order, deleted)

    def check(self, columns: pa.Schema) -> None:
        """Raise `KeyedColumnUnfit` unless rows of these columns, in stored form, can be changes of a table."""
        for parameter in ("key", "order", "deleted"):
            named = getattr(self, parameter)
            for column in [named] if isinstance(named, str) else named or ():
                if column not in columns.names or column in (EPOCH, OP):
                    self._unfit(columns, parameter, column, "there is no such column")
        for column in self.key:
            kind = columns.field(column).type
            if column == self.deleted:
                self._unfit(columns, "key", column, "it is not in the table, as the column `deleted`")
            if pt.is_floating(kind) or pt.is_nested(kind):
                self._unfit(columns, "key", column, f"values of {kind} cannot be compared for certain")
        if self.deleted is not None and not pt.is_boolean(columns.field(self.deleted).type):
            self._unfit(columns, "deleted", self.deleted, "it is to be a column of booleans")
        if self.order is not None and (self.order == self.deleted or pt.is_nested(columns.field(self.order).type)):
            self._unfit(columns, "order", self.order, "it is to be a column of values that can be compared")
        if self.order == _OFFSET and carries(columns) and _PARTITION not in columns.names:
            self._unfit(columns, "order", _OFFSET, f"it counts within partitions: keep {_PARTITION!r} beside it")

    def columns(self, rows: pa.Schema) -> pa.Schema:
        """Return the columns of the table that rows of these columns are changes of."""
        return pa.schema([field for field in rows if field.name not in (OP, LEFT, self.deleted)])

    def staged(self, rows: pa.Schema) -> pa.Schema:
        """Return the columns of the changes that rows of these columns make."""
        return pa.schema([*self.columns(rows), *MARKS])

    def ordering(self, rows: pa.Schema) -> Ordering:
        """Return what decides between the changes that rows of these columns make."""
        placed = self.order == _OFFSET and carries(rows)
        return Ordering(self.key, self.order, _PARTITION if placed else None)

    def changes(self, rows: pa.RecordBatch, *, table: str, least: int = 0) -> pa.RecordBatch:
        """Return the changes that rows in stored form make. Raises `KeyMissing`.

        They may have a column of marks. least: no row of the table has an epoch before it.
        """
        schema = rows.schema
        gone: Any = pa.scalar(False, pa.bool_())  # noqa: FBT003 - a value
        if carries(schema):
            rows = rows.filter(pc.not_equal(rows.column(OP), BEFORE))
            gone = pc.equal(rows.column(OP), DELETE)
        if self.deleted is not None:
            gone = pc.or_(pc.fill_null(rows.column(self.deleted), fill_value=False), gone)
        for name in self.key:
            if rows.column(name).null_count:
                epoch = rows.column(EPOCH).filter(pc.is_null(rows.column(name)))[0].as_py()
                raise KeyMissing(epoch=epoch, topic=table, key=repr(name), envelope="upsert")
        at = rows.column(EPOCH)
        if isinstance(gone, pa.Scalar):
            gone = pa.repeat(gone, rows.num_rows)
        made = {name: rows.column(name) for name in self.columns(schema).names}
        made[EPOCH] = pc.max_element_wise(at, pa.scalar(least, at.type)) if least else at
        left: Any = rows.column(LEFT) if LEFT in schema.names else pa.nulls(rows.num_rows, pa.string())
        if left.null_count < len(left):
            needless = pc.and_not(gone, pa.array(moving(left, LEAVING)))  # of what goes, only that has values
            left = pc.if_else(needless, pa.scalar(None, pa.string()), left)
        return pa.RecordBatch.from_arrays([*made.values(), at, gone, left], schema=self.staged(schema))

    def _unfit(self, columns: pa.Schema, parameter: str, column: str, problem: str) -> None:
        raise KeyedColumnUnfit(parameter=parameter, column=column, problem=problem, known=columns.names)
