"""What you do to a flow's store itself: back it up, break a lease that stays, take epochs out of the future.

Invariants. A backup changes nothing and needs no lease, so the flow may be running; a store that is put back from it
is older than the tables, which the next run says, and `recover` brings the rest back from them. No driver is
disturbed unawares: a lease is broken where its holder is not known to live, or by force, and then the holder writes
nothing more; times are changed with the lease, so while nobody drives the flow.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tidegauge.env import Env
from tidegauge.flow.spec import Flow
from tidegauge.looking.inspect import opened
from tidegauge.maintenance.resume import leased
from tidegauge.remap.store.copies import backup as copied

__all__ = ["BackedUp", "backup", "break_lease", "retime"]


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


def break_lease(flow: Flow, *, force: bool = False, env: Env | None = None) -> str:
    """Take the lease of a flow away, and return who held it, for people.

    Raises `LeaseHeld` when that is a process which is alive on this machine, unless it is forced; `NothingHeld`,
    `FlowNeverRan`.
    """
    spec = flow.spec
    with opened(spec, env or Env()) as store:
        return store.break_lease(spec.name, force=force)


def retime(flow: Flow, *, env: Env | None = None) -> int:
    """Take the times of epochs that lie in the future back to now, and return how many epochs those are.

    Raises `FlowAlreadyRunning`, `FlowNeverRan`.
    """
    spec = flow.spec
    env = env or Env()
    with opened(spec, env) as store, leased(store, spec.name, env) as lease:
        return store.retime(lease)
