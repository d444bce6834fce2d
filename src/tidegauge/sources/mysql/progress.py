"""How far the reading of first rows has come, durably: which rows are in files by now.

    {"begun": "3-57-9", ...}                       the place of the first transaction that read rows
    {"attempt": "a1"}                              from here on the reading of this name counts, and no other
    {"of": "a1", "mark": ...}                      the last transaction before the place where it reads
    {"of": "a1", "table": ..., "facts": ...}       a table: nothing of it is read, or is to count
    {"of": "a1", "rows": ..., "piece": ..., ...}   rows that are in a file, up to a key in the table's order

A reader that outlives its session by a moment does no harm: what it notes after the next one has begun is not its.

Invariant: the pieces of a table have all its rows up to a key, or all of them, and no row twice; each was read at a
place from the table's own on. These places are those of the marks.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     progress = ReadingNotes(SourceFolder(folder), "server 57", 0)
...     progress.begin("3-57-9")
...     progress.table("orders", "its facts", "3-57-9")
...     progress.read("orders", None, (b"5",))
...     found = progress.found()
>>> found.begun, found.tables["orders"].upto, found.tables["orders"].whole
('3-57-9', (b'5',), False)
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tidegauge.disk import make_folder, synchronise
from tidegauge.sources.database.folder import SnapshotPiece, SourceFolder
from tidegauge.sources.database.lines import NotedLines
from tidegauge.sources.mysql.keyed import Key
from tidegauge.sources.mysql.marks import LogMark

__all__ = ["FoundRows", "ReadRows", "ReadingNotes"]

_NAME: Final = "progress.jsonl"


@dataclass(slots=True)
class ReadRows:
    """The rows of a table that are in files. since: the place of the first of them, as the server writes it. facts:
    what must still be so for them to count. upto: the last key. whole: whether they are all rows."""

    facts: str
    since: str
    pieces: list[SnapshotPiece] = field(default_factory=list)
    upto: Key | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows that were read before. begun: "" where nothing is known. marks: of each place at which they were read.
    tables: by stream."""

    begun: str
    marks: tuple[LogMark, ...]
    tables: Mapping[str, ReadRows]


class ReadingNotes:
    """The notes in the folder of a reading. identity: of the server. incarnation: of the source."""

    def __init__(self, folder: SourceFolder, identity: str, incarnation: int) -> None:
        self._folder: Final = folder.snapshot
        self._life: Final = [identity, incarnation]
        self._lines: Final = NotedLines(self._folder / _NAME, folder.changing)
        self._changing: Final = folder.changing
        self._attempt: Final = uuid.uuid4().hex[:12]
        make_folder(self._folder)
        self._lines.append({"attempt": self._attempt})
        synchronise(self._folder)

    def begin(self, gtids: str) -> None:
        """Note that rows are read from a place on; none were read before."""
        self._lines.append({"begun": gtids, "life": self._life})
        self._lines.append({"attempt": self._attempt})

    def mark(self, mark: LogMark) -> None:
        """Note the last transaction before the place at which rows are read now."""
        self._note({"mark": asdict(mark)})

    def table(self, stream: str, facts: str, since: str) -> None:
        """Note that a table is read from now on; nothing of it was read."""
        self._note({"table": stream, "facts": facts, "since": since})

    def read(self, stream: str, piece: SnapshotPiece | None, upto: Key | None) -> None:
        """Note rows up to a key, None for the last one. They are in a piece of a file, which is on the disk."""
        synchronise(self._folder)
        shown = None if upto is None else [one.decode("latin-1") for one in upto]
        self._note({"rows": stream, "piece": None if piece is None else asdict(piece), "upto": shown})

    def found(self) -> FoundRows:
        """Return the rows that were read before. A table whose files are not there has none."""
        try:
            return self._found()
        except (ValueError, KeyError, TypeError, AttributeError):  # somebody else wrote into it
            return FoundRows("", (), {})

    def _found(self) -> FoundRows:
        begun, marks, tables, attempt = "", list[LogMark](), dict[str, ReadRows](), ""
        for said in self._lines.found():
            if "begun" in said:
                begun = said["begun"] if said["life"] == self._life else ""
                marks, tables = [], {}
            elif "attempt" in said:
                attempt = said["attempt"]
            elif said["of"] != attempt:
                continue
            elif "mark" in said:
                marks.append(LogMark(**said["mark"]))
            elif "table" in said:
                tables[said["table"]] = ReadRows(said["facts"], said["since"])
            elif (table := tables.get(said["rows"])) is not None:
                table.pieces += [] if said["piece"] is None else [SnapshotPiece(**said["piece"])]
                table.whole = said["upto"] is None
                table.upto = None if table.whole else tuple(one.encode("latin-1") for one in said["upto"])
        there = {stream: one for stream, one in tables.items() if all(piece.there for piece in one.pieces)}
        return FoundRows(begun, tuple(marks), there if begun else {})

    def tidy(self) -> None:
        """Remove the files whose rows do not count: of attempts that were cut off."""
        kept = {Path(piece.file) for one in self.found().tables.values() for piece in one.pieces}
        with self._changing():
            for path in self._folder.iterdir():
                if path not in kept and path.name != _NAME:
                    path.unlink(missing_ok=True)

    def _note(self, said: Mapping[str, Any]) -> None:
        self._lines.append({"of": self._attempt, **said})
