"""A Delta table of every type, on values that are hard to keep statistics of, and the readers who are asked of it.

A predicate is asked twice: as a filter, which may skip files, and as a column beside each row, which cannot.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute
import pyarrow.fs
import pyarrow.parquet as pq
import pyarrow.types as pt
from deltalake import DeltaTable, QueryBuilder

from tidegauge.sinks import DeltaSink, OutputId

pc: Any = pyarrow.compute
NAN, INF = math.nan, math.inf
STRUCT = pa.struct([("x", pa.int64()), ("q", pa.struct([("y", pa.string())]))])
LAST = "\U0010ffff"

Files: TypeAlias = Sequence[Sequence[Any]]
EVERY: Mapping[str, tuple[Any, Files]] = {
    "byte": (pa.int8(), [[-128, 0, 5], [7, 127], [3, None], [None]]),
    "long": (pa.int64(), [[-(2**63), 0], [2**63 - 1, 7], [None, 5], [None]]),
    "real": (pa.float32(), [[0.1, -0.0], [0.5, 2.5], [None, INF], [None]]),
    "double": (pa.float64(), [[-0.0, 1.5], [-1.0, 2.5], [None, -INF, 0.0], [None]]),
    "zeros": (pa.float64(), [[0.0], [0.0, 0.0], [0.0, 3.0], [None]]),
    "price": (
        pa.decimal128(38, 10),
        [["-1.5", "9" * 28 + ".0123456789"], ["0.0000000001", "2"], [None, "3"], [None]],
    ),
    "large": (pa.decimal128(20, 0), [["-1", str(2**64 - 1)], ["0", "2"], [None, "3"], [None]]),
    "text": (pa.string(), [["a", "b" * 40], ["ä" * 40, "'"], [None, f"zz{LAST}" * 20, "b"], [None]]),
    "day": (
        pa.date32(),
        [[date(1, 1, 1), date(2020, 2, 29)], [date(9999, 12, 31)], [None, date(1582, 10, 10)], [None]],
    ),
    "at": (
        pa.timestamp("us", tz="UTC"),
        [
            [datetime(1900, 1, 1, tzinfo=UTC), datetime(2020, 2, 29, 1, 2, 3, 456789, tzinfo=UTC)],
            [datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
            [None, datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)],
            [None],
        ],
    ),
    "local": (
        pa.timestamp("us"),
        [["1900-01-01T00:00:00", "2020-02-29T01:02:03.456789"], ["2024-01-01T00:00:00"], [None], [None]],
    ),
    "flag": (pa.bool_(), [[True], [False], [None, True], [None]]),
    "raw": (pa.binary(), [[b"a"], [b"\xff\x00"], [None, b""], [None]]),
    "dot.ted": (pa.int64(), [[1], [2], [None, 3], [None]]),
    "place": (
        STRUCT,
        [
            [{"x": 1, "q": {"y": "a"}}],
            [{"x": None, "q": None}, {"x": 7, "q": {"y": "b"}}],
            [None, {"x": 5, "q": {"y": None}}],
            [None],
        ],
    ),
    "list": (pa.list_(pa.int64()), [[[1]], [[]], [None, [2]], [None]]),
}
"""Each column's values, file by file."""
ODD: Mapping[str, tuple[Any, Files]] = {
    "real": (pa.float32(), [[NAN, 2.5], [1.0], [None], [NAN]]),
    "double": (pa.float64(), [[1.0, 3.0], [NAN, -1.0], [None, 5.0], [NAN]]),
    "minus": (pa.float64(), [[-0.0], [-0.0, 0.0], [-0.0, 2.0], [0.0]]),
    "long": (pa.int64(), [[1], [2], [3], [4]]),
}
"""Floating point numbers of which readers differ in what is equal and what is greater."""


PARTED: Mapping[str, tuple[Any, Files]] = {
    "country": (pa.string(), [["DE", "a/b"], ["x=y", "50%", "%2F", "'"], ["..", "ü 日", "*?[a]{}", "DE"], [None]]),
    "flag": (pa.bool_(), [[True, False], [False], [None, True], [None]]),
    "day": (pa.date32(), [[date(1, 1, 1), date(2020, 2, 29)], [date(9999, 12, 31)], [None], [None]]),
    "price": (pa.decimal128(20, 4), [["-1.5", "2"], ["0.0001"], [None, "3"], [None]]),
    "small": (pa.int8(), [[-128, 0], [7, 127], [3, None], [None]]),
    "long": (pa.int64(), [[-(2**63), 0], [2**63 - 1, 7], [None, 5], [None]]),
    "text": (pa.string(), [["a", "b" * 40], ["ä" * 40, "'"], [None, "b"], [None]]),
}
"""Columns of all types that a table can be parted by (`price` is of none), and texts that mean something in paths."""


