"""Our view of a Delta table's log: its head, the open changes of others, and how much the table holds.

It begins at a head that is kept beside the log, or at the log's last checkpoint, and follows the log entry by entry
from there. The head is kept now and then, so that opening a table costs the same at any age: without it, opening
lists the log and reads a checkpoint, which both grow with the table.

    _tidegauge/head.json      the head at a version, what the table held, and what tells that version's entry

Invariant: the view does not depend on where it begins. A head is taken up only if the log still has the very entry at
which it was kept, and every entry since; it was kept when no change of others was open. So either it agrees with the
log itself, or it is not believed. Nothing is lost with the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeAlias

from tidegauge.sinks.delta.account import CLEAR, DeltaAccount, Mine, since_ours, then
from tidegauge.sinks.delta.chain import FOLDER
from tidegauge.sinks.delta.head import DeltaHead, entry, hinted, newer, newest
from tidegauge.sinks.delta.volume import volume_after, volume_at, volume_since
from tidegauge.sinks.location import make_folder
from tidegauge.sinks.protocol import Volume

__all__ = ["LogView"]

_KEEP_EVERY: Final = 100
"""How many entries are read at most to open a table that is written by its flow alone."""
_FILE: Final = "head.json"
_NEAR: Final = 64
_FAR: Final = 24
"""After the last entry, this many are looked for one by one, and from there at distances that double."""

_Stamp: TypeAlias = tuple[int, int]


class LogView:
    """The log of the table in `folder`, for the output whose own is told by `mine`.

    head: the newest version, None where there is no table. account: what others did to it since our last entry.
    volume: what it holds, None where that is not known.
    """

    def __init__(self, folder: str, mine: Mine) -> None:
        self._folder: Final = folder
        self._log: Final = Path(folder, "_delta_log")
        self._mine: Final = mine
        self._stamp: _Stamp | None = None
        self._kept = 0
        self.head: DeltaHead | None = None
        self.account: DeltaAccount = CLEAR
        self.volume: Volume | None = None

    def refresh(self) -> None:
        """Bring it up to now. Raises `OSError`, and `ValueError` for a log that cannot be read.

        Following the log does not reveal that the table was removed, or recreated, under the same path; the entry at
        which the head stands does: as long as it is the same file, the head is its past.
        """
        if self.head is not None and self._stamp is not None and self._entry_stamp() == self._stamp:
            self._follow(self.head)
        elif not self._taken_up():
            self._look_anew()
        self._stamp = self._entry_stamp()

    def keep(self) -> None:
        """Keep the head beside the log now and then. To be called where the table is ours and nothing is open."""
        if self.head is not None and self.head.version - self._kept >= _KEEP_EVERY:
            _keep(self._folder, self.head, self.volume)
            self._kept = self.head.version

    def count(self, version: int, volume: Volume) -> None:
        """Take in what the table was found to hold at a version. Raises as `refresh` does."""
        if self.head is not None and version <= self.head.version:
            self.volume = volume_since(self._log, version, volume, self._mine, version=self.head.version)

    def _taken_up(self) -> bool:
        """Begin from the head that is kept beside the log; False when there is none that leads to the log's end."""
        found = _kept(self._folder)
        if found is None:
            return False
        head, self.volume = found
        self.head, self.account, self._kept = head, CLEAR, head.version
        self._follow(head)
        return _whole(self._log, self.head.version)

    def _follow(self, head: DeltaHead) -> None:
        """Take in what came after a head."""
        for later, actions in newer(self._log, head):
            self.head = later
            self.account = then(self.account, actions, later.version, self._mine)
            self.volume = volume_after(self.volume, actions, self._mine)

    def _look_anew(self) -> None:
        """Take in the whole log, from its last checkpoint on."""
        self.head, self.account, self.volume, self._kept = newest(self._log), CLEAR, None, 0
        if self.head is not None:
            self.account = since_ours(self._log, self.head.version, self._mine)
            self.volume = volume_at(self._log, self.head.version, self._mine)

    def _entry_stamp(self) -> _Stamp | None:
        """Return what distinguishes the log entry of the head from another file of its name."""
        if self.head is not None:
            with suppress(FileNotFoundError):
                status = entry(self._log, self.head.version).stat()
                return status.st_ino, status.st_mtime_ns
        return None


def _keep(table: str, head: DeltaHead, volume: Volume | None) -> None:
    """Keep a head at which no change of others is open. If it cannot be written, nothing is kept."""
    folder = Path(table, FOLDER)
    with suppress(OSError):
        said = {
            "entry": _digest(entry(Path(table, "_delta_log"), head.version)),
            "head": asdict(head),
            "volume": None if volume is None else asdict(volume),
        }
        make_folder(folder)
        beside = folder / f".{_FILE}-{os.getpid()}"
        beside.write_text(json.dumps(said), encoding="utf-8")
        beside.rename(folder / _FILE)


def _kept(table: str) -> tuple[DeltaHead, Volume | None] | None:
    """Return the head that is kept, with what the table held; None where there is none that the log bears out."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        said: dict[str, Any] = json.loads(Path(table, FOLDER, _FILE).read_text(encoding="utf-8"))
        head = DeltaHead(**said["head"])
        if _digest(entry(Path(table, "_delta_log"), head.version)) == said["entry"]:
            return head, None if said["volume"] is None else Volume(**said["volume"])
    return None


def _whole(log: Path, version: int) -> bool:
    """Whether a version to which the entries were followed is the newest, so that none is missing before a later one.

    A log that lacks more entries than it has after them may pass; one that was cleaned up does not, it has a later
    checkpoint.
    """
    steps = [*range(2, _NEAR), *(_NEAR << power for power in range(_FAR))]
    return hinted(log) <= version and not any(entry(log, version + step).exists() for step in steps)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
