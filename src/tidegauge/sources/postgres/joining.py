"""The tables of one connection that came later: which are on their way, and what they give where they join.

Invariant: what a table gives where it joins is durable (`later`) before it is given; and the server keeps its log
from the place of its first rows on until every output has them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.postgressource import PastAcknowledged, SnapshotLost
from tidegauge.remap.fromtime.lsn import Lsn
from tidegauge.sources.database.attempts import RowsAttempts
from tidegauge.sources.database.folder import LogBeginning
from tidegauge.sources.database.later import JoinedTable, LaterTables
from tidegauge.sources.postgres.arriving import ArrivingTables, KeptChunks, given_later
from tidegauge.sources.postgres.catalog import CatalogLook, PublishedTable
from tidegauge.sources.postgres.followed import ReplicationSetup
from tidegauge.sources.postgres.gathering import Gathering, LaterPlaces
from tidegauge.sources.postgres.notes import FollowedNotes

__all__ = ["JoiningTables"]


class JoiningTables:
    """These tables. Its methods do not wait."""

    def __init__(self, reader: ReplicationSetup, identity: str, incarnation: int) -> None:
        self._reader: Final = reader
        self._later: Final = LaterTables(reader.folder, identity, incarnation)
        self.notes: Final = FollowedNotes(reader.folder, identity, incarnation, reader.keeps_partitions)
        self._kept: Final = KeptChunks(self._later.chunks)
        self._waiting: dict[str, JoinedTable] = {}
        """The tables that join at a place that is yet to come, by stream."""
        self._arriving: ArrivingTables | None = None
        self._awaited: dict[str, PublishedTable | None] = {}
        """The streams that have not joined: each with its table, None for one that cannot be read at present."""
        self._unfit: Mapping[str, Transient] = {}
        self._attempts: Final = RowsAttempts(reader.place.shown, reader.server.clock)

    @property
    def oids(self) -> dict[str, int]:
        """The server's numbers of the tables that joined."""
        return {one.table: one.oid for one in self._declared}

    @property
    def floor(self) -> int | None:
        """The place from which on the server is to keep its log for them, None where it need not."""
        places = [self._later.held, None if self._arriving is None else self._arriving.floor]
        return min((one for one in places if one is not None), default=None)

    @property
    def coming(self) -> bool:
        """Whether there are tables whose place is yet to come."""
        return bool(self._awaited)

    @property
    def hindered(self) -> TidegaugeError | None:
        """Why tables have to wait, None where nothing keeps them from being read."""
        awaits = None if self._arriving is None else self._arriving.awaits
        return next(iter(self._unfit.values()), self._attempts.failure or awaits) if self._awaited else None

    @property
    def _declared(self) -> list[JoinedTable]:
        return [one for name, one in self._later.joined.items() if name in self._reader.names]

    def take_out(self, record: LogBeginning, place: int) -> None:
        """Note the tables that are not declared any more. Raises `TableTakenBack` for one that was taken out."""
        names, shown = self._reader.names, self._reader.place.shown
        self._later.take_out(names, record.oids, place, source=shown, shown=lambda one: str(Lsn(one)))

    def forget(self) -> None:
        """Forget all of it: the source begins anew, with all tables that it has. Raises why one cannot be read."""
        for error in self._unfit.values():
            raise error
        self._awaited = {}
        self._later.forget(self._reader.names)
        self.notes.forget()

    def later(self, record: LogBeginning | None) -> set[str]:
        """Return the streams that came later. record: where the source began, None where that is not known."""
        return set() if record is None else record.later(self._reader.names)

    def begin(self, lsn: int) -> int:
        """Begin to wait for those that join after a place; return where the stream is to begin for them.

        Raises `SnapshotLost`, `PastAcknowledged`.
        """
        shown, folder = self._reader.place.shown, self._reader.folder
        self._later.tidy()  # a driver may have died before it did
        self._waiting = {one.stream: one for one in self._declared if one.place > lsn}
        for one in self._waiting.values():
            if one.done:
                raise PastAcknowledged(source=shown, confirmed=str(Lsn(folder.told())), needed=str(Lsn(lsn)))
            if not one.whole:
                detail = f"files of {one.table} are missing in {folder.path}"
                raise SnapshotLost(source=shown, lsn=str(Lsn(one.since)), detail=detail)
        return min([lsn, *(one.since for one in self._waiting.values())])

    def places(self) -> dict[str, LaterPlaces]:
        """Return the places of the tables that joined."""
        return {one.stream: LaterPlaces(one.since, one.place) for one in self._declared}

    def awaited(self, late: Collection[str]) -> list[str]:
        """Return the tables of those streams that have not joined."""
        joined = {one.stream for one in self._declared}
        return [name for name, stream in self._reader.names.items() if stream in late and stream not in joined]

    def see(self, found: CatalogLook, late: Collection[str]) -> None:
        """Take in how the tables are that have not joined. One that cannot be read keeps no other from it."""
        names = self.awaited(late)
        self._unfit = self._reader.unfit(found, names)
        for name, error in self._unfit.items():
            self._attempts.tell([name], error)
        there = {str(table): table for table in found.tables}
        self._awaited = {self._reader.names[name]: None if name in self._unfit else there.get(name) for name in names}
        if self._arriving is None and not any(self._awaited.values()):
            self._later.give_up()

    def go_on(self, gathering: Gathering) -> bool:
        """Go on a little; return whether tables may join at the place reached.

        What keeps their rows from being read is theirs alone: it is tried again, after growing delays.
        """
        try:
            if self._arriving is None:
                self._begin_reading(gathering)
            return self._arriving is not None and self._arriving.go_on(gathering.reached)
        except (OSError, Transient) as error:
            self._give_up(gathering, error)
            return False

    def _begin_reading(self, gathering: Gathering) -> None:
        """Begin to read the rows of the tables that can be read, if it is time to."""
        coming = {stream: table for stream, table in self._awaited.items() if table is not None}
        if coming and self._attempts.due:
            for stream in coming:
                gathering.expect(stream)
            self._arriving = ArrivingTables(self._reader, self._later, coming, gathering.reached)

    def _give_up(self, gathering: Gathering, error: Exception) -> None:
        for stream in self._awaited:
            gathering.pass_over(stream)
            self._kept.forget(stream)
        if self._arriving is not None:
            self._arriving.close()
        self._arriving = None
        waiting = [name for name, stream in self._reader.names.items() if stream in self._awaited]
        self._attempts.failed(waiting, error)

    def set_aside(self, gathering: Gathering) -> None:
        """Keep the chunks that wait in a file. Raises `OSError`."""
        self._kept.keep(gathering.set_aside())

    def join(self, gathering: Gathering) -> list[JoinedTable]:
        """Have tables join at the place reached, which is beyond all that was given; return them."""
        if not self.go_on(gathering) or self._arriving is None:
            return []
        joined = self._arriving.joined(gathering.reached)
        self.notes.begin(self._arriving.streams.values(), self._arriving.partitions)
        self._later.join(joined)
        for one in joined:
            gathering.join(one.stream, one.oid, one.place)
            self._waiting[one.stream] = one
            self._awaited.pop(one.stream, None)
        self._arriving = None
        self._attempts.succeeded()
        return joined

    def given(self, gathering: Gathering) -> list[tuple[str, pa.RecordBatch]]:
        """Return what the tables give that join before the place reached."""
        self.set_aside(gathering)
        found: list[tuple[str, pa.RecordBatch]] = []
        for stream, one in list(self._waiting.items()):
            if one.place <= gathering.reached:
                del self._waiting[stream]
                found += [(stream, batch) for batch in given_later(one, self._kept.taken(stream, since=one.since))]
        return found

    def settle(self, before: int) -> None:
        """Take in that every output has everything before a place."""
        self._later.settle(before, coming=self.coming)

    def close(self) -> None:
        """Give up the reading of rows."""
        if self._arriving is not None:
            self._arriving.close()
