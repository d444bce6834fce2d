"""Whether the functions of a flow depend on their rows alone, tried on a few rows before any world is run.

    law                                                                broken
    a function takes all that its columns can hold                     `StepRaises`
    it gives the same rows for the same rows                           `StepDrawsChance`, `StepKeepsState`
    rows of one partition may come before those of another, or after   `StepSeesOrder`
    the rows of an epoch may be cut into batches anywhere              `StepSeesCuts`
    another process gives the same rows                                `StepSeesProcess`

A law is two ways to give a function the same rows. What it returns is compared in no order, so it may return its rows
in any, and fewer or more of them. Only where a later step keeps the first row of a key does their order count, too.
Where the two ways differ, rows are left out as long as they do.

Invariant: what an error shows has happened, with these rows.

>>> import tidegauge as tg
>>> def total(batch):
...     return pa.record_batch({"total": [batch.num_rows]})
>>> def make_flow():
...     flow = tg.Dataflow("shop", store="sqlite:///shop.db")
...     orders = flow.source("orders", tg.GeneratorSource(columns="id long not null"))
...     flow.sink("lake", orders.map_batches(total), tg.ParquetSink("lake"))
...     return flow
>>> definite(Ground.of(make_flow))
Traceback (most recent call last):
    ...
tidegauge.errors.simulation.StepSeesCuts: TG-0954: output 'lake': map_batches(total) depends on how rows are cut ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import pyarrow as pa

from tidegauge.engine.plain.steps import without_spark
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.engine import ExpressionFailed
from tidegauge.errors.flow import BatchFunctionFailed
from tidegauge.errors.simulation import (
    StepDrawsChance,
    StepKeepsState,
    StepRaises,
    StepSeesCuts,
    StepSeesOrder,
    StepSeesProcess,
)
from tidegauge.job.functions import apply, columns_of, function_name, result_schema
from tidegauge.job.plan import Dedupe, MapBatches, OutputPlan
from tidegauge.sources.union import UnionSource
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.elsewhere import Elsewhere
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.memory import changed, kept
from tidegauge.testing.simulation.sample import sample, sample_of_errors, texts
from tidegauge.testing.simulation.shrink import smallest
from tidegauge.testing.simulation.writers import upstream_of

__all__ = ["definite"]

TRIES: Final = 120
"""How often rows are left out, for one example."""
THROWS: Final = 5
"""How often a function is tried on fewer rows: chance may say the same twice."""
_SHOWN: Final = 4

_Rows: TypeAlias = "Counter[str]"
_Parts: TypeAlias = Sequence[pa.RecordBatch]
_Ways: TypeAlias = tuple[_Rows, _Rows]
_Law: TypeAlias = Callable[["_Tried", _Parts], _Ways]


@dataclass(frozen=True, slots=True)
class _Tried:
    """A function of an output. fresh: makes it anew with its flow, so that it remembers nothing of earlier calls.

    ordered: whether a later step depends on the order of what it returns.
    """

    output: str
    name: str
    fresh: Callable[[], MapBatches]
    gives: pa.Schema
    elsewhere: Elsewhere | None
    ordered: bool

    def batches(self, step: MapBatches, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return what the function makes of a batch. Raises `BatchFunctionFailed` and `WrongBatch`."""
        return list(apply([step], batch, self.gives, output=self.output, epoch=0))

    def rows(self, step: MapBatches, *given: pa.RecordBatch) -> _Rows:
        """Return the rows that it makes of batches, with their numbers where their order counts."""
        made = [made for batch in given for made in self.batches(step, batch)]
        return self.told(text for batch in made for text in texts(batch))

    def told(self, rows: Iterable[str]) -> _Rows:
        """Return rows in the form that is compared."""
        return Counter(f"{at}: {row}" for at, row in enumerate(rows, 1)) if self.ordered else Counter(rows)


