"""Steps on Spark: what columns they give, and whether many outputs' steps can run in one pass over the rows.

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
analyses to the same columns. All else takes the general way: a branch of its own over the rows kept by Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from tidegauge.errors.engine import LostEpoch, TransformFailed
from tidegauge.errors.flow import ReservedColumn
from tidegauge.pipeline.engine.arrowtypes import arrow_schema, carried, spark_schema
from tidegauge.pipeline.engine.hops import mapping
from tidegauge.pipeline.engine.parts import stream_schema
from tidegauge.pipeline.engine.prefilter import Kept
from tidegauge.pipeline.engine.prefiltersql import understood
from tidegauge.pipeline.engine.session import plan_text
from tidegauge.pipeline.engine.sparkerrors import analysis_error, quiet
from tidegauge.pipeline.functions import (
    INTERNAL,
    check_names,
    function_name,
    result_schema,
    said,
    with_epoch,
)
from tidegauge.pipeline.job import Filter, MapBatches, OutputPlan, Select, Step, Transform
from tidegauge.reclock.columns import EPOCH

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Pick", "Prepared", "applied", "guarded", "packed", "prepare"]

_ROW: Final = INTERNAL + "row"
_ROWWISE: Final = frozenset({"Project", "Filter", "MapInArrow", "Range", "LocalTableScan", "AdaptiveSparkPlan"})
_NODE: Final = re.compile(r"^[\s:+|-]*(?:\*\s*(?:\(\d+\))?\s*)?(\w+)")
_EPOCH_ALONE: Final = re.compile(r"\s*`?_epoch`?\s*", re.IGNORECASE)
_INNER_STAR: Final = re.compile(r"[(,]\s*\*")


@dataclass(frozen=True, slots=True)
class Pick:
    """A `Select` in guarded form: expressions, each with the name that it has to be given, if any."""

    expressions: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """An output's steps by where they run: before Spark (`leading`), on Spark (`steps`), after it (`trailing`).

    made: what `leading` gives. feed: the same as Spark takes it, with `_epoch`. rows: what `steps` give. schema: what
    is staged. rowwise: the guarded steps, or None where they need a branch of their own. kept: which rows of the feed
    the filters with which `steps` begin may keep, or None where that cannot be told outside of Spark.
    """

    plan: OutputPlan
    leading: tuple[MapBatches, ...]
    made: pa.Schema
    feed: pa.Schema
    steps: tuple[Step, ...]
    rows: pa.Schema
    trailing: tuple[MapBatches, ...]
    schema: pa.Schema
    rowwise: tuple[Filter | Pick, ...] | None
    kept: Kept | None


def prepare(plan: OutputPlan, source_schema: pa.Schema, session: Any) -> Prepared:
    """Analyse an output's steps on a session. No job runs. Raises what is wrong with a step."""
    leading = _functions(plan.steps)
    rest = plan.steps[len(leading) :]
    trailing = _functions(rest[::-1])[::-1]
    steps = rest[: len(rest) - len(trailing)]
    made = result_schema(leading, stream_schema(plan, source_schema), output=plan.name)
    where = f"the stream of output {plan.name!r}"
    check_names(made.names, where)
    feed = with_epoch(carried(made, where=where))
    blank = session.range(0, 1, 1, 1).mapInArrow(_nothing, spark_schema(feed))
    frame = blank
    shapes = [feed.names[:-1]]
    for step in steps:
        frame = applied(frame, step, plan.name)
        shapes.append(_columns(frame))
    where = f"the result of output {plan.name!r}"
    rows = arrow_schema(_fields(frame), where=where)
    schema = with_epoch(result_schema(trailing, rows, output=plan.name))
    rowwise = _rowwise(blank, frame, steps, shapes)
    kept = None if _reserves_words(session) else _kept(steps, feed, guarded=rowwise is not None)
    return Prepared(plan, leading, made, feed, steps, rows, trailing, schema, rowwise, kept)


