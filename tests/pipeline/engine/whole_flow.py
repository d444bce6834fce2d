"""Whole flows, run on the Spark at a URL from a process of their own: `python -m tests.pipeline.engine.whole_flow URL
ROOT [FLOW...]`.

Without a URL they can be run by any engine. `rows` reads their tables back, as data that can be compared and sent.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.pipeline.engine import cases
from tests.pipeline.engine.clusters import ROOT

import tidegauge as tg
from tidegauge.pipeline.engine import SparkEngine

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
    """Three sources, four outputs; every step runs wherever the batch is."""
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
    return flow


def spark_flow(root: Path) -> tg.Dataflow:
    """The same sources with SQL outputs beside the others, on a store of their own."""
    flow = tg.Dataflow("sql", store=f"sqlite:///{root}/sql.db", tick=0.05)
    files = tg.FileSource(f"{root}/in/*.jsonl", format=tg.Json(ORDERS), max_bytes_per_epoch=9000, split_bytes=4000)
    orders = flow.source("orders", files)
    large = orders.filter("amount > 20").select("id", "user", "amount * 1.2 AS gross", "size(tags) AS n")
    flow.sink("all", orders, tg.DeltaSink(f"{root}/sql/all"))
    flow.sink("large", large, tg.DeltaSink(f"{root}/sql/large"))
    flow.sink("days", orders.transform(days), tg.ParquetSink(f"{root}/sql/days"))
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


FLOWS = {make.__name__: make for make in (arrow_flow, spark_flow, deadly_flow)}


def on_spark(url: str, root: Path, *flows: str) -> Rows:
    """Run flows on the Spark at a URL, from a process of its own, and return what is in their tables."""
    fill(root)
    command = [sys.executable, "-m", "tests.pipeline.engine.whole_flow", url, str(root), *flows]
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: Rows = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run the flows that are named, or those that make the same tables everywhere, and print what is in them."""
    url, root, *names = sys.argv[1:]
    session = cases.session_at(url)
    engine = SparkEngine(session)
    found = {}
    for make in [FLOWS[name] for name in names] or [arrow_flow, spark_flow]:
        flow = make(Path(root))
        flow.run("caught-up", engine=engine)
        found.update(rows(flow))
    if not names:
        frame = tg.read(session, spark_flow(Path(root)), "large", as_of=0)
        found["large as of 0, by Spark"] = [str(frame.count())]
    engine.close()
    session.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
