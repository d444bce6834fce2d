"""Queries of Structured Streaming that write batches, killed again and again, beside a flow that is killed, too.

    python -m tests.engine.written write URL FOLDER      writes in both ways until somebody kills it
    python -m tests.engine.written finish URL FOLDER     writes what is left
    python -m tests.engine.written flow FOLDER           runs the flow until somebody kills it

A life of a classic session ends by SIGKILL of its process group, the JVM in it; one of a Connect server by SIGKILL of
the server.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from tests.engine import cases, clusters
from tests.engine.followed import session_url

import tidegauge as tg
from tidegauge.engine import LocalEngine

WAYS = ("foreachBatch", "format")
"""Each has the whole input."""
SIZE = 50
"""Rows of a file, which is a batch."""


@dataclass(frozen=True)
class Written:
    """seed: of the instants. queries, flows: how many were killed. batches: of each way. wrong: what is not so.

    committed: the batches of each query by its own checkpoint. There is one for each file, but for a query that was
    killed after it had noted the next file and before it had noted a batch for it: its next batch has two.
    """

    seed: int
    queries: int
    flows: int
    batches: dict[str, list[int]]
    committed: dict[str, list[int]]
    wrong: list[str]


def started(session: Any, root: Path, way: str, *, now: bool = False, checkpoint: str = "checkpoint") -> Any:
    """Start a query that writes a batch for each file."""
    schema = "id long, at timestamp"
    frame = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{root}/in")
    writer = frame.writeStream.queryName(way).option("checkpointLocation", f"{root}/{checkpoint}/{way}")
    if way == "foreachBatch":
        writer = writer.foreachBatch(tg.write_batches(root / "batches", query=way))
    else:
        writer = writer.format("tidegauge").option("path", f"{root}/batches")
    return (writer.trigger(availableNow=True) if now else writer).start()


def table_rows(flow: Any, output: str) -> list[tuple[int, int]]:
    """The rows of an output, with their epochs."""
    return sorted((row["id"], row["_epoch"]) for row in tg.read_arrow(flow, output).to_pylist())


def make(root: Path) -> Any:
    flow = tg.Dataflow("written", store=f"sqlite:///{root}/flow.db")
    source = tg.BatchSource(root / "batches", columns="id long", max_records_per_epoch=3 * SIZE)
    rows = flow.source("batches", source)
    flow.sink("folder", rows, tg.ParquetSink(f"{root}/lake/folder"))
    flow.sink("delta", rows, tg.DeltaSink(f"{root}/lake/delta"))
    return flow


def ended(query: Any, *, within: float) -> bool:
    """Whether a query has ended; if not by its trigger, then because a Python process was too slow to come up."""
    try:
        return bool(query.awaitTermination(within))
    except StreamingQueryException as error:
        if "connect back" not in str(error):
            raise
        return True


def begun(session: Any, root: Path, way: str, *, now: bool = False) -> Any:
    """Start a query, again where a Python process was too slow to come up."""
    while True:
        try:
            return started(session, root, way, now=now)
        except PySparkException as error:
            if "connect back" not in str(error):
                raise


def done(begin: Callable[[], Any]) -> None:
    """Run a query to its end; again where a Python process was too slow to come up. Raises any other error."""
    while True:
        try:
            query = begin()
            query.awaitTermination()
        except PySparkException as error:
            if "connect back" not in str(error):
                raise
        else:
            assert query.exception() is None
            return


def write(url: str, root: Path, *, now: bool) -> None:
    """Write until it is killed, or all there is. Says so once each query has had a batch."""
    session = cases.session_at(url)
    tg.register(session)
    queries = {}
    for way in WAYS:
        queries[way] = begun(session, root, way, now=now)
        while not now and not queries[way].lastProgress:
            if ended(queries[way], within=0.2):
                queries[way] = begun(session, root, way)
    print("writing", flush=True)
    while queries:
        for way, query in list(queries.items()):
            if ended(query, within=0.2):
                if now and query.exception() is None:
                    del queries[way]
                else:
                    queries[way] = begun(session, root, way, now=now)
    session.stop()


def run(root: Path) -> None:
    """Run the flow until it is killed."""
    engine = LocalEngine(threads=2)
    while True:
        make(root).run(until="caught-up", engine=engine)


def spawned(*arguments: str, log: Path) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.engine.written", *arguments],
        cwd=clusters.ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=log.open("a"),
        text=True,
        start_new_session=True,
    )


def killed(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def written(kind: str, root: Path, *, kills: int) -> Written:
    """Write batches in both ways, with so many kills of the queries, and as many and more of the flow."""
    seed = int.from_bytes(os.urandom(4))
    instants = random.Random(seed)
    root.mkdir()
    (root / "in").mkdir()
    log, files, flows = root / "log", 0, 0
    for life in range(kills):
        for _ in range(12):
            lines = [json.dumps({"id": files * SIZE + n}) for n in range(SIZE)]
            (root / f"in/.{files:06}").write_text("\n".join(lines) + "\n")
            (root / f"in/.{files:06}").rename(root / f"in/{files:06}.json")
            files += 1
        with session_url(kind, root / f"server-{life}") as (url, server):
            process = spawned("write", url, str(root), log=log)
            driver = spawned("flow", str(root), log=log)
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "writing\n", log.read_text()[-4000:]
                end = time.monotonic() + instants.uniform(0, 10)
                while (left := end - time.monotonic()) > 0:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(min(left, instants.uniform(0.5, 5)))
                    assert driver.poll() is None, log.read_text()[-4000:]
                    killed(driver)
                    flows += 1
                    driver = spawned("flow", str(root), log=log)
                assert process.poll() is None, log.read_text()[-4000:]
                if server:
                    os.kill(server, signal.SIGKILL)
            finally:
                killed(process)
                killed(driver)
    with session_url(kind, root / "server") as (url, _server):
        process = spawned("finish", url, str(root), log=log)
        process.communicate()
    assert process.returncode == 0, log.read_text()[-4000:]
    return Written(seed, kills, flows, *counted(root, files))


def counted(root: Path, files: int) -> tuple[dict[str, list[int]], dict[str, list[int]], list[str]]:
    """Return the batches that are written and those the queries committed, and what is wrong with the tables."""
    flow, engine = make(root), LocalEngine(threads=2)
    flow.run(until="caught-up", engine=engine)
    engine.close()
    tables = {output: table_rows(flow, output) for output in ("folder", "delta")}
    wrong = [] if tables["folder"] == tables["delta"] else ["the tables are not the same"]
    expected = sorted([*range(files * SIZE)] * len(WAYS))
    if [found for found, _ in tables["folder"]] != expected:
        wrong.append(f"{len(tables['folder'])} rows, and {len(expected)} were to be written, each once in each way")
    for file in range(files):
        epochs = {epoch for found, epoch in tables["folder"] if found // SIZE == file}
        if len(epochs) > len(WAYS):
            wrong.append(f"the rows of file {file}, a batch in each way, are in the epochs {epochs}")
    folders = {way: root / "batches" / way for way in WAYS}
    written = {way: numbers(folder.glob("*.json")) for way, folder in folders.items()}
    committed = {way: numbers((root / "checkpoint" / way / "commits").glob("[0-9]*")) for way in WAYS}
    return written, committed, wrong


def numbers(files: Iterable[Path]) -> list[int]:
    """Return the numbers of batches that name files."""
    return sorted(int(file.stem) for file in files)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "flow":
        run(Path(rest[0]))
    else:
        write(rest[0], Path(rest[1]), now=what == "finish")
