"""A standby that was promoted with a slot that it synchronised: the log goes on there, on another timeline.

    server 1, timeline 1   ---- F ---- S ----          F: as far as the flow is bound
    server 2, timeline 2               S ----------    S: where timeline 1 ends in its history

Up to S both logs are the same. So where F is not beyond S, all that the flow has is an ancestor of the new log, and
the slot there gives the rest. The identity of the source stays that of the timeline on which it began.

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
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.lsn import WAL, Lsn
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.database.later import joined_places
from tidegauge.sources.postgres.catalog import SlotFacts

__all__ = ["followed_identity", "goes_on"]

_FILE: Final = "timeline.json"
_IDENTITY: Final = re.compile(r"(system \d+), timeline (\d+), (database .*)", re.DOTALL)


def goes_on(known: str, timeline: int, found: str, history: str, *, place: int) -> bool:
    """Return whether a server's log has all before a place as the log that was read.

    known: the identity of the source. timeline: the last one that was followed. found: the identity of the server.
    history: of its timeline, as the server tells it.
    """
    one, other = _IDENTITY.fullmatch(known), _IDENTITY.fullmatch(found)
    if one is None or other is None or (one[1], one[3]) != (other[1], other[3]):
        return False
    if int(other[2]) == timeline:
        return True
    ends = {
        int(said[0]): said[1] for line in history.splitlines() if len(said := line.split()) > 1 and said[0].isdigit()
    }
    return timeline < int(other[2]) and timeline in ends and place <= Lsn.parse(ends[timeline]).value


def followed_identity(
    source: str, folder: SourceFolder, bound: Bound, found: str, slot: SlotFacts | None, told: Callable[[int], str]
) -> str:
    """Return the identity under which a server is followed. Raises `UpstreamRecreated`, `FolderDamaged`.

    source: for people. found: the server's identity. told: tells the history of a timeline.
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
        said = {"identity": bound.identity, "incarnation": bound.incarnation, "timeline": _number(found)}
        folder.note(_FILE, said, durable=True)
    return bound.identity


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
