r"""JSON lines: one object on each line, read by Arrow, with the position of each and every bad line told apart.

Invariant: every line that is not blank is either a row or a bad record, and which of the two depends on that line
alone.

>>> import io
>>> lines = b'{"id": 1, "tags": ["a"]}\n\n{"id": "two"}\n{"id": 3, "more": true}\n'
>>> format = Json("id long, tags array<string>")
>>> [decoded] = format.decode(
...     io.BytesIO(lines), lower=0, upper=None, header=b"", schema=format.schema,
...     on_bad=lambda position, raw, problem: print(position, raw, problem))
26 b'{"id": "two"}' column id: expected a number, found a string
>>> decoded.rows.to_pylist(), decoded.positions.to_pylist()
([{'id': 1, 'tags': ['a']}, {'id': 3, 'tags': None}], [0, 40])

Why counting rows is enough. Arrow reads a sequence of JSON values and pays no heed to where lines end. Let every line
begin with `{` and end with `}` (checked below). No string holds a raw newline; inside an object or array a value that
ends with `}` is followed by `,`, `}` or `]`, never by `{`; so no newline is inside a value, and each line holds one
value or more. So as many rows as lines means one object on each line. (The check also keeps a first line `null` from
Arrow, which it crashes.)

Types: integers and decimals must fit their column without loss; an integer is fine in a double column; timestamps
and dates are ISO 8601 strings (no zone is UTC); binary is base64, as in Spark; unknown members are ignored, whatever
they hold (see `members`). A duplicate in one object (a column, a declared member of a struct, a key of a map) makes a
bad record: no value is lost without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.json

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sources import UnreadableRecord
from tidegauge.sources.ddl import as_schema, to_ddl
from tidegauge.sources.formats.boundaries import Boundaries, Ints
from tidegauge.sources.formats.convert import (
    beyond_in_json,
    contains,
    converted,
    from_base64,
    may_overflow,
    overflows,
    suspects,
)
from tidegauge.sources.formats.further import further_json
from tidegauge.sources.formats.gather import Gathered, Refused, gather
from tidegauge.sources.formats.infer import as_table, infer_json
from tidegauge.sources.formats.members import may_be_spared, only_columns, too_big
from tidegauge.sources.formats.messages import MessageRows, OnBadMessage, Part, in_chunks, present
from tidegauge.sources.formats.protocol import Decoded, OnBad
from tidegauge.sources.formats.records import (
    BLOCK_BYTES,
    BOM,
    MAX_RECORD_BYTES,
    Lines,
    Records,
    blocks,
    check_encoding,
    records_of,
    records_of_messages,
)

__all__ = ["Json"]

_LINES: Final = Boundaries(quote=None)
_SPACE: Final = b" \t\r\n"
_OPEN, _CLOSE = ord("{"), ord("}")
_NOT_AN_OBJECT: Final = "not one JSON object"
_MESSAGE: Final = 300
_KEPT: Final = 64
_KIND: Final = re.compile(r"^Column\(/(?P<path>.*)\) changed from (?P<expected>\S+) to (?P<found>\S+)")
_TWICE: Final = re.compile(r"^Column\(/(?P<path>.*)\) was specified twice")
_ROW: Final = re.compile(r" in row (\d+)$")


@dataclass(frozen=True, slots=True)
class Json:
    """JSON lines. `schema` is a DDL string or an Arrow schema; without one it is inferred from the first data.

    Raises `InvalidSchema`, `ReservedColumn`, `UnsupportedType`, and `InvalidArgument` for a map whose keys are no
    strings.
    """

    schema: pa.Schema | None

    def __init__(self, schema: str | pa.Schema | None = None) -> None:
        declared = as_schema(schema)
        for column in declared or ():
            _check_keys(column.type, column.name)
        object.__setattr__(self, "schema", declared)

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {"format": "json", "schema": None if self.schema is None else to_ddl(self.schema)}

    def infer(self, head: bytes) -> pa.Schema | None:
        """Return the columns of the objects on the complete lines of `head`, or None when there are none."""
        check_encoding(head)
        return _inferred(head)

    def header(self, stream: BinaryIO) -> bytes:  # noqa: ARG002 - the seam's shape
        """Return nothing: JSON lines have no header."""
        return b""

    def last_boundary(self, stream: BinaryIO, lower: int, upper: int) -> int:
        """Return the position after the last newline in `[lower, upper)`, or `lower`."""
        return _LINES.last(stream, lower, upper)

    def cuts(self, stream: BinaryIO, lower: int, upper: int, size: int) -> list[int]:
        """Return line beginnings about `size` bytes apart; only the bytes around them are read."""
        return list(_LINES.cuts(stream, lower, upper, size))

    def decode(
        self, stream: BinaryIO, *, lower: int, upper: int | None, header: bytes, schema: pa.Schema, on_bad: OnBad
    ) -> Iterator[Decoded]:
        """Yield the rows of `[lower, upper)`, with each row's line beginning."""
        del header
        return decode_lines(stream, lower=lower, upper=upper, schema=schema, on_bad=on_bad)

    def further(
        self, stream: BinaryIO, *, lower: int, upper: int | None, header: bytes, schema: pa.Schema
    ) -> pa.Schema:
        """Return columns, and those that the objects of `[lower, upper)` have besides."""
        del header
        for block in blocks(stream, _LINES, lower=lower, upper=upper):
            if not block.oversized:
                start = len(BOM) if not block.position and block.data.startswith(BOM) else 0
                schema = further_json(memoryview(block.data)[start : int(block.ends[-1])], schema)
        return schema

    def infer_messages(self, values: Sequence[bytes | None]) -> pa.Schema | None:
        """Return the columns of the objects among the values, or None when there are none."""
        return _inferred(_as_lines(values))

    def further_messages(self, values: Sequence[bytes | None], *, schema: pa.Schema) -> pa.Schema:
        """Return columns, and those that the objects among the values have besides."""
        return further_json(_as_lines(values), schema)

    def decode_messages(
        self, values: Sequence[bytes | None], *, schema: pa.Schema, on_bad: OnBadMessage
    ) -> MessageRows:
        """Return the rows of messages, one object each, on one line or on many; an empty message is a bad one."""
        reader = _reader_of(schema)

        def decode(chunk: Sequence[bytes]) -> Part:
            records = _outline(records_of_messages(_on_one_line(chunk)), messages=True)
            rows, kept = reader.rows(records)
            return Part(rows, kept, {i: (UnreadableRecord.code, text) for i, text in records.wrong.items()})

        return in_chunks(values, schema, on_bad, decode)


