"""The main job, small, on the versions that are installed: files and Kafka into tables, with SQL, on both engines.

`python scripts/smoke.py` prints the versions and what came of it; it fails with the first thing that is not as it
should be. It is run in an environment of the oldest versions by `scripts/oldest.py`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

import tidegauge as tg
from tidegauge.kafka.clients import kafka

NAMES = ("deltalake", "numpy", "pandas", "pyarrow", "pyspark", "rich", "sqlalchemy", "typer", "confluent-kafka")
ORDERS = "id long, user string, amount double, at timestamp, tags array<string>"
SIZE = 200
EPOCHS = 2


def rows(first: int) -> list[dict[str, Any]]:
    return [
        {"id": n, "user": f"u{n % 7}", "amount": n / 4, "at": f"2026-03-29T0{n % 10}:30:00Z", "tags": ["x"] * (n % 3)}
        for n in range(first, first + SIZE)
    ]


def taxed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("tax", pc.multiply(batch.column("amount"), 0.5))


def per_user(frame: Any) -> Any:
    return frame.groupBy("_epoch", "user").count()


def flow_in(root: Path, *, engine: str, servers: str | None) -> tg.Dataflow:
    """Return the flow: with SQL on Spark, and with what the local engine computes on the local one."""
    flow = tg.Dataflow("smoke", store=f"sqlite:///{root}/{engine}.db")
    orders = flow.source("orders", tg.FileSource(f"{root}/in/*.jsonl", format=tg.Json(ORDERS), metadata=True))
    outputs = {"orders": orders, "taxed": orders.map_batches(taxed)}
    if servers is not None:
        topic = tg.KafkaSource(servers, topic="orders", format=tg.Json(ORDERS))
        outputs["from_kafka"] = flow.source("topic", topic)
    if engine == "spark":
        outputs["plain"] = orders.filter("amount > 25").select("id", "amount * 1.5 AS gross")
        outputs["large"] = orders.filter("amount > 25").select(
            "id", "upper(user) AS user", "hour(at) AS hour", "tags"
        )
        outputs["per_user"] = orders.transform(per_user)
    for number, (name, stream) in enumerate(outputs.items()):
        path = str(root / "lake" / engine / name)
        flow.sink(name, stream, tg.ParquetSink(path) if number % 2 else tg.DeltaSink(path))
    return flow


def check(flow: tg.Dataflow, *, spark: Any) -> None:
    """Compare the tables with what was put in. Raises `AssertionError`."""
    found = {name: tg.read_arrow(flow, name) for name in flow.outputs}
    every = [row for epoch in range(EPOCHS) for row in rows(epoch * SIZE)]
    for name in {"orders", "taxed", "from_kafka"} & found.keys():
        same("ids", name, sorted(found[name]["id"].to_pylist()), [row["id"] for row in every])
    same("sums", "taxed", sum(found["taxed"]["tax"].to_pylist()), sum(row["amount"] for row in every) / 2)
    for name in {"plain", "large"} & found.keys():
        large = [row["id"] for row in every if row["amount"] > 25]
        same("ids", name, sorted(found[name]["id"].to_pylist()), large)
    if spark is None:
        return
    same("columns", "large", found["large"].column_names, ["id", "user", "hour", "tags", "_epoch"])
    same("hours", "large", set(found["large"]["hour"].to_pylist()), set(range(10)))
    same("count", "per_user", sum(found["per_user"]["count"].to_pylist()), len(every))
    same("rows of epoch 0, by Spark", "orders", tg.read(spark, flow, "orders", as_of=0).count(), SIZE)
    tg.register(spark)
    options = {"store": flow.store, "flow": flow.name, "output": "orders"}
    table = spark.read.format("tidegauge").options(**options, asOf=0).load()
    same("rows of epoch 0, by the format", "orders", table.count(), SIZE)
    stream = spark.readStream.format("tidegauge").options(**options).load().writeStream
    stream.format("memory").queryName("followed").trigger(availableNow=True).start().awaitTermination()
    same("rows, by a stream", "orders", spark.table("followed").count(), len(every))


def same(what: str, output: str, found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{what} of {output}: {found} instead of {expected}")


def command_line(root: Path) -> None:
    """Run a flow by the command line, and look at it."""
    lines = [
        "import tidegauge as tg",
        "flow = tg.Dataflow('shop', store='sqlite:///shop.db')",
        "flow.sink('rows', flow.source('rows', tg.GeneratorSource(rows=9, columns='n long')), tg.DeltaSink('rows'))",
    ]
    (root / "shop.py").write_text("\n".join(lines))
    for words in ("--help", "run --help", "run shop.py --engine local --until caught-up", "status shop.py"):
        done = subprocess.run(
            [sys.executable, "-m", "tidegauge", *words.split()], cwd=root, capture_output=True, text=True, check=False
        )
        same("exit code", words, done.returncode, 0)


def produce(servers: str, first: int) -> None:
    producer = kafka().Producer({"bootstrap.servers": servers})
    for row in rows(first):
        producer.produce("orders", json.dumps(row).encode())
    producer.flush()


def main() -> None:
    for name in NAMES:
        try:
            print(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} is not installed")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegauge-smoke-")))
        (root / "in").mkdir()
        servers = None
        if importlib.util.find_spec("confluent_kafka") is not None:
            from tidegauge.testing import KafkaBroker

            broker = stack.enter_context(KafkaBroker())
            broker.create_topic("orders", partitions=2)
            servers = broker.servers
        spark = tg.SparkEngine(master="local[2]")
        stack.callback(spark.close)
        flows = {kind: flow_in(root, engine=kind, servers=servers) for kind in ("local", "spark")}
        for epoch in range(EPOCHS):
            with (root / "in" / f"{epoch}.jsonl").open("w") as out:
                out.writelines(json.dumps(row) + "\n" for row in rows(epoch * SIZE))
            if servers is not None:
                produce(servers, epoch * SIZE)
            flows["local"].run("caught-up", engine="local")
            flows["spark"].run("caught-up", engine=spark)
        check(flows["local"], spark=None)
        check(flows["spark"], spark=spark.session)
        command_line(root)
    print("all rows are there once, on both engines")


if __name__ == "__main__":
    main()
