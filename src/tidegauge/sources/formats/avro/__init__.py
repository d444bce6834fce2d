r"""Avro: each message is one value of a schema, which is given, or which the message names by its id in a registry.

Invariant: a message is a row iff its bytes are exactly one value of the schema that it was written with, and every
column of that schema fits the table's. Which path of reading it went does not show: `vectors` reads many at once, and
what it does not read, `rows` reads alone.

>>> format = Avro('{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}')
>>> format.decode_messages([b"\x02", b"\x02\x00"], schema=format.schema, on_bad=print).rows.to_pylist()
1 TG-0323 1 bytes after the end of the value
[{'id': 1}]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.formats import InvalidMessageSchema
from tidegauge.errors.sources import UnreadableRecord
from tidegauge.evolution import joined
from tidegauge.sources.formats.avro.rows import WriterSchema, rows_of
from tidegauge.sources.formats.avro.schema import parsed
from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.messages import MessageRows, OnBadMessage, Part, Problems, in_chunks, present, together
from tidegauge.sources.formats.registry import HEAD_BYTES, Registered, Registry, heads

__all__ = ["Avro"]

_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class Avro:
    """Avro messages, without the header of Avro's files.

    schema: the schema, as JSON text or data. registry: the address of a schema registry, or a `Registry` with
    settings; every message then begins with the id of its schema. With both, `schema` is the reader's schema: columns
    are found by name, and one that the writer did not have is its default. With a registry alone, the columns are
    those of the first message.

    Raises `InvalidMessageSchema`, `SchemaWithoutColumns`, `InvalidArgument` and `SecretInClear`.
    """

    text: str | None
    registry: Registry | None
    schema: pa.Schema | None

    def __init__(
        self, schema: str | Mapping[str, Any] | None = None, *, registry: str | Registry | None = None
    ) -> None:
        if schema is None and registry is None:
            raise InvalidArgument(parameter="schema", value=None, expected="a schema, or registry='http://...'")
        text = None if schema is None else json.dumps(parsed(schema))
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "registry", Registry.of(registry))
        object.__setattr__(self, "schema", None if text is None else _writer(text).columns)

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {
            "format": "avro",
            "schema": None if self.text is None else json.loads(self.text),
            "registry": None if self.registry is None else self.registry.describe(),
        }

    def infer_messages(self, values: Sequence[bytes | None]) -> pa.Schema | None:
        """Return the columns of the first message whose schema is a table.

        Raises as `Registry.schema` does, and the error of the first schema when none is a table.
        """
        if self.schema is not None or self.registry is None:
            return self.schema
        wrong: TidegaugeError | None = None
        for value in present(values)[0]:
            ids, framed = heads(value, np.zeros(1, np.int64), np.array([len(value)]))
            if framed[0]:
                try:
                    return _registered(self.registry.schema(int(ids[0]))).columns
                except Transient:
                    raise
                except TidegaugeError as error:
                    wrong = wrong or error
        if wrong is not None:
            raise wrong
        return None

    def further_messages(self, values: Sequence[bytes | None], *, schema: pa.Schema) -> pa.Schema:
        """Return columns, and those that the schemas of the messages have besides, in the order of their ids.

        A message whose schema is no table tells none. Raises `RegistryUnreachable` and `RegistryFailed`.
        """
        if self.schema is not None or self.registry is None:
            return schema
        framed = [
            value[1:HEAD_BYTES] for value in present(values)[0] if value[:1] == b"\0" and len(value) >= HEAD_BYTES
        ]
        for number in sorted({int.from_bytes(head) for head in framed}):
            try:
                schema = joined(schema, _registered(self.registry.schema(number)).columns)
            except Transient:
                raise
            except TidegaugeError:  # a bad message, as decoding it says
                continue
        return schema

    def decode_messages(
        self, values: Sequence[bytes | None], *, schema: pa.Schema, on_bad: OnBadMessage
    ) -> MessageRows:
        """Return the rows of messages. Raises `RegistryUnreachable` and `RegistryFailed`."""

        def decode(chunk: Sequence[bytes]) -> Part:
            data = b"".join(chunk)
            ends = np.cumsum(np.fromiter(map(len, chunk), np.int64, len(chunk)))
            begins = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
            if self.registry is None and self.text is not None:
                return rows_of(_writer(self.text), data, begins, ends, schema, {})
            return self._by_id(data, begins, ends, schema)

        return in_chunks(values, schema, on_bad, decode)

    def _by_id(self, data: bytes, begins: Ints, ends: Ints, schema: pa.Schema) -> Part:
        if self.registry is None:
            raise AssertionError("a message has an id only with a registry")
        ids, framed = heads(data, begins, ends)
        unframed = (UnreadableRecord.code, "it does not begin with a zero byte and the id of a schema")
        wrong: Problems = dict.fromkeys(np.flatnonzero(~framed).tolist(), unframed)
        defaults = {} if self.text is None else _writer(self.text).defaults
        parts: list[tuple[Ints, Part]] = []
        for number in np.unique(ids[framed]).tolist():
            which = np.flatnonzero(framed & (ids == number))
            try:
                writer = _registered(self.registry.schema(number))
            except Transient:
                raise
            except TidegaugeError as error:
                wrong |= dict.fromkeys(which.tolist(), (error.code, f"schema {number}: {error.summary}"))
                continue
            parts.append((which, rows_of(writer, data, begins[which] + HEAD_BYTES, ends[which], schema, defaults)))
        return together(len(begins), parts, wrong, schema)


@lru_cache(maxsize=_KEPT)
def _writer(text: str, references: tuple[str, ...] = ()) -> WriterSchema:
    return WriterSchema.of(json.loads(text), [json.loads(reference) for reference in references])


@lru_cache(maxsize=_KEPT)
def _registered(found: Registered) -> WriterSchema:
    if found.kind != "AVRO":
        raise InvalidMessageSchema(kind="Avro", detail=f"the registry keeps it as {found.kind}")
    try:
        return _writer(found.text, found.references)
    except (ValueError, RecursionError) as error:
        raise InvalidMessageSchema(kind="Avro", detail=f"it is no JSON: {error}") from None
