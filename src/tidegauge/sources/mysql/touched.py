"""The keys of rows that changed between two places of the log: where first rows of several places differ.

A second session is sent the log, beside the one of the stream, from the first place on. It begins one transaction
earlier, as the stream does (`proof`), and knows the last one before each place at which rows were read.

Invariant: every key that a transaction in between had changed, made or removed is here; where that cannot be known
(the table was emptied or altered, a key has no value in Arrow, there are too many) there are no keys, but None. Where
the log is not the one of before, there is an error.

>>> keys = TouchedKeys("shop.orders", pa.schema([("id", pa.int32())]), {}, None)
>>> keys.found.num_rows
0
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.mysqlsource import (
    BinlogRowsUntold,
    BinlogServerAway,
    BinlogTableChanged,
    BinlogTableTruncated,
)
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.lazy import library
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.database.records import together
from tidegauge.sources.mysql.chunks import RowsChunk, batch_of, decoded
from tidegauge.sources.mysql.followed import BinlogSetup
from tidegauge.sources.mysql.gathering import EventGathering
from tidegauge.sources.mysql.marks import LogMark
from tidegauge.sources.mysql.proof import LogProof
from tidegauge.sources.mysql.receiving import start_log
from tidegauge.sources.mysql.shapes import LoggedTable

__all__ = ["MOST_KEYS", "LogWalk", "TouchedKeys"]

pc: Final = library("pyarrow.compute")

MOST_KEYS: Final = 2_000_000
"""Keys of a table from which on it is read anew instead."""
_BYTES: Final = 8 << 20
_COMPACT: Final = 500_000
_PATIENCE: Final = 30.0
"""Seconds after which a log that does not go on is given up."""


class TouchedKeys:
    """The keys of one table, each once. schema: the columns of its key. since: from which transaction on they count,
    by domain. upto: where that is a number, the first column's greatest value in the files; None for any."""

    def __init__(self, table: str, schema: pa.Schema, since: Mapping[str, int], upto: int | None) -> None:
        self.found: pa.Table | None = schema.empty_table()
        self._table: Final = table
        self._schema: Final = schema
        self._since: Final = since
        self._upto: Final = upto
        self._fresh: list[pa.RecordBatch] = []

    def take(self, chunks: Sequence[RowsChunk]) -> None:
        """Take in the keys of changes."""
        later = [one for one in chunks if one.sequence >= self._since.get(one.domain, 0)]
        for run in together(later) if self.found is not None else ():
            unknown: list[Any] = []
            try:
                keys = decoded(batch_of(run), self._schema, self._table, unknown.append)
            except (BinlogTableTruncated, BinlogTableChanged, BinlogRowsUntold):
                self.found = None
                return
            if unknown:
                self.found = None
                return
            if self._upto is not None:
                keys = keys.filter(pc.less_equal(keys.column(0), self._upto))
            self._fresh.append(keys)
        if sum(map(len, self._fresh)) > _COMPACT:
            self.compact()

    def compact(self) -> None:
        """Keep each key once."""
        if self.found is not None:
            both = pa.concat_tables([self.found, pa.Table.from_batches(self._fresh, self._schema)])
            once = both.group_by(self._schema.names).aggregate([])
            self.found = once if once.num_rows <= MOST_KEYS else None
        self._fresh = []


@dataclass(frozen=True, slots=True)
class LogWalk:
    """A way through the log. domain: whose transactions change the tables. tables: the streams whose keys are wanted,
    by database and table. known: see `EventGathering`."""

    setup: BinlogSetup
    folder: SourceFolder
    domain: str
    tables: Mapping[tuple[str, str], str]
    known: Mapping[str, LoggedTable] | None

    def through(
        self, begun: Frontier, upto: Frontier, marks: Sequence[LogMark], keys: Mapping[str, TouchedKeys]
    ) -> Generator[object, None, LogMark | None]:
        """Go, fill the keys of streams, and return the last transaction of the domain before `upto`.

        marks: the known ones. The first is the last before `begun`. Without any, None is returned where the log does
        not have it any more.

        Raises `UpstreamRecreated`, `BinlogPurged` and `BinlogServerUnfit` where the log is not the one of before.
        """
        server, kind, source = self.setup.server, self.setup.kind, self.setup.source
        found, log, clock = server.look([]), server.log(beside=True), server.clock
        before, after = begun[self.domain], upto[self.domain] - 1
        first = marks[0].sequence if marks else before - 1
        there = {one.sequence: one for one in marks if one.sequence >= before}
        proof = LogProof(source, self.domain, before, marks[0] if marks else None)
        gathering = EventGathering(
            server.shown, self.tables, self.domain, begun, found.charsets, self.folder.spill, self.known
        )
        at_end: LogMark | None = None
        until = clock.monotonic() + _PATIENCE
        try:
            start_log(log, server, kind, found.settings, Frontier({**begun, self.domain: first}), begun)
            while not ((proof.found or proof.over) and upto.less_equal(Frontier(gathering.reached))):
                if clock.monotonic() > until:
                    if not marks:
                        break
                    detail = f"its log has not come to {kind.clock.render(upto)}, where its tables are"
                    raise BinlogServerAway(source=server.shown, detail=detail)
                for event in log.events(0.1):
                    until = clock.monotonic() + _PATIENCE
                    if proof.takes(event):
                        continue
                    gathering.take(event)
                    if gathering.last is not None:
                        last, gathering.last = gathering.last.mark, None
                        _check(source, there.pop(last.sequence, last), last)
                        at_end = last if last.sequence == after else at_end
                if gathering.size >= _BYTES:
                    _take(keys, gathering)
                yield None
            _take(keys, gathering)
        finally:
            with suppress(Exception):
                log.close()
            self.folder.forget_spill(0)
        for mark in there.values():
            raise UpstreamRecreated(source=source, known=f"a log with {mark.gtid}", found="a log without it")
        for one in keys.values():
            one.compact()
        return proof.found if after < before else at_end


def _take(keys: Mapping[str, TouchedKeys], gathering: EventGathering) -> None:
    for stream, chunks in gathering.taken().items():
        keys[stream].take(chunks)


def _check(source: str, known: LogMark, mark: LogMark) -> None:
    if known.digest != mark.digest:
        shown = [f"a log with {one.gtid} ({one.digest[:8]})" for one in (known, mark)]
        raise UpstreamRecreated(source=source, known=shown[0], found=shown[1])
