"""Transactions as they come, message by message: the changes of each table, until the commit.

A transaction that grows beyond `SPILL` bytes is written to files as it comes, so memory does not grow with it.

A table of another name or number is not the one that was declared: its stream ends there, and the others go on.

The chunks of a table that came later are set aside (`aside`) up to the place at which its first rows are given.

Invariants. Only a commit gives chunks, and `end` for tables that the log does not tell of. `reached` is the first
place from where on changes are still to come: one beyond the last commit, or where the server said that it is when no
transaction was under way.

>>> gathering = Gathering({("public", "orders"): "orders"}, 0, write=lambda lsn, data: ("file", 0))
>>> gathering.progress(0x20)
>>> gathering.reached, gathering.taken()
(32, {})
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from tidegauge.errors.postgressource import ReplicationBroken
from tidegauge.remap.fromtime.lsn import Lsn
from tidegauge.sources.database.records import INLINE
from tidegauge.sources.postgres.chunks import EMPTIED, ENDED, FILED, Chunk, ManyChunks
from tidegauge.sources.postgres.identities import PartitionIdentities
from tidegauge.sources.postgres.many import WholeTransactions
from tidegauge.sources.postgres.wire import (
    CHANGES,
    PASSED,
    Begin,
    TableShape,
    begin_of,
    commit_of,
    relation_of,
    truncated,
)
from tidegauge.sources.postgres.witness import Comparison, LastTransaction

__all__ = ["SPILL", "Gathering", "LaterPlaces"]

SPILL: Final = 4 << 20
"""Bytes of a transaction from which on it is written to files."""
_FILED: Final = 2 << 20
"""Bytes of a chunk in a file."""
_MOST: Final = 1 << 31
"""Changes of a transaction in one table: `_sequence` counts no further."""
_NEVER: Final = 1 << 63
"""A place that no log comes to."""
_INSERT: Final = ord("I")
_OID: Final = struct.Struct(">I")
_NO_SHAPE: Final = TableShape(0, "", "", ()).encoded()


@dataclass(frozen=True, slots=True)
class LaterPlaces:
    """Of a stream that came later: the place of its first rows, and the place up to which they wait."""

    since: int
    place: int = _NEVER


@dataclass(slots=True)
class _OpenChanges:
    """Changes of one table in the transaction that is under way."""

    shape: str
    first: int
    messages: list[bytes] = field(default_factory=list)
    size: int = 0


class Gathering:
    """The changes that are here.

    streams: the names of streams by schema and table. oids: the server's numbers of these tables, where known. write:
    writes the bytes of a transaction to a file, and returns its path and where they begin there. comparing: for the
    transactions before a place, given or, before `reached`, not. later: the places of the streams that came later.
    spill: in place of `SPILL`.
    """

    def __init__(
        self,
        streams: Mapping[tuple[str, str], str],
        reached: int,
        write: Callable[[int, bytes], tuple[str, int]],
        oids: Mapping[str, int] | None = None,
        comparing: Comparison | None = None,
        later: Mapping[str, LaterPlaces] | None = None,
        spill: int | None = None,
    ) -> None:
        self.reached = self._since = reached
        self.unsaid: Final[dict[str, str]] = {}
        """The streams that ended before the first transaction that is given, with why."""
        self.chunks = 0
        """How many chunks are whole, and not taken."""
        self.size = 0
        """Bytes of these."""
        self.given: Final[dict[str, set[str]]] = {}
        """The columns that changes of streams have which were given before, and are skipped."""
        self._streams: Final = streams
        self._by_name: Final = {".".join(place): stream for place, stream in streams.items()}
        self.aside: Final[dict[str, list[Chunk]]] = {}
        """The chunks of streams that came later, whole, and before the places of these."""
        self.aside_size = 0
        """Bytes of these."""
        self._later: Final = {} if later is None else dict(later)
        self._oids: Final = {} if oids is None else dict(oids)
        self._names: Final = {oid: name for name, oid in self._oids.items()}
        self._over: Final[dict[str, str]] = {}
        """The streams that have ended, and why: each later change of such a table says it again."""
        self._said: Final[set[str]] = set()
        """Those that have a record of it."""
        self._write: Final = write
        self._most: Final = SPILL if spill is None else spill
        self._filed: Final = _FILED if spill is None else spill // 2
        self._watched: Final = {
            oid: found.place if (found := self._later.get(self._streamed(name))) else 0
            for oid, name in self._names.items()
        }
        """The numbers of tables whose transactions are remembered, with the place from which on they are."""
        self._comparing = comparing
        self._touched = False
        """Whether the transaction under way changes a table that is watched."""
        self.last: LastTransaction | None = None
        """The last transaction that did."""
        self._begun: Begin | None = None
        self._identities: Final = PartitionIdentities()
        self._shapes: dict[int, tuple[str, str]] = {}
        """Of each table, by the server's number: its stream, "" for none, and its shape."""
        self._pending: dict[str, _OpenChanges] = {}
        self._taking: dict[bytes, _OpenChanges] = {}
        """Of each table, by its number in messages: where its changes go."""
        self._counts: dict[str, int] = {}
        self._open: dict[str, list[Chunk]] = {}
        self._open_size = 0
        self._whole: dict[str, list[Chunk | ManyChunks]] = {}

    def progress(self, lsn: int) -> None:
        """Take in that the server has sent everything before a place. Raises `LogRewritten`."""
        if self._begun is None:
            self._compare(lsn)
            self.reached = max(self.reached, lsn)

    def taken(self) -> dict[str, list[Chunk | ManyChunks]]:
        """Return the chunks of each stream that are whole, and forget them."""
        found, self._whole = self._whole, {}
        self.chunks = self.size = 0
        return found

    def set_aside(self) -> dict[str, list[Chunk]]:
        """Return the chunks that are set aside, and forget them."""
        found = dict(self.aside)
        self.aside.clear()
        self.aside_size = 0
        return found

    def expect(self, stream: str) -> None:
        """Set aside the chunks of a stream that came later, from here on."""
        self._later[stream] = LaterPlaces(self.reached)

    def pass_over(self, stream: str) -> None:
        """Take no chunks of a stream that came later, until it is expected; forget those that are set aside."""
        self._later[stream] = LaterPlaces(_NEVER)
        self.aside_size -= sum(len(one.data) for one in self.aside.pop(stream, []))

    def join(self, stream: str, oid: int, place: int) -> None:
        """Take in that a stream that came later is one like the others from a place on, which is the one reached."""
        self._later[stream] = replace(self._later[stream], place=place)
        name = next(name for name, other in self._by_name.items() if other == stream)
        self._oids[name], self._names[oid], self._watched[oid] = oid, name, place

    def end(self, stream: str, detail: str) -> None:
        """End a stream at the place before the one reached: its table is gone, or another one, by now."""
        if stream not in self._said:
            self._said.add(stream)
            self._over.setdefault(stream, detail)
            self._whole.setdefault(stream, []).append(_ended(self.reached - 1, 0, detail, 0))

    def take_at_once(self, found: WholeTransactions) -> bool:
        """Take in transactions, and return True, if there is nothing about them to decide one by one."""
        if self._begun is not None or found.largest > self._most:
            return False
        if self._comparing is not None and found.lsns.max() >= self._comparing.witness.before:
            return False
        oids, codes = np.unique(found.oids, return_inverse=True)
        numbers = oids.tolist()
        if not self._shapes.keys() >= set(numbers) or any(self._identities.changes(one) for one in numbers):
            return False
        tables = [self._shapes[one] for one in numbers]
        streams = [stream for stream, _ in tables if stream]
        later = [self._later[stream] for stream in streams if stream in self._later]
        begun = max([self._since, *(max(one.since, one.place) for one in later)])
        if len({*streams}) < len(streams) or not self._over.keys().isdisjoint(streams) or found.lsns.min() < begun:
            return False
        watched = np.array([min(self._watched.get(one, _NEVER), _NEVER - 1) for one in numbers], np.int64)
        touched = np.flatnonzero(found.lsns[found.of] >= watched[codes])
        if len(touched):
            at = found.of[touched[-1]]
            self.last = LastTransaction(int(found.lsns[at]), int(found.ats[at]), int(found.xids[at]))
            if self._comparing is not None:
                self._comparing.committed(self.last)
        for code, (stream, shape) in enumerate(tables):
            if stream:
                many = found.chunks(shape, slice(None) if len(tables) == 1 else np.flatnonzero(codes == code))
                self._whole.setdefault(stream, []).append(many)
                self.chunks += len(many)
                self.size += many.size
        self.reached = max(self.reached, int(found.lsns.max()) + 1)
        return True

    def take(self, message: bytes) -> None:
        """Take in a message. Raises `ReplicationBroken`, `LogRewritten`."""
        kind = message[0]
        if kind in CHANGES:
            pending = self._taking.get(message[1:5]) or self._begin(message)
            if pending is not None:
                size = len(message)
                pending.messages.append(message)
                pending.size += size
                self._open_size += size
                if self._open_size > self._most and pending.size > self._filed:
                    self._spill()
        elif kind == ord("B"):
            self._begun = begin_of(message)
            self._compare(self._begun.lsn)
        elif kind == ord("C"):
            self._commit(message)
        elif kind == ord("R"):
            self._describe(relation_of(message))
        elif kind == ord("T"):
            for oid in truncated(message):
                self._empty(oid)
        elif kind not in PASSED:
            raise ReplicationBroken(message=repr(message[:40]), problem="it is of an unknown kind")

    def _describe(self, shape: TableShape) -> None:
        """Take in how a table looks from now on."""
        place, at = (shape.schema, shape.table), Lsn(self._lsn)
        name, stream = ".".join(place), self._streams.get(place, "")
        if (was := self._names.get(shape.oid, name)) != name:
            self._end(self._by_name.get(was, ""), f"it has the name {name} at {at}")
        if self._oids.get(name, shape.oid) != shape.oid:
            self._end(stream, f"it was dropped and made again before {at}")
        self._shapes[shape.oid] = ("" if was != name else stream, shape.encoded())
        if stream and self._passed_over(stream):
            self.given.setdefault(stream, set()).update(shape.columns)
        self._identities.describe(shape, followed=bool(stream))
        self._taking = {}

    def _end(self, stream: str, detail: str) -> None:
        """End a stream in the transaction that is under way, once."""
        if not stream:
            return
        self._over.setdefault(stream, detail)
        if self._passed_over(stream):
            self.unsaid[stream] = detail
            return
        self._said.add(stream)
        self._cut(stream)
        if (chunks := self._open.get(stream)) is None or chunks[-1].kind != ENDED:
            self._add(stream, _ended(self._lsn, self._at, detail, self._counts.get(stream, 0)))

    def _begin(self, message: bytes) -> _OpenChanges | None:
        """Return where the changes of a table go, beginning with this one; None where nobody wants them."""
        oid = _OID.unpack_from(message, 1)[0]
        stream, shape = self._known(oid, message)
        unfit = self._identities.changes(oid)  # also of what is passed over: what is described next is no partition
        self._touched |= self._lsn >= self._watched.get(oid, _NEVER)
        if not stream or self._passed_over(stream):
            return None
        if stream in self._over:
            self._end(stream, self._over[stream])
            return None
        if unfit and message[0] != _INSERT:
            self._end(stream, f"{unfit} at {Lsn(self._lsn)}")
            return None
        pending = self._pending.get(stream)
        if pending is None or pending.shape != shape:
            self._cut(stream)
            pending = self._pending[stream] = _OpenChanges(shape, self._counts.get(stream, 0))
        if not unfit:
            self._taking[message[1:5]] = pending
        return pending

    def _known(self, oid: int, message: bytes) -> tuple[str, str]:
        if self._begun is None or oid not in self._shapes:
            problem = "it stands in no transaction" if self._begun is None else f"the table {oid} was not described"
            raise ReplicationBroken(message=repr(message[:40]), problem=problem)
        return self._shapes[oid]

    def _empty(self, oid: int) -> None:
        """Take in that a table was truncated."""
        stream, shape = self._known(oid, b"T")
        self._touched |= self._lsn >= self._watched.get(oid, _NEVER)
        if stream in self._over:
            self._end(stream, self._over[stream])
        elif stream and not self._passed_over(stream):
            self._cut(stream)
            self._add(stream, Chunk(self._lsn, self._at, EMPTIED, shape, self._counts.get(stream, 0), 0))

    def _spill(self) -> None:
        """Write to files the large parts of the transaction; small parts of other tables stay."""
        for stream in [one for one, pending in self._pending.items() if pending.size > self._filed]:
            self._cut(stream, filed=True)

    def _cut(self, stream: str, *, filed: bool = False) -> None:
        """Make a chunk of the pending changes of a stream."""
        pending = self._pending.pop(stream, None)
        if pending is None:
            return
        self._taking = {}
        count = len(pending.messages)
        self._counts[stream] = pending.first + count
        if self._counts[stream] > _MOST:
            problem = f"it changed more than {_MOST} rows of {stream}, and no more can be told apart"
            raise ReplicationBroken(message=f"a transaction at {self._lsn}", problem=problem)
        lengths, data = struct.pack(f"<{count}I", *map(len, pending.messages)), b"".join(pending.messages)
        if not filed:
            self._add(stream, Chunk(self._lsn, self._at, INLINE, pending.shape, pending.first, count, lengths, data))
            return
        path, start = self._write(self._lsn, lengths + data)
        self._open_size -= pending.size
        size = len(lengths) + len(data)
        chunk = Chunk(
            self._lsn, self._at, FILED, pending.shape, pending.first, count, file=path, start=start, size=size
        )
        self._add(stream, chunk)

    def _add(self, stream: str, chunk: Chunk) -> None:
        self._open.setdefault(stream, []).append(chunk)

    def _passed_over(self, stream: str) -> bool:
        """Whether the changes of the transaction under way in a stream were given before."""
        later = self._later.get(stream)
        return self._lsn < (self._since if later is None or later.place <= self._since else later.since)

    def _streamed(self, name: str) -> str:
        return self._by_name.get(name, "")

    @property
    def _lsn(self) -> int:
        return 0 if self._begun is None else self._begun.lsn

    @property
    def _at(self) -> int:
        return 0 if self._begun is None else self._begun.at

    def _commit(self, message: bytes) -> None:
        if self._begun is None or commit_of(message) != self._begun.lsn:
            raise ReplicationBroken(
                message=repr(message[:40]), problem="it is no commit of the transaction under way"
            )
        for stream in list(self._pending):
            self._cut(stream)
        begun = self._begun
        if self._touched:
            self.last = LastTransaction(begun.lsn, begun.at, begun.xid)
            if self._comparing is not None:
                self._comparing.committed(self.last)
        for stream, chunks in self._open.items():
            if (later := self._later.get(stream)) is not None and begun.lsn < later.place:
                self.aside.setdefault(stream, []).extend(chunks)
                self.aside_size += sum(len(one.data) for one in chunks)
                continue
            self._whole.setdefault(stream, []).extend(chunks)
            self.chunks += len(chunks)
            self.size += sum(len(one.data) for one in chunks)
        self.reached = max(self.reached, begun.lsn + 1)
        self._begun, self._open, self._open_size, self._counts, self._taking = None, {}, 0, {}, {}
        self._touched = False

    def _compare(self, place: int) -> None:
        """Take in that everything before a place has come, where that is compared."""
        if self._comparing is not None and self._comparing.passed(place):
            self._comparing = None


def _ended(lsn: int, at: int, detail: str, first: int) -> Chunk:
    return Chunk(lsn, at, ENDED, _NO_SHAPE, first, 0, data=detail.encode())