def definite(ground: Ground, *, elsewhere: Elsewhere | None = None) -> None:
    """Raise an error with a small example for the first function of a flow that breaks a law.

    elsewhere: another process; the last law is not tried without one.

    Raises `StepRaises`, `StepDrawsChance`, `StepKeepsState`, `StepSeesOrder`, `StepSeesCuts`, `StepSeesProcess`, and
    as a `World` does for sources that cannot be simulated.
    """
    for name, plan in ground.spec.outputs.items():
        if any(isinstance(step, MapBatches) for step in plan.steps):
            source = ground.spec.sources[plan.source]
            columns = source.schema if isinstance(source, UnionSource) else None
            if columns is None:
                columns = upstream_of(ground.spec.name, plan.source, source, VirtualClock(), seed=0).schema
            _output(ground, name, columns_of(columns, plan.channel), elsewhere)


def _output(ground: Ground, name: str, schema: pa.Schema, elsewhere: Elsewhere | None) -> None:
    """Try the functions of an output one after the other, each on the rows that come to it."""

    def fresh(number: int) -> MapBatches:
        return without_spark(ground.again().outputs[name].steps, schema, output=name)[0][number]

    mine = ground.spec.outputs[name].steps
    parts, others = (_sample(ground.spec.outputs[name], schema, seed=seed) for seed in (0, 1))
    given = schema
    for number, step in enumerate(without_spark(mine, schema, output=name)[0]):
        given = result_schema([step], given, output=name)
        at = next((at for at, one in enumerate(mine) if getattr(one, "function", None) is step.function), None)
        ordered = at is not None and any(isinstance(one, Dedupe) for one in mine[at:])
        tried = _Tried(name, function_name(step.function), partial(fresh, number), given, elsewhere, ordered)
        if at is not None:  # it is one of the flow's own
            _try(tried, parts, others)
        parts, others = ([_joined(_accepted(tried, step, part), given) for part in some] for some in (parts, others))