def decode_lines(
    stream: BinaryIO,
    *,
    lower: int,
    upper: int | None,
    schema: pa.Schema,
    on_bad: OnBad,
    size: int = BLOCK_BYTES,
    limit: int = MAX_RECORD_BYTES,
) -> Iterator[Decoded]:
    """Decode in blocks of about `size` bytes; lines longer than `limit` are bad records."""
    reader = _reader_of(schema)
    for block in blocks(stream, _LINES, lower=lower, upper=upper, size=size, limit=limit):
        for part in records_of(block, limit=limit):
            records = _outline(part)
            rows, kept = reader.rows(records)
            records.report(on_bad)
            if len(kept):
                yield records.decoded(rows, kept)


def _inferred(lines: bytes) -> pa.Schema | None:
    found = infer_json(lines)
    return None if found is None else as_table(found, "the JSON")


def _as_lines(values: Sequence[bytes | None]) -> bytes:
    return b"".join(value.removeprefix(BOM) + b"\n" for value in _on_one_line(present(values)[0]))


def _on_one_line(values: Sequence[bytes]) -> Sequence[bytes]:
    """Return values with a carriage return for each newline: between tokens it is space too, in a text as wrong."""
    if b"\n" not in b"".join(values):
        return values
    return [value.replace(b"\n", b"\r") for value in values]


