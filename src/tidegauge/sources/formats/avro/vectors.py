r"""Many Avro messages of one schema are read field by field: each step does the same to all of them at once.

Avro writes the fields of a record one after the other, without lengths. So the state of reading `n` messages is a
vector of `n` positions, and to read a field is to advance all of them: a few operations of numpy, whatever `n` is.
Items of arrays and maps are read in rounds, the `k`-th item of all messages in round `k`.

Invariant: a message that is read is exactly one value of the schema. Positions only grow (a length below zero fails),
so where a position ends at the end of its message, all that was read lay inside it. A message that fails is left to
`rows`, which reads it alone and says why.

>>> from tidegauge.sources.formats.avro.schema import node_of
>>> data = b"\x02\x06abc" + b"\x04\x02"
>>> fields = [{"name": "n", "type": "int"}, {"name": "s", "type": "string"}]
>>> node = node_of({"type": "record", "name": "R", "fields": fields})
>>> array, failed = read(node, data, np.array([0, 5]), np.array([5, 7]))
>>> array.to_pylist()[0], failed.tolist()
({'n': 1, 's': 'abc'}, [False, True])
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.sources.formats.avro.schema import SchemaNode
from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.gather import PADDING, as_text, sliced
from tidegauge.sources.formats.records import Mask

__all__ = ["read"]

FEW: Final = 64
"""Fewer messages than this are read one by one, once there were `ROUNDS` rounds."""
ROUNDS: Final = 256

_KEY: Final = SchemaNode("string", pa.string(), pa.string())
_LAST_SHIFT: Final = 63


def read(node: SchemaNode, data: bytes, begins: Ints, ends: Ints) -> tuple[Any, Mask]:
    """Return the values at `[begins, ends)` of `data` as an array of the type `node.wire`, and which of them failed.

    Where a value failed, the array holds any value. `data` is less than 2 GiB.
    """
    reader = _NodeReader(data, ends)
    at = begins.copy()
    array = reader.walk(node, at, np.arange(len(begins)))
    reader.failed |= at != ends
    return array, reader.failed


class _NodeReader:
    """`walk` reads one value for each position; `rows` says which message each position is in."""

    def __init__(self, data: bytes, ends: Ints) -> None:
        self.beyond = len(data) + 1
        self.data = data + PADDING
        self.bytes = np.frombuffer(self.data, np.uint8)
        self.ends = ends
        self.failed = np.zeros(len(ends), np.bool_)
        self.rounds = 0

    def walk(self, node: SchemaNode, at: Ints, rows: Ints) -> Any:
        """Return the values at these positions as `node.wire`, and advance the positions."""
        match node.kind:
            case "null":
                return pa.nulls(len(at), node.wire)
            case "boolean":
                values = self.numbers(at, 1, "u1")
                self.failed[rows[values > 1]] = True
                return pa.array(values == 1)
            case "int" | "long":
                numbers = self.varints(at, rows)
                if node.kind == "long":
                    return pa.array(numbers).view(node.wire)
                self.failed[rows[numbers != numbers.astype(np.int32)]] = True
                return pa.array(numbers.astype(np.int32)).view(node.wire)
            case "float":
                return pa.array(self.numbers(at, 4, "<f4"))
            case "double":
                return pa.array(self.numbers(at, 8, "<f8"))
            case "fixed":
                return self.spans(at, np.full(len(at), node.size), rows, node.wire)
            case "bytes" | "string":
                return self.spans(at, self.varints(at, rows), rows, node.wire)
            case "enum":
                return self.symbols(node, at, rows)
            case "union":
                return self.union(node, at, rows)
            case "record":
                inner = [self.walk(field, at, rows) for field in node.inner]
                return pa.StructArray.from_arrays(inner, fields=list(node.wire))
        return self.repeated(node, at, rows)

    def advance(self, at: Ints, by: int | Ints) -> None:
        at += by
        # What is read there is padding; no message ends there.
        np.minimum(at, self.beyond, out=at)

    def numbers(self, at: Ints, size: int, kind: str) -> Any:
        window = np.lib.stride_tricks.sliding_window_view(self.bytes, size)
        values = window[at].view(kind).reshape(len(at))
        self.advance(at, size)
        return values

    def varints(self, at: Ints, rows: Ints) -> Ints:
        """Read numbers of seven bits a byte, least first, the sign in the last bit."""
        byte = self.bytes[at]
        value = (byte & 0x7F).astype(np.uint64)
        self.advance(at, 1)
        more = np.flatnonzero(byte & 0x80)
        for shift in range(7, 70, 7):
            if not len(more):
                break
            place = at[more]
            byte = self.bytes[place]
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            self.advance(place, 1)
            at[more] = place
            if shift == _LAST_SHIFT:
                self.failed[rows[more[byte > 1]]] = True
            more = more[byte > 0x7F]
        numbers: Ints = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
        return numbers

    def spans(self, at: Ints, lengths: Ints, rows: Ints, of: Any) -> Any:
        """Return the bytes of these lengths as an array of a type, which for text must be UTF-8."""
        inside = (lengths >= 0) & (lengths <= self.ends[rows] - at)
        self.failed[rows[~inside]] = True
        lengths = np.where(inside, lengths, 0)
        found = sliced(self.data, at, lengths)
        self.advance(at, lengths)
        if not pa.types.is_string(of):
            return found
        text, bad = as_text(found)
        self.failed[rows[bad]] = True
        return text

    def symbols(self, node: SchemaNode, at: Ints, rows: Ints) -> Any:
        index = self.varints(at, rows)
        wrong = (index < 0) | (index >= len(node.names))
        self.failed[rows[wrong]] = True
        return pa.array(node.names, pa.string()).take(pa.array(np.where(wrong, 0, index)))

    def union(self, node: SchemaNode, at: Ints, rows: Ints) -> Any:
        branch = self.varints(at, rows)
        there = branch == (1 - node.null if node.null >= 0 else 0)
        self.failed[rows[~there & ((branch != node.null) | (branch < 0))]] = True
        if there.all():
            return self.walk(node.inner[0], at, rows)
        which = np.flatnonzero(there)
        inside = at[which]
        found = self.walk(node.inner[0], inside, rows[which])
        at[which] = inside
        return found.take(pa.array(np.cumsum(there) - 1, mask=~there))

    def repeated(self, node: SchemaNode, at: Ints, rows: Ints) -> Any:
        """Read blocks of items: a count, below zero when the block's size in bytes follows; a count of zero ends."""
        left, lengths = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
        alive = np.arange(len(at))
        owners: list[Ints] = []
        pieces: list[list[Any]] = []
        while True:
            begin = alive[left[alive] == 0]
            if len(begin):
                place = at[begin]
                left[begin] = self.counts(place, rows[begin])
                at[begin] = place
                alive = alive[left[alive] > 0]
            if not len(alive):
                break
            self.rounds += 1
            if self.rounds > ROUNDS and len(alive) < FEW:
                self.failed[rows[alive]] = True
                break
            place = at[alive]
            key = [self.walk(_KEY, place, rows[alive])] if node.kind == "map" else []
            pieces.append([*key, self.walk(node.inner[0], place, rows[alive])])
            at[alive] = place
            owners.append(alive)
            left[alive] -= 1
            lengths[alive] += 1
            self.failed[rows[alive[place > self.ends[rows[alive]]]]] = True
            alive = alive[~self.failed[rows[alive]]]
        return self.gathered(node, rows, lengths, owners, pieces)

    def counts(self, at: Ints, rows: Ints) -> Ints:
        counts = self.varints(at, rows)
        sized = np.flatnonzero(counts < 0)
        if len(sized):
            place = at[sized]
            self.varints(place, rows[sized])
            at[sized] = place
            counts[sized] = -counts[sized]
        # An item takes a byte at least.
        wrong = (counts < 0) | (counts > self.ends[rows] - at)
        self.failed[rows[wrong]] = True
        counts[wrong] = 0
        return counts

    def gathered(
        self, node: SchemaNode, rows: Ints, lengths: Ints, owners: list[Ints], pieces: list[list[Any]]
    ) -> Any:
        """Return the items of all rounds as lists, each in its order."""
        offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
        owner = np.concatenate([np.empty(0, np.int64), *owners])
        order = pa.array(np.argsort(owner, kind="stable"))
        if node.kind == "array":
            items = pa.concat_arrays([pa.array([], node.inner[0].wire), *(piece[0] for piece in pieces)])
            return pa.ListArray.from_arrays(offsets, items.take(order), type=node.wire)
        keys = pa.concat_arrays([pa.array([], pa.string()), *(piece[0] for piece in pieces)])
        items = pa.concat_arrays([pa.array([], node.inner[0].wire), *(piece[1] for piece in pieces)])
        self.failed[rows[_with_equal(owner, keys)]] = True
        return pa.MapArray.from_arrays(offsets, keys.take(order).fill_null(""), items.take(order), type=node.wire)


def _with_equal(owner: Ints, keys: Any) -> Ints:
    """Return the owners that have a key twice."""
    codes = keys.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    order = np.lexsort((codes, owner))
    same = (owner[order][1:] == owner[order][:-1]) & (codes[order][1:] == codes[order][:-1])
    repeated: Ints = owner[order][1:][same]
    return repeated
