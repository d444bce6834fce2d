"""Loads among the batches of a `BatchSource`: files that were read once, by nobody but the load.

    _loads/UUID/                what a load is staging, with a lock that goes when its process does
    load-5c1f…/                 a load that is there: a query of one batch, named by a digest of its files
    load-5c1f…/inputs.json      its files, each with its address and what it is known by

Everything of a load, its manifest too, is staged and durable before its folder is renamed to the place where the
source looks. That one rename is the load.

In an object store another law decides, which `claimed` has.

Invariant: a load is there whole, or not at all, also if its process is killed. No file is in two loads:
that is looked at under a lock, which every load takes before its rename.

>>> import tempfile
>>> import pyarrow as pa
>>> from tidegauge.sources.batches.manifest import read_manifest
>>> from tidegauge.sources.batches.writing import write_part
>>> with tempfile.TemporaryDirectory() as root:
...     with staging(Path(root)) as folder:
...         file = write_part(parts_in(folder), iter([pa.record_batch({"id": [1, 2]})]))
...         name = publish_load(Path(root), folder, "in/*.csv", [LoadFile("/in/a.csv", "5c1f", 9)], [file])
...     name == load_name([LoadFile("/in/a.csv", "5c1f", 9)]), read_manifest(Path(root, name), 0).loaded
(True, LoadNote(path='in/*.csv', inputs=1, bytes=9, at=''))
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from errno import ENOENT
from pathlib import Path
from typing import Final

from tidegauge.disk import make_folder, synchronise, write_durably
from tidegauge.errors.batches import BatchDamaged
from tidegauge.objects.path import ObjectPath
from tidegauge.sources.batches.claimed import claim, files_in, loads_in, log_of, staging_objects, sweep_objects
from tidegauge.sources.batches.loaded import LOAD, LoadFile, check_among, load_name
from tidegauge.sources.batches.manifest import (
    STAGED_LOADS,
    BatchFile,
    BatchManifest,
    LoadNote,
    files_of,
    manifest_path,
)
from tidegauge.sources.batches.writing import STAGED
from tidegauge.sources.staging import StagingPath, put_file

__all__ = [
    "LoadFile",
    "check_new",
    "fetching",
    "forgotten",
    "load_name",
    "missing",
    "parts_in",
    "publish_load",
    "shared",
    "staging",
    "sweep",
]

_LOCK: Final = "lock"
_FETCHED: Final = "fetched"
_INPUTS: Final = "inputs.json"


@contextmanager
def staging(root: StagingPath) -> Iterator[StagingPath]:
    """Give a folder to stage a load in, which is gone unless it is a load; so are those of loads that were killed."""
    if isinstance(root, ObjectPath):
        with staging_objects(root) as place:
            yield place
        return
    folder = root / STAGED_LOADS / uuid.uuid4().hex
    make_folder(root / STAGED_LOADS)
    sweep(root)
    with _locked(root):
        make_folder(folder)
        mine = _lock(folder / _LOCK)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(mine)


def parts_in(folder: StagingPath) -> StagingPath:
    """Return where tasks put the files of a load that is staged in a folder."""
    return folder / STAGED if isinstance(folder, Path) else files_of(folder, 0)


@contextmanager
def fetching(folder: StagingPath) -> Iterator[Path]:
    """Give a folder of a disk to fetch files into, before `shared` shows them to the tasks."""
    if isinstance(folder, Path):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="tidegauge-load-") as here:
        yield Path(here)


def shared(folder: StagingPath, fetched: Path) -> str:
    """Return where tasks find a file that was fetched: in the folder of the load."""
    if isinstance(folder, Path):
        return str(fetched)
    there = folder / _FETCHED / fetched.name
    put_file(there, fetched)
    fetched.unlink()
    return str(there)


def sweep(root: StagingPath) -> None:
    """Remove what loads have left that were killed.

    On a disk nobody holds their locks, however old or new they are. In a store they have put nothing for a day.
    """
    if isinstance(root, ObjectPath):
        sweep_objects(root)
        return
    if not (root / STAGED_LOADS).is_dir():
        return
    with _locked(root):
        for entry in os.scandir(root / STAGED_LOADS):
            if entry.is_dir():
                with suppress(OSError):
                    lock = _lock(Path(entry.path, _LOCK), fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(entry.path, ignore_errors=True)
                    os.close(lock)


def check_new(root: StagingPath, files: Sequence[LoadFile]) -> None:
    """Raise `LoadedAlready` where one of the files is in a load."""
    check_among(files_in(log_of(root)) if isinstance(root, ObjectPath) else _known(root), files)


def missing(root: StagingPath, loads: Mapping[str, str]) -> str:
    """Return what a place lacks of what a flow has read there, for people; "" where nothing is to be seen.

    loads: those that the flow has bound, each with where it was staged, "" on a disk.
    """
    if isinstance(root, Path):
        return "" if root.is_dir() else "it is not there, and the flow has read it"
    there = loads_in(root)
    gone = sorted(name for name, at in loads.items() if at and there.get(name) != at)
    return f"its log of loads lacks {gone[0]}, which the flow has read" if gone else ""


def forgotten(root: StagingPath, loads: Mapping[str, LoadNote]) -> tuple[Path, LoadNote] | None:
    """Return where a load should say which files it has, and does not, with its note; None where all of them do.

    loads: those that the flow has read. A store's log says it for all, or `missing` has told.
    """
    if isinstance(root, ObjectPath):
        return None
    places = ((root / name / _INPUTS, note) for name, note in sorted(loads.items()))
    return next(((path, note) for path, note in places if not path.exists()), None)


def publish_load(
    root: StagingPath, folder: StagingPath, path: str, inputs: Sequence[LoadFile], files: Sequence[BatchFile]
) -> str:
    """Make the staged files of a folder the load of these inputs, and return its name.

    path: the addresses, for people. Raises `LoadedAlready`, and `OSError`; after that nothing is there. On a disk the
    folder of the source is still to be synchronised: what fails then is another thing, for the load can be seen. In a
    store it raises what `claim` does.
    """
    if isinstance(root, ObjectPath) or isinstance(folder, ObjectPath):
        assert isinstance(root, ObjectPath)  # noqa: S101 - `staging` has made the folder in it
        assert isinstance(folder, ObjectPath)  # noqa: S101
        return claim(root, folder, path, inputs, files)
    name = load_name(inputs)
    whole = folder / name
    note = LoadNote(path, len(inputs), sum(file.size for file in inputs))
    manifest = BatchManifest(name, 0, 0, "", tuple(files), note)
    make_folder(whole)
    _keep(folder / STAGED, files)
    (folder / STAGED).rename(files_of(whole, 0))
    synchronise(files_of(whole, 0))
    write_durably(whole / _INPUTS, json.dumps([astuple(file) for file in sorted(inputs)]).encode())
    write_durably(manifest_path(whole, 0), manifest.encode())
    synchronise(whole)
    with _locked(root):
        check_new(root, inputs)
        whole.rename(root / name)
    return name


def _keep(folder: Path, files: Sequence[BatchFile]) -> None:
    """Remove other files: those of tasks that a cluster has done twice. Raises `OSError` for one that is not here."""
    there = {entry.name: entry.stat().st_size for entry in os.scandir(folder)}
    for file in files:
        if there.pop(file.name, None) != file.size:
            raise FileNotFoundError(
                ENOENT, "a task has staged it, maybe on a disk of its own", str(folder / file.name)
            )
    for name in there:
        (folder / name).unlink(missing_ok=True)


def _known(root: Path) -> Mapping[tuple[str, str], str]:
    """Return the files of all loads, each with its load."""
    return {
        (file.address, file.identity): entry.name
        for entry in sorted(os.scandir(root), key=lambda entry: entry.name)
        if entry.name.startswith(LOAD)
        for file in _inputs(Path(entry.path))
    }


def _inputs(load: Path) -> list[LoadFile]:
    path = load / _INPUTS
    try:
        return [LoadFile(address, identity, size) for address, identity, size in json.loads(path.read_bytes())]
    except FileNotFoundError:
        return []  # a query of Spark's that is called so
    except (ValueError, TypeError) as error:
        raise BatchDamaged(path=str(path), detail=str(error)) from error


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Be the only one who changes which loads there are."""
    lock = _lock(root / STAGED_LOADS / _LOCK)
    try:
        yield
    finally:
        os.close(lock)


def _lock(path: Path, how: int = fcntl.LOCK_EX) -> int:
    """Return a descriptor that holds a lock, until it is closed or the process ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, how)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
