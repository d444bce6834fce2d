"""Every value that is written comes back as it was, and one that cannot be held is refused in the task."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.postgres import Server
from tests.sinks.postgres.conftest import OUTPUT, ServerBench, write_id

from tidegauge.errors.postgressink import ServerColumnUnfit, ServerValueUnfit
from tidegauge.sinks import PostgresSink
from tidegauge.sinks.postgres.text import lines
from tidegauge.sinks.postgres.types import type_of

Made = Callable[..., ServerBench]

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | st.sampled_from(
    ["", "\\N", "\\.", "a\n\\.\nb", "\\", "\t", "\r\n", "'\"", "NULL", "\u2028", "\\x00"]
)
FIRST, LAST = dt.datetime.min, dt.datetime.max  # noqa: DTZ901 - local times
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): TEXT,
    pa.binary(): st.binary(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(FIRST, LAST),
    pa.timestamp("us", tz="UTC"): st.datetimes(FIRST, LAST, timezones=st.just(dt.UTC)),
    pa.decimal128(38, 10): st.decimals(-(10**27), 10**27, places=10, allow_nan=False),
    pa.decimal128(5, 0): st.integers(-99999, 99999).map(Decimal),
    pa.decimal128(3, 3): st.decimals(Decimal("-0.999"), Decimal("0.999"), places=3, allow_nan=False),
}
SCHEMA = pa.schema([(f"c{at}", kind) for at, kind in enumerate(VALUES)])
ROW = st.tuples(*(st.none() | values for values in VALUES.values()))


@pytest.fixture(scope="module")
def reader(postgres: Server) -> Any:
    """Reads lines of COPY as the server does, in a session whose settings are not the usual ones."""
    columns = ", ".join(f"{field.name} {type_of(field.type)}" for field in SCHEMA)
    with psycopg.connect(postgres.address("postgres"), autocommit=True) as connection:
        create: Any = f"CREATE TEMP TABLE found (at serial, {columns})"
        connection.execute(create)

        def read(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
            connection.execute("TRUNCATE found RESTART IDENTITY")
            connection.execute("SET datestyle = 'German'; SET timezone = 'America/New_York'")
            names: Any = ", ".join(SCHEMA.names)
            with connection.cursor() as cursor:
                with cursor.copy(f"COPY found ({names}) FROM STDIN (FORMAT text, ENCODING 'UTF8')") as copy:
                    copy.write(lines(rows))
                connection.execute("SET timezone = 'UTC'; SET datestyle = 'ISO'")
                query: Any = f"SELECT {names} FROM found ORDER BY at"
                return cursor.execute(query, binary=True).fetchall()

        yield read


@given(rows=st.lists(ROW, max_size=8), skipped=st.integers(0, 2))
def test_every_value_comes_back_as_it_was(reader: Any, rows: list[Any], skipped: int) -> None:
    batch = pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)
    batch = batch.slice(min(skipped, batch.num_rows))
    found = reader(batch)
    wanted = [tuple(row.values()) for row in batch.to_pylist()]
    assert [list(map(exact, row)) for row in found] == [list(map(exact, row)) for row in wanted]


def exact(value: Any) -> Any:
    """Tell zeros of two signs apart, and no NaN from another."""
    if isinstance(value, float):
        return ("nan",) if math.isnan(value) else (value, math.copysign(1, value))
    return value


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (pa.string(), "a\0b", "zero byte"),
        (pa.date32(), -800_000, "a year before 1 or after 9999"),
        (pa.timestamp("us"), 253_402_300_800_000_000, "a year before 1 or after 9999"),
        (pa.timestamp("us", tz="UTC"), -(2**62), "a year before 1 or after 9999"),
    ],
)
def test_a_value_that_cannot_be_held_is_refused_at_its_epoch(
    kind: Any, value: Any, said: str, tmp_path: Path
) -> None:
    sink = PostgresSink("postgresql://db/shop", "t", staging=str(tmp_path))
    schema = pa.schema([("v", kind), ("_epoch", pa.int64())])
    stager = sink.stage(schema, job="1" * 32, task=0)
    values = pa.array([None, value, None], pa.int64() if isinstance(value, int) else None)
    column = values.cast(pa.int32()).view(kind) if kind == pa.date32() else values.cast(kind)
    with pytest.raises(ServerValueUnfit, match=said) as caught:
        stager.write(pa.record_batch([column, pa.array([3, 4, 5])], schema=schema))
    assert (caught.value.evidence["column"], caught.value.evidence["epoch"]) == ("v", 4)
    stager.abort()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("v", pa.list_(pa.int64())),
        ("v", pa.struct([("a", pa.int64())])),
        ("v", pa.map_(pa.string(), pa.int64())),
        ("é" * 32, pa.int64()),
        ("ctid", pa.int64()),
        ("a\0b", pa.int64()),
    ],
)
def test_a_column_that_cannot_be_there_is_refused_before_anything_runs(name: str, kind: Any) -> None:
    sink = PostgresSink("postgresql://db/shop", "t")
    with pytest.raises(ServerColumnUnfit):
        sink.check(pa.schema([(name, kind), ("_epoch", pa.int64())]))


def test_names_are_literal_and_quoted(made: Made) -> None:
    name = 'Bobby"); DROP TABLE x;--%s'
    schema = pa.schema(
        [(name.replace(" ", "").replace(";", "").replace(")", ""), pa.int64()), ("_epoch", pa.int64())]
    )
    bench = made(schema=schema)
    bench.sink = PostgresSink(bench.address, name, staging=str(bench.folder))
    table = bench.open()
    table.commit(0, 1, schema, bench.stage([{schema.names[0]: 7, "_epoch": 0}]), write=write_id())
    assert bench.rows() == [{schema.names[0]: 7, "_epoch": 0}]
    assert bench.open().schema == schema
    assert bench.sink.open(OUTPUT).upper == 1
