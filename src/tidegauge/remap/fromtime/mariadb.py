"""MariaDB's transactions: a partition for each domain, whose positions count its transactions.

A GTID is written `domain-server-sequence`. Within a domain the sequence is the order; the server only says who wrote
the transaction, and a standby that was promoted goes on counting. So the server is read and left out. A frontier is
exclusive (law 6): a domain whose last transaction was 10 is at 11, and is written `3-10`. No domain is ever at 1,
which would say the same as 0.

This is not the clock of MySQL, whose GTIDs (`gtid`) count for each server, and have sets with gaps.

>>> MARIADB.parse("0-57-4,3-57-10")
Frontier({'0': 5, '3': 11})
>>> MARIADB.render(_)
'0-4,3-10'
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tidegauge.errors.fromtime import InvalidNotation, InvalidPlace
from tidegauge.remap.fromtime.protocol import LARGEST, checked, excerpt, readable
from tidegauge.remap.frontier import Frontier

__all__ = ["MARIADB", "MariaDbTime"]

_KIND: Final = "mariadb-gtid"
_GTID: Final = re.compile(r"(0|[1-9][0-9]{0,9})-(?:(?:0|[1-9][0-9]{0,9})-)?([1-9][0-9]{0,18})")
_DOMAIN: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_DOMAINS: Final = 2**32


@dataclass(frozen=True, slots=True)
class MariaDbTime:
    """The clock of MariaDB servers that replicate to each other."""

    @property
    def kind(self) -> str:
        """The name of the kind."""
        return _KIND

    def check(self, partition: str, position: int, /) -> None:
        """Raise `InvalidPlace` for a partition that is no domain, and for position 1."""
        if not _DOMAIN.fullmatch(partition) or int(partition) >= _DOMAINS:
            problem = "its partition is no domain, an integer below 2**32"
        elif position == 1:
            problem = "transactions count from 1, so the next one is 2 or more, or there was none and it is at 0"
        else:
            return
        raise InvalidPlace(kind=_KIND, partition=excerpt(partition), position=position, problem=problem)

    def parse(self, text: str, /) -> Frontier:
        """Return the frontier of a position, as `gtid_binlog_pos` has it; no text is the origin."""
        found: dict[str, int] = {}
        whole = readable(_KIND, text)
        for element in whole.split(",") if whole else ():
            gtid = _GTID.fullmatch(element)
            if gtid is None or int(gtid[1]) >= _DOMAINS or int(gtid[2]) >= LARGEST:
                problem = "domain-server-sequence is expected, with a comma between two of them"
                raise InvalidNotation(kind=_KIND, text=excerpt(element), problem=problem)
            if gtid[1] in found:
                raise InvalidNotation(kind=_KIND, text=excerpt(text), problem=f"domain {gtid[1]} is in it twice")
            found[gtid[1]] = int(gtid[2]) + 1
        return Frontier(found)

    def render(self, frontier: Frontier, /) -> str:
        """Return `domain-sequence` of the last transaction of each domain that is in."""
        positions = sorted(checked(self, frontier).items(), key=lambda one: int(one[0]))
        return ",".join(f"{domain}-{following - 1}" for domain, following in positions)


MARIADB: Final = MariaDbTime()
"""The one instance that is needed."""
