"""A folder and a server in it, both in the care of a keeper: they go when the holder of the keeper's pipe does.

Invariant: the server and the folder are there as long as some process holds the pipe, and no longer, however that
process ends. The pipe has a name, so that other processes of this machine can hold it, too.

>>> kept = Kept("tidegauge-doctest-")
>>> kept.ask("start", "sleep", "60") > 0, kept.running
(True, True)
>>> kept.ask("end", 9, 5.0), kept.running
(-1, False)
>>> kept.leave()
>>> kept.folder.exists()
False
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from tidegauge.processes import keeper

__all__ = ["LOG", "Kept", "hold"]

LOG: Final = "log"
"""The file of the folder that takes the server's output."""
_PIPE: Final = "pipe"
_LEAVES_WITHIN: Final = 2.0


def hold(folder: Path) -> int:
    """Hold the pipe of another process's keeper; return a descriptor to be closed. Raises `OSError` without one."""
    return os.open(folder / _PIPE, os.O_WRONLY | os.O_NONBLOCK)


class Kept:
    """A new temporary folder with its keeper.

    grace: how many seconds a server is given between `SIGTERM` and `SIGKILL` when nobody holds the pipe any more.
    shown: whether its output goes to our standard error, instead of to the folder's `log`. works_in: its working
    folder, unless that is the temporary one.
    """

    def __init__(self, prefix: str, *, grace: float = 0.0, shown: bool = False, works_in: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        (self.folder / LOG).touch()
        os.mkfifo(self.folder / _PIPE)
        reading = os.open(self.folder / _PIPE, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for a writer
        self._pipe = os.open(self.folder / _PIPE, os.O_WRONLY)
        os.set_blocking(reading, True)
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", keeper.__file__, str(self.folder), str(grace), "shown" if shown else "kept"],
            stdin=reading,
            stdout=subprocess.PIPE,
            text=True,
            cwd=works_in or self.folder,
            start_new_session=True,
        )
        os.close(reading)
        self._gone = False
        self._answers: IO[str] | None = self._process.stdout
        self._asking = threading.Lock()

    @property
    def running(self) -> bool:
        """Whether the server's process is there."""
        return self.ask("alive") > 0

    def ask(self, *command: Any) -> int:
        """Tell the keeper something (see `keeper`) and return its answer; -1 when there is no keeper any more."""
        with self._asking:
            if self._answers is None:
                return -1
            answer = ""
            with suppress(BrokenPipeError):
                os.write(self._pipe, json.dumps(command).encode() + b"\n")
                answer = self._answers.readline()
            self._gone = not answer
            return int(answer or -1)

    def leave(self) -> None:
        """Let go of the pipe. When nobody else holds it the folder is gone soon, and as a rule on return.

        Where somebody killed the keeper, its work is done here: the server is in its process group.
        """
        self.ask("alive")
        with self._asking:
            answers, self._answers = self._answers, None
            if answers is None:
                return
            if self._gone:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._pipe)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LEAVES_WITHIN)
            answers.close()
