"""`ServedParts`, `ServedQueue`: what a connector of bytewax reads in a simulated world, in memory.

    parts    named partitions with rows by position. Each has a manner: it is asked again and again, says when it
             wakes, or has its caller wait. It may end, be listed no more, and give states of any kept type
    queue    rows that are given once, to the first that takes them; those that are not staged go with their taker

An item is the number of its part and its position in it. `row=` leaves every fifth item of a part out.

Invariant: a staged poll follows from the states before and after it, or from the items taken. So a check knows its
rows, and `broken` says which law does not hold.

>>> parts = ServedParts(Random(1))
>>> parts.write("append", 6)
>>> parts.coming(), parts.parts["part-0"].state(6)
(True, 6)
>>> parts.has_come([["part-0", 6, 6]], lambda _items: True)
[(0, 0), (0, 1), (0, 2), (0, 3), (0, 5)]
>>> parts.coming(), parts.broken
(False, None)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, Literal, Protocol

from tidegauge.sources.polls.states import decoded
from tidegauge.testing.simulation.ledger import Broken

__all__ = ["Item", "Served", "ServedParts", "ServedQueue", "ServedReader", "is_left_out"]

Item = tuple[int, int]
"""The number of a part, and a position in it."""

_MOST: Final = 4
"""Partitions that there are at most."""
_LEFT_OUT: Final = 5
_ZERO: Final = datetime(2026, 1, 1, tzinfo=UTC)
_MANNERS: Final[tuple[Literal["asked", "wakes", "waits"], ...]] = ("wakes", "asked", "waits", "wakes")


@dataclass(eq=False)
class ServedReader:
    """A connector, as one driver has it: what it knows, and has done.

    gone: whether its driver is. known: how many polls it must know to be staged. listed: its partitions, once it has
    asked. ended: where those are that it asks no more. taken: the items that it took of a queue, and staged how many
    of these are. reading: whether it reads on.
    """

    gone: Callable[[], bool]
    known: int
    listed: list[str] | None = None
    ended: dict[str, int] = field(default_factory=dict)
    taken: list[Item] = field(default_factory=list)
    staged: int = 0
    reading: bool = False

    def reaches(self, name: str, end: int) -> int:
        """Return up to where it reads a partition that has rows up to an end."""
        return self.ended.get(name, end) if self.listed is None or name in self.listed else 0


class Served(Protocol):
    """What the writer of a connector's upstream knows of it."""

    away: bool
    broken: Broken | None
    readers: list[ServedReader]

    def write(self, what: str, count: int) -> None:
        """Do what a writer does."""
        ...

    def coming(self) -> bool:
        """Whether anything has to be staged yet."""
        ...

    def heard(self, polls: int) -> int:
        """Return how many of the staged polls have to arrive."""
        ...

    def has_come(self, parts: Sequence[Sequence[Any]], fits: Callable[[Sequence[Item]], bool]) -> list[Item]:
        """Hear of one more staged poll, and return the items that it has to have.

        parts: the state after it. fits: whether it has the rows of some items, in their order.
        """
        ...


def is_left_out(item: Item) -> bool:
    """Whether `row=` returns nothing for an item."""
    return item[1] % _LEFT_OUT == _LEFT_OUT - 1


@dataclass(slots=True)
class ServedPart:
    """A partition. rows: how many it has. states: the position of each state that it told, by what the state is."""

    number: int
    rows: int = 0
    listed: bool = True
    version: int = 0
    states: dict[str, int] = field(default_factory=lambda: {"None": 0})

    @property
    def manner(self) -> Literal["asked", "wakes", "waits"]:
        """How it has its caller know that there is nothing."""
        return _MANNERS[self.number]

    def state(self, at: int) -> Any:
        """Return the state at a position: each part has one of another type."""
        found: Any = [
            at or None,
            {"at": (at, 2**70 + self.version, 1.5), b"v": None},
            _ZERO + timedelta(seconds=at, microseconds=self.version),
            [b"%d\xff" % at, True, str(self.version)],
        ][self.number]
        self.states[repr(found)] = at
        return found


