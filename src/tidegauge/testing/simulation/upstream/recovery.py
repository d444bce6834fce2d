"""A recovery store of bytewax as a dataflow leaves it, written without bytewax: what it wrote before it died.

`tidegauge.sources.bytewax.recovery` tells the tables, and reads them.

Invariant: each call is one transaction, in one file. So a reader may find it between any two of them.

>>> import tempfile
>>> from tidegauge.sources.bytewax.recovery import resumed_from
>>> with tempfile.TemporaryDirectory() as root:
...     written = WrittenRecovery(Path(root))
...     written.execution(0, workers=1, resume=1)
...     written.snap("theirs.out", "part-0", 1, "after the epoch 1")
...     written.front(0, worker=0, frontier=2)
...     resumed_from(Path(root), [("theirs.out", "part-0")])
{('theirs.out', 'part-0'): 'after the epoch 1'}
"""

from __future__ import annotations

import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

__all__ = ["WrittenRecovery"]

_VERSION: Final = 5
_FILES: Final = 2
_TABLES: Final = """
CREATE TABLE parts (part_index INTEGER PRIMARY KEY, part_count INTEGER);
CREATE TABLE exs (ex_num INTEGER PRIMARY KEY, worker_count INTEGER, resume_epoch INTEGER);
CREATE TABLE fronts (ex_num INTEGER, worker_index INTEGER, worker_frontier INTEGER,
    PRIMARY KEY (ex_num, worker_index));
CREATE TABLE commits (part_index INTEGER PRIMARY KEY, commit_epoch INTEGER);
CREATE TABLE snaps (step_id TEXT, state_key TEXT, snap_epoch INTEGER, ser_change BLOB,
    PRIMARY KEY (step_id, state_key, snap_epoch));
"""


class WrittenRecovery:
    """A recovery store in a folder: new, and of two files."""

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(_FILES):
            with closing(sqlite3.connect(self._file(number))) as file:
                file.executescript(f"PRAGMA user_version = {_VERSION}; {_TABLES}")
                file.execute("INSERT INTO parts VALUES (?, ?)", (number, _FILES))
                file.commit()

    def execution(self, number: int, *, workers: int, resume: int) -> None:
        """A dataflow begins. number: how many have before. resume: its first epoch."""
        self._put(number, "exs", number, workers, resume)

    def snap(self, step: str, key: str, epoch: int, state: str) -> None:
        """A state at the end of an epoch is written."""
        self._put(len(key) + ord(key[-1]), "snaps", step, key, epoch, pickle.dumps(state))

    def front(self, execution: int, *, worker: int, frontier: int) -> None:
        """All of a worker before an epoch is written."""
        self._put(worker, "fronts", execution, worker, frontier)

    def collect(self, epoch: int) -> None:
        """States that newer ones up to an epoch have replaced are removed."""
        for number in range(_FILES):
            with closing(sqlite3.connect(self._file(number))) as file:
                file.execute(
                    "DELETE FROM snaps WHERE snap_epoch < (SELECT max(snap_epoch) FROM snaps AS one WHERE "
                    "one.step_id = snaps.step_id AND one.state_key = snaps.state_key AND one.snap_epoch <= ?)",
                    (epoch,),
                )
                file.execute("REPLACE INTO commits VALUES (?, ?)", (number, epoch))
                file.commit()

    def _put(self, number: int, table: str, *values: object) -> None:
        marks = ", ".join("?" * len(values))
        with closing(sqlite3.connect(self._file(number % _FILES))) as file:
            file.execute(f"REPLACE INTO {table} VALUES ({marks})", values)  # noqa: S608 - a name of those above
            file.commit()

    def _file(self, number: int) -> Path:
        return self._folder / f"part-{number}.sqlite3"
