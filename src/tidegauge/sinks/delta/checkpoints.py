"""Checkpoints of a Delta table's log, made beside the commits, so that no reader replays the table's whole life.

A checkpoint has every file of the table, so it costs more the more there are; and a reader replays every entry since
the last one, at a hundred times the cost of a file in it. So it is made when the entries have come to a hundredth of
the files: a reader spends about as much on either, and a commit's share of the checkpoints is the same at any age.

Invariant: no commit waits for a checkpoint, and none fails with one; at most one of a table is under way, and it ends
before the run does. Before entries of the log are removed, their links are kept elsewhere (`delta.history`).

>>> due(99, files=10), due(100, files=10), due(999, files=100_000), due(1_000, files=100_000)
(False, True, False, True)
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from deltalake import DeltaTable

from tidegauge.sinks.delta.creating import snapshot
from tidegauge.sinks.delta.files import files_of
from tidegauge.sinks.delta.head import hinted
from tidegauge.sinks.delta.history import move_links
from tidegauge.sinks.location import at
from tidegauge.sinks.protocol import OutputId, Volume

__all__ = ["Checkpoints", "checkpointed", "due"]

_LEAST: Final = 100
_SHARE: Final = 100

_log: Final = logging.getLogger(__name__)


def due(entries: int, *, files: int) -> bool:
    """Whether a table with this number of files, and of entries since its last checkpoint, should get another one."""
    return entries >= max(_LEAST, files // _SHARE)


def checkpointed(table: DeltaTable, folder: str, output: OutputId) -> None:
    """Make a checkpoint of a version of a table, and remove the entries of its log that are past their retention."""
    move_links(folder, output)  # of all that this look has: what comes later is not removed
    table.create_checkpoint()
    if table.metadata().configuration.get("delta.enableExpiredLogCleanup", "true") != "false":
        table.cleanup_metadata()


class Checkpoints:
    """The checkpoints of one table. All methods are for the thread that commits, or one after the other.

    next: none is due before this version. counted: a version and what the table held there, where that was not known
    before; else None.
    """

    def __init__(self, table: str, output: OutputId) -> None:
        self._table: Final = table
        self._output: Final = output
        self._last = max(0, hinted(at(table) / "_delta_log"))
        self.next = self._last + _LEAST
        self._under_way: threading.Thread | None = None
        self.counted: tuple[int, Volume] | None = None

    def after(self, version: int, volume: Volume | None) -> None:
        """Begin a checkpoint after the commit of a version, if one is due. When it fails, the next one serves."""
        files = 0 if volume is None else volume.files
        if not due(version - self._last, files=files):
            return
        self._last = max(self._last, hinted(at(self._table) / "_delta_log"))  # others make some too
        if due(version - self._last, files=files) and (self._under_way is None or not self._under_way.is_alive()):
            self._last = version
            self.next = version + _LEAST
            self._under_way = threading.Thread(
                target=self._make, args=(version,), kwargs={"count": volume is None}, name="tidegauge-checkpoint"
            )
            self._under_way.start()

    def end(self) -> None:
        """Wait for the one under way."""
        if self._under_way is not None:
            self._under_way.join()

    def _make(self, version: int, *, count: bool) -> None:
        try:
            # Of this version, not the last one: a folder listed during commits may show a later entry and not the one
            # before it.
            table = snapshot(self._table, version)
            checkpointed(table, self._table, self._output)
            self.counted = (version, Volume.of(files_of(table, self._table))) if count else None
        except Exception as error:  # noqa: BLE001 - whatever it is, no commit depends on it
            _log.warning("no checkpoint of the table %s: %s", self._table, error)
