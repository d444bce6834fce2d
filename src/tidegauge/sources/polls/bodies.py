"""The body of an answer as rows, by the formats that files and messages have, and where JSON puts its rows.

JSON lines, CSV, text and Parquet are read as a file is. A JSON body that begins with `[` is an array of records, and
`rows="data.items"` is where an object has its array. The records of an array are cut out of the text, so that
the format reads them as they were written.

Invariant: a body is rows as a whole, or it is refused.

>>> cut('{"data": {"items": [{"n": 1.10}, [2]]}, "next": "b"}', "data.items")
['{"n": 1.10}', '[2]']
>>> member('{"data": [], "next": "b"}', "next"), member('{"data": []}', "next")
('b', None)
>>> cut("[1, 2", "")
Traceback (most recent call last):
ValueError: it ends within an array
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Callable, Iterable
from email.message import Message
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from tidegauge.sources.formats.csv import Csv
from tidegauge.sources.formats.json import Json
from tidegauge.sources.formats.parquet import Parquet
from tidegauge.sources.formats.plain import Text
from tidegauge.sources.formats.protocol import Format, as_line, as_whole

__all__ = ["cut", "member", "misread", "rows_in"]

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder()
_SLOW: Final = frozenset({"idna", "punycode"})
"""Codecs that take the square of a text's length."""


