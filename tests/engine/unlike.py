"""A session whose settings change what SQL means, and a flow whose rows would show it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

import tidegauge as tg

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

SETTINGS = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.legacy.charVarcharAsString": "true",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.retainGroupColumns": "false",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}
"""Each of them gives some expression another value, another type or another name."""

AT = ("2026-03-28T20:30:00Z", "2026-03-29T01:10:00Z", "1500-01-01T00:00:00Z")
"""The second is on the day before in New York; the last is before the calendar was changed."""

TELLING = (
    "id",
    "to_date(at) AS day",
    "hour(at) AS hour",
    "date_format(at, 'yyyy-MM-dd HH') AS written",
    "CAST(at AS string) AS text",
    "CAST('2026-03-29 01:00:00' AS timestamp) AS parsed",
    "try_to_timestamp('2026-3-9', 'yyyy-MM-dd') AS lenient",
    "id + '1' AS sum",
    "CAST(amount AS decimal(38,10)) * CAST(amount AS decimal(38,10)) AS product",
    "size(CAST(NULL AS array<int>)) AS nothing",
    "length('a\\tb') AS escaped",
    "ID AS same",
    "current_timezone() AS zone",
    "`user`",
)


@contextmanager
def unlike(session: Any) -> Iterator[None]:
    """Give a session such settings for as long as the block lasts."""
    before = session.conf.getAll
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in SETTINGS:
            if name in before:
                session.conf.set(name, before[name])
            else:
                session.conf.unset(name)


def shout(text: str) -> str:
    return text.upper() + "!"


def known(session: Any) -> None:
    """Register a function and a view, as users do before they run a flow."""
    session.udf.register("shout", shout, "string")
    session.createDataFrame(
        [("ada", "London"), ("bob", "Paris")], "user string, town string"
    ).createOrReplaceTempView("towns")


def by_day(frame: Any) -> Any:
    from pyspark.sql import functions as sql

    return frame.groupBy("_epoch", sql.date_format("at", "yyyy-MM-dd").alias("day")).count()


def with_towns(frame: Any) -> Any:
    return frame.join(frame.sparkSession.table("towns"), "user").selectExpr(
        "id", "town", "hour(at) AS hour", "_epoch"
    )


def flow_in(root: Path, *outputs: str) -> tg.Dataflow:
    """Return the flow, with these of its outputs or all of them."""
    root.mkdir(parents=True, exist_ok=True)
    lines = [
        {"id": n, "user": ("ada", "bob")[n % 2], "amount": n * 100.5, "at": at, "wall": at.removesuffix("Z")}
        for n, at in enumerate(AT)
    ]
    (root / "orders.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    flow = tg.Dataflow("unlike", store=f"sqlite:///{root}/flow.db")
    columns = "id long, user string, amount double, at timestamp, wall timestamp_ntz"
    orders = flow.source("orders", tg.FileSource(f"{root}/*.jsonl", format=tg.Json(columns)))
    steps = {
        "as_it_is": orders,
        "plain": orders.filter("amount > 100").select("id", "amount * 2 AS twice", "user"),
        "telling": orders.select(*TELLING),
        "late": orders.filter("at >= '2026-03-29'"),
        "windowed": orders.select("id", "row_number() OVER (PARTITION BY to_date(at) ORDER BY id) AS nth"),
        "shouted": orders.select("shout(user) AS loud", "hour(at) AS hour"),
        "by_day": orders.transform(by_day),
        "with_towns": orders.transform(with_towns),
    }
    for name in outputs or steps:
        flow.sink(name, steps[name], tg.ParquetSink(f"{root}/lake/{name}"))
    return flow


def tables(session: Any, root: Path) -> dict[str, list[str]]:
    """Run the flow on a session; return each table's columns, and its rows as they lie there, then as read back."""
    flow = flow_in(root)
    known(session)
    before = dict(session.conf.getAll)
    flow.run("caught-up", spark=session)
    if dict(session.conf.getAll) != before:
        raise RuntimeError("a session that was given has other settings than before")
    found = {}
    for name in flow.outputs:
        table = tg.read_arrow(flow, name)
        found[name] = [str(table.schema), *lines(table)]
        found[f"{name}, by Spark"] = lines(tg.read(session, flow, name).toArrow())
    return found


def uncopied(session: Any, root: Path) -> list[str]:
    """Return the error of a flow on a Connect session that cannot be copied, as in Spark 4.0."""
    flow, copying = flow_in(root), type(session).cloneSession
    del type(session).cloneSession
    try:
        flow.run("caught-up", spark=session)
    except tg.TidegaugeError as error:
        return [error.code, str(error)]
    finally:
        type(session).cloneSession = copying
    return ["", "it was not refused"]


def joined(session: Any, root: Path) -> str:
    """Return the town that a flow gets out of a DataFrame of the user's session, or the code of the error."""
    flow = flow_in(root)
    towns = session.createDataFrame([("ada", "London")], "user string, town string")
    both = tg.Dataflow("joined", store=f"sqlite:///{root}/joined.db")
    orders = both.source("orders", flow.sources["orders"])
    stream = orders.transform(lambda df: df.join(towns, "user").select("town", "_epoch"))
    both.sink("joined", stream, tg.ParquetSink(f"{root}/joined"))
    try:
        both.run("caught-up", spark=session)
    except tg.TidegaugeError as error:
        return error.code
    return str(tg.read_arrow(both, "joined").column("town")[0].as_py())


def lines(table: pa.Table) -> list[str]:
    """Return the rows of a table as text, sorted; instants are the same ones in every zone."""
    columns = [_instants(table.column(name)) for name in table.column_names]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return sorted(repr(row) for row in rows)


def _instants(column: Any) -> Any:
    zoned = pa.types.is_timestamp(column.type) and column.type.tz
    return column.cast(pa.timestamp("us", "UTC")) if zoned else column
