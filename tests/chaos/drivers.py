"""The drivers of a chaos: `tidegauge run` in processes of their own, each with its log, and how they may end.

Invariant: a driver ends because it is killed, because it is told to stop, or with an error that says what came from
outside. Any other end breaks a law.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.waiting import eventually
from tests.warm import Beside, Warm

from tidegauge.errors.base import CODES, Transient
from tidegauge.errors.store import FlowAlreadyRunning, LeaseLost
from tidegauge.testing.simulation.ledger import Broken

__all__ = ["Driver", "Drivers"]

_OUTSIDE = (FlowAlreadyRunning, LeaseLost, Transient)
_CODE = re.compile(r"^(TG-\d{4}):", re.MULTILINE)
_STOPS_WITHIN = 60.0
_STEP = 0.02

MAINTAIN = "0.7"
"""Every how many seconds each other driver maintains the tables."""


class Driver:
    """One process. thaws: when it is to go on that was stopped, None while it goes on."""

    def __init__(self, number: int, process: Beside, log: Path) -> None:
        self.number = number
        self.thaws: float | None = None
        self.killed = False
        self.stopping = False
        self.log = log
        self._process = process

    def __str__(self) -> str:
        return f"driver {self.number}, process {self._process.pid}"

    @property
    def gone(self) -> bool:
        """Whether its process has ended, however it did."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it at once, also one that was stopped."""
        self.killed = True
        self._process.send_signal(signal.SIGKILL)

    def freeze(self, until: float) -> None:
        """Let it stand still."""
        self.thaws = until
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.thaws = None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Tell it to stop in order."""
        if not self.stopping:
            self.stopping = True
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> str | None:
        """Return how it ended, None if it has not. Raises `Broken` for an end that nothing from outside explains."""
        code = self._process.poll()
        if code is None:
            return None
        if code == -signal.SIGKILL and self.killed:
            how = "killed"
        elif self.stopping and code in (0, -signal.SIGTERM):
            how = "stopped" if code == 0 else "stopped before it had begun"
        else:
            how = self._error(code)
        left = _group(self._process.pid)
        if left:
            raise Broken("a driver leaves no process behind", f"{self}: {left}")
        return how

    def _error(self, code: int) -> str:
        said = self.log.read_text(errors="replace")
        found: list[str] = _CODE.findall(said)
        if code == 1 and found and issubclass(CODES[found[-1]], _OUTSIDE):
            return found[-1]
        raise Broken("a driver ends only for what comes from outside", f"{self}, exit code {code}: {said[-4000:]}")


class Drivers:
    """Starts drivers, and looks after them. ends: how they ended, and how often. say: is told what happens."""

    def __init__(self, warm: Warm, file: Path, say: Callable[[str], None]) -> None:
        self.living: list[Driver] = []
        self.started = 0
        self.ends: Counter[str] = Counter()
        self._warm, self._file, self._say = warm, file, say

    def start(self, *more: str) -> Driver:
        """Start one."""
        self.started += 1
        log = self._file.with_name(f"driver-{self.started}.log")
        kept = ("--maintain", MAINTAIN) if self.started % 2 else ()
        command = ("run", str(self._file), "--engine", "local", *kept, *more)
        process = self._warm.start(*command, cwd=self._file.parent, env=dict(os.environ), err=log)
        driver = Driver(self.started, process, log)
        self.living.append(driver)
        self._say(f"{driver} starts")
        return driver

    def look(self, now: float) -> None:
        """Let those go on whose time has come, and take leave of those that have ended. Raises `Broken`."""
        for driver in [*self.living]:
            if driver.thaws is not None and now >= driver.thaws:
                self._say(f"SIGCONT to {driver}")
                driver.thaw()
            if (how := driver.end()) is not None:
                self._say(f"{driver} has ended: {how}")
                self.ends[how] += 1
                self.living.remove(driver)

    def stop(self, now: Callable[[], float]) -> None:
        """Tell all to stop, and wait for them. Raises `Broken`."""
        for driver in self.living:
            driver.stop()
        self.await_all(now)

    def await_all(self, now: Callable[[], float]) -> None:
        """Wait for those who are about to stop. Raises `Broken`."""
        deadline = now() + _STOPS_WITHIN
        while self.living:
            self.look(now())
            if now() > deadline:
                raise Broken("a driver that is told to stop does", ", ".join(map(str, self.living)))
            threading.Event().wait(_STEP)

    def kill(self) -> None:
        """End all, whatever they do."""
        for driver in self.living:
            driver.kill()
        eventually(lambda: all(driver.gone for driver in self.living))


def _group(pid: int) -> list[int]:
    """Return the processes of a driver's group that are there yet."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == pid and fields[0] not in "ZX":
            found.append(int(stat.parent.name))
    return found
