"""The kinds of faults: all that may go wrong in a simulated world, and which of it strikes where.

Invariant: kinds are taken in the order of `KINDS`, however a user names them, so a seed makes the same plan.

>>> checked_kinds(["slow", "crash"])
('crash', 'slow')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

from tidegauge.errors.simulation import UnknownFault

__all__ = [
    "APART",
    "AT_A_PLACE",
    "AT_FEEDS",
    "AT_FILES",
    "AT_LOGS",
    "AT_UPSTREAMS",
    "BETWEEN_ALSO",
    "KINDS",
    "LASTING",
    "FaultKind",
    "checked_kinds",
]

FaultKind: TypeAlias = Literal[
    "crash",
    "pause",
    "slow",
    "error",
    "lost",
    "full",
    "away",
    "clock",
    "rival",
    "retention",
    "stop",
    "cut",
    "late",
    "recreate",
    "rotate",
    "stale",
    "restore",
    "history",
    "save",
    "truncate",
    "replace",
    "torn",
    "spoil",
    "rewind",
    "outputs",
    "decisions",
    "add",
    "anew",
    "remake",
    "gain",
    "alter",
    "promote",
]
KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)
"""What may go wrong.

    crash      a driver dies
    pause      a driver stops for a while, and goes on with what it believed
    slow       one thing that a driver does takes long
    error      one thing that a driver does fails, and nothing of it is done
    lost       one thing that a driver does is done, and its answer is an error
    full       the store and the tables have no room for a while
    away       an upstream does not answer for a while
    clock      a driver's wall clock jumps, or runs too fast or too slow from then on
    rival      another driver is started beside the one that runs
    retention  records are taken from upstream before they are read; rows come and go with partitions of a database
    stop       somebody stops the driver, and starts it again
    cut        the connections of a source that pushes are cut
    late       an upstream hears late, in any order, or never, what it is told: a source that pushes, or a topic;
               commits of a MariaDB are sent before others see them
    recreate   a topic is deleted, and another one of its name is made; somebody resumes the source that fails of it
    rotate     a log is renamed, or copied and truncated; an older file comes late; one grows and keeps its time
    stale      for a while, a broker says an older end of a topic's committed records than before
    restore    the flow is stopped, its store is put back from a backup, and recovered from the tables
    history    readers hold epochs while they read; the flow is stopped, and what nobody holds is compacted
    save       a file is saved anew, as editors do: another file of its name has the same lines, or more
    truncate   a log is cut off and there is no copy, or its torn last line is; somebody resumes the source
    replace    a file is deleted, and may come back, or another one takes its place; somebody resumes the source
    torn       a file that a task has staged is cut short before it is committed
    outputs    the flow runs without one of its outputs, from the beginning or for a while; then that is late
    spoil      a record comes that cannot be decoded: it is collected, or somebody skips it after its source failed
    decisions  somebody pauses outputs while drivers run, limits late ones, and drops some; their tables stay or go
    add        the flow runs without one of its outputs, and then its driver is told to take that in
    anew       somebody drops an output while drivers run, with its table or without, and adds it again
    remake     somebody has all rows of a table made again, by other code or by the same, or takes that back
    gain       the flow declares one more column of a source, from the next driver on; it begins without some; of a
               database, one more table
    alter      a table of a database gets one more column, perhaps with values in the rows of before, or a partition
    promote    a standby takes the place of a database's server: all that it lacks is gone, perhaps with the slot
    rewind     the store goes back to a backup while drivers run, and others start; it is recovered some time later
"""

AT_A_PLACE: Final = ("crash", "pause", "slow", "error", "lost", "torn")
"""The kinds that strike a driver at a place; the others happen at an instant."""
AT_UPSTREAMS: Final = ("away", "retention")
AT_FEEDS: Final = ("cut", "late")
AT_LOGS: Final = ("late", "recreate", "stale", "spoil")
AT_FILES: Final = ("rotate", "save", "truncate", "replace", "spoil")

APART: Final[tuple[FaultKind, ...]] = ("decisions", "add", "anew", "remake", "gain", "alter", "promote")
"""The kinds that are drawn from generators of their own, so that seeds that were found stay what they are."""

BETWEEN_ALSO: Final = ("crash", "pause", "slow")
"""What can happen to a driver that asks nobody for anything."""

LASTING: Final[Mapping[FaultKind, tuple[float, ...]]] = {
    "pause": (0.5, 3.0, 20.0, 31.0, 60.0),
    "slow": (0.1, 1.0, 5.0, 40.0),
}
"""How many seconds a fault lasts, of the kinds that last."""


def checked_kinds(kinds: Sequence[str] | None) -> tuple[FaultKind, ...]:
    """Return kinds of faults; None stands for all. Raises `UnknownFault`."""
    if kinds is None:
        return KINDS
    wrong = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind not in KINDS]
    if wrong:
        raise UnknownFault(kind=wrong[0], known=list(KINDS))
    return tuple(kind for kind in KINDS if kind in kinds)
