r"""Values of an Avro schema become rows of a table: read, given their meaning, fitted to the columns.

A message that `vectors` cannot read with the others is read by itself: slowly, and with a word on its fault.

Invariant: each of these steps is total and goes value by value, so a message's fate is its own. What `vectors` reads,
`alone` reads with the same values. It accepts more in one case only: of equal keys of a map, the last counts.

>>> writer = WriterSchema.of({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 2}, [])
>>> part = rows_of(writer, b"\x02\x7f" b"\x04\x7f\xff", np.array([0, 2]), np.array([2, 5]), writer.columns, {})
>>> part.rows.to_pylist(), part.wrong
([{'value': Decimal('1.27')}], {1: ('TG-0323', 'column value: a value that is no decimal128(3, 2)')})
>>> alone(node_of("string"), b"\x06abc")
'abc'
>>> alone(node_of("string"), b"\x08abc")
Traceback (most recent call last):
tidegauge.sources.formats.gather.Refused: a length of 4 where there are 3 bytes
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tidegauge.errors.sources import UnreadableRecord
from tidegauge.sources.formats.avro import vectors
from tidegauge.sources.formats.avro.schema import VALUE, SchemaNode, columns_of, default_of, definitions, node_of
from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.convert import cast_each, converted
from tidegauge.sources.formats.fitted import fitted, misfit
from tidegauge.sources.formats.gather import Refused
from tidegauge.sources.formats.messages import Part, Problems
from tidegauge.sources.formats.records import Mask

__all__ = ["WriterSchema", "alone", "from_wire", "rows_of"]

pc: Any = pyarrow.compute


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema that messages are written with. defaults: of its columns, as scalars of the columns' types."""

    node: SchemaNode
    columns: pa.Schema
    defaults: Mapping[str, Any]

    @staticmethod
    def of(schema: Any, references: Sequence[Any]) -> WriterSchema:
        """Return the writer of a schema; `references` are schemas that it names. Raises as `node_of` does."""
        known: dict[str, Any] = {}
        for reference in references:
            known |= definitions(reference, known)
        node = node_of(schema, known=known)
        columns = columns_of(node)
        defaults = {}
        for name, value in default_of(node, schema).items():
            array, bad = converted(value, columns.field(name).type, from_wire)
            if not bad.any():
                defaults[name] = array[0]
        return WriterSchema(node, columns, defaults)


def rows_of(
    writer: WriterSchema, data: bytes, begins: Ints, ends: Ints, schema: pa.Schema, defaults: Mapping[str, Any]
) -> Part:
    """Return the rows of the messages at `[begins, ends)` of `data`."""
    wrong: Problems = {}
    count = len(begins)
    if problem := misfit(writer.columns, schema):
        wrong = dict.fromkeys(range(count), (UnreadableRecord.code, problem))
        return Part(pa.RecordBatch.from_pylist([], schema), np.empty(0, np.int64), wrong)
    array, kept = _values(writer.node, data, begins, ends, wrong)
    arrays = (
        dict(zip(writer.node.names, array.flatten(), strict=True)) if writer.node.kind == "record" else {VALUE: array}
    )
    found: dict[str, Any] = {}
    good = np.ones(len(kept), np.bool_)
    for column in writer.columns:
        found[column.name], bad = converted(arrays[column.name], column.type, from_wire)
        good &= ~bad
        for i in kept[bad].tolist():
            wrong.setdefault(i, (UnreadableRecord.code, f"column {column.name}: a value that is no {column.type}"))
    rows, unfit = fitted(found, len(kept), schema, defaults=defaults)
    for i, problem in unfit.items():
        good[i] = False
        wrong.setdefault(int(kept[i]), (UnreadableRecord.code, problem))
    if good.all():
        return Part(rows, None if len(kept) == count else kept, wrong)
    return Part(rows.filter(pa.array(good)), kept[good], wrong)


def _values(node: SchemaNode, data: bytes, begins: Ints, ends: Ints, wrong: Problems) -> tuple[Any, Ints]:
    """Return the values that can be read, and which messages they are of."""
    array, failed = vectors.read(node, data, begins, ends)
    everyone = np.arange(len(begins))
    if not failed.any():
        return array, everyone
    single: dict[int, Any] = {}
    for i in np.flatnonzero(failed).tolist():
        try:
            single[i] = alone(node, data[begins[i] : ends[i]])
        except Refused as refusal:
            wrong[i] = (UnreadableRecord.code, str(refusal))
    kept = np.concatenate([everyone[~failed], np.array(list(single), np.int64)])
    order = np.argsort(kept)
    read = array.filter(pa.array(~failed))
    found = pa.concat_arrays([read, pa.array(list(single.values()), node.wire)]) if single else read
    return found.take(pa.array(order)) if single else found, kept[order]