@dataclass
class ServedParts:
    """Partitions of a `FixedPartitionedSource`. unkept: whether the next state is of no kind that is kept.

    staged: where each partition is after each staged poll.
    """

    random: Random
    away: bool = False
    broken: Broken | None = None
    unkept: bool = False
    parts: dict[str, ServedPart] = field(default_factory=dict)
    staged: list[dict[str, int]] = field(default_factory=list)
    readers: list[ServedReader] = field(default_factory=list)

    def __post_init__(self) -> None:
        for _ in range(self.random.randrange(1, _MOST + 1)):
            self._grow()

    def _grow(self) -> None:
        if (number := len(self.parts)) < _MOST:
            self.parts[f"part-{number}"] = ServedPart(number)

    def write(self, what: str, count: int) -> None:
        """Have more rows, or another partition, or one that is listed no more; or let states change their kind."""
        if what == "grow":
            self._grow()
        part = self.random.choice([*self.parts.values()])
        if what == "compact":
            part.listed = not part.listed
        elif what in ("append", "grow", "transact"):
            part.rows += count
        if what == "transact":
            part.version += 1
            self.unkept = True

    def coming(self) -> bool:
        """Whether a partition has rows that are not staged, and that all who live read."""
        here = [reader for reader in self.readers if not reader.gone()]
        staged = self.staged[-1] if self.staged else {}
        for name, part in self.parts.items():
            end = min([part.rows, *(one.reaches(name, part.rows) for one in here)])
            if any(not is_left_out((part.number, at)) for at in range(staged.get(name, 0), end)):
                return True
        return False

    def heard(self, polls: int) -> int:
        """Return all of them: each driver reads the same items, and finds them staged."""
        return polls

    def has_come(self, parts: Sequence[Sequence[Any]], fits: Callable[[Sequence[Item]], bool]) -> list[Item]:
        """Hear of one more staged poll, by the states after it."""
        before = self.staged[-1] if self.staged else {}
        after = {name: self.place(name, decoded(kept)) for name, kept, _ in parts}
        self.staged.append(after)
        if (missing := before.keys() - after.keys()) or any(after[name] < at for name, at in before.items()):
            self._break("no partition goes back or is forgotten", f"{before}, then {parts}, without {missing}")
        if after != {name: items for name, _, items in parts}:
            self._break("a state is the one after its items", f"{parts} are at {after}")
        items = [
            item
            for name, at in after.items()
            for item in ((self.parts[name].number, place) for place in range(before.get(name, 0), at))
            if not is_left_out(item)
        ]
        if not fits(items):
            self._break("a poll has its items, each once and in the order of its partition", f"{before} to {after}")
        return items

    def place(self, name: str, state: Any) -> int:
        """Return the position of a state that a partition told."""
        if (found := self.parts[name].states.get(repr(state))) is None:
            self._break("a state is kept as it was told", f"{name}: {state!r}")
        return found or 0

    def built(self, reader: ServedReader, name: str, state: Any) -> int:
        """Return where a partition begins that is built from a state, by a driver that knows of staged polls."""
        at = self.place(name, state)
        known = self.staged[reader.known - 1].get(name, 0) if reader.known else 0
        if at < known:
            said = f"{name} from {at}, and poll {reader.known - 1} is at {known}"
            self._break("staged items are not read again", said)
        reader.ended.pop(name, None)
        return at

    def _break(self, law: str, said: str) -> None:
        self.broken = self.broken or Broken(law, said)


@dataclass
class ServedQueue:
    """What a `DynamicSource` takes. waiting: the positions that nobody has taken."""

    random: Random
    away: bool = False
    broken: Broken | None = None
    rows: int = 0
    waiting: deque[int] = field(default_factory=deque)
    staged: int = 0
    readers: list[ServedReader] = field(default_factory=list)

    def write(self, what: str, count: int) -> None:
        """Have more rows."""
        if what in ("append", "grow", "transact"):
            self.waiting += range(self.rows, self.rows + count)
            self.rows += count

    def coming(self) -> bool:
        """Whether rows wait, or a driver that reads has any that are not staged."""
        having = any(len(one.taken) > one.staged for one in self.readers if one.reading and not one.gone())
        return bool(self.waiting) or having

    def heard(self, polls: int) -> int:
        """Return those that a driver knows of: a poll of one without the lease comes with the next one."""
        return max((one.known for one in self.readers if not one.gone()), default=polls)

    def has_come(self, parts: Sequence[Sequence[Any]], fits: Callable[[Sequence[Item]], bool]) -> list[Item]:
        """Hear of one more staged poll: what somebody has taken, from where that is staged on."""
        [(_, _, items)] = parts
        count, self.staged = items - self.staged, items
        for reader in self.readers:
            found = reader.taken[reader.staged : reader.staged + count]
            if len(found) == count and fits(found):
                reader.staged += count
                return found
        said = f"{count} items, {[one.taken[one.staged :] for one in self.readers]} are to come"
        self.broken = self.broken or Broken("what a driver took of a queue is staged whole and in order", said)
        return []
