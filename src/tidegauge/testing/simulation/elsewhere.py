"""A function in another process, where texts have other hashes, so that a set of texts has another order.

The function goes there as code, with the plain values around it, as it goes to Spark's tasks. One that cannot go is
not tried: `rows` says None.

Invariant: the other process starts when it is needed first, and ends with the `with` block.

>>> import pyarrow as pa
>>> def told(batch):
...     return pa.record_batch({"text": [f"{user}!" for user in batch["user"].to_pylist()]})
>>> with Elsewhere() as elsewhere:
...     elsewhere.rows(told, pa.record_batch({"user": ["ada"]}), pa.schema([("text", pa.string())]))
["{text: 'ada!'}"]
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from tidegauge.job.functions import apply
from tidegauge.job.plan import MapBatches
from tidegauge.testing.simulation.sample import texts

__all__ = ["Elsewhere", "serve"]


class Elsewhere:
    """The other process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def rows(self, function: Callable[..., Any], batch: pa.RecordBatch, gives: pa.Schema) -> list[str] | None:
        """Return the rows that a function makes of a batch there, as texts. None where it cannot be tried."""
        try:
            with _as_code(function) as dumps:
                task = dumps((function, batch, gives))
        except Exception:  # noqa: BLE001 - it holds something that cannot leave this process
            return None
        process = self._process = self._process or _started()
        asking, said, answer = process.stdin, process.stdout, ""
        if asking is not None and said is not None:
            with suppress(BrokenPipeError):
                asking.write(base64.b64encode(task).decode() + "\n")
                asking.flush()
                answer = said.readline()
        found: list[str] | None = json.loads(answer or "null")
        return found


def _started() -> subprocess.Popen[str]:
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    hashes = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    return subprocess.Popen(  # noqa: S603 (it is this module)
        [sys.executable, "-c", f"from {__name__} import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hashes},
        text=True,
    )


@contextmanager
def _as_code(function: Callable[..., Any]) -> Iterator[Callable[[object], bytes]]:
    """Lend what pickles a function: as code, where its module is the user's own, which the other may not find."""
    from pyspark import cloudpickle

    pickling: Any = cloudpickle
    module = sys.modules.get(getattr(function, "__module__", None) or type(function).__module__)
    own = module is not None and not Path(getattr(module, "__file__", None) or sys.prefix).is_relative_to(sys.prefix)
    if own:
        pickling.register_pickle_by_value(module)
    try:
        yield pickling.dumps
    finally:
        if own:
            pickling.unregister_pickle_by_value(module)


def serve() -> None:
    """Answer each task, a line, with the rows, a line; with null where the function cannot be had or raises."""
    asked, said = sys.stdin, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a function prints is no answer
    for line in asked:
        found: list[str] | None = None
        with suppress(Exception):
            function, batch, gives = pickle.loads(base64.b64decode(line))  # noqa: S301 (of our parent)
            made = apply([MapBatches(function)], batch, gives, output="", epoch=0)
            found = [text for batch in made for text in texts(batch)]
        print(json.dumps(found), file=said, flush=True)
