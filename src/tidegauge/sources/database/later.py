"""Tables that came to a source after it had begun: the durable record of each, made before a row of it is given.

    since    the place of its first rows: they are the table there
    place    where it joins the other tables: its first rows, and what changed from `since` up to here, come together,
             at the place before this one; from here on its changes come as those of all tables do

So the table exists from the epoch on that has the place before `place`, and there it is the database's table. It has
nothing of earlier epochs. Until it joins, its rows that are in files stay there: a reading that is cut off goes on.

Invariant. A table that has a `place` has it for ever, and its first rows are the files that are named here. A table
that was taken out is never followed again: its changes since were ignored.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as path:
...     later = LaterTables(SourceFolder(path), "server 1", 0)
...     later.join([JoinedTable("shop.users", "users", 7, since=64, place=96, at=0, shape="", pieces=(), files="a")])
...     later.leave("shop.orders", 128)
...     found = LaterTables(SourceFolder(path), "server 1", 0)
...     found.joined["shop.users"].place, found.left, LaterTables(SourceFolder(path), "server 2", 0).joined
(96, {'shop.orders': 128}, {})
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tidegauge.errors.databases import FolderDamaged, TableTakenBack
from tidegauge.sources.database.folder import SnapshotPiece, SourceFolder

__all__ = ["JoinedTable", "LaterTables", "RowsUnderWay", "came_later", "joined_places"]

_FILE: Final = "later.json"
_ONE_AT_A_TIME: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class JoinedTable:
    """A table that came later. oid: the server's number, 0 where it has none. at: when its rows were read, in
    microseconds since 1970. files: the folder of these. done: every output has them, and they are gone.

    upto, aside: of a MySQL, the place up to which changes come with the first rows, and the pieces that have them."""

    table: str
    stream: str
    oid: int
    since: int
    place: int
    at: int
    shape: str
    pieces: tuple[SnapshotPiece, ...]
    files: str
    done: bool = False
    upto: int = 0
    aside: tuple[SnapshotPiece, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether its files are there."""
        return all(one.there for one in (*self.pieces, *self.aside))


@dataclass(frozen=True, slots=True)
class RowsUnderWay:
    """First rows that are being read. files: their folder. since: the place of the first snapshot."""

    files: str
    since: int


