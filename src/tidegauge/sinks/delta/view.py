"""Our view of a Delta table's log: its head, the open changes of others, and how much the table holds.

It begins at a head that is kept beside the log, or at the log's last checkpoint, and follows the log entry by entry
from there. The head is kept now and then, so that opening a table costs the same at any age: without it, opening
lists the log and reads a checkpoint, which both grow with the table.

    _tidegauge/head.json      the head at a version, what the table held, and what tells that version's entry

How much it holds is carried from commit to commit, so that nobody has to list its files: each entry of ours says
what the table holds with it. Where others have added or removed files since (OPTIMIZE, DELETE), it is not known
until the files are listed, which the next checkpoint does.

Invariants. The view does not depend on where it begins. A head is taken up only if the log still has the very entry
at which it was kept, and every entry since; it was kept when no change of others was open. So either it agrees with
the log itself, or it is not believed. Nothing is lost with the file. The volume known here equals that of a listing
of the live files, or it is None.

>>> mine = Mine(transaction="f:o@1", files="part-1")
>>> ours = [{"commitInfo": {"holds": [2, 5, 900]}}, {"txn": {"appId": "f:o@1"}}]
>>> volume_after(None, ours, mine)
Volume(files=2, rows=5, bytes=900)
>>> volume_after(Volume(2, 5, 900), [{"add": {"path": "theirs"}}], mine) is None
True
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final, TypeAlias

from tidegauge.errors.base import Transient
from tidegauge.objects.path import ObjectPath
from tidegauge.sinks.delta.head import Action, DeltaHead, actions_of, entry, hinted, is_entry, newer, newest
from tidegauge.sinks.delta.history import FOLDER
from tidegauge.sinks.delta.owner import CLEAR, DeltaAccount, Mine, since_ours, then
from tidegauge.sinks.location import TablePath, at, put_whole
from tidegauge.sinks.protocol import Volume

__all__ = ["LogView", "holding", "volume_after", "volume_at", "volume_since"]

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
        self._log: Final = at(folder) / "_delta_log"
        self._mine: Final = mine
        self._stamp: _Stamp | None = None
        self._kept = 0
        self.head: DeltaHead | None = None
        self.account: DeltaAccount = CLEAR
        self.volume: Volume | None = None

    def refresh(self) -> None:
        """Bring it up to now. Raises `OSError`, and `ValueError` for a log that cannot be read.

        Following the log does not reveal that the table was removed, or recreated, under the same path; the entry at
        which the head stands does: while that is the same file, the head is its past.
        """
        if (head := self.head) is not None and self._stamp is not None and self._entry_stamp() == self._stamp:
            self._follow(head)
            if self.head is head:
                return
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
    with suppress(OSError, Transient):
        said = {
            "entry": _digest(entry(at(table) / "_delta_log", head.version)),
            "head": asdict(head),
            "volume": None if volume is None else asdict(volume),
        }
        text = json.dumps(said).encode()
        put_whole(at(table) / FOLDER / _FILE, text, beside=f".{_FILE}-{os.getpid()}", durable=False)


def _kept(table: str) -> tuple[DeltaHead, Volume | None] | None:
    """Return the head that is kept, with what the table held; None where there is none that the log bears out."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        said: dict[str, Any] = json.loads((at(table) / FOLDER / _FILE).read_text(encoding="utf-8"))
        head = DeltaHead(**said["head"])
        if _digest(entry(at(table) / "_delta_log", head.version)) == said["entry"]:
            return head, None if said["volume"] is None else Volume(**said["volume"])
    return None


def _whole(log: TablePath, version: int) -> bool:
    """Whether a version to which the entries were followed is the newest, so that none is missing before a later one.

    A log that lacks more entries than it has after them may pass; one that was cleaned up does not, it has a later
    checkpoint.
    """
    if isinstance(log, ObjectPath):  # which lists from a name on
        return hinted(log) <= version and not any(map(is_entry, log.below(entry(log, version).name)))
    steps = [*range(2, _NEAR), *(_NEAR << power for power in range(_FAR))]
    return hinted(log) <= version and not any(entry(log, version + step).exists() for step in steps)


def _digest(path: TablePath) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def holding(volume: Volume | None) -> dict[str, Any]:
    """Return what an entry says of the table with it."""
    return {} if volume is None else {"holds": [volume.files, volume.rows, volume.bytes]}


def volume_after(volume: Volume | None, actions: Sequence[Action], mine: Mine) -> Volume | None:
    """Return what a table holds after the entry of a version."""
    if not mine.made(actions):
        return None if _changes(actions) else volume
    for action in actions:
        match action:
            case {"commitInfo": {"holds": [int(files), int(rows), int(size)]}}:
                return Volume(files, rows, size)
            case {"remove": _}:
                volume = None
            case {"add": {"size": int(size), "stats": str(text)}} if volume is not None:
                counted = _rows(text)
                volume = None if counted is None else volume + Volume(1, counted, size)
            case {"add": _}:
                volume = None
            case _:
                continue
    return volume


def volume_at(log: TablePath, version: int, mine: Mine) -> Volume | None:
    """Return what a table holds at a version, by the last entry that changed its files.

    Raises `OSError`, and `ValueError` for an entry that cannot be read.
    """
    for earlier in range(version, -1, -1):
        try:
            actions = actions_of(entry(log, earlier))
        except FileNotFoundError:
            return None
        if mine.made(actions) or _changes(actions):
            return volume_after(None, actions, mine)
    return None


def volume_since(log: TablePath, since: int, volume: Volume | None, mine: Mine, *, version: int) -> Volume | None:
    """Return what a table holds at a version, given what it held at an earlier one; None where entries between them
    are gone, as others may clean the log. Raises as `volume_at` does.
    """
    try:
        for later in range(since + 1, version + 1):
            volume = volume_after(volume, actions_of(entry(log, later)), mine)
    except FileNotFoundError:
        return None
    return volume


def _changes(actions: Sequence[Action]) -> bool:
    return any("add" in action or "remove" in action for action in actions)


def _rows(statistics: str) -> int | None:
    try:
        match json.loads(statistics):
            case {"numRecords": int(rows)}:
                return rows
            case _:
                return None
    except (ValueError, RecursionError):
        return None
