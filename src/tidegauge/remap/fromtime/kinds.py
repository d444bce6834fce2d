"""The kinds of clocks that a program knows, by name: an immutable mapping that is passed on, not a place to write to.

A running flow looks nothing up. Its sources are values that their user made and passed, as formats are, and each
brings its FromTime along. Names are only needed to read a frontier back whose source is not at hand; then you pass
the kinds that you know. So a kind of your own is one argument away:

    mine = FROM_TIMES.register(Chapters())

A table that registration wrote to would depend on which modules were imported before, and not reach into tasks;
entry points would run whatever is installed beside a program. Both are worse than an argument.

Invariant: a kind has one FromTime; `register` leaves the mapping it was called on as it was.

>>> FROM_TIMES.from_time("lsn").render(FROM_TIMES.from_time("lsn").parse("0/10"))
'0/10'
>>> sorted(FROM_TIMES)
['gtid', 'lsn', 'mariadb-gtid', 'partitioned', 'partitioned-integers', 'sequence']
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.fromtime import FromTimeTaken, UnknownFromTime
from tidegauge.remap.fromtime.gtid import GTID
from tidegauge.remap.fromtime.lsn import LSN
from tidegauge.remap.fromtime.mariadb import MARIADB
from tidegauge.remap.fromtime.partitioned import NUMBERED, PARTITIONS
from tidegauge.remap.fromtime.polled import SEQUENCE
from tidegauge.remap.fromtime.protocol import FromTime, excerpt

__all__ = ["FROM_TIMES", "FromTimes"]

_KIND: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")


class FromTimes(Mapping[str, FromTime]):
    """An immutable mapping from kind to FromTime."""

    __slots__ = ("_by_kind",)

    def __init__(self, *from_times: FromTime) -> None:
        """Raises `FromTimeTaken` for two of one kind, `InvalidArgument` for anything but a FromTime."""
        found: dict[str, FromTime] = {}
        for from_time in from_times:
            kind = _kind(from_time)
            if kind in found:
                raise FromTimeTaken(kind=kind)
            found[kind] = from_time
        self._by_kind: Final = MappingProxyType(found)

    def register(self, from_time: FromTime) -> FromTimes:
        """Return these kinds and one more. Raises `FromTimeTaken` and `InvalidArgument`."""
        return FromTimes(*self._by_kind.values(), from_time)

    def from_time(self, kind: str) -> FromTime:
        """Return the FromTime of a kind. Raises `UnknownFromTime`."""
        try:
            return self._by_kind[kind]
        except KeyError:
            raise UnknownFromTime(kind=excerpt(kind), known=sorted(self._by_kind)) from None

    def __getitem__(self, kind: str) -> FromTime:
        return self._by_kind[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_kind)

    def __len__(self) -> int:
        return len(self._by_kind)

    def __repr__(self) -> str:
        return f"FromTimes({', '.join(self._by_kind)})"


def _kind(from_time: object) -> str:
    if isinstance(from_time, type) or not isinstance(from_time, FromTime):
        raise InvalidArgument(
            parameter="from_time",
            value=excerpt(repr(from_time)),
            expected="an object with kind, check, parse, render",
        )
    kind = from_time.kind
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise InvalidArgument(
            parameter="kind",
            value=excerpt(str(kind)),
            expected="1 to 64 of a-z, 0-9 and '-', beginning with a letter",
        )
    return kind


FROM_TIMES: Final = FromTimes(PARTITIONS, NUMBERED, LSN, GTID, MARIADB, SEQUENCE)
"""The kinds that come with Tidegauge."""
