"""A driver on Sail that is killed: `python -m tests.engine.sail.killed_on_sail FOLDER POINT NTH`.

A point is one of `env.POINTS`, "a row" for when a function of the flow comes to it, or "" for none.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pyarrow as pa
from tests.engine import whole_flow
from tests.killed import killing

import tidegauge as tg


def flow_in(root: Path) -> tg.Dataflow:
    """Return orders into three tables, with a function that kills the process at a row, which a file tells."""

    def strike(batch: pa.RecordBatch) -> pa.RecordBatch:
        if (root / "row").exists() and int((root / "row").read_text()) in batch.column("id").to_pylist():
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    flow = tg.Dataflow("killed", store=f"sqlite:///{root}/flow.db", tick=0.05)
    files = tg.FileSource(f"{root}/in/*.jsonl", format=tg.Json(whole_flow.ORDERS), max_bytes_per_epoch=9000)
    orders = flow.source("orders", files)
    flow.sink("plain", orders.select("id", "amount * 2 AS twice"), tg.DeltaSink(f"{root}/lake/plain"))
    sounds = orders.select("id", "md5(user) AS sum", "size(tags) AS n").map_batches(strike)
    flow.sink("sounds", sounds, tg.DeltaSink(f"{root}/lake/sounds"))
    flow.sink("days", orders.transform(whole_flow.days), tg.ParquetSink(f"{root}/lake/days"))
    return flow


def main(root: Path, point: str, nth: int) -> None:
    """Run the flow until it is struck, or to the end."""
    (root / "row").unlink(missing_ok=True)
    if point == "a row":
        (root / "row").write_text(str(nth))
    flow_in(root).run("caught-up", engine="sail", env=tg.Env(point=killing(point or None, nth)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
