"""Loading files once: all of them become one epoch of an existing output, or none does.

    discover ─► split ─► fetch, decode, stage in tasks ─► look again ─► one rename or put ─► the driver binds it

A load goes into a `BatchSource` of the flow, the one from which the output has rows. There it is a partition of one
batch, named by a digest of the files: their addresses, sizes, and ETags or contents. The driver that runs the flow,
now or later, finds it and binds it whole. So a load needs no lease and stops nobody.

Invariant: before the rename, or the put, nothing of a load can be seen, after it all of it is there for good. No
file is loaded twice into one source, also if processes are killed, and if several load at the same time.

>>> type(format_of(["/in/a.parquet", "/in/b.parquet"])).__name__, type(format_of(["https://x.org/a.csv.gz"])).__name__
('Parquet', 'Csv')
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final

import pyarrow as pa

from tidegauge.disk import synchronise
from tidegauge.engine.local import LocalEngine
from tidegauge.env import Env
from tidegauge.errors.base import brief
from tidegauge.errors.command import FlowNeverRan
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.loads import (
    FileNotLoadable,
    LoadedAlready,
    LoadForgotten,
    LoadNotStaged,
    LoadsNotTaken,
    NothingToLoad,
)
from tidegauge.errors.sources import UnreadableFile
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.job.loading import load_tasks, named
from tidegauge.job.plan import Engine
from tidegauge.looking.inspect import opened
from tidegauge.objects.address import glob_address, is_address
from tidegauge.sources.batches.loading import (
    LoadFile,
    check_new,
    fetching,
    forgotten,
    load_name,
    missing,
    parts_in,
    publish_load,
    shared,
    staging,
)
from tidegauge.sources.batches.looking import BatchChain
from tidegauge.sources.batches.manifest import BatchFile, LoadNote
from tidegauge.sources.batches.source import BatchSource
from tidegauge.sources.file.fetching import fetched, is_url, shown_url
from tidegauge.sources.file.once import FoundFile, check_unchanged, found_files, splits_of
from tidegauge.sources.formats.csv import Csv
from tidegauge.sources.formats.json import Json
from tidegauge.sources.formats.parquet import Parquet
from tidegauge.sources.formats.protocol import Format, as_line, as_whole
from tidegauge.sources.staging import StagingPath, path_of

__all__ = ["Load", "format_of", "load"]

_TOLD: Final = 3
"""How many addresses the timeline shows."""

_FORMATS: Final[Mapping[str, type[Csv | Json | Parquet]]] = {
    ".parquet": Parquet,
    ".csv": Csv,
    ".jsonl": Json,
    ".ndjson": Json,
    ".json": Json,
}


@dataclass(frozen=True, slots=True)
class Load:
    """A load that is there for good, and that an epoch binds once a driver has seen it.

    name: the partition of the source that it is. files, bytes: number and size. running: the driver that takes it, ""
    while nobody drives the flow. failed: the error of a source that has failed, which takes it once it is resumed, ""
    for any other.
    """

    flow: str
    output: str
    source: str
    name: str
    files: int
    rows: int
    bytes: int
    running: str
    failed: str = ""

    @property
    def positions(self) -> Mapping[str, Mapping[str, int]]:
        """What `tg.wait_for` takes, to wait until it is in every table."""
        return {self.source: {self.name: 1}}


def load(
    flow: Flow,
    output: str,
    address: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    format: Format | None = None,
    all_or_nothing: bool = True,
    engine: Engine | None = None,
    env: Env | None = None,
) -> Load:
    """Load files once: all rows of all files in one epoch of an output, or nothing.

    The output has its rows from a `BatchSource`, or from a union with one. All outputs of that source get the rows.
    The flow may be running.

    Args:
        flow: the flow.
        output: the output that the rows are for.
        address: a path or a pattern, an address in an object store, or the URL of one file; or several of them.
        format: how to read the files. None, to tell it by their names.
        all_or_nothing: True. A load of some of the files is one that names these files.
        engine: whose tasks read and stage. None for threads of this process.
        env: the world, for tests.

    Raises `LoadsNotTaken`, `LoadedAlready`, `NothingToLoad`, `FileNotLoadable`, `FileChangedMeanwhile`,
    `NoSuchColumns`, `ValuesInFolders`, `UrlGivesNoData`, `LoadNotStaged`, `LoadForgotten`, `HttpMissing`,
    `InvalidArgument`, `UnknownName`, and what object stores refuse. After each of them nothing is loaded. After
    `LoadInDoubt` nobody knows. An `OSError` comes of a disk that could not say whether the load, which is there,
    stays there when the power fails.
    """
    if all_or_nothing is not True:
        expected = "True: to load some of the files, name them"
        raise InvalidArgument(parameter="all_or_nothing", value=all_or_nothing, expected=expected)
    env = env or Env()
    spec = flow.spec
    name, source = _taking(spec, output)
    addresses = _addresses(address)
    reader = _reader(format or format_of(addresses), source.schema)
    root = path_of(str(source.path))
    before = _Before.of(spec, name, root, env)
    try:
        with staging(root) as folder:
            found = _found(addresses, reader, folder)
            inputs = [LoadFile(file.address, file.identity, file.size) for file in found]
            check_new(root, inputs)
            before.check(root, inputs)
            files = _staged(found, reader, source.schema, folder, engine)
            check_unchanged(found)
            if not files:
                raise NothingToLoad(detail=f"the {len(found)} files have no rows")
            made = publish_load(root, folder, _told(addresses), inputs, files)
    except OSError as error:
        raise LoadNotStaged(folder=str(root), detail=brief(error)) from error
    if isinstance(root, Path):
        synchronise(root)
    return Load(
        flow=spec.name,
        output=output,
        source=name,
        name=made,
        files=len(inputs),
        rows=sum(file.rows for file in files),
        bytes=sum(file.size for file in inputs),
        running=before.running,
        failed=before.failed,
    )


def _taking(spec: FlowSpec, output: str) -> tuple[str, BatchSource]:
    """Return the source that takes the loads of an output, with its name. Raises `LoadsNotTaken`."""
    spec.output(output)
    if spec.following is not None:
        detail = f"its sources are those of flow {spec.following.flow!r}, which is where to load"
        raise LoadsNotTaken(output=output, detail=detail)
    read = sorted(spec.origins(output))
    takes = {name: one for name in read if isinstance(one := spec.sources[name], BatchSource)}
    if len(takes) != 1:
        if takes:
            detail = f"{' and '.join(takes)} could take it: load into an output that reads one of them alone"
        else:
            detail = f"none of its sources does, of {', '.join(read)}"
        raise LoadsNotTaken(output=output, detail=detail)
    [(name, source)] = takes.items()
    return name, source


def _addresses(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the addresses of a load, paths absolute. Raises `InvalidArgument`, `CredentialsInAddress`."""
    texts = [given] if isinstance(given, str | os.PathLike) else list(given)
    if not texts or not all(isinstance(text, str | os.PathLike) and os.fspath(text).strip() for text in texts):
        raise InvalidArgument(parameter="address", value=given, expected="a path, a pattern or a URL, or several")
    return [_absolute(str(os.fspath(text))) for text in texts]


