"""Benches for `check_push_source`: each source that pushes on a log of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegauge.remap.frontier import Frontier
from tidegauge.sources import SocketSource
from tidegauge.sources.push.protocol import PushSource
from tidegauge.testing import LogServer
from tidegauge.testing.kit import PushedRecord

__all__ = ["JournalBench", "SocketBench"]

STREAMS = {"even": "n long", "odd": "n long, name string"}


@dataclass
class SocketBench:
    """A log of two partitions over a socket, to which records of two streams are appended in turn."""

    log: LogServer
    source: PushSource = field(init=False)
    number: int = 0

    def __post_init__(self) -> None:
        self.source = SocketSource(self.log.host, self.log.port, columns=STREAMS)

    def add(self, count: int) -> list[PushedRecord]:
        taken, self.number = range(self.number, self.number + count), self.number + count
        return [self._append(n) for n in taken]

    def _append(self, n: int) -> PushedRecord:
        row = {"n": n, "name": f"row {n}"} if n % 2 else {"n": n}
        stream, partition = "odd" if n % 2 else "even", f"p{n % 3 % 2}"
        return PushedRecord(stream, partition, self.log.append(row, stream=stream, partition=partition), row)

    def spoil(self) -> bytes:
        raw = b'{"n": "surely not a number"}'
        self.log.write(raw, stream="even", partition="p0")
        return raw

    def cut(self) -> None:
        self.log.cut()

    def lose(self) -> None:
        self.log.forget("p0", 1)

    def restore(self, end: Frontier) -> None:
        self.log.restore(end)

    def recreate(self) -> None:
        self.log.replace("another log")

    def finish(self) -> None:
        self.log.seal()

    def close(self) -> None:
        self.log.__exit__(None, None, None)


@dataclass
class JournalBench:
    """The journal of the page that shows how to write a source that pushes."""

    folder: Path
    made: Any
    """The source's class."""
    source: PushSource = field(init=False)
    number: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.source = self.made(str(self.folder / "journal.db"))
        columns = "position INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER, name TEXT"
        self._execute(f"CREATE TABLE journal ({columns})", [()])

    def _execute(self, statement: str, rows: Sequence[Sequence[object]]) -> list[int | None]:
        """Execute a statement for each row, in a transaction; return the ids of the rows that it inserted."""
        with closing(sqlite3.connect(self.folder / "journal.db")) as database, database:
            return [database.execute(statement, row).lastrowid for row in rows]

    def add(self, count: int) -> list[PushedRecord]:
        taken, self.number = range(self.number, self.number + count), self.number + count
        rows = [{"id": n, "name": f"row {n}"} for n in taken]
        places = self._execute("INSERT INTO journal (id, name) VALUES (?, ?)", [tuple(row.values()) for row in rows])
        return [PushedRecord("", "journal", at or 0, row) for at, row in zip(places, rows, strict=True)]

    def restore(self, end: Frontier) -> None:
        self._execute("DELETE FROM journal WHERE position >= ?", [(end["journal"],)])
        self._execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'journal'", [(end["journal"] - 1,)])