def _kept(steps: tuple[Step, ...], feed: pa.Schema, *, guarded: bool) -> Kept | None:
    """Return which rows of a feed the filters with which steps begin may keep.

    Later steps are guarded against rows whose condition is null only in the guarded form: elsewhere Spark may join
    their filters to these.
    """
    filters = takewhile(lambda step: isinstance(step, Filter), steps)
    found = understood([step.condition for step in filters if isinstance(step, Filter)], feed)
    if found is None:
        return None
    condition, whole = found
    return Kept(condition, closed=whole and guarded)


def _reserves_words(session: Any) -> bool:
    """Return whether a session takes bare words as its own that name columns elsewhere, such as `user`."""
    return str(session.conf.get("spark.sql.ansi.enforceReservedKeywords", "false")).lower() != "false"


def _functions(steps: tuple[Step, ...]) -> tuple[MapBatches, ...]:
    """Return the Arrow functions with which the steps begin."""
    return tuple(
        step for step in takewhile(lambda step: isinstance(step, MapBatches), steps) if isinstance(step, MapBatches)
    )


def _nothing(_batches: Any) -> Any:
    return iter(())


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _references(names: list[str]) -> list[Any]:
    from pyspark.sql import functions as sql

    return [sql.col(_quoted(name)) for name in names]


def _fields(frame: Any, *, epoch: bool = False) -> StructType:
    """Return a frame's columns other than `_epoch`, which comes last if it is asked for."""
    from pyspark.sql.types import StructType

    fields = frame.schema.fields
    return StructType(
        [f for f in fields if f.name != EPOCH.name] + [f for f in fields if epoch and f.name == EPOCH.name]
    )


def _columns(frame: Any) -> list[str]:
    """Return the names of a frame's columns other than `_epoch`."""
    return [name for name in frame.schema.names if name != EPOCH.name]


def packed(columns: Sequence[str], name: str) -> str:
    """Return the SQL that makes one struct of columns, `_epoch` last."""
    user = [_quoted(column) for column in columns if column != EPOCH.name]
    return f"struct({', '.join([*user, EPOCH.name])}) AS {name}"


def applied(frame: Any, step: Step, output: str) -> Any:
    """Return the frame after one step, analysed. `_epoch` stays."""
    from pyspark.errors import AnalysisException

    known = _columns(frame)
    match step:
        case MapBatches():
            given = arrow_schema(_fields(frame), where=f"the stream of output {output!r}")
            made = result_schema([step], given, output=output)
            result = with_epoch(carried(made, where=f"map_batches of output {output!r}"))
            hop = mapping(step, given, made, result, output=output)
            return frame.selectExpr(packed(frame.columns, _ROW)).mapInArrow(hop, spark_schema(result))
        case Transform(function):
            return _transformed(frame, function, output, known)
        case Filter(condition):
            name, change = "filter", partial(frame.filter, condition)
        case Select(expressions):
            name, change = "select", partial(_selected, frame, expressions, known, output)
    try:
        with quiet():
            changed = change()
            changed.schema  # noqa: B018 - on Connect the plan is analysed when its schema is asked for
    except AnalysisException as error:
        raise analysis_error(error, step=name, output=output, known=known) from error
    return changed


def _chosen(expressions: tuple[str, ...], known: list[str]) -> list[str]:
    """Return the expressions with `*` written out and without mentions of `_epoch`, which stays anyway."""
    chosen: list[str] = []
    for expression in expressions:
        if expression.strip() == "*":
            chosen += map(_quoted, known)
        elif _EPOCH_ALONE.fullmatch(expression) is None:
            chosen.append(expression)
    return chosen


