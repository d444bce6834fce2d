"""Steps on Spark: which columns they give, and in which of three ways they run.

Invariant: whatever the way, the rows are those that Spark gives for the steps literally. The ways, the cheapest
first:

    in the task that reads                      what is understood wholly       `pushdown`
    in one pass over the rows, for all outputs  what is row-wise                `guarded`
    a branch over rows kept by Spark            all else

and Arrow functions that stand before or after the steps run in the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegauge.engine.arrowtypes import arrow_schema, carried, spark_schema
from tidegauge.engine.parts import stream_schema
from tidegauge.engine.plain import KeptRows, chain, operating, understood
from tidegauge.engine.plain.steps import without_spark
from tidegauge.engine.spark.errors import analysis_error, quiet, row_error
from tidegauge.engine.spark.guarded import Pick, narrow, rowwise
from tidegauge.engine.spark.hops import mapping
from tidegauge.engine.spark.lasting import lasts
from tidegauge.engine.spark.session import is_connect, plan_text
from tidegauge.engine.spelling import ROW, Projection, SparkStep, chosen, packed, quoted, said_as, spelt, written_as
from tidegauge.errors.engine import LostEpoch, LostOperation, SessionNotShared, TransformFailed
from tidegauge.errors.flow import NeedsSpark, ReservedColumn, UnknownColumn
from tidegauge.errors.sail import NotOnSail
from tidegauge.errors.steps import NoOrderOfRows
from tidegauge.job.arrow import in_arrow, leading
from tidegauge.job.functions import (
    check_names,
    function_name,
    result_schema,
    said,
    with_epoch,
    without_epoch,
)
from tidegauge.job.plan import (
    Changelog,
    Dedupe,
    Filter,
    GivenStep,
    MadeStep,
    MapBatches,
    OutputPlan,
    Select,
    Step,
    Transform,
)
from tidegauge.operations import OP, carries, check
from tidegauge.reclock.columns import EPOCH

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Prepared", "applied", "prepare"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """An output's steps by where they run: before Spark (`leading`), on Spark (`steps`), after it (`trailing`).

    made: the result of `leading`. feed: the same in Spark's form, with `_epoch`. rows: the result of `steps`. schema:
    of the staged rows. rowwise: the guarded steps, or None if they need a branch of their own. kept: the rows of the
    feed that the first filters of `steps` may keep, or None if only Spark can tell. alone: Arrow functions that give
    the same rows in the task that reads, made for rows of `given`; or None if Spark is needed. lasting: whether
    `rowwise` gives the same in each job that it is planned for, so that one plan will do for all.
    """

    plan: OutputPlan
    leading: tuple[MapBatches, ...]
    made: pa.Schema
    feed: pa.Schema
    steps: tuple[SparkStep, ...]
    rows: pa.Schema
    trailing: tuple[MapBatches, ...]
    schema: pa.Schema
    rowwise: tuple[Filter | Pick, ...] | None
    kept: KeptRows | None
    alone: tuple[MapBatches, ...] | None
    given: pa.Schema
    lasting: bool = False


def prepare(plan: OutputPlan, source_schema: pa.Schema, session: Any) -> Prepared:
    """Analyse an output's steps on a session. No job runs. Raises the error of a step."""
    before = leading(plan.steps)
    rest = plan.steps[len(before) :]
    after = leading(rest[::-1])[::-1]
    wanted = rest[: len(rest) - len(after)]
    stream = stream_schema(plan, source_schema)
    first, made = in_arrow(before, stream, output=plan.name)
    where = f"the stream of output {plan.name!r}"
    check_names(made.names, where)
    feed = with_epoch(carried(made, where=where))
    frames = [session.range(0, 1, 1, 1).mapInArrow(_nothing, spark_schema(feed))]
    steps: list[SparkStep] = []
    ends = [_columns(frames[0])]
    ordered = 0  # how many of the steps are to keep the order of rows
    for step in wanted:
        if isinstance(step, Dedupe):
            ordered = len(steps)
        parts = spelt(_for_spark(step, frames[-1], where, plan.name), ends[-1])
        if isinstance(step, Filter) and len(parts) > 1:
            applied(frames[-1], step, plan.name)  # is it one whole expression?
        for part in parts:
            frames.append(applied(frames[-1], part, plan.name))
        steps += parts
        ends.append(_columns(frames[-1]))
    shapes = [_columns(frame) for frame in frames]
    where = f"the result of output {plan.name!r}"
    rows = arrow_schema(_fields(frames[-1]), where=where)
    last, columns = in_arrow(after, rows, output=plan.name)
    schema = with_epoch(columns)
    in_one_pass = None
    if all(isinstance(step, Filter | Projection) for step in steps):
        planned = _planned(frames, steps, shapes, plan.name)
        row = _fields(frames[-1], epoch=True).simpleString()
        in_one_pass = rowwise(frames[0], steps, shapes, planned=planned, row=row)
    kept = _kept(wanted, feed, guarded=in_one_pass is not None)
    given = without_epoch(feed)
    if any(isinstance(step, MapBatches) for step in before):
        alone = None  # they are called once for all outputs of a feed, so these keep to the feed
    elif before or any(isinstance(step, MadeStep) for step in wanted):
        alone, given = _in_the_task(plan, stream, schema), stream
    else:
        instead = _alone(wanted, ends, feed, rows)
        alone = None if instead is None else (instead, *last)
    if alone is None:
        ordered = len(steps) if any(isinstance(step, Dedupe) for step in after) else ordered
        _check_order(plan, frames[: ordered + 1], steps[:ordered], shapes)
    lasting = alone is None and in_one_pass is not None and not is_connect(session) and lasts(frames[-1], steps)
    return Prepared(
        plan, first, made, feed, tuple(steps), rows, last, schema, in_one_pass, kept, alone, given, lasting
    )


