"""Files that are held open, so that one which is deleted can still be read to its end.

A driver holds the files of a source that it has seen and that are not in every output yet. The tasks of its machine
open such a file by the driver's own descriptor (`/proc/PID/fd/N`), and check it like any other. Elsewhere, and after
the driver has ended, a deleted file is gone.

Invariant: all held files may be lost; they decide nothing. At most `MOST` files are held, the first ones. Pickled, or
in another process, it holds none.

>>> import tempfile
>>> held = OpenFiles()
>>> with tempfile.TemporaryFile() as stream:
...     held.keep("a", stream)
>>> held.path("a").startswith("/proc/"), held.path("b")
(True, None)
>>> held.release(Frontier({"a": 0}))
>>> print(held.path("a"))
None
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, BinaryIO, Final

from tidegauge.remap.frontier import Frontier

__all__ = ["MOST", "OpenFiles"]

MOST: Final = 256
"""Files that one source holds open, at most."""


def _close(files: dict[str, int]) -> None:
    while files:
        os.close(files.popitem()[1])


class OpenFiles:
    """The open files of one source, by partition."""

    def __init__(self) -> None:
        self._files: Final[dict[str, int]] = {}
        self._lock: Final = threading.Lock()
        weakref.finalize(self, _close, self._files)

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenFiles, ()

    def keep(self, key: str, stream: BinaryIO) -> None:
        """Hold an open file as the one of a partition."""
        with self._lock:
            fd = self._files.get(key)
            if fd is not None and os.path.sameopenfile(fd, stream.fileno()):
                return
            if fd is not None:
                os.close(self._files.pop(key))
            if len(self._files) < MOST:
                self._files[key] = os.dup(stream.fileno())

    def path(self, key: str) -> str | None:
        """Return a path that opens the file of a partition, None when it is not held."""
        fd = self._files.get(key)
        return None if fd is None else f"/proc/{os.getpid()}/fd/{fd}"

    def release(self, durable: Frontier) -> None:
        """Let go of the files that every output holds to their end."""
        with self._lock:
            for key, fd in list(self._files.items()):
                if durable[key] >= os.fstat(fd).st_size:
                    os.close(self._files.pop(key))
