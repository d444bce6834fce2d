"""The command line without its start: each command is a fork of a process that has everything imported.

Most commands are over sooner than their imports take. What is forked is a process of its own in every other respect:
its arguments, folder, environment, session, output, exit code and end are those of the command. One such process
serves a test process; `python -m tests.warm` is it. It reads one question a line, and answers each with a line: the
exit code of a command that it ran, the id of one that goes on beside the test, whether that has ended.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

import tidegauge

IMPORTED = (
    "tidegauge.cli.app",
    "tidegauge.cli.run",
    "tidegauge.cli.show",
    "tidegauge.cli.locate",
    "tidegauge.flow.runner",
    "tidegauge.flow.running",
    "tidegauge.engine.local",
    "tidegauge.looking.inspect",
    "tidegauge.sinks.delta.history",
    "tidegauge.sinks.delta.log",
    "tidegauge.sinks.parquet.sink",
    "tidegauge.sources.file.source",
    "tidegauge.sources.formats.json",
    "deltalake",
    "pandas",
    "pydantic.type_adapter",
    "pyarrow.csv",
    "pyarrow.json",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "sqlalchemy.dialects.sqlite",
)


class Warm:
    """Runs commands, one after the other."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm"],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # so that `select` sees every answer that was not read
        )

    def __call__(
        self, *arguments: str, cwd: Path, env: Mapping[str, str], timeout: float, merged: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run `tidegauge` to its end, with nothing to read. merged: errors go where the output goes."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "out" if merged else "err")
            command = {"arguments": arguments, "cwd": str(cwd), "env": dict(env), "out": str(out), "err": str(err)}
            code = self.ask({"run": command}, timeout=timeout)
            assert code is not None
            return subprocess.CompletedProcess(arguments, code, out.read_text(), "" if merged else err.read_text())

    def start(self, *arguments: str, cwd: Path, env: Mapping[str, str], err: Path) -> Beside:
        """Start `tidegauge` beside the test, in a session of its own, with its errors in a file."""
        command = {"arguments": arguments, "cwd": str(cwd), "env": dict(env), "out": os.devnull, "err": str(err)}
        err.touch()
        pid = self.ask({"start": command})
        assert pid is not None
        return Beside(self, pid)

    def ask(self, question: Mapping[str, Any], *, timeout: float = 60.0) -> int | None:
        """Let the process do something, and return its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            self.process.kill()
            raise subprocess.TimeoutExpired("tests.warm", timeout)
        answer: int | None = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        """Let the process end from which they are forked."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


@dataclass
class Beside:
    """A command that goes on beside the test, with what a test asks of a `subprocess.Popen`."""

    warm: Warm
    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.warm.ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float = 60.0) -> int:
        eventually(lambda: self.poll() is not None, within=timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:  # nobody else takes its id before it is polled
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """The process from which commands are forked."""
    made = Warm()
    yield made
    made.close()


def be(command: Mapping[str, Any]) -> None:
    """Become a command: never returns otherwise than a process ends."""
    from tidegauge.cli import main

    os.setsid()
    for number, place in ((0, os.devnull), (1, command["out"]), (2, command["err"])):
        file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["env"])
    sys.argv = ["tidegauge", *command["arguments"]]
    main()
    raise SystemExit(0)


def forked(command: Mapping[str, Any]) -> int:
    """Start a command, and return its process id."""
    pid = os.fork()
    if pid == 0:
        be(command)
    return pid


def answer(question: Mapping[str, Any], beside: set[int]) -> int | None:
    """Do what is asked: run a command to its end, start one, or look whether that has ended.

    beside: those that were started and have not ended, as far as somebody looked.
    """
    if "start" in question:
        beside.add(pid := forked(question["start"]))
        return pid
    pid, options = (forked(question["run"]), 0) if "run" in question else (question["ended"], os.WNOHANG)
    ended, status = os.waitpid(pid, options)
    beside -= {ended}
    return os.waitstatus_to_exitcode(status) if ended else None


def load() -> None:
    """Import all that a run or a command comes to need, for the processes that are forked from this one."""
    for name in IMPORTED:
        importlib.import_module(name)
    for name in dir(tidegauge):
        getattr(tidegauge, name)  # loads it
    gc.freeze()  # or every command goes through all of it when it ends, and copies the pages on which it stands


def serve() -> None:
    """Answer questions until the input ends, and with it every command that goes on."""
    load()
    beside = set[int]()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), beside)), flush=True)
    for pid in beside:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    serve()
