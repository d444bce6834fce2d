"""JSON as MySQL stores it, and has it in its log: from its bytes to the text that the server writes of it.

    document    type u8, value
    array       count, size, (type u8, a small value or the offset of one)*, values
    object      the same, with (offset of a name, its length u16)* before it, and names before the values

In small ones counts, sizes and offsets have 2 bytes, in large ones 4. Offsets are from where the count is.

Invariant: the text is the one that `SELECT` gives, to the last digit, or `ValueError` is raised.

>>> text_of(bytes.fromhex("00 01000c00 0b000100 051e00 61"))
'{"a": 30}'
>>> [number(one) for one in (1.0, 1e15, 1234567890123456.8, 1.25e-15, 1e-16, -0.0)]
['1.0', '1e15', '1234567890123456.8', '0.00000000000000125', '1e-16', '-0.0']
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from tidegauge.sources.mysql.types import DIGITS

__all__ = ["number", "text_of"]

_OBJECTS, _ARRAYS, _LITERAL, _DOUBLE, _TEXT, _OPAQUE = (0, 1), (2, 3), 4, 11, 12, 15
_LARGE: Final = frozenset({1, 3})
_LITERALS: Final = ("null", "true", "false")
_INTEGERS: Final = {5: ("<h", 2), 6: ("<H", 2), 7: ("<i", 4), 8: ("<I", 4), 9: ("<q", 8), 10: ("<Q", 8)}
_DATE, _DECIMAL = 10, 246
_TIMES: Final = frozenset({7, _DATE, 12})
_TIME: Final = 11
_FIXED: Final = 15
"""The largest exponent without `e`, for numbers that have no more digits."""


def text_of(data: bytes) -> str:
    """Return the text of a document. Raises `ValueError`."""
    if not data:  # so the server reads it, too
        return "null"
    try:
        return _value(data, data[0], 1)
    except (IndexError, struct.error) as error:
        raise ValueError(f"the document is cut off ({error})") from None


def _value(data: bytes, kind: int, at: int) -> str:
    if kind in _OBJECTS:
        names = _names(data, kind, at)
        return (
            "{"
            + ", ".join(f"{_quoted(name)}: {one}" for name, one in zip(names, _items(data, kind, at), strict=True))
            + "}"
        )
    if kind in _ARRAYS:
        return "[" + ", ".join(_items(data, kind, at)) + "]"
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _INTEGERS:
        return str(struct.unpack_from(_INTEGERS[kind][0], data, at)[0])
    if kind == _DOUBLE:
        return number(struct.unpack_from("<d", data, at)[0])
    if kind == _TEXT:
        return _quoted(_part(data, at).decode())
    if kind == _OPAQUE:
        return _opaque(data[at], _part(data, at + 1))
    raise ValueError(f"a document has a value of the kind {kind}")


def _width(kind: int) -> int:
    return 4 if kind in _LARGE else 2


def _number(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise IndexError("number")
    return int.from_bytes(data[at : at + size], "little")


def _names(data: bytes, kind: int, at: int) -> Iterator[str]:
    width = _width(kind)
    for place in range(_number(data, at, width)):
        entry = at + 2 * width + place * (width + 2)
        first, size = at + _number(data, entry, width), _number(data, entry + width, 2)
        if first + size > len(data):
            raise IndexError("name")
        yield data[first : first + size].decode()


def _items(data: bytes, kind: int, at: int) -> Iterator[str]:
    width = _width(kind)
    count = _number(data, at, width)
    first = at + 2 * width + (count * (width + 2) if kind in _OBJECTS else 0)
    for entry in range(first, first + count * (1 + width), 1 + width):
        of = data[entry]
        inside = of == _LITERAL or (of in _INTEGERS and _INTEGERS[of][1] <= width)
        yield _value(data, of, entry + 1 if inside else at + _number(data, entry + 1, width))


def _part(data: bytes, at: int) -> bytes:
    """Return bytes behind their length, seven bits of it in a byte."""
    size = shift = 0
    while True:
        size |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            break
    if at + size > len(data):
        raise IndexError("text")
    return data[at : at + size]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _opaque(kind: int, data: bytes) -> str:
    """Return a value of one of the server's other types."""
    if kind == _DECIMAL:
        return _decimal(data[0], data[1], data[2:])
    if kind in _TIMES or kind == _TIME:
        return f'"{_moment(kind, struct.unpack("<q", data)[0])}"'
    lines = base64.encodebytes(data).decode().removesuffix("\n")
    return _quoted(f"base64:type{kind}:{lines}")


def _moment(kind: int, packed: int) -> str:
    sign, packed = "-" if packed < 0 else "", abs(packed)
    micros, whole = packed & 0xFFFFFF, packed >> 24
    clock = f"{whole >> 12 & 0x3FF:02d}" if kind == _TIME else f"{whole >> 12 & 31:02d}"
    time = f"{clock}:{whole >> 6 & 63:02d}:{whole & 63:02d}.{micros:06d}"
    if kind == _TIME:
        return sign + time
    days = whole >> 17
    months = days >> 5
    date = f"{months // 13:04d}-{months % 13:02d}-{days & 31:02d}"
    return date if kind == _DATE else f"{date} {time}"


def _decimal(precision: int, scale: int, data: bytes) -> str:
    """Return a decimal: groups of nine digits in four bytes; the first bit is set where it is not negative."""
    positive = data[0] >= 0x80
    plain = bytes(one ^ (0 if positive else 0xFF) for one in bytes([data[0] ^ 0x80]) + data[1:])
    whole = precision - scale
    found, at = "", 0
    for digits in (whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9):
        size = DIGITS[digits]
        found += f"{int.from_bytes(plain[at : at + size], 'big'):0{digits}d}" if digits else ""
        at += size
    shown = found[:whole].lstrip("0") or "0"
    return ("" if positive else "-") + shown + (f".{found[whole:]}" if scale else "")


def number(value: float) -> str:
    """Return the server's own text of a double."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - JSON has no others
    shown, point = "".join(map(str, digits)), len(digits) + exponent
    minus = "-" if sign else ""
    if value == 0:
        return f"{minus}0.0"
    if (point > _FIXED and point >= len(shown)) or point < 1 - _FIXED:
        rest = f".{shown[1:]}" if shown[1:] else ""
        return f"{minus}{shown[0]}{rest}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{shown}"
    return f"{minus}{shown[:point].ljust(point, '0')}.{shown[point:] or '0'}"
