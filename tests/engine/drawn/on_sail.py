"""Described flows on Sail, which has a process of its own: a process holds a session with a JVM or one of Connect.

`python -m tests.engine.drawn.on_sail` reads requests, one on each line, and answers each with an outcome.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from tests.engine.clusters import ROOT
from tests.engine.drawn.described import Described, described_by
from tests.engine.drawn.outcomes import Outcome, outcome

import tidegauge as tg

CONNECT = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")


@dataclass(frozen=True)
class Beside:
    """The process with Sail."""

    requests: IO[str]
    answers: IO[str]

    def ask(self, described: Described, files: Path, root: Path) -> None:
        """Begin with a flow."""
        print(json.dumps([asdict(described), str(files), str(root)]), file=self.requests, flush=True)

    def answer(self) -> Outcome:
        """Return what came of it. Raises where the process has ended."""
        line = self.answers.readline()
        if not line:
            raise RuntimeError("the process with Sail has ended; it said why")
        return Outcome(**json.loads(line))


@contextmanager
def beside() -> Iterator[Beside]:
    """Start the process; it ends with the block."""
    environ = {name: value for name, value in os.environ.items() if name not in CONNECT}
    command = [sys.executable, "-m", "tests.engine.drawn.on_sail"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Beside(process.stdin, process.stdout)
        finally:
            process.stdin.close()


def main() -> None:
    """Answer until there are no requests any more."""
    engine = tg.SailEngine()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nobody else writes answers
    for line in sys.stdin:
        data, files, root = json.loads(line)
        found = outcome(described_by(data), Path(files), Path(root), engine)
        print(json.dumps(asdict(found)), file=answers, flush=True)
    engine.close()


if __name__ == "__main__":
    main()
