"""From rows to messages: which columns make a message's key, value, headers, partition and time.

Invariant: a message depends on its row alone; and each row makes one message, in the order of the rows. Only a row
with the operation `before` makes none. (With `envelope="debezium"` each makes one; `paired` makes changes of them.)

>>> layout = MessageLayout("orders", key=("id",))
>>> rows = pa.record_batch({"id": [7], "user": ["ada"], "_epoch": [3]})
>>> layout.encode(rows).select(["key", "value", "_epoch"]).to_pylist()
[{'key': b'7', 'value': b'{"id":7,"user":"ada"}', '_epoch': 3}]

Of an upsert at most one message for a key and an epoch is sent: that of the last row, the one with the greatest
`order`; null is less than anything, and of two with the same `order` either may be it. Without an `order` there is no
last one, as rows of one epoch come from tasks that run side by side; so two rows of one key are then refused, rather
than one of them chosen by chance.

>>> rows = pa.table({"key": [b"a", b"b", b"a"], "order": [2, 1, 1]})
>>> lasts(rows, ordered=True, topic="t", epoch=0).to_pylist()
[True, True, False]
>>> deletes = pa.record_batch({"id": [7, 8], "_op": ["delete", "before"], "_epoch": [3, 3]})
>>> MessageLayout("orders", key=("id",), envelope="upsert").encode(deletes).select(["key", "value"]).to_pylist()
[{'key': b'7', 'value': None}]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.types as pt

from tidegauge.errors.kafkasink import ColumnUnfit, KeyMissing, LastUndecided, TimeUnfit
from tidegauge.operations import BEFORE, DELETE, OP, carries
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.envelope import KafkaEnvelope
from tidegauge.sinks.kafka.debezium import OPERATION, ORDER, PLACE
from tidegauge.sinks.kafka.jsontext import objects, texts

__all__ = ["MARK", "MESSAGES", "MessageLayout", "lasts"]

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see


MARK: Final = "tidegauge-"
"""How the names of our headers begin. Such headers of the user's, of a message passed on for one, are dropped."""

_OFFSET: Final = "_offset"
_PARTITION: Final = "_partition"

_MILLISECOND: Final = 1000
_SHOWN: Final = 100

_HEADERS: Final = pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))

MESSAGES: Final = pa.schema(
    [
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("headers", _HEADERS),
        ("partition", pa.int32()),
        ("timestamp", pa.int64()),
        pa.field(EPOCH, pa.int64(), nullable=False),
    ]
)
"""The columns of staged messages. `timestamp` is milliseconds since 1970. Upserts have besides what decides them."""


