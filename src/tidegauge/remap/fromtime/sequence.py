"""Sources that can only be polled: one partition, whose positions count the polls that brought something.

Upstream has no position that sorts: an ETag, a cursor, a page. So each poll that changed anything gets the next
number, and what upstream needs to hear at the next poll is kept beside the binding, as a `SourceState`. A frontier is
written as its number alone: how many polls are in.

>>> SEQUENCE.parse("17"), SEQUENCE.render(Frontier())
(Frontier({'polls': 17}), '0')
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tidegauge.errors.fromtime import InvalidNotation, InvalidPlace
from tidegauge.remap.fromtime.protocol import check_place, checked, excerpt, readable
from tidegauge.remap.frontier import Frontier

__all__ = ["POLLS", "SEQUENCE", "Sequence"]

POLLS: Final = "polls"
"""The one partition."""

_KIND: Final = "sequence"
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Sequence:
    """The clock that is made by counting polls."""

    @property
    def kind(self) -> str:
        """The name of the kind."""
        return _KIND

    def check(self, partition: str, position: int, /) -> None:
        """Raise `InvalidPlace` for another partition than `POLLS`."""
        if partition != POLLS:
            problem = f"its only partition is {POLLS!r}"
            raise InvalidPlace(kind=_KIND, partition=excerpt(partition), position=position, problem=problem)

    def parse(self, text: str, /) -> Frontier:
        """Return the frontier of a number of polls."""
        if not _NUMBER.fullmatch(readable(_KIND, text)):
            raise InvalidNotation(kind=_KIND, text=excerpt(text), problem="a number of polls is expected")
        polls = int(text)
        check_place(_KIND, POLLS, polls)
        return Frontier({POLLS: polls})

    def render(self, frontier: Frontier, /) -> str:
        """Return the number of polls that are in."""
        return str(checked(self, frontier)[POLLS])


SEQUENCE: Final = Sequence()
"""The one instance that is needed."""
