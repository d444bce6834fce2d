"""Functions of texts.

Invariant: texts are valid UTF-8 in the order of their bytes, and their characters are code points, in Spark as in
Arrow. Cases are those of Unicode 17, also where they change how many characters there are. Where Spark's pattern
matching may see the halves of a character beyond U+FFFF nothing is understood.

>>> from tidegauge.engine.plain.expressions import Column
>>> user = Column("user", pa.string())
>>> made = SIGNATURES["SUBSTRING"](user, Literal(-3, pa.int32()), Literal(2, pa.int32()))
>>> KERNELS[made.function].values([pa.array(["tide", "at"])] + [pa.scalar(n) for n in (-3, 2)], made.kind).to_pylist()
['id', 'a']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.engine.plain.expressions import Call, Expression, Literal, NotUnderstood, call, constant
from tidegauge.engine.plain.kernels import Arrays, Kernel, pc

__all__ = ["KERNELS", "SIGNATURES", "like"]

_LONGEST: Final = (1 << 31) - 1
_RUNS: Final = (
    (0x1C89, 0x1C89, 1),
    (0xA7CB, 0xA7CB, -42343),
    (0xA7CC, 0xA7CC, 1),
    (0xA7CE, 0xA7CE, 1),
    (0xA7D2, 0xA7D2, 1),
    (0xA7D4, 0xA7D4, 1),
    (0xA7DA, 0xA7DA, 1),
    (0xA7DC, 0xA7DC, -42561),
    (0x10D50, 0x10D65, 32),
    (0x16EA0, 0x16EB8, 27),
)
_NEWER: Final = tuple((upper, upper + further) for first, last, further in _RUNS for upper in range(first, last + 1))
"""Letters of Unicode 16 and 17, which Spark knows and Python may not: upper and lower case."""


def _sliced(arrays: Arrays, _kind: pa.DataType) -> Any:
    """Return characters from a place counted from 1, or from the end; 0 is as 1."""
    known, first, count = arrays[0], arrays[1].as_py(), arrays[2].as_py()
    start = first - 1 if first > 0 else first
    stop = start + max(count, 0)
    if start < 0 <= stop:
        return pc.utf8_slice_codeunits(known, start=start)
    return pc.utf8_slice_codeunits(known, start=start, stop=stop)


def _joined(arrays: Arrays, _kind: pa.DataType) -> Any:
    return pc.binary_join_element_wise(*arrays, "", null_handling="emit_null")


def _listed(arrays: Arrays, _kind: pa.DataType) -> Any:
    """Return the texts that are not null with the first argument between them."""
    between, *values = arrays
    made = reduce(
        lambda one, other: pc.coalesce(pc.binary_join_element_wise(one, other, between), one, other), values
    )
    return pc.fill_null(made, "")


def _cased(in_ascii: Callable[[Any], Any], in_full: Callable[[str], str], newer: Mapping[int, int]) -> Kernel:
    """Return a change of case: where all characters are ASCII, and where they are not."""

    def values(arrays: Arrays, _kind: pa.DataType) -> Any:
        known = arrays[0]
        if pc.all(pc.string_is_ascii(known)).as_py() is not False:
            return in_ascii(known)
        changed = [None if text is None else in_full(text.translate(newer)) for text in known.to_pylist()]
        return pa.array(changed, pa.string())

    return Kernel(values)


def _replaced(arrays: Arrays, _kind: pa.DataType) -> Any:
    known, old, new = arrays
    return pc.replace_substring(known, pattern=old.as_py(), replacement=new.as_py())


def _by_pattern(find: Callable[[Any, str], Any]) -> Kernel:
    return Kernel(lambda arrays, _kind: find(arrays[0], arrays[1].as_py()))


KERNELS: Final = {
    "begins": _by_pattern(pc.starts_with),
    "ends": _by_pattern(pc.ends_with),
    "holds": _by_pattern(pc.match_substring),
    "like": _by_pattern(pc.match_like),
    "slice": Kernel(_sliced),
    "join": Kernel(_joined, order="all"),
    "list": Kernel(_listed, order="all"),
    "replace": Kernel(_replaced),
    "upper": _cased(pc.ascii_upper, str.upper, {lower: upper for upper, lower in _NEWER}),
    "lower": _cased(pc.ascii_lower, str.lower, dict(_NEWER)),
    "length": Kernel(lambda arrays, _kind: pc.utf8_length(arrays[0])),
    "trim": Kernel(lambda arrays, _kind: pc.utf8_trim(arrays[0], characters=" ")),
    "trim left": Kernel(lambda arrays, _kind: pc.utf8_ltrim(arrays[0], characters=" ")),
    "trim right": Kernel(lambda arrays, _kind: pc.utf8_rtrim(arrays[0], characters=" ")),
}


def like(one: Expression, pattern: str) -> Expression:
    """Return a match with a pattern of `%` and `_`."""
    _need_texts(one)
    if any(char > "\uffff" for char in pattern):
        raise NotUnderstood
    wanted = Literal(pattern, pa.string())
    prefix = pattern.removesuffix("%")
    if "%" in prefix or "_" in prefix:
        return call("like", one, wanted, kind=pa.bool_())
    if prefix == pattern:
        return call("equal", one, wanted, kind=pa.bool_())
    return call("begins", one, Literal(prefix, pa.string()), kind=pa.bool_())


def _need_texts(*values: Expression) -> None:
    if not all(pt.is_string(value.kind) for value in values):
        raise NotUnderstood


def _literal_text(value: Expression) -> str:
    if not isinstance(value, Literal) or not isinstance(value.value, str):
        raise NotUnderstood
    return value.value


def _literal_number(value: Expression) -> None:
    if not isinstance(value, Literal) or not pt.is_int32(value.kind):
        raise NotUnderstood


def _of_one(function: str, kind: pa.DataType) -> Callable[..., Expression]:
    def made(value: Expression) -> Expression:
        _need_texts(value)
        return call(function, value, kind=kind)

    return made


def _case(function: str) -> Callable[..., Expression]:
    """Return a change of case. Of one within another Spark does the outer one alone."""

    def made(value: Expression) -> Expression:
        _need_texts(value)
        if isinstance(value, Call) and value.function in {"upper", "lower"}:
            raise NotUnderstood
        return call(function, value, kind=pa.string())

    return made


def _searched(function: str) -> Callable[..., Expression]:
    def made(value: Expression, wanted: Expression) -> Expression:
        _need_texts(value)
        _literal_text(wanted)
        return call(function, value, wanted, kind=pa.bool_())

    return made


def _substring(value: Expression, first: Expression, count: Expression | None = None) -> Expression:
    length = Literal(_LONGEST, pa.int32()) if count is None else count
    _need_texts(value)
    _literal_number(first)
    _literal_number(length)
    return call("slice", value, first, length, kind=pa.string())


def _concat(*values: Expression) -> Expression:
    _need_texts(*values)
    return call("join", *values, kind=pa.string())


def _pair(left: Expression, right: Expression) -> Expression:
    return _concat(left, right)


def _concat_ws(between: Expression, *values: Expression) -> Expression:
    _literal_text(between)
    _need_texts(*values)
    if not values:
        raise NotUnderstood
    return call("list", between, *values, kind=pa.string())


def _replace(value: Expression, old: Expression, new: Expression) -> Expression:
    _need_texts(value)
    _literal_text(new)
    if not _literal_text(old) or constant(value):
        raise NotUnderstood
    return call("replace", value, old, new, kind=pa.string())


SIGNATURES: Final[Mapping[str, Callable[..., Expression]]] = MappingProxyType(
    {
        **dict.fromkeys(("LENGTH", "CHAR_LENGTH", "CHARACTER_LENGTH"), _of_one("length", pa.int32())),
        **dict.fromkeys(("UPPER", "UCASE"), _case("upper")),
        **dict.fromkeys(("LOWER", "LCASE"), _case("lower")),
        "TRIM": _of_one("trim", pa.string()),
        "LTRIM": _of_one("trim left", pa.string()),
        "RTRIM": _of_one("trim right", pa.string()),
        "STARTSWITH": _searched("begins"),
        "ENDSWITH": _searched("ends"),
        "CONTAINS": _searched("holds"),
        **dict.fromkeys(("SUBSTRING", "SUBSTR"), _substring),
        "CONCAT": _concat,
        "||": _pair,
        "CONCAT_WS": _concat_ws,
        "REPLACE": _replace,
    }
)
