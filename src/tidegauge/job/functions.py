"""The columns of streams, and Arrow functions of users: what columns they return, and running them on one batch.

Invariant: a function never sees `_epoch`, and keeps `_op` where its rows have operations. What it returned has
exactly the declared or learnt columns before anyone else sees it.

>>> import pyarrow as pa
>>> from tidegauge.job.plan import MapBatches
>>> def double(batch):
...     return pa.record_batch({"twice": pa.compute.multiply(batch["n"], 2)})
>>> result_schema([MapBatches(double)], pa.schema([("n", pa.int64())]), output="x").names
['twice']
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.engine import DuplicateColumn, ExpressionFailed, LostOperation, SchemaUnknown, WrongBatch
from tidegauge.errors.flow import BatchFunctionFailed, ReservedColumn
from tidegauge.job.plan import MapBatches
from tidegauge.operations import OP, carries, check
from tidegauge.reclock.columns import EPOCH
from tidegauge.sources.protocol import BAD_RECORDS, Split
from tidegauge.sources.push.source import PushedSplit

__all__ = [
    "INTERNAL",
    "Multiplying",
    "Remembering",
    "RowRefused",
    "apply",
    "begun",
    "channel_of",
    "check_names",
    "columns_of",
    "conform",
    "empty",
    "function_name",
    "result_schema",
    "said",
    "with_epoch",
    "without_epoch",
]

INTERNAL: Final = "__tg_"
"""Columns that exist only between the hops of one Spark job begin like this."""


class RowRefused(Exception):
    """Raised by a function that stands for a SQL expression, on a row that the expression cannot take."""


def channel_of(split: Split) -> str:
    """Return the channel of the outputs that get the rows of a split."""
    return split.channel if isinstance(split, PushedSplit) else "rows"


def columns_of(schema: pa.Schema, channel: str) -> pa.Schema:
    """Return the columns of a channel of a source with this schema: "rows", "errors", or a stream of several.

    >>> both = pa.schema([("orders", pa.struct([("id", pa.int64())])), ("users", pa.struct([("name", pa.string())]))])
    >>> columns_of(both, "users").names
    ['name']
    """
    if channel == "rows":
        return schema
    return BAD_RECORDS if channel == "errors" else pa.schema(list(schema.field(channel).type))


def with_epoch(schema: pa.Schema) -> pa.Schema:
    """Return the schema with `_epoch` as its last column."""
    return schema.append(EPOCH)


def without_epoch(schema: pa.Schema) -> pa.Schema:
    """Return the schema without `_epoch`, its last column."""
    return schema.remove(len(schema) - 1)


def function_name(function: Callable[..., Any]) -> str:
    """Return a function's name for people."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def said(error: BaseException, *, where: bool = False) -> str:
    """Return what an exception says in one line of at most 500 characters; with `where`, also who raised it."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__) if where else []
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return " ".join(text.split())[:500] + place


def check_names(names: Sequence[str], where: str) -> None:
    """Raise when columns cannot stand beside those that Tidegauge writes, or when two have one name."""
    seen = set()
    for name in names:
        folded = name.lower()
        if folded == EPOCH.name or folded.startswith(INTERNAL) or (folded == OP and name != OP):
            raise ReservedColumn(where=where, column=name)
        if folded in seen:
            raise DuplicateColumn(where=where, column=name)
        seen.add(folded)


def result_schema(steps: Sequence[MapBatches], schema: pa.Schema, *, output: str) -> pa.Schema:
    """Return the columns that a chain of functions gives for batches of `schema` (neither has `_epoch`).

    A function without a declared schema is called once with an empty batch. Raises `LostOperation`, and the errors of
    names.
    """
    for step in steps:
        name, operating = function_name(step.function), carries(schema)
        if step.schema is not None:
            schema = step.schema
        else:
            try:
                result = step.function(empty(schema))
            except Exception as error:
                raise SchemaUnknown(function=name, output=output, detail=said(error, where=True)) from error
            if not isinstance(result, pa.RecordBatch | pa.Table):
                raise WrongBatch(
                    function=name, output=output, got=f"a {type(result).__name__}", expected="a pyarrow.RecordBatch"
                )
            schema = result.schema
        schema = pa.schema([pa.field(field.name, field.type) for field in schema])
        where = f"map_batches({name}) of output {output!r}"
        check_names(schema.names, where)
        check(schema, where)
        if operating and not carries(schema):
            raise LostOperation(function=f"map_batches({name})", output=output, got=_columns(schema))
    return schema


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the types of `schema`, which has the same columns.

    Units are converted, times truncated.
    """
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type, safe=False)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@runtime_checkable
class Remembering(Protocol):
    """A function that sees an epoch batch by batch, and remembers what it has seen of it."""

    def begun(self) -> _Begun:
        """Return what one attempt at one task has of it."""
        ...


