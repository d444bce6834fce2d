"""Spark with Delta's own JAR, in a process of its own: statements in, rows out, one line of JSON each.

The JAR has to be on the class path before a session starts, so the session of the other tests cannot have it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kafka import missing

from tidegauge.errors.engine import JavaMissing
from tidegauge.errors.testing import JarsNotFetched
from tidegauge.testing.jars import DELTA, class_path

ROOT = Path(__file__).parents[2]


class DeltaSpark:
    """A Spark that is told SQL."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def sql(self, text: str) -> list[list[Any]]:
        """Return the rows of a statement; raise `RuntimeError` with the first lines of what Spark says against it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()
        while True:
            line = self._process.stdout.readline()
            if not line:
                raise RuntimeError("Spark has ended")
            if line.startswith("answer "):
                answer = json.loads(line.removeprefix("answer "))
                break
        if isinstance(answer, str):
            raise RuntimeError(answer)  # noqa: TRY004 - it is what was asked that is wrong
        rows: list[list[Any]] = answer
        return rows


@contextmanager
def delta_spark() -> Iterator[DeltaSpark]:
    """Start one, and stop it in the end."""
    try:
        jars = class_path(DELTA)
    except (JarsNotFetched, JavaMissing) as error:
        missing(error)
    environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
    command = [sys.executable, "-m", "tests.sinks.spark_delta", jars]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.DEVNULL, **pipes) as process:
        try:
            yield DeltaSpark(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def _serve(jars: str) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jars.replace(os.pathsep, ","))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.sources.parallelPartitionDiscovery.parallelism", "1")  # VACUUM lists with so many tasks
        # It takes a file for one without 0.0 when -0.0 is asked for, whoever wrote it.
        .config("spark.hadoop.parquet.filter.dictionary.enabled", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        .getOrCreate()
    )
    for line in sys.stdin:
        try:
            answer: Any = [list(row) for row in spark.sql(json.loads(line)).collect()]
        except Exception as error:
            answer = "\n".join(str(error).splitlines()[:5])
        print("answer " + json.dumps(answer, default=str), flush=True)
    spark.stop()


if __name__ == "__main__":
    _serve(sys.argv[1])
