"""Casts, and `try_cast`, which gives null where a cast raises.

Invariant: what a text means as a number, a truth or a date is for Spark to say. Texts of another form than the usual
one go through `_integer`, `_date` and the like one by one.

>>> KERNELS["to integer"].values([pa.array([" +12 ", "0x1", "128"])], pa.int8()).to_pylist()
[12, None, None]
>>> _date("2026-1-5T07:00"), _date("26-1-5")
(20458, None)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.engine.plain.days import INSTANT
from tidegauge.engine.plain.expressions import Expression, Literal, NotUnderstood, call
from tidegauge.engine.plain.kernels import Arrays, Kernel, pc

__all__ = ["KERNELS", "cast"]

_TYPES: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(("TINYINT", "BYTE"), pa.int8()),
    **dict.fromkeys(("SMALLINT", "SHORT"), pa.int16()),
    **dict.fromkeys(("INT", "INTEGER"), pa.int32()),
    **dict.fromkeys(("BIGINT", "LONG"), pa.int64()),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
    "DATE": pa.date32(),
}
_NAMES: Final = {kind: name for name, kind in reversed(_TYPES.items())}
"""The first name of each type."""
_BLANK: Final = "".join(map(chr, (*range(0x21), 0x7F)))
"""What Spark takes off both ends of a text: blanks and control characters of ASCII."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_DATE: Final = re.compile(r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TRUTHS: Final = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
_DAYS_IN_400: Final = 146_097
_EPOCH: Final = date(1970, 1, 1).toordinal()


def _most(kind: pa.DataType) -> int:
    return int(1 << (kind.bit_width - 1))


def _integer(text: str, kind: pa.DataType) -> int | None:
    found = text.strip(_BLANK)
    if _WHOLE.fullmatch(found) is None:
        return None
    digits = found.lstrip("+-").lstrip("0")
    value = int(digits or "0") * (-1 if found[0] == "-" else 1) if len(digits) < 20 else _most(kind)
    return value if -_most(kind) <= value < _most(kind) else None


def _truth(text: str) -> bool | None:
    found = text.strip(_BLANK)
    return _TRUTHS.get(found.lower()) if found.isascii() else None


