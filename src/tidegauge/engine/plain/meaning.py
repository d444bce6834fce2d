"""What a text means over the columns of a schema: an expression whose every node has Spark's type.

Invariant: a meaning is right for the columns that are there and no others. A column is named exactly. Values that are
the same on each row are understood as literals alone: of more than that Spark may know the value beforehand.

>>> from tidegauge.engine.plain.grammar import read
>>> from tidegauge.engine.plain.lexer import lexemes
>>> schema = pa.schema([("id", pa.int32()), ("amount", pa.float64())])
>>> meant(read(lexemes("id + 1"))[0], schema)  # doctest: +NORMALIZE_WHITESPACE
Call(function='add', arguments=(Column(name='id', kind=DataType(int32)), Literal(value=1, kind=DataType(int32))),
     kind=DataType(int32))
>>> condition(read(lexemes("amount > 9 OR NULL"))[0], schema)
Traceback (most recent call last):
tidegauge.engine.plain.expressions.NotUnderstood
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.engine.plain.casts import cast
from tidegauge.engine.plain.coercion import common, number, typed, widened
from tidegauge.engine.plain.expressions import (
    All,
    Case,
    Column,
    Either,
    Expression,
    Literal,
    NotUnderstood,
    call,
    constant,
    inverted,
    text,
)
from tidegauge.engine.plain.functions import SIGNATURES
from tidegauge.engine.plain.grammar import Applied, Reference, Said, Sentence
from tidegauge.engine.plain.texts import like

__all__ = ["condition", "meant", "value"]

_BOOLEAN: Final = pa.bool_()
_WHOLE_IN_FLOAT: Final = 1 << 53
_OF_NULL: Final = frozenset({"COALESCE", "NVL", "IFNULL"})
"""What Spark does not know beforehand to be null where a part is."""
_MIRRORED: Final = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def value(sentence: Sentence, schema: pa.Schema) -> Expression:
    """Return what a value of a select means: one of a type that a column may have."""
    made = meant(sentence, schema)
    if not typed(made):
        raise NotUnderstood
    return made


def condition(sentence: Sentence, schema: pa.Schema) -> Expression:
    """Return what a condition means, which is no literal."""
    made = meant(sentence, schema)
    if not pt.is_boolean(made.kind) or constant(made):
        raise NotUnderstood
    return made


def meant(sentence: Sentence, schema: pa.Schema) -> Expression:
    """Return what a sentence means. Raises `NotUnderstood`."""
    match sentence:
        case Said(kind, said):
            return _literal(kind, said)
        case Reference((name, *fields)):
            return _column(name, fields, schema)
        case Applied("AND", parts):
            return All(tuple(condition(part, schema) for part in parts))
        case Applied("OR", parts):
            return Either(tuple(condition(part, schema) for part in parts))
        case Applied("NOT", (inner,)):
            return inverted(condition(inner, schema))
        case Applied("CASE", parts):
            return _case(parts, schema)
        case Applied("IF", (asked, one, other)):
            return _case((asked, one, other), schema)
        case Applied(("CAST" | "TRY_CAST") as word, (inner, Reference((kind,)))):
            return cast(meant(inner, schema), kind, trying=word == "TRY_CAST")
        case Applied(operator, parts):
            made = _applied(operator, [meant(part, schema) for part in parts])
            if constant(made):
                raise NotUnderstood
            return made
    raise NotUnderstood


def _literal(kind: str, said: str) -> Literal:
    match kind:
        case "number":
            return number(said)
        case "text":
            return text(said)
        case "TRUE" | "FALSE":
            return Literal(kind == "TRUE", _BOOLEAN)
        case "NULL":
            return Literal(None, pa.null())
    raise NotUnderstood


def _column(name: str, fields: Sequence[str], schema: pa.Schema) -> Expression:
    at = schema.get_all_field_indices(name)
    if len(at) != 1:
        raise NotUnderstood
    made: Expression = Column(name, schema.field(at[0]).type)
    for field in fields:
        made = _field(made, field)
    return made


def _field(of: Expression, name: str) -> Expression:
    """Return a field of a struct, which Spark finds in whatever case it is written."""
    found = [field for field in of.kind if field.name.lower() == name.lower()] if pt.is_struct(of.kind) else []
    if [field.name for field in found] != [name]:
        raise NotUnderstood
    return call("field", of, text(name), kind=found[0].type)


def _case(parts: Sequence[Sentence], schema: pa.Schema) -> Expression:
    """Return the value of the first condition that holds: conditions and values in turns, and the last value."""
    conditions = [condition(part, schema) for part in parts[:-1:2]]
    values = [meant(part, schema) for part in (*parts[1:-1:2], parts[-1])]
    kind = common(values)
    *results, otherwise = widened(values, kind)
    return Case(tuple(zip(conditions, results, strict=True)), otherwise, kind)


def _applied(operator: str, given: list[Expression]) -> Expression:
    match operator, given:
        case "IS NULL", [one] if not constant(one):
            return call("is null", one, kind=_BOOLEAN)
        case "BETWEEN", [one, low, high]:
            return All((_compared(one, ">=", low), _compared(one, "<=", high)))
        case "IN", [one, *values]:
            return _among(one, values)
        case "LIKE", [one, Literal(str(pattern))]:
            return like(one, pattern)
        case "SUBJECT =", [one, other]:
            return _compared(one, "=", other)
        case ("NULLIF", [one, other]) if typed(one):
            same = _compared(one, "=", other)
            return Case(((same, Literal(None, one.kind)),), one, one.kind)
        case sign, [one, other] if sign in _MIRRORED:
            return _compared(one, sign, other)
    if operator not in _OF_NULL and any(pt.is_null(one.kind) for one in given):
        raise NotUnderstood
    try:
        return SIGNATURES[operator](*given)
    except (KeyError, TypeError):
        raise NotUnderstood from None


def _compared(left: Expression, order: str, right: Expression) -> Expression:
    """Return a comparison, if no cast can change either."""
    if isinstance(left, Literal):
        left, order, right = right, _MIRRORED[order], left
    if constant(left) or pt.is_null(right.kind) or not typed(left):
        raise NotUnderstood
    kind = _compared_as(left, right)
    if pt.is_boolean(kind):
        return _same(left, _MIRRORED[order], right)
    first, second = widened((left, right), kind)
    kernel = {"=": "equal", "<>": "equal", "<": "less", ">=": "less", "<=": "at most", ">": "at most"}
    order = _MIRRORED[_MIRRORED[order]]
    made = call(kernel[order], first, second, kind=_BOOLEAN)
    return inverted(made) if order in {"<>", ">", ">="} else made


def _same(left: Expression, order: str, right: Expression) -> Expression:
    """Return whether booleans are the same, or are not."""
    if order not in {"=", "<>"}:
        raise NotUnderstood
    if isinstance(right, Literal):
        return left if right.value == (order == "=") else inverted(left)
    made = call("equal", left, right, kind=_BOOLEAN)
    return made if order == "=" else inverted(made)


def _compared_as(left: Expression, right: Expression) -> Any:
    if pt.is_float32(left.kind) and isinstance(right, Literal) and isinstance(right.value, int | float):
        exact = abs(right.value) < _WHOLE_IN_FLOAT and _in_float(right.value)
        if not exact:  # compared as float or as double, by Spark's settings
            raise NotUnderstood
        return pa.float64()
    kind = common((left, right))
    if not (pt.is_primitive(kind) or pt.is_string(kind)) or pt.is_binary(kind):
        raise NotUnderstood
    return kind


def _in_float(number: float) -> bool:
    return bool(struct.unpack("f", struct.pack("f", number))[0] == number)


def _among(one: Expression, values: Sequence[Expression]) -> Expression:
    """Return whether a text or an integer is one of some literals."""
    known = [value.value for value in values if isinstance(value, Literal)]
    if len(known) < len(values) or constant(one):
        raise NotUnderstood
    if pt.is_string(one.kind) and all(isinstance(value, str) for value in known):
        found = Literal(tuple(value for value in known if isinstance(value, str)), pa.list_(pa.string()))
    elif pt.is_signed_integer(one.kind) and all(pt.is_signed_integer(value.kind) for value in values):
        most = 1 << (one.kind.bit_width - 1)
        whole = tuple(value for value in known if isinstance(value, int) and -most <= value < most)
        found = Literal(whole, pa.list_(pa.int64()))
    else:
        raise NotUnderstood
    return call("among", one, found, kind=_BOOLEAN)
