"""The command line without its start: each command is a fork of a process that has everything imported.

Most commands are over sooner than their imports take. What is forked is a process of its own in every other respect:
its arguments, folder, environment, output, exit code and end are those of the command. One such process serves a test
process; `python -m tests.warm` is it. It reads one JSON command a line and answers with its exit code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tidegauge

IMPORTED = (
    "tidegauge.cli.app",
    "tidegauge.cli.run",
    "tidegauge.cli.show",
    "tidegauge.cli.locate",
    "tidegauge.pipeline.runner",
    "tidegauge.pipeline.engine.local",
    "tidegauge.pipeline.inspect",
    "tidegauge.sinks.deltahistory",
    "tidegauge.sinks.deltalog",
    "tidegauge.sinks.parquet",
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
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "out" if merged else "err")
            command = {"arguments": arguments, "cwd": str(cwd), "env": dict(env), "out": str(out), "err": str(err)}
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            if not select.select([self.process.stdout], [], [], timeout)[0]:
                self.process.kill()
                raise subprocess.TimeoutExpired(arguments, timeout)
            code = int(self.process.stdout.readline())
            return subprocess.CompletedProcess(arguments, code, out.read_text(), "" if merged else err.read_text())


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """The process from which commands are forked."""
    made = Warm()
    yield made
    assert made.process.stdin is not None
    made.process.stdin.close()
    made.process.wait(timeout=30)


def be(command: Mapping[str, Any]) -> None:
    """Become a command: never returns otherwise than a process ends."""
    from tidegauge.cli import main

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


def serve() -> None:
    """Answer commands until the input ends."""
    for name in IMPORTED:
        importlib.import_module(name)
    for name in dir(tidegauge):
        getattr(tidegauge, name)  # loads it
    gc.freeze()  # or every command goes through all of it when it ends, and copies the pages on which it stands
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            be(json.loads(line))
        _pid, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