def _date(text: str) -> int | None:
    """Return days since 1970 of a year, and perhaps a month, a day and anything after these."""
    found = _DATE.fullmatch(text.strip(_BLANK))
    if found is None:
        return None
    year = int(found[1])
    month, day = (int(part or "1") for part in found.groups()[1:])
    try:
        within = date(year % 400 + 400, month, day).toordinal()
    except ValueError:
        return None
    days = within + (year // 400 - 1) * _DAYS_IN_400 - _EPOCH
    return days if -(1 << 31) <= days < 1 << 31 else None


def _of_texts(read: Callable[[str, pa.DataType], Any]) -> Callable[[Arrays, pa.DataType], Any]:
    def values(arrays: Arrays, kind: pa.DataType) -> Any:
        known = arrays[0].dictionary_encode()
        if isinstance(known, pa.ChunkedArray):
            known = known.combine_chunks()
        made = pa.array([read(text, kind) for text in known.dictionary.to_pylist()], kind)
        return made.take(known.indices)

    return values


def _integers(arrays: Arrays, kind: pa.DataType) -> Any:
    """Return texts as integers: by Arrow where each is a few digits, which fit, as nearly all texts are."""
    texts, most = arrays[0], len(str(_most(kind))) - 1
    digits = pc.and_(pc.less_equal(pc.binary_length(texts), most), pc.ascii_is_decimal(texts))  # the quicker question
    if _all(digits) or _all(pc.match_substring_regex(texts, f"^-?[0-9]{{1,{most}}}$")):
        return texts.cast(kind)
    return _of_texts(_integer)(arrays, kind)


def _all(found: Any) -> bool:
    return pc.all(found).as_py() is not False


def _narrow(arrays: Arrays, kind: pa.DataType) -> Any:
    """Return integers in a narrower type, null where they do not fit."""
    known = arrays[0]
    low, high = pa.scalar(-_most(kind), known.type), pa.scalar(_most(kind) - 1, known.type)
    fits = pc.and_(pc.greater_equal(known, low), pc.less_equal(known, high))
    return pc.if_else(fits, known, pa.scalar(None, known.type)).cast(kind)


def _truncated(arrays: Arrays, kind: pa.DataType) -> Any:
    """Return doubles without their fraction, null where they do not fit.

    The largest integer of 64 bits is no double: Java compares with the next one, and then gives the largest.
    """
    known = arrays[0]
    low, high = (pa.scalar(float(most), pa.float64()) for most in (-_most(kind), _most(kind) - 1))
    fits = pc.and_(pc.less_equal(pc.floor(known), high), pc.greater_equal(pc.ceil(known), low))
    whole = pc.trunc(pc.if_else(fits, known, pa.scalar(None, pa.float64())))
    if kind != pa.int64():
        return whole.cast(kind)
    over = pc.equal(whole, high)
    return pc.if_else(over, pa.scalar(_most(kind) - 1, kind), pc.if_else(over, 0.0, whole).cast(kind))


def _lost(arrays: Arrays, made: Any) -> Any:
    return pc.and_(pc.is_null(made), pc.is_valid(arrays[0]))


def _malformed(given: Sequence[Any], kind: pa.DataType) -> str:
    return (
        f'[CAST_INVALID_INPUT] The value \'{given[0]}\' of the type "STRING" cannot be cast to "{_NAMES[kind]}" '
        "because it is malformed. Correct the value as per the syntax, or change its target type. Use `try_cast` to "
        "tolerate malformed input and return NULL instead."
    )


def _overflow(given: Sequence[Any], kind: pa.DataType) -> str:
    return (
        f'[CAST_OVERFLOW] The value {given[0]} cannot be cast to "{_NAMES[kind]}" due to an overflow. Use `try_cast` '
        "to tolerate overflow and return NULL instead."
    )


def _not_zero(arrays: Arrays, _kind: pa.DataType) -> Any:
    return pc.not_equal(arrays[0], pa.scalar(0, arrays[0].type))


_RISKY: Final = {
    "to integer": Kernel(_integers, _lost, _malformed),
    "to truth": Kernel(_of_texts(lambda text, _kind: _truth(text)), _lost, _malformed),
    "to date": Kernel(_of_texts(lambda text, _kind: _date(text)), _lost, _malformed),
    "narrow": Kernel(_narrow, _lost, _overflow),
    "truncate": Kernel(_truncated, _lost, _overflow),
}
KERNELS: Final = {
    **_RISKY,
    **{f"try {name}": Kernel(kernel.values) for name, kernel in _RISKY.items()},
    "not zero": Kernel(_not_zero),
    "convert": Kernel(lambda arrays, kind: arrays[0].cast(kind)),
}


def cast(value: Expression, name: str, *, trying: bool) -> Expression:
    """Return the cast of a value to a type that is named in capitals."""
    kind = _TYPES.get(name)
    if kind is None or isinstance(value, Literal):
        raise NotUnderstood
    if value.kind.equals(kind):
        return value
    function = _function(value.kind, kind)
    return call(f"try {function}" if trying and function in _RISKY else function, value, kind=kind)


def _function(given: Any, kind: Any) -> str:
    """Return the kernel of a cast between two types. Of a double Spark writes another text than Arrow."""
    whole, wanted = pt.is_signed_integer(given), pt.is_signed_integer(kind)
    if whole and wanted:
        return "widen" if kind.bit_width > given.bit_width else "narrow"
    if whole and pt.is_float64(kind):
        return "widen"
    if pt.is_float64(given) and kind in {pa.int32(), pa.int64()}:
        return "truncate"
    if (whole or pt.is_float64(given)) and pt.is_boolean(kind):
        return "not zero"
    if pt.is_boolean(given) and (wanted or pt.is_float64(kind)):
        return "convert"
    if (whole or pt.is_boolean(given)) and pt.is_string(kind):
        return "convert"
    if pt.is_string(given) and wanted:
        return "to integer"
    if pt.is_string(given) and pt.is_boolean(kind):
        return "to truth"
    if pt.is_string(given) and pt.is_date32(kind):
        return "to date"
    if given.equals(INSTANT) and pt.is_date32(kind):
        return "day of instant"
    raise NotUnderstood
