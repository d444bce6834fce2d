"""Nothing of a broker is left when those who use it are gone, however they went."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.kafka import present
from tests.waiting import eventually

from tidegauge.processes import Kept
from tidegauge.testing import Endpoint
from tidegauge.testing.fixtures import place

USER = """
import json, sys, time
from pathlib import Path
from tidegauge.testing.shared import shared
with shared(Path(sys.argv[1])) as endpoint:
    print(endpoint.servers, flush=True)
    sys.stdin.read()
"""


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it went meanwhile, or there is no such folder here
        return not Path("/proc/self/stat").exists()


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Callable[[], tuple[subprocess.Popen[str], str]]]:
    """Start processes that use the one broker of this test; each is killed in the end."""
    present()
    with ExitStack() as started:

        def start() -> tuple[subprocess.Popen[str], str]:
            command = [sys.executable, "-c", USER, str(tmp_path / "place")]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stdout is not None
            return process, process.stdout.readline().strip()

        yield start


@pytest.mark.long
def test_a_broker_goes_with_the_last_that_uses_it_and_not_before(
    users: Callable[[], tuple[subprocess.Popen[str], str]], tmp_path: Path
) -> None:
    first, servers = users()
    second, same = users()
    assert same == servers != ""
    known = json.loads((tmp_path / "place" / "broker.json").read_text())
    broker, folder = known["pid"], Path(known["folder"])
    assert alive(broker)
    first.communicate(timeout=60)
    assert Endpoint(servers, "").admin().list_topics(timeout=10).brokers
    second.send_signal(signal.SIGKILL)
    eventually(lambda: not alive(broker) and not folder.exists())


def test_a_server_goes_with_a_process_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys; from tidegauge.processes import Kept; kept = Kept('tidegauge-test-');"
        "print(kept.ask('start', 'sleep', '600'), kept.folder, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, folder = process.stdout.readline().split()
        assert alive(int(pid))
        process.kill()
    eventually(lambda: not alive(int(pid)) and not Path(folder).exists())


def test_a_server_that_stands_still_is_stopped_all_the_same() -> None:
    kept = Kept("tidegauge-test-")
    process = kept.ask("start", "sh", "-c", "trap 'echo bye; exit' TERM; echo ready; while true; do sleep 0.05; done")
    eventually(lambda: (kept.folder / "log").read_text() == "ready\n")
    assert [kept.ask("signal", int(signal.SIGSTOP)) for _ in range(2)] == [process, process]
    assert kept.ask("end", int(signal.SIGTERM), 10.0) == -1
    assert not alive(process)
    assert (kept.folder / "log").read_text() == "ready\nbye\n"
    kept.leave()
    assert not kept.folder.exists()


def test_a_server_that_will_not_end_is_killed() -> None:
    kept = Kept("tidegauge-test-")
    process = kept.ask("start", "sh", "-c", "trap '' TERM; echo ready; while true; do sleep 0.05; done")
    eventually(lambda: (kept.folder / "log").read_text() == "ready\n")
    assert kept.ask("end", int(signal.SIGTERM), 0.2) == -1
    assert not alive(process)
    assert kept.ask("start", "sleep", "600") > 0
    kept.leave()


def test_whoever_outlives_the_keeper_does_its_work() -> None:
    kept = Kept("tidegauge-test-")
    process = kept.ask("start", "sleep", "600")
    os.kill(kept._process.pid, signal.SIGKILL)
    kept.leave()
    eventually(lambda: not alive(process))
    assert not kept.folder.exists()


def test_without_its_keeper_nothing_is_answered() -> None:
    kept = Kept("tidegauge-test-")
    kept.leave()
    assert (kept.ask("alive"), kept.running) == (-1, False)
    kept.leave()


def test_all_processes_of_a_run_name_the_same_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.getbasetemp()
    alone, worker = cast("pytest.Config", SimpleNamespace()), cast("pytest.Config", SimpleNamespace(workerinput={}))
    assert place(alone, tmp_path_factory).parent == base
    assert place(worker, tmp_path_factory).parent == base.parent
