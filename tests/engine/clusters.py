"""Real Spark on this machine, from PySpark's own files: a standalone cluster of two workers, and a Connect server."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

import pyspark
from tests.waiting import eventually

from tidegauge.processes import LOG, Kept

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
STARTUP = 90.0
GRACE = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], bool], kept: Kept) -> None:
    """Wait until a condition holds; a server that ended meanwhile, or takes too long, is an error with its log."""

    def otherwise() -> str:
        return f"it did not come up:\n{(kept.folder / LOG).read_text()[-3000:]}"

    def up() -> bool:
        if condition():
            return True
        assert kept.running, otherwise()
        return False

    eventually(up, within=STARTUP, otherwise=otherwise)


@contextmanager
def java(folder: Path, *arguments: str, host: str = "127.0.0.1") -> Iterator[Kept]:
    """Run a class of Spark's in a process of its own until the block ends, or this process does."""
    folder.mkdir(parents=True, exist_ok=True)
    environ = {
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYTHONPATH": os.pathsep.join([str(SPARK_HOME.parent), os.environ.get("PYTHONPATH", "")]),
    }
    variables = [f"{name}={value}" for name, value in environ.items()]
    kept = Kept("tidegauge-spark-", grace=GRACE)
    try:
        kept.ask("start", "env", *variables, str(SPARK_HOME / "bin" / "spark-class"), *arguments)
        yield kept
    finally:
        kept.ask("end", int(signal.SIGTERM), GRACE)
        kept.leave()


@contextmanager
def standalone(folder: Path, *, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")) -> Iterator[str]:
    """A standalone cluster with a worker of one core on each host. Gives the master's URL."""
    port, page = free_port(), free_port()

    def alive() -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
                return sum(worker["state"] == "ALIVE" for worker in json.load(answer)["workers"])
        except (urllib.error.URLError, OSError, ValueError):
            return -1

    with ExitStack() as stack:
        deploy = "org.apache.spark.deploy"
        where = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
        master = stack.enter_context(java(folder, f"{deploy}.master.Master", *where))
        until(lambda: alive() >= 0, master)
        size = ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
        for host in hosts:
            named = [f"{deploy}.worker.Worker", "--host", host, *size, f"spark://127.0.0.1:{port}"]
            stack.enter_context(java(folder, *named, host=host))
        until(lambda: alive() == len(hosts), master)
        yield f"spark://127.0.0.1:{port}"


@contextmanager
def connect_server(
    folder: Path, *, master: str = "local[2]", more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """A Spark Connect server, with more settings. Gives its URL."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **more,
    }
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    submit = ["org.apache.spark.deploy.SparkSubmit", "--master", master, *options]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"

    def listening() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with java(folder, *submit, "--class", server, "spark-internal") as process:
        until(listening, process)
        yield f"sc://127.0.0.1:{port}"
