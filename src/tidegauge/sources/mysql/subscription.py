"""One connection to a server: checks, the first rows, and then every transaction.

    nothing begun          read the first rows into files: nothing is given, so nothing bound
    the rows are whole     give them, at the last transaction that they have; they are those files from now on
    bound                  begin after the frontier's transactions: what committed later comes again, in its order

A transaction is given whole, with all its tables, so an epoch has all of it or nothing.

Invariant: the stream begins after the transactions that the frontier says, named as the server names them. So a
server that no longer has the next ones says so; and one that has others in their places is seen by the last one that
the flow has, which is read once more (`proof`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.mysqlsource import (
    BinlogPastFirstRows,
    BinlogPurged,
    BinlogServerAway,
    BinlogServerUnfit,
    BinlogSnapshotLost,
    BinlogTableChanged,
)
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.mariadb import MARIADB
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.folder import LogBeginning, SourceFolder
from tidegauge.sources.database.records import together
from tidegauge.sources.mysql.catalog import ServerLook, check_server, columns_of, look
from tidegauge.sources.mysql.chunks import SNAPSHOT, RowsChunk, batch_of
from tidegauge.sources.mysql.dump import LogStream
from tidegauge.sources.mysql.gathering import EventGathering
from tidegauge.sources.mysql.marks import LogMarks
from tidegauge.sources.mysql.proof import LogProof
from tidegauge.sources.mysql.sessions import ServerPlace, session
from tidegauge.sources.mysql.snapshot import FirstRowsReading
from tidegauge.sources.push.protocol import Received

__all__ = ["BinlogSetup", "BinlogSubscription"]

_BYTES: Final = 16 << 20
"""Bytes of changes from which on a call returns."""
_IDLE: Final = 5.0
"""Seconds between two pieces of news that the log grew, but by nothing of these tables."""
_PATIENCE: Final = 30.0
"""Seconds for the transaction that is read once more: the server looks through a file of its log for it."""


@dataclass(frozen=True, slots=True)
class BinlogSetup:
    """What a subscription works with. tables: database and name of the table of each stream. columns: as declared.

    source: its name in the flow. name: tells this reader from others of the server."""

    place: ServerPlace
    source: str
    name: str
    tables: Mapping[str, tuple[str, str]]
    columns: Mapping[str, pa.Schema]
    folder: SourceFolder

    def look(self) -> ServerLook:
        """Look at the server, and raise what keeps the tables from being followed."""
        with session(self.place) as connection:
            found = look(connection, list(self.tables.values()))
        check_server(self.place.shown, found)
        for table in found.tables:
            there = columns_of(self.place.shown, table)
            declared = self.columns.get(str(table), there)
            if gone := [name for name in declared.names if name not in there.names]:
                raise BinlogTableChanged(table=str(table), detail=f"it has no column {gone[0]!r}")
        return found


class BinlogSubscription:
    """The subscription."""

    def __init__(self, setup: BinlogSetup, start: Frontier, bound: Bound) -> None:
        self._setup: Final = setup
        self._start: Final = start
        self._incarnation: Final = bound.incarnation
        self._gathering: EventGathering | None = None
        self._proof: LogProof | None = None
        self._reading: FirstRowsReading | None = None
        self._told_end = False
        self._given_to = start
        self._given_at = time.monotonic()
        self._log = LogStream(setup.place, setup.name)
        try:
            self._found = setup.look()
            self._end = MARIADB.parse(self._found.settings["gtid_binlog_pos"])
            settings = self._found.settings
            self.identity = f"server {settings['server_id']} {settings['server_uid']}".strip()
            if bound.identity and bound.identity != self.identity:
                raise UpstreamRecreated(source=setup.source, known=bound.identity, found=self.identity)
            if start.less_equal(self._end) and bound.frontier.less_equal(self._end):  # else `end` tells of the loss
                self._open(bound)
        except BaseException:
            self._log.close()
            raise

    def receive(self, limit: int, seconds: float) -> Received | None:
        """Return the transactions that are whole, or wait for it."""
        until = time.monotonic() + seconds
        if not self._told_end:
            self._told_end = True
            self._given_at = time.monotonic() - _IDLE
            return Received((), self._start, self._end)
        if self._gathering is None:
            return self._first(until)
        return self._stream(self._gathering, limit, until)

    def acknowledge(self, frontier: Frontier) -> None:
        """Remove the files of rows that are durable now. The server keeps no place for us."""
        record = self._setup.folder.stream()
        if self._gathering is None or (record is not None and not MARIADB.parse(record.begins).less_equal(frontier)):
            return
        self._marks.held(frontier[self._domain(record)])
        self._setup.folder.clear_spill(frontier[self._domain(record)])
        if record is not None and record.point and not record.done:
            self._setup.folder.keep_stream(replace(record, done=True, pieces={}))
            self._setup.folder.clear_snapshot()

    def close(self) -> None:
        """End the session."""
        with suppress(Exception):
            if self._reading is not None:
                self._reading.steps.close()
        self._log.close()

    # Where the stream begins.

    def _domain(self, record: LogBeginning | None) -> str:
        """Return the domain whose transactions change the tables."""
        return self._found.settings["gtid_domain_id"] if record is None else record.shapes["domain"]

    def _open(self, bound: Bound) -> None:
        """Begin the stream where it is known where it begins, or begin to read the first rows."""
        setup, record = self._setup, self._setup.folder.stream()
        if record is not None and (record.identity != self.identity or record.incarnation != bound.incarnation):
            if self._start or (bound.frontier and record.incarnation >= bound.incarnation):
                raise self._lost(record.begins, f"{setup.folder.path} is of another server or incarnation")
            record = None
        if self._start:
            self._begin(self._start, self._domain(record))
        elif record is not None and record.point:
            if record.done:
                raise BinlogPastFirstRows(source=setup.place.shown, gtid=record.begins)
            if setup.folder.whole(record) and set(record.pieces) == set(setup.tables):
                return
            if bound.frontier:
                raise self._lost(record.begins, f"files are missing in {setup.folder.path}")
            self._read()
        elif bound.frontier:
            raise self._lost(MARIADB.render(bound.frontier), f"{setup.folder.path} does not know them")
        else:
            self._read()

    def _lost(self, gtid: str, detail: str) -> BinlogSnapshotLost:
        return BinlogSnapshotLost(source=self._setup.place.shown, gtid=gtid, detail=detail)

    def _begin(self, frontier: Frontier, domain: str, *, fresh: bool = False) -> None:
        """Begin the stream, once its last transaction before is known to be the flow's. fresh: it has none yet."""
        setup, before = self._setup, frontier[domain]
        setup.folder.forget_spill(before)
        self._marks = LogMarks(setup.folder, self._incarnation, before=0 if fresh else before)
        streams = {table: stream for stream, table in setup.tables.items()}
        shown, charsets = setup.place.shown, self._found.charsets
        self._given_to = frontier
        self._gathering = EventGathering(shown, streams, domain, frontier, charsets, setup.folder.spill)
        mark = self._marks.last
        earlier = Frontier({**frontier, domain: max(before - 1, 0) if mark is None else mark.sequence})
        try:
            self._start_log(earlier, frontier)
            self._proof = LogProof(setup.source, domain, before, mark)
            self._prove(self._gathering, self._proof, needed=mark is not None)
        except (BinlogPurged, BinlogServerUnfit):  # of the earlier one alone: else it is raised again
            self._log.close()
            self._proof, self._log = None, LogStream(setup.place, setup.name)
            self._start_log(frontier, frontier)

    def _start_log(self, earlier: Frontier, frontier: Frontier) -> None:
        state = _state(self._setup.place.shown, earlier, self._found.settings["gtid_binlog_state"])
        needed = ",".join(f"{one}-{next_}" for one, next_ in sorted(frontier.items()))
        self._log.start(state, needed, self._oldest())

    def _prove(self, gathering: EventGathering, proof: LogProof, *, needed: bool) -> None:
        """Wait for the transaction before the first one that the flow lacks."""
        until = time.monotonic() + _PATIENCE
        while proof.found is None and not proof.over and time.monotonic() < until:
            for event in self._log.events(0.1):
                self._take(gathering, event)
        if proof.found is not None:
            self._marks.given(proof.found)
        elif needed:
            detail = f"it has not sent the last transaction that the flow has within {_PATIENCE:.0f} seconds"
            raise BinlogServerAway(source=self._setup.place.shown, detail=detail)

    def _take(self, gathering: EventGathering, event: bytes) -> None:
        if self._proof is not None and self._proof.takes(event):
            return
        if self._proof is not None and self._proof.over:
            self._proof = None
        gathering.take(event)

    def _oldest(self) -> str:
        """Return where the log begins, and where it ends, for people."""
        ends = self._found.settings["gtid_binlog_pos"]
        try:
            with session(self._setup.place) as connection, connection.cursor() as cursor:
                cursor.execute("SHOW BINARY LOGS")
                file = cursor.fetchone()[0].decode()
                cursor.execute("SHOW BINLOG EVENTS IN %s LIMIT 4", (file,))
                listed = [row[5].decode() for row in cursor.fetchall() if row[2] == b"Gtid_list"]
        except TidegaugeError:
            return f"its log ends at {ends}"
        return f"its log begins after {listed[0] if listed else '[]'} and ends at {ends}"

    # The first rows.

    def _read(self) -> None:
        setup = self._setup
        streams = {stream: (*table, setup.columns[".".join(table)]) for stream, table in setup.tables.items()}
        self._reading = FirstRowsReading(setup.place, setup.folder, streams)

    def _first(self, until: float) -> Received | None:
        """Go on with the first rows; return all of them once they are whole."""
        setup = self._setup
        if self._reading is not None:
            if not self._reading.steps.go_on(until - time.monotonic()):
                return None
            gtids, pieces, domain = self._reading.gtids, self._reading.pieces, self._found.settings["gtid_domain_id"]
            self._reading = None
            point = MARIADB.parse(gtids)[domain]
            if not point:
                detail = f"its log has no transaction of its own domain, {domain}"
                raise BinlogServerUnfit(source=setup.place.shown, detail=detail, remedy="change any row")
            with session(setup.place) as connection:  # the log goes on while rows are read
                self._found = look(connection, [])
            self._end = self._end.join(MARIADB.parse(self._found.settings["gtid_binlog_pos"]))
            self._begin(MARIADB.parse(gtids), domain, fresh=True)
            at = time.time_ns() // 1000
            record = LogBeginning(gtids, self.identity, self._incarnation, point, at, pieces, {"domain": domain})
            setup.folder.keep_stream(record)
        found = setup.folder.stream()
        if found is None or not found.point:
            time.sleep(max(0.0, until - time.monotonic()))  # upstream has lost what is bound: its `end` has said so
            return None
        frontier = MARIADB.parse(found.begins)
        if self._gathering is None:
            self._begin(frontier, self._domain(found))
        self._end = self._end.join(frontier)
        return Received(tuple(_snapshot(found)), frontier, self._end)

    # The stream.

    def _stream(self, gathering: EventGathering, limit: int, until: float) -> Received | None:
        while True:
            left = until - time.monotonic()
            came = False
            for event in self._log.events(0 if gathering.chunks else min(max(left, 0), 0.1)):
                self._take(gathering, event)
                came = True
            if gathering.chunks and (not came or gathering.size >= _BYTES or gathering.chunks >= limit or left <= 0):
                return self._given(gathering)
            if not came:
                reached = Frontier(gathering.reached)
                if reached != self._given_to and self._worth_telling(self._given_to, reached):
                    return self._given(gathering)
            if left <= 0:
                return None

    def _worth_telling(self, before: Frontier, reached: Frontier) -> bool:
        """Whether it is news that the log grew by nothing of these tables: each time makes an epoch."""
        caught_up = self._end.less_equal(reached) and not self._end.less_equal(before)
        return caught_up or time.monotonic() - self._given_at >= _IDLE

    def _given(self, gathering: EventGathering) -> Received:
        self._given_at = time.monotonic()
        reached = self._given_to = Frontier(gathering.reached)
        if gathering.last is not None:
            self._marks.given(gathering.last.mark)
            gathering.last = None
        self._end = self._end.join(reached)
        batches = [
            (stream, batch_of(run)) for stream, chunks in gathering.taken().items() for run in together(chunks)
        ]
        return Received(tuple(batches), reached, self._end)


