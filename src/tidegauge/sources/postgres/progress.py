"""How far the reading of first rows is: a file of lines. A line is durable before it counts.

    {"since": 4711}                             the place where the slot begins
    {"at": 4800}                                the place of a snapshot under which ranges are read
    {"plan": "a1", "stream": ..., "facts": ...}  a table, how it is stored, and its ranges
    {"of": "a1", "range": 0, "pieces": ...}      a range that is in a file, whole

A line that was cut off by a crash says nothing. A later plan for a stream takes the place of an earlier one, whose
ranges count no more; so a reader that outlives its session by a moment can do no harm.

Invariant: a range that is here is in its file, and was read of the table with these facts at a place from `since` on.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     progress = RowsProgress(Path(folder))
...     progress.begin(64)
...     plan = progress.plan("orders", "its facts", [PageRange(0, 8), PageRange(8, None)])
...     progress.read(plan, PageRange(0, 8), [])
...     found = progress.found()
>>> found.since, found.plans["orders"].missing
(64, (PageRange(lower=8, upper=None),))
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from tidegauge.disk import make_folder, synchronise
from tidegauge.sources.database.folder import SnapshotPiece
from tidegauge.sources.database.lines import NotedLines
from tidegauge.sources.postgres.ranges import PageRange

__all__ = ["FoundProgress", "RangesPlan", "RowsProgress"]

_NAME: Final = "progress.jsonl"


@dataclass(frozen=True, slots=True)
class RangesPlan:
    """How a table is read. facts: what must still be so for its ranges to count. read: pieces by the first page."""

    name: str
    facts: str
    ranges: tuple[PageRange, ...]
    read: dict[int, tuple[SnapshotPiece, ...]] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[PageRange, ...]:
        """The ranges that are yet to be read."""
        return tuple(one for one in self.ranges if one.lower not in self.read)


@dataclass(frozen=True, slots=True)
class FoundProgress:
    """The ranges that were read before. since: where the slot begins, 0 where nothing is known. at: the last
    place of a snapshot. plans: by stream."""

    since: int
    at: int
    plans: Mapping[str, RangesPlan]


@dataclass(frozen=True, slots=True)
class RowsProgress:
    """The file, in a folder. Its methods may be called by several threads. changing: holds it for a change."""

    folder: Path
    changing: Callable[[], AbstractContextManager[None]] = field(default=nullcontext, compare=False)

    def begin(self, since: int) -> None:
        """Note where the slot begins."""
        make_folder(self.folder)
        self._notes.append({"since": since})
        synchronise(self.folder)

    def attempt(self, at: int) -> None:
        """Note that ranges are read under a snapshot at a place."""
        self._notes.append({"at": at})

    def plan(self, stream: str, facts: str, ranges: Sequence[PageRange]) -> RangesPlan:
        """Note how a table is read from now on; nothing of it was read."""
        made = RangesPlan(uuid.uuid4().hex[:12], facts, tuple(ranges))
        listed = [[one.lower, one.upper] for one in ranges]
        self._notes.append({"plan": made.name, "stream": stream, "facts": facts, "ranges": listed})
        return made

    def read(self, plan: RangesPlan, pages: PageRange, pieces: Sequence[SnapshotPiece]) -> None:
        """Note that a range is in a file, which is on the disk and has its name."""
        synchronise(self.folder)
        self._notes.append({"of": plan.name, "range": pages.lower, "pieces": [asdict(one) for one in pieces]})
        plan.read[pages.lower] = tuple(pieces)

    def found(self) -> FoundProgress:
        """Return all notes. Ranges whose files are not there count as missing."""
        since, at, plans, names = 0, 0, dict[str, RangesPlan](), dict[str, RangesPlan]()
        for said in self._notes.found():
            if "since" in said:
                since, at, plans, names = said["since"], said["since"], {}, {}
            elif "at" in said:
                at = max(at, said["at"])
            elif "plan" in said:
                ranges = tuple(PageRange(*one) for one in said["ranges"])
                plans[said["stream"]] = names[said["plan"]] = RangesPlan(said["plan"], said["facts"], ranges)
            elif said["of"] in names:
                pieces = tuple(SnapshotPiece(**one) for one in said["pieces"])
                if all(one.there for one in pieces):
                    names[said["of"]].read[said["range"]] = pieces
        return FoundProgress(since, at, plans)

    def tidy(self) -> None:
        """Remove the files that no range has: of attempts that were cut off."""
        kept = {
            Path(one.file) for plan in self.found().plans.values() for found in plan.read.values() for one in found
        }
        with self.changing():
            for path in self.folder.iterdir():
                if path not in kept and path.name != _NAME:
                    path.unlink(missing_ok=True)

    @property
    def _notes(self) -> NotedLines:
        return NotedLines(self.folder / _NAME, self.changing)