def rows_in(body: bytes, format: Format, schema: pa.Schema, *, rows: str = "") -> pa.Table:
    """Return the rows of a body. Raises `ValueError`, which says where it is no such body."""
    if isinstance(format, Json) and (rows or body.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["):
        records = [record.encode() for record in cut(body.decode("utf-8-sig"), rows)]
        found = format.decode_messages(records, schema=schema, on_bad=_bad_record)
        return _of_ours(pa.Table.from_batches([found.rows], schema), lambda: _members_of(records))
    stream = io.BytesIO(body)
    if (line := as_line(format)) is not None:
        header = line.header(stream)
        stream.seek(0)
        decoded = line.decode(stream, lower=0, upper=None, header=header, schema=schema, on_bad=_bad_line)
    else:
        whole = as_whole(format)
        assert whole is not None  # noqa: S101 - a format is one of the two
        if not whole.complete(stream):
            raise ValueError("it does not end as such a file does")
        stream.seek(0)
        groups = len(whole.groups(stream))
        decoded = whole.decode_groups(stream, first=0, last=groups, schema=schema)
    there = pa.Table.from_batches([one.rows for one in decoded], schema)
    if isinstance(format, Json):
        return _of_ours(there, lambda: _members_of(body.splitlines()))
    if isinstance(format, Parquet):
        return _of_ours(there, lambda: set(pq.read_schema(pa.BufferReader(body)).names))
    return there  # a header of CSV has one of the columns, and other formats have no names


def _of_ours(rows: pa.Table, names: Callable[[], set[str]]) -> pa.Table:
    """Return rows unless the body names none of the columns: `{"error": "no such user"}` is no row of nulls."""
    if rows.num_rows and all(column.null_count == rows.num_rows for column in rows.columns):
        named = names()
        if named.isdisjoint(rows.column_names):
            raise ValueError(f"no record has any of the declared columns; they have {sorted(named)[:20]}")
    return rows


def _members_of(records: Iterable[bytes]) -> set[str]:
    return set[str]().union(*(json.loads(record) for record in records if record.strip()))


def misread(kind: str, body: bytes, format: Format) -> str:
    """Say why the text of a body is not what UTF-8 makes of it, by its Content-Type; "" where it is.

    Most servers that name another character set than UTF-8 still send UTF-8, or plain ASCII. In a few character sets
    the bytes of ASCII stand for something else, and nothing in them would show it. JSON is UTF-8 always.

    >>> misread("text/csv; charset=latin1", b"n,s", Csv("n long")), misread("text/csv", b"n,s", Csv("n long"))
    ('', '')
    >>> misread("text/csv; charset=UTF-7", b"n,+AGE-", Csv("n long"))
    "its text is 'utf-7', and text is read as UTF-8"
    """
    if not isinstance(format, Csv | Text) or not body.isascii():
        return ""
    message = Message()
    message["content-type"] = kind
    charset = str(message.get_param("charset", ""))
    try:
        if codecs.lookup(charset).name in _SLOW or body.decode(charset) == body.decode():
            return ""
    except (LookupError, UnicodeError, ValueError):
        return ""
    return f"its text is {charset.lower()!r:.40}, and text is read as UTF-8"


def _bad_line(position: int, raw: bytes, problem: str) -> NoReturn:
    raise ValueError(f"at byte {position}, {raw[:60]!r}: {problem}")


def _bad_record(number: int, _code: str, problem: str) -> NoReturn:
    raise ValueError(f"record {number}: {problem}")


def cut(text: str, path: str) -> list[str]:
    """Return the texts of the elements of an array, which the members of a path lead to. Raises `ValueError`."""
    at, end = _led(text, path)
    if text[at : at + 1] != "[":
        raise ValueError(f"there is no array at {path!r}" if path else "it is no array")
    elements, stop = _listed(text, at, "]", "an array", lambda start: _value(text, start))
    if (over := _spaced(text, end or stop)) < len(text):
        raise ValueError(f"it goes on after its end, with {text[over : over + 20]!r}")
    return [text[start:stop] for start, stop in elements]


def member(text: str, path: str) -> Any:
    """Return the value that the members of a path lead to, None where there is none. Raises `ValueError`."""
    text = text.removeprefix("\ufeff")
    try:
        at, _ = _led(text, path)
    except _Nowhere:
        return None
    return _DECODER.raw_decode(text, at)[0]


class _Nowhere(ValueError):
    """A path that leads nowhere."""


def _led(text: str, path: str) -> tuple[int, int]:
    """Return where the value begins to which the members of a path lead, and where the outermost object ends.

    The end is 0 for the value itself. Raises `_Nowhere`, and `ValueError` for a member that is there twice: which of
    them counts, each reader decides in its own way.
    """
    at, end = _spaced(text, 0), 0
    for name in path.split(".") if path else ():
        members, stop = _members(text, at)
        end = end or stop
        if not (found := [begin for key, begin in members if key == name]):
            raise _Nowhere(f"it has no member {name!r} of the path {path!r}")
        if len(found) > 1:
            raise ValueError(f"it has the member {name!r} of the path {path!r} more than once")
        at = found[0]
    return at, end


def _members(text: str, at: int) -> tuple[list[tuple[str, int]], int]:
    """Return the names of an object's members, with where their values begin, and where the object ends."""
    if text[at : at + 1] != "{":
        raise _Nowhere("it is no object")
    names = list[tuple[str, int]]()

    def one(start: int) -> int:
        name, colon = _DECODER.raw_decode(text, start)
        colon = _spaced(text, colon)
        if not isinstance(name, str) or text[colon : colon + 1] != ":":
            raise ValueError(f"at character {start} is no member")
        begin = _spaced(text, colon + 1)
        names.append((name, begin))
        return _value(text, begin)

    return names, _listed(text, at, "}", "an object", one)[1]


def _listed(text: str, at: int, end: str, what: str, one: Callable[[int], int]) -> tuple[list[tuple[int, int]], int]:
    """Return where the parts of an array or object begin and end, which commas separate, and where it ends."""
    parts = list[tuple[int, int]]()
    at = _spaced(text, at + 1)
    if text[at : at + 1] == end:
        return parts, at + 1
    while True:
        if at >= len(text):
            raise ValueError(f"it ends within {what}")
        stop = one(at)
        parts.append((at, stop))
        at = _spaced(text, stop)
        follows = text[at : at + 1]
        if follows == end:
            return parts, at + 1
        if follows != ",":
            raise ValueError(f"it ends within {what}" if not follows else f"at character {at} a comma is missing")
        at = _spaced(text, at + 1)


def _value(text: str, at: int) -> int:
    """Return where a value ends."""
    end: int = _DECODER.raw_decode(text, at)[1]
    return end


def _spaced(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
