"""What is to be the same on a Spark of another kind, all of it run there by one process in one session:
`python -m tests.engine.elsewhere URL FOLDER`.

A session and its executors take long to start, so each kind of Spark is driven once, and the tests look at what came
of it. One Python process can hold either a classic or a Connect session.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.engine import cases, reclocked, unlike, whole_flow
from tests.engine.clusters import ROOT

import tidegauge as tg
from tidegauge.engine.spark.session import is_connect
from tidegauge.errors.kafka import ConnectorMissing
from tidegauge.sources import KafkaSource
from tidegauge.sources.kafka.planning import KafkaSplit, Range


@dataclass(frozen=True)
class Found:
    """What came of it: of the jobs by case, of the flows by output, and of data reclocked where it lay by its id,
    and of its source when that was scanned.

    survivors: the outputs of a flow that lost an executor, where there are executors to lose. refused: the code of
    the error that names Kafka's connector, which none of them has.

    On Connect: unlike: the tables of a flow on a session with other settings; uncopied: the error, code and text,
    where such a session cannot be copied; joined: what comes of a join to a DataFrame of the user's, on such a
    session and on one that is as it has to be.
    """

    cases: dict[str, dict[str, Any]]
    rows: whole_flow.Rows
    reclocked: list[Any]
    scanned: list[list[Any]]
    survivors: whole_flow.Rows
    refused: str
    unlike: dict[str, list[str]]
    uncopied: list[str]
    joined: list[str]


def drive(url: str, folder: Path) -> Found:
    """Run everything on the Spark at a URL, from a process of its own."""
    command = [sys.executable, "-m", "tests.engine.elsewhere", url, str(folder)]
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=480, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"it failed on {url}:\n{done.stderr[-4000:]}")
    return Found(**json.loads(done.stdout.splitlines()[-1]))


def main(url: str, folder: Path) -> None:
    """Print what is found on the Spark at a URL, as JSON."""
    for name in ("cases", "whole", "reclocked", "deadly"):
        (folder / name).mkdir()
    session = cases.session_at(url)
    flow = reclocked.flow_in(folder / "reclocked")
    found = Found(
        cases=cases.run_cases(session, folder / "cases"),
        rows=whole_flow.run_flows(session, folder / "whole"),
        reclocked=sorted(reclocked.epochs_by_spark(session, flow).items()),
        scanned=reclocked.scanned_by_spark(session, flow),
        survivors=whole_flow.run_deadly(session, folder / "deadly") if url.startswith("spark://") else {},
        refused=connector_of(session),
        **(
            sessions(session, folder / "unlike")
            if is_connect(session)
            else {"unlike": {}, "uncopied": [], "joined": []}
        ),
    )
    session.stop()
    print(json.dumps(asdict(found)))


def sessions(session: Any, folder: Path) -> dict[str, Any]:
    """Run flows on a Connect session as it is, and with settings that would change rows."""
    with unlike.unlike(session):
        found: dict[str, Any] = {"unlike": unlike.tables(session, folder / "all")}
        refused = unlike.uncopied(session, folder / "uncopied")
        joined = [unlike.joined(session, folder / "copied")]
    for name, value in (("spark.sql.session.timeZone", "UTC"), ("spark.sql.ansi.enabled", "true")):
        session.conf.set(name, value)
    return {**found, "uncopied": refused, "joined": [*joined, unlike.joined(session, folder / "same")]}


def connector_of(session: Any) -> str:
    """Ask a session for Kafka's connector; return the code of the error, "" when it has it."""
    it = KafkaSource("localhost:1", topic="orders", format=tg.Raw(), reader="spark").placed("shop", "orders")
    splits = [KafkaSplit(epoch=0, ranges=(Range("orders-0", 0, 1),), schema=pa.schema([]))]
    try:
        it.frame(session, splits)
    except ConnectorMissing as error:
        return error.code
    return ""


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
