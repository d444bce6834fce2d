"""Steps that run wherever the batch is, as Arrow functions: those of users, and those that are made here.

Invariant: the functions of a step are the same on every engine, so engines agree on its rows, and each of them has
the columns that it is held to.

>>> orders = pa.schema([("id", pa.int64()), ("items", pa.list_(pa.string()))])
>>> functions, columns = in_arrow((Dedupe(("id",)), Unnest("items")), orders, output="lines")
>>> [type(one.function).__name__ for one in functions], columns.field("items").type
(['FirstOfKey', 'Unnested'], DataType(string))
>>> in_arrow((Unnest("id"),), orders, output="lines")
Traceback (most recent call last):
tidegauge.errors.steps.NotAList: TG-0670: unnest of output 'lines' takes the lists in 'id' apart, ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, TypeGuard

import pyarrow as pa

from tidegauge.errors.steps import OperationsInStep
from tidegauge.job.firsts import FirstOfKey
from tidegauge.job.functions import empty, result_schema
from tidegauge.job.keys import check_key
from tidegauge.job.plan import WORDS, Dedupe, MadeStep, MapBatches, Step, Unnest
from tidegauge.job.routing import Routed, check_routing
from tidegauge.job.unnesting import Unnested, check_unnest
from tidegauge.operations import carries

__all__ = ["ArrowStep", "in_arrow", "is_arrow", "leading"]

ArrowStep: TypeAlias = MapBatches | MadeStep


_WITHOUT_OPERATIONS: Final[Mapping[type, tuple[str, str]]] = {
    Unnest: (
        "several rows would have one key, and an update says nothing of the elements that went",
        "keep the lists, and unnest them where you read the table",
    ),
    Dedupe: (
        "the operations after the first one of a key would be lost, and so what its row is now",
        "use a sink with envelope='upsert' and this key, which keeps one row for each",
    ),
}
"""The steps that refuse rows with an operation: why, and what to do instead."""


def is_arrow(step: Step) -> TypeGuard[ArrowStep]:
    """Whether a step runs wherever the batch is."""
    return isinstance(step, ArrowStep)


def leading(steps: Sequence[Step]) -> tuple[ArrowStep, ...]:
    """Return the steps before the first one that is SQL or a function of a DataFrame."""
    found: list[ArrowStep] = []
    for step in steps:
        if not is_arrow(step):
            break
        found.append(step)
    return tuple(found)


def in_arrow(
    steps: Sequence[ArrowStep], schema: pa.Schema, *, output: str
) -> tuple[tuple[MapBatches, ...], pa.Schema]:
    """Return steps of an output over columns of `schema` as functions, and the columns that they give.

    Raises as `result_schema`, and `UnknownColumn`, `NotAList`, `KeyCannotTell`, `ValueNotInColumn`,
    `OperationsInStep`.
    """
    functions: list[MapBatches] = []
    for step in steps:
        if isinstance(step, MapBatches):
            schema = result_schema([step], schema, output=output)
            functions.append(replace(step, schema=schema))  # learnt: each batch is held to it, whatever follows
        else:
            function = _made(step, schema, output=output)
            schema = pa.schema([pa.field(one.name, one.type) for one in function(empty(schema)).schema])
            functions.append(MapBatches(function, schema))
    return tuple(functions), schema


def _made(step: MadeStep, schema: pa.Schema, *, output: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    where = f"{WORDS[type(step)]} of output {output!r}"
    if carries(schema) and type(step) in _WITHOUT_OPERATIONS:
        why, instead = _WITHOUT_OPERATIONS[type(step)]
        raise OperationsInStep(where=where, why=why, instead=instead)
    match step:
        case Unnest(column):
            check_unnest(column, schema, where=where)
            return Unnested(column)
        case Dedupe(key):
            check_key(key, schema, where=where)
            return FirstOfKey(key)
    check_routing(step, schema, where=where)
    return Routed(step)
