"""PostgreSQL's log: one partition, whose positions are places in the write-ahead log.

An LSN is an unsigned integer of 64 bits, written as two halves in hexadecimal: `16/B374D848`. A transaction is at the
LSN of its commit. Frontiers are exclusive (law 6): the LSN that a frontier is written as is the first one that is
*not* in, and what committed at `c` is in from the frontier `c.after` on, one beyond it. PostgreSQL means the same by
`confirmed_flush_lsn`: what committed before it is not sent again. The snapshot of a table is at 0/0 by convention,
so it is in whenever anything is.

A position is a signed integer of 64 bits, so the upper half of all LSNs has none, and is refused as a frontier. A
server that writes a gigabyte each second comes there after 292 years.

>>> commit = Lsn.parse("16/B374D848")
>>> commit.value, str(commit), commit < Lsn.parse("17/0")
(97500059720, '16/B374D848', True)
>>> LSN.parse("16/B374D849") == Frontier({WAL: commit.after})
True
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tidegauge.errors.fromtime import InvalidNotation, InvalidPlace
from tidegauge.remap.fromtime.protocol import LARGEST, check_place, checked, excerpt, readable
from tidegauge.remap.frontier import Frontier

__all__ = ["LSN", "WAL", "Lsn", "LsnTime"]

WAL: Final = "wal"
"""The one partition: the write-ahead log."""

_KIND: Final = "lsn"
_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


@dataclass(frozen=True, order=True, slots=True)
class Lsn:
    """A place in the write-ahead log, from 0 to 2**64 - 1. They sort as the log goes."""

    value: int

    def __post_init__(self) -> None:
        if type(self.value) is not int or not 0 <= self.value < 2**64:
            raise InvalidNotation(kind=_KIND, text=excerpt(repr(self.value)), problem="it is not from 0 to 2**64 - 1")

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Return the LSN written as `X/Y`. Raises `InvalidNotation`.

        >>> Lsn.parse("0/016B3748") == Lsn.parse("0/16b3748")
        True
        """
        found = _LSN.fullmatch(readable(_KIND, text))
        if found is None:
            problem = "two hexadecimal numbers of at most 8 digits with a '/' between them are expected"
            raise InvalidNotation(kind=_KIND, text=excerpt(text), problem=problem)
        return cls((int(found[1], 16) << 32) + int(found[2], 16))

    @property
    def after(self) -> int:
        """The least position with which all that committed here is in. Raises `InvalidPlace` from 2**63 - 1 on."""
        return _position(Lsn(self.value + 1) if self.value < 2**64 - 1 else self)

    def __str__(self) -> str:
        return f"{self.value >> 32:X}/{self.value & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True)
class LsnTime:
    """The clock of a PostgreSQL server."""

    @property
    def kind(self) -> str:
        """The name of the kind."""
        return _KIND

    def check(self, partition: str, position: int, /) -> None:
        """Raise `InvalidPlace` for another partition than `WAL`."""
        if partition != WAL:
            problem = f"its only partition is {WAL!r}"
            raise InvalidPlace(kind=_KIND, partition=excerpt(partition), position=position, problem=problem)

    def parse(self, text: str, /) -> Frontier:
        """Return the frontier at which everything that committed before an LSN is in."""
        return Frontier({WAL: _position(Lsn.parse(text))})

    def render(self, frontier: Frontier, /) -> str:
        """Return the first LSN that is not in."""
        return str(Lsn(checked(self, frontier)[WAL]))


def _position(lsn: Lsn) -> int:
    if lsn.value > LARGEST:
        problem = f"the LSN {lsn} is 2**63 or more, and positions are signed"
        raise InvalidPlace(kind=_KIND, partition=WAL, position=lsn.value, problem=problem)
    check_place(_KIND, WAL, lsn.value)
    return lsn.value


LSN: Final = LsnTime()
"""The one instance that is needed."""
