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

__all__ = ["make_own_folder", "own_folder"]


def own_folder() -> str:
    """Return the path of the folder. It need not be there."""
    return str(Path(tempfile.gettempdir()).absolute() / f"tidegauge-{os.getuid()}")


def make_own_folder(*, sink: str) -> None:
    """Make the folder where it is missing. Raises `InvalidArgument` when somebody else has it."""
    folder = Path(own_folder())
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        expected = "a folder of the user's own: this one belongs to somebody else"
        raise InvalidArgument(parameter=f"{sink}(staging)", value=str(folder), expected=expected)
