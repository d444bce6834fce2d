"""The folder of a source: what the server gives once, and is needed until every output has it.

    columns.json   the columns of each table when it was declared first
    stream.json    where the stream of changes begins, with the server's numbers of the tables, and the snapshot
    told.json      how far the server was told that everything is durable
    witness.json   of PostgreSQL: the last transaction before the place up to which it is bound
    marks.json     of MariaDB: the last transaction that all outputs have
    later.json     the tables that came later, whose rows are in later/, and those that were taken out
    writer.json    which connection may write: see `writing`
    snapshot/      the rows as they were at that place, as text
    spill/         large transactions that wait for their epoch

Invariants. `stream.json` names a slot before it is made, so one that is found is known to be this flow's. It says
where the snapshot is only when all of it is on the disk. What `spill` holds comes again, and `told.json` only tells
errors apart; all else is written durably. In a folder that was taken over, a connection of before changes nothing.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as path:
...     folder = SourceFolder(path)
...     folder.keep_stream(LogBeginning("shop_slot", "server 1", 0, point=64))
...     folder.stream().begins, folder.columns(), folder.told()
('shop_slot', None, 0)
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidegauge.disk import make_folder, synchronise, write_durably
from tidegauge.errors.databases import FolderDamaged, FolderTaken
from tidegauge.sources.database.writing import FolderWriter, begun

__all__ = ["LogBeginning", "SnapshotPiece", "SourceFolder", "numbered"]

_SHOWN: Final = 200
_ABSENT: Final = object()
_RUN: Final = uuid.uuid4().hex
"""Tells what this process spilled from what others left."""


@dataclass(frozen=True, slots=True)
class SnapshotPiece:
    """Some rows of a snapshot: where their lines are in a file, how many, and the number of the first.

    without: a file of the keys whose rows are left out, "" for none.
    """

    file: str
    start: int
    size: int
    count: int
    first: int
    without: str = ""

    @property
    def there(self) -> bool:
        """Whether its files are there, at least as long as they were."""
        file = Path(self.file)
        whole = file.is_file() and file.stat().st_size >= self.start + self.size
        return whole and (not self.without or Path(self.without).is_file())


def numbered(pieces: Iterable[SnapshotPiece]) -> tuple[SnapshotPiece, ...]:
    """Return pieces with the numbers of their first rows.

    >>> [one.first for one in numbered([SnapshotPiece("a", 0, 64, 5, 0), SnapshotPiece("b", 0, 32, 2, 0)])]
    [0, 5]
    """
    found: list[SnapshotPiece] = []
    for piece in pieces:
        first = found[-1].first + found[-1].count if found else 0
        found.append(replace(piece, first=first))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class LogBeginning:
    """Where a stream begins: a slot by its name, or the GTIDs before it. identity: of the server. incarnation: of the
    source. point: the place in the log, where the snapshot is, 0 while both are being made. at: when that was, in
    microseconds since 1970.

    pieces, shapes: of the snapshot, by stream. done: every output has it, and its files are gone. oids: the tables
    with which it began, with the server's numbers of them, 0 where it has none.
    """

    begins: str
    identity: str
    incarnation: int
    point: int = 0
    at: int = 0
    pieces: Mapping[str, Sequence[SnapshotPiece]] = field(default_factory=dict)
    shapes: Mapping[str, str] = field(default_factory=dict)
    done: bool = False
    oids: Mapping[str, int] = field(default_factory=dict)

    def later(self, names: Mapping[str, str]) -> set[str]:
        """Return the streams that came after it, as far as that is known. names: theirs, by the tables' whole names.

        >>> began = LogBeginning("slot", "server 1", 0, point=96, oids={"shop.orders": 7})
        >>> began.later({"shop.orders": "orders", "shop.users": "users"})
        {'users'}
        """
        if not (self.point and self.oids):
            return set()
        return {stream for name, stream in names.items() if name not in self.oids}


@dataclass(frozen=True, slots=True)
class SourceFolder:
    """The folder. writer: the connection that has it; anybody may write where there is none."""

    path: str
    writer: FolderWriter | None = field(default=None, compare=False, repr=False)

    def taken_over(self, confirm: Callable[[], object]) -> SourceFolder:
        """Return the folder as one that a new connection alone may change. See `writing.begun`."""
        return replace(self, writer=begun(self.path, confirm))

    def changing(self) -> AbstractContextManager[None]:
        """Hold it for a change of its files. Raises `FolderTaken`."""
        return nullcontext() if self.writer is None else self.writer.alone()

    def columns(self) -> Mapping[str, pa.Schema] | None:
        """Return the columns of tables, by their names, that were declared first, None before."""
        with self._understood("columns.json"):
            found = self._read("columns.json")
            return None if found is _ABSENT else _declared(found)

    def keep_columns(self, columns: Mapping[str, pa.Schema]) -> None:
        """Keep the columns."""
        said = {
            name: {
                "columns": {one.name: str(one.type) for one in schema},
                "arrow": base64.b64encode(schema.serialize().to_pybytes()).decode(),
            }
            for name, schema in columns.items()
        }
        self._write("columns.json", said)

    def stream(self) -> LogBeginning | None:
        """Return where the stream begins, None where it has not begun."""
        with self._understood("stream.json"):
            found = self._read("stream.json")
            return None if found is _ABSENT else _recorded(found)

    def keep_stream(self, record: LogBeginning) -> None:
        """Keep where the stream begins."""
        self._write("stream.json", asdict(record))

    def told(self) -> int:
        """Return the place before which the server was told that everything is durable, 0 where that is not known."""
        try:
            return int(self._read("told.json")["before"])
        except (ValueError, KeyError, TypeError):  # it is not written durably: a power cut may empty it
            return 0

    def keep_told(self, lsn: int) -> None:
        """Keep that the server is about to be told."""
        self._write("told.json", {"before": lsn}, durable=False)

    def noted(self, name: str) -> Any:
        """Return what a source noted under the name of a file, None where it did not. Raises `ValueError`."""
        found = self._read(name)
        return None if found is _ABSENT else found

    def note(self, name: str, said: Any, *, durable: bool) -> None:
        """Note JSON under the name of a file. Without `durable` it outlives the process, not a power cut."""
        self._write(name, said, durable=durable)

    def whole(self, record: LogBeginning) -> bool:
        """Whether all files of a snapshot are there, at least as long as they were."""
        return all(piece.there for pieces in record.pieces.values() for piece in pieces)

    @property
    def snapshot(self) -> Path:
        """Where the files of the snapshot are."""
        return Path(self.path, "snapshot")

    def clear_snapshot(self) -> None:
        """Remove the files of the snapshot."""
        with self.changing():
            shutil.rmtree(self.snapshot, ignore_errors=True)

    def spill(self, lsn: int, data: bytes) -> tuple[str, int]:
        """Write bytes of a transaction to its file, and return its path and where they begin. Raises `OSError`.

        Each connection has files of its own: one that is given up may still be at its last transaction.
        """
        by = "" if self.writer is None else self.writer.by
        path = Path(self.path, "spill", f"{lsn:016X}-{_RUN}{by}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            start = file.tell()
            file.write(data)
        return str(path), start

    def clear_spill(self, before: int) -> None:
        """Remove the transactions before a place, and what other processes left."""
        self._forget(lambda lsn, run: not run.startswith(_RUN) or lsn < before)

    def forget_spill(self, from_lsn: int) -> None:
        """Remove the transactions from a place on, which come again."""
        self._forget(lambda lsn, _run: lsn >= from_lsn)

    def _forget(self, over: Callable[[int, str], bool]) -> None:
        with self.changing():
            for name in _names(Path(self.path, "spill")):
                lsn, _, run = name.partition("-")
                if over(int(lsn, 16), run):
                    with suppress(OSError):
                        Path(self.path, "spill", name).unlink()

    @contextmanager
    def _understood(self, name: str) -> Iterator[None]:
        """Raise `FolderDamaged` for a file that has something else in it."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowInvalid, RecursionError) as error:
            detail = f"{type(error).__name__}: {error}"[:_SHOWN]
            raise FolderDamaged(path=str(Path(self.path, name)), detail=detail) from error

    def _read(self, name: str) -> Any:
        try:
            return json.loads(Path(self.path, name).read_text())
        except FileNotFoundError:
            return _ABSENT

    def _write(self, name: str, said: Any, *, durable: bool = True) -> None:
        folder = Path(self.path)
        make_folder(folder)
        beside = folder / f".{name}.{uuid.uuid4().hex}"
        data = json.dumps(said, indent=1).encode()
        if durable:
            write_durably(beside, data)
        else:
            beside.write_bytes(data)
        try:
            with self.changing():
                beside.replace(folder / name)
        except FolderTaken:
            beside.unlink(missing_ok=True)
            raise
        if durable:
            synchronise(folder)


def _declared(found: Any) -> Mapping[str, pa.Schema]:
    return {name: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(one["arrow"]))) for name, one in found.items()}


def _recorded(found: Any) -> LogBeginning:
    pieces = {stream: tuple(SnapshotPiece(**one) for one in listed) for stream, listed in found.pop("pieces").items()}
    return LogBeginning(**found, pieces=pieces)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
