"""Sources of many partitions, each with its own count: Kafka's topic-partitions, files, shards.

A frontier is written `partition@next`, separated by commas. A partition that is not written is at 0, one that appears
tomorrow included. Names with anything in them that separates are written as JSON writes texts. Partitions are texts,
or integers in decimal without leading zeros, which sort as numbers.

In the order `PARTITIONED` a time is an interval of partitions and a position: a key by itself stands where it is, and
the intervals between the known keys are all partitions that may still appear, at 0. Not all antichains are frontiers.
Endlessly many partitions at another position than 0 are not, nor are some at their end while others go on; both are
refused. A bounded interval of integers is its partitions, each where it is.

Invariants. `key` and `name` are inverse to each other on the partitions of the kind. For a frontier `F` that is not
sealed, with the times `A`: `positions_of(A) == F`, and `F.less_equal(G)` iff each time of G is at or beyond some time
of F. A sealed frontier has no times: nothing more will come.

>>> PARTITIONS.parse('tea@5, "salt, fine"@2')
Frontier({'tea': 5, 'salt, fine': 2})
>>> NUMBERED.render(Frontier({"10": 7, "9": 5}))
'9@5, 10@7'
>>> NUMBERED.times(Frontier({"9": 5}))
(((..9), 0), ({9}, 5), ((9..), 0))
>>> positions_of(_, int)
{9: 5}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidegauge.dataflow.order import FIRST, LAST, PARTITIONED, Cut, Interval, PartitionedTime, before
from tidegauge.dataflow.order.partitioned import Key
from tidegauge.errors.fromtime import InexpressibleTimes, InvalidNotation, InvalidPlace
from tidegauge.remap.fromtime.protocol import LARGEST, check_place, checked, excerpt, readable
from tidegauge.remap.frontier import Frontier

__all__ = ["NUMBERED", "PARTITIONS", "WIDEST", "Partitions", "positions_of", "times_of"]

WIDEST: Final = 2**16
"""Partitions that one interval of integers may stand for."""

_PLAIN: Final = r'[^\s@,"]+'
_ELEMENT: Final = re.compile(rf'\s*("(?:[^"\\]|\\.)*"|{_PLAIN})@(0|[1-9][0-9]{{0,18}})\s*(,|\Z)', re.DOTALL)
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")


def times_of(positions: Mapping[Key, int]) -> tuple[PartitionedTime, ...]:
    """Return the antichain of a frontier that is not sealed, in sort order.

    Between two neighbouring integers there is nothing that could appear: that interval is left out.

    >>> times_of({3: 5, 4: 2})
    (((..3), 0), ({3}, 5), ({4}, 2), ((4..), 0))
    """
    return tuple(time for time in PARTITIONED.frontier(positions) if _holds_any(time[0]))


def positions_of(times: Iterable[PartitionedTime], key: type[str] | type[int]) -> dict[Any, int]:
    """Return the positions above 0 of an antichain that is not empty. Raises ValueError, which says why it is none.

    The intervals must cover all partitions, each once, with keys of the type `key`.
    """
    found: dict[Any, int] = {}
    reached = FIRST
    for interval, position in _sorted(times, key):
        if interval.lower < reached:
            raise ValueError(f"{interval!r} overlaps with the interval before it")
        _pass_over(reached, interval.lower)
        reached = interval.upper
        if position:
            found.update(dict.fromkeys(_keys(interval), position))
    _pass_over(reached, LAST)
    return found


def _sorted(times: Iterable[PartitionedTime], key: type) -> list[PartitionedTime]:
    """Return times in the order of their intervals, with one cut for all at the same place, and no empty ones."""
    found: list[PartitionedTime] = []
    for time in times:
        if not PARTITIONED.has(time) or any(len(cut) == 3 and type(cut[1]) is not key for cut in time[0]):
            raise ValueError(f"{time!r} is no interval of partitions of type {key.__name__} with a position")
        if _holds_any(time[0]):
            found.append((Interval(_cut(time[0].lower), _cut(time[0].upper)), time[1]))
    return sorted(found, key=lambda time: time[0])


def _cut(cut: Cut) -> Cut:
    """Return the one cut that stands for all between the same two integers: the one before the second of them.

    >>> _cut((1, 3, 1)), _cut((1, 3, 0)), _cut((1, "tea", 1))
    ((1, 4, 0), (1, 3, 0), (1, 'tea', 1))
    """
    return before(cut[1] + 1) if len(cut) == 3 and isinstance(cut[1], int) and cut[2] else cut


def _holds_any(interval: Interval) -> bool:
    return bool(_cut(interval.lower) < _cut(interval.upper))


def _pass_over(lower: Cut, upper: Cut) -> None:
    if lower < upper:
        raise ValueError(f"the partitions {Interval(lower, upper)!r} have ended, and others go on")


def _keys(interval: Interval) -> Iterable[Key]:
    """Return the keys of an interval that are all of them known."""
    if interval.single:
        return (interval.lower[1],)
    if not all(len(cut) == 3 and isinstance(cut[1], int) for cut in interval):
        raise ValueError(f"the partitions {interval!r} are not all known, and so must be at 0")
    first, end = interval.lower[1], interval.upper[1]
    if end - first > WIDEST:
        raise ValueError(f"{interval!r} has more than {WIDEST} partitions")
    return range(first, end)


@dataclass(frozen=True, slots=True)
class Partitions:
    """The clock of sources with partitions. `integers`: whether these are integers of 64 bits."""

    integers: bool = False

    @property
    def kind(self) -> str:
        """The name of the kind."""
        return "partitioned-integers" if self.integers else "partitioned"

    def check(self, partition: str, position: int, /) -> None:
        """Raise `InvalidPlace` for a partition that is no integer where it has to be one."""
        if self.integers and not (_INTEGER.fullmatch(partition) and -LARGEST - 1 <= int(partition) <= LARGEST):
            problem = "it is no integer of 64 bits, written without leading zeros"
            raise InvalidPlace(kind=self.kind, partition=excerpt(partition), position=position, problem=problem)

    def parse(self, text: str, /) -> Frontier:
        """Return the frontier written as `partition@next, ...`; no text is the origin."""
        found: dict[str, int] = {}
        at, more = 0, bool(readable(self.kind, text).strip())
        while more:
            element = _ELEMENT.match(text, at)
            if element is None:
                raise self._invalid(text[at:], "partition@next is expected, with a comma before another one")
            partition = self._unquoted(element[1])
            if partition in found:
                raise self._invalid(text[at:], f"partition {excerpt(partition)!r} is in it twice")
            found[partition] = int(element[2])
            self._check(partition, found[partition])
            at, more = element.end(), element[3] == ","
        return Frontier(found)

    def render(self, frontier: Frontier, /) -> str:
        """Return a frontier as `partition@next, ...`, in the order of its partitions."""
        keys = sorted(self.key(partition) for partition in checked(self, frontier))
        return ", ".join(f"{_quoted(name)}@{frontier[name]}" for name in map(self.name, keys))

    def key(self, partition: str) -> str | int:
        """Return a partition's key: what it sorts by, and what the order `PARTITIONED` knows it as."""
        self._check(partition, 0)
        return int(partition) if self.integers else partition

    def name(self, key: str | int) -> str:
        """Return the name of a key's partition in a frontier."""
        return str(key)

    def times(self, frontier: Frontier) -> tuple[PartitionedTime, ...]:
        """Return a frontier as an antichain of `PARTITIONED`: see `intervals`. A sealed one has no times."""
        if frontier.sealed:
            return ()
        return times_of({self.key(partition): n for partition, n in checked(self, frontier).items()})

    def frontier(self, times: Iterable[PartitionedTime]) -> Frontier:
        """Return an antichain of `PARTITIONED` as a frontier; no times at all are the end. Raises
        `InexpressibleTimes`."""
        given = tuple(times)
        if not given:
            return Frontier(sealed=True)
        try:
            positions = positions_of(given, int if self.integers else str)
        except ValueError as error:
            raise InexpressibleTimes(kind=self.kind, times=excerpt(repr(given)), problem=str(error)) from error
        return checked(self, Frontier({self.name(key): position for key, position in positions.items()}))

    def _check(self, partition: str, position: int) -> None:
        check_place(self.kind, partition, position)
        self.check(partition, position)

    def _unquoted(self, written: str) -> str:
        if not written.startswith('"'):
            return written
        try:
            return str(json.loads(written))
        except ValueError:
            raise self._invalid(written, "its partition is no text as JSON writes it") from None

    def _invalid(self, text: str, problem: str) -> InvalidNotation:
        return InvalidNotation(kind=self.kind, text=excerpt(text), problem=problem)


def _quoted(partition: str) -> str:
    return partition if re.fullmatch(_PLAIN, partition) else json.dumps(partition, ensure_ascii=False)


PARTITIONS: Final = Partitions()
"""Partitions that are texts."""

NUMBERED: Final = Partitions(integers=True)
"""Partitions that are integers."""
