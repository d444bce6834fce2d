"""The states of a user's function, or a connector, as JSON for a binding: a closed set of types, each told by a tag.

None, booleans, texts, lists and integers of 64 bits are plain JSON; all else is an object of one key, its tag.

    {"int": "36893488147419103232"}   {"float": "0x1.8000000000000p+0"}   {"bytes": "AP8="}
    {"tuple": [...]}                  {"dict": [[key, value], ...]}
    {"datetime": "2026-11-20T17:00:00+00:00"}   {"date": "2026-11-20"}   {"timedelta": [days, seconds, microseconds]}

Invariant: `decoded(encoded(state))` equals `state`, and has its types, all the way down. Nothing else is taken: no
subclass, no dataclass, nothing that would have to be pickled.

>>> encoded({"page": 3, "seen": (1.5, b"\\x00")})
{'dict': [['page', 3], ['seen', {'tuple': [{'float': '0x1.8000000000000p+0'}, {'bytes': 'AA=='}]}]]}
>>> decoded(_)
{'page': 3, 'seen': (1.5, b'\\x00')}
>>> encoded({"at": [object()]})
Traceback (most recent call last):
TypeError: state['at'][0] is of type object
"""

from __future__ import annotations

import base64
from datetime import date, datetime, timedelta, timezone
from typing import Any, Final

from tidegauge.remap.fromtime.encoding import JsonValue

__all__ = ["decoded", "encoded"]

_LEAST, _MOST = -(2**63), 2**63 - 1
_DEEPEST: Final = 12
"""Levels of a state. Each becomes up to two of JSON, and a binding keeps 32."""


def encoded(state: Any) -> JsonValue:
    """Return the JSON of a state. Raises `TypeError`, which says where a value is of another type, or too deep."""
    return _encoded(state, "state", _DEEPEST)


def _encoded(value: Any, where: str, left: int) -> JsonValue:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if _LEAST <= value <= _MOST else {"int": hex(value)}
    if kind is float:
        return {"float": value.hex()}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if kind is datetime:
        return {"datetime": _instant(value, where)}
    if kind is date:
        return {"date": value.isoformat()}
    if kind is timedelta:
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    if kind not in (list, tuple, dict):
        raise TypeError(f"{where} is of type {kind.__name__}")
    if not left:
        raise TypeError(f"{where[:80]} is deeper than {_DEEPEST} levels")
    if kind is dict:
        pairs = [
            [_encoded(key, f"a key of {where}", left - 1), _encoded(one, f"{where}[{key!r:.40}]", left - 1)]
            for key, one in value.items()
        ]
        return {"dict": pairs}
    items = [_encoded(one, f"{where}[{i}]", left - 1) for i, one in enumerate(value)]
    return items if kind is list else {"tuple": items}


def _instant(value: datetime, where: str) -> str:
    """Return the text of a time without a zone, or with a fixed offset: a zone of a region would lose its rules."""
    if value.tzinfo is not None and type(value.tzinfo) is not timezone:
        raise TypeError(f"{where} has a time zone of type {type(value.tzinfo).__name__}")
    if value.fold:
        raise TypeError(f"{where} is the second of two times of one clock")
    text = value.isoformat()
    if datetime.fromisoformat(text).utcoffset() != value.utcoffset():  # Python reads such a one as none
        raise TypeError(f"{where} has an offset of less than a second")
    return text


def decoded(value: JsonValue) -> Any:
    """Return the state of its JSON. Raises `ValueError` for what `encoded` does not make."""
    match value:
        case None | bool() | str() | int():
            return value
        case list():
            return [decoded(one) for one in value]
        case {"int": str(digits)} if len(value) == 1:
            return int(digits, 16)
        case {"float": str(digits)} if len(value) == 1:
            return float.fromhex(digits)
        case {"bytes": str(text)} if len(value) == 1:
            return base64.b64decode(text, validate=True)
        case {"datetime": str(text)} if len(value) == 1:
            return datetime.fromisoformat(text)
        case {"date": str(text)} if len(value) == 1:
            return date.fromisoformat(text)
        case {"timedelta": [int(days), int(seconds), int(micros)]} if len(value) == 1:
            return timedelta(days, seconds, micros)
        case {"tuple": list(items)} if len(value) == 1:
            return tuple(decoded(one) for one in items)
        case {"dict": list(pairs)} if len(value) == 1:
            return {decoded(key): decoded(one) for key, one in pairs}
    raise ValueError("it is no state of a function")
