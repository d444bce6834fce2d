"""Removing a table with its folder: all of it or nothing, and never a file that is not of the table.

The folder is looked through first; then it is renamed, so at one instant nobody sees any of it any more, and
then it is removed under its new name. That name is a function of the output and its store, so the command
that is given again after a crash finds it. An object store renames nothing: there what names the table's files goes
last, and in it the newest entry first, so until the end it tells whose table it is, and the command goes on.

Invariants. No link is followed: a folder with one in it is refused, and so is a folder that is one. A folder with a
file that is not of the table is refused before anything is changed. Nothing outside the folder is touched.

>>> import tempfile
>>> mine = OutputId("shop", "late", "0" * 32)
>>> with tempfile.TemporaryDirectory() as root:
...     _ = Path(root, "late", "_staged").mkdir(parents=True)
...     check_folder(f"{root}/late", lambda path: path.startswith("_staged/"))
...     remove_folder(f"{root}/late", mine)
...     os.listdir(root)
[]
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tidegauge.errors.sinks import TableNotRemovable
from tidegauge.objects.client import at_once
from tidegauge.objects.path import ObjectPath
from tidegauge.sinks.location import AWAY, at, gone, synchronise, writing
from tidegauge.sinks.protocol import OutputId

__all__ = ["check_folder", "remove_folder"]

_MANIFEST: Final = re.compile(r"from_epoch=\d+/_manifest\.json")
_SHOWN: Final = 3
"""How many foreign files an error names."""


def check_folder(folder: str, mine: Callable[[str], bool]) -> None:
    """Raise `TableNotRemovable` unless all files in a folder are of its table. One that is not there is.

    mine: whether a path relative to the folder is that of a file of the table. In a store, other clients mark
    folders with empty objects (`metadata/`). These are nobody's, and stay.
    """
    place = at(folder)
    if isinstance(place, ObjectPath):
        foreign = [path for path in place.below() if not mine(path)]
        foreign = [path for path, there in zip(foreign, at_once(place.has, foreign), strict=True) if there]
    elif place.is_symlink():
        raise TableNotRemovable(table=folder, why="it is a symbolic link")
    else:
        found = () if gone(place) else _files(folder, "")
        foreign = sorted(path for path, plain in found if not (plain and mine(path)))
    if foreign:
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        raise TableNotRemovable(table=folder, why=f"these are no files of it: {', '.join(foreign[:_SHOWN])}{more}")


def remove_folder(folder: str, output: OutputId) -> None:
    """Remove a folder that was checked, or what an earlier attempt has left of it. Once more, if it was cut short."""
    place = at(folder)
    if isinstance(place, ObjectPath):
        place.remove(_in_turn(list(place.below())))
        return
    away = place.with_name(f"_{AWAY}{place.name}-{_mark(output)}")
    with writing(folder):
        _clear(away)
        if not gone(place):
            place.rename(away)
            synchronise(place.parent)
            _clear(away)


def _in_turn(paths: Sequence[str]) -> list[str]:
    """Return the objects of a table as they go, one after the other; the log, or the chain, stands on the last.

    >>> log = [f"_delta_log/{name}" for name in ("5.checkpoint.parquet", "5.json", "6.json", "_last_checkpoint")]
    >>> _in_turn([*log, "part-0.parquet"])[:3]
    ['part-0.parquet', '_delta_log/_last_checkpoint', '_delta_log/6.json']
    >>> _in_turn(log)[3:]
    ['_delta_log/5.checkpoint.parquet']
    >>> _in_turn([f"from_epoch={name}/_manifest.json" for name in ("000", "0000", "001")])[1:]
    ['from_epoch=000/_manifest.json', 'from_epoch=0000/_manifest.json']
    """
    log = sorted((path for path in paths if path.startswith("_delta_log/")), reverse=True)
    made = [path for path in log if ".checkpoint." in path]
    newest = made[0].partition(".checkpoint.")[0] if made else ""
    base = [path for path in made if path.startswith(newest)]
    manifests = sorted((path for path in paths if _MANIFEST.fullmatch(path)), key=_backwards)
    kept = set(base)
    last = {*log, *manifests}
    return [
        *(path for path in paths if path not in last),
        *manifests,
        *(path for path in log if path not in kept),
        *base,
    ]


def _backwards(manifest: str) -> tuple[int, int]:
    """Return where the manifest of a Parquet table's commit goes: the first one of the newest edition is the last."""
    digits = manifest[len("from_epoch=") :].partition("/")[0]
    return -int(digits), len(digits)


def _clear(away: Path) -> None:
    if not gone(away):
        shutil.rmtree(away)  # which refuses a link, and follows none
        synchronise(away.parent)


def _files(folder: str, within: str) -> Iterator[tuple[str, bool]]:
    """Yield the relative path of everything that is no folder, and whether it is a plain file."""
    with os.scandir(os.path.join(folder, within)) as entries:
        for entry in entries:
            path = f"{within}/{entry.name}" if within else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _files(folder, path)
            else:
                yield path, entry.is_file(follow_symlinks=False)


def _mark(output: OutputId) -> str:
    return hashlib.blake2b(f"{output.incarnation}:{output}".encode(), digest_size=8).hexdigest()