def _for_spark(step: Step, frame: Any, where: str, output: str) -> GivenStep:
    """Return a step that stands between others of Spark's, ours as an Arrow function."""
    if not isinstance(step, MadeStep):
        return step
    return in_arrow((step,), arrow_schema(_fields(frame), where=where), output=output)[0][0]


def _in_the_task(plan: OutputPlan, stream: pa.Schema, schema: pa.Schema) -> tuple[MapBatches, ...] | None:
    """Return all steps as Arrow functions, if they are understood and give the columns that Spark says."""
    try:
        functions, made = without_spark(plan.steps, stream, output=plan.name)
    except (NeedsSpark, UnknownColumn):
        return None
    return functions if with_epoch(made).equals(schema) else None


def _check_order(
    plan: OutputPlan, frames: Sequence[Any], steps: Sequence[SparkStep], shapes: list[list[str]]
) -> None:
    """Raise `NoOrderOfRows` unless the steps on Spark before a `Dedupe` keep rows in their order."""
    if steps and not narrow(_planned(frames, steps, shapes, plan.name)):
        raise NoOrderOfRows(
            output=plan.name,
            step=next(written_as(step) for step in reversed(plan.steps) if isinstance(step, Dedupe)),
            why="Spark shuffles, groups or multiplies rows in a step before",
            instead="put dedupe before that step, or do it in a function of a DataFrame, by a column that orders",
        )


def _planned(frames: Sequence[Any], steps: Sequence[SparkStep], shapes: list[list[str]], output: str) -> str:
    """Return the physical plan of the last frame. Raises where Spark cannot even compute a step's constants."""
    from pyspark.errors import PySparkException

    try:
        with quiet():
            return plan_text(frames[-1])
    except PySparkException as error:
        if row_error(error, python=False) is None:
            raise
    for frame, step, known in zip(frames[1:], steps, shapes, strict=False):
        try:
            with quiet():
                plan_text(frame)
        except PySparkException as error:
            raise analysis_error(error, step=said_as(step), output=output, known=known) from error
    return plan_text(frames[-1])


