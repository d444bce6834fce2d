"""A flow on a cluster that loses an executor, then a worker with its executors, while somebody reads its tables.

`python -m tests.engine.losses URL FOLDER` runs it on the Spark at a URL, in rounds of one file each, and
prints what came of it as JSON. What happens to the cluster is done by the tasks themselves, in the midst of a job.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from tests import waiting
from tests.engine import cases, whole_flow
from tests.engine.clusters import ROOT

import tidegauge as tg
from tidegauge.engine import SparkEngine

for module in (sys.modules[__name__], waiting, whole_flow):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.task.duration.threshold": "1s",
}
ROWS = 100
ROUNDS = ("quiet", "quiet", "slow", "executor", "worker", "quiet")
"""What happens in each round, the first time that one of its rows comes to a task."""


@dataclass(frozen=True)
class Survived:
    """Of each output its ids and how many rows it has up to each epoch; what readers saw: output, epoch, rows.

    during: how many reads there were in rounds in which something was lost. done: what happened.
    """

    ids: dict[str, list[int]]
    upto: dict[str, list[int]]
    reads: list[tuple[str, int, int]]
    during: int
    done: list[str]


def survived(url: str, folder: Path) -> Survived:
    """Run the flow from a process of its own."""
    command = [sys.executable, "-m", "tests.engine.losses", url, str(folder)]
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=280, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"it failed on {url}:\n{done.stderr[-4000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Survived(**{**found, "reads": [tuple(read) for read in found["reads"]]})


def flow_in(root: Path) -> tg.Dataflow:
    """Return the flow: as it is, by SQL on Spark, and by a function that strikes."""

    def strike(batch: pa.RecordBatch) -> pa.RecordBatch:
        for number in set(batch.column("round").to_pylist()):
            once(root / f"{number}-{ROUNDS[number]}", ROUNDS[number])
        return batch

    flow = tg.Dataflow("losses", store=f"sqlite:///{root}/flow.db", tick=0.05)
    orders = flow.source(
        "orders", tg.FileSource(f"{root}/in/*.jsonl", format=tg.Json("id long, round int, user string"))
    )
    flow.sink("plain", orders, tg.DeltaSink(f"{root}/plain"))
    flow.sink("loud", orders.select("id", "upper(user) AS user"), tg.ParquetSink(f"{root}/loud"))
    flow.sink("struck", orders.map_batches(strike), tg.DeltaSink(f"{root}/struck"))
    return flow


def once(mark: Path, what: str) -> None:
    """Do what a round is for; who comes second leaves a mark of that and goes on."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        mark.with_suffix(".again").touch()
        return
    if what == "slow":
        waiting.eventually(
            mark.with_suffix(".again").exists, within=60
        )  # until Spark has begun the task a second time
    elif what != "quiet":
        executor = whole_flow.executor()
        if what == "worker":
            os.kill(int(Path(f"/proc/{executor}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
        os.kill(executor, signal.SIGKILL)


class Reader(threading.Thread):
    """Reads the tables on a session, one epoch after the other, until it is told to end."""

    def __init__(self, session: Any, flow: tg.Dataflow) -> None:
        super().__init__(name="reader")
        self.session, self.flow = session, flow
        self.over = threading.Event()
        self.reads: list[tuple[str, int, int]] = []
        self.failed: list[Exception] = []

    def run(self) -> None:
        try:
            while not self.over.is_set():
                published = tg.status(self.flow).published
                for output in self.flow.outputs:
                    epoch = len(self.reads) % published
                    frame = tg.read(self.session, self.flow, output, as_of=epoch)
                    self.reads.append((output, epoch, frame.count()))
                    self.over.wait(0.3)  # the cluster is small
        except Exception as error:
            self.failed.append(error)


def main(url: str, root: Path) -> None:
    (root / "in").mkdir(parents=True)
    session = cases.session_at(url, more=SPECULATION)
    flow, engine = flow_in(root), SparkEngine(session)
    reader, during = Reader(session, flow), 0
    for number, what in enumerate(ROUNDS):
        lines = [{"id": number * ROWS + n, "round": number, "user": f"u{n % 7}"} for n in range(ROWS)]
        (root / "in" / f"{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        before = len(reader.reads)
        flow.run("caught-up", engine=engine)
        during += len(reader.reads) - before if what != "quiet" else 0
        if number == 1:
            reader.start()
    reader.over.set()
    reader.join()
    if reader.failed:
        raise reader.failed[0]
    engine.close()
    tables = {name: tg.read_arrow(flow, name) for name in flow.outputs}
    epochs = {name: table["_epoch"].to_pylist() for name, table in tables.items()}
    found = Survived(
        ids={name: sorted(table["id"].to_pylist()) for name, table in tables.items()},
        upto={name: [sum(e <= k for e in mine) for k in range(max(mine) + 1)] for name, mine in epochs.items()},
        reads=reader.reads,
        during=during,
        done=sorted(path.name for path in root.glob("*.again")),
    )
    session.stop()
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
