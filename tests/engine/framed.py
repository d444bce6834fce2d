"""What comes of Kafka's messages by our reader, and by Spark's own connector in a session that has it:
`python -m tests.engine.framed JSON FOLDER`.

The connector has to be on the class path before a session starts, so it is driven once, in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.engine import cases
from tests.engine.clusters import ROOT
from tests.engine.kit import job_of, plan_of, rows_of
from tests.sources.kafka.writing import ANY_TIME, NOW, forget, write

import tidegauge as tg
from tidegauge.engine import LocalEngine, SparkEngine
from tidegauge.job.plan import Dedupe, Engine, EpochJob, Filter, JobResult, Select, SourceRead
from tidegauge.remap.binding import Bound, Slice
from tidegauge.sources import KafkaSource
from tidegauge.sources.protocol import Split
from tidegauge.testing import Endpoint

EPOCHS = 3
Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Found:
    """The rows of each output by reader, and how many records were read; how jobs fail of which a message has no
    instant, and of which records are gone; the rows that were read with secrets, and whether the plan shows one.
    """

    rows: dict[str, Rows]
    counts: dict[str, int]
    failures: list[Any]
    secret: Rows
    shown: bool


def drive(broker: Endpoint, topics: list[str], jars: str, folder: Path) -> Found:
    """Read topics from a process of its own."""
    given = json.dumps({"broker": asdict(broker), "topics": topics, "jars": jars})
    command = [sys.executable, "-m", "tests.engine.framed", given, str(folder)]
    environ = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "THE_PASSWORD": str(broker.sasl("alice")["sasl.password"]),
    }
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"it failed:\n{done.stderr[-4000:]}")
    return Found(**json.loads(done.stdout.splitlines()[-1]))


def planned(source: KafkaSource) -> tuple[Any, ...]:
    """The splits of all that there is, in several epochs, cut wherever that may be."""
    probe = source.probe(Bound(), now=NOW)
    bound = Bound(frontier=probe.upper, details=probe.details, schema=probe.schema or source.schema)
    cuts = {p: [end * i // EPOCHS for i in range(EPOCHS + 1)] for p, end in probe.upper.items()}
    slices = [Slice("orders", e, p, at[e], at[e + 1]) for e in range(EPOCHS) for p, at in cuts.items()]
    return tuple(source.plan([one for one in slices if one.size], bound))


def perform(
    engine: Engine, source: KafkaSource, splits: tuple[Split, ...], folder: Path, *, outputs: int = 3
) -> tuple[EpochJob, JobResult]:
    """Run one job of so many outputs."""
    assert source.schema is not None
    plans = [
        plan_of("all", folder),
        plan_of("bad", folder, channel="errors"),
        plan_of("some", folder, Filter("n % 2 = 0"), Select(("n * 10 AS tens", "_offset AS place"))),
    ][:outputs]
    job = job_of(engine, [SourceRead("orders", source, source.schema, splits, collect=True)], plans)
    return job, engine.submit(job).result(timeout=120)


def firsts(engine: Engine, source: KafkaSource, folder: Path) -> Rows:
    """The first row of each word in each epoch."""
    assert source.schema is not None
    read = SourceRead("orders", source, source.schema, planned(source), collect=True, whole=True)
    plan = plan_of("firsts", folder, Filter("n >= 0"), Dedupe(("word",)))
    job = job_of(engine, [read], [plan])
    return rows_by_output(job, engine.submit(job).result(timeout=120))


def rows_by_output(job: EpochJob, result: JobResult) -> Rows:
    assert result.failures == ()
    return {work.plan.name: rows_of(job, result, work.plan.name) for work in job.outputs}


def main(given: str, folder: Path) -> None:
    """Print what is found, as JSON."""
    told = json.loads(given)
    broker, topics = Endpoint(**told["broker"]), list[str](told["topics"])
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {told['jars'].replace(os.pathsep, ',')} pyspark-shell"
    session = cases.session_at("local[2]")
    engine = SparkEngine(session)
    rows: dict[str, Rows] = {}
    counts: dict[str, int] = {}

    def source(topic: list[str], servers: str = broker.servers, **more: Any) -> KafkaSource:
        shape = tg.Json("n long, word string")
        made = KafkaSource(servers, topic=topic, format=shape, metadata=True, split_records=5, **more)
        return made.placed("flow", "orders")

    local = LocalEngine(threads=0)
    for reader, by, count in (("python", local, 2), ("spark", engine, 3)):
        (folder / reader).mkdir()
        it = source(topics, reader=reader)
        job, result = perform(by, it, planned(it), folder / reader, outputs=count)
        rows[reader], counts[reader] = rows_by_output(job, result), result.records["orders"]
        rows[f"firsts by {reader}"] = firsts(by, it, folder / reader)

    late = broker.create_topic(f"{topics[0]}-late", config=ANY_TIME)
    for n in range(9):
        write(broker, late, [b'{"n": 1}'], timestamp=2**63 // 1000 + 1 if n in (1, 7) else 0)
    it = source([late], reader="spark")
    _job, result = perform(engine, it, planned(it)[1:], folder, outputs=1)
    failures: list[Any] = [(one.source, one.output, one.epoch, one.error.encode()) for one in result.failures]

    lost = broker.create_topic(f"{topics[0]}-lost")
    write(broker, lost, [b'{"n": 1}'] * 9)
    it = source([lost], reader="spark")
    splits = planned(it)
    forget(broker, lost, 4)
    _job, result = perform(engine, it, splits, folder, outputs=1)
    failures += [(one.source, one.output, one.epoch, one.error.encode()) for one in result.failures]

    login = broker.sasl("alice")
    (folder / "user").write_text(login["sasl.username"])
    settings = {"sasl.username": f"file:{folder}/user", "sasl.password": "env:THE_PASSWORD"}
    settings |= {name: login[name] for name in ("security.protocol", "sasl.mechanisms")}
    it = source(topics, broker.sasl_servers, reader="spark", settings=settings)
    splits = planned(it)
    plan = it.frame(session, splits)._jdf.queryExecution()
    shown = login["sasl.password"] in plan.toString() + plan.analyzed().toJSON() + plan.sparkPlan().toJSON()
    (folder / "secret").mkdir()
    secret = rows_by_output(*perform(engine, it, splits, folder / "secret", outputs=2))
    engine.close()
    session.stop()
    print(json.dumps(asdict(Found(rows, counts, failures, secret, shown)), default=str))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
