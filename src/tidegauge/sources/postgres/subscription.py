"""One connection to a server: checks, the first rows, and then every transaction.

    nothing begun          make the slot, read the snapshot under it into files: nothing is given, so nothing bound
    that was cut off       read the rest under another snapshot, at a later place: see `snapshot`
    the snapshot is whole  give it, at the place before the snapshot's; its rows are those files from now on
    bound                  begin at the frontier: what committed at or after it comes again, in the same order
    a table came later     its first rows are read beside the stream, and given where it joins: see `arriving`

The frontier is one beyond the last commit that came, or further where the server says that it has sent all before.
A transaction is given whole, with all its tables, so an epoch has all of it or nothing.

Invariants. The slot is compared with the start before the stream begins, and again after: the server would begin
later and not say so. It is told of nothing but what `acknowledge` says, however far the stream is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.postgressource import SlotActive, SlotForeign, TableChanged, TableLocked
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.lsn import WAL
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.folder import LogBeginning
from tidegauge.sources.database.records import together
from tidegauge.sources.postgres.beginning import ConnectionFacts, begun, first_rows
from tidegauge.sources.postgres.catalog import CatalogLook, PublishedTable
from tidegauge.sources.postgres.checks import PLUGIN, check_slot
from tidegauge.sources.postgres.chunks import batch_of
from tidegauge.sources.postgres.followed import ReplicationSetup
from tidegauge.sources.postgres.further import FurtherColumns
from tidegauge.sources.postgres.gathering import Gathering
from tidegauge.sources.postgres.joining import JoiningTables
from tidegauge.sources.postgres.progress import RowsProgress
from tidegauge.sources.postgres.replication import passing_slot
from tidegauge.sources.postgres.server import SendingLog, SnapshotRows
from tidegauge.sources.postgres.taking import ComingFrames
from tidegauge.sources.postgres.timelines import followed_identity
from tidegauge.sources.postgres.witness import Comparison, GivenTransactions, LogWitness, remembered
from tidegauge.sources.push.protocol import Received

__all__ = ["Replication"]

_BYTES: Final = 16 << 20
"""Bytes of changes from which on a call returns."""
_TOGETHER: Final = 0.05
"""Seconds for which changes wait for others while the server has some: each call costs as much as many changes."""
_LINGERS: Final = 2.0
"""Seconds for which the server may go on to send to a connection that has ended."""
_IDLE: Final = 5.0
"""Seconds between two pieces of news that the log grew, but by nothing of these tables."""
_LOOKS: Final = 10.0
"""Seconds after which the catalog is looked at again: nothing in the stream tells of a table that is taken out."""


class Replication:
    """The subscription."""

    def __init__(self, reader: ReplicationSetup, start: Frontier, bound: Bound) -> None:
        self._reader: Final = reader
        self._server: Final = reader.server
        self._start: Final = start[WAL]
        self._incarnation: Final = bound.incarnation
        self._bound: Final = bound.frontier[WAL]
        self._flushed = self._given_to = 0
        self._gathering: Gathering | None = None
        self._remembering: GivenTransactions | None = None
        self._reading: SnapshotRows | None = None
        self._hindered: TidegaugeError | None = None
        self._maker: SendingLog | None = None
        """Makes the slot whose snapshot is read: the flow's own, or one that goes with its session."""
        self._since = 0
        """Where the flow's slot begins, if first rows were read before."""
        self._given_at = self._looked_at = self._server.clock.monotonic()
        found = reader.see(patience=_LINGERS)
        self._end = found.end
        self._tables: Final = {(table.schema, table.name): table for table in found.tables}
        self._names: Final = reader.names
        self._told_end = False
        self._confirmed = 0 if found.slot is None else found.slot.confirmed
        self._sender: Final = self._server.sender(reader.slot)
        self._coming: Final = ComingFrames(self._sender, self._server.clock)
        try:
            here, history = self._sender.identity(), self._sender.history
            self.identity = followed_identity(
                reader.source, reader.folder, bound, here, found.slot, history, reached=self._start
            )
            record = reader.folder.stream()
            same = record is not None and (record.identity, record.incarnation) == (self.identity, bound.incarnation)
            self._oids: Mapping[str, int] = record.oids if record is not None and same else {}
            self._joining = JoiningTables(reader, self.identity, bound.incarnation)
            self._notes = self._joining.notes
            self._further = FurtherColumns(reader, self.identity, bound.incarnation, self._bound)
            self._further.seen(found.tables)
            self._late = self._joining.later(record if same else None)
            if record is not None and same and record.point:
                self._joining.take_out(record, self._bound)
                self._oids = {**self._oids, **self._joining.oids}
                self._notes.only(self._oids)
            else:
                self._notes.only(())
            awaited = self._joining.awaited(self._late)
            if self._bound:
                self._notes.adopt([one for one in found.tables if str(one) not in awaited], found.horizon)
            self._changed, self._changed_by = reader.check(found, self._oids, self._notes, awaited), found.end
            self._joining.see(found, self._late)
            if max(self._end, 0) >= max(self._start, self._bound):  # else `end` tells of the loss
                self._open(found)
        except BaseException:
            self._sender.close()
            raise

    def receive(self, limit: int, seconds: float) -> Received | None:
        """Return the transactions that are whole, or wait for it."""
        until = self._server.clock.monotonic() + seconds
        if not self._told_end:
            self._told_end = True
            self._given_at = self._server.clock.monotonic() - _IDLE
            return self._received([], self._start)
        self._look_again()
        if self._gathering is None:
            return self._first(until)
        return self._stream(self._gathering, limit, until)

    def acknowledge(self, frontier: Frontier) -> None:
        """Tell the server that everything before a frontier is durable; remove the files that were kept for it."""
        lsn = frontier[WAL]
        self._joining.settle(lsn)
        if (floor := self._joining.floor) is not None:
            lsn = min(lsn, floor)
        record = self._reader.folder.stream()
        if record is not None and record.identity != self.identity:
            record = None
        if self._gathering is None or self._remembering is None or (record is not None and lsn < record.point):
            return
        self._remembering.told(lsn)
        self._reader.folder.keep_told(lsn)
        self._flushed = max(self._flushed, lsn)
        self._sender.tell(self._flushed, self._flushed, now=True)
        self._reader.folder.clear_spill(lsn)
        if record is not None and record.point and not record.done:
            self._reader.folder.keep_stream(replace(record, done=True, pieces={}, shapes={}))
            self._reader.folder.clear_snapshot()

    def close(self) -> None:
        """End the session."""
        with suppress(Exception):
            if self._reading is not None:
                self._reading.steps.close()
            self._joining.close()
        if self._maker is not None and self._maker is not self._sender:
            self._maker.close()
        self._sender.close()

    # Where the stream begins.

    def _open(self, found: CatalogLook) -> None:
        """Begin as far as that is known at once: see `beginning`."""
        reader, record = self._reader, self._reader.folder.stream()
        facts = ConnectionFacts(
            start=self._start,
            bound=self._bound,
            identity=self.identity,
            incarnation=self._incarnation,
            slot=reader.slot,
            whole=record is not None
            and set(reader.tables) - self._late <= set(record.pieces)
            and reader.folder.whole(record),
            source=reader.place.shown,
            folder=reader.folder.path,
            told=reader.folder.told(),
            since=self._since_of(found),
            synced=found.slot is not None and found.slot.synced,
        )
        begin = begun(facts, record)
        if begin.how == "stream":
            self._check(found, begin.lsn)
            self._begin(begin.lsn)
        elif begin.how == "files":
            self._check(found, begin.lsn)
        elif begin.how == "go on":
            self._go_on(found, begin.lsn)
        else:
            self._make(found, drop=begin.how == "remake")

    def _check(self, found: CatalogLook, needed: int) -> None:
        reader = self._reader
        check_slot(
            reader.place.shown, reader.slot, found.slot, found.database, needed=needed, told=reader.folder.told()
        )

    def _begin(self, lsn: int) -> None:
        """Begin the stream, and see that the server did too."""
        reader = self._reader
        reader.folder.forget_spill(lsn)
        needed = self._joining.begin(lsn)
        self._sender.start(reader.publication, min(self._confirmed, lsn))  # all that it has: see `witness`
        with self._server.looking() as look:
            found = look(reader.publication, list(reader.tables.values()), reader.slot)
        slot = None if found.slot is None else replace(found.slot, active=None)  # it is we who read it
        check_slot(reader.place.shown, reader.slot, slot, found.database, needed=needed, told=reader.folder.told())
        begins = min(lsn, lsn if found.slot is None else found.slot.confirmed)
        known = LogWitness(self.identity, self._incarnation, begins, begins, None, frozenset(self._oids.values()))
        witness = remembered(reader.folder, known, self._bound)
        comparing = Comparison(witness, begins) if begins < witness.before else None
        streams = {place: stream for stream, place in reader.tables.items()}
        places = self._joining.places()
        self._gathering = Gathering(streams, lsn, reader.folder.spill, self._oids, comparing, places, reader.spill)
        for stream in set(self._late) - places.keys():
            self._gathering.pass_over(stream)
        coming = {name for name, stream in self._names.items() if stream in self._late} - self._joining.oids.keys()
        record = reader.folder.stream()
        outdated = max(reader.folder.told(), 0 if record is None else record.point) < self._confirmed
        self._further.begin((one for one in found.tables if str(one) not in coming), outdated=outdated)
        self._given_to, self._remembering = lsn, GivenTransactions(reader.folder, witness)
        self._sender.tell(self._flushed, self._flushed, now=True)

    # The first rows.

    def _since_of(self, found: CatalogLook) -> int:
        """Return where the slot begins if first rows are in files, and it still gives everything from there on.

        A log that ends before a place at which rows were read is another one: 0 then.
        """
        known, slot = RowsProgress(self._reader.folder.snapshot).found(), found.slot
        if slot is None or slot.lost or (slot.plugin, slot.database) != (PLUGIN, found.database):
            return 0
        return known.since if slot.confirmed == known.since and found.end >= known.at else 0

    def _go_on(self, found: CatalogLook, since: int) -> None:
        """Begin to make another slot, one that goes with its session, for the sake of its snapshot."""
        self._still_declared()
        self._check(found, since)
        self._since = since
        self._maker = self._server.sender(passing_slot(self._reader.slot))
        self._maker.make(kind="TEMPORARY")

    def _still_declared(self) -> None:
        """Raise `TableChanged` for a table whose first rows cannot be read any more."""
        for table, detail in self._changed.items():
            raise TableChanged(table=table, detail=detail)

    def _make(self, found: CatalogLook, *, drop: bool) -> None:
        """Begin to make the slot. drop: whether one that is there is known to be ours; nothing of it is bound."""
        reader = self._reader
        self._still_declared()
        if found.slot is not None:
            if not drop:
                detail = "it is there, and nothing says that this flow made it"
                raise SlotForeign(source=reader.place.shown, slot=reader.slot, detail=detail)
            if found.slot.active is not None:
                detail = f"the server's process {found.slot.active} sends to it"
                raise SlotActive(source=reader.place.shown, slot=reader.slot, detail=detail)
            self._sender.drop()
        self._confirmed = 0
        self._oids = {str(table): table.oid for table in found.tables}
        self._joining.forget()
        reader.folder.keep_stream(LogBeginning(reader.slot, self.identity, self._incarnation, oids=self._oids))
        self._late = set()
        self._sender.make()
        self._maker = self._sender

    def _first(self, until: float) -> Received | None:
        """Go on with the slot and the snapshot; return all of its rows once it is whole."""
        reader = self._reader
        if self._maker is not None and self._reading is None:
            made = self._maker.made(until - self._server.clock.monotonic())
            if made is None:
                self._hindered = self._maker.awaits()
                return None if self._hindered is None else self._received([], self._start)
            self._point, name = made
            self._further.begin(reader.see().tables, anew=True)  # what came before this look is not in the rows
            tables, since = {stream: self._table(stream) for stream in reader.tables}, self._since or self._point
            task = reader.first_rows(tables, name, folder=reader.folder, since=since, at=self._point)
            self._reading = self._server.reading(task)
            if self._hindered is not None:
                self._hindered = None
                return self._received([], self._start)
        if self._reading is not None:
            if not self._reading.steps.go_on(until - self._server.clock.monotonic()):
                return None
            at = self._server.clock.micros()
            pieces, shapes = self._reading.pieces, self._reading.shapes
            self._notes.begin([self._table(one) for one in pieces], self._reading.partitions)
            self._reading = None
            if self._maker is not None and self._maker is not self._sender:
                self._maker.close()
            self._maker = None
            begun_at = LogBeginning(reader.slot, self.identity, self._incarnation, self._point, at, pieces, shapes)
            self._oids = {name: self._oids.get(name, self._table(stream).oid) for name, stream in self._names.items()}
            reader.folder.keep_stream(replace(begun_at, oids=self._oids))
        found = reader.folder.stream()
        if self._start or found is None or not found.point:
            self._server.clock.sleep(
                max(0.0, until - self._server.clock.monotonic())
            )  # upstream has lost what is bound: its `end` has said so
            return None
        self._begin(found.point)
        self._end = max(self._end, found.point)
        rows = first_rows(found, set(reader.tables) - self._late)
        return self._received(self._further.marked(rows), found.point)

    def _table(self, stream: str) -> PublishedTable:
        return self._tables[self._reader.tables[stream]]

    # The stream.

    def _stream(self, gathering: Gathering, limit: int, until: float) -> Received | None:
        soon = self._server.clock.monotonic() + _TOGETHER
        while True:
            if gathering.aside_size >= _BYTES:
                self._joining.set_aside(gathering)
            if self._joining.go_on(gathering) and gathering.reached > self._given_to:
                return self._given(gathering)
            coming = self._coming.take(gathering, limit - gathering.chunks)
            if gathering.size >= _BYTES or gathering.chunks >= limit:
                return self._given(gathering)
            now = self._server.clock.monotonic()
            left, over = until - now, now >= soon or gathering.reached >= self._end
            whole = gathering.chunks and (left <= 0 or (over and not coming))
            if whole or self._progressed(gathering.reached):
                return self._given(gathering)
            if left <= 0 or gathering.reached < self._end:
                self._sender.tell(self._flushed, self._flushed)
            if left <= 0:
                return None
            self._sender.wait(min(left, 0.1 if over or not gathering.chunks else soon - now))

    def _progressed(self, reached: int) -> bool:
        """Whether it is news that the log grew by nothing of these tables: each time makes an epoch."""
        if reached <= self._given_to:
            return False
        return self._given_to < self._end <= reached or self._server.clock.monotonic() - self._given_at >= _IDLE

    def _given(self, gathering: Gathering) -> Received:
        later: list[tuple[str, pa.RecordBatch]] = []
        if self._given_to < gathering.reached:
            if joined := self._joining.join(gathering):
                self._oids = {**self._oids, **self._joining.oids}
                if self._remembering is not None:
                    self._remembering.join(one.oid for one in joined)
                names = {one.table for one in joined}
                self._further.begin((one for one in self._reader.see().tables if str(one) in names), anew=True)
            later = self._further.marked(self._joining.given(gathering))
            ends = dict(gathering.unsaid)
            whole = self._changed_by <= gathering.reached  # all that the tables had has come
            over = [table for table in self._changed if whole or table in self._notes.broken]
            ends |= {self._names[table]: self._changed[table] for table in over}
            for stream, detail in ends.items():
                gathering.end(stream, detail)
        self._given_at, self._given_to = self._server.clock.monotonic(), gathering.reached
        if self._remembering is not None:
            self._remembering.add(gathering.reached, gathering.last)
        self._end = max(self._end, gathering.reached)
        if gathering.given:
            self._further.given(gathering.given)
            gathering.given.clear()
        taken = {stream: self._further.gone_through(stream, chunks) for stream, chunks in gathering.taken().items()}
        batches = later + [(stream, batch_of(run)) for stream, chunks in taken.items() for run in together(chunks)]
        return self._received(batches, gathering.reached)

    def _received(self, batches: Sequence[tuple[str, pa.RecordBatch]], reached: int) -> Received:
        """Return records, up to a place."""
        frontier, end, joining = Frontier({WAL: reached}), Frontier({WAL: self._end}), self._joining
        return Received(
            tuple(batches),
            frontier,
            end,
            self._further.told,
            awaits=joining.coming,
            hindered=self._hindered or joining.hindered,
        )

    def _look_again(self) -> None:
        """See now and then that the tables are still published, and are still those that were declared.

        While somebody has locked one, nothing can be said of it.
        """
        if self._server.clock.monotonic() - self._looked_at >= _LOOKS:
            self._looked_at = self._server.clock.monotonic()
            awaited = self._joining.awaited(self._late)
            try:
                found = self._reader.see()
                changed = self._reader.check(found, self._oids, self._notes, awaited)
            except TableLocked:
                return
            self._changed, self._changed_by = changed, found.end
            self._joining.see(found, self._late)
            self._further.seen(found.tables)
