r"""Texts that no decimal holds, found before Arrow reads them: it would look behind the end of its powers of ten.

A decimal has at most 38 digits after its point. Definition: a text is *beyond* iff it writes more of them, in full or
by its exponent. Arrow brings what it has read to the column's scale by one of 39 powers of ten and does not check
which: `1e-999999999` ends the process.

Invariant: no text that is beyond reaches Arrow's reader of decimals. It is a bad value, whatever its value is.

>>> [text for text in ("1.50", "15e-1", "1e-39", "0." + "0" * 39, "1e-999999999", "e-x") if beyond(text)]
['1e-39', '0.000000000000000000000000000000000000000', '1e-999999999']
>>> columns = pa.schema([("at", pa.struct([("x", pa.decimal128(10, 2))]))])
>>> beyond_in_json(b'{"y": 1e-50, "at": {"x": 1e-9, "x": 1e-99}}', columns), beyond_in_json(b'{"y": 1e-50}', columns)
('at.x', '')
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.lazy import library
from tidegauge.sources.formats.records import Mask

__all__ = ["beyond", "beyond_each", "beyond_in_json", "suspects"]

pc: Final = library("pyarrow.compute")

PLACES: Final = 38
_EXPONENTS: Final = (re.compile(rb"e-[0-9]{2}"), re.compile(rb"E-[0-9]{2}"))
"""Apart, because what begins with fixed characters is looked for without a step for each one."""
_ESCAPED: Final = re.compile(rb"\\u00(?:[46]5|2[dD]|3[0-9])")


def beyond(text: str) -> bool:
    """Whether a text writes more digits after the point than any decimal has."""
    digits, _, exponent = text.lower().partition("e")
    places = len(digits.partition(".")[2])
    if exponent.startswith("-"):
        shift = exponent[1:].lstrip("0")
        places += PLACES + 1 if len(shift) > 2 and shift.isdigit() else int(shift) if shift.isdigit() else 0
    return places > PLACES


def beyond_each(array: Any) -> Mask:
    """Return which strings are beyond."""
    found = np.zeros(len(array), np.bool_)
    suspect = pc.fill_null(pc.match_substring_regex(array, r"[eE]-|\.[0-9]{39}"), fill_value=False)
    for i in np.flatnonzero(suspect.to_numpy(zero_copy_only=False)).tolist():
        found[i] = beyond(array[i].as_py())
    return found


def suspects(data: bytes, begin: int, end: int) -> list[int]:
    """Return where, in `[begin, end)` of some JSON, there may be an exponent that is beyond, escaped or not.

    Arrow counts the digits of a number of JSON that has no exponent before it does anything with it.
    """
    places = [found.start() for found in _ESCAPED.finditer(data, begin, end)]
    for exponent in _EXPONENTS:
        found = (each.start() for each in exponent.finditer(data, begin, end))
        places += [i for i in found if i and data[i - 1] in b"0123456789."]
    return places


def beyond_in_json(line: bytes, columns: pa.Schema) -> str:
    """Return the path of a decimal column whose value on a line is beyond, or nothing.

    Raises `ValueError` when the line is no JSON, or is nested too deeply.
    """
    try:
        return _found(json.loads(line, parse_float=str, parse_int=str, object_pairs_hook=_Pairs), columns, "")
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, those with equal names all of them."""


def _found(value: Any, fields: Iterable[Any], path: str) -> str:
    types = {field.name: field.type for field in fields}
    for name, inner in value if isinstance(value, _Pairs) else ():
        if name in types and (found := _inside(inner, types[name], f"{path}{name}")):
            return found
    return ""


def _inside(value: Any, of: Any, path: str) -> str:
    if pa.types.is_decimal(of):
        return path if isinstance(value, str) and beyond(value) else ""
    if pa.types.is_list(of) and isinstance(value, list) and not isinstance(value, _Pairs):
        return next(filter(None, (_inside(item, of.value_type, path) for item in value)), "")
    return _found(value, of, f"{path}.") if pa.types.is_struct(of) else ""