def _outline(records: Records, *, messages: bool = False) -> Records:
    """Mark lines that do not look like an object from outside, and those that are not UTF-8; drop blank ones.

    A blank message is no line between others: it is marked.
    """
    characters = np.frombuffer(records.data, np.uint8)
    empty = records.begins == records.stops
    # An empty line may stand at the end of the data: any index will do for it.
    first = characters[np.where(empty, 0, records.begins)]
    last = characters[np.where(empty, 0, records.stops - 1)]
    odd = np.flatnonzero((first != _OPEN) | (last != _CLOSE) | empty)
    if len(odd):
        blank, suspect = empty.copy(), np.zeros(len(records), np.bool_)
        for i in odd[~empty[odd]].tolist():
            line = b"..." if i in records.wrong else records.raw(i).strip(_SPACE)
            blank[i] = not line
            suspect[i] = not (line.startswith(b"{") and line.endswith(b"}"))
        if messages:
            records.mark(blank, "an empty message")
            records.mark(suspect, _NOT_AN_OBJECT)
        else:
            records = records.without(blank)
            records.mark(suspect[~blank], _NOT_AN_OBJECT)
    records.mark_invalid_utf8()
    return records


class _LineReader:
    """Reads lines as rows of a schema. It keeps nothing of what it reads, so threads may share it.

    There are two ways. The quick one lets Arrow make everything it can; the careful one takes timestamps as strings
    and converts them, which accepts more and tells single values apart. What the quick way accepts, the careful way
    accepts with the same values, so which of them a line went does not show.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.maps = pa.schema([column for column in schema if contains(column.type, pa.types.is_map)])
        plain = [column for column in schema if not contains(column.type, pa.types.is_map)]
        self.quick = pa.schema([_wire_field(column, careful=False) for column in plain])
        self.careful = pa.schema([_wire_field(column, careful=True) for column in plain])
        self.entries = pa.schema([_wire_field(column, careful=True) for column in self.maps])
        self.decimals = pa.schema([column for column in plain if contains(column.type, pa.types.is_decimal)])
        self.numbers = {column.name for column in schema if contains(column.type, may_overflow)}

    def rows(self, records: Records) -> tuple[pa.RecordBatch, Ints]:
        """Return the rows of the good records and which records those are; mark the others."""
        self._mark_beyond(records)
        rewritten = self._rewritten(records)
        sound = records.sound()
        lines = records.lines(sound)
        entries = Lines.joined([rewritten[i] for i in sound.tolist()]) if rewritten else None

        @lru_cache(maxsize=1)
        def spared() -> Lines:
            return self._spared(records, sound, lines)

        def quick(i: int, j: int) -> Gathered:
            return self._read(lines, lines, entries, i, j, self.quick)

        def careful(i: int, j: int) -> Gathered:
            return self._read(lines, spared(), entries, i, j, self.careful)

        return gather(records, sound, [quick, careful], self.schema)

    def _mark_beyond(self, records: Records) -> None:
        """Mark what must not be read as a decimal."""
        if not len(self.decimals) or not len(records):
            return
        places = suspects(records.data, int(records.begins[0]), int(records.stops[-1]))
        for i in np.unique(np.searchsorted(records.begins, places, side="right") - 1).tolist():
            if i not in records.wrong:
                try:
                    path = beyond_in_json(records.raw(i), self.decimals)
                except ValueError as error:
                    records.wrong[i] = f"not valid JSON: {_cut(str(error))}"
                else:
                    if path:
                        records.wrong[i] = f"column {path}: more digits after the point than a decimal has"

    def _rewritten(self, records: Records) -> dict[int, bytes]:
        """Return the lines with only the columns that have maps in them, if there are any such columns."""
        lines: dict[int, bytes] = {}
        if len(self.maps):
            for i in records.sound().tolist():
                try:
                    lines[i] = only_columns(records.raw(i), self.maps)
                except ValueError as error:
                    records.wrong[i] = _cut(str(error))
        return lines

    def _spared(self, records: Records, sound: Ints, lines: Lines) -> Lines:
        """Return the lines without the members that are no columns, where Arrow may refuse those."""
        written: dict[int, bytes] = {}
        for i in sound.tolist() if may_be_spared(records.data) else ():
            if may_be_spared(line := records.raw(i)):
                # What is no JSON is left to Arrow.
                with suppress(ValueError):
                    written[i] = only_columns(line, self.careful)
        return Lines.joined([written.get(i) or records.raw(i) for i in sound.tolist()]) if written else lines

    def _read(self, lines: Lines, spared: Lines, entries: Lines | None, i: int, j: int, plain: pa.Schema) -> Gathered:
        found: dict[str, Any] = {}
        if len(plain):
            found |= _columns(spared.between(i, j), plain, rows=j - i)
        if entries is not None:
            found |= _columns(entries.between(i, j), self.entries, rows=j - i)
        arrays, problems, kept = [], [], np.ones(j - i, np.bool_)
        for column in self.schema:
            array, bad = converted(found[column.name], column.type, from_base64)
            arrays.append(array)
            if column.name in self.numbers:
                large = overflows(array, infinite=False)
                for k in np.flatnonzero(overflows(array, infinite=True)).tolist():
                    large[k] |= too_big(bytes(lines.between(i + k, i + k + 1)), column)
                if large.any():
                    kept &= ~large
                    problems.append((np.flatnonzero(large), f"column {column.name}: a number too big for its type"))
            if bad.any():
                kept &= ~bad
                problems.append(
                    (np.flatnonzero(bad), f"column {column.name}: a text that is no {_type_name(column.type)}")
                )
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return Gathered(rows if kept.all() else rows.filter(pa.array(kept)), kept, problems)


@lru_cache(maxsize=_KEPT)
def _reader_of(schema: pa.Schema) -> _LineReader:
    """Return the reader for a schema: a source has one schema and is read bulk by bulk."""
    return _LineReader(schema)


def _columns(text: memoryview, schema: pa.Schema, *, rows: int) -> dict[str, Any]:
    """Read JSON values as columns. Raises `Refused`, in the words of the one line when there is one."""
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(pa.py_buffer(text)),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        row = _ROW.search(str(error))
        raise Refused(_in_words(str(error)), None if row is None else int(row[1])) from error
    if table.num_rows != rows:
        raise Refused(_NOT_AN_OBJECT)
    return {
        name: column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def _in_words(message: str) -> str:
    message = _ROW.sub("", message.removeprefix("JSON parse error: "))
    if mixed := _KIND.match(message):
        path, expected, found = (mixed[name].replace("_", " ") for name in ("path", "expected", "found"))
        return _cut(f"column {path}: expected a {expected}, found a {found}")
    if twice := _TWICE.match(message):
        return _cut(f"column {twice['path']}: it is there twice")
    return _cut(message)


def _cut(message: str) -> str:
    return message if len(message) <= _MESSAGE else message[:_MESSAGE] + "..."


def _type_name(of: Any) -> str:
    return "base64" if pa.types.is_binary(of) else str(of)


def _wire_field(column: pa.Field, *, careful: bool) -> pa.Field:
    return pa.field(column.name, _wire(column.type, careful=careful), nullable=column.nullable)


def _wire(of: Any, *, careful: bool) -> Any:
    """Return the type that Arrow is asked for."""
    if pa.types.is_date(of) or pa.types.is_binary(of) or (careful and pa.types.is_timestamp(of)):
        return pa.string()
    if pa.types.is_list(of):
        return pa.list_(_wire_field(of.value_field, careful=careful))
    if pa.types.is_struct(of):
        return pa.struct([_wire_field(inner, careful=careful) for inner in of])
    if pa.types.is_map(of):
        key = pa.field("key", pa.string(), nullable=False)
        return pa.list_(pa.struct([key, pa.field("value", _wire(of.item_type, careful=careful))]))
    return of


def _check_keys(of: Any, column: str) -> None:
    if pa.types.is_map(of):
        if not pa.types.is_string(of.key_type):
            raise InvalidArgument(
                parameter=f"the schema's column {column}", value=str(of), expected="a map whose keys are strings"
            )
        _check_keys(of.item_type, column)
    elif pa.types.is_list(of):
        _check_keys(of.value_type, column)
    elif pa.types.is_struct(of):
        for inner in of:
            _check_keys(inner.type, f"{column}.{inner.name}")
