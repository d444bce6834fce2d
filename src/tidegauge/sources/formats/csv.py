r"""CSV as RFC 4180 has it, read by Arrow, with the position of each record and every bad record told apart.

Invariant: a record ends at a newline outside quotes. Every record that is not empty is the header, a row or a bad
record, and which of the two latter depends on that record alone.

>>> import io
>>> data = b'id,note\n1,"two\nlines"\nx,y\n2,""\n3,\n'
>>> format = Csv("id long, note string")
>>> [decoded] = format.decode(
...     io.BytesIO(data), lower=0, upper=None, header=b"", schema=format.schema,
...     on_bad=lambda position, raw, problem: print(position, raw, problem))
22 b'x,y' column id: a text that is no int64
>>> decoded.rows.to_pylist()
[{'id': 1, 'note': 'two\nlines'}, {'id': 2, 'note': ''}, {'id': 3, 'note': None}]
>>> decoded.positions.to_pylist()
[8, 26, 31]

Why a quote in the wrong place is a bad record. Arrow takes a quote inside an unquoted field for a character; counting
quotes does not. RFC 4180 has no such field. Where every opening quote follows the beginning of a field and every
closing one is followed by its end, or stands next to the other of a doubled quote, both read the same; any other
record is marked before Arrow sees it. So is one with a carriage return outside quotes that no newline follows, which
Arrow takes for an end.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sources import CorruptFile, UnreadableRecord, UnsupportedType
from tidegauge.evolution import joined
from tidegauge.sources.ddl import as_schema, to_ddl
from tidegauge.sources.formats.boundaries import Boundaries, Ints, read_exactly
from tidegauge.sources.formats.fields import Fields, names_in
from tidegauge.sources.formats.further import further_texts
from tidegauge.sources.formats.infer import as_table, column_by_column, infer_text
from tidegauge.sources.formats.messages import MessageRows, OnBadMessage, Part, in_chunks, present
from tidegauge.sources.formats.protocol import Decoded, OnBad
from tidegauge.sources.formats.records import (
    BLOCK_BYTES,
    BOM,
    MAX_RECORD_BYTES,
    Block,
    Records,
    blocks,
    records_of,
    records_of_messages,
)

__all__ = ["Csv"]

HEADER_BYTES: Final = 1 << 20
_LF, _CR = 10, 13
_QUOTE: Final = "a quote that neither begins nor ends a field, or is not closed"


@dataclass(frozen=True, slots=True)
class Csv:
    """Comma-separated values, or values separated by another character.

    An empty record is skipped. A message is one record, and never a header. Numbers, dates and timestamps may have
    blanks around them; booleans are true, false, 1 and 0; a timestamp without a zone is in UTC.

    Args:
        schema: a DDL string or an Arrow schema, without nested types. None infers the columns from the first data.
        header: whether each file begins with a record of column names. Columns are then matched by name: others are
            ignored, missing ones are null. Without a header they are matched by position.
        delimiter: one ASCII character.
        quote: one ASCII character, or None if quotes mean nothing.
        null: the texts that are NULL unless quoted.

    Raises `InvalidSchema`, `ReservedColumn`, `UnsupportedType` and `InvalidArgument`.
    """

    schema: pa.Schema | None
    has_header: bool
    delimiter: str
    quote: str | None
    null: tuple[str, ...]

    def __init__(
        self,
        schema: str | pa.Schema | None = None,
        *,
        header: bool = True,
        delimiter: str = ",",
        quote: str | None = '"',
        null: str | tuple[str, ...] = "",
    ) -> None:
        declared = as_schema(schema)
        for column in declared or ():
            if pa.types.is_nested(column.type):
                raise UnsupportedType(column=column.name, type=f"{column.type} (in CSV)")
        if not _one_character(delimiter):
            raise InvalidArgument(parameter="delimiter", value=delimiter, expected="one ASCII character, no line end")
        if quote is not None and (not _one_character(quote) or quote == delimiter):
            raise InvalidArgument(
                parameter="quote", value=quote, expected="None, or one ASCII character that is not the delimiter"
            )
        nulls = (null,) if isinstance(null, str) else tuple(null)
        for name, value in (
            ("schema", declared),
            ("has_header", header),
            ("delimiter", delimiter),
            ("quote", quote),
            ("null", nulls),
        ):
            object.__setattr__(self, name, value)

    @property
    def _boundaries(self) -> Boundaries:
        return Boundaries(quote=None if self.quote is None else self.quote.encode())

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {
            "format": "csv",
            "schema": None if self.schema is None else to_ddl(self.schema),
            "header": self.has_header,
            "delimiter": self.delimiter,
            "quote": self.quote,
            "null": list(self.null),
        }

    def infer(self, head: bytes) -> pa.Schema | None:
        """Return the columns of the complete records of `head`, without the bad ones; None when there is none.

        Without a header they are called `_c0`, `_c1` and so on, as by Spark, and there are as many as in the first
        record.
        """
        ends = self._boundaries.ends(head)
        parts = map(self._outline, records_of(Block(0, head, ends))) if len(ends) else ()
        return self._inferred(parts, header=self.has_header)

    def _inferred(self, parts: Iterable[Records], *, header: bool) -> pa.Schema | None:
        fields: Fields | None = None
        found: list[pa.RecordBatch] = []
        for records in parts:
            if fields is None and len(records):
                names = self._names(records.raw(0))
                if header:
                    records = records.after_first()
                else:
                    names = [f"_c{i}" for i in range(len(names))]
                fields = self._fields(
                    names, pa.schema([(name, pa.string()) for name in dict.fromkeys(names) if name])
                )
            if fields is not None:
                found.append(fields.rows(records)[0])
        table = pa.Table.from_batches(found) if found else None
        if table is None or not table.num_rows:
            return None
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        return as_table(infer_text(columns), "the CSV")

    def header(self, stream: BinaryIO) -> bytes:
        """Return the file up to the end of its first record that is not empty; b"" without a header or a record.

        Raises `CorruptFile` when no such record ends in the first mebibyte.
        """
        if not self.has_header:
            return b""
        stream.seek(0)
        head = read_exactly(stream, HEADER_BYTES + 1)
        whole = len(head) <= HEADER_BYTES
        return head[: self._header_end(head, whole=whole)]

    def last_boundary(self, stream: BinaryIO, lower: int, upper: int) -> int:
        """Return the last record boundary in `[lower, upper]`; there is none inside the header."""
        found = self._boundaries.last(stream, lower, upper)
        if lower > 0 or not self.has_header:
            return found
        # Empty records before a header that is still to come belong to it.
        header = len(self.header(stream))
        return found if 0 < header <= found else lower

    def cuts(self, stream: BinaryIO, lower: int, upper: int, size: int) -> list[int]:
        """Return record boundaries about `size` bytes apart. With quotes, everything is read once."""
        first = len(self.header(stream)) if lower == 0 else 0
        return [cut for cut in self._boundaries.cuts(stream, lower, upper, size) if cut >= first]

    def decode(
        self, stream: BinaryIO, *, lower: int, upper: int | None, header: bytes, schema: pa.Schema, on_bad: OnBad
    ) -> Iterator[Decoded]:
        """Yield the rows of `[lower, upper)`. Where `lower` is 0, the header is taken from the stream.

        Raises `HeaderMismatch`, `AmbiguousHeader` and `EOFError`.
        """
        return self._decode(stream, lower=lower, upper=upper, header=header, schema=schema, on_bad=on_bad)

    def _decode(
        self,
        stream: BinaryIO,
        *,
        lower: int,
        upper: int | None,
        header: bytes,
        schema: pa.Schema,
        on_bad: OnBad,
        size: int = BLOCK_BYTES,
        limit: int = MAX_RECORD_BYTES,
    ) -> Iterator[Decoded]:
        fields = None if self.has_header else self._fields(schema.names, schema)
        if self.has_header and lower > 0:
            fields = self._fields(self._names(self._header_record(header)), schema)
        for block in blocks(stream, self._boundaries, lower=lower, upper=upper, size=size, limit=limit):
            for part in records_of(block, limit=limit):
                records = self._outline(part)
                if fields is None and len(records):
                    fields = self._fields(self._names(_one_line(records.raw(0))), schema)
                    records = records.after_first()
                if fields is None or not len(records):
                    continue
                rows, kept = fields.rows(records)
                records.report(on_bad)
                if len(kept):
                    yield records.decoded(rows, kept)

    def further(
        self, stream: BinaryIO, *, lower: int, upper: int | None, header: bytes, schema: pa.Schema
    ) -> pa.Schema:
        """Return columns, and those that a header names besides, where a record of `[lower, upper)` has a value.

        A name that is there twice is none. Raises `EOFError`.
        """
        if not self.has_header:
            return schema
        names = self._names(self._header_record(header))
        unknown = [name for name in dict.fromkeys(names) if name and names.count(name) == 1]
        texts = pa.schema([(name, pa.string()) for name in unknown if name not in schema.names])
        if not len(texts):
            return schema
        fields, told, first = self._fields(names, texts), dict[str, Any](), lower == 0
        for block in blocks(stream, self._boundaries, lower=lower, upper=upper):
            for part in records_of(block):
                records = self._outline(part)
                if first and len(records):
                    records, first = records.after_first(), False
                rows = fields.rows(records)[0]
                further_texts(told, {name: rows.column(name) for name in texts.names})
        found = pa.schema([(name, told[name]) for name in texts.names if name in told])
        return joined(schema, column_by_column(found, "the CSV"))

    def infer_messages(self, values: Sequence[bytes | None]) -> pa.Schema | None:
        """Return the columns of messages as `infer` does without a header."""
        records = self._outline(records_of_messages(present(values)[0]), messages=True)
        return self._inferred([records], header=False)

    def decode_messages(
        self, values: Sequence[bytes | None], *, schema: pa.Schema, on_bad: OnBadMessage
    ) -> MessageRows:
        """Return the rows of messages, one record each, found by position: a message has no header.

        A message that is empty, or is more than one record, is a bad one.
        """
        fields = self._fields(schema.names, schema)

        def decode(chunk: Sequence[bytes]) -> Part:
            records = self._outline(records_of_messages(chunk), messages=True)
            rows, kept = fields.rows(records)
            return Part(rows, kept, {i: (UnreadableRecord.code, text) for i, text in records.wrong.items()})

        return in_chunks(values, schema, on_bad, decode)

    def _fields(self, names: list[str], schema: pa.Schema) -> Fields:
        return Fields(names, schema, delimiter=self.delimiter, quote=self.quote, null=self.null)

    def _names(self, record: bytes) -> list[str]:
        return names_in(record, self.delimiter, self.quote)

    def _header_record(self, header: bytes) -> bytes:
        """Return the record in the result of `header`, in the form that a read from the file's beginning finds."""
        records = [
            part.raw(len(part) - 1)
            for block in blocks(io.BytesIO(header), self._boundaries, lower=0, upper=None)
            for part in records_of(block)
        ]
        return records[-1] if records else b""

    def _header_end(self, head: bytes, *, whole: bool) -> int:
        begin = len(BOM) if head.startswith(BOM) else 0
        for end in self._boundaries.ends(head).tolist():
            if head[begin:end].rstrip(b"\r\n"):
                return int(end)
            begin = end
        if not whole:
            raise CorruptFile(format="CSV", detail=f"no header in its first {HEADER_BYTES} bytes")
        return len(head) if head[begin:].rstrip(b"\r\n") else 0

    def _outline(self, records: Records, *, messages: bool = False) -> Records:
        """Mark records that are not RFC 4180 and those that are not UTF-8; drop empty ones.

        An empty message is no record between others: it is marked, as is a message of several records.
        """
        empty = records.begins == records.stops
        if messages:
            records.mark(empty, "an empty message")
        else:
            records = records.without(empty)
        if not len(records):
            return records
        origin = int(records.begins[0])
        characters = np.frombuffer(records.data, np.uint8)[origin : records.stops[-1]]
        quotes = np.empty(0, np.int64)
        if self.quote is not None and self.quote.encode() in records.data:
            quotes = np.flatnonzero(characters == ord(self.quote))
            if messages:
                quotes = _closed(quotes, records, origin)
            misplaced = _misplaced(characters, quotes, ord(self.quote), ord(self.delimiter)) + origin
            records.mark(_within(misplaced, records), _QUOTE)
        if b"\r" in records.data:
            bare = _bare_returns(characters, quotes) + origin
            records.mark(_within(bare, records), "a carriage return without a newline")
        if messages and records.data.count(b"\n") > len(records):
            newlines = np.flatnonzero(characters == _LF)
            newlines = newlines[np.searchsorted(quotes, newlines) & 1 == 0] + origin
            records.mark(_within(newlines, records), "more than one record")
        records.mark_invalid_utf8()
        return records


