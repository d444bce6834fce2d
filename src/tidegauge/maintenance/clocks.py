"""What a clock that was wrong leaves behind is put right by hand: a lease that stays, and epochs of the future.

Invariant: no driver is disturbed unawares. A lease is broken where its holder is not known to live, or by force, and
then the holder writes nothing more; times are changed with the lease, so while nobody drives the flow.
"""

from __future__ import annotations

from tidegauge.env import Env
from tidegauge.flow.spec import Flow
from tidegauge.looking.inspect import opened
from tidegauge.maintenance.resume import leased

__all__ = ["break_lease", "retime"]


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