def _state(source: str, frontier: Frontier, binlog_state: str) -> str:
    """Return a frontier as the server wants it, with the server that wrote each of these transactions.

    >>> _state("db", Frontier({"3": 11, "0": 5}), "0-1-4,3-57-30,3-58-9")
    '0-1-4,3-57-10'
    """
    known = [re.fullmatch(r"(\d+)-(\d+)-(\d+)", one.strip()) for one in binlog_state.split(",") if one.strip()]
    found = []
    for domain, following in sorted(frontier.items()):
        last = following - 1
        if not last:  # all of it, from its first transaction on
            continue
        servers = [one[2] for one in known if one is not None and one[1] == domain and int(one[3]) >= last]
        if len(servers) > 1:
            detail = f"servers {', '.join(servers)} wrote to the domain {domain} of its log after {last}, in turns"
            remedy = "only a log that one server writes at a time can be followed at present"
            raise BinlogServerUnfit(source=source, detail=detail, remedy=remedy)
        if servers:
            found.append(f"{domain}-{servers[0]}-{last}")
    return ",".join(found)


def _snapshot(record: LogBeginning) -> list[tuple[str, pa.RecordBatch]]:
    """Return the pieces of the first rows, at the last transaction that they have."""
    return [
        (
            stream,
            batch_of(
                [
                    RowsChunk(
                        record.shapes["domain"],
                        record.point - 1,
                        record.at,
                        SNAPSHOT,
                        "",
                        piece.count,
                        file=piece.file,
                        start=piece.start,
                        size=piece.size,
                    )
                ]
            ),
        )
        for stream, pieces in record.pieces.items()
        for piece in pieces
    ]
