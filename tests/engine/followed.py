"""Queries of Structured Streaming that copy outputs, killed again and again, beside drivers that are killed, too.

    python -m tests.engine.followed copy URL FOLDER MOST NOW     copies until somebody kills it
    python -m tests.engine.followed finish URL FOLDER            copies what is left, and prints what came of it

A life of a classic session ends by SIGKILL of its process group, the JVM in it; one of a Connect server by SIGKILL of
the server. The flow's drivers go on meanwhile, and die at instants of their own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pyspark.errors import StreamingQueryException
from tests.engine import cases, clusters
from tests.flow import killable
from tests.flow.drivers import Drivers

import tidegauge as tg

OUTPUTS = ("loud", "orders", "rows")
"""Two folders of Parquet and a table of Delta."""


@dataclass(frozen=True)
class Copied:
    """seed: of the instants. queries, drivers: how many were killed. rows: of each output how many there are, and how
    many are missing in its copy, and are there too often."""

    seed: int
    queries: int
    drivers: int
    rows: dict[str, tuple[int, int, int]]


def start(session: Any, root: Path, output: str, *, most: int | None, now: bool) -> Any:
    options = {"store": f"sqlite:///{root}/flow.db", "flow": "kill", "output": output}
    options |= {} if most is None else {"maxEpochsPerTrigger": str(most)}
    frame = session.readStream.format("tidegauge").options(**options).load()
    writer = frame.writeStream.format("parquet").option("path", f"{root}/copy/{output}")
    writer = writer.option("checkpointLocation", f"{root}/checkpoint/{output}")
    return (writer.trigger(availableNow=True) if now else writer).start()


def copy(url: str, root: Path, *, most: int | None, now: bool) -> None:
    """Copy until it is killed. Says so once each query has had a batch."""
    session = cases.session_at(url)
    tg.register(session)
    queries: dict[str, Any] = {}
    for output in OUTPUTS:  # one after the other: Spark gives a Python process ten seconds to come up
        queries[output] = start(session, root, output, most=most, now=now)
        while not now and not queries[output].lastProgress:
            if ended(queries[output], within=0.2):
                queries[output] = start(session, root, output, most=most, now=now)
    print("copying", flush=True)
    while True:
        for output, query in queries.items():
            if ended(query, within=0.2):
                queries[output] = start(session, root, output, most=most, now=now)


def ended(query: Any, *, within: float) -> bool:
    """Whether a query has ended; if not by its trigger, then because a Python process was too slow to come up."""
    try:
        return bool(query.awaitTermination(within))
    except StreamingQueryException as error:
        if "connect back" not in str(error):
            raise
        return True


def finish(url: str, root: Path) -> None:
    """Copy what is left, and hold the copies against the tables."""
    session = cases.session_at(url)
    tg.register(session)
    for output in OUTPUTS:
        query = start(session, root, output, most=3, now=True)
        while not ended(query, within=60) or query.exception() is not None:
            query = query if query.isActive else start(session, root, output, most=3, now=True)
    rows = {}
    for output in OUTPUTS:
        copied = Counter(map(repr, session.read.parquet(f"{root}/copy/{output}").collect()))
        table = Counter(map(repr, tg.read(session, killable.make(root), output).collect()))
        rows[output] = table.total(), (table - copied).total(), (copied - table).total()
    session.stop()
    print(json.dumps(rows))


def spawned(*arguments: str, log: Path) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "tests.engine.followed", *arguments]
    return subprocess.Popen(
        command,
        cwd=clusters.ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=log.open("a"),
        text=True,
        start_new_session=True,
    )


@contextmanager
def session_url(kind: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Where a life has its Spark, and the process to kill with it; 0 for the group of the life itself."""
    if kind == "classic":
        yield "local[2]", 0
        return
    with clusters.connect_server(folder) as url:
        port = int(url.rpartition(":")[2])
        listening = [one for one in psutil.net_connections("tcp") if one.laddr and one.laddr.port == port]
        [pid] = {one.pid for one in listening if one.status == psutil.CONN_LISTEN and one.pid}
        yield url, pid


def followed(kind: str, root: Path, *, kills: int) -> Copied:
    """Copy three outputs, with so many kills of the queries."""
    seed = int.from_bytes(os.urandom(4))
    instants = random.Random(seed)
    killable.fill(root)
    drivers, log = Drivers(root / "drivers.log"), root / "queries.log"
    assert not drivers.live(root)
    killed = lives = 0

    def more() -> int:
        """Run drivers on new input, which are killed as a rule."""
        nonlocal lives
        died = 0
        for _ in range(3):
            lives += 1
            lines = [json.dumps({"id": lives * 10_000 + n, "name": f"life {lives}"}) for n in range(120)]
            (root / "in" / f"{lives + 10}.jsonl").write_text("\n".join(lines) + "\n")
            died += drivers.kill(drivers.start(root), after=instants.uniform(0, 1.5))
        return died

    with ThreadPoolExecutor(1) as beside:
        for life in range(kills):
            most, now = instants.choice(["0", "1", "3"]), life % 3 == 2
            with session_url(kind, root / f"server-{life}") as (url, server):
                process = spawned("copy", url, str(root), most, str(int(now)), log=log)
                try:
                    assert process.stdout is not None
                    assert process.stdout.readline() == "copying\n", log.read_text()[-4000:]
                    running = beside.submit(more)
                    try:
                        process.wait(instants.uniform(0, 5))
                    except subprocess.TimeoutExpired:
                        if server:
                            os.kill(server, signal.SIGKILL)
                finally:
                    assert process.poll() is None, log.read_text()[-4000:]
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                killed += running.result()
    assert not drivers.live(root)
    drivers.close()
    with session_url(kind, root / "server") as (url, _server):
        process = spawned("finish", url, str(root), log=log)
        said, _ = process.communicate()
    assert process.returncode == 0, log.read_text()[-4000:]
    return Copied(seed, kills, killed, {name: tuple(found) for name, found in json.loads(said).items()})


if __name__ == "__main__":
    what, url, root, *rest = sys.argv[1:]
    if what == "copy":
        copy(url, Path(root), most=int(rest[0]) or None, now=rest[1] == "1")
    else:
        finish(url, Path(root))
