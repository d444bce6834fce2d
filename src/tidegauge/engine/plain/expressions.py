"""Expressions that are understood of SQL, as values: a tree whose every node has a type.

Invariant: on each row an expression has the value and the type that Spark gives it, and raises where Spark does
(`evaluation` says what it comes to). A condition is an expression of booleans: true, false or null.

>>> amount = Column("amount", pa.float64())
>>> large = call("less", Literal(900.0, pa.float64()), amount, kind=pa.bool_())
>>> columns(All((large, inverted(large)))), large.kind
({'amount'}, DataType(bool))
>>> inverted(inverted(large)) == large
True
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

__all__ = [
    "All",
    "Call",
    "Case",
    "Coalesce",
    "Column",
    "Either",
    "Expression",
    "Literal",
    "NotUnderstood",
    "call",
    "columns",
    "constant",
    "every",
    "inverted",
    "parts",
    "text",
]


class NotUnderstood(Exception):
    """A text, or a meaning of one, that we do not understand."""


@dataclass(frozen=True, slots=True)
class Column:
    """The value of a column, of any type."""

    name: str
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that is the same on each row. Of `NULL` the type is that of nulls.

    A decimal is a float here, with a decimal type: the doubles beside which it is understood make a double of it.
    """

    value: bool | int | float | str | tuple[int, ...] | tuple[str, ...] | None
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class Call:
    """A function by its name in `functions.KERNELS`."""

    function: str
    arguments: tuple[Expression, ...]
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class All:
    """The conjunction: false where one is, else null where one is. What follows a false part is not asked."""

    parts: tuple[Expression, ...]

    @property
    def kind(self) -> Any:
        """Of booleans."""
        return pa.bool_()


@dataclass(frozen=True, slots=True)
class Either:
    """The disjunction: true where one is, else null where one is. What follows a true part is not asked."""

    parts: tuple[Expression, ...]

    @property
    def kind(self) -> Any:
        """Of booleans."""
        return pa.bool_()


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true, else the last one. No other value is asked."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first value that is not null. What follows it is not asked."""

    parts: tuple[Expression, ...]
    kind: pa.DataType


Expression: TypeAlias = Column | Literal | Call | All | Either | Case | Coalesce


def call(function: str, *arguments: Expression, kind: Any) -> Call:
    """Return a call of a kernel."""
    return Call(function, arguments, kind)


def text(value: str) -> Literal:
    """Return a literal of text."""
    return Literal(value, pa.string())


def inverted(condition: Expression) -> Expression:
    """Return the negation of a condition: null stays null."""
    if isinstance(condition, Call) and condition.function == "not":
        return condition.arguments[0]
    return call("not", condition, kind=pa.bool_())


def parts(expression: Expression) -> tuple[Expression, ...]:
    """Return the expressions that one is made of, in the order that they are asked in."""
    match expression:
        case Column() | Literal():
            return ()
        case Call(_, arguments):
            return arguments
        case All(inner) | Either(inner) | Coalesce(inner):
            return inner
        case Case(branches, otherwise):
            return (*(one for branch in branches for one in branch), otherwise)


def every(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all within it."""
    yield expression
    for part in parts(expression):
        yield from every(part)


def columns(expression: Expression) -> set[str]:
    """Return the names of the columns that an expression reads."""
    return {one.name for one in every(expression) if isinstance(one, Column)}


def constant(expression: Expression) -> bool:
    """Whether an expression is the same on each row."""
    return not columns(expression)
