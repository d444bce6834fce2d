"""Tables that were added: their first rows are read beside the stream of the others, which does not wait.

    a transaction that sees the tables    at a place P of the log, which has all that the stream has had
    a thread                              has its rows read into files, as at the beginning
    the stream                            goes on; what it brings of these tables from P on is set aside, in a file
    when all rows are in files            the tables join, at the place Q that the stream has reached by then
    when that is cut off                  the rows that are in files stay, and the next connection reads the rest at
                                          a later P, as at the beginning: see `snapshot`

Invariant: the rows in the files are the tables at P, and the chunks in the other file are what changed from P up to
Q. Where the log says that a table was another one in between, all of them are read anew.

>>> users = JoinedTable("shop.users", "users", 0, since=9, place=2, at=0, shape="", pieces=(), files="", upto=12)
>>> given_later(users, "3", "4294967295")
[]
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from tidegauge.disk import make_folder, synchronise
from tidegauge.errors.mysqlsource import BinlogServerAway, FirstRowsOutdated
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.folder import SnapshotPiece
from tidegauge.sources.database.later import JoinedTable, LaterTables
from tidegauge.sources.database.records import streamed, together
from tidegauge.sources.mysql.catalog import FollowedTable
from tidegauge.sources.mysql.catalogued import known_table
from tidegauge.sources.mysql.chunks import ENDS, FILED, KEPT, RowsChunk, batch_of, of_first_rows
from tidegauge.sources.mysql.followed import BinlogSetup
from tidegauge.sources.mysql.gathering import EventGathering
from tidegauge.sources.mysql.snapshot import FirstRowsReading

__all__ = ["TablesUnderWay", "given_later"]

_STEP: Final = 1.0
_BYTES: Final = 16 << 20
"""Bytes of chunks from which on they are written to the file."""
_TRIES: Final = 50
_AGAIN: Final = 0.05
"""Seconds after which another transaction is begun, where one does not see all that the stream has had."""


class _SeesTooLittle(Exception):
    """A server may send what it is about to commit, and a transaction may begin in between."""


class TablesUnderWay:
    """The tables that are on their way. streams: the table of each stream. Its methods do not wait."""

    def __init__(
        self,
        setup: BinlogSetup,
        later: LaterTables,
        domain: str,
        streams: Mapping[str, FollowedTable],
        gathering: EventGathering,
    ) -> None:
        self._setup: Final = setup
        self._domain: Final = domain
        self._streams: Final = streams
        self._begun = Frontier()
        """P, once it is known."""
        self._whole = self._stopped = False
        self._failure: BaseException | None = None
        self._least: Final = gathering.seen
        self._life: Final = later.identity, later.incarnation
        self._files: Final = (later.reading or later.begin(gathering.reached[domain])).files
        self._folder: Final = replace(later.folder, path=str(later.files / self._files))
        self._changes: Final = Path(self._folder.path, f"changes-{uuid.uuid4().hex[:12]}")
        with self._folder.changing():
            for path in self._changes.parent.glob("changes*"):  # of readings that were cut off
                path.unlink(missing_ok=True)
        self._aside: Final[dict[str, list[SnapshotPiece]]] = {}
        self._shapes: Final = {
            one: "" if setup.kind.named else known_table(of).encoded() for one, of in streams.items()
        }
        for stream, table in streams.items():
            gathering.expect(stream, None if setup.kind.named else known_table(table))
        self._reading = self._made()
        setup.server.beside("later rows", self._read)

    def go_on(self, gathering: EventGathering) -> bool:
        """Go on a little; return whether the tables may join at the place that the stream has reached.

        Raises what keeps their rows from being read.
        """
        if self._failure is not None:
            raise self._failure
        if self._begun and (gathering.aside.filed or gathering.aside.size >= _BYTES):
            self._set_aside(gathering)
        return self._whole and self._begun[self._domain] <= gathering.reached[self._domain]

    def joined(self, gathering: EventGathering, place: int) -> list[JoinedTable]:
        """Return the tables as they join. place: how often tables will have joined, and one.

        Raises `FirstRowsOutdated`, `OSError`.
        """
        reading, at, shapes = self._reading, self._setup.server.clock.micros(), self._shapes
        for stream, table in reading.tables.items():
            if known_table(table).encoded() != shapes[stream]:
                raise FirstRowsOutdated(source=self._setup.server.shown, detail=f"the columns of {table} changed")
        self._set_aside(gathering)
        if self._aside:
            with self._changes.open("rb+") as file:
                os.fsync(file.fileno())
            synchronise(self._changes.parent)
        since, upto = self._begun[self._domain], gathering.reached[self._domain]
        return [
            JoinedTable(
                str(table), stream, 0, since, place, at, shapes[stream], tuple(reading.pieces[stream]), self._files,
                upto=upto, aside=tuple(self._aside.get(stream, ())),
            )
            for stream, table in self._streams.items()
        ]  # fmt: skip

    def close(self) -> None:
        """Give it up. Does not wait."""
        self._stopped = True

    def _made(self) -> FirstRowsReading:
        columns = self._setup.columns
        streams = {one: (of.database, of.name, columns[str(of)]) for one, of in self._streams.items()}
        return FirstRowsReading(self._setup, self._folder, self._life, self._domain, streams, self._opened)

    def _opened(self, gtids: str) -> None:
        begun = self._setup.kind.clock.parse(gtids)
        if not self._least.less_equal(begun):
            raise _SeesTooLittle
        self._begun = begun

    def _read(self) -> None:
        """Have the rows read, in a thread: taking a lock on a table may take long."""
        tries = 0
        try:
            while not self._stopped:
                try:
                    if self._reading.steps.go_on(_STEP):
                        self._whole = True
                        return
                except _SeesTooLittle:
                    tries += 1
                    if tries == _TRIES:
                        detail = "a transaction does not see what is in its log already"
                        raise BinlogServerAway(source=self._setup.server.shown, detail=detail) from None
                    self._setup.server.clock.sleep(_AGAIN)
                    self._reading = self._made()
        except BaseException as error:  # noqa: BLE001 - it is raised where the source goes on
            self._failure = error
        finally:
            with suppress(Exception):
                self._reading.steps.close()

    def _set_aside(self, gathering: EventGathering) -> None:
        """Write the chunks that wait to the file, as far as the rows do not have them. Raises `OSError`."""
        found = {
            stream: [one for one in chunks if one.sequence >= self._begun[one.domain]]
            for stream, chunks in gathering.aside.taken().items()
        }
        for stream, chunks in found.items():
            for chunk in chunks:
                if chunk.kind in ENDS:
                    said = f"{self._streams[stream]}: {', '.join(json.loads(chunk.data).values())}"
                    raise FirstRowsOutdated(source=self._setup.server.shown, detail=said)
        make_folder(self._changes.parent)
        with self._changes.open("ab") as file:
            for stream, chunks in found.items():
                here = []
                for chunk in chunks:
                    moved = chunk
                    if chunk.kind == FILED:
                        moved = replace(chunk, file=str(self._changes), start=file.tell())
                        file.write(_bytes_of(chunk))
                    here.append(moved)
                for run in together(here):
                    start, data = file.tell(), streamed(batch_of(run))
                    file.write(data)
                    piece = SnapshotPiece(str(self._changes), start, len(data), len(run), 0)
                    self._aside.setdefault(stream, []).append(piece)


def given_later(table: JoinedTable, domain: str, joins: str) -> list[pa.RecordBatch]:
    """Return what a table gives when it joins: its first rows, and what changed while they were read.

    domain: whose transactions change the table. joins: the partition that counts how often tables joined.
    """
    place = joins, table.place - 1, table.at
    rows = [of_first_rows((domain, table.since - 1, table.at), one) for one in table.pieces]
    first = [RowsChunk(*place, KEPT, "", 1, data=streamed(batch_of([one]))) for one in rows]
    then = [RowsChunk(*place, KEPT, "", 1, file=n.file, start=n.start, size=n.size) for n in table.aside]
    return [batch_of([one]) for one in (*first, *then)]


def _bytes_of(chunk: RowsChunk) -> bytes:
    with Path(chunk.file).open("rb") as file:
        file.seek(chunk.start)
        return file.read(chunk.size)
