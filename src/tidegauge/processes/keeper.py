"""Keeps the processes of a folder: runs what it is told on a pipe, and ends with the pipe.

Invariant: when the last process that holds the pipe's other end is gone, however it went, the server is ended and
the folder removed. So it holds nothing that could fail to end: it runs by itself, with the standard library alone,
in a session of its own, where no signal meant for those who hold the pipe reaches it. The server has a pipe of the
keeper's for its input, so one that reads its input ends when somebody kills the keeper.

A line of its input is a JSON list: `["run", *command]` runs a command to its end, `["start", *command]` starts the
server, `["signal", number]` sends it a signal, `["end", number, seconds]` sends it one and waits so long before it
kills it, `["alive"]` does nothing. Each is answered by one line: the command's exit code, or the number of the
server's process, or -1 where there is none.

>>> import tempfile
>>> folder = tempfile.mkdtemp()
>>> run(folder, [json.dumps(line) for line in (["run", "false"], ["start", "sleep", "60"], ["end", 9, 5.0])], _shown)
1
running
-1
>>> os.path.exists(folder)
False
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable

__all__ = ["run"]


def run(
    folder: str, lines: Iterable[str], answer: Callable[[int], None], *, grace: float = 0.0, shown: bool = False
) -> None:
    """Do what the lines say; at their end end the server and remove the folder.

    grace: how many seconds a server is given at the end. shown: output goes where the keeper's errors go, instead of
    to the folder's file `log`.
    """
    server: subprocess.Popen[bytes] | None = None
    still = False
    try:
        with open(os.path.join(folder, "log"), "ab") as file:
            log = 2 if shown else file.fileno()
            for line in lines:
                what, *words = json.loads(line)
                if what == "run":
                    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)  # noqa: S603
                    answer(done.returncode)
                    continue
                if what == "start":
                    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log)  # noqa: S603
                    still = False
                elif server is not None and what == "end":
                    server.send_signal(words[0])
                    _wait(server, words[1])
                elif server is not None and what == "signal":
                    server.send_signal(words[0])
                    if words[0] == signal.SIGSTOP and not still:
                        _wait_until_still(server)
                    still = words[0] == signal.SIGSTOP
                answer(-1 if server is None or server.poll() is not None else server.pid)
    finally:
        if server is not None:
            if grace:
                server.terminate()
                _wait(server, grace)
            server.kill()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(server: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for the end of a server that may be stopped; kill it when it takes longer."""
    server.send_signal(signal.SIGCONT)
    try:
        server.wait(seconds)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _wait_until_still(server: subprocess.Popen[bytes]) -> None:
    """Wait until all threads of a server stand still, or it ends: what it does last it has done on return."""
    if server.poll() is None:
        _process, status = os.waitpid(server.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            server.returncode = os.waitstatus_to_exitcode(status)


def _print(answer: int) -> None:
    """Answer on the output, which may have no reader any more."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, b"%d\n" % answer)


def _shown(answer: int) -> None:
    print("running" if answer > 1 else answer)


def main() -> None:
    """Keep the folder named by the first argument until the end of the input; then end all that was started."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder, grace, shown = sys.argv[1:]
    run(folder, sys.stdin, _print, grace=float(grace), shown=shown == "shown")


if __name__ == "__main__":
    main()
