"""The log of a polled source, read by range: how far it goes, and the rows of a range of polls.

The `poller` writes the log; this only reads it, so tasks, late outputs, scans and other flows can, and
none of them asks upstream. A poll is bound whole: all its rows are in one epoch, in every output.

Invariant: the rows that are read are those that were bound, or the source fails. A binding has the digest of its last
manifest, and each manifest that of the one before it.

>>> import tempfile
>>> from datetime import UTC
>>> with tempfile.TemporaryDirectory() as root:
...     staged = StagedPolls(root, pa.schema([("id", pa.int64())]), owner=("shop", "orders"))
...     state = SourceState(kind="cursor", source_id="orders", value=7)
...     _ = staged.log(0).publish(0, before="", state=state.encode(), rows=pa.table({"id": [1, 2]}))
...     seen = staged.probe(Bound(), now=datetime(2026, 1, 1, tzinfo=UTC))
...     seen.upper, seen.state == state
(Frontier({'polls': 1}), True)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa

from tidegauge.errors.polls import PollDamaged
from tidegauge.errors.sources import RecordsLost
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime.polled import POLLS, SourceState
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.polls.bound import BoundLog, log_at
from tidegauge.sources.polls.log import PollLog, PollManifest
from tidegauge.sources.protocol import Split
from tidegauge.sources.staged import staged_rows
from tidegauge.sources.staging import StagingPath, check_there, each, path_of

__all__ = ["EPOCH_ROWS", "PollSplit", "StagedPolls", "admitted"]

EPOCH_ROWS: Final = 10_000_000
"""How many rows an epoch takes, at most; at least one poll."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PollSplit:
    """The rows of one poll. `weight` is the size of its file in bytes."""

    epoch: int
    partition: str
    lower: int
    upper: int
    weight: int
    path: str
    rows: int
    schema: pa.Schema


def admitted(ahead: Sequence[PollManifest]) -> Sequence[PollManifest]:
    """Return the first of some polls, as many as an epoch takes."""
    rows = 0
    for count, one in enumerate(ahead):
        if rows >= EPOCH_ROWS:
            return ahead[:count]
        rows += one.rows
    return ahead


@dataclass(frozen=True, slots=True)
class StagedPolls:
    """The staged polls of a source. folder: of all sources. owner: the flow and the name of this one."""

    folder: str
    columns: pa.Schema
    owner: tuple[str, str]

    def log(self, incarnation: int) -> PollLog:
        """Return the log of an incarnation."""
        return log_at(self.folder, self.owner, incarnation)

    def ahead(self, bound: Bound) -> list[PollManifest]:
        """Return the polls that are staged and not bound, in their order. Raises as `BoundLog.ahead` does."""
        return BoundLog(self.log(bound.incarnation), bound).ahead(bound.frontier[POLLS] - 1)

    def probe(self, bound: Bound, *, now: datetime, note: str = "") -> Observation:
        """Return how far the log goes. Raises as `ahead` does."""
        return self.observed(bound, self.ahead(bound), now=now, note=note)

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
        """Return what may be bound of the polls that are staged ahead. state: a newer one than that of the last.

        While any is ahead there is more: nothing says how much, and the flow should not wait for it.
        """
        first = bound.frontier[POLLS]
        some = admitted(ahead)
        schema = self.columns if bound.schema is None else None
        if not some:
            return Observation(
                at=now,
                upper=bound.frontier,
                end=bound.frontier,
                state=state,
                schema=schema,
                more=more,
                coming=coming,
                note=note,
            )
        last = some[-1]
        upper = Frontier({POLLS: last.poll + 1})
        whole = len(some) == len(ahead)
        return Observation(
            at=now,
            upper=upper,
            end=Frontier({POLLS: first + len(ahead)}),
            more=True,
            coming=coming,
            details={POLLS: {"digest": last.digest}},
            schema=schema,
            state=state if state is not None and whole else SourceState.decode(last.state),
            note=note,
        )

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Return the files of the polls of these slices.

        Raises `UpstreamRecreated`, `PollDamaged`, `RecordsLost`, and `OSError` where the folder is away.
        """
        return [split for piece in slices for split in self._planned(piece, bound)]

    def _planned(self, piece: Slice, bound: Bound) -> Iterator[Split]:
        log = self.log(bound.incarnation)
        last: PollManifest | None = None

        def looked(poll: int) -> tuple[int, PollManifest, StagingPath, int]:
            try:
                manifest = log.manifest(poll)
                return poll, manifest, (path := log.path_of(manifest)), path.stat().st_size
            except FileNotFoundError:
                raise self._lost(log, piece, poll) from None

        for poll, manifest, path, size in each(log.folder, looked, range(piece.lower, piece.upper)):
            if last is not None:
                log.check(poll, "its predecessor", last.digest, manifest.before)
            if size != manifest.size:
                raise PollDamaged(path=str(path), detail=f"it has {size} bytes, and had {manifest.size}")
            yield PollSplit(
                epoch=piece.epoch,
                partition=piece.partition,
                lower=poll,
                upper=poll + 1,
                weight=size,
                path=str(path),
                rows=manifest.rows,
                schema=bound.schema or self.columns,
            )
            last = manifest
        if last is not None:
            BoundLog(log, bound).check_end(last)

    def _lost(self, log: PollLog, piece: Slice, poll: int) -> RecordsLost:
        """Return the error of a poll that was removed. Raises `FileNotFoundError` where the whole folder is away."""
        check_there(log.folder)
        return RecordsLost(
            source=piece.source, partition=piece.partition, asked=poll, there=poll + 1, end=piece.upper
        )

    def read(self, split: PollSplit) -> Iterator[pa.RecordBatch]:
        """Return the rows of a poll. Raises `PollDamaged`, `RangeOvertaken`, `FolderAway`."""
        return staged_rows(split, path_of(split.path).parent, damaged=PollDamaged)
