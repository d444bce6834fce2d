"""One whole flow, run on the Spark at a URL from a process of its own: `python -m tests.pipeline.engine.whole_flow
URL ROOT`.

Without a URL it can be run by any engine. `rows` reads its tables back, as data that can be compared and sent.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.pipeline.engine import cases

import tidegauge as tg
from tidegauge.pipeline.engine import SparkEngine

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


def rows(flow: tg.Dataflow) -> dict[str, list[str]]:
    """Every row of every output, sorted, as text."""
    found = {}
    for output in flow.outputs:
        table = tg.read_arrow(flow, output)
        found[output] = sorted(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())
    return found


def main() -> None:
    """Run both flows on the Spark at the URL and print what is in their tables."""
    url, root = sys.argv[1], Path(sys.argv[2])
    session = cases.session_at(url)
    engine = SparkEngine(session)
    found = {}
    for make in (arrow_flow, spark_flow):
        flow = make(root)
        flow.run("caught-up", engine=engine)
        found.update(rows(flow))
    frame = tg.read(session, spark_flow(root), "large", as_of=0)
    found["large as of 0, by Spark"] = [str(frame.count())]
    engine.close()
    session.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
