"""Whether the -wal beside a SQLite file is the file's own, where somebody may have put another file beside it.

A driver that is killed leaves a -wal, with the pages that it changed last. Somebody who copies a backup over the file
and leaves the -wal there gets a mixture: SQLite puts the newest pages of the old store over those of the backup. It
finds nothing wrong where the pages fit together; bindings may be missing, or found by one index and not by the other.

A file that changed after its -wal did is *doubtful*; a driver that dies in a checkpoint leaves such a file, too. All
its indexes are looked through then, which takes some seconds for a million bindings, and the epochs that are bound
since the file itself was written are held against their digests.

Invariant: looking changes nothing, and what a driver left is never taken for a mixture. A mixture whose file is older
than the -wal is not noticed, as when both were copied while a driver ran.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> doubtful(Path(folder.name) / "shop.db")
False
>>> folder.cleanup()
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tidegauge.remap.history import Moves, follow, origin
from tidegauge.remap.store.copies import immutable, wal_of

__all__ = ["doubtful", "foreign_wal", "uppers_of"]

_UPPERS: Final = "SELECT id, CAST(upper AS INTEGER) FROM flows"
_FLOWS: Final = "SELECT id, incarnation, upper, since FROM flows"
_DIGESTS: Final = "SELECT epoch, digest FROM timeline WHERE flow_id = ? AND epoch BETWEEN ? AND ?"
_CHANGES: Final = """
    SELECT c.epoch, s.name, p.key, c.position FROM sources s
    JOIN changes c ON c.source_id = s.id JOIN partitions p ON p.id = c.partition_id
    WHERE s.flow_id = ? AND c.epoch BETWEEN ? AND ?"""
_STATES: Final = """
    SELECT t.epoch, s.name, t.state FROM sources s JOIN source_states t ON t.source_id = s.id
    WHERE s.flow_id = ? AND t.epoch BETWEEN ? AND ?"""
_LIVES: Final = """
    SELECT s.name, i.number, i.began_at FROM sources s JOIN incarnations i ON i.source_id = s.id
    WHERE s.flow_id = ? ORDER BY i.number"""


def doubtful(path: Path) -> bool:
    """Whether a file changed after its -wal did, so that this may be another's."""
    try:
        wal = wal_of(path).stat()
        return wal.st_size > 0 and path.stat().st_ctime_ns > wal.st_ctime_ns
    except OSError:
        return False


def uppers_of(path: Path) -> Mapping[int, int]:
    """Return how far each flow is bound in a file alone, by its number; none where that cannot be read."""
    try:
        with closing(immutable(path)) as alone:
            return dict(alone.execute(_UPPERS))
    except (sqlite3.Error, UnicodeDecodeError):
        return {}


def foreign_wal(connection: sqlite3.Connection, before: Mapping[int, int]) -> str:
    """Return what shows that a file and its -wal do not belong together, "" where nothing does.

    before: how far each flow is bound in the file alone.
    """
    [(said,)] = connection.execute("PRAGMA integrity_check(1)")
    fault = "" if said == "ok" else said
    for flow, incarnation, upper, since in connection.execute(_FLOWS).fetchall():
        known = before.get(flow, 0)
        epoch = _wrong(connection, flow, incarnation, range(max(known, since + 1 if since else 0), upper))
        if known > upper:
            fault = fault or f"{known} epochs are bound in it alone, and {upper} with its -wal"
        elif epoch is not None:
            fault = fault or f"what is bound in epoch {epoch} is not what its digest says"
    return fault and f"its -wal is that of another file: {' '.join(fault.split())}"


def _wrong(connection: sqlite3.Connection, flow: int, incarnation: str, epochs: range) -> int | None:
    """Return the first of these epochs that does not have its digest."""
    here = (flow, epochs.start, epochs.stop - 1)
    digests: dict[int, str | None] = dict(connection.execute(_DIGESTS, (flow, epochs.start - 1, epochs.stop - 1)))
    moved = _moved(connection, flow, here)
    digest = digests.get(epochs.start - 1) if epochs.start else origin(incarnation)
    for epoch in epochs:
        before, digest = digest, digests.get(epoch)
        if epoch not in digests or (before and digest and follow(before, moved[epoch]) != digest):
            return epoch
    return None


def _moved(connection: sqlite3.Connection, flow: int, here: tuple[int, int, int]) -> Mapping[int, dict[str, Moves]]:
    """Return what each epoch brought of each source, as far as digests have it."""
    positions: dict[tuple[int, str], dict[str, int]] = defaultdict(dict)
    for epoch, source, key, position in connection.execute(_CHANGES, here):
        positions[epoch, source][key] = position
    states: dict[tuple[int, str], Any] = {
        (e, source): state for e, source, state in connection.execute(_STATES, here)
    }
    lives: list[tuple[str, int, int]] = connection.execute(_LIVES, (flow,)).fetchall()
    found: dict[int, dict[str, Moves]] = defaultdict(dict)
    for epoch, source in {*positions, *states}:
        number = max((n for name, n, began_at in lives if name == source and began_at <= epoch), default=0)
        moves = Moves(positions=positions.get((epoch, source), {}), state=states.get((epoch, source)))
        found[epoch][source] = replace(moves, incarnation=number)
    return found
