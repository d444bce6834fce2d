"""MySQL's transactions: a partition for each server that ever committed, by its UUID, counted from 1.

A GTID set names the transactions that are in: `u:1-3` are the transactions 1 to 3 of server u, so its next one, and
the position, is 4. A server that is not named has nothing in; it is at 0, and so is every server that may still
appear. No server is ever at 1, which would say the same as 0.

A frontier can say no more than how far each server came. So sets with gaps are refused, `u:1-3:5` and `u:2-3`, rather
than read as something else; so are the tags of MySQL 8.3 (`u:tag:1-3`), which count apart from their server. Sets are
sorted by UUID and name each once, as MySQL prints them; letters may be of either case, and white space may be around
an element.

Invariant: set inclusion is the order of frontiers: `parse(a).less_equal(parse(b))` iff every transaction of `a` is
one of `b`.

>>> tea, salt = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4f22fa47-71ca-11e1-9e33-c80aa9429562"
>>> GTID.parse(f"{tea.upper()}:1-3,\\n{salt}:1") == Frontier({tea: 4, salt: 2})
True
>>> print(GTID.render(GTID.advance(Frontier({tea: 4}), salt, 1)))
3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3,
4f22fa47-71ca-11e1-9e33-c80aa9429562:1
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tidegauge.errors.fromtime import GtidWentBack, InvalidNotation, InvalidPlace
from tidegauge.remap.fromtime.protocol import LARGEST, check_place, checked, excerpt, readable
from tidegauge.remap.frontier import Frontier

__all__ = ["GTID", "GtidTime"]

_KIND: Final = "gtid"
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_INTERVAL: Final = re.compile(r"([1-9][0-9]{0,18})(?:-([1-9][0-9]{0,18}))?")
_SPACE: Final = " \t\r\n"
_TAG: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")


@dataclass(frozen=True, slots=True)
class GtidTime:
    """The clock of MySQL servers that replicate to each other."""

    @property
    def kind(self) -> str:
        """The name of the kind."""
        return _KIND

    def check(self, partition: str, position: int, /) -> None:
        """Raise `InvalidPlace` for a partition that is no UUID in lower case, and for position 1."""
        if not _UUID.fullmatch(partition):
            problem = "its partition is no UUID in lower case"
        elif position == 1:
            problem = "transactions count from 1, so the next one is 2 or more, or there was none and it is at 0"
        else:
            return
        raise InvalidPlace(kind=_KIND, partition=excerpt(partition), position=position, problem=problem)

    def parse(self, text: str, /) -> Frontier:
        """Return the frontier of a GTID set, as `gtid_executed` has it; no text is the origin."""
        found: dict[str, int] = {}
        last = ""
        whole = readable(_KIND, text).strip(_SPACE)
        for element in (piece.strip(_SPACE) for piece in whole.split(",") if whole):
            uuid, _, rest = element.partition(":")
            uuid = uuid.lower()
            if not _UUID.fullmatch(uuid):
                raise _invalid(element, "UUID:1-N is expected, and a comma between two of them")
            if uuid <= last:
                raise _invalid(element, "a UUID is there twice" if uuid == last else "the UUIDs are not in order")
            found[uuid], last = _next(element, rest), uuid
        return Frontier(found)

    def render(self, frontier: Frontier, /) -> str:
        """Return the GTID set of all that is in, as MySQL prints it: a line for each server, sorted."""
        return ",\n".join(
            f"{uuid}:1" if following == 2 else f"{uuid}:1-{following - 1}"
            for uuid, following in sorted(checked(self, frontier).items())
        )

    def advance(self, frontier: Frontier, uuid: str, number: int) -> Frontier:
        """Return the frontier once a server's transaction was read, the same one again included.

        Takes time in the number of servers. Raises `InvalidPlace`, and `GtidWentBack` where it would go back: then a
        record would come after the frontier had passed it.
        """
        uuid = uuid.lower()
        check_place(_KIND, uuid, number)
        check_place(_KIND, uuid, number + 1)
        self.check(uuid, number + 1)
        if frontier.sealed:
            raise GtidWentBack(uuid=uuid, number=number, passed="the source had ended")
        if number + 1 < frontier[uuid]:
            raise GtidWentBack(uuid=uuid, number=number, passed=f"transaction {frontier[uuid] - 1} was in")
        return Frontier({**frontier, uuid: number + 1})


def _next(element: str, intervals: str) -> int:
    """Return the position after the intervals of one server."""
    pieces = intervals.split(":")
    if any(_TAG.fullmatch(piece) for piece in pieces):
        raise _invalid(element, "it has a tag, and tagged transactions are not supported")
    if len(pieces) > 1:
        raise _invalid(element, "it has more than one interval: transactions between them are missing")
    interval = _INTERVAL.fullmatch(intervals)
    if interval is None:
        raise _invalid(element, "an interval N or N-M is expected after the UUID, counted from 1")
    first, last = int(interval[1]), int(interval[2] or interval[1])
    if last < first:
        raise _invalid(element, "its interval ends before it begins")
    if first != 1:
        raise _invalid(element, f"the transactions before {first} are missing")
    if last >= LARGEST:
        raise _invalid(element, "its last transaction is not below 2**63 - 1")
    return last + 1


def _invalid(element: str, problem: str) -> InvalidNotation:
    return InvalidNotation(kind=_KIND, text=excerpt(element), problem=problem)


GTID: Final = GtidTime()
"""The one instance that is needed."""
