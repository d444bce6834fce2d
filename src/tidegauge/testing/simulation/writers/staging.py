"""`PollsSeen`: the polls that the drivers of a world have staged, as a check reads them.

A check learns from a manifest which of its upstream's records each poll has brought.

Invariant: each manifest is read once, in order.

>>> import pyarrow as pa
>>> polls = PollsSeen(("shop", "orders"))
>>> _ = polls.log.publish(0, before="", state="{}", rows=pa.table({"id": [1, 2]}))
>>> [one.poll for one in polls.further()], [*polls.further()]
([0], [])
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidegauge.env import Env
from tidegauge.sources.polls.log import PollLog, PollManifest

__all__ = ["PollsSeen", "StagingFolder", "hearing_of_polls"]

_MEMORY: Final = "/dev/shm"  # noqa: S108 - a name of its own is made there


class StagingFolder:
    """A folder for what the drivers of a world stage, in memory if the machine has that. It goes with the world."""

    def __init__(self) -> None:
        self.path: Final = tempfile.mkdtemp(
            prefix="tidegauge-simulation-", dir=_MEMORY if Path(_MEMORY).is_dir() else None
        )
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class PollsSeen:
    """The polls of one source, in a folder of its world. by_rows: whether their numbers count rows, not polls."""

    def __init__(self, owner: tuple[str, str], *, by_rows: bool = False) -> None:
        self._folder: Final = StagingFolder()
        self.path: Final = self._folder.path
        """What the source has as its `staging`."""
        self.log: Final = PollLog(Path(self.path, *owner, "0"), by_rows=by_rows)
        self._next = 0

    def further(self) -> Iterator[PollManifest]:
        """Yield the manifests that have come since the last time."""
        while self.log.has(self._next):
            manifest = self.log.manifest(self._next)
            self._next = self.log.after(manifest)
            yield manifest

    def rows(self, manifest: PollManifest, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a poll."""
        return pq.read_table(self.log.path_of(manifest), columns=columns)


def hearing_of_polls(env: Env, staged: Callable[[], None]) -> Env:
    """Return the world as a poller knows it. staged: called after each poll that it has staged."""

    def point(name: str) -> None:
        env.point(name)
        if name == "after stage poll":
            staged()

    return replace(env, point=point)