@dataclass(slots=True)
class LaterTables:
    """The tables that came later, and those that were taken out, of one server and one incarnation of the source."""

    folder: SourceFolder
    identity: str
    incarnation: int
    joined: dict[str, JoinedTable] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    reading: RowsUnderWay | None = None
    earlier: set[str] = field(default_factory=set)
    """The streams that joined in an earlier life of the source: before it began anew, with all tables that it has."""
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    """What the chunks that this connection sets aside are called."""

    def __post_init__(self) -> None:
        self._read()

    def _read(self) -> None:
        said = _noted(self.folder)
        self.earlier.update(said.get("earlier", ()))
        if (said.get("identity"), said.get("incarnation")) != (self.identity, self.incarnation):
            self.earlier.update(one["stream"] for one in said.get("joined", ()))
        else:
            self.joined.update({one["table"]: _joined(one) for one in said["joined"]})
            self.left.update(said["left"])
            self.reading = None if (found := said.get("reading")) is None else RowsUnderWay(**found)

    def begin(self, since: int) -> RowsUnderWay:
        """Keep that first rows are read, from a place on: from now on the server keeps its log from there."""
        with self._anew():
            self.reading = made = RowsUnderWay(uuid.uuid4().hex[:12], since)
        self.tidy()
        return made

    def give_up(self) -> None:
        """Forget the rows of tables that have not joined."""
        if self.reading is not None:
            with self._anew():
                self.reading = None
            self.tidy()

    def join(self, tables: Iterable[JoinedTable]) -> None:
        """Keep that tables join."""
        with self._anew():
            self.joined.update({one.table: one for one in tables})
            if self.reading is not None and self.reading.files in {one.files for one in self.joined.values()}:
                self.reading = None

    def take_out(
        self,
        declared: Collection[str],
        began: Collection[str],
        place: int,
        *,
        source: str,
        shown: Callable[[int], str],
    ) -> None:
        """Keep which tables are not declared any more: they have all before a place, at most.

        began: the tables with which the source began. shown: says a place for people, as it does the source. Raises
        `TableTakenBack` for a table that was taken out and is declared again.
        """
        for table in declared:
            if table in self.left:
                raise TableTakenBack(table=table, source=source, place=shown(self.left[table]))
        for table in {*began, *self.joined} - {*declared} - self.left.keys():
            self.leave(table, place)

    def leave(self, table: str, place: int) -> None:
        """Keep that a table was taken out: it has all before a place, at most."""
        with self._anew():
            self.left[table] = place

    def forget(self, names: Mapping[str, str]) -> None:
        """Forget all of it: the source begins anew, with all tables that it has; before the record of that is kept.

        names: the streams, by the whole names of their tables. Those that had not joined are known to have come, too.
        """
        record = self.folder.stream()
        came = set() if record is None else record.later(names)
        if self.joined or self.left or self.reading or not came <= self.earlier:
            with self._anew():
                self.earlier.update(came, (one.stream for one in self.joined.values()))
                self.joined.clear()
                self.left.clear()
                self.reading = None
            self.tidy()

    def settle(self, before: int, *, coming: bool) -> None:
        """Take in that every output has everything before a place: remove the files that are not needed any more.

        coming: whether chunks of tables that have not joined are set aside.
        """
        over = {
            name: replace(one, pieces=(), aside=(), done=True)
            for name, one in self.joined.items()
            if one.place <= before
        }
        if any(not self.joined[name].done for name in over):
            self.join(over.values())
            self.tidy(coming=coming)

    def tidy(self, *, coming: bool = True) -> None:
        """Remove the files of tables that no output waits for, and the chunks that other connections set aside.

        coming: see `settle`.
        """
        needed = {one.files for one in self.joined.values() if not one.done}
        kept = needed | ({self.reading.files} if self.reading is not None else set())
        with self.folder.changing():
            for path in self.files.iterdir() if self.files.is_dir() else ():
                if path.is_dir():
                    if path.name not in kept:
                        shutil.rmtree(path, ignore_errors=True)
                elif not needed and not (coming and path.stem == self.attempt):
                    path.unlink(missing_ok=True)

    @property
    def files(self) -> Path:
        """Where their files are, each attempt's in a folder of its own."""
        return Path(self.folder.path, "later")

    @property
    def chunks(self) -> Path:
        """The file of the chunks that are set aside."""
        return self.files / f"{self.attempt}.chunks"

    @property
    def held(self) -> int | None:
        """The place from which on the server is to keep its log for them, None where it need not."""
        places = [one.since for name, one in self.joined.items() if not (one.done or name in self.left)]
        return min([*places, *([] if self.reading is None else [self.reading.since])], default=None)

    @contextmanager
    def _anew(self) -> Iterator[None]:
        """Change the present record: a connection that is given up may still be at its last call."""
        with _ONE_AT_A_TIME:
            self._read()
            yield
            self._keep()

    def _keep(self) -> None:
        joined = [asdict(one) for one in self.joined.values()]
        said = {"identity": self.identity, "incarnation": self.incarnation, "joined": joined, "left": self.left}
        if self.earlier:
            said["earlier"] = sorted(self.earlier)
        if self.reading is not None:
            said["reading"] = asdict(self.reading)
        self.folder.note(_FILE, said, durable=True)


def joined_places(folder: SourceFolder) -> dict[str, int]:
    """Return the places at which tables joined, by their streams. Raises `FolderDamaged`."""
    return {one["stream"]: one["place"] for one in _noted(folder).get("joined", [])}


def came_later(folder: SourceFolder, names: Mapping[str, str]) -> dict[str, int | None]:
    """Return the streams that came after their source had begun, with the places at which they join.

    None for one that is yet to join, and 0 for one that did in an earlier life of the source: of the present one it
    has everything. names: the streams, by the whole names of their tables. Raises `FolderDamaged`.
    """
    record = folder.stream()
    if record is None:
        return {}
    places, earlier = joined_places(folder), _noted(folder).get("earlier", ())
    came = {stream: places.get(stream) for stream in record.later(names)}
    again = {stream for name, stream in names.items() if name in record.oids and stream in {*places, *earlier}}
    return {**came, **dict.fromkeys(again, 0)}


def _noted(folder: SourceFolder) -> dict[str, Any]:
    try:
        said = folder.noted(_FILE)
        return {} if said is None else {**said, "joined": list(said["joined"]), "left": dict(said["left"])}
    except (ValueError, KeyError, TypeError) as error:
        raise FolderDamaged(path=str(Path(folder.path, _FILE)), detail=f"{type(error).__name__}: {error}") from error


def _joined(said: dict[str, Any]) -> JoinedTable:
    pieces = {name: tuple(SnapshotPiece(**one) for one in said.get(name, ())) for name in ("pieces", "aside")}
    return JoinedTable(**{**said, **pieces})
