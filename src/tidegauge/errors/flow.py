"""TG-01xx: how a flow is put together.

>>> print(UnknownColumn(column="amout", where="select", known=["id", "user", "amount"]))
TG-0103: select names the column 'amout', which is not there. Known: 'id', 'user', 'amount'.
  likely cause: a misspelt name; the nearest is 'amount'
  what to do:   use one of the known names
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, nearest

__all__ = [
    "BatchFunctionFailed",
    "EmptyFlow",
    "ForeignStream",
    "InvalidArgument",
    "InvalidExpression",
    "InvalidName",
    "InvalidSchema",
    "NameTaken",
    "NeedsSpark",
    "OperationColumnUnfit",
    "OperationsNotTaken",
    "ReservedColumn",
    "TableTaken",
    "UnknownColumn",
    "UnknownName",
    "WaitsForItself",
]


class InvalidName(TidegaugeError):
    """A flow, source or output name that cannot be an identity."""

    code = "TG-0101"
    what = "the {kind} name {name!r} is not usable"
    cause = "names are identities in the store, in table commits and on the command line"
    remedy = "use 1 to 128 letters, digits, '_', '-' or '.', beginning with a letter"


class NameTaken(TidegaugeError):
    """Two sources or two outputs of one name."""

    code = "TG-0102"
    what = "the {kind} name {name!r} is already taken in the flow {flow!r}"
    cause = "two {kind}s were given one name; names are identities"
    remedy = "give the second one another name"


class UnknownColumn(TidegaugeError):
    """An expression names a column that its stream does not have."""

    code = "TG-0103"
    what = "{where} names the column {column!r}, which is not there. Known: {known}."
    cause = "a misspelt name{hint}"
    remedy = "use one of the known names"

    def __init__(self, *, column: str, where: str, known: list[str], hint: str | None = None) -> None:
        if hint is None:
            near = nearest(column, known)
            hint = f"; the nearest is {near!r}" if near else ""
        super().__init__(column=column, where=where, known=list(known), hint=hint)


class UnknownName(TidegaugeError):
    """A source, an output or a flow that does not exist."""

    code = "TG-0104"
    what = "there is no {kind} named {name!r}. Known: {known}."
    cause = "a misspelt name{hint}"
    remedy = "use one of the known names"

    def __init__(self, *, kind: str, name: str, known: list[str], hint: str | None = None) -> None:
        if hint is None:
            near = nearest(name, known)
            hint = f"; the nearest is {near!r}" if near else ""
        super().__init__(kind=kind, name=name, known=list(known), hint=hint)


class InvalidArgument(TidegaugeError):
    """A parameter with a meaningless value."""

    code = "TG-0105"
    what = "{parameter} cannot be {value!r}"
    cause = "{expected}"
    remedy = "pass {expected}"


class NeedsSpark(TidegaugeError):
    """A step that only Spark can run, on the local engine."""

    code = "TG-0106"
    what = "output {output!r} has the step {step}, which needs Spark; the local engine has none"
    cause = (
        "the local engine computes plain SQL alone: columns named exactly, comparisons of a column with literals, "
        "and sums, differences and products of doubles that are given a name (amount * 2 AS twice)"
    )
    remedy = "run with the Spark engine, or write the step plainly or as map_batches"


class ForeignStream(TidegaugeError):
    """A stream of one flow used in another."""

    code = "TG-0107"
    what = "the stream {stream!r} belongs to the flow {owner!r}, not to {flow!r}"
    cause = "a stream was passed to a sink of another flow"
    remedy = "create the source in the flow that uses it"


class EmptyFlow(TidegaugeError):
    """A flow without an output."""

    code = "TG-0108"
    what = "the flow {flow!r} has no output"
    cause = "flow.sink(...) was never called"
    remedy = "add flow.sink(name, stream, sink) before running"


class InvalidExpression(TidegaugeError):
    """Spark does not accept an expression."""

    code = "TG-0109"
    what = "output {output!r}: {step} is not accepted by Spark: {detail}"
    cause = "a syntax error, or types that do not fit"
    remedy = "correct the expression; its columns are {known}"


class BatchFunctionFailed(Definite):
    """A user's function raised."""

    code = "TG-0110"
    what = "map_batches({function}) of output {output!r} raised {error} in epoch {epoch}"
    cause = "a bug in the function, or data that it does not expect"
    remedy = "correct the function and start again: the epoch was not committed and will be run again"


class InvalidSchema(TidegaugeError):
    """A schema string that cannot be parsed."""

    code = "TG-0111"
    what = "the schema {ddl!r} is not valid at character {position}: {detail}"
    cause = "not a Spark DDL string"
    remedy = "write it like 'id long, user string, amount decimal(10,2), tags array<string>'"


class ReservedColumn(TidegaugeError):
    """A column name that Tidegauge writes itself."""

    code = "TG-0112"
    what = "{where} has a column named {column!r}"
    cause = "Tidegauge writes a column of this name itself"
    remedy = "rename the column with select"


class TableTaken(TidegaugeError):
    """Two outputs into one table."""

    code = "TG-0113"
    what = "output {output!r} would write to {path}, where output {other!r} writes already"
    cause = "two outputs were given one path; a table belongs to one output"
    remedy = "give the second one another path"


class NotDeclaredBefore(TidegaugeError):
    """An output that is to come after one that is not there yet."""

    code = "TG-0123"
    what = "output {output!r} cannot come after {after!r}; outputs declared before it: {known}"
    cause = "a misspelt name, an output that is declared later, or a circle"
    remedy = "declare {after!r} first; two outputs cannot wait for each other"


class OperationColumnUnfit(TidegaugeError):
    """A column that is called like the one for operations, and is not it."""

    code = "TG-0121"
    what = "{where} has a column {column!r} of the type {type}; '_op' is a string that says what became of each row"
    cause = "a column for something else has the name that is kept for operations, or the operations are no strings"
    remedy = "give the column another name, or make it a string of 'insert', 'update', 'before' and 'delete'"


class OperationsNotTaken(TidegaugeError):
    """Rows with an operation, for a sink that can only append."""

    code = "TG-0122"
    what = "the rows of output {output!r} have operations in the column '_op', which {sink} does not take"
    cause = "it would append an update or a delete as one more row"
    remedy = (
        "keep the operations as plain data with stream.changelog('op'), which makes an ordinary column of them; or "
        "use a sink that applies them: DeltaSink, PostgresSink or KafkaSink with envelope='upsert' and a key"
    )


class WaitsForItself(TidegaugeError):
    """The thread of a run waits for the run to end."""

    code = "TG-0120"
    what = "wait() was called by the thread that runs the flow {flow!r}, which would wait for itself"
    cause = "a function that the run calls, such as `watch`, waits for the run"
    remedy = "call stop() there, and wait() in the thread that has started the flow"
