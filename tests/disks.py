"""File systems of a fixed size, which can be full. Only for who may mount."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

__all__ = ["fill", "make_room", "small_disk"]


@contextmanager
def small_disk(place: Path, *, size: str) -> Iterator[Path]:
    """A file system in memory at a place that is not there yet."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path) -> None:
    """Take all the room that is left."""
    with suppress(OSError), (disk / "ballast").open("ab", buffering=0) as out:
        while out.write(bytes(4096)):
            pass


def make_room(disk: Path) -> None:
    """Give back what `fill` has taken."""
    (disk / "ballast").unlink(missing_ok=True)
