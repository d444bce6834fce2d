"""The batches of Structured Streaming queries as a source, `BatchSource`: each query is a partition.

A query writes below the path, by `tg.write_batches` or `format("tidegauge")`. Its position is the id of its next
batch. A batch is bound whole, so all its rows are in one epoch, in every output.

Invariant: the rows that are read are those that were bound, or the source fails. Manifests are checked by the chain
of their digests, files by their sizes and numbers of rows.

>>> import tempfile
>>> from datetime import UTC
>>> from pathlib import Path
>>> from tidegauge.sources.batches.writing import publish, stage
>>> with tempfile.TemporaryDirectory() as root:
...     folder = Path(root, "orders")
...     file = stage(folder, iter([pa.record_batch({"id": [1, 2, 3]})]))
...     publish(folder, "7d1f", 0, [file])
...     source = BatchSource(root, columns="id long")
...     dict(source.probe(Bound(), now=datetime(2026, 1, 1, tzinfo=UTC)).upper)
{'orders': 1}
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa

from tidegauge.errors.batches import BatchDamaged
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sources import FolderAway, RecordsLost
from tidegauge.objects.address import address, is_address
from tidegauge.objects.path import ObjectPath
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.batches.claimed import loads_in
from tidegauge.sources.batches.loaded import LOAD
from tidegauge.sources.batches.looking import BatchChain, Query
from tidegauge.sources.batches.manifest import (
    STAGED_LOADS,
    BatchManifest,
    batches_in,
    files_of,
    is_query,
    manifest_path,
    read_manifest,
    root_at,
)
from tidegauge.sources.ddl import as_schema, to_ddl
from tidegauge.sources.metadata import with_metadata
from tidegauge.sources.protocol import OnBadRecord, Split
from tidegauge.sources.staged import staged_rows
from tidegauge.sources.staging import StagingPath, check_there, each, path_of

__all__ = ["BatchSource", "BatchSplit"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSplit:
    """A file of a batch. rows: how many it has. `weight` is its size in bytes."""

    epoch: int
    partition: str
    lower: int
    upper: int
    weight: int
    path: str
    rows: int
    schema: pa.Schema


@dataclass(frozen=True)
class BatchSource:
    """Batches that queries of Structured Streaming have written below a path.

    Args:
        path: a folder on a file system that the queries, their tasks and those of the flow see. Or an address in an
            object store, where it takes loads alone.
        columns: a DDL string or an Arrow schema. Columns are found by name; missing ones are null.
        max_records_per_epoch: how many rows an epoch takes at most; at least one batch.

    Raises `InvalidArgument`, `InvalidSchema`, `ReservedColumn`, `BatchesElsewhere`.
    """

    path: str | os.PathLike[str]
    _: KW_ONLY
    columns: str | pa.Schema
    max_records_per_epoch: int = 10_000_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _place(self.path))
        most = self.max_records_per_epoch
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            expected = "a whole number, at least 1"
            raise InvalidArgument(parameter="max_records_per_epoch", value=most, expected=expected)
        if self.columns is None:
            raise InvalidArgument(parameter="columns", value=None, expected="a DDL string or an Arrow schema")
        _ = self.schema

    @property
    def unit(self) -> str:
        """Positions count batches."""
        return "batches"

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns."""
        found = as_schema(self.columns)
        assert found is not None  # noqa: S101 - checked when it was made
        return with_metadata(found, metadata=False, where="the batches")

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {
            "kind": "batches",
            "path": self.path,
            "columns": to_ddl(self.schema),
            "max_records_per_epoch": self.max_records_per_epoch,
        }

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Return how far the queries are, after as many whole batches of each in turn as an epoch takes."""
        queries = {name: self._query(name, folder, bound) for name, folder in self._folders(bound).items()}
        left = self.max_records_per_epoch
        while left > 0 and (behind := [query for query in queries.values() if query.more]):
            for query in behind:
                if left > 0:
                    left -= query.taken()
        upper = bound.frontier.join(Frontier({name: query.upper for name, query in queries.items() if query.chain}))
        known = {name: _chain(bound, name) for name in queries}
        return Observation(
            at=now,
            upper=upper,
            end=upper.join(Frontier({name: query.end for name, query in queries.items() if query.end})),
            more=any(query.more for query in queries.values()),
            details={
                name: query.chain.detail
                for name, query in queries.items()
                if query.chain is not None and query.chain != known[name]
            },
            schema=self.schema if bound.schema is None else None,
            note="" if queries else f"waiting: no query has written a batch below {self.path}",
        )

    @cached_property
    def _root(self) -> StagingPath:
        return path_of(str(self.path))

    def _folders(self, bound: Bound) -> Mapping[str, StagingPath]:
        """Return the queries by their names, each with its folder.

        Raises `OSError` where there were some and the folder is away, and what asking a store does.
        """
        if isinstance(self._root, ObjectPath):
            place = self._root / STAGED_LOADS
            found: dict[str, StagingPath] = {name: place / at for name, at in loads_in(self._root).items()}
            found |= {name: self._folder(name, chain) for name in bound.frontier if (chain := _chain(bound, name))}
            return dict(sorted(found.items()))
        return {name: self._root / name for name in self._names(bound)}

    def _folder(self, name: str, chain: BatchChain) -> StagingPath:
        """Return the folder of a query that has a bound batch."""
        staged = "" if chain.loaded is None else chain.loaded.at
        return self._root / STAGED_LOADS / staged if staged else self._root / name

    def _names(self, bound: Bound) -> Sequence[str]:
        try:
            found = {entry.name for entry in os.scandir(self.path) if is_query(entry.name) and entry.is_dir()}
        except FileNotFoundError:
            if bound.frontier:
                raise
            found = set()
        return sorted(found | bound.frontier.keys())

    def _query(self, name: str, folder: StagingPath, bound: Bound) -> Query:
        query = Query.of(folder, _chain(bound, name), bound.frontier.get(name, 0))
        if query.chain is None and not query.more and isinstance(folder, ObjectPath):
            detail = "it is gone, and the log of loads has it: a rule of the bucket may have removed it"
            raise BatchDamaged(path=str(manifest_path(folder, 0)), detail=detail)
        return query

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Cut slices into the files of their batches, which are looked at. Raises what says that one is not there."""
        return [split for piece in slices for split in self._planned(piece, bound)]

    def _planned(self, piece: Slice, bound: Bound) -> Iterator[Split]:
        if (chain := _chain(bound, piece.partition)) is None:
            return
        folder = self._folder(piece.partition, chain)
        end = bound.frontier[piece.partition]
        before: BatchManifest | None = None
        for batch in range(max(piece.lower, chain.first), piece.upper):
            manifest = self._bound(piece, chain, batch, end)
            chain.check(manifest, str(folder), digest=before.digest if before else None)
            paths = [files_of(folder, batch) / file.name for file in manifest.files]
            for file, path, size in zip(manifest.files, paths, each(folder, _size, paths), strict=True):
                if size is None:
                    raise self._lost(piece, chain, batch, end)
                if size != file.size:
                    raise BatchDamaged(path=str(path), detail=f"it has {size} bytes, and had {file.size}")
                yield BatchSplit(
                    epoch=piece.epoch,
                    partition=piece.partition,
                    lower=batch,
                    upper=batch + 1,
                    weight=file.size,
                    path=str(path),
                    rows=file.rows,
                    schema=bound.schema or self.schema,
                )
            before = manifest
        if before is not None:
            _check_end(before, chain, folder, end)

    def _bound(self, piece: Slice, chain: BatchChain, batch: int, end: int) -> BatchManifest:
        try:
            return read_manifest(self._folder(piece.partition, chain), batch)
        except FileNotFoundError:
            raise self._lost(piece, chain, batch, end) from None

    def _lost(self, piece: Slice, chain: BatchChain, batch: int, end: int) -> RecordsLost:
        """Return the error of a batch that was removed. Raises `FolderAway` where the whole folder is away."""
        folder = self._folder(piece.partition, chain)
        try:
            check_there(folder if chain.loaded is None else self._root / STAGED_LOADS)
        except OSError:
            path = str(manifest_path(folder, batch))
            raise FolderAway(folder=str(folder), what="not there", count=1, path=path) from None
        there = [one for one in batches_in(folder) if one > batch]
        return RecordsLost(
            source=piece.source, partition=piece.partition, asked=batch, there=min([*there, end]), end=end
        )

    def read(self, split: BatchSplit, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield the rows of a file: each can be decoded, or the file is damaged. Raises `FolderAway`."""
        folder = self._root / (STAGED_LOADS if split.partition.startswith(LOAD) else split.partition)
        yield from staged_rows(split, folder, damaged=BatchDamaged)

    def acknowledge(self, frontier: Frontier) -> None:
        """Do nothing: another flow may read the same batches. Who removes them says when."""


def _chain(bound: Bound, name: str) -> BatchChain | None:
    detail = bound.details.get(name)
    return None if detail is None else BatchChain.of(detail)


def _place(path: str | os.PathLike[str]) -> str:
    """Return an absolute path, or an address in its one form."""
    if isinstance(path, str) and is_address(path):
        return address(path)
    return root_at(path, where="BatchSource(path)")


def _size(path: StagingPath) -> int | None:
    """Return the size of a file, None where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _check_end(last: BatchManifest, chain: BatchChain, folder: StagingPath, end: int) -> None:
    """Raise `BatchesReplaced` unless the batch after the last one read follows it, or it is the last one bound."""
    if last.batch + 1 == end:
        chain.check_last(last, str(folder))
    elif manifest_path(folder, last.batch + 1).exists():
        chain.check(read_manifest(folder, last.batch + 1), str(folder), digest=last.digest)
