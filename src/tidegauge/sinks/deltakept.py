"""The head of a Delta table, kept beside its log now and then, so that opening it costs the same at any age.

    _tidegauge/head.json      the head at a version, what the table held, and what tells that version's entry

Without it, opening lists the log and reads a checkpoint, which both grow with the table.

Invariant: a head is taken from here only where the log still has the very entry at which it was kept, and every entry
since; it was kept where nothing that others did was open. So it is what the log itself says, or it is not believed.
Nothing is lost with the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tidegauge.sinks.deltachain import FOLDER
from tidegauge.sinks.deltahead import DeltaHead, entry, hinted
from tidegauge.sinks.location import make_folder
from tidegauge.sinks.protocol import Volume

__all__ = ["keep", "kept", "whole"]

_FILE: Final = "head.json"
_NEAR: Final = 64
_FAR: Final = 24
"""After the last entry so many are looked for one by one, and from there at distances that double."""


def keep(table: str, head: DeltaHead, volume: Volume | None) -> None:
    """Keep a head, as of which nothing that others did is open. Where it cannot be written, nothing is kept."""
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


def kept(table: str) -> tuple[DeltaHead, Volume | None] | None:
    """Return the head that is kept, with what the table held; None where there is none that the log bears out."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        said: dict[str, Any] = json.loads(Path(table, FOLDER, _FILE).read_text(encoding="utf-8"))
        head = DeltaHead(**said["head"])
        if _digest(entry(Path(table, "_delta_log"), head.version)) == said["entry"]:
            return head, None if said["volume"] is None else Volume(**said["volume"])
    return None


def whole(log: Path, version: int) -> bool:
    """Whether a version to which the entries were followed is the newest, so that none is missing before a later one.

    A log that lacks more entries than it has after them may pass; one that was cleaned up does not, it has a later
    checkpoint.
    """
    steps = [*range(2, _NEAR), *(_NEAR << power for power in range(_FAR))]
    return hinted(log) <= version and not any(entry(log, version + step).exists() for step in steps)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
