"""A FromTime is the kind of clock that a source goes by: how upstream's notation and a `Frontier` say the same.

All that is reclocked by range is partitioned, so frontiers are all that the remap table knows. What differs between
kinds of upstream is which partitions and positions there are, and how people and servers write them. That is all
that is asked of a kind; order, joins and ranges are the frontier's, and the encoding is one for all (`encoding`).

Laws, for every frontier `f` and `g` that passes `checked`:

    parse(render(f)) == f               (a sealed one comes back unsealed: upstream's notation has no end)
    f.less_equal(g)  iff  upstream itself takes `render(f)` to be at or before `render(g)`

>>> from tidegauge.remap.fromtime.lsn import LSN
>>> checked(LSN, LSN.parse("0/10"))
Frontier({'wal': 16})
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from tidegauge.errors.fromtime import InvalidNotation, InvalidPlace
from tidegauge.remap.frontier import Frontier

__all__ = ["LARGEST", "LONGEST_NAME", "LONGEST_TEXT", "FromTime", "check_place", "checked", "excerpt", "readable"]

LARGEST: Final = 2**63 - 1
"""The largest position: the store, Arrow and numpy have signed integers of 64 bits."""
LONGEST_NAME: Final = 1024
"""Bytes of a partition's name in UTF-8, as the store has it."""
LONGEST_TEXT: Final = 2**26
"""Characters of a frontier in any notation."""


@runtime_checkable
class FromTime(Protocol):
    """The clock of one kind of upstream. A value: it holds configuration, and nothing of a source."""

    @property
    def kind(self) -> str:
        """The name of the kind: lower-case letters, digits and '-'. It is kept with every encoded frontier."""
        ...

    def check(self, partition: str, position: int, /) -> None:
        """Raise `InvalidPlace` where there is no such partition or position. 0 is never asked for.

        That the partition is a name and the position an integer of 63 bits is known by then.
        """
        ...

    def parse(self, text: str, /) -> Frontier:
        """Return the frontier that upstream writes so. Raises `InvalidNotation` or `InvalidPlace`."""
        ...

    def render(self, frontier: Frontier, /) -> str:
        """Return a frontier as upstream would write it. Raises `InvalidPlace`."""
        ...


def check_place(kind: str, partition: object, position: object) -> None:
    """Raise `InvalidPlace` for what no kind has: names that a store would refuse, positions beyond 63 bits.

    >>> check_place("lsn", "wal", 2**63)
    Traceback (most recent call last):
    tidegauge.errors.fromtime.InvalidPlace: TG-0571: the clock 'lsn' has no position 9223372036854775808 in ...
    """
    if problem := _name_problem(partition) or _position_problem(position):
        shown = excerpt(partition) if isinstance(partition, str) else repr(partition)
        raise InvalidPlace(kind=kind, partition=shown, position=excerpt(_number(position)), problem=problem)


def checked(from_time: FromTime, frontier: Frontier) -> Frontier:
    """Return the frontier, all of whose places the kind has. Raises `InvalidPlace`."""
    for partition, position in frontier.items():
        check_place(from_time.kind, partition, position)
        from_time.check(partition, position)
    return frontier


def readable(kind: str, text: object) -> str:
    """Return a text that is short enough to be parsed. Raises `InvalidNotation`."""
    if not isinstance(text, str):
        raise InvalidNotation(kind=kind, text=excerpt(repr(text)), problem="it is no text")
    if len(text) > LONGEST_TEXT:
        raise InvalidNotation(kind=kind, text=excerpt(text), problem=f"it is longer than {LONGEST_TEXT} characters")
    return text


def excerpt(text: str) -> str:
    """Return a text that may come from anywhere, short enough for an error.

    >>> excerpt("0" * 1000) == "0" * 80 + "..."
    True
    """
    return text if len(text) <= 80 else f"{text[:80]}..."


def _name_problem(partition: object) -> str:
    if not isinstance(partition, str):
        return "its partition is no text"
    if "\0" in partition:
        return "its partition has a NUL in it"
    try:
        size = len(partition.encode())
    except UnicodeEncodeError:
        return "its partition is no Unicode text"
    return "" if size <= LONGEST_NAME else f"its partition takes more than {LONGEST_NAME} bytes"


def _position_problem(position: object) -> str:
    if type(position) is not int:
        return "its position is no integer"
    return "" if 0 <= position <= LARGEST else "its position is not from 0 to 2**63 - 1"


def _number(value: object) -> str:
    """Return a number as text; Python refuses to write integers of many thousand digits in decimal."""
    return repr(value) if not isinstance(value, int) or value.bit_length() <= 256 else hex(value)
