"""The Spark session an engine works on: the user's own, left as it is, or one made for this flow.

Invariant: the configuration of a session that someone else made is never changed.

>>> major_version('openjdk version "17.0.15" 2025-04-15'), major_version('java version "1.8.0_402"')
(17, 8)
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegauge.errors.engine import JavaMissing

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

__all__ = ["check_java", "create_session", "interrupt", "is_connect", "major_version", "plan_text", "slots", "tagged"]

OLDEST_JAVA: Final = 17
_REMOTE: Final = {"SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED"}
"""What in the environment can make a session a Connect client, or has it made one."""

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")


def major_version(text: str) -> int | None:
    """Return the major version in what `java -version` prints."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def check_java(environ: Mapping[str, str] | None = None, *, who: str = "Spark") -> str:
    """Return the program of the Java that `who` will start. Raises `JavaMissing` unless it is new enough."""
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java", path=environ.get("PATH"))
    install = "apt-get install openjdk-17-jre-headless, brew install openjdk@17, or https://adoptium.net"
    if java is None or not os.access(java, os.X_OK):
        place = f"there is no Java at JAVA_HOME ({home})" if home else "there is no Java on the PATH"
        raise JavaMissing(found=place, who=who, install=install)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(found=f"the Java at {java} does not start ({error})", who=who, install=install) from error
    version = major_version(done.stderr + done.stdout)
    if version is None:
        raise JavaMissing(found=f"the Java at {java} does not say its version", who=who, install=install)
    if version < OLDEST_JAVA:
        found = f"the Java at {java} is version {version}, which is too old"
        raise JavaMissing(found=found, who=who, install=install)
    return java


def create_session(master: str) -> SparkSession:
    """Return a new session for flows alone: small jobs start fast, instants are UTC, nothing is printed."""
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers run whatever python3 is first on the path
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"',
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
    conf = SparkConf().setAppName("tidegauge").setMaster(master).setAll(list(settings.items()))
    _start_java(conf)
    session: SparkSession = SparkSession.builder.config(conf=conf).getOrCreate()
    return session


def _start_java(conf: SparkConf) -> None:
    """Start the JVM of a classic session, with its context, out of reach of this process's terminal.

    Else a signal to this process's group, as a terminal sends for Ctrl-C and a supervisor to stop a service, would
    end the JVM under the epoch that is to be finished. It ends when this process does, because its input then does.
    A JVM that this process has already is used as it is.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None and not _REMOTE & os.environ.keys():  # noqa: SLF001
        gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)


def is_connect(session: Any) -> bool:
    """Whether a session is a Spark Connect client, which has no JVM of its own."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def slots(session: Any) -> int:
    """Return how many tasks a session's cluster runs at once. On Connect it is asked with a small job."""
    if not is_connect(session):
        return max(1, int(session.sparkContext.defaultParallelism))
    from pyspark.sql import functions as sql

    partition = session.range(1 << 16).select(sql.spark_partition_id().alias("partition"))
    return 1 + int(partition.agg(sql.max("partition").alias("last")).collect()[0]["last"])


def plan_text(frame: Any) -> str:
    """Return the physical plan that Spark makes of a frame, as `explain()` prints it.

    `DataFrame.explain` only prints; the text is reached in one way on a classic session and in another on Connect.
    """
    if hasattr(frame, "_explain_string"):
        return str(frame._explain_string(mode="simple"))  # noqa: SLF001
    return str(frame._jdf.queryExecution().simpleString())  # noqa: SLF001


@contextlib.contextmanager
def tagged(session: Any, tag: str) -> Iterator[None]:
    """Mark the jobs that this thread starts in the block, so that `interrupt` can cancel them from another thread.

    A classic session's own tags are each thread's, hence those of its context.
    """
    connect = is_connect(session)
    add, remove = (
        (session.addTag, session.removeTag)
        if connect
        else (session.sparkContext.addJobTag, session.sparkContext.removeJobTag)
    )
    add(tag)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the session may have been stopped meanwhile
            remove(tag)


def interrupt(session: Any, tag: str) -> None:
    """Cancel the running jobs of a tag. A session that is gone runs nothing."""
    with contextlib.suppress(Exception):
        if is_connect(session):
            session.interruptTag(tag)
        else:
            session.sparkContext.cancelJobsWithTag(tag)
