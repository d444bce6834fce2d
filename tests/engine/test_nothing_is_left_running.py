"""Whatever a run starts ends with it, however and whenever the run ends.

What a run has started is known by a mark in its environment, which its children have from it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests import postgres
from tests.engine.clusters import ROOT
from tests.waiting import eventually

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by /proc"),
]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
SHOP = """
import tidegauge as tg

flow = tg.Dataflow("shop", store="sqlite:///shop.db")
orders = flow.source("orders", tg.GeneratorSource(rows=100, columns="id long, user string"))
flow.sink("orders", orders.select("id", "upper(user) AS user"), tg.ParquetSink("orders"))
"""
CLUSTER = """
import sys
from pathlib import Path
from tests.engine import clusters
with clusters.standalone(Path(sys.argv[1]), hosts=["127.0.0.1"]) as url:
    print(url, flush=True)
    sys.stdin.read()
"""
POSTGRES = """
import sys
from tests import postgres
server = postgres.Server(postgres.binaries())
print(server.port, flush=True)
sys.stdin.read()
"""


class Marked:
    """A process with a mark that all it starts has too."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.mark = f"TIDEGAUGE_TEST_RUN={uuid.uuid4().hex}"
        self.log = folder / "log"
        name, _, value = self.mark.partition("=")
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=folder,
                env={**os.environ, name: value, "PYTHONPATH": paths},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def others(self) -> dict[int, str]:
        """Return the processes with the mark other than the first, and what they are."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.process.pid:
                with suppress(OSError):  # gone meanwhile
                    if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def has(self, what: str) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return any(what in command for command in self.others().values())

    def end(self, number: int) -> None:
        """Send a signal, and wait until nothing is left."""
        self.process.send_signal(number)
        try:
            self.process.wait(60)
            eventually(lambda: not self.others(), within=45, otherwise=lambda: f"left: {self.others()}")
        finally:
            self.process.kill()
            self.process.wait()
            for pid in self.others():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def shop(tmp_path: Path) -> Callable[[], Marked]:
    (tmp_path / "shop.py").write_text(SHOP)
    return lambda: Marked(tmp_path, "-m", "tidegauge", "run", "shop.py")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_no_java_is_left_of_a_run_that_ends_while_it_comes_up(shop: Callable[[], Marked], number: int) -> None:
    run = shop()
    eventually(lambda: run.has("SparkSubmit"), within=60)
    run.end(number)


@pytest.mark.long
@pytest.mark.parametrize("instant", range(12))
def test_nothing_is_left_of_a_run_that_ends_at_any_instant(shop: Callable[[], Marked], instant: int) -> None:
    """The instants are a third of a second apart, from the first sight of what keeps the JVM."""
    run = shop()
    if instant:
        eventually(lambda: run.has("keeper.py"), within=60)
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(instant / 3)
    run.end(SIGNALS[instant % len(SIGNALS)])


@pytest.mark.long
def test_nothing_is_left_of_a_run_with_many_epochs(shop: Callable[[], Marked]) -> None:
    run = shop()
    eventually(lambda: "published epoch 0" in run.log.read_text(), within=90, otherwise=run.log.read_text)
    assert run.has("pyspark.daemon")
    run.end(signal.SIGKILL)


@pytest.mark.long
def test_a_run_whose_java_is_killed_says_so_and_ends(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP.replace("rows=100", "rate=100"))
    run = Marked(tmp_path, "-m", "tidegauge", "run", "shop.py")
    try:
        eventually(lambda: "published epoch 0" in run.log.read_text(), within=90, otherwise=run.log.read_text)
        [java] = [pid for pid, command in run.others().items() if "SparkSubmit" in command and "java" in command]
        os.kill(java, signal.SIGKILL)
        assert run.process.wait(60) == 1
    finally:
        run.end(signal.SIGKILL)
    assert "TG-0593: Spark's Java ended under the job for the epochs " in run.log.read_text()


@pytest.mark.long
def test_nothing_is_left_of_a_cluster_whose_tests_are_killed(tmp_path: Path) -> None:
    tests = Marked(tmp_path, "-c", CLUSTER, str(tmp_path / "cluster"))
    eventually(lambda: tests.has("Worker"), within=90)
    tests.end(signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("sight", ["initdb", "postgres -D"])
def test_nothing_is_left_of_a_database_whose_tests_are_killed(tmp_path: Path, sight: str) -> None:
    if postgres.binaries() is None:
        postgres.missing(os.environ)
    tests = Marked(tmp_path, "-c", POSTGRES)
    eventually(lambda: tests.has(sight), within=90)
    tests.end(signal.SIGKILL)
