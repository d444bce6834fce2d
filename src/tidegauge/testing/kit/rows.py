"""Rows as people compare them: some are missing, some are too many, or they are in another order.

Invariant: only the columns of the wanted rows count. A connector may add columns of its own.

>>> same([{"n": 1}, {"n": 2}], [{"n": 2, "place": 7}, {"n": 1, "place": 9}], "read")
>>> same([{"n": 1}], [], "read")
Traceback (most recent call last):
    ...
tidegauge.testing.kit.trial.LawBroken: read: 0 rows instead of 1: {n: 1} is missing
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tidegauge.testing.kit.trial import expect

__all__ = ["Row", "same"]

Row: TypeAlias = Mapping[str, Any]
Values: TypeAlias = tuple[str, ...]


def same(wanted: Sequence[Any], found: Sequence[Any], where: str, *, ordered: bool = False) -> None:
    """Raise `LawBroken` unless the rows are those wanted. where: for the example."""
    problem = _differing(wanted, found, ordered=ordered)
    expect(not problem, f"{where}: {problem}")


def _differing(wanted: Sequence[Row], found: Sequence[Row], *, ordered: bool) -> str:
    """Return how rows differ from those wanted, in the columns of these, or "" if they do not."""
    names = list((wanted or found or [{}])[0])
    if missing := [name for name in names if found and name not in found[0]]:
        return f"they have no column {missing[0]!r}, but {', '.join(map(repr, found[0]))}"
    left, right = _values(wanted, names), _values(found, names)
    lost, more = list((Counter(left) - Counter(right)).elements()), list((Counter(right) - Counter(left)).elements())
    if lost or more:
        told = [f"{_some(some, names)} {what}" for some, what in ((lost, "missing"), (more, "too many")) if some]
        return f"{len(found)} rows instead of {len(wanted)}: {' and '.join(told)}"
    if ordered and left != right:
        first = next(n for n, (one, other) in enumerate(zip(left, right, strict=True)) if one != other)
        this, that = _shown(found[first], names), _shown(wanted[first], names)
        return f"they are in another order: row {first} is {this} instead of {that}"
    return ""


def _shown(row: Row, names: Sequence[str]) -> str:
    """Return a row in words."""
    return "{" + ", ".join(f"{name}: {row[name]!r}" for name in names) + "}"


def _values(rows: Sequence[Row], names: Sequence[str]) -> list[Values]:
    return [tuple(repr(row[name]) for name in names) for row in rows]


def _some(values: Sequence[Values], names: Sequence[str]) -> str:
    first = "{" + ", ".join(f"{name}: {value}" for name, value in zip(names, values[0], strict=True)) + "}"
    return first + (f" and {len(values) - 1} more are" if len(values) > 1 else " is")