def _told(addresses: Sequence[str]) -> str:
    """Return addresses for people, the first ones of many."""
    more = len(addresses) - _TOLD
    shown = ", ".join(map(_shown, addresses[:_TOLD]))
    return f"{shown} and {more} more" if more > 0 else shown


def _absolute(text: str) -> str:
    if is_url(text):
        shown_url(text)
        return text
    if is_address(text):
        return glob_address(text)
    if "://" in text:
        scheme = text.partition("://")[0]
        raise InvalidArgument(
            parameter="address", value=f"{scheme}://...", expected="s3, gs, abfss, https, or a path"
        )
    return os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - Path.resolve would follow links


def _shown(address: str) -> str:
    return shown_url(address) if is_url(address) else address


def format_of(addresses: Sequence[str]) -> Format:
    """Return the format that the names of files tell. Raises `InvalidArgument` where they tell none, or several."""
    endings = {PurePosixPath(_shown(one).removesuffix(".gz")).suffix.lower() for one in addresses}
    found = {_FORMATS.get(ending) for ending in endings}
    if len(found) != 1 or (kind := found.pop()) is None:
        told = f"names that end with {', '.join(sorted(endings))}" if any(endings) else "names without an ending"
        expected = f"a format, as in tg.load(..., format=tg.Csv()): {told} do not tell it"
        raise InvalidArgument(parameter="format", value=None, expected=expected)
    return kind()


