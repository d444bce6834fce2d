"""What is known of a Delta table's log: its head, what others have left open, and how much the table holds.

It begins at a head that is kept beside the log (`deltakept`), or at the log's last checkpoint, and follows the log
entry by entry from there.

Invariant: where it begins makes no difference to what is known.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from tidegauge.sinks.deltaaccount import CLEAR, DeltaAccount, Mine, since_ours, then
from tidegauge.sinks.deltahead import DeltaHead, entry, newer, newest
from tidegauge.sinks.deltakept import keep, kept, whole
from tidegauge.sinks.deltavolume import volume_after, volume_at, volume_since
from tidegauge.sinks.protocol import Volume

__all__ = ["LogView"]

_KEEP_EVERY: Final = 100
"""How many entries are read at most to open a table that is written by its flow alone."""

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

        Following the log does not notice that the table was removed, or made anew, under the same path; the entry at
        which the head stands tells: as long as it is the same file, the head is its past.
        """
        if self.head is not None and self._stamp is not None and self._entry_stamp() == self._stamp:
            self._follow(self.head)
        elif not self._taken_up():
            self._look_anew()
        self._stamp = self._entry_stamp()

    def keep(self) -> None:
        """Keep the head beside the log now and then. To be called where the table is ours and nothing is open."""
        if self.head is not None and self.head.version - self._kept >= _KEEP_EVERY:
            keep(self._folder, self.head, self.volume)
            self._kept = self.head.version

    def count(self, version: int, volume: Volume) -> None:
        """Take in what the table was found to hold at a version. Raises as `refresh` does."""
        if self.head is not None and version <= self.head.version:
            self.volume = volume_since(self._log, version, volume, self._mine, version=self.head.version)

    def _taken_up(self) -> bool:
        """Begin from the head that is kept beside the log; False when there is none that leads to the log's end."""
        found = kept(self._folder)
        if found is None:
            return False
        head, self.volume = found
        self.head, self.account, self._kept = head, CLEAR, head.version
        self._follow(head)
        return whole(self._log, self.head.version)

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
