"""A Parquet table's folders: how a commit's one is made before it is renamed into its place, and how one goes.

Invariant: a folder that stands in its place is whole and durable, with its manifest; one that is to go leaves its
place in one rename, before anything of it is removed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.history import DamagedHistory
from tidegauge.errors.sinks import ForeignTable
from tidegauge.remap.history import History, Link
from tidegauge.sinks.keeping import in_line
from tidegauge.sinks.location import inside, make_folder, synchronise, write_durably
from tidegauge.sinks.parquet.manifest import LINKS, MANIFEST, Manifest, folder_name
from tidegauge.sinks.protocol import OutputId, StagedFile

__all__ = [
    "STAGED",
    "commits_in",
    "gathered",
    "links_of",
    "placed",
    "remove_empty",
    "take_away",
    "write_of",
]

STAGED: Final = "_staged"


@contextmanager
def gathered(table: str, files: Sequence[StagedFile], manifest: Manifest, history: History) -> Iterator[Path]:
    """Bring the files of a commit into one durable folder; put them back where they were if the body fails.

    history: that of its epochs. Its links are in the manifest, or beside it when they are large.
    """
    folder = inside(table, f"{STAGED}/commit-{manifest.write}")
    if folder.parent != Path(table, STAGED):
        raise InvalidArgument(parameter="write", value=manifest.write, expected="a name without '/'")
    make_folder(folder.parent)
    folder.mkdir()
    moved: list[tuple[Path, Path]] = []
    try:
        for file in files:
            source = inside(table, file.path)
            moved.append((source, folder / source.name))
            source.rename(folder / source.name)
        lines = history.lines if in_line(history) else ()
        if not lines and history.lines:
            write_durably(folder / LINKS, history.encode().encode())
        write_durably(folder / MANIFEST, manifest.encode(lines))
        synchronise(folder)
        yield folder
    except BaseException:
        for source, there in moved:
            with suppress(FileNotFoundError):
                there.rename(source)
        shutil.rmtree(folder, ignore_errors=True)
        raise


def take_away(folder: Path, write: str) -> None:
    """Take a folder out of its place; what the file system does not let go is swept by a later run."""
    away = folder.parent / STAGED / f"removed-{write}"
    make_folder(away.parent)
    folder.rename(away)
    shutil.rmtree(away, ignore_errors=True)


def write_of(write: str, lower: int) -> str:
    """Return the name of a part of an attempt, which begins with the mark of its flow as that does.

    >>> write_of("a" * 32, 7) == write_of("a" * 32, 7) != write_of("a" * 32, 8), len(write_of("a" * 32, 7))
    (True, 32)
    """
    return write[:16] + blake2b(f"{write}-{lower}".encode("ascii"), digest_size=8).hexdigest()


def links_of(table: str, manifest: Manifest) -> list[Link]:
    """Return the links that a commit has. Raises `DamagedHistory`."""
    folder = Path(table, folder_name(manifest.lower))
    try:
        found = [Link.decode(link) for link in manifest.links]
        with suppress(FileNotFoundError):
            found += History.decode((folder / LINKS).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedHistory(table=table, path=str(folder), detail=str(error)) from error
    return found


def placed(file: StagedFile, lower: int) -> StagedFile:
    """Return a staged file under its name in the commit."""
    return replace(file, path=f"{folder_name(lower)}/{file.path.rpartition('/')[2]}")


def remove_empty(table: str, files: Sequence[StagedFile]) -> None:
    """Remove the jobs' folders that hold nothing any more."""
    for folder in {inside(table, file.path).parent for file in files}:
        with suppress(OSError):
            folder.rmdir()


def commits_in(table: str, output: OutputId) -> list[str]:
    """Return the names of the commits' folders, sorted. Raises `ForeignTable` for a table that holds other things."""
    try:
        names = sorted(name for name in os.listdir(table) if not name.startswith(("_", ".")))
    except FileNotFoundError:
        return []
    if foreign := [name for name in names if not _is_commit(name)]:
        detail = f"it holds {', '.join(foreign[:3])}" + (" and more" if len(foreign) > 3 else "")
        raise ForeignTable(table=table, output=str(output), detail=detail)
    return names


def _is_commit(name: str) -> bool:
    """Whether it is the name of a commit's folder."""
    digits = name.removeprefix("from_epoch=")
    return digits.isdecimal() and name == folder_name(int(digits))
