"""Makes what the tests' JVMs start from: an archive of loaded classes for Spark, and one for Kafka, in `.venv`.

A JVM that is given such an archive (class data sharing) maps the classes that another one had loaded, instead of
loading them again: it comes up with about half the processor time, and the tests start dozens. An archive is good for
one Java and one set of JARs; what says which is kept beside them. Where one cannot be made, JVMs start as ever.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from tidegauge.engine.spark.session import check_java
from tidegauge.errors.base import TidegaugeError
from tidegauge.testing import KafkaBroker
from tidegauge.testing.jars import cache, pins

VENV = Path(sys.prefix)
SPARK, KAFKA, STAMP = VENV / "spark.jsa", VENV / "kafka.jsa", VENV / ".archives"


def stamp(java: str) -> str:
    """Return what the archives depend on: the Java, and the JARs with their places."""
    version = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    jars = [
        f"{pyspark.__version__} {pyspark.__file__}",
        *(pin.sha256 for pin in pins().values()),
        str(cache(os.environ)),
    ]
    return hashlib.sha256(b"\n".join([version, Path(__file__).read_bytes(), *map(str.encode, jars)])).hexdigest()


def dumped(variable: str, archive: Path, command: str) -> None:
    """Let a command's JVM write an archive when it ends: its options come through a variable."""
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={archive}"
    environ = {**os.environ, variable: options, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with tempfile.TemporaryDirectory() as folder:
        # Its output is read to the end, which is when the JVM that writes has ended too.
        subprocess.run([sys.executable, __file__, command, folder], env=environ, capture_output=True, check=True)


def spark(folder: str) -> None:
    """Use a session as the tests do. One of Connect has the classes of a classic one too."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    rows = session.range(0, 100, 1, 2).mapInArrow(lambda batches: batches, "id long")
    rows = rows.selectExpr("id", "CAST(id % 7 AS STRING) AS name", "struct(id) AS all").where(
        "id > 3 OR name LIKE '1%'"
    )
    rows.union(rows).persist().write.parquet(f"{folder}/rows")
    session.read.parquet(f"{folder}/rows").groupBy("name").count().toArrow()
    session.stop()


def kafka(_folder: str) -> None:
    """Use a broker as the tests do."""
    with KafkaBroker() as broker:
        broker.create_topic("orders", partitions=2)
        broker.stop()


def main() -> int:
    """Make the archives that are missing, or were made for something else."""
    if any(character.isspace() for character in str(VENV)):
        return 0  # options of a JVM are words
    try:
        wanted = stamp(check_java(who="Spark"))
        if STAMP.exists() and STAMP.read_text() == wanted:
            return 0
        print("Archiving loaded classes for the tests' JVMs into .venv (half a minute, once).", flush=True)
        for archive in (SPARK, KAFKA, STAMP):
            archive.unlink(missing_ok=True)
        dumped("SPARK_SUBMIT_OPTS", SPARK, "spark")
        if all((cache(os.environ) / name).exists() for name in pins()):
            dumped("KAFKA_OPTS", KAFKA, "kafka")
        STAMP.write_text(wanted)
    except (OSError, subprocess.CalledProcessError, TidegaugeError) as error:
        print(f"The tests' JVMs start without an archive of classes: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit({"spark": spark, "kafka": kafka}[sys.argv[1]](sys.argv[2]) if len(sys.argv) > 1 else main())
