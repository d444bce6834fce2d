"""What the task that reads does of SQL steps: all of them, or dropping the rows that no output can keep.

A row that goes to the JVM and comes back is copied several times and passes through a second Python worker; a
comparison in Arrow costs next to nothing. So an output whose steps are understood wholly stays in the task, like one
of Arrow functions (`Chain`). For all others the task asks the filters as far as it understands them (`Prefilter`), as
databases push filters down to their scans; the JVM asks every filter again, whole and exactly.

Law: **a `Chain` gives the rows that Spark gives for the steps**, with the same values and in the same order. By
induction over the steps. An expression has Spark's value on each row and raises where Spark does (`evaluation.py`).
A filter keeps the rows whose condition is true, in Spark as here; a row that it drops is seen by no later step here,
and by none in Spark that could raise. Values that may raise are those of the last step, for Spark computes no value
before somebody wants it. A select gives the expressions' values under the names that Spark's analysis gives,
and the types at its end have to be those of Spark's analysis, or there is no `Chain`. Of rows with an operation a
filter changes some before it drops others, and filters that follow each other are one of their conjunction; see
`tidegauge.operations`.

Law: **a row that a filter of Spark's keeps, or for which it raises, is never dropped here.** The argument:

1. A condition is what `parser.understood` made of SQL. On each row it has the value that Spark gives, one of true,
   false and null, and to evaluate it raises nothing. `AND`, `OR` and `NOT` are those of three values.
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
>>> chain([Filter("md5(user) > 'f'")], [["id", "amount"]], orders) is None
True
>>> from tidegauge.engine.plain import understood
>>> rows = pa.record_batch({"id": [1, 2, 3, 4], "amount": [5.0, None, float("nan"), 950.0]})
>>> large, first = (understood([text], orders)[0] for text in ("amount > 900", "id IN (1)"))
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

from tidegauge.engine.plain.certainty import certain
from tidegauge.engine.plain.evaluation import computed, raises, truth
from tidegauge.engine.plain.expressions import Column, Either, Expression, Literal, call, columns, inverted
from tidegauge.engine.plain.parser import held, projected
from tidegauge.job.plan import Filter, Select, Step
from tidegauge.operations import BEFORE, DELETE, INSERT, OP, carries, filtered

__all__ = ["Chain", "KeptRows", "Prefilter", "chain", "operating"]

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see


@dataclass(frozen=True, slots=True)
class _Link:
    """Rows for which all conditions are true; of these the named values, or all columns where there are none.

    operating: whether the rows have operations.
    """

    conditions: tuple[Expression, ...]
    values: tuple[tuple[str, Expression], ...]
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
    waiting: list[Expression] = []
    for step, known in zip(steps, names, strict=True):
        if links and any(raises(value) for _, value in links[-1].values):
            return None
        if isinstance(step, Filter):
            condition = held(step.condition, schema)
            if condition is None:
                return None
            waiting.append(condition)
        elif isinstance(step, Select):
            values = _named(step.expressions, known, schema)
            if not values:
                return None
            links.append(_Link(tuple(waiting), values, carries(schema)))
            waiting = []
            schema = pa.schema([(name, value.kind) for name, value in values])
        else:
            return None
    if waiting:
        links.append(_Link(tuple(waiting), (), carries(schema)))
    return Chain(tuple(links), schema)


def _named(expressions: Sequence[str], names: Sequence[str], schema: pa.Schema) -> tuple[tuple[str, Expression], ...]:
    """Return the values of a select with Spark's names for them; none where one is not understood."""
    found = [projected(expression, schema) for expression in expressions]
    made = [
        (name, one[0]) for name, one in zip(names, found, strict=False) if one is not None and one[1] in {None, name}
    ]
    sure = len(made) == len(found) == len(names) and certain([value for _, value in made])
    return tuple(made) if sure else ()


def _through(link: _Link, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that pass a link. Columns that nobody wants are dropped before rows are copied."""
    mask = _passing(link, batch) if link.conditions else None
    if mask is not None and link.operating:
        left = filtered(batch[OP], mask)
        batch, mask = batch.set_column(batch.schema.get_field_index(OP), OP, left), pc.is_valid(left)
    if link.values:
        wanted = set[str]().union(*(columns(value) for _, value in link.values)) or {batch.schema.names[0]}
        batch = batch.select([name for name in batch.schema.names if name in wanted])
    if mask is not None and mask.true_count < batch.num_rows:
        batch = batch.filter(mask)
    if not link.values:
        return batch
    made = computed([value for _, value in link.values], batch)
    return pa.RecordBatch.from_arrays(made, names=[name for name, _ in link.values])


def _passing(link: _Link, batch: pa.RecordBatch) -> Any:
    """Return whether all conditions are true of each row. None is asked of a row that passed not those before it, nor
    of a `delete`, which passes anyway.
    """
    asked = mask = None
    if link.operating and any(map(raises, link.conditions)):
        asked = pc.fill_null(pc.not_equal(batch[OP], DELETE), fill_value=True)
    for condition in link.conditions:
        true = pc.fill_null(truth(condition, batch, asked), fill_value=False)
        asked = true if asked is None else pc.and_(asked, true)
        mask = true if mask is None else pc.and_(mask, true)
    return mask


def operating(condition: Expression) -> Expression:
    """Return which rows with operations a filter may keep: it drops none but some with two of the words.

    A row without an operation is for the check of rows.
    """
    word = Column(OP, pa.string())
    words = Literal((INSERT, BEFORE), pa.list_(pa.string()))
    others = inverted(call("among", word, words, kind=pa.bool_()))
    return Either((call("is null", word, kind=pa.bool_()), others, condition))


@dataclass(frozen=True, slots=True)
class KeptRows:
    """What one output may keep: rows whose condition is true, or null too unless it is all that is evaluated."""

    condition: Expression
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
