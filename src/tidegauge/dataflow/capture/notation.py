"""How times and batches are written: times as JSON values that mean the same in every process, batches as bytes.

A time is made of `int`, `str`, None and tuples, which become numbers, strings, null and lists, exactly. An order
whose times are made of anything else has two more methods, `encode(time)` and `decode(value)`; then its own times are
written by them, also where the order is a part of a `Product` or `Lex`.

Of a batch there is a letter that says how it is written, and bytes:

| letter | batch | bytes |
|---|---|---|
| `J` | None, bool, int, float, str, and lists and dicts with string keys of these | JSON, in ASCII |
| `B` | bytes | themselves |
| `R` | an Arrow record batch | an Arrow IPC stream of one batch, not compressed |
| `T` | an Arrow table | an Arrow IPC stream, not compressed |

Invariant: `decode(encode(time)) == time`, and `decode_batch(*encode_batch(batch)) == batch`, of the very same types,
or the encoding raises. So a tuple is refused as a batch (it would come back as a list), and so is everything that
only a pickle could hold. Input is assumed to be hostile: it can make no object but these, of a size in proportion to
its own.

>>> from tidegauge.dataflow.order import INT, Product
>>> notation = Notation.of(Product(INT, Product(INT, INT)))
>>> notation.name, notation.encode((3, (0, 7))), notation.decode([3, [0, 7]])
('Product(Integers, Product(Integers, Integers))', [3, [0, 7]], (3, (0, 7)))
>>> encode_batch({"amount": 0.1, "items": [1, None]}), decode_batch(*encode_batch(b"salt"))
((b'J', b'{"amount":0.1,"items":[1,null]}'), b'salt')
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa

from tidegauge.dataflow.order import Interval, Lex, Order, Partitioned, Product, Time, has

__all__ = ["DEEPEST", "Notation", "Written", "decode_batch", "encode_batch", "order_name"]


@runtime_checkable
class Written(Protocol):
    """An order that writes its times itself."""

    def encode(self, time: Any, /) -> Any:
        """Return the time as a JSON value."""
        ...

    def decode(self, value: Any, /) -> Any:
        """Return the time that `encode` made `value` of. Raises whatever it likes for any other value."""
        ...


@dataclass(frozen=True, slots=True)
class Notation:
    """The name of an order, and how its times become JSON values and come back. Both raise TypeError, ValueError."""

    name: str
    encode: Callable[[Time], Any]
    decode: Callable[[Any], Time]

    @staticmethod
    def of(order: Order[Any]) -> Notation:
        """Return the notation of an order. What it decodes is a time of that order."""
        bare, belongs = _notation(order), has(order)

        def decode(value: Any) -> Time:
            time = bare.decode(value)
            if not belongs(time):
                raise ValueError(f"{time!r} is no time of the order {bare.name}")
            return time

        return Notation(bare.name, bare.encode, decode)


def order_name(order: Order[Any]) -> str:
    """Return the name of an order: its class, and in brackets the fields that are not at their defaults.

    >>> from tidegauge.dataflow.order import INT, Bounded
    >>> order_name(INT), order_name(Product(INT, Bounded(7)))
    ('Integers', 'Product(Integers, Bounded(7))')
    """
    return _named(order)


def _notation(order: Order[Any]) -> Notation:
    name = order_name(order)
    if isinstance(order, Written):
        return Notation(name, order.encode, order.decode)
    if isinstance(order, Partitioned):
        return Notation(name, _encoded, lambda value: _partitioned(_decoded(value)))
    if isinstance(order, Product | Lex):
        outer, inner = _notation(order.outer), _notation(order.inner)
        return Notation(
            name,
            lambda time: [outer.encode(time[0]), inner.encode(time[1])],
            lambda value: _pair(outer, inner, value),
        )
    return Notation(name, _encoded, _decoded)


def _named(part: Any) -> str:
    if not is_dataclass(part) or isinstance(part, type):
        return repr(part) if type(part) in (int, str, bool, type(None)) else type(part).__name__
    inner = [
        _named(getattr(part, field.name))
        for field in fields(part)
        if field.default is MISSING or getattr(part, field.name) != field.default
    ]
    return type(part).__name__ + (f"({', '.join(inner)})" if inner else "")


def _pair(outer: Notation, inner: Notation, value: Any) -> Time:
    first, second = value
    return outer.decode(first), inner.decode(second)


def _partitioned(time: Time) -> Time:
    (lower, upper), position = time
    return Interval(lower, upper), position


def _encoded(time: Time) -> Any:
    if type(time) in (tuple, Interval):
        return [_encoded(part) for part in time]
    if time is None or type(time) in (int, str):
        return time
    raise TypeError(f"{type(time).__name__} {time!r} is no part of a time that can be written")


def _decoded(value: Any) -> Time:
    if type(value) is list:
        return tuple(map(_decoded, value))
    if value is None or type(value) in (int, str):
        return value
    raise TypeError(f"{type(value).__name__} {value!r} is no part of a time")


DEEPEST: Final = 100
"""How many lists and dicts may be within one another."""

_SCALARS: Final = frozenset({bool, int, float, str, type(None)})


def encode_batch(batch: Any) -> tuple[bytes, bytes]:
    """Return letter and bytes. Raises TypeError, ValueError for a batch that has no written form."""
    if type(batch) is bytes:
        return b"B", batch
    if isinstance(batch, pa.RecordBatch):
        return b"R", _stream(batch.schema, [batch])
    if isinstance(batch, pa.Table):
        return b"T", _stream(batch.schema, batch.to_batches())
    _check(batch, 0)
    return b"J", json.dumps(batch, separators=(",", ":")).encode("ascii")


def decode_batch(letter: bytes, payload: bytes) -> Any:
    """Return the batch. Raises TypeError, ValueError, RecursionError, MemoryError for what
    `encode_batch` has not made.
    """
    if letter == b"B":
        return payload
    if letter == b"J":
        value = json.loads(payload)
        _check(value, 0)
        return value
    if letter in (b"R", b"T"):
        return _table(payload, whole=letter == b"T")
    raise ValueError(f"there is no kind of batch {letter!r}")


def _check(value: Any, depth: int) -> None:
    kind = type(value)
    if kind in _SCALARS:
        return
    if depth >= DEEPEST:
        raise ValueError(f"more than {DEEPEST} lists and dicts within one another")
    if kind is list:
        for item in value:
            _check(item, depth + 1)
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"a dict with the key {key!r}, which is no str")
            _check(item, depth + 1)
    else:
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} is no JSON value, no bytes and not Arrow's")


def _stream(schema: pa.Schema, batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _table(payload: bytes, *, whole: bool) -> pa.Table | pa.RecordBatch:
    for message in pa.ipc.MessageReader.open_stream(payload):
        if _compressed(message):
            raise ValueError("a compressed Arrow body, whose size nothing bounds")
    with pa.ipc.open_stream(payload) as reader:
        batches = list(reader)
        schema = reader.schema
    for batch in batches:
        batch.validate(full=True)
    if whole:
        return pa.Table.from_batches(batches, schema)
    if len(batches) != 1:
        raise ValueError(f"{len(batches)} Arrow batches in place of one")
    return batches[0]


# The fields of Arrow's messages that say whether a body is compressed, as numbered in its Message.fbs.
_HEADER, _COMPRESSION, _DATA = 2, 3, 1


def _compressed(message: pa.ipc.Message) -> bool:
    """Whether an Arrow message (which Arrow has verified) has a compressed body: pyarrow itself does not tell."""
    if message.type not in ("record batch", "dictionary"):
        return False
    metadata = bytes(message.metadata)
    header = _field(metadata, struct.unpack_from("<I", metadata)[0], _HEADER)
    if header is not None and message.type == "dictionary":
        header = _field(metadata, header, _DATA)
    return header is not None and _field(metadata, header, _COMPRESSION) is not None


def _field(metadata: bytes, table: int, number: int) -> int | None:
    """Return where a table that is a field of a table of a flat buffer begins, None when it is absent."""
    layout = table - struct.unpack_from("<i", metadata, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", metadata, layout)[0]:
        return None
    offset = struct.unpack_from("<H", metadata, layout + 4 + 2 * number)[0]
    if not offset:
        return None
    return int(table + offset + struct.unpack_from("<I", metadata, table + offset)[0])