@dataclass(frozen=True, slots=True)
class MessageLayout:
    """How the rows of an output become messages of a topic. Columns by their names; see `KafkaSink`."""

    topic: str
    key: str | tuple[str, ...] | None = None
    value: str | tuple[str, ...] | None = None
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    deleted: str | None = None
    order: str | None = None
    envelope: KafkaEnvelope = "append"

    def check(self, columns: pa.Schema) -> None:
        """Raise `ColumnUnfit` unless rows of these columns, in stored form, can be made into messages."""
        for parameter in ("key", "value", "headers", "partition", "timestamp", "deleted", "order"):
            named = getattr(self, parameter)
            for column in [named] if isinstance(named, str) else named or ():
                if column not in columns.names or column == EPOCH:
                    self._unfit(columns, parameter, column, "there is no such column")
        problem = "it is to be "
        if isinstance(self.value, str) and not _is_bytes(columns.field(self.value).type):
            self._unfit(columns, "value", self.value, f"{problem}a string or binary column; a list makes JSON of any")
        if self.headers is not None and not _is_headers(columns.field(self.headers).type):
            self._unfit(columns, "headers", self.headers, f"{problem}a map<string, binary>, or list of key and value")
        if self.partition is not None and not pt.is_integer(columns.field(self.partition).type):
            self._unfit(columns, "partition", self.partition, f"{problem}a column of integers")
        if self.timestamp is not None and not pt.is_timestamp(columns.field(self.timestamp).type):
            self._unfit(columns, "timestamp", self.timestamp, f"{problem}a column of instants")
        if self.deleted is not None and not pt.is_boolean(columns.field(self.deleted).type):
            self._unfit(columns, "deleted", self.deleted, f"{problem}a column of booleans")
        if self.order is not None and pt.is_nested(columns.field(self.order).type):
            self._unfit(columns, "order", self.order, f"{problem}a column of values that can be compared")
        if self.envelope == "debezium" and not carries(columns):
            self._unfit(
                columns, "envelope", OP, "a change needs an operation: how to ingest updates and deletes says more"
            )
        if self.order == _OFFSET and carries(columns) and _PARTITION not in columns.names:
            self._unfit(columns, "order", _OFFSET, f"it counts within partitions: keep {_PARTITION!r} beside it")

    def deciding(self, columns: pa.Schema) -> dict[str, str]:
        """Return what decides which row of a key is the last: the columns of rows, by those of their messages."""
        acting = {OPERATION: OP} if self.envelope == "debezium" else {}
        if self.order is None:
            return acting
        placed = {PLACE: _PARTITION} if self.order == _OFFSET and carries(columns) else {}
        return {**acting, ORDER: self.order, **placed}

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the columns of the messages that rows of these columns make."""
        more = self.deciding(columns).items()
        return pa.schema([*MESSAGES, *(pa.field(name, columns.field(column).type) for name, column in more)])

    def encode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the messages of rows in stored form. Raises `KeyMissing`, `NotInJson`, `TimeUnfit`."""
        operating = carries(rows.schema) and self.envelope != "debezium"
        if operating:
            rows = rows.filter(pc.not_equal(rows.column(OP), BEFORE))
        key, value = self._key(rows), self._value(rows)
        if self.envelope != "append" and key.null_count:
            epoch = rows.column(EPOCH).filter(pc.is_null(key))[0].as_py()
            raise KeyMissing(epoch=epoch, topic=self.topic, key=repr(self.key), envelope=self.envelope)
        if self.deleted is not None:
            gone = pc.fill_null(rows.column(self.deleted), fill_value=False)
            value = pc.if_else(gone, pa.scalar(None, pa.large_binary()), value)
        if operating:
            value = pc.if_else(pc.equal(rows.column(OP), DELETE), pa.scalar(None, pa.large_binary()), value)
        columns = [
            key,
            value,
            self._headers(rows),
            _none(rows, pa.int32()) if self.partition is None else _partitions(rows.column(self.partition)),
            _none(rows, pa.int64()) if self.timestamp is None else self._times(rows, self.timestamp),
            rows.column(EPOCH),
        ]
        columns += [rows.column(column) for column in self.deciding(rows.schema).values()]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema(rows.schema))

    def _key(self, rows: pa.RecordBatch) -> Any:
        if self.key is None:
            return _none(rows, pa.large_binary())
        names = [self.key] if isinstance(self.key, str) else list(self.key)
        if self.envelope == "debezium":  # whose keys are objects, and whole
            whole = reduce(pc.and_, [pc.is_valid(rows.column(name)) for name in names])
            return pc.if_else(whole, objects(rows, names).cast(pa.large_binary()), pa.scalar(None, pa.large_binary()))
        if len(names) != 1:
            return objects(rows, names).cast(pa.large_binary())
        column = rows.column(names[0])
        if _is_bytes(column.type):
            return column.cast(pa.large_binary())
        text = texts(column).cast(pa.large_binary())
        return pc.if_else(pc.is_valid(column), text, pa.scalar(None, pa.large_binary()))

    def _value(self, rows: pa.RecordBatch) -> Any:
        if isinstance(self.value, str):
            return rows.column(self.value).cast(pa.large_binary())
        if self.value is not None:
            return objects(rows, self.value).cast(pa.large_binary())
        aside = {EPOCH, OP, self.headers, self.partition, self.timestamp, self.deleted}
        return objects(rows, [name for name in rows.schema.names if name not in aside]).cast(pa.large_binary())

    def _headers(self, rows: pa.RecordBatch) -> Any:
        """Return the user's headers, without those that are ours to write."""
        if self.headers is None:
            return _none(rows, _HEADERS)
        column = rows.column(self.headers)
        pairs = column.cast(pa.list_(pa.struct([("key", pa.string()), ("value", _item_type(column.type))])))
        pairs = pairs.cast(_HEADERS)
        if not pc.any(pc.starts_with(pc.struct_field(pc.list_flatten(pairs), [0]), MARK)).as_py():
            return pairs
        kept = [
            None if row is None else [pair for pair in row if pair is None or not _ours(pair["key"])]
            for row in pairs.to_pylist()
        ]
        return pa.array(kept, _HEADERS)

    def _times(self, rows: pa.RecordBatch, column: str) -> Any:
        """Return a column of instants in milliseconds. The client takes 0 for "now", and earlier ones are none."""
        micros = rows.column(column).cast(pa.int64())
        early = pc.less(micros, _MILLISECOND)
        if pc.any(early).as_py():
            epoch, value = rows.column(EPOCH).filter(early)[0].as_py(), micros.filter(early)[0].as_py()
            seconds = f"{value / 1_000_000:g}"
            raise TimeUnfit(epoch=epoch, topic=self.topic, column=column, seconds=seconds)
        return pc.divide(micros, _MILLISECOND)

    def _unfit(self, columns: pa.Schema, parameter: str, column: str, problem: str) -> None:
        raise ColumnUnfit(parameter=parameter, column=column, problem=problem, known=columns.names)


