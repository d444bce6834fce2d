"""A stream as users write it: the rows of a source, and the steps that they go through.

Invariant: a stream is a value. A step makes another one, so two outputs may go on from the same.

>>> import tidegauge as tg
>>> flow = tg.Dataflow("shop", store="sqlite:///shop.db")
>>> orders = flow.source("orders", tg.FileSource("orders/*.jsonl", format=tg.Json("id long, amount double")))
>>> orders.filter("amount > 100").select("id"), orders.errors
(RowStream(orders | filter | select), RowStream(orders.errors))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.push import UnknownStream
from tidegauge.flow.spec import Flow
from tidegauge.job.plan import Changelog, Filter, MapBatches, Select, Step, Transform
from tidegauge.operations import OP
from tidegauge.sources.push.source import streams_of

__all__ = ["RowStream"]


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
        self, function: Callable[[pa.RecordBatch], pa.RecordBatch], *, schema: pa.Schema | None = None
    ) -> RowStream:
        """Apply a function from RecordBatch to RecordBatch, wherever the batch is.

        It runs again when a task is tried again, so it should depend on the batch alone. Where the rows have
        operations the batch has the column `_op`, and the result keeps it. Where `schema` is not given
        the function is called once with an empty batch to learn what it returns.
        """
        if not callable(function):
            raise InvalidArgument(parameter="function", value=function, expected="a function of a RecordBatch")
        if schema is not None and not isinstance(schema, pa.Schema):
            raise InvalidArgument(parameter="schema", value=schema, expected="a pyarrow.Schema")
        return self._then(MapBatches(function, schema))

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
