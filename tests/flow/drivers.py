"""Drivers in processes of their own, one after the other, which live as `killable` says, and may be killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.flow.killable import Scene

ENDS: dict[Scene, int] = {
    "whole": 0,
    "bad line": 1,
    "bad function": 1,
    "new upstream": 0,
    "late": 0,
    "replaced": 0,
    "replaced folder": 0,
    "columns": 0,
    "polls": 0,
    "listing": 0,
    "http": 0,
}
"""How a driver ends that nobody kills, in each scene."""


class Drivers:
    """Starts drivers and waits for them."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.flow.killable"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            bufsize=0,  # so that `select` sees every answer that was not read
        )

    def start(self, root: Path, *, scene: Scene = "whole", point: str | None = None, nth: int = 0) -> int:
        assert self.process.stdin is not None
        command = {"root": str(root), "scene": scene, "point": point, "nth": nth}
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        return int(self.answer()["pid"])

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        return dict(json.loads(line))

    def live(self, root: Path, *, scene: Scene = "whole", point: str | None = None, nth: int = 0) -> bool:
        """Return whether the driver was killed; it must not end otherwise than its scene does."""
        self.start(root, scene=scene, point=point, nth=nth)
        return self.ended(scene)

    def kill(self, pid: int, *, after: float) -> bool:
        """Kill a driver some seconds from now, if it has not ended by then; return whether it was."""
        assert self.process.stdout is not None
        select.select([self.process.stdout], [], [], after)  # the instant of death is the point of this test
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return self.ended("whole")

    def ended(self, scene: Scene) -> bool:
        end = self.answer()
        assert end["killed"] or end["code"] == ENDS[scene], self.log.read_text()
        return bool(end["killed"])

    def close(self) -> None:
        """Let the process end that starts them."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)