def write(
    path: str, columns: Mapping[str, tuple[Any, Files]], *, by_key: bool = False, partition_by: Sequence[Any] = ()
) -> None:
    """Write the files, each as an epoch of its own; `id` counts the rows.

    by_key: to a table with one row for each `id`, and all of them once more, which changes the order of the epochs.
    """
    epochs = range(len(next(iter(columns.values()))[1]))
    parted: Any = {"partition_by": partition_by or None}
    sink = DeltaSink(path, envelope="upsert", key="id", **parted) if by_key else DeltaSink(path, **parted)
    fill(sink, columns, epochs, first=0)
    if by_key:
        fill(sink, columns, epochs, first=len(epochs))


def fill(sink: Any, columns: Mapping[str, tuple[Any, Files]], files_of: range, *, first: int = 0) -> None:
    """Write the files to a table of a sink."""
    kinds = [(name, kind) for name, (kind, _) in columns.items()]
    schema = pa.schema([("id", pa.int64()), *kinds, ("_epoch", pa.int64())])
    row = 0
    table = sink.open(OutputId("shop", "orders", "a" * 32))
    for number in files_of:
        epoch = first + number
        length = max(len(files[number]) for _, files in columns.values())
        arrays = [pa.array(range(row, row + length), pa.int64())]
        for kind, files in columns.values():
            arrays.append(_array([files[number][n % len(files[number])] for n in range(length)], kind))
        arrays.append(pa.array([epoch] * length, pa.int64()))
        stager = sink.stage(schema, job=uuid.uuid4().hex, task=0)
        stager.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
        table.commit(epoch, epoch + 1, schema, stager.close(), write=uuid.uuid4().hex)
        row += length


def _array(values: Sequence[Any], kind: Any) -> Any:
    """Return values as an array. Decimals and local times are written as texts here."""
    if pt.is_decimal(kind):
        return pa.array([Decimal(value) if value else None for value in values], kind)
    if pt.is_timestamp(kind) and kind.tz is None:
        return pa.array([datetime.fromisoformat(value) if value else None for value in values], kind)
    return pa.array(values, kind)


# -- predicates


@dataclass(frozen=True)
class Asked:
    """One predicate on a column, possibly within a struct; `values` are of the column's type, one or two."""

    path: tuple[str, ...]
    kind: Any
    test: str
    values: tuple[Any, ...] = ()


def predicates(columns: Mapping[str, tuple[Any, Files]]) -> Iterator[Asked]:
    """Ask every column the eight kinds of question, with values that it holds and those on its edges."""
    for name, (kind, files) in columns.items():
        yield from _of((name,), kind, [value for values in files for value in values if value is not None])


def _of(path: tuple[str, ...], kind: Any, values: Sequence[Any]) -> Iterator[Asked]:
    yield Asked(path, kind, "is null")
    yield Asked(path, kind, "is not null")
    if pt.is_struct(kind):
        for field in (kind.field(n) for n in range(kind.num_fields)):
            inner = [value[field.name] for value in values if value[field.name] is not None]
            yield from _of((*path, field.name), field.type, inner)
        return
    if pt.is_nested(kind):
        return
    distinct = list(dict.fromkeys(values))
    yield from (Asked(path, kind, "=", (value,)) for value in distinct)
    for test in ("<>", "<", ">="):
        yield from (Asked(path, kind, test, (value,)) for value in distinct[1::2])
    if pt.is_string(kind):
        yield from (Asked(path, kind, "like", (value[:35],)) for value in distinct)
    if not pt.is_boolean(kind) and not pt.is_binary(kind):
        yield Asked(path, kind, "between", (distinct[0], distinct[-1]))
        yield from (Asked(path, kind, "in", (value, value)) for value in distinct[::2])


def sql(asked: Asked, *, column: Callable[[tuple[str, ...]], str], instant: str, local: str) -> str:
    """Return a predicate as SQL. instant, local: the types of a timestamp with a zone, and of one without."""
    named = column(asked.path)
    values = [_literal(value, asked.kind, instant=instant, local=local) for value in asked.values]
    match asked.test:
        case "in":
            return f"{named} in ({', '.join(values)})"
        case "between":
            return f"{named} between {values[0]} and {values[1]}"
        case "like":
            return f"{named} like {values[0][:-1]}%'"
        case test:
            return " ".join([named, test, *values])