def _alone(steps: tuple[Step, ...], shapes: list[list[str]], feed: pa.Schema, rows: pa.Schema) -> MapBatches | None:
    """Return steps as an Arrow function, if they are understood wholly and give the columns that Spark says."""
    written = [
        Select(tuple(chosen(step, known))) if isinstance(step, Select | Changelog) else step
        for step, known in zip(steps, shapes, strict=False)
    ]
    made = chain(written, shapes[1:], without_epoch(feed))
    return MapBatches(made, rows) if made is not None and made.schema.equals(rows) else None


def _kept(steps: tuple[Step, ...], feed: pa.Schema, *, guarded: bool) -> KeptRows | None:
    """Return which rows of a feed the filters with which steps begin may keep.

    Later steps are guarded against rows whose condition is null only in the guarded form: elsewhere Spark may join
    their filters to these.
    """
    filters = takewhile(lambda step: isinstance(step, Filter), steps)
    found = understood([step.condition for step in filters if isinstance(step, Filter)], feed)
    if found is None:
        return None
    condition, whole = found
    return KeptRows(operating(condition) if carries(feed) else condition, closed=whole and guarded)


def _nothing(_batches: Any) -> Any:
    return iter(())


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


def applied(frame: Any, step: SparkStep, output: str) -> Any:
    """Return the frame after one step, analysed. `_epoch` stays."""
    from pyspark.errors import AnalysisException

    known = _columns(frame)
    match step:
        case MapBatches():
            given = arrow_schema(_fields(frame), where=f"the stream of output {output!r}")
            made = result_schema([step], given, output=output)
            result = with_epoch(carried(made, where=f"map_batches of output {output!r}"))
            hop = mapping(step, given, made, result, output=output)
            return frame.selectExpr(packed(frame.columns, ROW)).mapInArrow(hop, spark_schema(result))
        case Transform(function):
            return _transformed(frame, function, output, known)
        case Filter(condition):
            change = partial(frame.filter, condition)
        case Projection():
            change = partial(_projected, frame, step, output)
    try:
        with quiet():
            changed = change()
            changed.schema  # noqa: B018 - on Connect the plan is analysed when its schema is asked for
    except AnalysisException as error:
        raise analysis_error(error, step=said_as(step), output=output, known=known) from error
    return changed


def _projected(frame: Any, step: Projection, output: str) -> Any:
    where = f"{step.step} of output {output!r}"
    picks = step.expressions
    for expression in picks:
        if EPOCH.name in expression.lower():
            names = frame.selectExpr(expression).columns
            if any(name.lower() == EPOCH.name for name in names):
                raise ReservedColumn(where=where, column=EPOCH.name)
    picked = frame.selectExpr(*picks, quoted(EPOCH.name))
    if picked.columns.count(EPOCH.name) > 1:  # a star with exceptions brought it along, and operations, if any
        picked = frame.selectExpr(*(pick for pick in picks if pick != quoted(OP)))
    if picked.columns.count(OP) > 1:
        raise ReservedColumn(where=where, column=OP)
    names = _columns(picked)
    check_names(names, where)
    if OP in names:
        check(arrow_schema(_fields(picked.select(OP)), where=where), where)
    return picked


def _transformed(frame: Any, function: Any, output: str, known: list[str]) -> Any:
    from pyspark.sql import DataFrame

    name = function_name(function)
    try:
        result = function(frame)
        if not isinstance(result, DataFrame):
            raise TypeError(f"it returned a {type(result).__name__}")
        types = {field.name: field.dataType.simpleString() for field in result.schema}
    except NotOnSail:
        raise
    except Exception as error:
        if "SESSION_NOT_SAME" in str(error):
            raise SessionNotShared(function=name, output=output, detail=said(error)) from error
        raise TransformFailed(
            function=name, output=output, detail=said(error, where=True), known=[*known, EPOCH.name]
        ) from error
    got = ", ".join(f"{column} {kind}" for column, kind in types.items())
    if types.get(EPOCH.name) != "bigint" or result.columns.count(EPOCH.name) != 1:
        raise LostEpoch(function=name, output=output, got=f"({got})")
    if OP in known and types.get(OP) != "string":
        raise LostOperation(function=f"transform({name})", output=output, got=f"({got})")
    check_names(_columns(result), f"transform({name}) of output {output!r}")
    return result
