"""A standby that was promoted with a slot that it synchronised: the log goes on there, on another timeline.

    server 1, timeline 1   ---- F ---- S ----          F: as far as the flow is bound
    server 2, timeline 2               S ----------    S: where timeline 1 ends in its history

Up to S both logs are the same. So where F is not beyond S, all that the flow has is an ancestor of the new log, and
the slot there gives the rest. The identity of the source stays that of the timeline on which it began.

What the run has received beyond S, and not bound, is in the new log no more: the source fails, and begins at F again.

Invariant: a timeline that the flow goes over to is in its folder, durably, before anything of it is read. From then
on no earlier one is followed, as of the old server that comes back.

>>> first = "system 7, timeline 1, database shop"
>>> history = "1\\t0/50\\tno recovery target specified\\n"
>>> goes_on(first, 1, "system 7, timeline 2, database shop", history, place=0x50)
True
>>> goes_on(first, 1, "system 7, timeline 2, database shop", history, place=0x51)
False
>>> goes_on(first, 2, first, "", place=0x50)
False
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidegauge.errors.databases import FolderDamaged
from tidegauge.errors.push import PushedEndTakenBack
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.lsn import WAL, Lsn
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.database.later import joined_places
from tidegauge.sources.postgres.catalog import SlotFacts

__all__ = ["followed_identity", "goes_on", "one_system"]

_FILE: Final = "timeline.json"
_IDENTITY: Final = re.compile(r"(system \d+), timeline (\d+), (database .*)", re.DOTALL)


def goes_on(known: str, timeline: int, found: str, history: str, *, place: int) -> bool:
    """Return whether a server's log has all before a place as the log that was read.

    known: the identity of the source. timeline: the last one that was followed. found: the identity of the server.
    history: of its timeline, as the server tells it.
    """
    if not one_system(known, found):
        return False
    return _number(found) == timeline or (timeline < _number(found) and place <= _ends(history).get(timeline, -1))


def one_system(one: str, other: str) -> bool:
    """Whether two identities are of one database, on any timelines of one server and its standbys.

    >>> one_system("system 7, timeline 1, database shop", "system 7, timeline 2, database shop")
    True
    """
    a, b = _IDENTITY.fullmatch(one), _IDENTITY.fullmatch(other)
    return a is not None and b is not None and (a[1], a[3]) == (b[1], b[3])


def followed_identity(
    source: str,
    folder: SourceFolder,
    bound: Bound,
    found: str,
    slot: SlotFacts | None,
    told: Callable[[int], str],
    *,
    reached: int = 0,
) -> str:
    """Return the identity under which a server is followed.

    source: its name. found: the server's identity. told: tells the history of a timeline. reached: the place before
    which the run has received everything. Raises `UpstreamRecreated`, `PushedEndTakenBack`, `FolderDamaged`.
    """
    if not bound.identity:
        return found
    timeline = _timeline(folder, bound)
    first = _number(bound.identity)
    if found == bound.identity and timeline == first:
        return found
    over = slot is not None and slot.synced and _number(found) > timeline
    history = told(_number(found)) if over else ""
    place = max([bound.frontier[WAL], *joined_places(folder).values()])
    if not goes_on(bound.identity, timeline, found, history, place=place):
        known = bound.identity.replace(f"timeline {first},", f"timeline {timeline},")
        raise UpstreamRecreated(source=source, known=known, found=found)
    if over:
        if reached > (last := _ends(history)[timeline]):
            raise PushedEndTakenBack(source=source, partition=WAL, seen=str(Lsn(reached)), end=str(Lsn(last)))
        said = {"identity": bound.identity, "incarnation": bound.incarnation, "timeline": _number(found)}
        folder.note(_FILE, said, durable=True)
    return bound.identity


def _ends(history: str) -> dict[int, int]:
    """Return where the timelines of a history have ended."""
    lines = [line.split() for line in history.splitlines()]
    return {int(said[0]): Lsn.parse(said[1]).value for said in lines if len(said) > 1 and said[0].isdigit()}


def _timeline(folder: SourceFolder, bound: Bound) -> int:
    """Return the last timeline that was followed."""
    try:
        said = folder.noted(_FILE)
        if said is not None and (said["identity"], said["incarnation"]) == (bound.identity, bound.incarnation):
            return int(said["timeline"])
    except (ValueError, KeyError, TypeError) as error:
        raise FolderDamaged(path=str(Path(folder.path, _FILE)), detail=f"{type(error).__name__}: {error}") from error
    return _number(bound.identity)


def _number(identity: str) -> int:
    found = _IDENTITY.fullmatch(identity)
    return 0 if found is None else int(found[2])
