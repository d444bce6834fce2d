"""JSON with one text for each value: sorted keys, no whitespace, integers and nothing else for numbers.

Values are None, booleans, integers of 64 bits (signed or unsigned), Unicode texts, and lists and objects of these.
There are no floats: an integer beyond 2**53 that passes through one comes out as another integer, in silence.

Invariant: `load(dump(value)) == value`, and `dump(load(text)) == text`: what is not in its canonical form is refused.
So values are equal iff their texts are.

>>> dump({"b": 2**64 - 1, "a": ["tea", None]})
'{"a":["tea",null],"b":18446744073709551615}'
>>> load('{"a":1e3}', limit=100)
Traceback (most recent call last):
ValueError: a number is no integer
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

__all__ = ["DEEPEST", "JsonValue", "dump", "load"]

JsonValue: TypeAlias = Any
"""None, a boolean, an integer, a text, or a list or an object of these."""

DEEPEST: Final = 32
"""How many lists and objects may be within each other."""
_LEAST, _MOST = -(2**63), 2**64 - 1


def dump(value: JsonValue) -> str:
    """Return the canonical text. Raises ValueError, which says what cannot be written, never its content."""
    _check(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def load(text: str, *, limit: int) -> JsonValue:
    """Return the value of a canonical text of at most `limit` characters. Raises ValueError."""
    if not isinstance(text, str):
        raise ValueError(f"it is of type {type(text).__name__}, not a text")  # noqa: TRY004 - one kind for all
    if len(text) > limit:
        raise ValueError(f"it has {len(text)} characters, and at most {limit} are read")
    try:
        value = json.loads(
            text,
            parse_int=_integer,
            parse_float=_no_integer,
            parse_constant=_no_integer,
            object_pairs_hook=_distinct,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if dump(value) != text:
        raise ValueError("it is not in its canonical form: sorted keys, no whitespace, no needless escapes")
    return value


def _check(value: JsonValue) -> None:
    """Look at everything in a value, level by level, so that neither its depth nor a cycle can exhaust the stack."""
    level = [value]
    for _ in range(DEEPEST + 1):
        deeper: list[JsonValue] = []
        for item in level:
            if type(item) is dict:
                for key in item:
                    if type(key) is not str:
                        raise ValueError(f"an object has a key of type {type(key).__name__}")
                    _unicode(key)
                deeper.extend(item.values())
            elif type(item) is list:
                deeper.extend(item)
            else:
                _check_plain(item)
        if not deeper:
            return
        level = deeper
    raise ValueError(f"it is nested deeper than {DEEPEST} levels")


def _check_plain(item: JsonValue) -> None:
    if type(item) is str:
        _unicode(item)
    elif type(item) is int:
        if not _LEAST <= item <= _MOST:
            raise ValueError("an integer does not fit into 64 bits")
    elif item is not None and type(item) is not bool:
        raise ValueError(f"it holds a value of type {type(item).__name__}")


def _unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text is no Unicode") from None


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("an integer does not fit into 64 bits")
    return int(digits)


def _no_integer(_: str) -> JsonValue:
    raise ValueError("a number is no integer")


def _distinct(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found
