"""A driver to be killed: forked from a process that has everything imported, so that a life costs milliseconds.

Reads one JSON command a line: `{"root": ..., "point": ..., "nth": ...}`. Forks a child that runs the flow of `make`
in that folder until it is caught up, and kills itself with SIGKILL at the nth time it comes to the point (if one is
given). Answers with the child's pid, and once the child has ended, with how.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import pyarrow as pa

import tidegauge as tg

LARGE = 40


def shout(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A transformation that keeps the position of each row."""
    names = pa.array([f"{name}!" for name in batch.column("name").to_pylist()], pa.string())
    return batch.set_column(batch.schema.get_field_index("name"), "name", names)


def make(root: Path) -> tg.Dataflow:
    """Three sources of three formats, four outputs of two kinds."""
    flow = tg.Dataflow("kill", store=f"sqlite:///{root}/flow.db", tick=0.02)
    orders = flow.source(
        "orders",
        tg.FileSource(
            str(root / "in" / "*.jsonl"),
            format=tg.Json("id long, name string"),
            metadata=True,
            max_bytes_per_epoch=1500,
            split_bytes=500,
        ),
    )
    prices = flow.source(
        "prices",
        tg.FileSource(
            str(root / "in" / "*.csv"),
            format=tg.Csv("id long, price double"),
            metadata=True,
            max_bytes_per_epoch=900,
            split_bytes=400,
        ),
    )
    rows = flow.source(
        "rows", tg.GeneratorSource(rows=500, columns="k long, s string", shards=3, max_records_per_epoch=60)
    )
    flow.sink("orders", orders, tg.DeltaSink(str(root / "lake" / "orders")))
    flow.sink("loud", orders.map_batches(shout), tg.ParquetSink(str(root / "lake" / "loud")))
    flow.sink("prices", prices, tg.DeltaSink(str(root / "lake" / "prices")))
    flow.sink("rows", rows, tg.ParquetSink(str(root / "lake" / "rows")))
    return flow


def fill(root: Path) -> None:
    """Write the input: the same bytes for every root."""
    folder = root / "in"
    folder.mkdir(parents=True)
    for file in range(3):
        lines = [json.dumps({"id": file * 1000 + n, "name": "x" * (n % 7)}) for n in range(120)]
        (folder / f"{file}.jsonl").write_text("\n".join(lines) + "\n")
    rows = [f'{n},"{n / 4}"' for n in range(400)]
    (folder / "prices.csv").write_text("id,price\r\n" + "\r\n".join(rows) + "\r\n")


def live(root: Path, point: str | None, nth: int) -> None:
    """Run until caught up, or until the point is reached for the nth time."""
    left = nth

    def strike(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    make(root).run(until="caught-up", engine=tg.LocalEngine(threads=2), env=tg.Env(point=strike))


def serve() -> None:
    """Answer commands until the input ends."""
    for line in sys.stdin:
        command = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                live(Path(command["root"]), command.get("point"), command.get("nth", 0))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(json.dumps({"pid": pid}), flush=True)
        _pid, status = os.waitpid(pid, 0)
        print(json.dumps({"killed": os.WIFSIGNALED(status), "code": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    serve()
