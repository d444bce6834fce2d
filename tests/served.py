"""Servers that the tests start by the command line, and how a test comes to see one of them alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

_UNTIL_THE_END: Final = '"$@" & server=$!; read -r end; kill -KILL $server'


def serving(command: Sequence[str], *, folder: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a server as a child of a small shell, which kills it at the end of its input: also when we are killed.

    folder: where it runs; None for where the tests run.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", _UNTIL_THE_END, "sh", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=folder,
    )


def stop(shell: subprocess.Popen[bytes]) -> None:
    """Stop a server."""
    shell.communicate(b"\n", timeout=60)


def lead_to(environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, *, begin: str) -> None:
    """Have these variables, and no others that begin so."""
    for name in [name for name in os.environ if name.startswith(begin)]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