def _literal(value: Any, kind: Any, *, instant: str, local: str) -> str:
    if pt.is_decimal(kind):
        return f"cast('{value}' as decimal({kind.precision}, {kind.scale}))"
    if pt.is_integer(kind):
        return f"cast('{value}' as {'tinyint' if kind == pa.int8() else 'bigint'})"
    if pt.is_floating(kind):
        name = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(str(value), repr(value))
        return f"cast('{name}' as {'float' if kind == pa.float32() else 'double'})"
    if pt.is_boolean(kind):
        return str(value).lower()
    if pt.is_binary(kind):
        return f"X'{value.hex()}'"
    if pt.is_date(kind):
        return f"cast('{value}' as date)"
    if pt.is_timestamp(kind):
        if kind.tz is None:
            return f"cast('{value}' as {local})"
        return f"cast('{value.replace(tzinfo=None).isoformat()}Z' as {instant})"
    return "'" + str(value).replace("'", "''") + "'"


def expression(asked: Asked) -> Any:
    """Return a predicate as an expression of pyarrow's."""
    field = pc.field(*asked.path)
    values = [_array([value], asked.kind)[0] for value in asked.values]
    match asked.test:
        case "is null":
            return field.is_null()
        case "is not null":
            return field.is_valid()
        case "in":
            return field.isin(_array(asked.values, asked.kind))
        case "between":
            return (field >= values[0]) & (field <= values[1])
        case "like":
            return pc.starts_with(field, asked.values[0])
        case "=":
            return field == values[0]
        case "<>":
            return field != values[0]
        case "<":
            return field < values[0]
        case _:
            return field >= values[0]


# -- readers: from a table and predicates to the ids of the rows that each keeps, by a filter and without one


@dataclass(frozen=True)
class Answer:
    """Which rows a predicate keeps: as a filter, and as a column of all rows."""

    asked: Asked
    filtered: list[int]
    kept: list[int]


Answers: TypeAlias = list[Answer]


def _sqlike(table: str, asked: Sequence[Asked], run: Callable[[str], list[tuple[Any, ...]]], **words: Any) -> Answers:
    texts = [sql(each, **words) for each in asked]
    whole = run(f"select id, {', '.join(f'({text}) as k{n}' for n, text in enumerate(texts))} from {table}")
    kept = [sorted(row[0] for row in whole if row[1 + n]) for n in range(len(texts))]
    found = [sorted(row[0] for row in run(f"select id from {table} where {text}")) for text in texts]
    return list(map(Answer, asked, found, kept))


def _bracketed(path: tuple[str, ...]) -> str:
    return f'"{path[0]}"' + "".join(f"['{name}']" for name in path[1:])


def _rows(found: Any) -> list[tuple[Any, ...]]:
    table = pa.table(found)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


WORDS: Any = {"column": _bracketed, "instant": "timestamp with time zone", "local": "timestamp"}


def query_builder(path: str, asked: Sequence[Asked]) -> Answers:
    queries = QueryBuilder().register("t", DeltaTable(path))
    return _sqlike("t", asked, lambda text: _rows(queries.execute(text).read_all()), **WORDS)


def scan(path: str, asked: Sequence[Asked]) -> Answers:
    """The same engine as above, by another door: some of the questions."""
    asked = asked[::4]
    kept = [answer.kept for answer in query_builder(path, asked)]
    table = DeltaTable(path)
    texts = [sql(each, **WORDS) for each in asked]
    found = [sorted(table.scan(columns=["id"], predicate=text).read_all()["id"].to_pylist()) for text in texts]
    return list(map(Answer, asked, found, kept))


def file_pruning(path: str, asked: Sequence[Asked]) -> Answers:
    """Of the rows of the files that are left; the files of which some row is wanted must be.

    It knows no LIKE, and none of the columns that have no statistics of their own.
    """
    answers, table = [], DeltaTable(path)
    unknown = {"place", "list", "raw"}
    known = [each for each in asked[::2] if each.test != "like" and each.path[0] not in unknown]
    for answer in query_builder(path, known):
        left: set[int] = set()
        for name in table.file_uris(file_pruning_predicate=_pruning(answer.asked)):
            left.update(pq.read_table(name.removeprefix("file://"), columns=["id"])["id"].to_pylist())
        answers.append(Answer(answer.asked, sorted(left.intersection(answer.kept)), answer.kept))
    return answers


def _pruning(asked: Asked) -> Any:
    """Return a predicate for whole files: in SQL, whose timestamps it cannot compare, or as it is in Python."""
    if not pt.is_timestamp(asked.kind) or not asked.values:
        return sql(asked, **WORDS)
    values = [_array([value], asked.kind)[0].as_py() for value in asked.values]
    match asked.test:
        case "between":
            return [(asked.path[0], ">=", values[0]), (asked.path[0], "<=", values[1])]
        case "in":
            return [(asked.path[0], "in", values)]
        case test:
            return [(asked.path[0], {"<>": "!="}.get(test, test), values[0])]


