"""Where a sink stages that has no place of its own for files: in a folder of the user's, or in the one it names.

Invariant: nobody else can read or change what lies there.

>>> scratch_folder(None, sink="KafkaSink") == own_folder()
True
>>> scratch_folder("/mnt/shared/staging", sink="KafkaSink")
'/mnt/shared/staging'
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tidegauge.errors.flow import InvalidArgument
from tidegauge.sinks.location import local_folder

__all__ = ["make_own_folder", "own_folder", "scratch_folder"]


def scratch_folder(folder: str | None, *, sink: str) -> str:
    """Return the folder that was named, or the user's own. Raises `UnsupportedLocation`."""
    return own_folder() if folder is None else local_folder(folder, sink=f"{sink}(staging=...)")


def own_folder() -> str:
    """Return the folder for those who name none, in the system's temporary directory."""
    return str(Path(tempfile.gettempdir()).absolute() / f"tidegauge-{os.getuid()}")


def make_own_folder(*, sink: str) -> None:
    """Make it, for this user alone. Raises `InvalidArgument` when somebody else has it."""
    folder = Path(own_folder())
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        expected = "a folder of the user's own: this one belongs to somebody else"
        raise InvalidArgument(parameter=f"{sink}(staging)", value=str(folder), expected=expected)