def from_wire(array: Any, target: Any) -> tuple[Any, Mask]:
    """Convert values from their written form: decimals from bytes; digits of a time finer than a microsecond are
    cut."""
    if pa.types.is_decimal(target) and pa.types.is_binary(array.type):
        return _decimals(array, target)
    if pa.types.is_timestamp(target) and array.type.unit == "ns" and target.unit == "us":
        nanoseconds = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        mask = array.is_null().to_numpy(zero_copy_only=False)
        return pa.array(nanoseconds // 1000, mask=mask).view(target), np.zeros(len(array), np.bool_)
    return cast_each(array, target)


def _decimals(array: Any, target: Any) -> tuple[Any, Mask]:
    """Read two's complements, the highest byte first. One that is empty, or has too many digits, is no decimal."""
    limit = 10**target.precision
    bad = np.zeros(len(array), np.bool_)
    numbers: list[int] = []
    for i, written in enumerate(array.to_pylist()):
        number = int.from_bytes(written or b"", "big", signed=True)
        bad[i] = written is not None and (not written or not -limit < number < limit)
        numbers.append(0 if bad[i] else number)
    values = b"".join(number.to_bytes(16, "little", signed=True) for number in numbers)
    whole = pa.Array.from_buffers(target, len(numbers), [None, pa.py_buffer(values)])
    gone = pa.array(bad | array.is_null().to_numpy(zero_copy_only=False))
    return pc.if_else(gone, pa.scalar(None, target), whole), bad


def alone(node: SchemaNode, message: bytes) -> Any:
    """Return the value of a message as `pa.array` takes it for `node.wire`. Raises `Refused`."""
    reader = _MessageReader(message)
    found = reader.read(node)
    if reader.at < len(message):
        raise Refused(f"{len(message) - reader.at} bytes after the end of the value")
    return found


class _MessageReader:
    def __init__(self, message: bytes) -> None:
        self.message, self.at = message, 0

    def read(self, node: SchemaNode) -> Any:
        match node.kind:
            case "null":
                return None
            case "boolean":
                found = self.take(1)[0]
                if found > 1:
                    raise Refused(f"a boolean of {found}")
                return found == 1
            case "int" | "long":
                return self.number(32 if node.kind == "int" else 64)
            case "float":
                return struct.unpack("<f", self.take(4))[0]
            case "double":
                return struct.unpack("<d", self.take(8))[0]
            case "fixed":
                return self.take(node.size)
            case "bytes":
                return self.take(self.number(64))
            case "string":
                return self.text()
            case "enum":
                return node.names[self.index(len(node.names), "symbol")]
            case "union":
                branch = self.index(2 if node.null >= 0 else 1, "branch")
                return None if branch == node.null else self.read(node.inner[0])
            case "record":
                return {name: self.read(field) for name, field in zip(node.names, node.inner, strict=True)}
            case "map":
                return list({self.text(): self.read(node.inner[0]) for _ in self.items()}.items())
        return [self.read(node.inner[0]) for _ in self.items()]

    def take(self, size: int) -> bytes:
        there = len(self.message) - self.at
        if not 0 <= size <= there:
            raise Refused(f"a length of {size} where there are {there} bytes")
        self.at += size
        return self.message[self.at - size : self.at]

    def number(self, bits: int) -> int:
        found = shift = 0
        while True:
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 63:
                raise Refused("a number of more than ten bytes")
        found = (found >> 1) ^ -(found & 1)
        if not -(1 << (bits - 1)) <= found < 1 << (bits - 1):
            raise Refused(f"a number that has no {bits} bits")
        return found

    def index(self, count: int, what: str) -> int:
        found = self.number(64)
        if not 0 <= found < count:
            raise Refused(f"{what} {found} where there are {count}")
        return found

    def text(self) -> str:
        try:
            return self.take(self.number(64)).decode()
        except UnicodeDecodeError:
            raise Refused("a text that is not valid UTF-8") from None

    def items(self) -> Any:
        """Yield once for each item; the caller's loop reads it."""
        while count := self.number(64):
            if count < 0:
                count = -count
                self.number(64)
            if count > len(self.message) - self.at:
                raise Refused(f"{count} items where there are {len(self.message) - self.at} bytes")
            yield from range(count)
