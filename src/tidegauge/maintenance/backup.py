"""A backup of a flow's store: a file that may be put in its place, while no driver runs.

Invariant: taking it changes nothing, and needs no lease, so the flow may be running. A store that is put back from it
is older than the tables; the next run says so, and `recover` brings the rest back from them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tidegauge.env import Env
from tidegauge.flow.spec import Flow
from tidegauge.looking.inspect import opened
from tidegauge.remap.store.backup import backup as copied

__all__ = ["BackedUp", "backup"]


@dataclass(frozen=True, slots=True)
class BackedUp:
    """A backup that was taken: which store, into which file of how many bytes."""

    store: str
    file: str
    bytes: int


def backup(flow: Flow, file: str | os.PathLike[str]) -> BackedUp:
    """Copy the flow's store, as of one instant, into a new file.

    Raises `FlowNeverRan`, `BackupExists`, `BackupFailed`, and `ServerBacksUp` for a store on PostgreSQL.
    """
    spec = flow.spec
    target = Path(file).absolute()
    with opened(spec, Env()) as store:
        shown = store.url
    return BackedUp(shown, str(target), copied(spec.store, target))
