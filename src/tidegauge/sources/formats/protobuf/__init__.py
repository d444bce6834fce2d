r"""Protobuf: each message is one value of a message type, which is kept by its descriptor.

Invariant: a message is a row iff Protobuf's own parser takes its bytes and every value has a place in its column.
Fields that the descriptor does not have are ignored. The value holds descriptors, never a generated class, so it goes
where the class is not installed.

>>> from google.protobuf.timestamp_pb2 import Timestamp
>>> format = Protobuf(Timestamp)
>>> def on_bad(index, code, problem):
...     print(index, code)
>>> format.decode_messages([b"\x08\x05", b"\xff"], schema=format.schema, on_bad=on_bad).rows.to_pylist()
1 TG-0323
[{'seconds': 5, 'nanos': 0}]
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sources import UnreadableRecord
from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.fitted import fitted, misfit
from tidegauge.sources.formats.gather import Refused, in_pieces
from tidegauge.sources.formats.messages import MessageRows, OnBadMessage, Part, Problems, in_chunks, together
from tidegauge.sources.formats.protobuf import vectors
from tidegauge.sources.formats.protobuf.descriptor import Kind, described, files_of, kind_of
from tidegauge.sources.formats.registry import HEAD_BYTES

if TYPE_CHECKING:
    from google.protobuf.message import Message

__all__ = ["Protobuf"]


@dataclass(frozen=True, slots=True)
class Protobuf:
    """Protobuf messages of one type.

    Args:
        message: a generated class, or with `descriptor` the full name of a message type, like "shop.Order".
        descriptor: a serialized FileDescriptorSet, as `protoc --include_imports --descriptor_set_out` writes it.
        framed: whether every message begins as a schema registry requires, with a zero byte, an id in four bytes, and
            the message type's index in its file. The id is not looked up: fields are identified by number, whatever
            the version of the schema.

    Raises `InvalidMessageSchema`, `SchemaWithoutColumns`, `InvalidArgument` and `FormatPackageMissing`.
    """

    message: str
    descriptor: bytes
    framed: bool
    schema: pa.Schema

    def __init__(
        self, message: type[Message] | str, *, descriptor: bytes | None = None, framed: bool = False
    ) -> None:
        if isinstance(message, str) == (descriptor is None):
            raise InvalidArgument(
                parameter="message",
                value=str(message),
                expected="a generated class, or a name together with descriptor=",
            )
        name, files = (message, descriptor) if isinstance(message, str) else described(message)
        object.__setattr__(self, "message", name)
        object.__setattr__(self, "descriptor", files)
        object.__setattr__(self, "framed", framed)
        object.__setattr__(self, "schema", kind_of(name, self.descriptor).columns)

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {
            "format": "protobuf",
            "message": self.message,
            "files": files_of(self.descriptor),
            "descriptor": base64.b64encode(self.descriptor).decode(),
            "framed": self.framed,
        }

    def infer_messages(self, values: Sequence[bytes | None]) -> pa.Schema:  # noqa: ARG002 - the seam's shape
        """Return the columns of the message type."""
        return self.schema

    def decode_messages(
        self, values: Sequence[bytes | None], *, schema: pa.Schema, on_bad: OnBadMessage
    ) -> MessageRows:
        """Return the rows of messages."""
        kind = kind_of(self.message, self.descriptor)
        problem = misfit(kind.columns, schema)

        def decode(chunk: Sequence[bytes]) -> Part:
            if problem:
                wrong = dict.fromkeys(range(len(chunk)), (UnreadableRecord.code, problem))
                return Part(pa.RecordBatch.from_pylist([], schema), np.empty(0, np.int64), wrong)
            return _part(kind, chunk, schema, framed=self.framed)

        return in_chunks(values, schema, on_bad, decode)


def _part(kind: Kind, chunk: Sequence[bytes], schema: pa.Schema, *, framed: bool) -> Part:
    """Read messages together, and those that are odd one by one."""
    bodies, which, wrong = _bodies(kind, chunk) if framed else (chunk, np.arange(len(chunk)), {})
    ends = np.cumsum(np.fromiter(map(len, bodies), np.int64, len(bodies)))
    begins = np.concatenate((np.zeros(1, np.int64), ends[:-1]))[: len(bodies)]
    arrays, odd = vectors.read(kind.shapes, b"".join(bodies), begins, ends)
    rows, unfit = fitted(dict(zip(kind.builds, arrays, strict=True)), len(bodies), schema)
    good = ~odd
    good[list(unfit)] = False
    problems = {i: (UnreadableRecord.code, problem) for i, problem in unfit.items() if not odd[i]}
    parts = [(which, Part(rows.filter(pa.array(good)), np.flatnonzero(good), problems))]
    if odd.any():
        parts.append((which[odd], _one_by_one(kind, [bodies[i] for i in np.flatnonzero(odd).tolist()], schema)))
    return together(len(chunk), parts, wrong, schema)


def _bodies(kind: Kind, chunk: Sequence[bytes]) -> tuple[Sequence[bytes], Ints, Problems]:
    """Return framed messages without their frames, which messages these are, and the faults of the others."""
    wrong: Problems = {}
    bodies: list[bytes] = []
    places: list[int] = []
    for i, value in enumerate(chunk):
        try:
            bodies.append(_without_head(kind, value))
            places.append(i)
        except Refused as error:
            wrong[i] = (UnreadableRecord.code, str(error))
    return bodies, np.array(places, np.int64), wrong


def _one_by_one(kind: Kind, chunk: Sequence[bytes], schema: pa.Schema) -> Part:
    """Read messages with Protobuf's own parser, and make columns of them together."""
    wrong: Problems = {}
    parsed: list[Any] = []
    places: list[int] = []
    for i, value in enumerate(chunk):
        try:
            parsed.append(kind.parse(value))
            places.append(i)
        except kind.error as error:
            wrong[i] = (UnreadableRecord.code, str(error))
    kept = np.array(places, np.int64)
    batches: list[pa.RecordBatch] = []
    good = np.ones(len(kept), np.bool_)

    def take(i: int, j: int) -> None:
        try:
            found = kind.arrays(parsed[i:j])
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise Refused(f"a value that has no place in its column: {error}") from error
        rows, unfit = fitted(found, j - i, schema)
        for k, problem in unfit.items():
            good[i + k] = False
            wrong[places[i + k]] = (UnreadableRecord.code, problem)
        batches.append(rows.filter(pa.array(good[i:j])) if unfit else rows)

    def refuse(i: int, refusal: Refused) -> None:
        good[i] = False
        wrong[places[i]] = (UnreadableRecord.code, str(refusal))

    in_pieces(len(parsed), take, refuse)
    rows = pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)
    return Part(rows, None if len(kept) == len(chunk) and good.all() else kept[good], wrong)


def _without_head(kind: Kind, value: bytes) -> bytes:
    if len(value) < HEAD_BYTES or value[0] != 0:
        raise Refused("it does not begin with a zero byte and the id of a schema")
    for path in kind.paths:
        if value.startswith(path, HEAD_BYTES):
            return value[HEAD_BYTES + len(path) :]
    raise Refused(f"it is of another message type of its file than {kind.name}")
