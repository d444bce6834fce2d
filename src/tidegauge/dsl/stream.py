"""A stream as users write it: the rows of a source, and the steps that they go through.

Invariant: a stream is a value. A step makes another one, so two outputs may go on from the same.

>>> import tidegauge as tg
>>> flow = tg.Dataflow("shop", store="sqlite:///shop.db")
>>> orders = flow.source("orders", tg.FileSource("orders/*.jsonl", format=tg.Json("id long, amount double")))
>>> orders.filter("amount > 100").select("id"), orders.errors
(RowStream(orders | filter | select), RowStream(orders.errors))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.push import UnknownStream
from tidegauge.errors.steps import NotAPart
from tidegauge.flow.spec import Flow
from tidegauge.job.plan import (
    Changelog,
    Dedupe,
    Filter,
    MapBatches,
    Partition,
    Select,
    SplitBy,
    Step,
    Transform,
    Unnest,
)
from tidegauge.operations import OP
from tidegauge.sources.ddl import parse_ddl
from tidegauge.sources.push.source import streams_of

__all__ = ["RowStream", "StreamParts"]


_MOST_PARTS: Final = 10_000
_VALUES: Final = (str, bytes, bool, int, float, Decimal, date)


@dataclass(frozen=True, slots=True)
class StreamParts:
    """The streams that `split_by` makes of one: by value, and the `rest`."""

    column: str
    parts: Mapping[Any, RowStream]
    rest: RowStream

    def __getitem__(self, value: Any) -> RowStream:
        """Return the stream of a value. Raises `NotAPart`."""
        if value not in self.parts:
            raise NotAPart(value=value, column=self.column, known=[*map(str, self.parts)])
        return self.parts[value]

    def __iter__(self) -> Iterator[Any]:
        """Go through the values."""
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


@dataclass(frozen=True, slots=True)
class RowStream:
    """The rows of a source after some steps. Each method returns a new stream; none does anything yet."""

    flow: Flow
    source: str
    channel: str = "rows"
    steps: tuple[Step, ...] = ()

    def __repr__(self) -> str:
        shown = [self.source if self.channel == "rows" else f"{self.source}.{self.channel}"]
        shown += [type(step).__name__.lower() for step in self.steps]
        return f"RowStream({' | '.join(shown)})"

    def _then(self, step: Step) -> RowStream:
        return replace(self, steps=(*self.steps, step))

    def filter(self, condition: str) -> RowStream:
        """Keep the rows for which a SQL expression is true. Runs on Spark; plain ones also without it.

        Of rows with an operation (`_op`) it filters the table that they make: an `update` for which the expression is
        not true becomes a `delete`, and every `delete` passes.
        """
        if not isinstance(condition, str) or not condition.strip():
            raise InvalidArgument(parameter="condition", value=condition, expected="a SQL expression")
        return self._then(Filter(condition))

    def select(self, *expressions: str) -> RowStream:
        """Replace the columns by SQL expressions, such as `"id", "amount * 1.2 AS gross"`.

        Runs on Spark; plain ones also without it. Rows with an operation keep it.
        """
        if not expressions or not all(isinstance(e, str) and e.strip() for e in expressions):
            raise InvalidArgument(parameter="expressions", value=list(expressions), expected="SQL expressions")
        return self._then(Select(expressions))

    def changelog(self, column: str) -> RowStream:
        """Make plain data of rows with an operation: `_op` becomes an ordinary column of this name, and no row goes.

        So every sink takes them. Needs no Spark.
        """
        if not isinstance(column, str) or not column.strip() or column.lower() == OP:
            raise InvalidArgument(parameter="column", value=column, expected="the name of a new column, such as 'op'")
        return self._then(Changelog(column))

    def transform(self, function: Callable[[Any], Any]) -> RowStream:
        """Apply a function from DataFrame to DataFrame. Runs on Spark.

        The frame has the column `_epoch` and may span several epochs; the result keeps the column, and `_op` where
        the rows have operations. So that an epoch's
        rows depend on that epoch alone, a function that aggregates or deduplicates does so by `_epoch`.
        """
        if not callable(function):
            raise InvalidArgument(parameter="function", value=function, expected="a function of a DataFrame")
        return self._then(Transform(function))

    def map_batches(
        self, function: Callable[[pa.RecordBatch], pa.RecordBatch], *, schema: str | pa.Schema | None = None
    ) -> RowStream:
        """Apply a function from RecordBatch to RecordBatch, wherever the batch is.

        It runs again when a task is tried again, so it should depend on the batch alone. Where the rows have
        operations the batch has the column `_op`, and the result keeps it. Where `schema` is not given
        the function is called once with an empty batch to learn what it returns. A text is a DDL string, as for
        sources: "id long, amount double".
        """
        if not callable(function):
            raise InvalidArgument(parameter="function", value=function, expected="a function of a RecordBatch")
        made = parse_ddl(schema) if isinstance(schema, str) else schema
        if made is not None and not isinstance(made, pa.Schema):
            raise InvalidArgument(parameter="schema", value=schema, expected="a DDL string or a pyarrow.Schema")
        return self._then(MapBatches(function, made))

    def unnest(self, column: str) -> RowStream:
        """Make a row of each element of a list. The element takes the list's place, under its name.

        As with Spark's `explode`, a row whose list is null or empty gives none; an element that is null gives one. A
        struct stays one column. Rows with operations are refused (`OperationsInStep`). Needs no Spark.
        """
        if not isinstance(column, str) or not column:
            raise InvalidArgument(parameter="column", value=column, expected="the name of a column of lists")
        return self._then(Unnest(column))

    def dedupe(self, *key: str) -> RowStream:
        """Keep the first row of each key *within each epoch*: in the first partition, at the first position.

        A key that comes again in a later epoch comes through again: for one row of each key in the whole table, write
        it with `envelope="upsert"`. A null is equal to a null. One task reads an epoch of the source whose rows are
        deduplicated, and holds the epoch's keys. Rows with operations are refused (`OperationsInStep`), and so are
        rows without an order (`NoOrderOfRows`). Needs no Spark.
        """
        return self._then(Dedupe(_key(key)))

    def partition(self, parts: int, *key: str) -> tuple[RowStream, ...]:
        """Return this many streams, each of the rows whose key hashes to it: `a, b = rows.partition(2, "id")`.

        Each row is in exactly one of them, always in the same one. Rows with operations are filtered as the table
        that they make: an `update` is a `delete` in the other parts. Needs no Spark.
        """
        if type(parts) is not int or not 0 < parts <= _MOST_PARTS:
            expected = f"how many streams, 1 to {_MOST_PARTS}"
            raise InvalidArgument(parameter="parts", value=parts, expected=expected)
        columns = _key(key)
        return tuple(self._then(Partition(parts, columns, part)) for part in range(parts))

    def split_by(self, column: str, values: Sequence[Any]) -> StreamParts:
        """Return a stream for each of the values of a column, by value, and the `rest`, which also has the nulls.

        `parts = rows.split_by("country", ["DE", "FR"])`, then `parts["DE"]`, `parts["FR"]`, `parts.rest`. Each row is
        in exactly one. Rows with operations are as in `partition`. Needs no Spark.
        """
        if not isinstance(column, str) or not column or column.lower() == OP:
            raise InvalidArgument(parameter="column", value=column, expected="the name of a column of data")
        if not isinstance(values, list | tuple) or not values:
            raise InvalidArgument(parameter="values", value=values, expected="a list of values of the column")
        for at, value in enumerate(values):
            if not isinstance(value, _VALUES) or value != value or value in values[:at]:
                expected = "texts, numbers, booleans, dates or times, each once; nulls are in `rest`"
                raise InvalidArgument(parameter="values", value=value, expected=expected)
        found = {value: self._then(SplitBy(column, tuple(values), value)) for value in values}
        return StreamParts(column, found, self._then(SplitBy(column, tuple(values), None)))

    @property
    def errors(self) -> RowStream:
        """The records that could not be decoded, with where they stand and their raw bytes.

        A source whose errors go to some sink no longer fails on such a record.
        """
        if self.steps or self.channel != "rows":
            raise InvalidArgument(
                parameter="errors", value=repr(self), expected="the errors of a source's own stream"
            )
        return replace(self, channel="errors")

    def stream(self, name: str) -> RowStream:
        """Return the rows of one stream of a source that has several, such as the tables of a database.

        Raises `UnknownStream` for a stream that the source does not declare.
        """
        known = streams_of(self.flow.spec.sources[self.source])
        if self.steps or self.channel != "rows" or name not in known:
            raise UnknownStream(
                source=self.source, stream=name, known=", ".join(known) or "one stream, without a name"
            )
        return replace(self, channel=name)

    def table(self, name: str) -> RowStream:
        """Return the rows of one table of a database: its stream, see `stream`."""
        return self.stream(name)


def _key(key: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns of a key. Raises `InvalidArgument`."""
    named = all(isinstance(column, str) and column and column.lower() != OP for column in key)
    if not key or not named or len(set(key)) < len(key):
        raise InvalidArgument(parameter="key", value=list(key), expected="the names of one or more columns of data")
    return key
