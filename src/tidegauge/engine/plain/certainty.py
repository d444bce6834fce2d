"""Whether Spark raises for the rows for which we do, and for no others.

Spark's optimizer keeps values, not errors. It computes what occurs twice once, before it knows whether it is wanted;
it joins and drops conditions that are the same; it leaves out an operand whose value it knows. So an expression that
may raise is understood where none of that can be.

Invariant: of the expressions of a step that are `certain`, each operand that may raise is asked in Spark on the rows
on which it is asked here.

>>> import pyarrow as pa
>>> from tidegauge.engine.plain.meaning import meant
>>> from tidegauge.engine.plain.grammar import read
>>> from tidegauge.engine.plain.lexer import lexemes
>>> schema = pa.schema([("n", pa.int32()), ("x", pa.float64())])
>>> def told(*texts: str) -> bool:
...     return certain([meant(read(lexemes(text))[0], schema) for text in texts])
>>> told("n <> 0 AND 6 / n > 1"), told("n <> 0 AND 6 / n > 1", "x + 6 / n"), told("n <> 0 AND n > 3 OR n <> 0")
(True, False, True)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegauge.engine.plain.evaluation import raises
from tidegauge.engine.plain.expressions import (
    All,
    Call,
    Case,
    Coalesce,
    Column,
    Either,
    Expression,
    Literal,
    every,
    parts,
)
from tidegauge.engine.plain.functions import KERNELS

__all__ = ["certain"]


@dataclass(frozen=True, slots=True)
class _Place:
    """An expression that may raise within a step. open: whether Spark may leave it out on some row."""

    one: Expression
    open: bool


def certain(expressions: Sequence[Expression], *, root: bool = True) -> bool:
    """Whether the expressions of one step raise in Spark where they do here.

    root: whether they are values of a select, and nothing else is made of them.
    """
    risky = [one for one in expressions if raises(one)]
    if not risky:
        return True
    places = [place for one in risky for place in _places(one, open=False)]
    calls = [
        place for place in places if isinstance(place.one, Call) and KERNELS[place.one.function].wrong is not None
    ]
    names = Counter(_key(place.one) for place in calls)
    if any(place.open and names[_key(place.one)] > 1 for place in calls):
        return False
    operands = Counter(
        _leaves(part)
        for one in expressions
        for within in every(one)
        if isinstance(within, All | Either)
        for part in within.parts
    )
    joined = any(isinstance(place.one, All | Either) for place in places)
    if joined and any(count > 1 for count in operands.values()):
        return False
    return all(_alone(one, root=root) for one in risky)


def _alone(one: Expression, *, root: bool) -> bool:
    """Whether Spark has no way to know what an expression is without asking what raises in it."""
    inner = [part for part in parts(one) if raises(part)]
    if isinstance(one, Call) and one.function == "is null" and inner:
        return False
    if isinstance(one, Case):
        values = [*(value for _, value in one.branches), one.otherwise]
        asked = any(raises(condition) for condition, _ in one.branches)
        if (asked and not root) or len({_leaves(value) for value in values}) < len(values):
            return False
    return all(_alone(part, root=False) for part in inner)


def _places(one: Expression, *, open: bool) -> Iterator[_Place]:
    """Yield what may raise of an expression."""
    if not raises(one):
        return
    yield _Place(one, open)
    for at, part in enumerate(parts(one)):
        yield from _places(part, open=open or _left_out(one, at))


def _left_out(one: Expression, at: int) -> bool:
    """Whether there are rows on which a part of an expression is not asked though the expression is."""
    match one:
        case Call(function, arguments):
            order = KERNELS[function].order
            first = len(arguments) - 1 if order == "last until null" else 0
            return order != "all" and at != first
        case All() | Either() | Case() | Coalesce():
            return at > 0
        case Column() | Literal():
            return False


def _key(one: Expression) -> tuple[str, str]:
    return (one.function if isinstance(one, Call) else "", _leaves(one))


def _leaves(one: Expression) -> str:
    """Return the columns and literals of an expression: without them no two expressions are the same."""
    return repr(sorted(repr(leaf) for leaf in every(one) if isinstance(leaf, Column | Literal)))
