"""The Spark session an engine works on: the user's own, left alone, or one made for this flow.

Invariant: the configuration of a session that someone else made is never changed.

>>> major_version('openjdk version "17.0.15" 2025-04-15'), major_version('java version "1.8.0_402"')
(17, 8)
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegauge.errors.engine import JavaEnded, JavaMissing
from tidegauge.processes import Kept

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

__all__ = [
    "check_java",
    "create_session",
    "interrupt",
    "is_connect",
    "major_version",
    "plan_text",
    "pooled",
    "slots",
    "tagged",
]

OLDEST_JAVA: Final = 17
_REMOTE: Final = {"SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED"}
"""What in the environment can make a session a Connect client, or has it made one."""

_ENDS_WITHIN: Final = 10.0
"""Seconds that a JVM is given to clear up what it has on disks."""
_LOOKS_EVERY: Final = 0.02

_POOL: Final = "spark.scheduler.pool"

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

    Otherwise a signal to this process's group, as a terminal sends for Ctrl-C and a supervisor to stop a service,
    would end the JVM under the epoch that is to be finished. A keeper (`processes`) looks after it, so it ends with
    this process, even if that goes while the JVM comes up, or is killed. If this process has a JVM already, that one
    is used.
    """
    from pyspark import SparkContext

    if SparkContext._gateway is None and not _REMOTE & os.environ.keys():  # noqa: SLF001
        SparkContext(conf=conf, gateway=_gateway(conf))


def _gateway(conf: SparkConf) -> Any:
    """Return a gateway to a JVM of our own, started as PySpark would start it.

    PySpark's own launch leaves the JVM running for ever if it is interrupted: it removes the folder in which the JVM
    is to write where it listens. The JVM, which would end with its input, half dies of that before it looks.

    It works where this process does, so that functions in tasks find modules and files there. Only the warehouse that
    Spark makes for itself, which flows have no use for, is in a folder that goes with the JVM.
    """
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.java_gateway import launch_gateway

    kept = Kept("tidegauge-spark-", grace=_ENDS_WITHIN, shown=True, works_in=Path.cwd())
    try:
        said = kept.folder / "gateway"
        warehouse = ("spark.sql.warehouse.dir", (kept.folder / "warehouse").as_uri())
        submit = [os.path.join(_find_spark_home(), "bin", "spark-submit")]
        settings = [word for name, value in (warehouse, *conf.getAll()) for word in ("--conf", f"{name}={value}")]
        more = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        variables = [f"_PYSPARK_DRIVER_CONN_INFO_PATH={said}", "SPARK_CONNECT_MODE=0"]
        kept.ask("start", "env", *variables, *submit, *settings, *more)
        while not said.exists():
            if not kept.running:
                raise JavaEnded
            time.sleep(_LOOKS_EVERY)
        port, secret = _where(said.read_bytes())
        with _variables({"PYSPARK_GATEWAY_PORT": port, "PYSPARK_GATEWAY_SECRET": secret}):
            gateway: Any = launch_gateway(conf)  # type: ignore[no-untyped-call]
    except BaseException:
        kept.leave()
        raise
    gateway.kept = kept  # as long as somebody may use the JVM
    return gateway


def _where(said: bytes) -> tuple[str, str]:
    """Return the port and the secret that a JVM has written down.

    >>> _where((25333).to_bytes(4, "big") + (3).to_bytes(4, "big") + b"abc")
    ('25333', 'abc')
    """
    return str(int.from_bytes(said[:4], "big")), said[8 : 8 + int.from_bytes(said[4:8], "big")].decode()


@contextlib.contextmanager
def _variables(given: Mapping[str, str]) -> Iterator[None]:
    """Have variables in the environment for as long as the block lasts."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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


@contextlib.contextmanager
def pooled(session: Any, pool: str | None) -> Iterator[None]:
    """Have the jobs that this thread starts in the block run in a scheduler pool, on a classic session.

    Spark heeds pools only where the session has `spark.scheduler.mode=FAIR`. None for the pool of before.
    """
    if pool is None or is_connect(session):
        yield
        return
    context = session.sparkContext
    before = context.getLocalProperty(_POOL)
    context.setLocalProperty(_POOL, pool)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the session may have been stopped meanwhile
            context.setLocalProperty(_POOL, before)


def interrupt(session: Any, tag: str) -> None:
    """Cancel the running jobs of a tag. A session that is gone runs nothing."""
    with contextlib.suppress(Exception):
        if is_connect(session):
            session.interruptTag(tag)
        else:
            session.sparkContext.cancelJobsWithTag(tag)
