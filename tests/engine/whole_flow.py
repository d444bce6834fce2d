"""Whole flows: what they read, what they do, and what is in their tables, as data that can be compared and sent."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

import tidegauge as tg
from tidegauge.engine import SparkEngine

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

Rows = dict[str, list[str]]

ORDERS = "id long, user string, amount double, at timestamp, tags array<string>"


def taxed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A column more than the batch has."""
    return batch.append_column("tax", pc.multiply(batch.column("amount"), 0.2))


def fill(root: Path) -> None:
    """Write the input: two JSON files of different sizes, a CSV file with quoted newlines."""
    folder = root / "in"
    folder.mkdir(parents=True)
    for file, size in enumerate((300, 80)):
        with (folder / f"{file}.jsonl").open("w") as out:
            for n in range(size):
                row = {"id": file * 1000 + n, "user": f"u{n % 7}", "amount": n / 4, "tags": ["x"] * (n % 3)}
                out.write(json.dumps({**row, "at": f"2026-11-{1 + n % 28:02d}T10:00:00Z"}) + "\n")
    lines = [f'{n},"note {n}\nsecond line",{"" if n % 5 == 0 else n}' for n in range(120)]
    (folder / "notes.csv").write_text("id,text,score\n" + "\n".join(lines) + "\n")


def arrow_flow(root: Path) -> tg.Dataflow:
    """Three sources and the union of two, six outputs; every step runs wherever the batch is."""
    flow = tg.Dataflow("whole", store=f"sqlite:///{root}/flow.db", tick=0.05)
    files = tg.FileSource(f"{root}/in/*.jsonl", format=tg.Json(ORDERS), max_bytes_per_epoch=9000, split_bytes=4000)
    orders = flow.source("orders", files)
    table = tg.Csv("id long, text string, score long")
    notes = flow.source("notes", tg.FileSource(f"{root}/in/*.csv", format=table, max_bytes_per_epoch=1500))
    ticks = tg.GeneratorSource(rows=900, columns="n long, s string, b boolean", shards=2, max_records_per_epoch=300)
    flow.sink("orders", orders, tg.DeltaSink(f"{root}/lake/orders"))
    flow.sink("taxed", orders.map_batches(taxed), tg.ParquetSink(f"{root}/lake/taxed"))
    flow.sink("notes", notes, tg.DeltaSink(f"{root}/lake/notes"))
    flow.sink("ticks", flow.source("ticks", ticks), tg.ParquetSink(f"{root}/lake/ticks"))
    both = flow.source("both", tg.union(orders, notes))
    flow.sink("both", both.filter("_source = 'notes' OR id > 100"), tg.ParquetSink(f"{root}/lake/both"))
    flow.sink("users", orders, tg.DeltaSink(f"{root}/lake/users", envelope="upsert", key="user", order="id"))
    return flow


def spark_flow(root: Path, *, rate: float = 1.2) -> tg.Dataflow:
    """The same sources with SQL outputs beside the others, on a store of their own."""
    flow = tg.Dataflow("sql", store=f"sqlite:///{root}/sql.db", tick=0.05)
    files = tg.FileSource(f"{root}/in/*.jsonl", format=tg.Json(ORDERS), max_bytes_per_epoch=9000, split_bytes=4000)
    orders = flow.source("orders", files)
    large = orders.filter("amount > 20").select("id", "user", f"amount * {rate} AS gross", "size(tags) AS n")
    flow.sink("all", orders, tg.DeltaSink(f"{root}/sql/all"))
    flow.sink("large", large, tg.DeltaSink(f"{root}/sql/large"))
    flow.sink("days", orders.transform(days), tg.ParquetSink(f"{root}/sql/days"))
    best = tg.DeltaSink(f"{root}/sql/users", envelope="upsert", key="user", order="id")
    flow.sink("users_sql", orders.transform(lambda frame: frame.where("size(tags) >= 0")), best)
    return flow


