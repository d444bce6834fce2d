"""Canonical JSON, with one text for each value, and a frontier in it with the kind of its clock.

    {"kind":"gtid","next":{PARTITION:POSITION,...},"sealed":false}

Keys are sorted, there is no whitespace, and numbers are integers and nothing else: an integer beyond 2**53 that
passes through a float comes out as another integer, in silence. Values are None, booleans, integers of 64 bits
(signed or unsigned), Unicode texts, and lists and objects of these.

Invariants. `load(dump(value)) == value`, `dump(load(text)) == text` and `decode(t, encode(t, f)) == f`: text that is
not canonical is refused, so values and frontiers are equal iff their texts are. A decoded frontier has only places
that its kind has, and is never read as one of another kind: 17 polls are not the LSN 0/11.

>>> from tidegauge.remap.fromtime.lsn import LSN
>>> encode(LSN, Frontier({"wal": 2**53 + 1}))
'{"kind":"lsn","next":{"wal":9007199254740993},"sealed":false}'
>>> decode(LSN, _)
Frontier({'wal': 9007199254740993})
>>> load('{"a":1e3}', limit=100)
Traceback (most recent call last):
ValueError: a number is no integer
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from tidegauge.errors.fromtime import FromTimeChanged, NotCanonical
from tidegauge.remap.fromtime.protocol import LONGEST_TEXT, FromTime, checked, excerpt
from tidegauge.remap.frontier import Frontier

__all__ = ["DEEPEST", "JsonValue", "decode", "dump", "encode", "load"]

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


def encode(from_time: FromTime, frontier: Frontier) -> str:
    """Return the canonical text of a frontier. Raises `InvalidPlace`."""
    positions = dict(checked(from_time, frontier).items())
    return dump({"kind": from_time.kind, "next": positions, "sealed": frontier.sealed})


def decode(from_time: FromTime, text: str) -> Frontier:
    """Return the frontier of a canonical text. Raises `NotCanonical`, `FromTimeChanged` or `InvalidPlace`."""
    try:
        found = load(text, limit=LONGEST_TEXT)
    except ValueError as error:
        raise NotCanonical(thing="frontier", problem=str(error)) from error
    match found:
        case {"kind": str(kind), "next": dict(positions), "sealed": bool(sealed)} if len(found) == 3:
            pass
        case _:
            raise NotCanonical(thing="frontier", problem='it is no object of "kind", "next" and "sealed"')
    if kind != from_time.kind:
        raise FromTimeChanged(stored=excerpt(kind), declared=from_time.kind)
    for position in positions.values():
        if type(position) is not int or position <= 0:
            raise NotCanonical(thing="frontier", problem="a position is no integer above 0")
    return checked(from_time, Frontier(positions, sealed=sealed))
