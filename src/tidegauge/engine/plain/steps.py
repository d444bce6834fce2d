"""Plain SQL without Spark: filters and selects that are understood wholly, with columns by rules of our own.

Law: **everything accepted here has the names, the types and the rows that Spark gives for it.** The rows are those of
a `Chain` (`pushdown`). Elsewhere, names and types come from Spark's analysis; here only the certain ones are used:

    a column, named exactly as it is    its name, unless `AS` gives another, and its type as Spark has it
    any other expression                the name that `AS` gives, which it has to have; the type that it has for Spark

All else is refused by name of the step (`NeedsSpark`), also what Spark would accept.

>>> from tidegauge.job.plan import Filter, Select
>>> orders = pa.schema([("id", pa.uint32()), ("amount", pa.float64())])
>>> steps = (Filter("amount > 900"), Select(("id", "amount * 1.2 AS gross")))
>>> [large], columns = without_spark(steps, orders, output="large")
>>> large.function(pa.record_batch({"id": [1, 2], "amount": [5.0, 1000.0]}, schema=orders)).to_pylist()
[{'id': 2, 'gross': 1200.0}]
>>> columns
id: int64
gross: double
>>> without_spark((Filter("md5(id) > 'f'"),), orders, output="large")
Traceback (most recent call last):
tidegauge.errors.flow.NeedsSpark: TG-0106: output 'large' has the step filter("md5(id) > 'f'"), ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from tidegauge.engine.arrowtypes import carried
from tidegauge.engine.plain import Chain, chain, projected, unknown
from tidegauge.engine.spelling import chosen, said_as, written_as
from tidegauge.errors.flow import NeedsSpark, ReservedColumn, UnknownColumn
from tidegauge.job.arrow import in_arrow, is_arrow
from tidegauge.job.functions import check_names, conform
from tidegauge.job.plan import Changelog, Filter, MapBatches, Select, Step
from tidegauge.operations import OP, check

__all__ = ["without_spark"]


@dataclass(frozen=True, slots=True)
class _Plain:
    """A chain as an Arrow function, for batches whose columns Spark has as `given`."""

    given: pa.Schema
    chain: Chain

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self.chain(conform(batch, self.given))


def without_spark(
    steps: Sequence[Step], schema: pa.Schema, *, output: str
) -> tuple[tuple[MapBatches, ...], pa.Schema]:
    """Return the steps of an output over columns of `schema` as Arrow functions alone, and the columns they give.

    Raises `NeedsSpark` for a step that is not understood, `UnknownColumn`, `NoSparkType`, the errors of names that
    steps give, and those of `in_arrow`.
    """
    functions: list[MapBatches] = []
    for arrow, group in groupby(steps, key=is_arrow):
        if arrow:
            mine, schema = in_arrow([step for step in group if is_arrow(step)], schema, output=output)
            functions += mine
        else:
            check_names(schema.names, f"the stream of output {output!r}")
            given = carried(schema, where=f"the stream of output {output!r}")
            made = _chain(tuple(group), given, output=output)
            schema = made.schema
            functions.append(MapBatches(_Plain(given, made), schema))
    return tuple(functions), schema


def _chain(steps: Sequence[Step], schema: pa.Schema, *, output: str) -> Chain:
    """Return steps over columns as Spark has them as a chain."""
    written: list[Filter | Select] = []
    names: list[list[str]] = []
    known = list(schema.names)
    made: Chain | None = None
    for step in steps:
        if not isinstance(step, Filter | Select | Changelog):
            raise NeedsSpark(output=output, step=written_as(step))
        before = schema if made is None else made.schema
        plain = step if isinstance(step, Filter) else Select(tuple(chosen(step, known)))
        after = _names(plain, before) if isinstance(plain, Select) else known
        made = chain([*written, plain], [*names, after], schema)
        if made is None:
            raise _refused(plain, before, output, step=step)
        where = f"{said_as(step)} of output {output!r}"
        if after.count(OP) > 1:
            raise ReservedColumn(where=where, column=OP)
        check_names(after, where)
        check(made.schema, where)
        written, names, known = [*written, plain], [*names, after], after
    if made is None:
        raise ValueError("no steps")
    return made


def _names(step: Select, schema: pa.Schema) -> list[str]:
    """Return the names that a select gives, as far as they are certain."""
    found = [projected(text, schema) for text in step.expressions]
    return [one[1] for one in found if one is not None and one[1] is not None]


def _refused(plain: Filter | Select, schema: pa.Schema, output: str, *, step: Step) -> NeedsSpark | UnknownColumn:
    """Return the error of a step that is not understood: a missing column, or the need for Spark."""
    texts = plain.expressions if isinstance(plain, Select) else (plain.condition,)
    for text in texts:
        if (column := unknown(text, schema)) is not None:
            return UnknownColumn(column=column, where=f"{said_as(step)} of output {output!r}", known=schema.names)
    return NeedsSpark(output=output, step=written_as(step))