def late_flow(root: Path) -> tg.Dataflow:
    """The same flow, and outputs that get their past from a table."""
    flow = spark_flow(root)
    orders = tg.RowStream(flow, "orders")
    flow.sink("late", orders.map_batches(taxed), tg.DeltaSink(f"{root}/sql/late"), start=tg.From("all"))
    again = orders.filter("amount > 20").select("id", "user", "amount * 1.2 AS gross", "size(tags) AS n")
    flow.sink("late_sql", again, tg.ParquetSink(f"{root}/sql/late_sql"), start=tg.From("all"))
    return flow


def days(frame: Any) -> Any:
    """An aggregate by epoch."""
    return frame.groupBy("_epoch", "user").count().withColumnRenamed("count", "orders")


def executor() -> int:
    """Return the process of the executor that this task runs in: an ancestor of its Python worker."""
    pid = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def deadly_flow(root: Path) -> tg.Dataflow:
    """Orders, with a function that kills the executor which comes to the 200th order first, and tells of the next."""

    def kill(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 200 in batch.column("id").to_pylist():
            try:
                (root / "killed").touch(exist_ok=False)
            except FileExistsError:
                (root / "again").touch()
                return batch
            os.kill(executor(), signal.SIGKILL)
        return batch

    flow = tg.Dataflow("deadly", store=f"sqlite:///{root}/deadly.db", tick=0.05)
    files = tg.FileSource(f"{root}/in/*.jsonl", format=tg.Json(ORDERS), max_bytes_per_epoch=9000, split_bytes=2000)
    orders = flow.source("orders", files)
    flow.sink("plain", orders, tg.DeltaSink(f"{root}/deadly/plain"))
    flow.sink("large", orders.filter("amount > 20").select("id"), tg.DeltaSink(f"{root}/deadly/large"))
    flow.sink("deadly", orders.map_batches(kill), tg.ParquetSink(f"{root}/deadly/deadly"))
    return flow


def rows(flow: tg.Dataflow) -> Rows:
    """Every row of every output, sorted, as text."""
    found = {}
    for output in flow.outputs:
        table = tg.read_arrow(flow, output)
        found[output] = sorted(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())
    return found


def run_flows(session: Any, root: Path) -> Rows:
    """Run the flows that make the same tables everywhere on a session, and return what is in their tables."""
    fill(root)
    engine = SparkEngine(session)
    found = {}
    for flow in (arrow_flow(root), spark_flow(root), late_flow(root)):
        flow.run("caught-up", engine=engine)
        found.update(rows(flow))
    engine.close()
    frame = tg.read(session, spark_flow(root), "large", as_of=0)
    return {**found, "large as of 0, by Spark": [str(frame.count())]}


def check_sql(found: Rows, local: Rows) -> None:
    """SQL has filtered, selected and counted the rows that the local engine has."""
    orders = [json.loads(row) for row in local["orders"]]
    large = [json.loads(row) for row in found["large"]]
    assert sorted((row["id"], row["gross"], row["n"], row["_epoch"]) for row in large) == sorted(
        (row["id"], row["amount"] * 1.2, len(row["tags"]), row["_epoch"]) for row in orders if row["amount"] > 20
    )
    assert found["all"] == local["orders"]
    assert found["users_sql"] == local["users"], "the last order of each user, by way of DataFrames as well"
    assert found["late"] == local["taxed"], "its past is from a table, and its types are those of the source"
    assert found["late_sql"] == found["large"]
    assert sum(json.loads(row)["orders"] for row in found["days"]) == len(orders)


def run_deadly(session: Any, root: Path) -> Rows:
    """Run the flow that loses an executor. Raises when none was lost."""
    fill(root)
    engine = SparkEngine(session)
    flow = deadly_flow(root)
    flow.run("caught-up", engine=engine)
    engine.close()
    if not (root / "again").exists():
        raise RuntimeError("no task was lost")
    return rows(flow)
