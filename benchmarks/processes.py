"""What the kernel knows of this process and its children: peak resident memory, bytes read, processor time.

Kinds: `driver` (this process), `jvm` (the Java processes under it), `worker` (every other process under it: Spark's
Python workers and their daemon). Linux only, from `/proc`.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

__all__ = ["Kind", "Peaks", "bytes_read_by_workers", "family", "peaks"]

Kind: TypeAlias = Literal["driver", "jvm", "worker"]


def family() -> dict[int, Kind]:
    """Return the processes under this one, itself included, by pid."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            rest = (folder / "stat").read_text().rpartition(")")[2]
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(int(rest.split()[1]), []).append(int(folder.name))
    found: dict[int, Kind] = {}
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        found[pid] = "driver" if pid == os.getpid() else "jvm" if _program(pid) == "java" else "worker"
        waiting += children.get(pid, [])
    return found


def _program(pid: int) -> str:
    """Return the program that a process runs.

    Its name would not do: when a JVM starts a process, that shares its memory and has the name of a thread at first.
    """
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""


def _field(path: str, key: str) -> int:
    """Return a number from a file of `key: number` lines in /proc, 0 when the process has ended or has none."""
    try:
        with open(path) as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), 0)
    except OSError:
        return 0


def bytes_read_by_workers() -> int:
    """Return what the Python workers have read with read(2) so far, those that have ended included.

    The daemon inherits the count of each worker that it has waited for. What comes through sockets is received, not
    read, and does not count.
    """
    return sum(_field(f"/proc/{pid}/io", "rchar") for pid, kind in family().items() if kind == "worker")


class Peaks:
    """The largest resident set (bytes) of any one process of each kind, and of each kind together at one instant."""

    def __init__(self) -> None:
        self.one: Final[Counter[Kind]] = Counter()
        self.together: Final[Counter[Kind]] = Counter()

    def look(self) -> None:
        """Take in how things stand. The kernel keeps the peak of each process itself, so none is missed."""
        now: Counter[Kind] = Counter()
        for pid, kind in family().items():
            status = f"/proc/{pid}/status"
            self.one[kind] = max(self.one[kind], _field(status, "VmHWM") * 1024)
            now[kind] += _field(status, "VmRSS") * 1024
        for kind, size in now.items():
            self.together[kind] = max(self.together[kind], size)


@contextmanager
def peaks(*, every: float = 0.1) -> Iterator[Peaks]:
    """Watch the processes under this one until the block ends."""
    found = Peaks()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every):
            found.look()

    thread = threading.Thread(target=watch, name="peaks", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        found.look()
