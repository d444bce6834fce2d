"""Marks: which transaction the log had under a number, so that another one in its place is seen.

Numbers alone do not tell. A log that was begun anew (RESET MASTER), or put back from a copy, counts over the numbers
that the flow has; once it is as long again, a flow that goes on by its number misses what came before. So the flow
keeps what it last had, begins one transaction earlier than it must, and compares.

    marks.json       the last transaction that all outputs have: written durably
    marks-new.json   those that were given since: an ended process leaves them, a power cut may not

Invariant: of a mark and a transaction of one number, equal digests mean the same transaction. A digest is made of the
bytes of the events, without their places in the log: of the GTID with its server and time, of the rows, and of
the end. Of a large transaction it has the first events.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as path:
...     marks = LogMarks(SourceFolder(path), 0, before=5)
...     marks.given(LogMark("3-57-9", 9, "ab"))
...     LogMarks(SourceFolder(path), 0, before=10).last, LogMarks(SourceFolder(path), 0, before=9).last
(LogMark(gtid='3-57-9', sequence=9, digest='ab'), None)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.database.thinning import thinned
from tidegauge.sources.mysql.events import Gtid

__all__ = ["ENOUGH", "LogMark", "LogMarks", "ReadTransaction"]

ENOUGH: Final = 1 << 16
"""Bytes of a transaction that tell it from all others."""
_HELD, _GIVEN = "marks.json", "marks-new.json"


@dataclass(slots=True)
class ReadTransaction:
    """A transaction that is being read: its first events, at most about `ENOUGH` bytes of them."""

    gtid: Gtid
    events: list[bytes]
    size: int

    @property
    def enough(self) -> bool:
        """Whether no further events are taken."""
        return self.size >= ENOUGH

    def take(self, event: bytes) -> None:
        """Take in an event without its checksum, as long as there is not enough."""
        self.events.append(event)
        self.size += len(event)

    @property
    def mark(self) -> LogMark:
        """The mark of it."""
        digest = hashlib.sha256()
        for event in self.events:
            digest.update(event[:13])  # where the next event begins is not the transaction's
            digest.update(event[17:])
        return LogMark(str(self.gtid), self.gtid.sequence, digest.hexdigest()[:32])


@dataclass(frozen=True, slots=True)
class LogMark:
    """A transaction, as the server names it, its number, and its digest."""

    gtid: str
    sequence: int
    digest: str


class LogMarks:
    """The marks of a source. incarnation: of the source. before: the number of the next transaction it will have."""

    def __init__(self, folder: SourceFolder, incarnation: int, *, before: int) -> None:
        self._folder: Final = folder
        self._incarnation: Final = incarnation
        known = {one.sequence: one for name in (_HELD, _GIVEN) for one in self._kept(name) if one.sequence < before}
        self._marks = [known[number] for number in sorted(known)]

    @property
    def last(self) -> LogMark | None:
        """The newest transaction that is known."""
        return self._marks[-1] if self._marks else None

    def given(self, mark: LogMark) -> None:
        """Note a transaction that is about to be given, or that lies before all that will be."""
        self._marks = thinned([*(one for one in self._marks if one.sequence < mark.sequence), mark])
        self._keep(_GIVEN, self._marks, durable=False)

    def held(self, before: int) -> None:
        """Note that all outputs have the transactions before a number. Raises `OSError`."""
        have = [one for one in self._marks if one.sequence < before]
        if have and have[-1] not in list(self._kept(_HELD)):
            self._keep(_HELD, have[-1:], durable=True)
        self._marks = self._marks[max(0, len(have) - 1) :]

    def _keep(self, name: str, marks: Sequence[LogMark], *, durable: bool) -> None:
        said = {"incarnation": self._incarnation, "marks": [asdict(one) for one in marks]}
        self._folder.note(name, said, durable=durable)

    def _kept(self, name: str) -> Iterator[LogMark]:
        """Yield the marks of a file; none where there is none, or a power cut has left half of one."""
        try:
            found = self._folder.noted(name)
            if found["incarnation"] == self._incarnation:
                yield from [
                    LogMark(str(one["gtid"]), int(one["sequence"]), str(one["digest"])) for one in found["marks"]
                ]
        except (ValueError, KeyError, TypeError):
            return
