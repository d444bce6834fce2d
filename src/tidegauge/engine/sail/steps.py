"""An output's steps for Sail: plain SQL stays here, as Arrow functions, and only the rest goes there.

Law: **the rows are those that Spark gives for the steps.** Plain SQL has its own law (`plain.steps`). Where some
expressions of a select are not plain, Sail computes these alone, as columns beside the others:

    select("id", "amount * 1.2 AS gross", "size(tags) AS n")
    on Sail    select(id, amount, tags, size(tags) AS sail_0)
    here       select(id, amount * 1.2 AS gross, sail_0 AS n)

All that is not trusted (`trusted`, `frames`) is refused before anything runs: `NotOnSail`.

>>> orders = pa.schema([("id", pa.int64()), ("user", pa.string())])
>>> steps = (Filter("id > 3"), Select(("id + 1 AS next", "soundex(user) AS sound")))
>>> made, columns = for_sail(steps, orders, output="sounds", framed=None)
>>> [type(step).__name__ for step in made], columns.names
(['MapBatches', 'Select', 'MapBatches'], ['next', 'sound'])
>>> for_sail((Select(("id & 1 AS odd",)),), orders, output="odd", framed=None)
Traceback (most recent call last):
tidegauge.errors.sail.NotOnSail: TG-0691: output 'odd' has the step select('id & 1 AS odd'), which Sail ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.engine.arrowtypes import carried
from tidegauge.engine.plain.expressions import NotUnderstood
from tidegauge.engine.plain.grammar import Sentence, read
from tidegauge.engine.plain.lexer import lexemes
from tidegauge.engine.plain.steps import without_spark
from tidegauge.engine.sail.frames import check_frame
from tidegauge.engine.sail.trusted import Untrusted, carriable, kind_of
from tidegauge.engine.spelling import chosen, quoted, said_as, written_as
from tidegauge.errors.flow import NeedsSpark
from tidegauge.errors.sail import NotOnSail
from tidegauge.errors.steps import NoOrderOfRows
from tidegauge.job.arrow import in_arrow, is_arrow
from tidegauge.job.functions import check_names
from tidegauge.job.plan import Changelog, Dedupe, Filter, Select, Step, Transform
from tidegauge.operations import OP, carries

__all__ = ["for_sail"]

AsksSail: TypeAlias = Callable[[Sequence[Step]], pa.Schema]
"""Returns the columns, without `_epoch`, of steps whose last one is a function of a DataFrame."""

_EVERYTHING: Final = Select(("*",))


def for_sail(
    steps: Sequence[Step], schema: pa.Schema, *, output: str, framed: AsksSail | None
) -> tuple[tuple[Step, ...], pa.Schema]:
    """Return the steps of an output over columns of `schema` as its engine runs them, and the columns they give.

    framed: asks Sail; None where there is no function of a DataFrame. Raises `NotOnSail`, `NoOrderOfRows`, and the
    errors of steps.
    """
    made: list[Step] = []
    runs = [(arrow, list(group)) for arrow, group in groupby(steps, key=is_arrow)]
    for arrow, run in runs:
        if arrow:
            _check_order(run, made, output)
            _, schema = in_arrow([step for step in run if is_arrow(step)], schema, output=output)
            made += run
            continue
        schema = carried(schema, where=f"the stream of output {output!r}")
        while run:
            count = _plain(run, schema, output)
            if count:
                functions, schema = without_spark(run[:count], schema, output=output)
                made += functions
                run = run[count:]
                continue
            step, *run = run
            if isinstance(step, Transform):
                _check_columns(schema, output, step)
                made.append(Transform(_checked(step, output)))
                schema = framed(tuple(made)) if framed is not None else schema
            else:
                parts, schema = _on_sail(step, schema, output, last=not run)
                made += parts
    return tuple(made), schema


def _plain(run: Sequence[Step], schema: pa.Schema, output: str) -> int:
    """Return how many of the steps are understood wholly, from the first on.

    An expression that can fail is, if nothing follows that Spark might compute before it.
    """
    count = next((i for i, step in enumerate(run) if isinstance(step, Transform)), len(run))
    while count:
        followed = [] if count == len(run) else [_EVERYTHING]
        try:
            without_spark([*run[:count], *followed], schema, output=output)
        except NeedsSpark:
            count -= 1
        else:
            return count
    return 0


def _on_sail(step: Step, schema: pa.Schema, output: str, *, last: bool) -> tuple[list[Step], pa.Schema]:
    """Return a filter or a select that is not plain in parts, and the columns that it gives."""
    _check_columns(schema, output, step)
    try:
        match step:
            case Filter(condition):
                sentence, name = _read(condition)
                if name is not None or not pt.is_boolean(kind_of(sentence, schema)):
                    raise Untrusted("it is no condition")
                return [step], schema
            case Select() | Changelog():
                return _selected(step, schema, output, last=last)
    except Untrusted as error:
        raise NotOnSail(output=output, step=written_as(step), what=str(error)) from error
    raise TypeError(f"{step} is no step of SQL")


def _selected(
    step: Select | Changelog, schema: pa.Schema, output: str, *, last: bool
) -> tuple[list[Step], pa.Schema]:
    """Return a select: what Sail computes, as columns beside those that are there, and then the rest."""
    wider = schema
    beside: list[str] = []
    mine: list[str] = []
    for text in chosen(step, schema.names):
        if _plain([Select((text,))], schema, output):
            mine.append(text)
            continue
        sentence, name = _read(text)
        kind = kind_of(sentence, schema)
        if name is None:
            raise Untrusted(f"{text!r} has no name (write AS and one)")
        fresh = _fresh(wider.names)
        beside.append(f"{_unnamed(text)} AS {quoted(fresh)}")
        mine.append(f"{quoted(fresh)} AS {quoted(name)}")
        wider = wider.append(pa.field(fresh, kind))
    on_sail = Select((*map(quoted, schema.names), *beside))
    rest = Select(tuple(mine))
    try:
        without_spark([rest, *([] if last else [_EVERYTHING])], wider, output=output)
        functions, made = without_spark([rest], wider, output=output)
    except NeedsSpark as error:
        raise Untrusted("one of its expressions can fail, which has to be in the last step of SQL, once") from error
    check_names(made.names, f"{said_as(step)} of output {output!r}")
    return [on_sail, *functions], made


def _checked(step: Transform, output: str) -> Callable[[Any], Any]:
    """Return a function of a DataFrame whose plan is looked at each time that it makes one."""

    @functools.wraps(step.function)
    def function(frame: Any) -> Any:
        made = step.function(frame)
        try:
            check_frame(made, frame)
        except Untrusted as error:
            raise NotOnSail(output=output, step=written_as(step), what=str(error)) from error
        return made

    return function


def _check_order(run: Sequence[Step], before: Sequence[Step], output: str) -> None:
    """Raise `NoOrderOfRows` for a `Dedupe` of rows that Sail gives, which deals them to its threads."""
    first = next((step for step in run if isinstance(step, Dedupe)), None)
    if first is not None and not all(map(is_arrow, before)):
        raise NoOrderOfRows(
            output=output,
            step=written_as(first),
            why="a step before runs on Sail, which keeps no order of rows",
            instead="put dedupe before the first step that is not plain SQL, or run with the Spark engine",
        )


def _check_columns(schema: pa.Schema, output: str, step: Step) -> None:
    """Raise `NotOnSail` for columns that do not come back as they went."""
    odd = [f"the column {field.name!r} of {field.type}" for field in schema if not carriable(field.type)]
    if carries(schema):
        odd.append(f"rows with operations, in the column {OP!r}")
    if odd:
        raise NotOnSail(output=output, step=written_as(step), what=", ".join(odd))


def _read(text: str) -> tuple[Sentence, str | None]:
    try:
        return read(lexemes(text))
    except NotUnderstood:
        raise Untrusted(f"{text!r} is not in the part of SQL that Tidegauge reads") from None


def _unnamed(text: str) -> str:
    """Return an expression without the `AS` and the name at its end.

    >>> _unnamed("size(tags)\\nAS `a b`")
    'size(tags)'
    """
    *_, before, _, _, _ = lexemes(text)
    return text[: before[2]]


def _fresh(names: Sequence[str]) -> str:
    """Return a name that no column has."""
    known = {name.lower() for name in names}
    return next(name for i in range(len(known) + 1) if (name := f"sail_{i}") not in known)
