r"""What a reader of text gives becomes what the schema says; a value that does not makes a bad row, no crash.

Definition: for a column type `t` the reader is asked for the *wire type* of `t`: strings where it cannot make a `t`
itself. `converted` goes the second half of the way. It is total: it returns an array of the type and the set of rows
with some value, at any depth, that has no meaning as that type.

Invariant: whether a row is bad depends on its own values, not on its neighbours.

>>> array, bad = converted(pa.array(["2020-02-29", "2021-02-29", None]), pa.date32())
>>> array.to_pylist(), bad.tolist()
([datetime.date(2020, 2, 29), None, None], [False, True, False])

Some texts must be found before Arrow reads them as decimals: it would look behind the end of its powers of ten. A
decimal has at most 38 digits after its point. A text is *beyond* iff it writes more of them, in full or by its
exponent. Arrow brings what it has read to the column's scale by one of 39 powers of ten and does not check which:
`1e-999999999` ends the process. No text that is beyond reaches Arrow's reader of decimals: it is a bad value.

>>> [text for text in ("1.50", "15e-1", "1e-39", "0." + "0" * 39, "1e-999999999", "e-x") if beyond(text)]
['1e-39', '0.000000000000000000000000000000000000000', '1e-999999999']
>>> columns = pa.schema([("at", pa.struct([("x", pa.decimal128(10, 2))]))])
>>> beyond_in_json(b'{"y": 1e-50, "at": {"x": 1e-9, "x": 1e-99}}', columns), beyond_in_json(b'{"y": 1e-50}', columns)
('at.x', '')
"""

from __future__ import annotations

import binascii
import json
import re
import sys
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from tidegauge.lazy import library
from tidegauge.sources.formats.gather import Refused, in_pieces
from tidegauge.sources.formats.records import Mask

__all__ = [
    "Leaf",
    "beyond",
    "beyond_each",
    "beyond_in_json",
    "cast_each",
    "contains",
    "converted",
    "from_base64",
    "from_text",
    "may_overflow",
    "overflows",
    "suspects",
]

pc: Final = library("pyarrow.compute")

Leaf: TypeAlias = Callable[[Any, Any], tuple[Any, Mask]]
"""How a string array becomes an array of a type that is not nested, and which of its values do not."""

_ZONE: Final = r"([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$"
_DATE_LENGTH: Final = 10


def converted(array: Any, target: Any, leaf: Leaf | None = None) -> tuple[Any, Mask]:
    """Return `array` as the type `target`, and which of its rows hold a value that cannot be one.

    Strings become anything by `leaf` (by default `from_text`); lists, structs (their members by name, a
    missing one is null), maps and lists of key and value (the wire type of a map, whose keys are strings) are
    converted inside. Nulls stay nulls, and bad values become nulls.
    """
    if array.type == target:
        return array, np.zeros(len(array), np.bool_)
    if pa.types.is_struct(target):
        return _struct(array, target, leaf)
    if pa.types.is_list(target):
        values, bad = converted(array.flatten(), target.value_type, leaf)
        offsets = _offsets(array)
        return (
            pa.ListArray.from_arrays(offsets, values, type=target, mask=array.is_null()),
            _of_parents(bad, offsets),
        )
    if pa.types.is_map(target):
        return _map(array, target, leaf)
    return (leaf or from_text)(array, target)


def from_text(array: Any, target: Any) -> tuple[Any, Mask]:
    """Convert strings: numbers, ISO 8601 dates and timestamps, with blanks around them or not; bytes unchanged.

    A timestamp without a zone is in UTC; digits beyond the unit are cut off. One without a zone is what a type
    without a zone keeps; with a zone, it is brought to UTC first.
    """
    if not pa.types.is_string(array.type) or pa.types.is_binary(target):
        # Two Arrow types of one meaning: text and bytes, a timestamp in UTC and one without a zone.
        return array.cast(target), np.zeros(len(array), np.bool_)
    text = pc.utf8_trim(array, " \t")
    if pa.types.is_timestamp(target):
        zoned = pa.timestamp(target.unit, "UTC")
        values, bad = cast_each(_in_utc(text, target.unit), zoned)
        return values.cast(target), bad
    if pa.types.is_decimal(target) and (beyond := beyond_each(text)).any():
        values, bad = cast_each(pc.if_else(pa.array(beyond), None, text), target)
        return values, bad | beyond
    return cast_each(text, target)


def from_base64(array: Any, target: Any) -> tuple[Any, Mask]:
    """Convert strings like `from_text`, but to bytes from base64, as Spark does for JSON."""
    if not pa.types.is_binary(target):
        return from_text(array, target)
    bad = np.zeros(len(array), np.bool_)
    values: list[bytes | None] = []
    for i, text in enumerate(array.to_pylist()):
        try:
            values.append(None if text is None else binascii.a2b_base64(text, strict_mode=True))
        except ValueError:
            values.append(None)
            bad[i] = True
    return pa.array(values, target), bad


