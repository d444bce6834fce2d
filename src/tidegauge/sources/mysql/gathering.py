"""Transactions as they come, event by event: the changes of each followed table, until the commit.

    GTID  (TABLE_MAP  rows)*  XID | COMMIT       rows that count
    GTID  (TABLE_MAP  rows)*  ROLLBACK           rows that do not
    GTID (standalone)  statement                 a change of tables themselves

A transaction that grows beyond `filed` bytes in a table is written to files as it comes.

Where one table can no longer be followed, a chunk of its stream says so, in the place of the transaction, and the
others go on. Rows that name their columns go on after it.

The chunks of a table that was added are set aside (`aside`) until it joins. See `joining`.

Invariants. Only an end that commits gives chunks, all of them together, and `end` for tables that the log does not
tell of. `reached` is the next transaction of each domain. What the log does not tell row by row, of tables that
nobody knows, raises `BinlogUnfit`; nothing is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from tidegauge.errors.mysqlsource import BinlogBroken, BinlogTableChanged, BinlogUnfit
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.records import INLINE
from tidegauge.sources.mysql import events
from tidegauge.sources.mysql.aside import ChunksAside
from tidegauge.sources.mysql.catalogued import named
from tidegauge.sources.mysql.chunks import EMPTIED, ENDED, FILED, INDEX, UNTOLD, RowsChunk, ending
from tidegauge.sources.mysql.events import HEADER, Gtid, LoggedStatement
from tidegauge.sources.mysql.marks import ENOUGH, ReadTransaction
from tidegauge.sources.mysql.shapes import LoggedTable, shape_of
from tidegauge.sources.mysql.statements import meaning

__all__ = ["FILED_FROM", "EventGathering"]

FILED_FROM: Final = 4 << 20
"""Bytes of a table's changes in one transaction from which on they are written to files."""
_PARTIAL: Final = "its rows have not all columns: binlog_row_image was not FULL"
_VALUES: Final = "its rows may have parts of values: binlog_row_value_options was PARTIAL_JSON"
_MOST: Final = 1 << 40
"""Bytes of changes of a transaction: `_sequence` counts no further."""


@dataclass(slots=True)
class _OpenImages:
    """Changes of one table in the transaction that is under way."""

    shape: str
    index: list[tuple[int, int, int]] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True, slots=True)
class _KnownTable:
    """A table of the log: its stream, "" for none. present: the bitmap that says that a row has all columns.

    changed, untold: why its rows cannot be followed, if they cannot be."""

    stream: str
    shape: str = ""
    columns: int = 0
    present: bytes = b""
    changed: str = ""
    untold: str = ""