@runtime_checkable
class _Begun(Protocol):
    def __call__(self, batch: pa.RecordBatch, /) -> pa.RecordBatch: ...

    def within(self, batch: pa.RecordBatch, epoch: int, /) -> pa.RecordBatch: ...


@runtime_checkable
class Multiplying(Protocol):
    """A function that makes many rows of one, and is given few at a time."""

    def pieces(self, batch: pa.RecordBatch, /) -> Iterable[pa.RecordBatch]:
        """Cut a batch, so that what comes of each piece is not large."""
        ...


def begun(steps: Sequence[MapBatches]) -> tuple[MapBatches, ...]:
    """Return a chain of functions for one attempt at one task, which is given its epochs one after the other."""
    return tuple(
        replace(step, function=step.function.begun()) if isinstance(step.function, Remembering) else step
        for step in steps
    )


def apply(
    steps: Sequence[MapBatches], batch: pa.RecordBatch, schema: pa.Schema, *, output: str, epoch: int
) -> Iterator[pa.RecordBatch]:
    """Yield what a chain of functions makes of one batch, in the columns of `schema` (without `_epoch`).

    Raises `BatchFunctionFailed` when a function raises, `ExpressionFailed` when one that stands for SQL refuses a
    row, and `WrongBatch` when it returns something else than it should.
    """
    if not steps:
        yield batch
    elif batch.num_rows:
        step, rest = steps[0], steps[1:]
        for given in step.function.pieces(batch) if isinstance(step.function, Multiplying) else (batch,):
            for made in _one(step, given, step.schema if rest else schema, output=output, epoch=epoch):
                yield from apply(rest, made, schema, output=output, epoch=epoch)


def _one(
    step: MapBatches, batch: pa.RecordBatch, expected: pa.Schema | None, *, output: str, epoch: int
) -> list[pa.RecordBatch]:
    name = function_name(step.function)
    try:
        function = step.function
        result = function.within(batch, epoch) if isinstance(function, _Begun) else function(batch)
    except (TidegaugeError, MemoryError):
        raise
    except RowRefused as error:
        raise ExpressionFailed(output=output, epoch=epoch, detail=str(error)) from error
    except Exception as error:
        raise BatchFunctionFailed(function=name, output=output, error=said(error, where=True), epoch=epoch) from error
    if isinstance(result, pa.Table):
        made: list[pa.RecordBatch] = result.to_batches()
    elif isinstance(result, pa.RecordBatch):
        made = [result]
    else:
        raise WrongBatch(
            function=name, output=output, got=f"a {type(result).__name__}", expected="a pyarrow.RecordBatch"
        )
    if expected is None:
        return made
    got = [(field.name, field.type) for field in result.schema]
    if got != [(field.name, field.type) for field in expected]:
        raise WrongBatch(function=name, output=output, got=_columns(result.schema), expected=_columns(expected))
    return [pa.RecordBatch.from_arrays(one.columns, schema=expected) for one in made]


def _columns(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name}: {field.type}" for field in schema) + ")"
