"""An environment of a peer's own, made with plain pip when it is not there yet; and a process in it that answers.

The environments lie in `build/benchmarks`, which git ignores, named for the release that is in them: another release
is another environment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tidegauge.testing.jars import cache

__all__ = [
    "BYTEWAX",
    "DATAFUSION",
    "Answering",
    "Missing",
    "answering",
    "bytewax_python",
    "datafusion_python",
    "iceberg_python",
    "replication_python",
]

BYTEWAX: Final = "0.21.1"
"""The release that is measured. It has no wheel for Python 3.13 or newer."""
DATAFUSION: Final = "55.0.0"
REPLICATION: Final = "1.0.17"
_PYTHONS: Final = tuple(f"python3.{minor}" for minor in (11, 12, 10, 9))
_ROOT: Final = Path(__file__).resolve().parents[2]


class Missing(Exception):
    """A peer cannot be had here; the text says why."""


def bytewax_python(*, reads_kafka: bool = False) -> Path:
    """Return the interpreter of the environment that has bytewax; make the environment first where there is none.

    reads_kafka: with the client and the Parquet writer that we have, in the same releases. Raises Missing when no
    Python fits, or pip cannot install it.
    """
    wanted = {"bytewax.operators": f"bytewax=={BYTEWAX}"}
    if reads_kafka:
        wanted["pyarrow.parquet"] = f"pyarrow=={version('pyarrow')}"
        wanted["bytewax.connectors.kafka"] = f"bytewax[kafka]=={BYTEWAX}"
        wanted["confluent_kafka"] = f"confluent-kafka=={version('confluent-kafka')}"
    base = sys.executable if sys.version_info < (3, 13) else next(filter(None, map(shutil.which, _PYTHONS)), None)
    return _made(f"bytewax-{BYTEWAX}{'-kafka' * reads_kafka}", wanted, base)


def datafusion_python() -> Path:
    """Return the interpreter of the environment that has DataFusion, and our Arrow. Raises as `bytewax_python`."""
    wanted = {"datafusion": f"datafusion=={DATAFUSION}", "pyarrow.feather": f"pyarrow=={version('pyarrow')}"}
    return _made(f"datafusion-{DATAFUSION}", wanted, sys.executable)


def replication_python() -> Path:
    """Return the interpreter of the environment that has mysql-replication. Raises as `bytewax_python`."""
    wanted = {"pymysqlreplication": f"mysql-replication=={REPLICATION}"}
    return _made(f"mysql-replication-{REPLICATION}", wanted, sys.executable)


def iceberg_python() -> Path:
    """Return the interpreter of the environment whose Spark reads Iceberg. Raises Missing."""
    folder = cache(os.environ, "iceberg")
    if not (folder / ".made").exists():
        raise Missing("Iceberg's Spark is not here: run `make iceberg`")
    return folder / "bin" / "python"


def _made(name: str, wanted: Mapping[str, str], base: str | None) -> Path:
    """Return the interpreter of an environment that has these modules, made by pip with another interpreter."""
    folder = _ROOT / "build" / "benchmarks" / name
    python = folder / "bin" / "python"
    if not _works(python, wanted):
        if base is None:
            raise Missing(f"{name} needs one of {', '.join(sorted(_PYTHONS))}, and none is on the path")
        print(f"  making {folder}, which pip fetches", file=sys.stderr, flush=True)
        _call([base, "-m", "venv", "--clear", str(folder)])
        _call([str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *wanted.values()])
        if not _works(python, wanted):
            raise Missing(f"{name} was installed into {folder} and cannot be imported")
    return python


def _works(python: Path, modules: Iterable[str]) -> bool:
    command = [str(python), "-c", f"import {', '.join(modules)}"]
    return python.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Missing(f"{' '.join(command)} failed: {said[-1] if said else 'it said nothing'}")


class Answering:
    """A process that answers each line with one line of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, *words: object) -> dict[str, Any]:
        """Send a line and return the answer. Raises Missing when the process has ended instead."""
        asked, answers = self._process.stdin, self._process.stdout
        if asked is None or answers is None:
            raise Missing("the peer's process has no pipes")
        asked.write(" ".join(map(str, words)) + "\n")
        asked.flush()
        answer = answers.readline()
        if not answer:
            raise Missing(f"the peer's process ended ({self._process.wait()}) when asked for {words}")
        found: dict[str, Any] = json.loads(answer)
        return found


@contextmanager
def answering(python: Path, module: str, *arguments: object) -> Iterator[Answering]:
    """Run `python -m module` from the root of the tree for the length of the block."""
    command = [str(python), "-m", module, *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    process = subprocess.Popen(
        command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Answering(process)
    finally:
        process.kill()
        process.communicate()