class EventGathering:
    """The changes that are here.

    source: for people. streams: the names of streams by database and table. domain: the only one whose transactions
    change the followed tables. charsets: names by the numbers of collations. write: writes the bytes of a transaction
    to a file, and returns its path and where they begin there. tables: of each stream its columns by their places,
    where the log names none. over: the streams whose columns are not known any more,
    with why. filed: bytes of a table's changes in a transaction from which on they are written to files.
    """

    def __init__(
        self,
        source: str,
        streams: Mapping[tuple[str, str], str],
        domain: str,
        reached: Mapping[str, int],
        charsets: Mapping[int, str],
        write: Callable[[int, bytes], tuple[str, int]],
        tables: Mapping[str, LoggedTable] | None = None,
        over: Mapping[str, str] | None = None,
        *,
        filed: int = FILED_FROM,
    ) -> None:
        self.reached: Final = dict(reached)
        self.size = 0
        """Bytes that have come, are committed and not taken."""
        self.last: ReadTransaction | None = None
        """The last whole transaction of the domain."""
        self.open: ReadTransaction | None = None
        """The one that is under way."""
        self._source: Final = source
        self._streams: Final = streams
        self._domain: Final = domain
        self._charsets: Final = charsets
        self._write: Final = write
        self._filed: Final = filed
        self._known: Final = None if tables is None else dict(tables)
        self.aside: Final = ChunksAside()
        """Those of streams that have not joined."""
        self.over: Final = dict(over or {})
        """The streams whose columns are not known any more, with why."""
        self.ended: Final[dict[str, RowsChunk]] = {}
        """The streams whose tables became others since, each with the last record that says so."""
        self._gtid: Gtid | None = None
        self._bytes = 0
        self._shapes: Final[dict[bytes, _KnownTable]] = {}
        self._tables: dict[bytes, _KnownTable] = {}
        self._pending: dict[str, _OpenImages] = {}
        self._open: dict[str, list[RowsChunk]] = {}
        self._whole: dict[str, list[RowsChunk]] = {}

    @property
    def chunks(self) -> int:
        """How many chunks are whole."""
        return sum(map(len, self._whole.values()))

    def taken(self) -> dict[str, list[RowsChunk]]:
        """Return the chunks of each stream that are whole, and forget them."""
        found, self._whole = self._whole, {}
        self.size = 0
        return found

    def expect(self, stream: str, table: LoggedTable | None) -> None:
        """Set aside the chunks of a stream, from the transactions on that are not in `seen`.

        table: its columns by their places, where the log does not name them.
        """
        self.aside.expect(stream)
        self._know(stream, table)

    def join(self, stream: str, table: LoggedTable | None) -> None:
        """Give the chunks of a stream from here on, as those of all others. table: see `expect`."""
        self.aside.join(stream)
        self._know(stream, table)

    def _know(self, stream: str, table: LoggedTable | None) -> None:
        if self._known is not None and table is not None:
            self._known[stream] = table
            self._shapes.clear()

    @property
    def seen(self) -> Frontier:
        """The next transaction of each domain: nothing of these has come."""
        under_way = {} if self._gtid is None else {self._gtid.domain: self._gtid.sequence + 1}
        return Frontier({**self.reached, **under_way})

    def _passes(self, gtid: Gtid, stream: str) -> bool:
        """Whether nobody wants what a transaction does to the table of a stream."""
        return self.aside.passes(stream, gtid.sequence if gtid.domain == self._domain else self.reached[self._domain])

    def end(self, stream: str, detail: str) -> None:
        """End a stream after the last transaction of the domain: its table is gone, or another one, by now."""
        if stream not in self.ended:
            chunk = ending((self._domain, self.reached[self._domain] - 1, 0), ENDED, detail=detail)
            self._whole.setdefault(stream, []).append(chunk)
            self._over_from(stream, chunk)

    def take(self, event: bytes) -> None:
        """Take in an event without its checksum. Raises `BinlogBroken`, `BinlogUnfit`."""
        kind = event[4]
        read = self.open
        if read is not None and read.size < ENOUGH and kind not in events.CONSEQUENT:
            read.take(event)
        if kind in events.ROWS:
            self._rows(event, *events.ROWS[kind])
        elif kind == events.PARTIAL:
            self._rows(event, events.UPDATED, 2, _VALUES)
        elif kind == events.TABLE_MAP:
            self._tables[event[HEADER.size : HEADER.size + 6]] = self._table(event)
        elif kind in events.GTIDS:
            self._begin(events.gtid_of(event), event)
        elif kind == events.XID:
            self._end()
        elif kind == events.QUERY:
            self._query(events.query_of(event, self._charsets))
        elif kind == events.XA_PREPARE:
            self._end()  # its rows were refused, if it had any of these tables
        elif kind == events.INCIDENT:
            raise self._unfit("the server says that events are missing here (INCIDENT)")
        elif kind not in events.CONSEQUENT:
            raise self._unfit(f"it has an event of the type {kind}, which is not supported")

    def _begin(self, gtid: Gtid, event: bytes) -> None:
        if self._gtid is not None:
            raise BinlogBroken(event=f"GTID {gtid}", problem=f"{self._gtid} has not ended")
        self._gtid, self._tables, self._bytes = gtid, {}, 0
        if gtid.domain == self._domain:
            self.open = ReadTransaction(gtid, [event], len(event))
        if gtid.sequence < self.reached.get(gtid.domain, 0):
            last = self.reached[gtid.domain] - 1
            raise self._unfit(f"the numbers of its domain go back: the last one was {last}")
        if "-" in gtid.domain and gtid.sequence != max(1, self.reached.get(gtid.domain, 0)):
            raise self._unfit(f"it comes after {self.reached.get(gtid.domain, 1) - 1}: those in between are missing")

    def _table(self, event: bytes) -> _KnownTable:
        body = event[HEADER.size :]
        known = self._shapes.get(body)
        if known is None:
            at = 8
            size = body[at]
            database, at = body[at + 1 : at + 1 + size].decode(), at + size + 2
            name = body[at + 1 : at + 1 + body[at]].decode()
            stream = self._streams.get((database, name), "")
            known = self._described(event, stream) if stream else _KnownTable("")
            if len(self._shapes) > 4096:  # numbers of tables change with each ALTER
                self._shapes.clear()
            self._shapes[body] = known
        return known

    def _described(self, event: bytes, stream: str) -> _KnownTable:
        """Return a followed table."""
        if stream in self.over:
            return _KnownTable(stream, changed=self.over[stream])
        if self._known is not None and stream not in self._known:  # one that is yet to join
            return _KnownTable(stream, changed="its columns are not known")
        try:
            names = None if self._known is None else partial(named, self._known[stream])
            shape = shape_of(event, self._charsets, names, mysql="-" in self._domain)
        except BinlogTableChanged as error:
            return _KnownTable(stream, changed=error.evidence["detail"])
        except BinlogBroken as error:
            return _KnownTable(stream, untold=error.evidence["problem"])
        count = len(shape.columns)
        present = ((1 << count) - 1).to_bytes((count + 7) // 8, "little")
        return _KnownTable(stream, shape.encoded(), count, present)

    def _rows(self, event: bytes, done: int, version: int, why: str = "") -> None:
        """Take in rows. why: they cannot be followed, if they cannot be."""
        gtid = self._gtid
        table = self._tables.get(event[HEADER.size : HEADER.size + 6])
        if gtid is None or table is None:
            raise BinlogBroken(event="rows", problem="it stands in no transaction, or its table was not described")
        before = self._bytes
        self._bytes += len(event)
        if not table.stream or self._passes(gtid, table.stream):
            return
        if self._bytes > _MOST:
            raise self._unfit(f"it has more than {_MOST} bytes of changes")
        if table.changed:
            self._stop(table.stream, ENDED, detail=table.changed)
            return
        at = HEADER.size + 8
        if version == 2:
            at += int.from_bytes(event[at : at + 2], "little")
        count, at = events.packed(event, at)
        bitmaps = (2 if done == events.UPDATED else 1) * len(table.present)
        partial_ = count != table.columns or not _full(event[at : at + bitmaps], table.present)
        if problem := table.untold or why or self._unordered(gtid) or (_PARTIAL if partial_ else ""):
            self._stop(table.stream, UNTOLD, gtid=str(gtid), problem=problem)
            return
        images = event[at + bitmaps :]
        pending = self._pending.get(table.stream)
        if pending is None or pending.shape != table.shape:
            self._cut(table.stream)
            pending = self._pending[table.stream] = _OpenImages(table.shape)
        pending.index.append((before, len(images), done))
        pending.images.append(images)
        pending.size += len(images)
        if pending.size > self._filed:
            self._cut(table.stream)

    def _unordered(self, gtid: Gtid) -> str:
        """Return why the place of a transaction among the others is not known, "" where it is."""
        if gtid.domain != self._domain:
            of = "server" if "-" in gtid.domain else "domain"
            return f"it is of the {of} {gtid.domain}, and the order of two {of}s is not defined"
        return "it was prepared by XA, and is in the log before it is committed" if gtid.prepared else ""

    def _stop(self, stream: str, kind: int, **said: str) -> None:
        """End a stream in the transaction that is under way, once."""
        gtid = self._gtid
        assert gtid is not None  # noqa: S101 - it is under way
        self._cut(stream)
        chunks = self._open.setdefault(stream, [])
        if not chunks or chunks[-1].kind != kind:
            chunks.append(ending((gtid.domain, gtid.sequence, gtid.at), kind, **said))

    def _query(self, said: LoggedStatement) -> None:
        gtid, statement = self._gtid, said.texts[0]
        word = statement[:9].upper().rstrip(" ;")
        if gtid is None:
            raise BinlogBroken(event=f"the statement {statement[:60]!r}", problem="it stands in no transaction")
        if word == "BEGIN" and gtid.standalone:
            self._gtid = replace(gtid, standalone=False)
        if word == "XA START":  # of MySQL, which says it nowhere else
            self._gtid = replace(gtid, standalone=False, prepared=True)
        if word == "BEGIN" or word.startswith(("SAVEPOINT", "XA START", "XA END")):
            return
        if word == "COMMIT":
            self._end()
        elif word == "ROLLBACK":
            if statement.upper().strip(" ;") != "ROLLBACK":
                if self._pending or self._open:
                    raise self._unfit("a part of it was rolled back after it was in the log")
                return
            self._pending, self._open = {}, {}
            self._end()
        else:
            self._means(gtid, said)
            if gtid.standalone or word.startswith("XA "):
                self._end()

    def _means(self, gtid: Gtid, said: LoggedStatement) -> None:
        how = {"named": self._known is None, "alone": gtid.standalone, "escapes": said.escapes}
        followed = self._streams.keys()
        found = next(filter(None, (meaning(said.database, one, followed, **how) for one in said.texts)), None)
        shown = " ".join(said.texts[0].split())[:200]
        if found is None:
            return
        if found.kind == "unseen":
            raise self._unfit(f"it is in the log as a statement, without its rows: {shown}")
        for stream in (self._streams[one] for one in found.tables):
            if self._passes(gtid, stream):
                continue
            if found.kind == "emptied":
                self._stop(stream, EMPTIED, gtid=str(gtid), statement=shown)
            else:
                self._stop(stream, ENDED, detail=f"{gtid} is: {shown}")

    def _cut(self, stream: str) -> None:
        """Make a chunk of the pending changes of a stream, in a file if it is large."""
        gtid, pending = self._gtid, self._pending.pop(stream, None)
        if pending is None:
            return
        assert gtid is not None  # noqa: S101 - rows stand in a transaction
        index, images = np.array(pending.index, INDEX).tobytes(), b"".join(pending.images)
        place, count = (gtid.domain, gtid.sequence, gtid.at), len(pending.index)
        if pending.size <= self._filed:
            chunk = RowsChunk(*place, INLINE, pending.shape, count, index, images)
        else:
            path, start = self._write(gtid.sequence, index + images)
            size = len(index) + len(images)
            chunk = RowsChunk(*place, FILED, pending.shape, count, file=path, start=start, size=size)
        self._open.setdefault(stream, []).append(chunk)

    def _end(self) -> None:
        gtid = self._gtid
        if gtid is None:
            raise BinlogBroken(event="the end of a transaction", problem="none has begun")
        for stream in list(self._pending):
            self._cut(stream)
        for stream, chunks in self._open.items():
            if self.aside.takes(stream, chunks):
                continue
            self._whole.setdefault(stream, []).extend(chunks)
            self.size += sum(len(one.data) for one in chunks)
            for chunk in (one for one in chunks if one.kind == ENDED):
                self._over_from(stream, chunk)
        self.reached[gtid.domain] = max(self.reached.get(gtid.domain, 0), gtid.sequence + 1)
        self._gtid, self._open = None, {}
        if self.open is not None:
            self.last, self.open = self.open, None

    def _over_from(self, stream: str, chunk: RowsChunk) -> None:
        """Take in that a table is another one from here on: without names in the log its columns are not known."""
        self.ended[stream] = chunk
        if self._known is not None and stream not in self.over:
            self.over[stream] = json.loads(chunk.data)["detail"]
            self._shapes.clear()

    def _unfit(self, problem: str) -> BinlogUnfit:
        return BinlogUnfit(gtid=str(self._gtid), source=self._source, problem=problem)


def _full(bitmaps: bytes, present: bytes) -> bool:
    """Whether bitmaps have all bits of one that means all columns. MySQL sets those behind the last column as well.

    >>> _full(b"\\x03\\xff", b"\\x03"), _full(b"\\x03\\x02", b"\\x03"), _full(b"", b"\\x03")
    (True, False, False)
    """
    if bitmaps in (present, present + present):
        return True
    size, wanted = len(present), int.from_bytes(present, "little")
    parts = [int.from_bytes(bitmaps[at : at + size], "little") for at in range(0, len(bitmaps), size)]
    return bool(parts) and all(part & wanted == wanted for part in parts)