def contains(of: Any, wanted: Callable[[Any], bool]) -> bool:
    """Whether a type is such a one, or has one inside: in a struct, in a list, or among the items of a map.

    >>> places = pa.list_(pa.struct([("at", pa.map_(pa.string(), pa.decimal128(9, 2)))]))
    >>> contains(places, pa.types.is_decimal), contains(places, pa.types.is_map), contains(places, pa.types.is_date)
    (True, True, False)
    """
    if wanted(of):
        return True
    if pa.types.is_struct(of):
        return any(contains(inner.type, wanted) for inner in of)
    if pa.types.is_map(of):
        return contains(of.item_type, wanted)
    return bool(pa.types.is_list(of)) and contains(of.value_type, wanted)


def may_overflow(of: Any) -> bool:
    """Whether a type is one that `overflows` looks at."""
    return bool(pa.types.is_floating(of) or pa.types.is_decimal(of))


def overflows(array: Any, *, infinite: bool) -> Mask:
    """Return which rows hold, at any depth, a number that has no place in its type.

    That is a decimal with more digits than the type has, or, for `infinite`, a floating number that is infinite.
    """
    of = array.type
    found = np.zeros(len(array), np.bool_)
    if not contains(of, may_overflow):
        return found
    if pa.types.is_struct(of):
        for inner in array.flatten():
            found |= overflows(inner, infinite=infinite)
        return found
    if pa.types.is_map(of):
        return _of_parents(overflows(array.items, infinite=infinite), array.offsets)
    if pa.types.is_list(of):
        return _of_parents(overflows(array.flatten(), infinite=infinite), _offsets(array))
    if pa.types.is_floating(of) != infinite:
        return found
    most = sys.float_info.max if infinite else Decimal((0, (9,) * of.precision, -of.scale))
    ends = pc.min_max(array)
    least, largest = ends["min"].as_py(), ends["max"].as_py()
    if largest is None or -most <= least <= largest <= most:
        return found
    beyond = pc.is_inf(array) if infinite else pc.greater(pc.abs(array), pa.scalar(most, of))
    return np.asarray(pc.fill_null(beyond, fill_value=False).to_numpy(zero_copy_only=False))


def _in_utc(text: Any, unit: str) -> Any:
    """Write timestamps so that Arrow reads them: with a zone, a time, and no more digits than the unit has."""
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    kept = rf"(\.[0-9]{{{digits}}})[0-9]+" if digits else r"(\.)[0-9]+"
    text = pc.replace_substring_regex(text, kept, r"\1" if digits else "")
    date_only = pc.equal(pc.utf8_length(text), _DATE_LENGTH)
    text = pc.if_else(date_only, pc.binary_join_element_wise(text, "T00:00:00Z", ""), text)
    time = pc.utf8_slice_codeunits(text, _DATE_LENGTH, None)
    return pc.if_else(pc.match_substring_regex(time, _ZONE), text, pc.binary_join_element_wise(text, "Z", ""))


def cast_each(array: Any, target: Any) -> tuple[Any, Mask]:
    """Cast, and where that fails, find the values that cannot be cast."""
    bad = np.zeros(len(array), np.bool_)
    pieces: list[Any] = []

    def cast(i: int, j: int) -> None:
        try:
            pieces.append(array.slice(i, j - i).cast(target))
        except pa.ArrowInvalid as error:
            raise Refused("") from error

    def refuse(i: int, _refusal: Refused) -> None:
        bad[i] = True
        pieces.append(pa.nulls(1, target))

    in_pieces(len(array), cast, refuse)
    return pa.concat_arrays(pieces) if len(pieces) > 1 else pieces[0] if pieces else array.cast(target), bad


def _struct(array: Any, target: Any, leaf: Leaf | None) -> tuple[Any, Mask]:
    bad = np.zeros(len(array), np.bool_)
    children = []
    for field in target:
        i = array.type.get_field_index(field.name)
        inner = array.field(i) if i >= 0 else pa.nulls(len(array), field.type)
        child, wrong = converted(inner, field.type, leaf)
        children.append(child)
        bad |= wrong
    return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null()), bad


def _map(array: Any, target: Any, leaf: Leaf | None) -> tuple[Any, Mask]:
    keys, values, offsets = _entries(array)
    items, bad = converted(values, target.item_type, leaf)
    maps = pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=array.is_null())
    return maps, _of_parents(bad, offsets)


def _entries(array: Any) -> tuple[Any, Any, Any]:
    """Return the keys and values of maps, or of lists of key and value, and where each of them begins."""
    if not pa.types.is_map(array.type):
        entries = array.flatten()
        return entries.field(0), entries.field(1), _offsets(array)
    offsets = array.offsets.to_numpy()
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    return array.keys.slice(first, count), array.items.slice(first, count), pa.array(offsets - first, pa.int32())


def _offsets(array: Any) -> Any:
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate((np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32))), pa.int32())


def _of_parents(bad: Mask, offsets: Any) -> Mask:
    """Return which lists hold a bad value."""
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(bad)))[offsets.to_numpy()]
    return np.asarray(before[1:] > before[:-1])


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
