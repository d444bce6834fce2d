"""Columns and steps, spelt in SQL.

>>> quoted("a `b`"), packed(["id", "_epoch", "user"], "row")
('`a ``b```', 'struct(`id`, `user`, _epoch) AS row')
>>> chosen(Select(("*", "id + 1 AS next", "_epoch")), ["id", "user"])
['`id`', '`user`', 'id + 1 AS next']
>>> chosen(Select(("user",)), ["_op", "id", "user"]), chosen(Changelog("op"), ["_op", "id", "user"])
(['user', '`_op`'], ['`_op` AS `op`', '`id`', '`user`'])
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidegauge.job.functions import INTERNAL, function_name
from tidegauge.job.plan import (
    Changelog,
    Dedupe,
    Filter,
    GivenStep,
    MapBatches,
    Partition,
    Select,
    SplitBy,
    Step,
    Transform,
    Unnest,
)
from tidegauge.operations import OP, filtered_sql
from tidegauge.reclock.columns import EPOCH

__all__ = ["ROW", "Projection", "SparkStep", "chosen", "packed", "quoted", "said_as", "spelt", "written_as"]

ROW: Final = INTERNAL + "row"
"""The struct column that holds the rows while their steps are analysed, and on their way to an Arrow function."""
_EPOCH_ALONE: Final = re.compile(r"\s*`?_epoch`?\s*", re.IGNORECASE)
_OP_ALONE: Final = re.compile(r"\s*`?_op`?\s*", re.IGNORECASE)


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def packed(columns: Sequence[str], name: str) -> str:
    """Return the SQL that makes one struct of columns, `_epoch` last."""
    user = [quoted(column) for column in columns if column != EPOCH.name]
    return f"struct({', '.join([*user, EPOCH.name])}) AS {name}"


def chosen(step: Select | Changelog, known: Sequence[str]) -> list[str]:
    """Return a step over known columns as expressions for all columns that it gives but `_epoch`, which stays anyway.

    A `*` is written out. Where the rows have operations a `Select` gives them last, mentioned or not.
    """
    if isinstance(step, Changelog):
        renamed = f"{quoted(OP)} AS {quoted(step.column)}"
        # where there are no operations the engine says that the column is missing
        return [*(renamed if name == OP else quoted(name) for name in known), *([] if OP in known else [renamed])]
    kept = [OP] if OP in known else []
    found: list[str] = []
    for expression in step.expressions:
        if expression.strip() == "*":
            found += [quoted(name) for name in known if name not in kept]
        elif _EPOCH_ALONE.fullmatch(expression) is None and not (kept and _OP_ALONE.fullmatch(expression)):
            found.append(expression)
    return [*found, *map(quoted, kept)]


@dataclass(frozen=True, slots=True)
class Projection:
    """SQL expressions for all columns but `_epoch`, which stays. step: the user's step that they come from."""

    expressions: tuple[str, ...]
    step: str


SparkStep: TypeAlias = Filter | Projection | Transform | MapBatches
"""A step as Spark runs it, which knows nothing of operations."""


def spelt(step: GivenStep, known: Sequence[str]) -> tuple[SparkStep, ...]:
    """Return a step over known columns as Spark runs it.

    Of operations a filter changes some before it drops rows; its condition has to be one whole expression.
    """
    match step:
        case Select() | Changelog():
            return (Projection(tuple(chosen(step, known)), said_as(step)),)
        case Filter(condition) if OP in known:
            columns = [filtered_sql(condition) if name == OP else quoted(name) for name in known]
            return Projection(tuple(columns), said_as(step)), Filter(f"{OP} IS NOT NULL")
    return (step,)


def said_as(step: Step | Projection) -> str:
    """Return the name of the method that a user calls for a step."""
    return step.step if isinstance(step, Projection) else type(step).__name__.lower()


def written_as(step: Step) -> str:
    """Return a step as its user wrote it.

    >>> written_as(Select(("id", "id + 1 AS next")))
    "select('id', 'id + 1 AS next')"
    """
    match step:
        case Filter(condition):
            return f"filter({condition!r})"
        case Select(expressions):
            return f"select({', '.join(map(repr, expressions))})"
        case Changelog(column):
            return f"changelog({column!r})"
        case MapBatches(function):
            return f"map_batches({function_name(function)})"
        case Transform(function):
            return f"transform({function_name(function)})"
        case Unnest(column):
            return f"unnest({column!r})"
        case Dedupe(key):
            return f"dedupe({', '.join(map(repr, key))})"
        case Partition(parts, key, part):
            return f"partition({', '.join(map(repr, (parts, *key)))})[{part}]"
        case SplitBy(column, values, value):
            which = ".rest" if value is None else f"[{value!r}]"
            return f"split_by({column!r}, [{', '.join(map(repr, values))}]){which}"
