"""One connection to a server: checks, the first rows, and then every transaction.

    nothing begun          read the first rows into files: nothing is given, so nothing bound
    the rows are whole     give them, at the last transaction that they have; they are those files from now on
    bound                  begin after the frontier's transactions: what committed later comes again, in its order

A transaction is given whole, with all its tables, so an epoch has all of it or nothing. A table that is another one
than was declared ends its own stream: where the log tells it, else once the log has come to where the server was
looked at. The rows of a table that came later are read beside the stream, see `joining`.

Invariant: the stream begins after the transactions that the frontier says, named as the server names them. So a
server that no longer has the next ones says so; and one that has others in their places is seen by the last one that
the flow has, which is read once more (`proof`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import pyarrow as pa

from tidegauge.errors.mysqlsource import (
    BinlogPastFirstRows,
    BinlogPurged,
    BinlogServerAway,
    BinlogServerUnfit,
    BinlogSnapshotLost,
)
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.folder import LogBeginning
from tidegauge.sources.database.records import together
from tidegauge.sources.mysql.beginning import first_rows, known_tables, unknown, with_ended
from tidegauge.sources.mysql.catalog import FollowedTable
from tidegauge.sources.mysql.catalogued import known_table
from tidegauge.sources.mysql.chunks import ENDED, batch_of, ending
from tidegauge.sources.mysql.followed import BinlogSetup
from tidegauge.sources.mysql.gathering import EventGathering
from tidegauge.sources.mysql.joining import AddedTables, began_with
from tidegauge.sources.mysql.marks import LogMark, LogMarks
from tidegauge.sources.mysql.proof import LogProof
from tidegauge.sources.mysql.receiving import start_log
from tidegauge.sources.mysql.silence import LogSilence
from tidegauge.sources.mysql.snapshot import FirstRowsReading
from tidegauge.sources.push.protocol import Received

__all__ = ["BinlogSubscription"]

_BYTES: Final = 16 << 20
"""Bytes of changes from which on a call returns."""
_IDLE: Final = 5.0
"""Seconds between two pieces of news that the log grew, but by nothing of these tables."""
_LOOKS: Final = 10.0
"""Seconds after which tables that have not joined are looked at again."""
_PATIENCE: Final = 30.0
"""Seconds for the transaction that is read once more: the server looks through a file of its log for it."""


class BinlogSubscription:
    """The subscription."""

    def __init__(self, setup: BinlogSetup, start: Frontier, bound: Bound) -> None:
        self._setup: Final = setup
        self._server: Final = setup.server
        self._start: Final = start
        self._incarnation: Final = bound.incarnation
        self._gathering: EventGathering | None = None
        self._proof: LogProof | None = None
        self._reading: FirstRowsReading | None = None
        self._owed: LogBeginning | None = None
        self._seen: LogMark | None = None
        """The last transaction of the first rows, as the log had it when they were begun."""
        self._told_end = False
        self._given_to = start
        self._given_at = self._looked_at = setup.server.clock.monotonic()
        self._silence: Final = LogSilence(setup.server.shown, setup.server.clock.monotonic, setup.log_end)
        self._log = setup.server.log()
        try:
            record = setup.folder.stream()
            read = record is not None and record.incarnation == bound.incarnation and record.point > 0
            self._found = setup.look(begun=read or bool(start))
            kind, settings = self._found.kind, self._found.settings
            if kind != setup.kind:
                detail = f"it is {kind.name}, and the flow was begun with {setup.kind.name}"
                remedy = "correct the address, or declare the source under another name, with other outputs"
                raise BinlogServerUnfit(source=setup.server.shown, detail=detail, remedy=remedy)
            self._changed_by = kind.end(setup.server.shown, settings)
            self.identity = kind.identity(settings)
            if bound.identity and bound.identity != self.identity:
                raise UpstreamRecreated(source=setup.source, known=bound.identity, found=self.identity)
            ours = record is not None and read and record.identity == self.identity
            known = began_with(record, setup.names) if record is not None and ours else None
            domain = self._domain(known)
            self._joining = AddedTables(
                setup, self.identity, bound.incarnation, known, domain, start, bound.frontier, self._changed_by
            )
            if known is not None and known != record:
                setup.folder.keep_stream(known)
            self._changed = setup.changed(self._found, begun=read or bool(start), awaited=self._joining.awaited)
            self._joining.see(self._tables())
            self._end = self._joining.end(self._changed_by)
            if start.less_equal(self._end) and bound.frontier.less_equal(self._end):  # else `end` tells of the loss
                self._open(bound)
        except BaseException:
            self._log.close()
            raise

    def receive(self, limit: int, seconds: float) -> Received | None:
        """Return the transactions that are whole, or wait for it."""
        until = self._server.clock.monotonic() + seconds
        if not self._told_end:
            self._told_end = True
            self._given_at = self._server.clock.monotonic() - _IDLE
            return self._received([], self._start)
        self._look_again()
        if self._gathering is None or self._owed is not None:
            return self._first(until)
        self._silence.listen(Frontier(self._gathering.reached))
        return self._stream(self._gathering, limit, until)

    def acknowledge(self, frontier: Frontier) -> None:
        """Remove the files of rows that are durable now. The server keeps no place for us."""
        self._joining.settle(frontier)
        record = self._setup.folder.stream()
        if self._gathering is None or (record is not None and not self._parsed(record.begins).less_equal(frontier)):
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
        self._joining.close()
        self._log.close()

    # Where the stream begins.

    def _domain(self, record: LogBeginning | None) -> str:
        """Return the domain whose transactions change the tables."""
        return self._found.settings[self._found.kind.partition] if record is None else record.shapes["domain"]

    def _parsed(self, begins: str) -> Frontier:
        return self._setup.kind.clock.parse(begins)

    def _open(self, bound: Bound) -> None:
        """Begin the stream where it is known where it begins, or begin to read the first rows."""
        setup, record = self._setup, self._setup.folder.stream()
        if record is not None and (record.identity != self.identity or record.incarnation != bound.incarnation):
            if self._start or (bound.frontier and record.incarnation >= bound.incarnation):
                raise self._lost(record.begins, f"{setup.folder.path} is of another server or incarnation")
            record = None
        if self._start:
            self._begin(self._start, record)
        elif record is not None and record.point:
            if record.done:
                raise BinlogPastFirstRows(source=setup.server.shown, gtid=record.begins)
            if setup.folder.whole(record) and set(record.pieces) >= set(setup.tables) - self._joining.late:
                self._begin(self._parsed(record.begins), record)
                self._owed = record
                return
            if bound.frontier:
                raise self._lost(record.begins, f"files are missing in {setup.folder.path}")
            self._read()
        elif bound.frontier:
            raise self._lost(setup.kind.clock.render(bound.frontier), f"{setup.folder.path} does not know them")
        else:
            self._read()

    def _lost(self, gtid: str, detail: str) -> BinlogSnapshotLost:
        return BinlogSnapshotLost(source=self._server.shown, gtid=gtid, detail=detail)

    def _begin(self, frontier: Frontier, record: LogBeginning | None, *, fresh: bool = False) -> None:
        """Begin the stream, once its last transaction before is known to be the flow's. fresh: it has none yet."""
        setup, domain, position = self._setup, self._domain(record), frontier
        frontier = self._joining.logged(position)
        before = frontier[domain]
        setup.folder.forget_spill(before)
        self._marks = LogMarks(setup.folder, self._incarnation, before=0 if fresh else before)
        streams = {table: stream for stream, table in setup.tables.items()}
        shown, charsets = setup.server.shown, self._found.charsets
        self._given_to = position
        spill, named = setup.folder.spill, setup.kind.named
        known = {**known_tables(record), **self._joining.shapes}
        tables, over = (None, None) if named else (known, self._unknown(record, frontier))
        self._gathering = EventGathering(
            shown, streams, domain, frontier, charsets, spill, tables, over, filed=setup.filed
        )
        self._joining.begin(self._gathering)
        mark = self._seen if fresh else self._marks.last
        earlier = Frontier({**frontier, domain: max(before - 1, 0) if mark is None else mark.sequence})
        try:
            self._start_log(earlier, frontier)
            self._proof = LogProof(setup.source, domain, before, mark)
            self._prove(self._gathering, self._proof, needed=mark is not None)
        except (BinlogPurged, BinlogServerUnfit):  # of the earlier one alone: else it is raised again
            self._log.close()
            self._proof, self._log = None, setup.server.log()
            self._start_log(frontier, frontier, "" if mark is None else mark.gtid)
            self._prove(self._gathering, None, needed=False)

    def _unknown(self, record: LogBeginning | None, frontier: Frontier) -> Mapping[str, str]:
        began = [stream for stream in self._setup.tables if stream not in self._joining.late]
        return unknown(record, began, frontier)

    def _start_log(self, earlier: Frontier, frontier: Frontier, known: str = "") -> None:
        start_log(self._log, self._server, self._setup.kind, self._found.settings, earlier, frontier, known=known)

    def _prove(self, gathering: EventGathering, proof: LogProof | None, *, needed: bool) -> None:
        """Wait for the transaction before the first one that the flow lacks; without one, for any answer."""
        until = self._server.clock.monotonic() + _PATIENCE
        while self._server.clock.monotonic() < until:
            if self._log.answered if proof is None else proof.found is not None or proof.over:
                break
            for event in self._log.events(0.1):
                self._take(gathering, event)
        if proof is not None and proof.found is not None:
            self._marks.given(proof.found)
        elif needed:
            detail = f"it has not sent the last transaction that the flow has within {_PATIENCE:.0f} seconds"
            raise BinlogServerAway(source=self._server.shown, detail=detail)

    def _take(self, gathering: EventGathering, event: bytes) -> None:
        if self._proof is not None and self._proof.takes(event):
            return
        if self._proof is not None and self._proof.over:
            self._proof = None
        gathering.take(event)

    # The first rows.

    def _read(self) -> None:
        setup = self._setup
        self._joining.forget()
        streams = {
            stream: (*table, setup.columns[".".join(table)])
            for stream, table in setup.tables.items()
            if stream not in self._changed
        }
        self._reading = FirstRowsReading(
            setup, setup.folder, (self.identity, self._incarnation), self._domain(None), streams
        )

    def _first(self, until: float) -> Received | None:
        """Go on with the first rows; return all of them once they are whole."""
        setup = self._setup
        if self._reading is not None:
            if not self._reading.steps.go_on(until - self._server.clock.monotonic()):
                return None
            gtids, pieces, tables = self._reading.gtids, self._reading.pieces, self._reading.tables
            self._seen = self._reading.mark
            domain = self._found.settings[setup.kind.partition]
            self._reading = None
            point = self._parsed(gtids)[domain]
            if not point:
                detail = f"its log has no transaction of its own domain, {domain}"
                raise BinlogServerUnfit(source=setup.server.shown, detail=detail, remedy="change any row")
            self._found = self._server.look([])  # the log goes on while rows are read
            self._end = self._end.join(setup.kind.end(setup.server.shown, self._found.settings))
            at = self._server.clock.micros()
            shapes = {"domain": domain, **{f"table {one}": known_table(of).encoded() for one, of in tables.items()}}
            pieces = {**pieces, **dict.fromkeys(self._changed, ())}
            oids = dict.fromkeys(setup.names, 0)
            record = LogBeginning(gtids, self.identity, self._incarnation, point, at, pieces, shapes, oids=oids)
            gone = {one: ending((domain, point - 1, at), ENDED, detail=why) for one, why in self._changed.items()}
            record, self._changed = with_ended(record, gone), {}
            self._log.close()
            self._log = self._server.log()  # the server may have ended that of before (wait_timeout)
            try:
                self._begin(self._parsed(gtids), record, fresh=True)
            except UpstreamRecreated as error:
                detail = f"its log became another one while the first rows were read: {error.summary}"
                raise BinlogServerAway(source=self._server.shown, detail=detail) from error
            setup.folder.keep_stream(record)
            self._owed = record
        found, self._owed = self._owed, None
        if found is None:
            self._server.clock.sleep(
                max(0.0, until - self._server.clock.monotonic())
            )  # upstream has lost what is bound: its `end` has said so
            return None
        frontier = self._parsed(found.begins)
        self._end = self._end.join(frontier)
        return self._received(first_rows(found, setup.tables), frontier)

    # The stream.

    def _stream(self, gathering: EventGathering, limit: int, until: float) -> Received | None:
        while True:
            if self._joining.go_on(gathering):
                return self._given(gathering)
            left = until - self._server.clock.monotonic()
            came = 0
            for event in self._log.events(0 if gathering.chunks else min(max(left, 0), 0.1)):
                self._take(gathering, event)
                came = event[4]
            if came:
                self._silence.heard(came, gathering.reached)
            if gathering.chunks and (not came or gathering.size >= _BYTES or gathering.chunks >= limit or left <= 0):
                return self._given(gathering)
            if not came:
                reached = self._joining.reached(Frontier(gathering.reached))
                if reached != self._given_to and self._worth_telling(self._given_to, reached):
                    return self._given(gathering)
            if left <= 0:
                return None

    def _worth_telling(self, before: Frontier, reached: Frontier) -> bool:
        """Whether it is news that the log grew by nothing of these tables: each time makes an epoch."""
        caught_up = self._end.less_equal(reached) and not self._end.less_equal(before)
        return caught_up or self._server.clock.monotonic() - self._given_at >= _IDLE

    def _given(self, gathering: EventGathering) -> Received:
        later = self._joining.given(gathering)
        self._end_changed(gathering)
        self._given_at = self._server.clock.monotonic()
        reached = self._given_to = self._joining.reached(Frontier(gathering.reached))
        if gathering.last is not None:
            self._marks.given(gathering.last.mark)
            gathering.last = None
        self._end = self._end.join(reached)
        batches = [
            (stream, batch_of(run)) for stream, chunks in gathering.taken().items() for run in together(chunks)
        ]
        return self._received(later + batches, reached)

    def _received(self, batches: Sequence[tuple[str, pa.RecordBatch]], reached: Frontier) -> Received:
        """Return records, up to a position."""
        joining = self._joining
        return Received(tuple(batches), reached, self._end, awaits=bool(joining.awaited), hindered=joining.hindered)

    def _tables(self) -> dict[str, FollowedTable]:
        return dict(zip(self._setup.tables, self._found.tables, strict=True))

    def _look_again(self) -> None:
        """See now and then how the tables are that have not joined."""
        due = self._joining.outdated or self._server.clock.monotonic() - self._looked_at >= _LOOKS
        if due and self._joining.awaited:
            self._looked_at = self._server.clock.monotonic()
            self._found = self._setup.look(begun=True)
            self._joining.see(self._tables())

    def _end_changed(self, gathering: EventGathering) -> None:
        """End the streams of tables that are others by now, though the log has not told it; note those that ended."""
        folder = self._setup.folder
        record = folder.stream()
        domain = self._domain(record)
        news = gathering.reached[domain] > self._given_to[domain]
        if self._changed and news and self._changed_by.less_equal(Frontier(gathering.reached)):
            for stream, why in self._changed.items():
                gathering.end(stream, why)
            self._changed = {}
        if gathering.over and record is not None and (noted := with_ended(record, gathering.ended)) != record:
            folder.keep_stream(noted)
