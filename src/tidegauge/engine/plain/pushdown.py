"""What the task that reads does of SQL steps: all of them, or dropping the rows that no output can keep.

A row that goes to the JVM and comes back is copied several times and passes through a second Python worker; a
comparison in Arrow costs next to nothing. So an output whose steps are understood wholly stays in the task, like one
of Arrow functions (`Chain`). For all others the task asks the filters as far as it understands them (`Prefilter`), as
databases push filters down to their scans; the JVM asks every filter again, whole and exactly.

Law: **a `Chain` gives the rows that Spark gives for the steps**, with the same values and in the same order. By
induction over the steps. An expression has Spark's value on each row and raises nothing (`expressions.py`). A filter
keeps the rows whose condition is true, in Spark as here; a row that it drops is seen by no later step here, and by
none in Spark that could raise. A select gives the expressions' values under the names that Spark's analysis gives,
and the types at its end have to be those of Spark's analysis, or there is no `Chain`. Of rows with an operation a
filter changes some before it drops others, and filters that follow each other are one of their conjunction; see
`tidegauge.operations`.

Law: **a row that a filter of Spark's keeps, or for which it raises, is never dropped here.** The argument:

1. A `Condition` is what `parser.py` understood of SQL. On each row it has the value that Spark gives, one of
   true, false and null, and to evaluate it raises nothing. `AND`, `OR` and `NOT` are those of three values.
2. An output's leading filters are one conjunction `c1 AND c2 AND ...` in the order in which they stand. Of it
   `KeptRows` has the first conjuncts that were understood, `c`. The rest, `r`, may be anything: it may raise.
3. Spark evaluates a conjunction from left to right and ends at the first that is false. So where `c` is false, `r` is
   not evaluated, the filter is false, and the row may go. Where `c` is true, the row stays.
4. Where `c` is null, `c AND r` is never true, but Spark may evaluate `r` to know whether it is false. So the row may
   go only where nothing else is evaluated (`closed`), for then a null keeps no row.
5. A row may go if it may go for every output of the feed. If one output has no such filter, none may.

>>> orders = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
>>> steps = [Filter("amount > 900"), Select(("id", "amount * 2 AS twice"))]
>>> large = chain(steps, [["id", "amount"], ["id", "twice"]], orders)
>>> large(pa.record_batch({"id": [1, 2], "amount": [5.0, 950.0]}, schema=orders)).to_pylist()
[{'id': 2, 'twice': 1900.0}]
>>> chain([Filter("abs(amount) > 900")], [["id", "amount"]], orders) is None
True
>>> from tidegauge.engine.plain.expressions import Among, Compare, Not
>>> rows = pa.record_batch({"id": [1, 2, 3, 4], "amount": [5.0, None, float("nan"), 950.0]})
>>> large, first = Not(Compare("amount", "<=", 900.0)), Among("id", (1,))
>>> Prefilter((KeptRows(large, closed=True),))(rows)["id"].to_pylist()
[3, 4]
>>> Prefilter((KeptRows(large, closed=False), KeptRows(first, closed=True)))(rows)["id"].to_pylist()
[1, 2, 3, 4]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute

from tidegauge.engine.plain.expressions import All, Arithmetic, Column, Condition, Value, computed, truth
from tidegauge.engine.plain.parser import projected, understood
from tidegauge.job.plan import Filter, Select, Step
from tidegauge.operations import OP, carries, filtered

__all__ = ["Chain", "KeptRows", "Prefilter", "chain"]

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see


@dataclass(frozen=True, slots=True)
class _Link:
    """Rows for which all conditions are true; of these the named values, or all columns where there are none.

    operating: whether the rows have operations.
    """

    conditions: tuple[Condition, ...]
    values: tuple[tuple[str, Value], ...]
    operating: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """Called with a batch that the steps are for, it returns what they give, as `schema`."""

    links: tuple[_Link, ...]
    schema: pa.Schema

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that pass all filters, as the last select gives them."""
        for link in self.links:
            batch = _through(link, batch)
        return batch


def chain(steps: Sequence[Step], names: Sequence[Sequence[str]], schema: pa.Schema) -> Chain | None:
    """Return steps over columns of `schema` as a chain, or None where they are not understood wholly.

    names: what Spark calls the columns after each step. A star is to be written out.
    """
    links: list[_Link] = []
    waiting: list[Condition] = []
    for step, known in zip(steps, names, strict=True):
        if isinstance(step, Filter):
            found = understood([step.condition], schema)
            if found is None or not found[1]:
                return None
            waiting.append(found[0])
        elif isinstance(step, Select):
            values = _named(step.expressions, known, schema)
            if not values:
                return None
            links.append(_Link(tuple(waiting), values, carries(schema)))
            waiting = []
            schema = pa.schema([(name, _type(value, schema)) for name, value in values])
        else:
            return None
    if waiting:
        links.append(_Link(tuple(waiting), (), carries(schema)))
    return Chain(tuple(links), schema)


def _named(expressions: Sequence[str], names: Sequence[str], schema: pa.Schema) -> tuple[tuple[str, Value], ...]:
    """Return the values of a select with Spark's names for them; none where one is not understood."""
    found = [projected(expression, schema) for expression in expressions]
    made = [
        (name, one[0]) for name, one in zip(names, found, strict=False) if one is not None and one[1] in {None, name}
    ]
    return tuple(made) if len(made) == len(found) == len(names) else ()


def _type(value: Value, schema: pa.Schema) -> pa.DataType:
    return schema.field(value.name).type if isinstance(value, Column) else pa.float64()


def _columns(value: Value) -> set[str]:
    sides = (value.left, value.right) if isinstance(value, Arithmetic) else (value,)
    return {side.name for side in sides if isinstance(side, Column)}


def _through(link: _Link, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that pass a link. Columns that nobody wants are dropped before rows are copied."""
    mask = truth(All(link.conditions), batch) if link.conditions else None
    if mask is not None and link.operating:
        left = filtered(batch[OP], mask)
        batch, mask = batch.set_column(batch.schema.get_field_index(OP), OP, left), pc.is_valid(left)
    if link.values:
        wanted = set[str]().union(*(_columns(value) for _, value in link.values))
        batch = batch.select([name for name in batch.schema.names if name in wanted])
    if mask is not None and mask.true_count < batch.num_rows:
        batch = batch.filter(mask)
    if not link.values:
        return batch
    return pa.RecordBatch.from_arrays(
        [computed(value, batch) for _, value in link.values], names=[name for name, _ in link.values]
    )


@dataclass(frozen=True, slots=True)
class KeptRows:
    """What one output may keep: rows whose condition is true, or null too unless it is all that is evaluated."""

    condition: Condition
    closed: bool


@dataclass(frozen=True, slots=True)
class Prefilter:
    """What the outputs of a feed may keep. Called with a batch of the feed, it returns the rows that must go on."""

    outputs: tuple[KeptRows, ...]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that some output may keep. The batch itself, if they are all."""
        wanted = [pc.fill_null(truth(kept.condition, batch), not kept.closed) for kept in self.outputs]
        mask = reduce(pc.or_, wanted)
        return batch if mask.true_count == batch.num_rows else batch.filter(mask)
