"""How batches are written: a letter that says how, and bytes.

| letter | batch | bytes |
|---|---|---|
| `J` | None, bool, int, float, str, and lists and dicts with string keys of these | JSON, in ASCII |
| `B` | bytes | themselves |
| `R` | an Arrow record batch | an Arrow IPC stream of one batch, not compressed |
| `T` | an Arrow table | an Arrow IPC stream, not compressed |

Invariant: `decode(*encode(batch)) == batch`, of the very same types, or `encode` raises. So a tuple is refused (it
would come back as a list), and so is everything that only a pickle could hold. Input is assumed to be hostile: it can
make no object but these, of a size in proportion to its own.

>>> encode({"amount": 0.1, "items": [1, None]})
(b'J', b'{"amount":0.1,"items":[1,null]}')
>>> decode(*encode(b"salt"))
b'salt'
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

import pyarrow as pa

__all__ = ["DEEPEST", "decode", "encode"]

DEEPEST: Final = 100
"""How many lists and dicts may be within one another."""

_SCALARS: Final = frozenset({bool, int, float, str, type(None)})


def encode(batch: Any) -> tuple[bytes, bytes]:
    """Return letter and bytes. Raises TypeError, ValueError for a batch that has no written form."""
    if type(batch) is bytes:
        return b"B", batch
    if isinstance(batch, pa.RecordBatch):
        return b"R", _stream(batch.schema, [batch])
    if isinstance(batch, pa.Table):
        return b"T", _stream(batch.schema, batch.to_batches())
    _check(batch, 0)
    return b"J", json.dumps(batch, separators=(",", ":")).encode("ascii")


def decode(letter: bytes, payload: bytes) -> Any:
    """Return the batch. Raises TypeError, ValueError, RecursionError, MemoryError for what `encode` has not made."""
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
