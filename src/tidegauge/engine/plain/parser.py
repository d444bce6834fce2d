"""The part of SQL that we understand in filters and selects: a small one, which no setting can change.

Invariants. An understood text means on each row exactly what Spark says it means, and raises nothing. Anything else
is not understood, which is no error: those rows go to the JVM. Nothing of a text is evaluated, whatever it says.

Of filters, understood are comparisons of one column with literals, where Spark casts neither in a way that changes a
value:

    integers           `=` `==` `<>` `!=` `<` `<=` `>` `>=` `BETWEEN` `IN`     integers of 64 bits
    double, float      the same without `IN`                                   integers, decimals: exact in a float
    text               the same, `LIKE` 'prefix%'                              '...' without \\ and without '
    boolean            alone, `=` `<>`                                         `TRUE`, `FALSE`
    any                `IS NULL`

with `NOT`, `AND`, `OR` and parentheses. A column is named exactly, bare or in backticks. The precedence is that of
Spark's grammar, where `NOT a = 1 AND b` is `(NOT (a = 1)) AND b`, and the `AND` of a `BETWEEN` is its own.

In selects, it understands columns, and `+`, `-` and `*` of two doubles, one of which may be a literal; either with or
without `AS name`.

A text that is a conjunction may be understood up to some conjunct. It has to be sure that it is one: only `OR` binds
weaker than `AND`, so the rest must not have that word in it, be it in a comment.

>>> schema = pa.schema([("amount", pa.float64()), ("user", pa.string())])
>>> understood(["amount > 900", "user <> 'x' AND upper(user) = 'Y'"], schema)  # doctest: +NORMALIZE_WHITESPACE
(All(parts=(Not(inner=Compare(column='amount', order='<=', value=900.0)),
            Not(inner=Compare(column='user', order='=', value='x')))), False)
>>> understood(["amount > 900 OR upper(user) = 'Y'"], schema) is None
True
>>> projected("amount * 1.2 AS gross", schema)
(Arithmetic(left=Column(name='amount'), sign='*', right=1.2), 'gross')
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.engine.plain.expressions import (
    All,
    Among,
    Arithmetic,
    Begins,
    Column,
    Compare,
    Condition,
    Either,
    Holds,
    IsNull,
    Not,
    Value,
)
from tidegauge.engine.plain.lexer import Lexeme, lexemes

__all__ = ["projected", "understood", "unknown"]

_LONGEST: Final = 10_000
_DEEPEST: Final = 40
_DIGITS: Final = 18  # as many as a double's decimal text may have here, and an integer's but for the largest
_WHOLE_IN_DOUBLE: Final = 1 << 53
_OR: Final = re.compile(r"(?<![A-Za-z_])OR(?![A-Za-z0-9_])", re.IGNORECASE)
_MIRRORED: Final = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_Sign: TypeAlias = Literal["+", "-", "*"]
_ARITHMETIC: Final[tuple[_Sign, ...]] = ("+", "-", "*")

_Literal: TypeAlias = "int | float | str | bool"


class _Unknown(Exception):
    """A text that we do not understand."""


def understood(conditions: Sequence[str], schema: pa.Schema) -> tuple[Condition, bool] | None:
    """Return the understood part of the conjunction of filters over columns of `schema`, and whether it is all.

    It is the beginning of the conjunction. None where nothing is understood.
    """
    parts: list[Condition] = []
    for condition in conditions:
        found, whole = _beginning(condition, schema)
        parts += found
        if not whole:
            return (_all(parts), False) if parts else None
    return (_all(parts), True) if parts else None


def _beginning(condition: str, schema: pa.Schema) -> tuple[list[Condition], bool]:
    """Return the conjuncts of one text up to the first that is not understood, and whether these are all."""
    tokens = _tokens(condition)
    try:
        parser = _SqlParser(tokens, schema)
        whole = parser.disjunction()
        parser.take("end")
    except _Unknown:
        pass
    else:
        return [whole], True
    parser = _SqlParser(tokens, schema)
    parts: list[Condition] = []
    rest = 0
    try:
        while True:
            part = parser.negation()
            _, _, rest = parser.take("AND")
            parts.append(part)
    except _Unknown:
        return ([] if _OR.search(condition, rest) else parts), False


def projected(expression: str, schema: pa.Schema) -> tuple[Value, str | None] | None:
    """Return the understood form of an expression of a select over columns of `schema`, and the name that it gives
    it.

    The name is None where it is Spark that makes one up. None where the expression is not understood.
    """
    parser = _SqlParser(_tokens(expression), schema)
    try:
        made = parser.value()
        name = parser.alias() or (made.name if isinstance(made, Column) else None)
        parser.take("end")
    except _Unknown:
        return None
    return made, name


def unknown(sql: str, schema: pa.Schema) -> str | None:
    """Return the column that a filter or an expression names and that is not there, if it is all that is wrong.

    >>> schema = pa.schema([("amount", pa.float64())])
    >>> unknown("amout > 900", schema), unknown("abs(amount) > 900", schema), unknown("amount AS gross", schema)
    ('amout', None, None)
    """
    if _meant(sql, schema):
        return None
    known = {name.lower() for name in schema.names}
    words = [text for kind, text, _ in _tokens(sql) if kind == "word" and text.lower() not in known]
    kinds = (pa.float64(), pa.int64(), pa.string(), pa.bool_())
    return next((word for word in words for kind in kinds if _meant(sql, schema.append(pa.field(word, kind)))), None)


def _meant(sql: str, schema: pa.Schema) -> bool:
    found = understood([sql], schema)
    return projected(sql, schema) is not None or (found is not None and found[1])


def _tokens(sql: str) -> list[Lexeme]:
    """Return the lexemes of a text: none if it is too long, or if Spark would replace variables in it first."""
    return [("", "", 0)] if len(sql) > _LONGEST or "$" in sql else lexemes(sql)


class _SqlParser:
    """Reads tokens by recursive descent, one method for each level of precedence. Raises `_Unknown`."""

    def __init__(self, tokens: Sequence[Lexeme], schema: pa.Schema) -> None:
        self._tokens: Final = tokens
        self._schema: Final = schema
        self._next = 0
        self._depth = 0

    def take(self, kind: str) -> Lexeme:
        """Return the next token, which has to be of this kind."""
        token = self._tokens[self._next]
        if token[0] != kind:
            raise _Unknown
        self._next += 1
        return token

    def disjunction(self) -> Condition:
        parts = [self._conjunction()]
        while self._took("OR"):
            parts.append(self._conjunction())
        return Either(tuple(parts)) if len(parts) > 1 else parts[0]

    def _conjunction(self) -> Condition:
        parts = [self.negation()]
        while self._took("AND"):
            parts.append(self.negation())
        return _all(parts)

    def negation(self) -> Condition:
        """Return a condition without `AND` and `OR` outside of parentheses."""
        if self._took("NOT"):
            return Not(self._deeper(self.negation))
        if self._took("("):
            inner = self._deeper(self.disjunction)
            self.take(")")
            return inner
        if self._tokens[self._next][0] == "word":
            return self._of_column(self._column())
        value, sign = self._literal(), self._sign()
        return _compared(self._column(), _MIRRORED[sign], value)

    def value(self) -> Value:
        """Return a column, or arithmetic of two operands."""
        left = self._operand()
        for sign in _ARITHMETIC:
            if self._took(sign):
                return self._arithmetic(left, sign, self._operand())
        if not isinstance(left, Column):
            raise _Unknown
        return left

    def alias(self) -> str | None:
        """Return the name after an `AS`, if there is one."""
        kind, text, _ = self._tokens[self._next]
        if kind != "word" or text.upper() != "AS":
            return None
        self._next += 1
        return self.take("word")[1]

    def _operand(self) -> Column | float:
        if self._tokens[self._next][0] == "word":
            return Column(self._column().name)
        literal = self._literal()
        if isinstance(literal, bool | str):
            raise _Unknown
        return float(_fitting(pa.float64(), literal))

    def _arithmetic(self, left: Column | float, sign: _Sign, right: Column | float) -> Arithmetic:
        columns = [side.name for side in (left, right) if isinstance(side, Column)]
        if not columns or not all(pt.is_float64(self._schema.field(name).type) for name in columns):
            raise _Unknown
        return Arithmetic(left, sign, right)

    def _deeper(self, read: Callable[[], Condition]) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unknown
        inner = read()
        self._depth -= 1
        return inner

    def _of_column(self, column: Any) -> Condition:
        """Return the condition that begins with a column."""
        if self._took("IS"):
            negated = self._took("NOT")
            self.take("NULL")
            made: Condition = IsNull(column.name)
            return Not(made) if negated else made
        if self._tokens[self._next][0] in _MIRRORED:
            return _compared(column, _MIRRORED[_MIRRORED[self._sign()]], self._literal())
        negated = self._took("NOT")
        if self._took("BETWEEN"):
            low = _compared(column, ">=", self._literal())
            self.take("AND")
            made = All((low, _compared(column, "<=", self._literal())))
        elif self._took("IN"):
            made = _among(column, self._literals())
        elif self._took("LIKE"):
            made = _like(column, self.take("text")[1])
        elif not negated and pt.is_boolean(column.type):
            made = Holds(column.name)
        else:
            raise _Unknown
        return Not(made) if negated else made

    def _column(self) -> Any:
        _, name, _ = self.take("word")
        at = self._schema.get_all_field_indices(name)
        if len(at) != 1:
            raise _Unknown
        return self._schema.field(at[0])

    def _sign(self) -> str:
        kind, _, _ = self._tokens[self._next]
        if kind not in _MIRRORED:
            raise _Unknown
        self._next += 1
        return kind

    def _literals(self) -> list[_Literal]:
        self.take("(")
        values = [self._literal()]
        while self._took(","):
            values.append(self._literal())
        self.take(")")
        return values

    def _literal(self) -> _Literal:
        for kind, value in (("TRUE", True), ("FALSE", False)):
            if self._took(kind):
                return value
        if self._tokens[self._next][0] == "text":
            return self.take("text")[1]
        minus = "-" if self._took("-") else ""
        _, text, _ = self.take("number")
        whole, dot, _ = text.partition(".")
        if len(text) - len(dot) > _DIGITS + (not dot):
            raise _Unknown
        return float(minus + text) + 0.0 if dot else int(minus + whole)  # a decimal has no zero but 0.0

    def _took(self, kind: str) -> bool:
        if self._tokens[self._next][0] != kind:
            return False
        self._next += 1
        return True


def _all(parts: Sequence[Condition]) -> Condition:
    return All(tuple(parts)) if len(parts) > 1 else parts[0]


def _compared(column: Any, order: str, value: _Literal) -> Condition:
    """Return a comparison, if the column's type and the literal's are such that no cast can change either."""
    if isinstance(value, bool):
        if not pt.is_boolean(column.type) or order not in {"=", "<>"}:
            raise _Unknown
        return Holds(column.name) if value == (order == "=") else Not(Holds(column.name))
    value = _fitting(column.type, value)
    match order:
        case "=" | "<" | "<=":
            return Compare(column.name, order, value)
        case "<>":
            return Not(Compare(column.name, "=", value))
        case ">":
            return Not(Compare(column.name, "<=", value))
    return Not(Compare(column.name, "<", value))


def _fitting(kind: Any, value: int | float | str) -> int | float | str:
    """Return a literal in the form in which it is compared with columns of a type."""
    if isinstance(value, str):
        known = pt.is_string(kind)
    elif pt.is_signed_integer(kind):
        known = isinstance(value, int) and -(1 << 63) <= value < 1 << 63
    elif pt.is_float64(kind):
        known = isinstance(value, float) or abs(value) <= _WHOLE_IN_DOUBLE
        value = float(value) if known else value
    elif pt.is_float32(kind):  # compared as float or as double, by Spark's settings
        known = struct.unpack("f", struct.pack("f", value))[0] == value if abs(value) < _WHOLE_IN_DOUBLE else False
        value = float(value)
    else:
        known = False
    if not known:
        raise _Unknown
    return value


def _among(column: Any, values: Sequence[_Literal]) -> Condition:
    texts = tuple(value for value in values if isinstance(value, str))
    if pt.is_string(column.type) and len(texts) == len(values):
        return Among(column.name, texts)
    whole = tuple(_fitting(column.type, value) for value in values if type(value) is int)
    if pt.is_signed_integer(column.type) and len(whole) == len(values):
        most = 1 << (column.type.bit_width - 1)
        return Among(column.name, tuple(value for value in whole if isinstance(value, int) and -most <= value < most))
    raise _Unknown


def _like(column: Any, pattern: str) -> Condition:
    """Return a match with a pattern of a prefix. Spark may match by the halves of characters beyond U+FFFF."""
    prefix = pattern.removesuffix("%")
    if not pt.is_string(column.type) or "%" in prefix or "_" in prefix or any(char > "\uffff" for char in prefix):
        raise _Unknown
    return Compare(column.name, "=", prefix) if prefix == pattern else Begins(column.name, prefix)
