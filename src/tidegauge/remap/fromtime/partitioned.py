"""Sources of many partitions, each with its own count: Kafka's topic-partitions, files, shards.

A frontier is written `partition@next`, separated by commas. A partition that is not written is at 0, one that appears
tomorrow included. Names with anything in them that separates are written as JSON writes texts.

Partitions are texts, or integers. Integers are written in decimal without leading zeros, one text for each, and sort
as numbers. Invariant: `key` and `name` are inverse to each other on the partitions of the kind.

>>> PARTITIONS.parse('tea@5, "salt, fine"@2')
Frontier({'tea': 5, 'salt, fine': 2})
>>> NUMBERED.render(Frontier({"10": 7, "9": 5}))
'9@5, 10@7'
>>> NUMBERED.times(Frontier({"9": 5}))
(((..9), 0), ({9}, 5), ((9..), 0))
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidegauge.dataflow.order import PartitionedTime
from tidegauge.errors.fromtime import InexpressibleTimes, InvalidNotation, InvalidPlace
from tidegauge.remap.fromtime.intervals import positions_of, times_of
from tidegauge.remap.fromtime.protocol import LARGEST, check_place, checked, excerpt, readable
from tidegauge.remap.frontier import Frontier

__all__ = ["NUMBERED", "PARTITIONS", "Partitions"]

_PLAIN: Final = r'[^\s@,"]+'
_ELEMENT: Final = re.compile(rf'\s*("(?:[^"\\]|\\.)*"|{_PLAIN})@(0|[1-9][0-9]{{0,18}})\s*(,|\Z)', re.DOTALL)
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")


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
