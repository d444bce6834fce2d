"""Where a connection begins: at a place of the log, with the first rows of the folder, or with a new slot.

A pure decision on the bindings, the folder and the server.

Invariants. A slot that is there is dropped only if the folder knows it as one that this flow made, on this server or
on the one that this one was the standby for, and nothing of it is bound. First rows that are bound are those of the
folder, or the source fails: others are never read in their place.

>>> known = LogBeginning("shop", "server 1", 0, point=64)
>>> begun(ConnectionFacts(start=0, bound=0, identity="server 1", incarnation=0, slot="shop", whole=True), known)
LogStart(how='files', lsn=64)
>>> begun(ConnectionFacts(start=70, bound=80, identity="server 1", incarnation=0, slot="shop", whole=False), None)
LogStart(how='stream', lsn=70)
>>> cut = LogBeginning("shop", "server 1", 0)
>>> here = ConnectionFacts(start=0, bound=0, identity="server 1", incarnation=0, slot="shop", whole=False, since=64)
>>> begun(here, cut)
LogStart(how='go on', lsn=64)
>>> begun(ConnectionFacts(start=0, bound=0, identity="server 2", incarnation=0, slot="shop", whole=True), known)
LogStart(how='make', lsn=0)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from tidegauge.errors.postgressource import PastAcknowledged, SnapshotLost
from tidegauge.remap.fromtime.lsn import Lsn
from tidegauge.sources.database.folder import LogBeginning
from tidegauge.sources.postgres.chunks import SNAPSHOT, Chunk, batch_of
from tidegauge.sources.postgres.timelines import one_system

__all__ = ["ConnectionFacts", "LogStart", "begun", "first_rows", "known_here"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionFacts:
    """How things are. start: the first place that an output lacks, 0 where one lacks the first rows. bound: how far
    the source is bound. whole: whether all files of the first rows are there. source, folder: for people."""

    start: int
    bound: int
    identity: str
    incarnation: int
    slot: str
    whole: bool
    source: str = "the database"
    folder: str = "the folder"
    told: int = 0
    since: int = 0
    """Where the slot begins if first rows are in files and it still gives all from there on, 0 if not."""
    synced: bool = False
    """Whether the slot came from another server while this one was its standby."""


@dataclass(frozen=True, slots=True)
class LogStart:
    """How a connection begins.

    stream: at a place. files: with the first rows, then at a place. make: with a slot that is yet to be made;
    remake: the same, and one that is there may be dropped for it. go on: with the first rows that are missing, and a
    slot that begins at a place.
    """

    how: Literal["stream", "files", "make", "remake", "go on"]
    lsn: int = 0


def known_here(facts: ConnectionFacts, record: LogBeginning | None) -> bool:
    """Whether a slot of this name on this server is known to be one that this flow made."""
    return record is not None and (record.begins, record.identity) == (facts.slot, facts.identity)


def begun(facts: ConnectionFacts, record: LogBeginning | None) -> LogStart:
    """Return how a connection begins. Raises `SnapshotLost`, `PastAcknowledged`."""
    if facts.start:
        return LogStart("stream", facts.start)
    ours = known_here(facts, record)
    if record is not None and ours and record.point and record.incarnation == facts.incarnation:
        if record.done:
            raise PastAcknowledged(source=facts.source, confirmed=str(Lsn(facts.told)), needed="the first ones")
        if facts.whole:
            return LogStart("files", record.point)
        if facts.bound:
            raise _lost(facts, record.point, f"files are missing in {facts.folder}")
    elif facts.bound:
        raise _lost(facts, facts.bound, f"{facts.folder} does not know it")
    elif record is not None and ours and facts.since and record.incarnation == facts.incarnation:
        return LogStart("go on", facts.since)
    return LogStart("remake" if ours or _came_over(facts, record) else "make")


def _came_over(facts: ConnectionFacts, record: LogBeginning | None) -> bool:
    """Whether the slot is one that this flow made on the server that this one was the standby for.

    >>> known = LogBeginning("shop", "system 7, timeline 1, database shop", 0)
    >>> here = dict(start=0, bound=0, identity="system 7, timeline 2, database shop", incarnation=0, whole=False)
    >>> [begun(ConnectionFacts(**here, slot="shop", synced=synced), known).how for synced in (True, False)]
    ['remake', 'make']
    """
    return (
        facts.synced
        and record is not None
        and record.begins == facts.slot
        and one_system(record.identity, facts.identity)
    )


def _lost(facts: ConnectionFacts, lsn: int, detail: str) -> SnapshotLost:
    return SnapshotLost(source=facts.source, lsn=str(Lsn(lsn)), detail=detail)


def first_rows(record: LogBeginning, streams: Collection[str]) -> list[tuple[str, pa.RecordBatch]]:
    """Return the pieces of a snapshot, at the last place before the slot's first."""
    return [
        (
            stream,
            batch_of(
                [
                    Chunk(
                        record.point - 1,
                        record.at,
                        SNAPSHOT,
                        record.shapes[stream],
                        piece.first,
                        piece.count,
                        data=piece.without.encode(),
                        file=piece.file,
                        start=piece.start,
                        size=piece.size,
                    )
                ]
            ),
        )
        for stream, pieces in record.pieces.items()
        if stream in streams
        for piece in pieces
    ]
