"""The folder for staged rows of those who name none: in the system's temporary directory, for this user alone.

Invariant: nobody else's folder is ever written into.

>>> own_folder() == str(Path(tempfile.gettempdir()).absolute() / f"tidegauge-{os.getuid()}")
True
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tidegauge.errors.flow import InvalidArgument
from tidegauge.sinks.location import local_folder

__all__ = ["make_if_own", "make_own_folder", "own_folder", "staging_folder"]


def own_folder() -> str:
    """Return the path of the folder. It need not be there."""
    return str(Path(tempfile.gettempdir()).absolute() / f"tidegauge-{os.getuid()}")


def staging_folder(given: str | None, *, sink: str) -> str:
    """Return the folder that a sink was given for staged rows, or this one. Raises as `local_folder`."""
    return own_folder() if given is None else local_folder(given, sink=f"{sink}(staging=...)")


def make_if_own(folder: str | None, *, sink: str) -> None:
    """Make this folder where it is missing, if it is the one that a sink stages in. Raises as `make_own_folder`."""
    if folder == own_folder():
        make_own_folder(sink=sink)


def make_own_folder(*, sink: str) -> None:
    """Make the folder where it is missing. Raises `InvalidArgument` when somebody else has it."""
    folder = Path(own_folder())
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        expected = "a folder of the user's own: this one belongs to somebody else"
        raise InvalidArgument(parameter=f"{sink}(staging)", value=str(folder), expected=expected)
