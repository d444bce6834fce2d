"""The guarded form of row-wise steps: many outputs' steps run in one pass over the rows.

Steps are *row-wise* when each row's result depends on that row alone: filters and plain expressions. The steps of all
row-wise outputs run in one projection of the JVM, which gives every output one struct column, null where the output
drops the row. So that an expression never meets a row that an earlier filter removed, each is guarded by the filters
before it:

    plain      filter(c), select(e)
    guarded    CASE WHEN coalesce(CASE WHEN row IS NOT NULL THEN c END, false) THEN struct(e) END

`CASE WHEN` evaluates a branch only where its condition holds, so the guarded form raises where the plain one would,
and gives the rows that the plain one gives.

Whether steps are row-wise is asked of Spark, not guessed from their text: they are when the physical plan of the
plain form is projections and filters alone (no window, generator, subquery, Python function) and the guarded form
analyses to the same columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tidegauge.engine.spark.errors import quiet
from tidegauge.engine.spelling import ROW, Projection, SparkStep, packed, quoted
from tidegauge.job.plan import Filter
from tidegauge.reclock.columns import EPOCH

__all__ = ["Pick", "guarded", "narrow", "rowwise"]

_ROWWISE: Final = frozenset({"Project", "Filter", "MapInArrow", "Range", "LocalTableScan", "AdaptiveSparkPlan"})
_NODE: Final = re.compile(r"^[\s:+|-]*(?:\*\s*(?:\(\d+\))?\s*)?(\w+)")
_INNER_STAR: Final = re.compile(r"[(,]\s*\*")


@dataclass(frozen=True, slots=True)
class Pick:
    """A `Projection` in guarded form: expressions, each with the name that it has to be given, if any."""

    expressions: tuple[tuple[str, str | None], ...]


def narrow(planned: str) -> bool:
    """Whether a physical plan is projections, filters and Arrow functions alone, which keep rows in their order."""
    nodes = {found[1] for line in planned.splitlines() if line[:2] != "==" and (found := _NODE.match(line))}
    return nodes <= _ROWWISE


def rowwise(
    blank: Any, steps: Sequence[SparkStep], shapes: Sequence[Sequence[str]], *, planned: str, row: str
) -> tuple[Filter | Pick, ...] | None:
    """Return the guarded form of filters and projections, or None where they are not row-wise.

    blank: a frame before the steps. shapes: the names of the columns before each step and at the end. planned: the
    physical plan of the plain form. row: the type of its rows, as Spark writes it.
    """
    from pyspark.errors import AnalysisException

    if not narrow(planned):
        return None
    frame = blank.selectExpr(packed(blank.columns, ROW))
    ready: list[Filter | Pick] = []
    waiting: list[Filter] = []
    try:
        with quiet():
            for step, after in zip(steps, shapes[1:], strict=True):
                if isinstance(step, Filter):
                    waiting.append(step)
                elif isinstance(step, Projection):
                    picked = _picked(frame, waiting, step.expressions, after)
                    if picked is None:
                        return None
                    pick, frame = picked
                    ready += [*waiting, pick]
                    waiting = []
            if waiting:
                ready += waiting
                frame = guarded(frame, {ROW: (ROW, tuple(waiting))})
    except AnalysisException:
        return None
    return tuple(ready) if frame.schema[ROW].dataType.simpleString() == row else None


def _picked(
    frame: Any, filters: Sequence[Filter], picks: tuple[str, ...], after: Sequence[str]
) -> tuple[Pick, Any] | None:
    """Return a projection of rows packed in a struct, and the frame after filters and it; None where there is none.

    In a struct an expression without a name is called `col1`, so it is given the name that it has in the plain form.
    """
    if any(_INNER_STAR.search(expression) or expression.lstrip().startswith("*") for expression in picks):
        return None  # such a star would take in the columns that we carry beside the user's
    bare = Pick(tuple((e, None) for e in picks))
    made = guarded(frame, {ROW: (ROW, (*filters, bare))})
    names = made.schema[ROW].dataType.fieldNames()[:-1]
    if names == list(after):
        return bare, made
    if len(picks) != len(after):
        return None
    named = Pick(tuple((e, None if a == b else b) for e, a, b in zip(picks, names, after, strict=True)))
    return named, guarded(frame, {ROW: (ROW, (*filters, named))})


def guarded(frame: Any, outputs: Mapping[str, tuple[str, tuple[Filter | Pick, ...]]]) -> Any:
    """Return the frame with a struct column for each output: its feed's row after its steps, or null.

    outputs: by the name of the new column, the struct column that feeds it and the guarded steps. All outputs of one
    feed whose steps have one `Pick` at most are one projection.
    """
    waiting = {out: (feed, _segments(steps)) for out, (feed, steps) in outputs.items()}
    while waiting:
        feed = next(feed for feed, _ in waiting.values())
        mine = {out: segments for out, (source, segments) in waiting.items() if source == feed}
        replaced = {out: _expression(feed, segments[0]) for out, segments in mine.items()}
        kept = [name for name in frame.columns if name not in replaced]
        opened = frame.selectExpr(*kept, *([feed] if feed not in kept else []), f"{feed}.*")
        frame = opened.selectExpr(*kept, *(f"{text} AS {out}" for out, text in replaced.items()))
        for out, segments in mine.items():
            del waiting[out]
            if len(segments) > 1:
                waiting[out] = (out, segments[1:])
    return frame


_Segment: TypeAlias = "tuple[list[Filter], Pick | None]"


def _segments(steps: tuple[Filter | Pick, ...]) -> list[_Segment]:
    """Return the steps as filters each followed by one `Pick`, the last one perhaps without."""
    segments: list[_Segment] = [([], None)]
    for step in steps:
        filters, _ = segments[-1]
        if isinstance(step, Filter):
            filters.append(step)
        else:
            segments[-1] = (filters, step)
            segments.append(([], None))
    return segments if segments[-1][0] or len(segments) == 1 else segments[:-1]


def _expression(feed: str, segment: _Segment) -> str:
    """Return one segment as SQL over the columns of its feed.

    Each text of the user's was parsed alone before, so it is one whole expression; the line break ends its comments.
    """
    filters, pick = segment
    keep = f"{feed} IS NOT NULL"
    for step in filters:
        keep = f"coalesce(CASE WHEN {keep} THEN ({step.condition}\n) END, false)"
    row = feed
    if pick is not None:
        columns = [f"{e}\n" if name is None else f"({e}\n) AS {quoted(name)}" for e, name in pick.expressions]
        row = f"struct({', '.join([*columns, EPOCH.name])})"
    return f"CASE WHEN {keep} THEN {row} END"
