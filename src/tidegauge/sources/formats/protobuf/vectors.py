r"""Many Protobuf messages of one type are read together: each step reads the next field of all of them at once.

`wire` finds the fields of all messages; here the values of a field become an array. A message in a field is read
likewise, together with those of all other messages.

Invariant: a message that is read has the values that Protobuf's own parser gives it. Whatever is out of the ordinary
(damage, a group, an enum's number without a name, a field or a key twice, two of a `oneof`) makes a message *odd*,
and it is left to that parser.

>>> from google.protobuf.timestamp_pb2 import Timestamp
>>> from tidegauge.sources.formats.protobuf.columns import shapes_of
>>> shapes = shapes_of(Timestamp.DESCRIPTOR, [pa.int64(), pa.int32()])
>>> arrays, odd = read(shapes, b"\x08\x05" + b"\x08", np.array([0, 2]), np.array([2, 3]))
>>> arrays[0].to_pylist()[0], odd.tolist()
(5, [False, True])
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.gather import as_text, sliced
from tidegauge.sources.formats.protobuf.columns import FIXED, FieldShape
from tidegauge.sources.formats.protobuf.wire import VARINT_BYTES, Wire, Words
from tidegauge.sources.formats.records import Mask

__all__ = ["read"]

pc: Any = pyarrow.compute

_SECONDS: Final = 9 * 10**12
"""As many seconds in microseconds, and some, have a place in 64 bits."""


def read(shapes: tuple[FieldShape, ...], data: bytes, begins: Ints, ends: Ints) -> tuple[list[Any], Mask]:
    """Return the columns of the messages at `[begins, ends)` of `data`, and which messages are odd.

    Where a message is odd, its values are any. `data` is less than 2 GiB.
    """
    wire = Wire(data, len(begins))
    return _FieldReader(wire).fields(shapes, begins, ends, np.arange(len(begins))), wire.odd


class _FieldReader:
    """`rows` says which message of all each span of bytes, or each value, is in."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.odd = wire, wire.odd

    def fields(
        self, shapes: tuple[FieldShape, ...], begins: Ints, ends: Ints, rows: Ints, *, alone: bool = False
    ) -> list[Any]:
        """Return an array for each field of the messages at these spans. alone: whether any other field is odd."""
        found = self.wire.scan(shapes, begins, ends, rows, alone=alone)
        arrays, seen = [], defaultdict[str, Any](int)
        for i, shape in enumerate(shapes):
            owners, words, lengths = found[i].all()
            if shape.group:
                seen[shape.group] += np.bincount(owners, minlength=len(rows)) > 0
            if shape.map is not None:
                arrays.append(self.maps(shape, owners, words, lengths, rows))
            elif shape.many:
                arrays.append(self.lists(shape, owners, words, lengths, found[~i].all(), rows))
            else:
                arrays.append(self.single(shape, owners, words, lengths, rows))
        for count in seen.values():
            self.odd[rows[count > 1]] = True
        return arrays

    def single(self, shape: FieldShape, owners: Ints, words: Words, lengths: Ints, rows: Ints) -> Any:
        """Return an array of the value that each message has."""
        count = np.bincount(owners, minlength=len(rows))
        there = count > 0
        self.odd[rows[count > 1]] = True
        if shape.required:
            self.odd[rows[~there]] = True
        last = np.zeros(len(rows), np.int64)
        last[owners] = np.arange(len(owners))
        if there.all() and len(owners) == len(rows):
            return self.values(shape, words[last], lengths[last], rows)
        which = np.flatnonzero(there)
        array = self.values(shape, words[last[which]], lengths[last[which]], rows[which])
        index = np.cumsum(there) - 1
        if shape.presence or shape.inner:
            return array.take(pa.array(index, mask=~there))
        return pa.concat_arrays([array, shape.default()]).take(pa.array(np.where(there, index, len(which))))

    def lists(
        self,
        shape: FieldShape,
        owners: Ints,
        words: Words,
        lengths: Ints,
        packed: tuple[Ints, Words, Ints],
        rows: Ints,
    ) -> Any:
        if len(packed[0]):
            unpacked = self.unpacked(shape, *packed, rows)
            if len(owners):
                # One after the other, of both kinds: which came first is not kept.
                self.odd[rows[np.intersect1d(owners, packed[0])]] = True
            owners, words = np.concatenate([owners, unpacked[0]]), np.concatenate([words, unpacked[1]])
            lengths = np.zeros(len(owners), np.int64)
        order = np.argsort(owners, kind="stable")
        values = self.values(shape, words[order], lengths[order], rows[owners[order]])
        return pa.ListArray.from_arrays(_offsets(owners, len(rows)), values, type=pa.list_(values.type))

    def unpacked(
        self, shape: FieldShape, owners: Ints, starts: Words, lengths: Ints, rows: Ints
    ) -> tuple[Ints, Words]:
        """Return the numbers in packed fields, and the message of each."""
        begins = starts.astype(np.int64)
        if shape.wire in FIXED:
            size = FIXED[shape.wire]
            self.odd[rows[owners[lengths % size != 0]]] = True
            counts = lengths // size
            return np.repeat(owners, counts), (_ranges(begins, counts, size)).astype(np.uint64)
        places = _ranges(begins, lengths, 1)
        ends = places[self.wire.bytes[places] < 0x80]
        whole = self.wire.bytes[np.maximum(begins + lengths - 1, 0)] < 0x80
        self.odd[rows[owners[~whole & (lengths > 0)]]] = True
        piece = np.searchsorted(np.cumsum(lengths), np.flatnonzero(self.wire.bytes[places] < 0x80), side="right")
        first = np.concatenate([np.ones(min(len(piece), 1), np.bool_), piece[1:] != piece[:-1]])
        at = np.where(first, begins[piece], np.concatenate([np.zeros(min(len(ends), 1), np.int64), ends[:-1] + 1]))
        words, sound = self.wire.varints(at, VARINT_BYTES)
        self.odd[rows[owners[piece[~sound]]]] = True
        return owners[piece], words

    def maps(self, shape: FieldShape, owners: Ints, words: Words, lengths: Ints, rows: Ints) -> Any:
        """Return maps in the order of their keys."""
        begins = words.astype(np.int64)
        # Protobuf does not take an entry with another field in it.
        keys, items = self.fields(shape.inner, begins, begins + lengths, rows[owners], alone=True)
        found = pa.table({"owner": owners, "key": keys.cast(pa.int8()) if pa.types.is_boolean(keys.type) else keys})
        order = pc.sort_indices(found, sort_keys=[("owner", "ascending"), ("key", "ascending")])
        sorted_owners, sorted_keys = owners[order.to_numpy()], keys.take(order)
        if len(keys) > 1:
            same = pc.equal(sorted_keys.slice(1), sorted_keys.slice(0, len(keys) - 1)).to_numpy(zero_copy_only=False)
            twice = same & (sorted_owners[1:] == sorted_owners[:-1])
            self.odd[rows[sorted_owners[1:][twice]]] = True
        offsets = _offsets(owners, len(rows))
        return pa.MapArray.from_arrays(offsets, sorted_keys, items.take(order), type=pa.map_(keys.type, items.type))

    def values(self, shape: FieldShape, words: Words, lengths: Ints, rows: Ints) -> Any:
        """Return an array of values, one for each word."""
        if shape.role == "number":
            return self.numbers(shape, words)
        if shape.role == "span":
            found = sliced(self.wire.data, words.astype(np.int64), lengths)
            if not pa.types.is_string(shape.of):
                return found
            text, bad = as_text(found)
            self.odd[rows[bad]] = True
            return text.fill_null("") if bad.any() else text
        if shape.role == "enum":
            return self.symbols(shape, words, rows)
        begins = words.astype(np.int64)
        arrays = self.fields(shape.inner, begins, begins + lengths, rows)
        if shape.role == "boxed":
            return arrays[0]
        if shape.role == "time":
            seconds, nanos = (array.to_numpy(zero_copy_only=False).astype(np.int64) for array in arrays)
            far = (seconds > _SECONDS) | (seconds < -_SECONDS)
            self.odd[rows[far]] = True
            return pa.array(np.where(far, 0, seconds) * 1_000_000 + nanos // 1000).view(shape.of)
        return pa.StructArray.from_arrays(arrays, fields=list(shape.of))

    def numbers(self, shape: FieldShape, words: Words) -> Any:
        match shape.kind:
            case 1 | 2 | 6 | 7 | 15 | 16:
                size = FIXED[shape.wire]
                window = np.lib.stride_tricks.sliding_window_view(self.wire.bytes, size)[words.astype(np.int64)]
                kind = {1: "<f8", 2: "<f4", 6: "<u8", 7: "<u4", 15: "<i4", 16: "<i8"}[shape.kind]
                return pa.array(window.view(kind).reshape(len(words))).cast(shape.of)
            case 8:
                return pa.array(words != 0)
            case 17 | 18:
                words = words & np.uint64(0xFFFFFFFF) if shape.kind == 17 else words
                signed = (words >> np.uint64(1)).view(np.int64) ^ -(words & np.uint64(1)).view(np.int64)
                return pa.array(signed.astype(shape.of.to_pandas_dtype()))
            case 5:
                return pa.array(words.astype(np.uint32).view(np.int32))
            case 13:
                return pa.array(words.astype(np.uint32).astype(np.int64))
            case 4:
                return pa.array(words).cast(shape.of)
        return pa.array(words.view(np.int64))

    def symbols(self, shape: FieldShape, words: Words, rows: Ints) -> Any:
        numbers = np.array(sorted(shape.symbols), np.int64)
        names = pa.array([shape.symbols[number] for number in numbers.tolist()], pa.string())
        wanted = words.astype(np.uint32).view(np.int32).astype(np.int64)
        index = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
        self.odd[rows[numbers[index] != wanted]] = True
        return names.take(pa.array(index))


def _offsets(owners: Ints, count: int) -> Any:
    return pa.array(np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=count)))), pa.int32())


def _ranges(begins: Ints, counts: Ints, step: int) -> Ints:
    """Return `begins[i], begins[i] + step, ...`, the given number of each, one after the other."""
    before = np.cumsum(counts) - counts
    return np.repeat(begins - step * before, counts) + step * np.arange(int(counts.sum()))
