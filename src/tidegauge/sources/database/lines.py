"""Notes that are added to a file one by one, durably: a line of JSON for each.

Invariant: a note that was added is found, whole, after whatever crash. A line that was cut off says nothing.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     lines = NotedLines(Path(folder, "notes"))
...     lines.append({"n": 1})
...     _ = lines.path.open("ab").write(b'{"n": 2')
...     lines.append({"n": 3})
...     lines.found()
[{'n': 1}, {'n': 3}]
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["NotedLines"]

_ONE_AT_A_TIME: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class NotedLines:
    """The notes of a file. Its methods may be called by several threads. changing: holds it for a change."""

    path: Path
    changing: Callable[[], AbstractContextManager[None]] = field(default=nullcontext, compare=False)

    def append(self, said: Mapping[str, Any]) -> None:
        """Add a note. Its line begins with a line's end, in case the last one was cut off."""
        with _ONE_AT_A_TIME, self.changing(), self.path.open("ab") as file:
            file.write(b"\n" + json.dumps(said).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def found(self) -> list[dict[str, Any]]:
        """Return all notes, none where there is no file."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        found = []
        for line in data.splitlines():
            try:
                said = json.loads(line)
            except ValueError:  # it was cut off
                continue
            if isinstance(said, dict):
                found.append(said)
        return found
