"""Drivers that die in the middle of a commit: processes forked from one that runs no thread, killed at an instant.

An instant is a call from Python into a library or the system that is not plain arithmetic: a write, a rename, a
statement. The driver dies right before it, as by SIGKILL: nothing is tidied up.

Invariant: the process that checks starts and kills only processes of its own, and waits for each. A driver that hangs
ends by itself, so that nothing outlives the check.

`serve` is the process that is forked. It reads a task a line and answers each with a line.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

from tidegauge.errors.base import brief
from tidegauge.sinks.protocol import Sink, StagedFile
from tidegauge.testing.kit.place import OUTPUT, SinkOnTrial, history, job
from tidegauge.testing.kit.sink_bench import ROWS
from tidegauge.testing.kit.trial import LawBroken, NotTried, call_of

__all__ = ["Deaths"]

PLAIN: Final = frozenset(
    {
        *("_abc", "_blake2", "_collections", "_functools", "_hashlib", "_imp", "_json", "_operator", "_pickle"),
        *("_random", "_sre", "_stat", "_struct", "_thread", "_typing", "_weakref", "_weakrefset", "binascii"),
        *("builtins", "collections", "datetime", "gc", "itertools", "marshal", "math", "re", "sys", "time", "types"),
    }
)
"""Modules whose calls change nothing outside the process."""
LOOKS: Final = frozenset({"fspath", "stat", "lstat", "getpid", "urandom", "text_encoding", "fstat", "scandir"})


class Deaths:
    """Commits in processes of their own. before: the call that the last driver died before.

    within: seconds that each of them has.
    """

    def __init__(self, *, within: float) -> None:
        self.before = ""
        self._within: Final = within

    def __enter__(self) -> Self:
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        self._process = subprocess.Popen(  # noqa: S603 (it is this module)
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def commit(self, place: SinkOnTrial, instant: int, user: str) -> int:
        """Let a driver commit the next epoch, and die at an instant; return how many it came to.

        Raises `NotTried` for a sink that another process cannot make, `LawBroken` where the commit fails.
        """
        kind = type(place.sink)
        if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
            raise NotTried("the class of the sink is not in a module that another process can import")
        lower = place.driven().upper
        task = pickle.dumps((place.sink, lower, place.stage([lower], user), instant, self._within))
        said = json.loads(self._answer(base64.b64encode(task).decode()))
        if said["missing"]:
            raise NotTried(f"another process cannot make the sink: {said['missing']}")
        if said["raised"]:
            raise LawBroken(f"a commit in a process of its own raised {said['raised']}")
        self.before = said["before"]
        return int(said["count"])

    def _answer(self, task: str) -> str:
        answer, asking, said = "", self._process.stdin, self._process.stdout
        if asking is not None and said is not None:
            with suppress(BrokenPipeError):
                asking.write(f"{task}\n")
                asking.flush()
                answer = said.readline()
        if not answer:
            raise NotTried("the process that drivers are forked from came to its end")
        return answer


def serve() -> None:
    """Fork a driver for each task, and say how it ended."""
    for line in sys.stdin:
        said: dict[str, Any] = {"missing": "", "raised": "", "count": 0, "before": "", "modules": []}
        try:
            sink, lower, files, instant, within = pickle.loads(base64.b64decode(line))  # noqa: S301 (of our parent)
        except Exception as error:  # noqa: BLE001 (it is told)
            said["missing"] = f"{type(error).__name__}: {error}"
        else:
            said |= _forked(sink, lower, files, instant, within)
        for name in said.pop("modules"):  # the next driver has them
            with suppress(ImportError):
                importlib.import_module(name)
        print(json.dumps(said), flush=True)


def _forked(sink: Sink, lower: int, files: Sequence[StagedFile], instant: int, within: float) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _be(sink, lower, files, instant, within, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read().splitlines()
    os.waitpid(pid, 0)
    return dict(json.loads(told[-1])) if told else {"raised": "nothing, and ended its process"}


def _be(sink: Sink, lower: int, files: Sequence[StagedFile], instant: int, within: float, pipe: int) -> None:
    """Be a driver that commits one epoch: never returns."""
    count, known, driver = 0, set(sys.modules), threading.get_ident()

    def say(**told: Any) -> None:
        os.write(pipe, json.dumps(told).encode() + b"\n")

    def give_up() -> None:
        say(raised=f"nothing: after {within:g} seconds it was still in {call_of(driver)}")
        os._exit(0)

    def strike(frame: FrameType, event: str, called: Any) -> None:
        nonlocal count
        if event != "c_call" or frame.f_code.co_filename.startswith("<frozen"):
            return
        module = getattr(called, "__module__", None) or type(getattr(called, "__self__", None)).__module__
        if module not in PLAIN and called.__name__ not in LOOKS:
            count += 1
            if count == instant:
                say(count=count, before=f"`{module}.{called.__qualname__}`")
                os.kill(os.getpid(), signal.SIGKILL)

    signal.alarm(1 + math.ceil(2 * within))  # for a call that lets no thread run
    watch = threading.Timer(within, give_up)
    watch.daemon = True
    watch.start()
    try:
        os.dup2(2, 1)  # what the sink prints is no answer
        table, name, told = sink.open(OUTPUT), job(), history(lower, lower + 1)
        threading.setprofile(strike)
        sys.setprofile(strike)
        table.commit(lower, lower + 1, ROWS, files, write=name, history=told)
        sys.setprofile(None)
        say(count=count, before="its end", modules=sorted(set(sys.modules) - known))
    except BaseException as error:  # noqa: BLE001 (it is told)
        sys.setprofile(None)
        say(raised=brief(error))
    finally:
        os._exit(0)
