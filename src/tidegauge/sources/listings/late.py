"""What came late to a source that reads files in order: its paths are before the last one, so no listing meets it.

Once an hour, over all runs, the files up to the last path are listed and held against the log. Nothing is read for
that, and nothing decided by it: it is told to people, by `status` and by a warning.

Invariant: a file that is known is never told as late, unless its version is another one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tidegauge.errors.base import Transient
from tidegauge.objects.listing import Listed
from tidegauge.sources.file.listing import printable
from tidegauge.sources.listings.entries import Known, Novelty
from tidegauge.sources.staging import StagingPath, is_there, replace_whole

__all__ = ["LateFiles"]

_log: Final = logging.getLogger(__name__)

_EVERY: Final = 3_600_000_000_000
"""Nanoseconds between two looks."""
_FILE: Final = "_late"


@dataclass(slots=True)
class LateFiles:
    """Looks for late files of a source, whose log is in a folder. count, example: what the last look found."""

    source: str
    folder: StagingPath
    count: int = field(default=0, init=False)
    example: str = field(default="", init=False)
    _looked: int | None = field(default=None, init=False)
    _found: list[str] = field(default_factory=list, init=False)
    _number: int = field(default=0, init=False)

    @property
    def note(self) -> str:
        """A line for people, "" where nothing came late."""
        if not self.count:
            return ""
        files = "1 file" if self.count == 1 else f"{self.count} files"
        return f"{files} came late or changed, with paths before the last one, and are not read: {self.example}"

    def due(self, now: int) -> bool:
        """Whether it is time to look."""
        if self._looked is None:
            self._looked = self._kept()
        return not 0 <= now - self._looked < _EVERY

    def begin(self) -> None:
        """Begin a look."""
        self._number, self._found = 0, []

    def hold(self, page: Sequence[Listed], known: Known, last: str) -> bool:
        """Hold a page against the files that are known; whether there are more up to the last path."""
        upto = [one for one in page if one.path <= last]
        for one, novelty in zip(upto, known.judge(upto), strict=True):
            if novelty is not Novelty.KNOWN:
                self._number += 1
                self._found = self._found or [printable(one.path)]
        return len(upto) == len(page)

    def end(self, now: int) -> None:
        """End a look: keep what it found, for later runs too, and warn of it where it is news."""
        news = self._number > self.count
        self.count, self.example, self._looked = self._number, "".join(self._found), now
        if news:
            _log.warning("source %s: %s", self.source, self.note)
        if is_there(self.folder):
            said = {"looked": now, "count": self.count, "example": self.example}
            replace_whole(self.folder / _FILE, json.dumps(said).encode())

    def _kept(self) -> int:
        """Return when the last look was, in this run or another; what cannot be read is looked for again."""
        with suppress(OSError, Transient, ValueError, KeyError, TypeError):
            said: Any = json.loads((self.folder / _FILE).read_bytes())
            looked, self.count, self.example = int(said["looked"]), int(said["count"]), str(said["example"])
            return looked
        return -_EVERY
