"""Real Spark on this machine, from PySpark's own files: a standalone cluster of two workers, and a Connect server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]
SPARK_HOME = Path(pyspark.__file__).parent
STARTUP = 90.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a condition holds; a process that ended meanwhile, or takes too long, is an error with its log."""

    def otherwise() -> str:
        return f"{process.args!r} did not come up:\n{log.read_text()[-3000:]}"

    def up() -> bool:
        if condition():
            return True
        assert process.poll() is None, otherwise()
        return False

    eventually(up, within=STARTUP, otherwise=otherwise)


@contextmanager
def java(folder: Path, name: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a class of Spark's in a process of its own until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    environ = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYTHONPATH": os.pathsep.join([str(SPARK_HOME.parent), os.environ.get("PYTHONPATH", "")]),
    }
    path = folder / f"{name}.log"
    with path.open("wb") as log:
        command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environ, cwd=folder)
    try:
        yield process, path
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def standalone(folder: Path, *, workers: int = 2) -> Iterator[str]:
    """A standalone cluster with workers of one core each. Gives the master's URL."""
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
        master, log = stack.enter_context(java(folder, "master", f"{deploy}.master.Master", *where))
        until(lambda: alive() >= 0, master, log)
        size = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        for number in range(workers):
            name = f"{deploy}.worker.Worker"
            url = f"spark://127.0.0.1:{port}"
            stack.enter_context(java(folder, f"worker{number}", name, *size, url))
        until(lambda: alive() == workers, master, log)
        yield f"spark://127.0.0.1:{port}"


@contextmanager
def connect_server(folder: Path, *, master: str = "local[2]") -> Iterator[str]:
    """A Spark Connect server. Gives its URL."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    submit = ["org.apache.spark.deploy.SparkSubmit", "--master", master, *options]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"

    def listening() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with java(folder, "connect", *submit, "--class", server, "spark-internal") as (process, log):
        until(listening, process, log)
        yield f"sc://127.0.0.1:{port}"
