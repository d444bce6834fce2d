"""The keys of rows that changed between two places of the log: where first rows of several places differ.

First rows that were read in several attempts are of several places, from the slot's on. A row whose key is in no
change between the first place and the last is the same at all of them. So these keys are all that matters: their rows
are left out of the files, and read again by key at the last place.

Invariant: every key that a transaction in between had changed, made or removed is here; where that cannot be known
(the table was truncated, a key came without its value, there are too many) there are no keys, but None.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.postgressource import SourceTableTruncated, TableChanged
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.database.records import together
from tidegauge.sources.postgres.chunks import batch_of, decoded
from tidegauge.sources.postgres.gathering import Gathering
from tidegauge.sources.postgres.held import HeldTable
from tidegauge.sources.postgres.replication import LogSender, passing_slot, payload
from tidegauge.sources.postgres.sessions import DatabasePlace, session

__all__ = ["MOST_KEYS", "touched"]

MOST_KEYS: Final = 2_000_000
"""Keys of a table from which on it is read anew instead."""
_BYTES: Final = 8 << 20
_COMPACT: Final = 500_000
_RELEASED: Final = 10.0
"""Seconds to wait for the server to see that nobody reads the slot any more."""


class _Keys:
    """The keys of one table, each once."""

    def __init__(self, table: HeldTable) -> None:
        self.schema: Final = pa.schema([(name, pa.string()) for name in table.key])
        self.found: pa.Table | None = self.schema.empty_table()
        self._name: Final = str(table.table)
        self._fresh: list[pa.RecordBatch] = []

    def take(self, records: pa.RecordBatch) -> None:
        """Take in the keys of changes."""
        unknown: list[Any] = []
        try:
            keys = decoded(records, self.schema, self._name, unknown.append)
        except (SourceTableTruncated, TableChanged):
            self.found = None
            return
        if unknown or any(keys[name].null_count for name in self.schema.names):
            self.found = None
        self._fresh.append(keys)
        if sum(map(len, self._fresh)) > _COMPACT:
            self.compact()

    def compact(self) -> None:
        """Keep each key once."""
        if self.found is None:
            self._fresh = []
            return
        both = pa.concat_tables([self.found, pa.Table.from_batches(self._fresh, self.schema)])
        self._fresh = []
        once = both.group_by(self.schema.names).aggregate([])
        self.found = once if once.num_rows <= MOST_KEYS else None


def touched(
    place: DatabasePlace,
    publication: str,
    slot: str,
    folder: SourceFolder,
    tables: Mapping[str, HeldTable],
    since: int,
    upto: int,
    *,
    streaming: bool = False,
) -> Generator[object, None, dict[str, pa.Table | None]]:
    """Return the keys of each stream that transactions from `since` up to `upto` touched, and maybe a few more.

    The slot is told nothing, so it gives all of it again. streaming: whether another session reads it: then it is a
    copy that is read, which goes with its session. One that begins behind `since` gives too little, and no keys.
    """
    keys = {stream: _Keys(table) for stream, table in tables.items()}
    if not keys:
        return {}
    streams = {(one.table.schema, one.table.name): stream for stream, one in tables.items()}
    oids = {str(one.table): one.table.oid for one in tables.values()}
    gathering = Gathering(streams, since, folder.spill, oids)
    sender = LogSender(place, passing_slot(slot) if streaming else slot)
    try:
        if streaming and sender.copy(slot) > since:
            return dict.fromkeys(keys)
        sender.start(publication, since)
        sender.tell(0, 0, now=True)
        while gathering.reached < upto:
            for frame in sender.frames():
                lsn, message = payload(frame)
                if not message:
                    gathering.progress(lsn)
                    continue
                gathering.take(message)
                if gathering.size >= _BYTES:
                    break
            for stream, chunks in gathering.taken().items():
                for run in together(chunks):
                    keys[stream].take(batch_of(run))
            if gathering.reached < upto:
                sender.tell(0, 0)
                sender.wait(0.05)
            yield None
    finally:
        sender.close()
        folder.forget_spill(since)
    if not streaming:
        yield from _released(place, slot)
    for one in keys.values():
        one.compact()
    return {stream: one.found for stream, one in keys.items()}


def _released(place: DatabasePlace, slot: str) -> Generator[object, None, None]:
    """Wait until the server knows that nobody reads the slot."""
    until = time.monotonic() + _RELEASED
    query = "SELECT FROM pg_replication_slots WHERE slot_name = %s AND active"
    while time.monotonic() < until:
        with session(place) as connection:
            if connection.execute(query, (slot,)).fetchone() is None:
                return
        yield None