def _one_character(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text not in "\r\n\0"


def _within(places: Ints, records: Records) -> Ints:
    """Return the records that have a byte at one of these places."""
    record = np.searchsorted(records.begins, places, side="right") - 1
    has = np.zeros(len(records), np.bool_)
    has[record[places < records.stops[record]]] = True
    return np.flatnonzero(has)


def _closed(quotes: Ints, records: Records, origin: int) -> Ints:
    """Mark the records with an odd number of quotes, and return the quotes of the others."""
    record = np.searchsorted(records.begins, quotes + origin, side="right") - 1
    odd = np.bincount(record, minlength=len(records)) & 1 == 1
    records.mark(odd, _QUOTE)
    closed: Ints = quotes[~odd[record]]
    return closed


def _misplaced(characters: Any, quotes: Ints, quote: int, delimiter: int) -> Ints:
    """Return which quotes are out of place; `characters` begins outside of any."""
    opening, closing = quotes[0::2], quotes[1::2]
    edge = np.zeros(256, np.bool_)
    edge[[quote, delimiter, _LF, _CR]] = True
    misplaced = [
        opening[(opening > 0) & ~edge[characters[opening - 1]]],
        closing[(closing + 1 < len(characters)) & ~edge[characters[np.minimum(closing + 1, len(characters) - 1)]]],
    ]
    if len(quotes) & 1:
        misplaced.append(quotes[-1:])
    wrong: Ints = np.concatenate(misplaced)
    return wrong


def _bare_returns(characters: Any, quotes: Ints) -> Ints:
    """Return the carriage returns outside quotes with no newline after them."""
    returns = np.flatnonzero(characters == _CR)
    after = characters[np.minimum(returns + 1, len(characters) - 1)]
    returns = returns[after != _LF]
    outside: Ints = returns[np.searchsorted(quotes, returns) & 1 == 0]
    return outside


def _one_line(header: bytes) -> bytes:
    """Return a header. Raises `CorruptFile` for one that is the whole file: its rows would be lost without a word."""
    if b"\r" in header.rstrip(b"\r\n") and b'"' not in header:
        raise CorruptFile(format="CSV", detail="its lines end with CR alone, and are read where they end with LF")
    return header
