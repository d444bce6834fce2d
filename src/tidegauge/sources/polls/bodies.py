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

import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import pyarrow as pa

from tidegauge.sources.formats.json import Json
from tidegauge.sources.formats.protocol import Format, as_line, as_whole

__all__ = ["cut", "member", "rows_in"]

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder()


def rows_in(body: bytes, format: Format, schema: pa.Schema, *, rows: str = "") -> pa.Table:
    """Return the rows of a body. Raises `ValueError`, which says where it is no such body."""
    if isinstance(format, Json) and (rows or body.lstrip()[:1] == b"["):
        records = [record.encode() for record in cut(body.decode(), rows)]
        found = format.decode_messages(records, schema=schema, on_bad=_bad_record)
        return pa.Table.from_batches([found.rows], schema)
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
    return pa.Table.from_batches([one.rows for one in decoded], schema)


def _bad_line(position: int, raw: bytes, problem: str) -> NoReturn:
    raise ValueError(f"at byte {position}, {raw[:60]!r}: {problem}")


def _bad_record(number: int, _code: str, problem: str) -> NoReturn:
    raise ValueError(f"record {number}: {problem}")


def cut(text: str, path: str) -> list[str]:
    """Return the texts of the elements of an array, which the members of a path lead to. Raises `ValueError`."""
    at = _spaced(text, 0)
    for name in path.split(".") if path else ():
        found = next((start for key, start in _members(text, at) if key == name), None)
        if found is None:
            raise ValueError(f"it has no member {name!r} of the path {path!r}")
        at = found
    if text[at : at + 1] != "[":
        raise ValueError(f"there is no array at {path!r}" if path else "it is no array")
    return [text[start:end] for start, end in _elements(text, at)]


def member(text: str, path: str) -> Any:
    """Return the value that the members of a path lead to, None where there is none. Raises `ValueError`."""
    value = json.loads(text)
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _elements(text: str, at: int) -> Iterator[tuple[int, int]]:
    def element(start: int) -> int:
        return _value(text, start)

    yield from _listed(text, at, "]", "an array", element)


def _members(text: str, at: int) -> Iterator[tuple[str, int]]:
    """Yield the names of an object's members, and where their values begin."""
    if text[at : at + 1] != "{":
        raise ValueError("it is no object")
    names = list[tuple[str, int]]()

    def one(start: int) -> int:
        name, colon = _DECODER.raw_decode(text, start)
        colon = _spaced(text, colon)
        if not isinstance(name, str) or text[colon : colon + 1] != ":":
            raise ValueError(f"at character {start} is no member")
        begin = _spaced(text, colon + 1)
        names.append((name, begin))
        return _value(text, begin)

    for _ in _listed(text, at, "}", "an object", one):
        pass
    yield from names


def _listed(text: str, at: int, end: str, what: str, one: Callable[[int], int]) -> Iterator[tuple[int, int]]:
    """Yield where the parts of an array or object begin and end, which commas separate."""
    at = _spaced(text, at + 1)
    if text[at : at + 1] == end:
        return
    while True:
        if at >= len(text):
            raise ValueError(f"it ends within {what}")
        stop = one(at)
        yield at, stop
        at = _spaced(text, stop)
        follows = text[at : at + 1]
        if follows == end:
            return
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
