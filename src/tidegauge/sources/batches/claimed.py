"""Loads in an object store, which renames nothing and holds no locks: a log says which staged rows are a load.

    _loads/UUID/                 what a load has staged: its manifest, and its files
    _loaded/000000000007.json    an entry of the log: a load, with its files and its UUID; or one that was given up

Entries are numbered without a gap, and each is made by a conditional put. Who makes one has read all before it, so
no file is in two loads. That one put is the load.

Nobody can tell whether a load still runs, so one that has put nothing for a day is given up, by an entry, and only
then are its staged files removed. A load that was given up meets that entry and fails; it had waited for very long.

Invariant: files that an entry names stay, and a load that was given up never is one, whichever of the two comes
first. After an error nothing is loaded, but for `LoadInDoubt`, which says that nobody knows.

>>> LoadEntry("load-5c1f", "7d1f").published, LoadEntry("", "7d1f").published
(True, False)
>>> decoded(encoded(LoadEntry("load-5c1f", "7d1f"), [LoadFile("s3://lake/a.csv", "etag 1", 9)]), "here")[1][0].address
's3://lake/a.csv'
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from errno import ENOENT
from functools import lru_cache
from typing import Final

from tidegauge.errors.base import TidegaugeError, brief
from tidegauge.errors.batches import BatchDamaged
from tidegauge.errors.loads import LoadInDoubt, LoadNotStaged
from tidegauge.objects.client import at_once
from tidegauge.objects.listing import pages
from tidegauge.objects.path import ObjectPath
from tidegauge.sources.batches.loaded import LoadFile, check_among, load_name
from tidegauge.sources.batches.manifest import (
    STAGED_LOADS,
    BatchFile,
    BatchManifest,
    LoadNote,
    files_of,
    manifest_path,
)
from tidegauge.sources.staged import sealed, unsealed
from tidegauge.sources.staging import create

__all__ = ["LoadEntry", "claim", "claimed", "files_in", "loads_in", "log_of", "staging_objects", "sweep_objects"]

_LOG: Final = "_loaded"
_ENTRY: Final = re.compile(r".*/([0-9]{12})\.json")
_ABANDONED: Final = timedelta(days=1)
"""How long a load puts nothing before it is given up. A load that runs puts a file whenever it has read 64 MB."""


@dataclass(frozen=True, slots=True)
class LoadEntry:
    """An entry of the log. load: the name of the load, "" where it was given up. staged: its folder."""

    load: str
    staged: str

    @property
    def published(self) -> bool:
        """Whether it is a load."""
        return bool(self.load)


def encoded(entry: LoadEntry, inputs: Sequence[LoadFile]) -> bytes:
    """Return the bytes of an entry."""
    files = [astuple(file) for file in sorted(inputs)]
    return sealed({"format": 1, "load": entry.load, "staged": entry.staged, "inputs": files})


def decoded(data: bytes, path: str) -> tuple[LoadEntry, list[LoadFile]]:
    """Return an entry, and the files of the load. Raises `BatchDamaged`."""
    said = unsealed(data, path, formats=(1,), damaged=BatchDamaged)
    return LoadEntry(said["load"], said["staged"]), [LoadFile(*file) for file in said["inputs"]]


def claimed(root: ObjectPath) -> list[LoadEntry]:
    """Return the entries that are there, in their order. Raises `BatchDamaged`, and what asking the store does."""
    return list(at_once(lambda one: _entry(*one), [(path, etag) for _number, path, etag in _listed(root)]))


def loads_in(root: ObjectPath) -> Mapping[str, str]:
    """Return the loads there are, each with its folder. Raises as `claimed` does."""
    return {entry.load: entry.staged for entry in claimed(root) if entry.published}


def log_of(root: ObjectPath) -> list[tuple[LoadEntry, list[LoadFile]]]:
    """Return the log with the files of the loads. Raises as `claimed` does, also for a log with a gap."""
    paths = [path for _number, path, _etag in _whole(root)]
    return list(at_once(lambda path: decoded(ObjectPath.of(path).read_bytes(), path), paths))


def files_in(log: Iterable[tuple[LoadEntry, Sequence[LoadFile]]]) -> Mapping[tuple[str, str], str]:
    """Return the files of all loads, each with its load."""
    return {(file.address, file.identity): entry.load for entry, files in log for file in files}


@lru_cache(maxsize=4096)
def _entry(path: str, _etag: str) -> LoadEntry:
    return decoded(ObjectPath.of(path).read_bytes(), path)[0]


def _listed(root: ObjectPath) -> list[tuple[int, str, str]]:
    """Return the number, the address and the ETag of each entry."""
    place = root / _LOG
    return [
        (int(found[1]), one.path, one.etag)
        for page in pages(place.bucket, f"{place.key}/", deep=True)
        for one in page
        if (found := _ENTRY.fullmatch(one.path))
    ]


def _whole(root: ObjectPath) -> list[tuple[int, str, str]]:
    """Return all entries as `_listed` does. Raises `BatchDamaged` where one is gone."""
    found = _listed(root)
    for number, (there, _path, _etag) in enumerate(found):
        if there != number:
            detail = f"it is gone, and later ones are there, up to {found[-1][0]}"
            raise BatchDamaged(path=str(_path_of(root, number)), detail=detail)
    return found


def _path_of(root: ObjectPath, number: int) -> ObjectPath:
    return root / _LOG / f"{number:012}.json"


@contextmanager
def staging_objects(root: ObjectPath) -> Iterator[ObjectPath]:
    """Give a place to stage a load in. After an error its objects are removed, unless they may be a load."""
    sweep_objects(root)
    if not _listed(root):
        (root / _LOG / f"_proof-{uuid.uuid4().hex}").prove()
    folder = root / STAGED_LOADS / uuid.uuid4().hex
    try:
        yield folder
    except LoadInDoubt:
        raise
    except BaseException:
        with suppress(TidegaugeError, OSError):
            if not manifest_path(folder, 0).exists() or _given_up(root, folder.name):
                folder.clear()
        raise


def sweep_objects(root: ObjectPath) -> None:
    """Give up the loads that have put nothing for a day, and remove what they have staged."""
    folders = (root / STAGED_LOADS).folders()
    if not folders:
        return
    entries = {entry.staged: entry.published for entry in claimed(root)}
    until = datetime.now(UTC) - _ABANDONED
    for name in folders:
        folder = root / STAGED_LOADS / name
        if not entries.get(name, False) and _newest(folder) < until and _given_up(root, name):
            folder.clear()


def _newest(folder: ObjectPath) -> datetime:
    """Return when something was put into a folder last."""
    last = max(
        (one.modified for page in pages(folder.bucket, f"{folder.key}/", deep=True) for one in page), default=0
    )
    return datetime.fromtimestamp(last / 1e9, UTC)


def _given_up(root: ObjectPath, staged: str) -> bool:
    """Make an entry that a load is given up, unless there is one; False where it is a load."""
    while True:
        log = log_of(root)
        for entry, _files in log:
            if entry.staged == staged:
                return not entry.published
        if create(_path_of(root, len(log)), encoded(LoadEntry("", staged), [])):
            return True


def _keep(folder: ObjectPath, files: Sequence[BatchFile]) -> None:
    """Remove other objects: those of tasks that a cluster has done twice, and fetched files.

    Raises `FileNotFoundError` where one is not here.
    """
    place = f"{folder.key}/"
    there = {one.path: one.size for page in pages(folder.bucket, place, deep=True) for one in page}
    for file in files:
        path = str(files_of(folder, 0) / file.name)
        if there.pop(path, None) != file.size:
            raise FileNotFoundError(ENOENT, "a task has staged it, and it is gone", path)
    folder.remove([path.removeprefix(f"{folder}/") for path in there])


def claim(
    root: ObjectPath, folder: ObjectPath, path: str, inputs: Sequence[LoadFile], files: Sequence[BatchFile]
) -> str:
    """Make the staged files of a folder the load of these inputs, and return its name.

    Raises `LoadedAlready`, `LoadInDoubt`, `LoadNotStaged` where it was given up meanwhile, and what asking the store
    does.
    """
    entry = LoadEntry(load_name(inputs), folder.name)
    note = LoadNote(path, len(inputs), sum(file.size for file in inputs), at=folder.name)
    _keep(folder, files)
    manifest_path(folder, 0).put(BatchManifest(entry.load, 0, 0, "", tuple(files), note).encode())
    data, asked, failures = encoded(entry, inputs), -1, 0
    while True:
        try:
            log = log_of(root)
            known = [one for one, _files in log]
            if entry in known:
                return entry.load
            if asked < len(log):
                asked = -1  # somebody else has made that entry, so no request of ours ever will
            if LoadEntry("", folder.name) in known:
                detail = "another load has found nothing new in it for a day, and has removed what was there"
                raise LoadNotStaged(folder=str(folder), detail=detail)
            check_among(files_in(log), inputs)
            asked = len(log)
            if create(_path_of(root, asked), data):
                return entry.load
        except (TidegaugeError, OSError) as error:
            failures += 1
            if asked < 0:
                raise
            if failures > 1:
                raise LoadInDoubt(load=entry.load, place=str(root), detail=brief(error)) from error