def lasts(rows: pa.Table, *, ordered: bool, topic: str, epoch: int, exact: bool = False) -> Any:
    """Return for each row of an epoch whether it is its key's last; None when all are. Raises `LastUndecided`.

    rows: the columns `key` and, where `ordered`, `order`, perhaps with a `place`. exact: whether to refuse rows of
    one key and the same order, between which chance would choose. Takes memory for the keys of the epoch.
    """
    keys = rows.column("key")
    if pc.count_distinct(keys).as_py() == rows.num_rows:
        return None
    by = ["key"]
    if ordered:
        rows, by = rows.append_column("valid", pc.is_valid(rows.column(ORDER))), ["key", "valid", ORDER]
    sorting = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in by])
    following = keys.take(sorting)
    changes = pc.not_equal(following.slice(1), following.slice(0, rows.num_rows - 1))
    ends = np.append(changes.to_numpy(), True)
    doubtful = ~ends[:-1]
    if ordered:
        doubtful &= _undecided(rows.take(sorting), ends) if exact else False
    if doubtful.any():
        twice = following[int(doubtful.argmax())].as_py()
        raise LastUndecided(epoch=epoch, key=repr(twice[:_SHOWN]), topic=topic)
    mask = np.zeros(rows.num_rows, dtype=bool)
    mask[sorting.to_numpy()[ends]] = True
    return pa.array(mask)


def _undecided(rows: pa.Table, ends: Any) -> Any:
    """Return for each of sorted rows but the last whether its order does not say that the next one is behind it.

    ends: whether a row is its key's last. Of two places it never says it; else only the last row of a key matters.
    """

    def pairs(name: str) -> tuple[Any, Any]:
        column = rows.column(name)
        return column.slice(0, rows.num_rows - 1), column.slice(1)

    first, second = pairs(ORDER)
    behind = pc.or_(
        pc.fill_null(pc.less(first, second), fill_value=False), pc.and_(first.is_null(), second.is_valid())
    )
    found = ~behind.to_numpy() & ends[1:]
    if PLACE in rows.column_names:
        found |= ~pc.fill_null(pc.equal(*pairs(PLACE)), fill_value=False).to_numpy()
    return found


def _ours(name: str | None) -> bool:
    return name is not None and name.startswith(MARK)


def _none(rows: pa.RecordBatch, kind: Any) -> Any:
    return pa.nulls(rows.num_rows, kind)


def _partitions(column: Any) -> Any:
    """Return partition numbers; one that no topic can have becomes -2, which no topic has either."""
    wide = column.cast(pa.int64())
    fits = pc.and_(pc.greater_equal(wide, 0), pc.less(wide, 1 << 31))
    return pc.if_else(fits, wide, -2).cast(pa.int32())


def _is_bytes(kind: Any) -> bool:
    return bool(pt.is_string(kind) or pt.is_binary(kind))


def _item_type(kind: Any) -> Any:
    return kind.item_type if pt.is_map(kind) else kind.value_type.field(1).type


def _is_headers(kind: Any) -> bool:
    if pt.is_map(kind):
        return bool(pt.is_string(kind.key_type) and _is_bytes(kind.item_type))
    if not (pt.is_list(kind) and pt.is_struct(kind.value_type) and kind.value_type.num_fields == 2):
        return False
    fields = [kind.value_type.field(i) for i in range(2)]
    return [field.name for field in fields] == ["key", "value"] and (
        bool(pt.is_string(fields[0].type)) and _is_bytes(fields[1].type)
    )