def _accepted(tried: _Tried, step: MapBatches, part: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return what a step makes of a sample, without the rows that its expressions cannot take."""
    try:
        return tried.batches(step, part)
    except ExpressionFailed:
        rows = [part.slice(row, 1) for row in range(part.num_rows)]
        return [made for row in rows if len(rows) > 1 for made in _accepted(tried, step, row)]


def _sample(plan: OutputPlan, schema: pa.Schema, *, seed: int) -> _Parts:
    return sample_of_errors(plan.source, seed=seed) if plan.channel == "errors" else sample(schema, seed=seed)


def _try(tried: _Tried, parts: _Parts, others: _Parts) -> None:
    for law, broken in _LAWS:
        try:
            ways = law(tried, parts)
        except BatchFunctionFailed:
            raise _raising(tried, parts) from None
        if ways[0] != ways[1]:
            raise broken(tried, _example(tried, law, parts, ways), others)


# The laws: two ways to give a function rows.


def _again(tried: _Tried, parts: _Parts) -> _Ways:
    step, whole = tried.fresh(), pa.concat_batches(parts)
    return tried.rows(step, whole), tried.rows(step, whole)


def _after_others(tried: _Tried, parts: _Parts) -> _Ways:
    begun = tried.fresh()
    tried.rows(begun, *parts[:-1])
    return tried.rows(tried.fresh(), parts[-1]), tried.rows(begun, parts[-1])


def _swapped(tried: _Tried, parts: _Parts) -> _Ways:
    tried = replace(tried, ordered=False)  # the rows come in another order, and may leave in another
    step = tried.fresh()
    return tried.rows(step, pa.concat_batches(parts)), tried.rows(step, pa.concat_batches(parts[::-1]))


def _cut(tried: _Tried, parts: _Parts) -> _Ways:
    step, whole = tried.fresh(), pa.concat_batches(parts)
    return tried.rows(step, whole), tried.rows(step, *(whole.slice(row, 1) for row in range(whole.num_rows)))


def _there(tried: _Tried, parts: _Parts) -> _Ways:
    step, whole = tried.fresh(), pa.concat_batches(parts)
    here = tried.rows(step, whole)
    there = None if tried.elsewhere is None else tried.elsewhere.rows(tried.fresh().function, whole, tried.gives)
    return here, here if there is None else tried.told(there)


# A small example of what is broken.


@dataclass(frozen=True, slots=True)
class _Example:
    """Rows, and what a function made of them in two ways."""

    rows: str
    first: str
    second: str


def _example(tried: _Tried, law: _Law, parts: _Parts, ways: _Ways) -> _Example:
    """Return the smallest example that was seen."""
    seen = [(parts, ways)]

    def breaks(places: Sequence[tuple[int, int]]) -> bool:
        some = _taken(parts, places)
        try:
            for _ in range(THROWS):
                ways = law(tried, some)
                if ways[0] != ways[1]:
                    seen.append((some, ways))
                    return True
        except BatchFunctionFailed:
            pass
        return False

    smallest(_places(parts), breaks, most=TRIES)
    some, (first, second) = seen[-1]
    return _Example(_told(some), _listed(first.elements()), _listed(second.elements()))


def _raising(tried: _Tried, parts: _Parts) -> StepRaises:
    """Return the error of a function that raises, with few rows for which it does."""
    step, seen = tried.fresh(), list[tuple[_Parts, str]]()

    def raises(places: Sequence[tuple[int, int]]) -> bool:
        some = _taken(parts, places)
        try:
            tried.rows(step, pa.concat_batches(some))
        except BatchFunctionFailed as failed:
            seen.append((some, str(failed.evidence["error"])))
            return True
        return False

    every = _places(parts)
    for places in (every, *([place] for place in every)):
        if raises(places):
            smallest(places, raises, most=TRIES)
            break
    some, error = seen[-1] if seen else (parts, "an error, but not twice")
    return StepRaises(output=tried.output, step=tried.name, rows=_told(some), error=error)


def _differing(tried: _Tried, found: _Example, others: _Parts) -> TidegaugeError:
    """Return the error of a function that gives other rows for the same: it keeps something, or it is chance."""
    names = _keeps(tried, others)
    return _error(StepKeepsState, tried, found, kept=names) if names else _error(StepDrawsChance, tried, found)


def _kept(tried: _Tried, found: _Example, others: _Parts) -> TidegaugeError:
    return _error(StepKeepsState, tried, found, kept=_keeps(tried, others) or ["something"])


def _keeps(tried: _Tried, others: _Parts) -> list[str]:
    """Return the names of what the function changes while it runs, on rows that it has not seen."""
    step = tried.fresh()
    before = kept(step.function)
    tried.rows(step, *others)
    return changed(before, kept(step.function))


def _error(kind: type[TidegaugeError], tried: _Tried, found: _Example, **more: object) -> TidegaugeError:
    return kind(output=tried.output, step=tried.name, rows=found.rows, first=found.first, second=found.second, **more)


_LAWS: Final[Sequence[tuple[_Law, Callable[[_Tried, _Example, _Parts], TidegaugeError]]]] = (
    (_again, _differing),
    (_after_others, _kept),
    (_swapped, lambda tried, found, _others: _error(StepSeesOrder, tried, found)),
    (_cut, lambda tried, found, _others: _error(StepSeesCuts, tried, found)),
    (_there, lambda tried, found, _others: _error(StepSeesProcess, tried, found)),
)
"""In this order: what one finds, those after it may find too, but say less well."""


# Rows.


def _places(parts: _Parts) -> list[tuple[int, int]]:
    """Return where each row is: its part and its number there."""
    return [(part, row) for part, batch in enumerate(parts) for row in range(batch.num_rows)]


def _taken(parts: _Parts, places: Sequence[tuple[int, int]]) -> _Parts:
    """Return some rows of parts."""
    rows: list[list[int]] = [[] for _ in parts]
    for part, row in places:
        rows[part].append(row)
    return [batch.take(pa.array(mine, pa.int64())) for batch, mine in zip(parts, rows, strict=True)]


def _joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=schema)


def _told(parts: _Parts) -> str:
    return ", then ".join(_listed(texts(part)) for part in parts if part.num_rows)


def _listed(texts: Iterable[str]) -> str:
    """Return rows for people."""
    listed = list(texts)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return (", ".join(listed[:_SHOWN]) or "no rows") + more