def _reader(format: Format, columns: pa.Schema) -> Format:
    """Return the format, which has the source's columns, or none of its own. Raises `InvalidArgument`."""
    if as_line(format) is None and as_whole(format) is None:
        raise InvalidArgument(parameter="format", value=format, expected="a format such as tg.Json(), tg.Csv()")
    if format.schema is not None and not format.schema.equals(columns):
        expected = f"the columns of the source that takes the load, {', '.join(map(str, columns))}, or none"
        raise InvalidArgument(parameter="format", value=str(format.schema), expected=expected)
    return format


def _found(addresses: Sequence[str], format: Format, folder: StagingPath) -> list[FoundFile]:
    """Find the files, at last those of URLs, by fetching them. One that several patterns name is there once.

    Raises `InvalidArgument` for two URLs that differ in their queries alone and give the same: nobody can tell
    whether they are one file.
    """
    found: dict[tuple[str, str], FoundFile] = {}
    for address in addresses:
        if not is_url(address):
            found |= {(file.address, file.identity): file for file in _on_shelf(address, format)}
    urls = list(dict.fromkeys(filter(is_url, addresses)))
    with fetching(folder) as here:
        for url, path, digest in fetched(urls, here) if urls else ():
            [file] = found_files(shared(folder, path), format)
            file = replace(file, address=shown_url(url), identity=f"content {digest}")
            if (file.address, file.identity) in found:
                expected = "URLs of different files: two that differ after the '?' alone give the same content"
                raise InvalidArgument(parameter="address", value=file.address, expected=expected)
            found[file.address, file.identity] = file
    return list(found.values())


def _on_shelf(pattern: str, format: Format) -> list[FoundFile]:
    """Return the files of a pattern or of an object store. Raises `FileNotLoadable` for one that may not be read."""
    try:
        return found_files(pattern, format)
    except OSError as error:
        raise FileNotLoadable(path=error.filename or pattern, detail=brief(error)) from error


@dataclass(frozen=True, slots=True)
class _Before:
    """What the store knows before a load: the partitions of the source, and who drives the flow, "" for nobody.

    failed: how the source has failed, "" where it has not.
    """

    partitions: Mapping[str, LoadNote | None] = field(default_factory=dict)
    running: str = ""
    failed: str = ""

    @staticmethod
    def of(spec: FlowSpec, source: str, root: StagingPath, env: Env) -> _Before:
        """Look. Raises `LoadNotStaged` where the source had a folder, and this machine has none."""
        try:
            with opened(spec, env) as store:
                known = store.load(spec.name).sources.get(source)
                running = store.holder(spec.name) or ""
        except FlowNeverRan:
            return _Before()
        if known is None:
            return _Before(running=str(running))
        bound = {name: str(detail.get("at", "")) for name, detail in known.details.items()}
        if bound and (lacks := missing(root, bound)):
            raise LoadNotStaged(folder=str(root), detail=lacks)
        failed = "" if known.failure is None else f"{known.failure[1].code}: {known.failure[1].summary}"
        partitions = {name: BatchChain.of(detail).loaded for name, detail in known.details.items()}
        return _Before(partitions, str(running), failed)

    def check(self, root: StagingPath, inputs: Sequence[LoadFile]) -> None:
        """Raise `LoadedAlready` for a load that an epoch binds, also where its files were removed since.

        Raises `LoadForgotten` where a part of such a load could be loaded again, and nothing would say so.
        """
        name = load_name(inputs)
        if name in self.partitions:
            raise LoadedAlready(count=len(inputs), files=len(inputs), load=name, path=min(inputs).address)
        loads = {name: note for name, note in self.partitions.items() if note is not None}
        if (gone := forgotten(root, loads)) is not None:
            raise LoadForgotten(path=str(gone[0]), inputs=gone[1].inputs)


def _staged(
    found: Sequence[FoundFile], format: Format, columns: pa.Schema, folder: StagingPath, engine: Engine | None
) -> list[BatchFile]:
    """Have tasks stage the rows of the files."""
    addresses = {str(number): file.address for number, file in enumerate(found)}
    try:
        splits = splits_of(found, format, columns)
    except UnreadableFile as error:
        path = str(error.evidence["path"])
        raise named(error, path, {file.facts.path: file.address for file in found}.get(path, path)) from error
    tasks = load_tasks(splits, format=format, folder=parts_in(folder), addresses=addresses)
    if not tasks:
        return []
    workers = engine or LocalEngine()
    try:
        staged = workers.work(tasks)
    finally:
        if engine is None:
            workers.close()
    return [BatchFile(file.path, file.bytes, file.rows) for files in staged for file in files]
