"""The log of a source that lists, read by range: its manifests, each with the files that a listing found new.

It is a log of polls (`sources.polls.log`) whose rows are files, and whose numbers count them: position n is the file
with number n, counted from 0 over all listings. So a gap is a file, and a bad record says which one it is in.
A manifest is bound whole, one an epoch.

Invariant: the files that are read are those that were bound, or the source fails. A binding has the digest of its
last manifest, and each manifest that of the one before it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.polls import PollDamaged
from tidegauge.errors.sources import RecordsLost
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime.polled import POLLS, SourceState
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.listings.entries import ENTRIES
from tidegauge.sources.polls.bound import BoundLog, log_at
from tidegauge.sources.polls.log import PollLog, PollManifest
from tidegauge.sources.polls.staged import PollSplit
from tidegauge.sources.protocol import Split
from tidegauge.sources.staged import staged_rows
from tidegauge.sources.staging import check_there, names_in, path_of

__all__ = ["ListedSplit", "StagedListings", "entries_of", "manifest_rows"]

_NAME: Final = re.compile(r"([0-9]{12})\.json")
_SPLIT_FILES: Final = 1000
"""How many files one task reads at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedSplit:
    """The files `[lower, upper)` of one manifest. listing: where their entries are. `weight`: their bytes."""

    epoch: int
    partition: str
    lower: int
    upper: int
    weight: int
    listing: PollSplit
    schema: pa.Schema


def manifest_rows(log: PollLog, manifest: PollManifest) -> Iterator[pa.RecordBatch]:
    """Yield the entries of a manifest. Raises `PollDamaged`, `RangeOvertaken`, `OSError`."""
    return staged_rows(_listing(log, manifest), log.folder, damaged=PollDamaged)


def entries_of(listing: PollSplit, lower: int, upper: int) -> pa.Table:
    """Return the entries of some files of a manifest. Raises as `manifest_rows` does."""
    rows = staged_rows(listing, path_of(listing.path).parent, damaged=PollDamaged)
    return pa.Table.from_batches(rows, ENTRIES).slice(lower - listing.lower, upper - lower)


def _listing(log: PollLog, manifest: PollManifest) -> PollSplit:
    return PollSplit(
        epoch=0,
        partition=POLLS,
        lower=manifest.poll,
        upper=log.after(manifest),
        weight=manifest.size,
        path=str(log.path_of(manifest)),
        rows=manifest.rows,
        schema=ENTRIES,
    )


@dataclass(frozen=True, slots=True)
class StagedListings:
    """The staged listings of a source. folder: of all sources. owner: the flow and the name of this one."""

    folder: str
    columns: pa.Schema
    owner: tuple[str, str]
    split_bytes: int

    def log(self, incarnation: int) -> PollLog:
        """Return the log of an incarnation."""
        return log_at(self.folder, self.owner, incarnation, by_rows=True)

    def ahead(self, bound: Bound) -> list[PollManifest]:
        """Return the manifests that are staged and not bound, in their order. Raises as `BoundLog.ahead` does."""
        end = bound.frontier[POLLS]
        last = int(bound.details[POLLS].get("first", end)) if end else 0  # a source of another kind keeps none
        return BoundLog(self.log(bound.incarnation), bound).ahead(last)

    def observed(
        self,
        bound: Bound,
        ahead: Sequence[PollManifest],
        *,
        now: datetime,
        state: SourceState | None = None,
        more: bool = False,
        coming: bool = False,
        note: str = "",
    ) -> Observation:
        """Return what may be bound of the manifests that are staged ahead: the first one. state: not used."""
        log = self.log(bound.incarnation)
        schema = self.columns if bound.schema is None else None
        if not ahead:
            place = bound.frontier
            return Observation(
                at=now, upper=place, end=place, schema=schema, more=more, coming=coming, note=note, state=state
            )
        one = ahead[0]
        return Observation(
            at=now,
            upper=Frontier({POLLS: log.after(one)}),
            end=Frontier({POLLS: log.after(ahead[-1])}),
            more=True,
            coming=coming,
            details={POLLS: {"digest": one.digest, "first": one.poll}},
            schema=schema,
            state=SourceState.decode(one.state),
            note=note,
        )

    def read(self, split: PollSplit) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a manifest."""
        return staged_rows(split, path_of(split.path).parent, damaged=PollDamaged)

    def listings(self, piece: Slice, bound: Bound) -> Iterator[tuple[PollSplit, int, int]]:
        """Yield the manifests that a slice is in, each with the range of its files that belongs to the slice.

        Raises `UpstreamRecreated`, `PollDamaged`, `RecordsLost`, and `OSError` where the folder is away.
        """
        log, at = self.log(bound.incarnation), piece.lower
        before: PollManifest | None = None
        while at < piece.upper:
            manifest = self._manifest(log, piece, self._beginning(log, at) if before is None else at, at)
            if before is not None:
                log.check(at, "its predecessor", before.digest, manifest.before)
            after = log.after(manifest)
            yield _listing(log, manifest), at, min(after, piece.upper)
            before, at = manifest, after
        if before is not None:
            BoundLog(log, bound).check_end(before)

    def _beginning(self, log: PollLog, number: int) -> int:
        """Return the first number of the manifest that has a file. Where that is the file, nothing is listed."""
        if log.has(number):
            return number
        firsts = sorted(int(found[1]) for name in names_in(log.folder) if (found := _NAME.fullmatch(name)))
        return firsts[max(0, bisect_right(firsts, number) - 1)] if firsts else number

    def _manifest(self, log: PollLog, piece: Slice, first: int, number: int) -> PollManifest:
        try:
            found = log.manifest(first)
        except FileNotFoundError:
            found = None
        if found is None or not found.poll <= number < log.after(found):
            check_there(log.folder)
            raise RecordsLost(
                source=piece.source, partition=piece.partition, asked=number, there=number + 1, end=piece.upper
            )
        return found

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Cut slices into splits of some files each, by their sizes. Raises as `listings` does."""
        return [
            ListedSplit(
                epoch=piece.epoch,
                partition=piece.partition,
                lower=low,
                upper=high,
                weight=weight,
                listing=listing,
                schema=bound.schema or self.columns,
            )
            for piece in slices
            for listing, lower, upper in self.listings(piece, bound)
            for low, high, weight in self._cuts(listing, lower, upper)
        ]

    def _cuts(self, listing: PollSplit, lower: int, upper: int) -> Iterator[tuple[int, int, int]]:
        sizes: Any = entries_of(listing, lower, upper).column("size").to_numpy()
        ends = np.cumsum(sizes)
        at = 0
        while at < len(sizes):
            before = int(ends[at - 1]) if at else 0
            full = int(np.searchsorted(ends, before + self.split_bytes, side="right"))
            stop = min(max(full, at + 1), at + _SPLIT_FILES, len(sizes))
            yield lower + at, lower + stop, int(ends[stop - 1]) - before
            at = stop
