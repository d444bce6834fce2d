"""How much a Delta table holds, carried from commit to commit, so that nobody has to list its files to know.

Each entry of ours says what the table holds with it. Where others have added or removed files since (OPTIMIZE,
DELETE), it is not known until the files are listed, which the next checkpoint does.

Invariant: the volume known here equals that of a listing of the live files, or it is None.

>>> mine = Mine(transaction="f:o@1", files="part-1")
>>> ours = [{"commitInfo": {"holds": [2, 5, 900]}}, {"txn": {"appId": "f:o@1"}}]
>>> volume_after(None, ours, mine)
Volume(files=2, rows=5, bytes=900)
>>> volume_after(Volume(2, 5, 900), [{"add": {"path": "theirs"}}], mine) is None
True
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidegauge.sinks.delta.account import Mine
from tidegauge.sinks.delta.head import Action, actions_of, entry
from tidegauge.sinks.protocol import Volume

__all__ = ["holding", "volume_after", "volume_at", "volume_since"]


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


def volume_at(log: Path, version: int, mine: Mine) -> Volume | None:
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


def volume_since(log: Path, since: int, volume: Volume | None, mine: Mine, *, version: int) -> Volume | None:
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
