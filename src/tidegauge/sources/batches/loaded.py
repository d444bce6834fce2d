"""What a load is known by: its files, each by its address and its content.

Invariant: two loads of the same files have one name, in whatever order the files were found.

>>> a, b = LoadFile("/in/a.csv", "5c1f", 9), LoadFile("/in/b.csv", "7d1f", 9)
>>> load_name([a, b]) == load_name([b, a]), load_name([a]) == load_name([b])
(True, False)
>>> check_among({("/in/a.csv", "5c1f"): "load-1"}, [b])
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import Final

from tidegauge.errors.loads import LoadedAlready

__all__ = ["LOAD", "LoadFile", "check_among", "load_name"]

LOAD: Final = "load-"
"""How the names of loads begin."""


@dataclass(frozen=True, slots=True, order=True)
class LoadFile:
    """A file of a load: its address, what its content is known by, and its size in bytes."""

    address: str
    identity: str
    size: int


def load_name(files: Iterable[LoadFile]) -> str:
    """Return the name of the load of these files, in whatever order."""
    said = json.dumps([astuple(file) for file in sorted(files)]).encode()
    return LOAD + blake2b(said, digest_size=16).hexdigest()


def check_among(known: Mapping[tuple[str, str], str], files: Sequence[LoadFile]) -> None:
    """Raise `LoadedAlready` where one of the files is in a load. known: the files of all, each with its load."""
    again = sorted(file for file in files if (file.address, file.identity) in known)
    if again:
        load = known[again[0].address, again[0].identity]
        raise LoadedAlready(count=len(again), files=len(files), load=load, path=again[0].address)