def _selected(frame: Any, expressions: tuple[str, ...], known: list[str], output: str) -> Any:
    where = f"select of output {output!r}"
    chosen = _chosen(expressions, known)
    for expression in chosen:
        if EPOCH.name in expression.lower():
            names = frame.selectExpr(expression).columns
            if any(name.lower() == EPOCH.name for name in names):
                raise ReservedColumn(where=where, column=EPOCH.name)
    picked = frame.selectExpr(*chosen, _quoted(EPOCH.name))
    if picked.columns.count(EPOCH.name) > 1:  # a star with exceptions brought it along
        picked = frame.selectExpr(*chosen)
    check_names(_columns(picked), where)
    return picked


def _transformed(frame: Any, function: Any, output: str, known: list[str]) -> Any:
    from pyspark.sql import DataFrame

    name = function_name(function)
    try:
        result = function(frame)
        if not isinstance(result, DataFrame):
            raise TypeError(f"it returned a {type(result).__name__}")
        types = {field.name: field.dataType.simpleString() for field in result.schema}
    except Exception as error:
        raise TransformFailed(
            function=name, output=output, detail=said(error, where=True), known=[*known, EPOCH.name]
        ) from error
    if types.get(EPOCH.name) != "bigint" or result.columns.count(EPOCH.name) != 1:
        got = ", ".join(f"{column} {kind}" for column, kind in types.items())
        raise LostEpoch(function=name, output=output, got=f"({got})")
    check_names(_columns(result), f"transform({name}) of output {output!r}")
    return result


def _rowwise(
    blank: Any, plain: Any, steps: tuple[Step, ...], shapes: list[list[str]]
) -> tuple[Filter | Pick, ...] | None:
    """Return the guarded form of steps, or None where they are not row-wise."""
    from pyspark.errors import AnalysisException

    if not all(isinstance(step, Filter | Select) for step in steps):
        return None
    nodes = {found[1] for line in plan_text(plain).splitlines() if line[:2] != "==" and (found := _NODE.match(line))}
    if not nodes <= _ROWWISE:
        return None
    frame = blank.selectExpr(packed(blank.columns, _ROW))
    ready: list[Filter | Pick] = []
    waiting: list[Filter] = []
    try:
        with quiet():
            for step, before, after in zip(steps, shapes, shapes[1:], strict=False):
                if isinstance(step, Filter):
                    waiting.append(step)
                elif isinstance(step, Select):
                    picked = _picked(frame, waiting, step.expressions, before, after)
                    if picked is None:
                        return None
                    pick, frame = picked
                    ready += [*waiting, pick]
                    waiting = []
            if waiting:
                ready += waiting
                frame = guarded(frame, {_ROW: (_ROW, tuple(waiting))})
    except AnalysisException:
        return None
    got = frame.schema[_ROW].dataType
    return tuple(ready) if got.simpleString() == _fields(plain, epoch=True).simpleString() else None


def _picked(
    frame: Any, filters: Sequence[Filter], expressions: tuple[str, ...], before: list[str], after: list[str]
) -> tuple[Pick, Any] | None:
    """Return a `Select` for rows packed in a struct, and the frame after filters and it; None where it cannot be had.

    In a struct an expression without a name is called `col1`, so it is given the name that it has in the plain form.
    """
    chosen = _chosen(expressions, before)
    if any(_INNER_STAR.search(expression) or expression.lstrip().startswith("*") for expression in chosen):
        return None  # such a star would take in the columns that we carry beside the user's
    bare = Pick(tuple((e, None) for e in chosen))
    made = guarded(frame, {_ROW: (_ROW, (*filters, bare))})
    names = made.schema[_ROW].dataType.fieldNames()[:-1]
    if names == after:
        return bare, made
    if len(chosen) != len(after):
        return None
    named = Pick(tuple((e, None if a == b else b) for e, a, b in zip(chosen, names, after, strict=True)))
    return named, guarded(frame, {_ROW: (_ROW, (*filters, named))})


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
        columns = [f"{e}\n" if name is None else f"({e}\n) AS {_quoted(name)}" for e, name in pick.expressions]
        row = f"struct({', '.join([*columns, EPOCH.name])})"
    return f"CASE WHEN {keep} THEN {row} END"
