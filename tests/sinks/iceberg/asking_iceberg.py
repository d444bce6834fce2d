"""The readers who are asked of a table of Iceberg, as `tests.sinks.asking` asks those of Delta."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.types as pt
from pyiceberg import expressions
from tests.sinks.asking import Answer, Answers, Asked, _blobs, _bracketed, _polars_expression, _sqlike, expression
from tests.sinks.iceberg.conftest import NAME, catalog_in

__all__ = ["READERS"]

ice: Any = expressions


def pyiceberg(warehouse: str, asked: Sequence[Asked]) -> Answers:
    table = catalog_in(warehouse).load_table(NAME)
    whole, answers = table.scan().to_arrow(), []
    for each in asked:
        if _beyond_it(each):
            continue
        found = table.scan(row_filter=_filter(each), selected_fields=("id",)).to_arrow()["id"].to_pylist()
        kept = whole.filter(expression(each))["id"].to_pylist()
        answers.append(Answer(each, sorted(found), sorted(kept)))
    return answers


def _beyond_it(asked: Asked) -> bool:
    """It knows no literal for NaN and the infinite, no name with a dot, no list, and no zero apart from the other."""
    numbers = [value for value in asked.values if isinstance(value, float)]
    odd = any(not math.isfinite(value) or (asked.test == "in" and value == 0.0) for value in numbers)
    return odd or any("." in name for name in asked.path) or pt.is_list(asked.kind) or pt.is_struct(asked.kind)


def _filter(asked: Asked) -> Any:
    name, values = ".".join(asked.path), [_literal(value, asked.kind) for value in asked.values]
    tests: Mapping[str, Callable[[], Any]] = {
        "is null": lambda: ice.IsNull(name),
        "is not null": lambda: ice.NotNull(name),
        "in": lambda: ice.In(name, set(values)),
        "between": lambda: ice.And(ice.GreaterThanOrEqual(name, values[0]), ice.LessThanOrEqual(name, values[1])),
        "like": lambda: ice.StartsWith(name, values[0]),
        "=": lambda: ice.EqualTo(name, values[0]),
        "<>": lambda: ice.And(ice.NotEqualTo(name, values[0]), ice.NotNull(name)),
        "<": lambda: ice.LessThan(name, values[0]),
        ">=": lambda: ice.GreaterThanOrEqual(name, values[0]),
    }
    return tests[asked.test]()


def _literal(value: Any, kind: Any) -> Any:
    if pt.is_decimal(kind):
        return pa.array([Decimal(value)], kind)[0].as_py()  # with all its digits
    if pt.is_timestamp(kind):
        return value if kind.tz is None else value.isoformat()
    return value


def duckdb_over_the_scan(warehouse: str, asked: Sequence[Asked]) -> Answers:
    """It has no statistics then, but other eyes for what is in the files."""
    table = catalog_in(warehouse).load_table(NAME)
    with duckdb.connect() as connection:
        connection.execute("set timezone='UTC'")
        connection.register("t", table.scan().to_arrow())
        words: Any = {"column": _bracketed, "instant": "timestamptz", "local": "timestamp"}
        return _sqlike("t", asked[::3], lambda text: connection.execute(_blobs(text)).fetchall(), **words)


def polars_scan(warehouse: str, asked: Sequence[Asked]) -> Answers:
    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"  # or it warns that there is a faster one
    table = catalog_in(warehouse).load_table(NAME)
    whole, answers = pl.scan_iceberg(table).collect(), []
    for each in asked:
        filtered = _polars_expression(each)
        found = pl.scan_iceberg(table).filter(filtered).collect()["id"].to_list()
        answers.append(Answer(each, sorted(found), sorted(whole.filter(filtered)["id"].to_list())))
    return answers


READERS: Mapping[str, Callable[[str, Sequence[Asked]], Answers]] = {
    "pyiceberg": pyiceberg,
    "polars, scan_iceberg": polars_scan,
    "DuckDB over the scan": duckdb_over_the_scan,
}