def _dataset(path: str) -> Any:
    """With a file system of pyarrow's: delta-rs's own aborts the interpreter at its exit, in some versions."""
    local = pyarrow.fs.SubTreeFileSystem(path, pyarrow.fs.LocalFileSystem())
    return DeltaTable(path).to_pyarrow_dataset(filesystem=local)


def dataset(path: str, asked: Sequence[Asked]) -> Answers:
    data = _dataset(path)
    whole = data.to_table()
    expressions = [expression(each) for each in asked]
    found = [sorted(data.to_table(filter=each)["id"].to_pylist()) for each in expressions]
    kept = [sorted(whole.filter(each)["id"].to_pylist()) for each in expressions]
    return list(map(Answer, asked, found, kept))


def to_pyarrow_table(path: str, asked: Sequence[Asked]) -> Answers:
    """The same fragments as above, by another door: some of the questions."""
    asked = asked[::5]
    local = pyarrow.fs.SubTreeFileSystem(path, pyarrow.fs.LocalFileSystem())
    table, kept = DeltaTable(path), [answer.kept for answer in dataset(path, asked)]
    filters = [expression(each) for each in asked]
    found = [sorted(table.to_pyarrow_table(filesystem=local, filters=f)["id"].to_pylist()) for f in filters]
    return list(map(Answer, asked, found, kept))


def duckdb_over_the_dataset(path: str, asked: Sequence[Asked]) -> Answers:
    with duckdb.connect() as connection:
        connection.execute("set timezone='UTC'")
        connection.register("t", _dataset(path))
        asked = asked[::2]
        words = {"column": _bracketed, "instant": "timestamptz", "local": "timestamp"}
        return _sqlike("t", asked, lambda text: connection.execute(_blobs(text)).fetchall(), **words)


def _blobs(text: str) -> str:
    """DuckDB writes binary literals in its own way."""
    head, *rest = text.split("X'")
    for piece in rest:
        digits, _, after = piece.partition("'")
        head += f"from_hex('{digits}')" + after
    return head


def polars_scan(path: str, asked: Sequence[Asked]) -> Answers:
    """It opens the table for each question, so it is asked some of them."""
    return _polars(lambda each: pl.scan_delta(path).filter(each).collect(), path, asked[::3])


def polars_read(path: str, asked: Sequence[Asked]) -> Answers:
    lazy = pl.read_delta(path).lazy()
    return _polars(lambda each: lazy.filter(each).collect(), path, asked)


def _polars(run: Callable[[Any], Any], path: str, asked: Sequence[Asked]) -> Answers:
    whole, answers = pl.scan_delta(path).collect(), []
    for each in asked:
        filtered = _polars_expression(each)
        found, kept = run(filtered)["id"].to_list(), whole.filter(filtered)["id"].to_list()
        answers.append(Answer(each, sorted(found), sorted(kept)))
    return answers


def _polars_expression(asked: Asked) -> Any:
    column = pl.col(asked.path[0])
    for name in asked.path[1:]:
        column = column.struct.field(name)
    series = pl.Series(pl.from_arrow(_array(asked.values, asked.kind))) if asked.values else pl.Series([None])
    first, last = pl.lit(series[0], dtype=series.dtype), pl.lit(series[-1], dtype=series.dtype)
    tests: Mapping[str, Callable[[], Any]] = {
        "is null": column.is_null,
        "is not null": column.is_not_null,
        "in": lambda: column.is_in(series.implode()),
        "between": lambda: column.is_between(first, last),
        "like": lambda: column.str.starts_with(asked.values[0]),
        "=": lambda: column == first,
        "<>": lambda: column != first,
        "<": lambda: column < first,
        ">=": lambda: column >= first,
    }
    return tests[asked.test]()


def by_spark(run: Callable[[str], list[list[Any]]], path: str, asked: Sequence[Asked]) -> Answers:
    """Of Spark with Delta's own JAR; a question takes it a while, so it is asked some."""
    words: Any = {"column": lambda path: ".".join(f"`{name}`" for name in path), "instant": "timestamp"}
    table = f"delta.`{path}`"
    return _sqlike(table, asked[::5], lambda text: [tuple(row) for row in run(text)], **words, local="timestamp_ntz")


READERS: Mapping[str, Callable[[str, Sequence[Asked]], Answers]] = {
    "deltalake, QueryBuilder": query_builder,
    "deltalake, scan": scan,
    "deltalake, file_uris": file_pruning,
    "deltalake, to_pyarrow_dataset": dataset,
    "deltalake, to_pyarrow_table": to_pyarrow_table,
    "DuckDB over the dataset": duckdb_over_the_dataset,
    "polars, scan_delta": polars_scan,
    "polars, read_delta": polars_read,
}
